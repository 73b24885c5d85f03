"""Read and write fields of protobuf messages as bytes, without making the message.

A field is a tag (its number and wire type) and a value; wire type 2 is a length and that many bytes. This is enough to
take a node out of a request, to split a long request into parts, and to join a response from encoded resources.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ...errors import PeerError
from ..model.steps import Steps

PIECE = 8 * 1024  # bytes of a repeated field to parse at once
SCANNED = 2_000  # fields to scan between two steps


def cut(message: bytes, number: int) -> tuple[bytes, bytes]:
    """Split one length-delimited field off a message; return the field and the rest.

    Only if the field is where serialisers put it, in field order near the front; else return nothing and the whole
    message.
    """
    position = 0
    for _ in range(number):  # at most one field of each lower number comes before it
        start = position
        tag, position = read_varint(message, position)
        # Not where serialisers put it: leave it to the parser.
        if tag & 7 != 2 or tag >> 3 > number:
            break
        length, position = read_varint(message, position)
        position += length
        if tag >> 3 == number and position <= len(message):
            return message[start:position], message[:start] + message[position:]
    return b"", message


def read_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number that begins at a position, and the position after it.

    It reads ten bytes at most: a number without an end is for protobuf to refuse.
    """
    value = shift = 0
    for byte in message[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position


def split_fields(message: bytes, numbers: Container[int]) -> Steps[tuple[bytes, dict[int, list[bytes]]] | None]:
    """Split the length-delimited fields with these numbers off a message, in steps.

    Return all other fields, joined, and the split fields by number: pieces of about PIECE bytes, each a message by
    itself. None: the bytes are no protobuf message.
    """
    at, end, count, depth = 0, len(message), 0, 0
    rest: list[bytes] = []
    lists: dict[int, list[bytes]] = {}
    begun, open_tag = 0, 0  # where the current run of fields with the same tag began, and the tag
    while at < end:
        start = at
        tag = message[at]
        if tag < 0x80:  # fast path: one byte, as most tags and sizes are
            at += 1
        else:
            tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == 2:
            if at < end and message[at] < 0x80:
                at += message[at] + 1
            else:
                size, at = read_varint(message, at)
                at += size
        elif kind == 0:
            _, at = read_varint(message, at)
        else:
            # Groups, which protobuf still accepts, and fields of fixed size.
            depth += _NESTING.get(kind, 0)
            at += _FIXED.get(kind, 0)
        # A field that exceeds the message, a wire type that does not exist, or the end of a group that did not begin.
        if at > end or kind > 5 or depth < 0:
            return None
        # End the run where another field begins or the piece is long enough. What is inside a group is no field of this
        # message.
        if tag != open_tag or start - begun >= PIECE or depth:
            _end_run(message[begun:start], open_tag, numbers, rest, lists)
            begun, open_tag = start, tag if not depth else 0
        count += 1
        if count % SCANNED == 0:
            yield
    _end_run(message[begun:at], open_tag, numbers, rest, lists)
    return b"".join(rest), lists


_FIXED = {1: 8, 5: 4}
_NESTING = {3: 1, 4: -1}  # groups begin and end


def _end_run(run: bytes, tag: int, numbers: Container[int], rest: list[bytes], lists: dict[int, list[bytes]]) -> None:
    """Put a run of fields with one tag into its list, or to the rest."""
    if tag & 7 == 2 and tag >> 3 in numbers:
        lists.setdefault(tag >> 3, []).append(run)
    elif run:
        rest.append(run)


def fields_of(message: bytes | memoryview) -> Iterator[tuple[int, int, int | None, int]]:
    """Yield number, beginning and end of each field; between these, where the payload of a length-delimited one begins.

    Raise PeerError if the bytes are no protobuf message. That includes groups, which no client sends.
    """
    at, end = 0, len(message)
    while at < end:
        start, tag = at, message[at]
        if tag < 0x80:  # fast path: one byte, as nearly all tags and sizes are
            at += 1
        else:
            tag, at = read_varint(message, at)
        kind, body = tag & 7, None
        if kind == 2:
            size, body = (message[at], at + 1) if at < end and message[at] < 0x80 else read_varint(message, at)
            at = body + size
        elif kind == 0:
            _, at = read_varint(message, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            at = end + 1
        if at > end:
            raise PeerError("INVALID_ARGUMENT", "a long field is not a protobuf message")
        yield tag >> 3, start, body, at


def join_field(number: int, payload: bytes | memoryview) -> bytes:
    """Encode a length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    """Encode a number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
