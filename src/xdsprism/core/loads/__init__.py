"""Collect, request and aggregate load reports (LRS, gRFC A27).

Decides: what a client reports and when, which clusters a server asks for, which figures in a report are plausible.

Main types: `Loads` and `LoadSession` (loads.py: the client's side), `LoadReports` (load_reports.py: the server's side).

Imports: `model`.
"""
