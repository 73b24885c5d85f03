"""Decide what goes out on one stream, over all its resource types.

This package decides which session a request belongs to, in which order the types of a stream go out, what a response of
one type makes due in another, and when a removal may go out (make before break).

Main types: `Stream` (stream.py: the node, its sessions by type, the order between them), `Removals` (removals.py),
`Fetch` (fetching.py: one request and one response, without a stream).

Imports: `session`, `model`.
"""
