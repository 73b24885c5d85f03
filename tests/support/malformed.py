"""Messages with one malformed field, at every level of nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsprism.core.codec.wire import fields_of, join_field

# What a field may hold that is no message. Groups are the only nesting that a few bytes make deep.
JUNK = {
    "no tag": b"\xff\xff\xff",
    "cut off": b"\x0a\x7f",
    "not UTF-8": b"\x0a\x02\xff\xfe\x12\x02\xff\xfe\x1a\x02\xff\xfe\x22\x02\xff\xfe",
    "a length without end": b"\x0a\xff\xff\xff\xff\x0f",
    "a wire type that there is not": b"\x0f",
    "groups without end": b"\x0b" * 5_000,
    "groups 5,000 deep": b"\xfb\x3f" * 5_000 + b"\xfc\x3f" * 5_000,
    "the end of a group": b"\x0c",
}
ODD_TEXT = b"\xff\xfe"


def corrupted(message: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the message again and again, each time with another of its fields malformed, and say which and how."""
    yield from _corrupted(message.DESCRIPTOR, message.SerializeToString(), "")


def _corrupted(kind: Any, encoded: bytes, above: str) -> Iterator[tuple[str, bytes]]:
    for number, start, body, end in fields_of(encoded):
        if body is None:
            continue
        field = kind.fields_by_number[number]
        before, after, path = encoded[:start], encoded[end:], f"{above}{field.name}"
        if field.message_type is None:
            yield f"{path}: not UTF-8", before + join_field(number, ODD_TEXT) + after
            continue
        for what, junk in JUNK.items():
            yield f"{path}: {what}", before + join_field(number, junk) + after
        for label, inner in _corrupted(field.message_type, encoded[body:end], f"{path}."):
            yield label, before + join_field(number, inner) + after


def deep_struct(depth: int) -> bytes:
    """An encoded Struct, nested so many times."""
    struct = b""
    for _ in range(depth):
        struct = join_field(1, join_field(1, b"k") + join_field(2, join_field(5, struct)))
    return struct


def deep_constraints(depth: int) -> bytes:
    """Encoded DynamicParameterConstraints, nested so many times: not of not of not ..."""
    constraints = join_field(1, join_field(1, b"env") + join_field(2, b"prod"))
    for _ in range(depth):
        constraints = join_field(4, constraints)
    return constraints
