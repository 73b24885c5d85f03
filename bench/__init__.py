"""Measurements, printed and never asserted: the machine may be busy. Run them with `make bench`."""
