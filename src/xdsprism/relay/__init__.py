"""Serve many clients from few servers: an xDS relay with a cache that proves what clients may share."""
