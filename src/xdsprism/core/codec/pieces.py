"""Split a delta request that exceeds the message limit into several requests while it arrives (SRV-24, VHD-26).

When Envoy reconnects, it names everything that it ever subscribed to, and anybody who sends it requests can make it
subscribe to any number of hosts and clusters. A limit on the size of that request would lock such an Envoy out for
good.

Delta subscriptions add up, so the request may come in parts: its fields go, in their order, into requests of a few
megabytes. The first one has the node, and each one has the type URL. The server holds one part at a time.

A name above `FIELD` bytes is skipped, and not answered.
"""

from __future__ import annotations

from ...errors import PeerError
from .wire import read_varint

PIECE = 4 * 1024 * 1024  # bytes of one part, about
FIELD = 1024 * 1024  # bytes of the largest field that is kept
HEAD = 20  # bytes of a tag and a length, at most

TYPE_URL = 2  # field numbers of DeltaDiscoveryRequest
NAMED = (3, 4, 5, 8, 9)  # names, versions and locators: the repeated fields
FIXED = {1: 8, 5: 4}  # wire type -> size, for wire types of fixed size


class Piece(bytes):
    """A part that continues the one before it: any part but the first."""

    __slots__ = ()


class RequestPieces:
    """Splits one request."""

    __slots__ = ("_buffer", "_field", "_is_first", "_piece", "_size", "_skip", "_type_url")

    def __init__(self, limit: int) -> None:
        """Set the limits of a part; `limit` is the message limit of the connection."""
        self._size = min(limit, PIECE)
        self._field = min(limit, FIELD)
        self._buffer = b""  # an incomplete field
        self._piece = bytearray()
        self._type_url = b""
        self._skip = 0  # bytes still to come of a name that is skipped
        self._is_first = True

    @property
    def held(self) -> int:
        """The number of bytes in memory."""
        return len(self._buffer) + len(self._piece)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; return the parts that are complete.

        Raise PeerError if the bytes are no protobuf message, or if a field other than a name is too long.
        """
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._buffer += data[skipped:]
        buffer, at, pieces = self._buffer, 0, []
        while len(buffer) - at >= HEAD:
            end = self._field_end(buffer, at)
            if end is None:
                break
            at = end
            if len(self._piece) >= self._size:
                pieces.append(self._take())
        self._buffer = buffer[at:]
        return pieces

    def end(self) -> list[bytes]:
        """Return the last part. Whether its last bytes are whole fields is for protobuf to judge."""
        self._piece += self._buffer
        self._buffer = b""
        return [self._take()]

    def _field_end(self, buffer: bytes, at: int) -> int | None:
        """Take the field that begins at `at`; return where it ends, or None if it is incomplete."""
        tag, begin = read_varint(buffer, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, end = read_varint(buffer, begin)
        elif kind == 2:
            length, begin = read_varint(buffer, begin)
            end = begin + length
            if length > self._field:
                return self._skip_name(number, length, end, len(buffer))
        elif kind in FIXED:
            end = begin + FIXED[kind]
        else:
            raise PeerError("INVALID_ARGUMENT", "not a discovery request")
        if end > len(buffer):
            return None
        self._piece += buffer[at:end]
        if number == TYPE_URL:
            self._type_url = buffer[at:end]
        return end

    def _skip_name(self, number: int, length: int, end: int, there: int) -> int:
        """Skip a name that is too long; return how far. Raise PeerError if the long field is not a name."""
        if number not in NAMED:
            text = f"received message larger than max: a field has {length:,} bytes, of {self._field:,}"
            raise PeerError("RESOURCE_EXHAUSTED", text)
        self._skip = max(0, end - there)
        return min(end, there)

    def _take(self) -> bytes:
        """Return the current part, and begin the next one with the type URL."""
        piece = bytes(self._piece) if self._is_first else Piece(self._piece)
        self._is_first = False
        self._piece = bytearray(self._type_url)
        return piece
