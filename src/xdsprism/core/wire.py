"""The bytes of protobuf: fields of a message that are read or written without making the message."""

from __future__ import annotations


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


def join_field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
