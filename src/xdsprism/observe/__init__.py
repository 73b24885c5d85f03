"""Metrics and logs: readers of the facts that the core and the transports report."""
