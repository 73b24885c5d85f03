"""Finds the Anys and TypedStructs nested in a message, following only fields whose types can contain one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from .convert import is_map

# The types with a type URL: an Any holds a message, a TypedStruct a Struct, which contains no further type URLs.
ANY = "google.protobuf.Any"
TYPED = frozenset({ANY, "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"})


def typed_parts(message: Message) -> Iterator[Message]:
    """Yield the direct children of a message that are, or may contain, an Any or TypedStruct."""
    numbers = _fields_to_follow(message.DESCRIPTOR)
    for field, value in message.ListFields():
        if field.number not in numbers:
            continue
        if is_map(field):
            yield from value.values()
        elif field.is_repeated:
            yield from value
        else:
            yield value


@lru_cache(maxsize=4096)
def _fields_to_follow(descriptor: Descriptor) -> frozenset[int]:
    inner = ((field.number, field.message_type) for field in descriptor.fields)
    return frozenset(number for number, kind in inner if kind and _may_have_type_url(kind))


@lru_cache(maxsize=4096)
def _may_have_type_url(descriptor: Descriptor) -> bool:
    """Whether a message of this type can contain an Any or TypedStruct at any depth."""
    seen = {descriptor.full_name}
    waiting = [descriptor]
    while waiting:
        each = waiting.pop()
        if each.full_name in TYPED:
            return True
        inner = [field.message_type for field in each.fields if field.message_type]
        waiting += [found for found in inner if found.full_name not in seen]
        seen.update(found.full_name for found in inner)
    return False
