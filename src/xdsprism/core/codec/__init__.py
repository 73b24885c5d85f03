"""Translate between protobuf bytes and the plain values of the rest of the core, in both directions.

Decides: how much of a malformed request can be used, how a response is joined from frames that were encoded once, what
a message refers to.

Main types: `Decoder` and `Encoder` (server_side.py: requests in, responses out), `ResponseDecoder` and `RequestEncoder`
(client_side.py: requests out, responses in).

Imports: `model` and `loads`. No other package of the core imports protobuf.
"""
