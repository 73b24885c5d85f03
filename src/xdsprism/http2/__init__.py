"""The server's side of HTTP/2 and gRPC, without I/O: bytes in, events out; messages in, bytes out (RFC 9113, RFC 7541).

Nothing here knows a socket, a clock or an event loop: `server/engine_h2.py` has these. From the wire upwards:

    frames, codes            frames to and from bytes, and the numbers of the RFC
    blocks, requests         header blocks (HPACK), and the requests that they describe
    stream, streams          the state of open streams; how one begins and ends
    closed_streams           which streams closed lately
    receive_windows, pings   how much a peer may send; when its PINGs are answered
    frame_reader, outbound   the rules of a connection: what may arrive when, and what may be sent (flow control)
    connection, events       all of this in one object, and what it tells the layer above
    limits, faults, facts    what a peer may cost us, what it did wrong, and what metrics and logs are told
    lifetime                 keepalive, GOAWAY, draining
    grpc, rpc                gRPC messages, statuses and deadlines on top of streams
    sniffing                 what a peer speaks that does not speak HTTP/2
"""
