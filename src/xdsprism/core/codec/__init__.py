"""Translate between protobuf bytes and the plain values that the other packages of the core use, in both directions.

Decides: how much of a malformed request can be used, how a response is joined from frames that were encoded once, what
a message refers to.

Main types: `Decoder` (server_requests.py: requests in), `Encoder` (server_responses.py: responses out),
`ResponseDecoder` and `RequestEncoder` (client_side.py: requests out, responses in).

Imports: `model` and `loads`. No other package of the core imports protobuf.
"""
