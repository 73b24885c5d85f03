"""Fuzzing of what reads bytes from the network: `make fuzz`, and README.md beside this file."""
