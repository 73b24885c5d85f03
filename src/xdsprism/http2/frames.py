"""Builds frames and parses their parts (RFC 9113, sections 4.1 and 6)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from .codes import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, Code
from .faults import ConnectionFault

HEADER: Final = struct.Struct(">HBBBI")  # 24 bits of length as 16 and 8; type; flags; stream
UINT32: Final = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_HEAD = struct.Struct(">HBBB")  # the same without the stream
_GOAWAY = struct.Struct(">II")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Build a frame of any type."""
    size = len(payload)
    return HEADER.pack(size >> 8, size & 255, kind, flags, stream) + payload


def uint32(data: bytes, at: int) -> int:
    """Read four bytes as a number."""
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def data_header_prefix(size: int) -> bytes:
    """Build a DATA frame's header without its stream number, to be shared by all streams that send the same message."""
    return _HEAD.pack(size >> 8, size & 255, DATA, 0)


def data_header(size: int, stream: int, *, last: bool) -> bytes:
    return HEADER.pack(size >> 8, size & 255, DATA, END_STREAM if last else 0, stream)


def headers(stream: int, block: bytes, *, last: bool) -> bytes:
    """Build one HEADERS frame. Our header blocks are short and need no CONTINUATION."""
    return frame(HEADERS, END_HEADERS | END_STREAM if last else END_HEADERS, stream, block)


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values))


def parse_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Parse a SETTINGS payload, whose length is a multiple of six, into identifiers and values."""
    return _SETTING.iter_unpack(payload)


SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def ping(payload: bytes) -> bytes:
    return frame(PING, 0, 0, payload)


PING_ACK = HEADER.pack(0, 8, PING, ACK, 0)  # header only: the payload of the PING follows


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, UINT32.pack(size))


def reset(stream: int, code: Code) -> bytes:
    return frame(RST_STREAM, 0, stream, UINT32.pack(code))


def goaway(last: int, code: Code, why: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last, code) + why.encode("utf-8", "replace")[:1_000])


def strip_padding(payload: bytes) -> bytes:
    """Return a padded payload without its padding.

    Section 6.1: padding as long as the payload, or longer, is a connection error.
    """
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
