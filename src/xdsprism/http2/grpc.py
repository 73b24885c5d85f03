"""Encodes gRPC headers, trailers and messages, and splits a request body into messages.

Our header blocks use only literals and the static table of HPACK. They are therefore the same bytes on every connection
and are built once.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final, Protocol

from ..errors import STATUS, PeerError
from .frames import UINT32
from .outbound import DataPayload, make_payload
from .requests import Field

_NUMBERS = {name: str(number).encode() for number, name in enumerate(STATUS)}

DETAILS = 1_300  # bytes of a status message: each may take three in trailers, and clients refuse trailers above 8 kB
LONGEST = (1 << 31) - 1  # bytes: protobuf can't encode a longer message
# A compressed message may inflate to RATIO times its size (a list of resource names has a ratio of about 10), to ALWAYS
# bytes however small it is, and never to more than INFLATED bytes, which take some 50 ms.
RATIO = 64
INFLATED = 16 * 1024 * 1024
ALWAYS = 64 * 1024
PREFIX: Final = 5  # bytes before a message: the compressed flag, and the length

_STATUS_200 = b"\x88"  # RFC 7541, appendix A
_CONTENT_TYPE = b"\x0f\x10"  # the 31st name of the static table, literal without indexing
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_RESERVED = re.compile(rb"grpc-|te\Z|content-type\Z|user-agent\Z").match


class GrpcError(Exception):
    """The request is not valid gRPC, or exceeds a limit. Carries the status that ends the call."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _literal(value: bytes) -> bytes:
    """Encode a string literal without Huffman coding (RFC 7541, section 5.2)."""
    size = len(value)
    if size < 127:
        return bytes((size,)) + value
    size -= 127
    prefix = bytearray(b"\x7f")
    while size >= 128:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + value


def _field(name: bytes, value: bytes) -> bytes:
    """Encode a literal field without indexing (RFC 7541, section 6.2.2)."""
    return b"\0" + _literal(name) + _literal(value)


HEADERS = (
    _STATUS_200 + _CONTENT_TYPE + _literal(b"application/grpc") + _field(b"grpc-accept-encoding", b"identity,gzip")
)


@lru_cache(maxsize=64)
def trailers(status: str, message: str, *, alone: bool = False) -> bytes:
    """Build the header block that ends a call. `alone`: no headers were sent before it ("Trailers-Only")."""
    block = HEADERS if alone else b""
    block += _field(b"grpc-status", _NUMBERS[status])
    if message:
        block += _field(b"grpc-message", percent_encoded(message))
    return block


def percent_encoded(text: str) -> bytes:
    """Encode a status message for grpc-message: printable ASCII stays, all else and the percent sign are escaped."""
    raw = text.encode("utf-8", "replace")[:DETAILS].decode("utf-8", "ignore").encode()
    return b"".join(b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw)


def plain_response(status: int, text: str) -> tuple[bytes, bytes]:
    """Build headers and body of a plain HTTP response, for a client that does not speak gRPC."""
    body = text.encode()
    # 0x08: the name :status of the static table.
    block = b"\x08" + _literal(str(status).encode()) + _CONTENT_TYPE + _literal(b"text/plain; charset=utf-8")
    return block, body


def is_grpc(content_type: bytes) -> bool:
    """Accept `application/grpc`, with a `+suffix` or `;parameters`, but not `application/grpc-web`."""
    return content_type[:16] == b"application/grpc" and content_type[16:17] in (b"", b"+", b";")


def timeout(value: bytes) -> float | None:
    """Read a grpc-timeout in seconds; None without one. Raises GrpcError."""
    if not value:
        return None
    found = _TIMEOUT(value)
    if found is None:
        raise GrpcError("INTERNAL", "malformed grpc-timeout")
    return int(found[1]) * _UNITS[found[2]]


def metadata(fields: Iterable[Field]) -> Iterator[tuple[str, str | bytes]]:
    """Return the custom metadata of a call. Values of -bin names are bytes; undecodable ones are left out."""
    for name, value in fields:
        if _RESERVED(name):
            continue
        key = name.decode("ascii")
        if not key.endswith("-bin"):
            yield key, value.decode("latin-1")
            continue
        for part in value.split(b","):  # clients may join several values, and omit the padding
            bare = part.strip().rstrip(b"=")
            with suppress(binascii.Error):
                yield key, binascii.a2b_base64(bare + b"=" * (-len(bare) % 4), strict_mode=True)


def framed(message: bytes) -> DataPayload:
    """Put the gRPC prefix before an uncompressed message, and cut it for DATA frames."""
    return make_payload(b"\0" + UINT32.pack(len(message)), message)


class Pieces(Protocol):
    """Splits a message above the size limit into several smaller ones, while it arrives (SRV-24).

    Its methods raise PeerError if the message can't be split.
    """

    @property
    def held(self) -> int:
        """Bytes received that no returned message contains yet."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the large message; return the smaller messages that are complete."""

    def end(self) -> list[bytes]:
        """Return the rest, after the last byte of the large message."""


PiecesFactory = Callable[[int], Pieces]  # takes the limit on messages, in bytes


