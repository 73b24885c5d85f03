"""Decide what one downstream xDS client is sent, on one stream.

This package decides what a request subscribes to, which responses are due, in which order the types of a stream go out,
what an ACK or a NACK means, which resources are sent again alone after a NACK, and when a removal may go out (make
before break).

Main types: `Stream` (stream.py: the node, its sessions by type, the order between them), `SotwSession` and
`DeltaSession` (sotw.py, delta.py: one type on one stream; session.py lists the layers that they share), `Interest`
(interest.py: from a changed name to the sessions that subscribed to it).

Imports: `model`.
"""
