"""gRPC over HTTP/2, its pure parts: header blocks, statuses, timeouts, and messages cut out of a body.

What we send uses nothing but literals and the static table of HPACK, so the bytes are the same on every connection
and are made once.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from ..errors import STATUS, PeerError
from .frames import UINT32
from .outbound import Parcel, parcel
from .requests import Field

_NUMBERS = {name: str(number).encode() for number, name in enumerate(STATUS)}

DETAILS = 1_300  # bytes of a status: each may take three in trailers, and clients refuse more than 8 kB of those
LONGEST = (1 << 31) - 1  # bytes of a message that a client can make, as protobuf has it
RATIO = 64  # of what a compressed message may become; names of one list take a tenth, seldom less
INFLATED = 16 * 1024 * 1024  # bytes that it may become at most: these take some 50 ms
ALWAYS = 64 * 1024  # bytes that it may become however small it is
PREFIX = 5  # bytes before a message: whether it is compressed, and its length

_PREFIX = struct.Struct(">BI")
_STATUS_200 = b"\x88"  # RFC 7541, appendix A
_CONTENT_TYPE = b"\x0f\x10"  # the 31st name of the static table, not to be indexed
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_RESERVED = re.compile(rb"grpc-|te\Z|content-type\Z|user-agent\Z").match


class Broken(Exception):
    """What came is not gRPC, or more than we take; carries the status that ends the call."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _literal(value: bytes) -> bytes:
    """RFC 7541, section 5.2, without Huffman coding."""
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
    """RFC 7541, section 6.2.2: without indexing."""
    return b"\0" + _literal(name) + _literal(value)


HEADERS = (
    _STATUS_200 + _CONTENT_TYPE + _literal(b"application/grpc") + _field(b"grpc-accept-encoding", b"identity,gzip")
)


@lru_cache(maxsize=64)
def trailers(status: str, message: str, *, alone: bool = False) -> bytes:
    """The block that ends a call; `alone`: no other came before it ("Trailers-Only")."""
    block = HEADERS if alone else b""
    block += _field(b"grpc-status", _NUMBERS[status])
    if message:
        block += _field(b"grpc-message", percent_encoded(message))
    return block


def percent_encoded(text: str) -> bytes:
    """As the gRPC protocol has it: all but printable ASCII, and the percent sign itself."""
    raw = text.encode("utf-8", "replace")[:DETAILS].decode("utf-8", "ignore").encode()
    return b"".join(b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw)


def plain_answer(status: int, text: str) -> tuple[bytes, bytes]:
    """Headers and body for whoever does not speak gRPC."""
    body = text.encode()
    # 0x08: the name :status of the static table.
    block = b"\x08" + _literal(str(status).encode()) + _CONTENT_TYPE + _literal(b"text/plain; charset=utf-8")
    return block, body


def is_grpc(content_type: bytes) -> bool:
    """`application/grpc`, `application/grpc+proto`, `application/grpc;charset=...`, but not `application/grpc-web`."""
    return content_type[:16] == b"application/grpc" and content_type[16:17] in (b"", b"+", b";")


def timeout(value: bytes) -> float | None:
    """What grpc-timeout says, in seconds."""
    if not value:
        return None
    found = _TIMEOUT(value)
    if found is None:
        raise Broken("INTERNAL", "malformed grpc-timeout")
    return int(found[1]) * _UNITS[found[2]]


def metadata(fields: Iterable[Field]) -> Iterator[tuple[str, str | bytes]]:
    """What the caller added; names that end in -bin have values of bytes. What can't be read is left out."""
    for name, value in fields:
        if _RESERVED(name):
            continue
        key = name.decode("ascii")
        if not key.endswith("-bin"):
            yield key, value.decode("latin-1")
            continue
        for part in value.split(b","):  # clients may join values, and leave the padding off
            bare = part.strip().rstrip(b"=")
            with suppress(binascii.Error):
                yield key, binascii.a2b_base64(bare + b"=" * (-len(bare) % 4), strict_mode=True)


def framed(message: bytes) -> Parcel:
    return parcel(b"\0" + UINT32.pack(len(message)), message)


class Framer:
    """Frames a message once, for however many streams it goes to. Told by identity: sessions share their responses."""

    def __init__(self, memory: int = 64) -> None:
        self._memory = memory
        self.known: dict[int, tuple[bytes, Parcel]] = {}

    def __call__(self, message: bytes) -> Parcel:
        found = self.known.get(id(message))
        if found is not None:
            return found[1]
        made = framed(message)
        if made.rest is None:  # large ones are views: there is nothing to save, and much to keep
            if len(self.known) >= self._memory:
                self.known.clear()
            self.known[id(message)] = message, made
        return made