class MessageReader:
    """Splits the request body of one call into messages, and decompresses them."""

    __slots__ = ("_buffer", "_gzip", "_left", "_limit", "_parted", "_parting", "_wanted")

    def __init__(self, encoding: bytes, limit: int, parting: PiecesFactory | None = None) -> None:
        """`parting`: how to split an uncompressed message above the limit; None: such a message ends the call."""
        if encoding not in (b"", b"identity", b"gzip"):
            raise GrpcError("UNIMPLEMENTED", f"can't read {encoding.decode('latin-1')!r}: send plain or gzip")
        self._gzip = encoding == b"gzip"
        self._limit = limit
        self._buffer: bytearray | None = None  # received bytes of a message that is not complete; None: there are none
        self._wanted = PREFIX  # bytes of the buffer before another message can be complete
        self._parting = parting
        self._parted: Pieces | None = None  # while a message above the limit arrives
        self._left = 0  # bytes of that message still to come

    @property
    def unfinished(self) -> int:
        """Bytes held of a message that is not complete."""
        held = len(self._buffer) if self._buffer is not None else 0
        return held + (PREFIX + self._parted.held if self._parted is not None else 0)

    def read_single(self, body: bytes) -> bytes | None:
        """Fast path: return the message if the body is exactly one, uncompressed and within the limit; else None."""
        size = len(body) - PREFIX
        if (
            self._buffer is not None
            or self._parted is not None
            or size < 0
            or size > self._limit
            or body[0]  # compressed
            or (body[1] << 24 | body[2] << 16 | body[3] << 8 | body[4]) != size
        ):
            return None
        return body[PREFIX:]

    def feed(self, body: bytes) -> list[bytes]:
        """Take bytes of the body, cut anywhere; return the messages that are complete. Raises GrpcError."""
        if self._parted is not None:
            return self._feed_pieces(self._parted, body)
        buffer = self._buffer or bytearray()
        buffer += body
        self._buffer = buffer or None
        return list(self._split(buffer)) if len(buffer) >= self._wanted else []

    def _feed_pieces(self, parted: Pieces, body: bytes) -> list[bytes]:
        """Feed a message above the limit to its splitter; go on with the next message after its last byte."""
        own, rest = body[: self._left], body[self._left :]
        self._left -= len(own)
        try:
            messages = parted.feed(own)
            if self._left:
                return messages
            messages += parted.end()
        except PeerError as error:
            raise GrpcError(error.status, error.message) from error
        self._parted = None
        return messages + (self.feed(rest) if rest else [])

    def clear(self) -> None:
        """Drop what was received of an incomplete message."""
        self._buffer = None
        self._wanted = PREFIX
        self._parted = None

    def check_complete(self) -> None:
        """Raise GrpcError if the body ends inside a message."""
        if self._buffer is not None or self._parted is not None:
            raise GrpcError("INTERNAL", "the last message is not complete")

    def _split(self, buffer: bytearray) -> Iterator[bytes]:
        """Return the complete messages of the buffer; begin to split one that is above the limit."""
        at = 0
        self._wanted = PREFIX
        while len(buffer) - at >= PREFIX:
            size = UINT32.unpack_from(buffer, at + 1)[0]
            if self._limit < size <= LONGEST and self._parting is not None and buffer[at] == 0:
                body = bytes(memoryview(buffer)[at + PREFIX :])
                self.clear()
                self._left, self._parted = size, self._parting(self._limit)
                yield from self._feed_pieces(self._parted, body)
                return
            if size > self._limit:
                raise _too_large(size, self._limit)
            end = at + PREFIX + size
            if end > len(buffer):
                self._wanted = PREFIX + size
                break
            yield self._decompressed(buffer[at], bytes(memoryview(buffer)[at + PREFIX : end]))
            at = end
        del buffer[:at]
        if not buffer:
            self._buffer = None

    def _decompressed(self, flag: int, message: bytes) -> bytes:
        """Return the message of a frame, inflated if its flag says so."""
        if flag == 0:
            return message
        if flag != 1 or not self._gzip:
            raise GrpcError("INTERNAL", "a message is compressed, and the call has no grpc-encoding that we support")
        return inflated(message, self._limit)


def inflated(message: bytes, limit: int) -> bytes:
    """Inflate a gzip message within the limits on size and ratio, before a small message takes much memory.

    Raises GrpcError above the limits, and for bytes that are not gzip.
    """
    most = min(limit, INFLATED, max(ALWAYS, RATIO * len(message)))
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(message, most + 1)
    except zlib.error as error:
        raise GrpcError("INTERNAL", f"a message is not valid gzip: {error}") from error
    if len(plain) > most:
        raise _too_large(len(plain), limit) if most == limit else _inflates_too_much(len(message), most)
    if not inflater.eof or inflater.unused_data:
        raise GrpcError("INTERNAL", "a message is not valid gzip")
    return plain


def _inflates_too_much(size: int, most: int) -> GrpcError:
    why = f"a gzip message of {size:,} bytes becomes more than {most:,}, which is the most for it: send it uncompressed"
    return GrpcError("RESOURCE_EXHAUSTED", why)


def _too_large(size: int, limit: int) -> GrpcError:
    return GrpcError("RESOURCE_EXHAUSTED", f"received message larger than max ({size:,} vs. {limit:,} bytes)")
