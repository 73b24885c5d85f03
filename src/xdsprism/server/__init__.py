"""The shells that put the engine on the wire: bytes in, bytes out."""
