"""Decide what a client may have, by who it proved to be.

- `Identity` is one thing that a client proved: a SPIFFE id, a host name, a certificate's subject, or that of a token.
- `Tokens` says whether a bearer token proves something.
- `Policy` is a list of rules. The first one whose identity and node match a client gives it a `Grant`.
- `Grant` says what the clients of one rule may have: types, names, and what becomes of the params that they claim.

A stream finds its grant once, when its first request names the node. Sessions see only the grant. The rules are read
from a file in sources/policy_file.py. Imports only `model`.
"""
