"""The sans-I/O engine: what decides never awaits; no clock, socket, log or environment in here."""