class Pieces(Protocol):
    """Parts a message that is too large into several, while it comes. Raises PeerError where it can't."""

    @property
    def held(self) -> int:
        """Bytes that wait for others."""

    def feed(self, data: bytes) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


PiecesFactory = Callable[[int], Pieces]  # by the limit on messages


class Inbox:
    """Cuts messages out of the bytes of one stream."""

    __slots__ = ("_buffer", "_gzip", "_left", "_limit", "_parted", "_parting", "_wanted")

    def __init__(self, encoding: bytes, limit: int, parting: PiecesFactory | None = None) -> None:
        """`parting`: how a plain message above the limit is read; None: it is refused."""
        if encoding not in (b"", b"identity", b"gzip"):
            raise Broken("UNIMPLEMENTED", f"can't read {encoding.decode('latin-1')!r}: send plain or gzip")
        self._gzip = encoding == b"gzip"
        self._limit = limit
        self._buffer = bytearray()
        self._wanted = PREFIX  # bytes until there is something to do
        self._parting = parting
        self._parted: Pieces | None = None  # of the message that is being read
        self._left = 0  # bytes of it that are still to come

    @property
    def unfinished(self) -> int:
        return len(self._buffer) + (PREFIX + self._parted.held if self._parted is not None else 0)

    def whole(self, body: bytes) -> bytes | None:
        """The message, if it is one in one piece, plain and not too large, as it nearly always is."""
        size = len(body) - PREFIX
        if (
            self._buffer
            or self._parted is not None
            or size < 0
            or size > self._limit
            or _PREFIX.unpack_from(body) != (0, size)
        ):
            return None
        return body[PREFIX:]

    def feed(self, body: bytes) -> list[bytes]:
        if self._parted is not None:
            return self._part(self._parted, body)
        self._buffer += body
        return list(self._cut()) if len(self._buffer) >= self._wanted else []

    def _part(self, parted: Pieces, body: bytes) -> list[bytes]:
        own, rest = body[: self._left], body[self._left :]
        self._left -= len(own)
        try:
            messages = parted.feed(own)
            if self._left:
                return messages
            messages += parted.end()
        except PeerError as error:
            raise Broken(error.status, error.message) from error
        self._parted = None
        return messages + (self.feed(rest) if rest else [])

    def clear(self) -> None:
        self._buffer = bytearray()
        self._wanted = PREFIX
        self._parted = None

    def check_empty(self) -> None:
        if self._buffer or self._parted is not None:
            raise Broken("INTERNAL", "the last message is not complete")

    def _cut(self) -> Iterator[bytes]:
        buffer = self._buffer
        at = 0
        self._wanted = PREFIX
        while len(buffer) - at >= PREFIX:
            size = UINT32.unpack_from(buffer, at + 1)[0]
            if self._limit < size <= LONGEST and self._parting is not None and buffer[at] == 0:
                body = bytes(memoryview(buffer)[at + PREFIX :])
                self.clear()
                self._left, self._parted = size, self._parting(self._limit)
                yield from self._part(self._parted, body)
                return
            if size > self._limit:
                raise _too_large(size, self._limit)
            end = at + PREFIX + size
            if end > len(buffer):
                self._wanted = PREFIX + size
                break
            yield self._plain(buffer[at], bytes(memoryview(buffer)[at + PREFIX : end]))
            at = end
        del buffer[:at]

    def _plain(self, flag: int, message: bytes) -> bytes:
        if flag == 0:
            return message
        if flag != 1 or not self._gzip:
            raise Broken("INTERNAL", "a message says that it is compressed, and not how")
        return inflated(message, self._limit)


def inflated(message: bytes, limit: int) -> bytes:
    """A small message may become a very large one: not further than the limits, by size and by ratio.

    Raises Broken beyond these, and for what is not gzip.
    """
    most = min(limit, INFLATED, max(ALWAYS, RATIO * len(message)))
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(message, most + 1)
    except zlib.error as error:
        raise Broken("INTERNAL", f"a message is not what gzip makes: {error}") from error
    if len(plain) > most:
        raise _too_large(len(plain), limit) if most == limit else _overblown(len(message), most)
    if not inflater.eof or inflater.unused_data:
        raise Broken("INTERNAL", "a message is not what gzip makes")
    return plain


def _overblown(size: int, most: int) -> Broken:
    why = f"a gzip message of {size:,} bytes becomes more than {most:,}, which is the most for it: send it uncompressed"
    return Broken("RESOURCE_EXHAUSTED", why)


def _too_large(size: int, limit: int) -> Broken:
    return Broken("RESOURCE_EXHAUSTED", f"received message larger than max ({size:,} vs. {limit:,} bytes)")
