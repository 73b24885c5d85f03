"""The bytes of protobuf: fields of a message that are read or written without making the message."""

from __future__ import annotations

from collections.abc import Container

from ..model.steps import Steps

PIECE = 8 * 1024  # bytes of a list that are parsed at once
SCANNED = 2_000  # fields that are looked at between two steps


def cut(message: bytes, number: int) -> tuple[bytes, bytes]:
    """Split one length-delimited field off, if it is where serialisers put it: in front, in field order."""
    position = 0
    for _ in range(number):  # at most one field of each number comes before it
        start = position
        tag, position = read_varint(message, position)
        if tag & 7 != 2 or tag >> 3 > number:
            break
        length, position = read_varint(message, position)
        position += length
        if tag >> 3 == number and position <= len(message):
            return message[start:position], message[:start] + message[position:]
    return b"", message


def read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Ten bytes at most: a number that has no end is for the parser to refuse, not for here to follow."""
    value = shift = 0
    for byte in message[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position


def split_fields(message: bytes, numbers: Container[int]) -> Steps[tuple[bytes, dict[int, list[bytes]]] | None]:
    """Split the length-delimited fields of these numbers off, in steps: all else, and by number pieces of these.

    Each piece is a message by itself. None: this is no message of protobuf.
    """
    at, end, count, depth = 0, len(message), 0, 0
    rest: list[bytes] = []
    lists: dict[int, list[bytes]] = {}
    begun, open_tag = 0, 0  # the run of fields with the same tag that ends where we are
    while at < end:
        start = at
        tag = message[at]
        if tag < 0x80:  # as these tags are, and most sizes
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
            depth += _NESTING.get(kind, 0)
            at += _FIXED.get(kind, 0)
        if at > end or kind > 5 or depth < 0:
            return None
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
    """Put a run of fields where it belongs."""
    if tag & 7 == 2 and tag >> 3 in numbers:
        lists.setdefault(tag >> 3, []).append(run)
    elif run:
        rest.append(run)


def join_field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
