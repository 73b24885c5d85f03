"""A delta request that is too large for one message, read as several while it comes (SRV-24, VHD-26).

When Envoy connects again it names all that it ever asked for, and anybody can make it ask for any number of hosts and
clusters. So there is no size at which such a request could be refused without locking that Envoy out. Subscriptions
add up, so the fields of a large request are parted into requests of a few megabytes, in their order: the first has the
node, and each has the type URL. Whoever reads them holds one at a time.

A name above `FIELD` bytes is passed over and not answered.
"""

from __future__ import annotations

from ...errors import PeerError
from .wire import read_varint

PIECE = 4 * 1024 * 1024  # bytes, about, of a request that is made of a part
FIELD = 1024 * 1024  # bytes of a field that are held
HEAD = 20  # bytes that the number and the length of a field take at most

TYPE_URL = 2  # field numbers of DeltaDiscoveryRequest
NAMED = (3, 4, 5, 8, 9)  # names, versions and locators, of which there may be very many
FIXED = {1: 8, 5: 4}  # the bytes of the wire types that have a fixed size


class Piece(bytes):
    """Any of these requests but the first: it goes on where the one before ended."""

    __slots__ = ()


class RequestPieces:
    """Parts one request."""

    __slots__ = ("_buffer", "_field", "_is_first", "_piece", "_size", "_skip", "_type_url")

    def __init__(self, limit: int) -> None:
        """`limit`: of a request that is read as it is."""
        self._size = min(limit, PIECE)
        self._field = min(limit, FIELD)
        self._buffer = b""  # the beginning of a field
        self._piece = bytearray()
        self._type_url = b""
        self._skip = 0  # bytes that are still to come of a name that is passed over
        self._is_first = True

    @property
    def held(self) -> int:
        return len(self._buffer) + len(self._piece)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; returns the requests that are complete. Raises PeerError for what can't be parted."""
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
        """The request is complete. Whether its last bytes are fields is for protobuf to judge."""
        self._piece += self._buffer
        self._buffer = b""
        return [self._take()]

    def _field_end(self, buffer: bytes, at: int) -> int | None:
        """Take the field that begins here; returns where it ends, None if it is not complete."""
        tag, begin = read_varint(buffer, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, end = read_varint(buffer, begin)
        elif kind == 2:
            length, begin = read_varint(buffer, begin)
            end = begin + length
            if length > self._field:
                return self._pass_over(number, length, end, len(buffer))
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

    def _pass_over(self, number: int, length: int, end: int, there: int) -> int:
        if number not in NAMED:
            text = f"received message larger than max: a field has {length:,} bytes, of {self._field:,}"
            raise PeerError("RESOURCE_EXHAUSTED", text)
        self._skip = max(0, end - there)
        return min(end, there)

    def _take(self) -> bytes:
        piece = bytes(self._piece) if self._is_first else Piece(self._piece)
        self._is_first = False
        self._piece = bytearray(self._type_url)
        return piece
