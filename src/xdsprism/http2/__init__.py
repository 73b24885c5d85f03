"""HTTP/2 and gRPC, as bytes in and bytes out: no socket, clock or loop is known here (RFC 9113, RFC 7541)."""
