"""Serves many clients from few servers: an xDS relay whose cache proves which clients may share a resource."""
