"""Decide what one downstream client is sent of one resource type, on one stream.

This package decides what a request subscribes to, in which state each resource is at the client, which responses are
due, what an ACK or a NACK means, and which resources are sent again alone after a NACK.

Main types: `Session` (session.py: it puts the parts together, and lists them), `Holdings` (holdings.py: the states of
each resource at the client), `Interest` (interest.py: from a changed name to the sessions that subscribed to it).

Imports: `model`.
"""
