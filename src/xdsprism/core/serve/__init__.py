"""What one downstream xDS client is sent, on one stream.

Decides: what a request subscribes to, which responses are due, in which order the types of a stream go out, what an ACK
or a NACK means, which resources are sent again alone after a NACK, when a removal may go out (make before break).

Main types: `Stream` (stream.py: the node, its sessions by type, the order between them), `SotwSession` and
`DeltaSession` (sotw.py, delta.py: one type on one stream), `Interest` (interest.py: from a changed name to the sessions
that subscribed to it).

Imports: `model`.
"""
