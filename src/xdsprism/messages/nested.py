"""The way through a message to what is packed in it: only by fields that can lead there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from .convert import is_map

# Hold a type URL: an Any beside its contents, a TypedStruct beside a Struct in which there are no more.
ANY = "google.protobuf.Any"
TYPED = frozenset({ANY, "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"})


def typed_parts(message: Message) -> Iterator[Message]:
    """The messages right inside that have, or may have in them, a type URL."""
    ways = _ways(message.DESCRIPTOR)
    for field, value in message.ListFields():
        if field.number not in ways:
            continue
        if is_map(field):
            yield from value.values()
        elif field.is_repeated:
            yield from value
        else:
            yield value


@lru_cache(maxsize=4096)
def _ways(descriptor: Descriptor) -> frozenset[int]:
    return frozenset(field.number for field in descriptor.fields if field.message_type and _leads(field.message_type))


@lru_cache(maxsize=4096)
def _leads(descriptor: Descriptor) -> bool:
    """Whether a type URL can be anywhere inside a message of this type."""
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
