"""Between protobuf bytes and the plain values of the other rooms, both ways.

Decides: how much of a malformed request can be used, how a response is joined from frames that were encoded once, what
a message refers to.

Main types: `Decoder` and `Encoder` (server_side.py: requests in, responses out), `ResponseDecoder` and `RequestEncoder`
(client_side.py: the other way round).

Imports: `model` and `loads`. This is the only room that imports protobuf.
"""
