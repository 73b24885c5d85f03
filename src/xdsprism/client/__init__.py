"""Subscriptions to somebody else's xDS server."""
