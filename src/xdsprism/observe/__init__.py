"""Readers of the engine's facts: metrics and logs."""
