"""Walks through the JSON form of a message (as_json.py) and finds the messages nested in it, each with its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from .convert import has_own_form, is_map
from .document import Path
from .protos import find_message, type_name
from .typed_parts import ANY


class JsonPart(NamedTuple):
    """A message in JSON form, inside another one or all of it."""

    path: Path
    type: str  # its full name; of what is packed in an Any, that of the inner message
    value: dict[str, Any]  # the mapping itself and no copy, so that a caller can change it


def parts_of(value: dict[str, Any], full_name: str) -> Iterator[JsonPart]:
    """Yield a message and every message nested in it, those before others that are written before them.

    Messages whose JSON form is no mapping of their fields (durations, Structs) are left out.
    """
    kind = find_message(full_name)
    top: Any = kind.DESCRIPTOR if kind is not None else None
    todo: list[tuple[Path, Any, Any]] = [((), top, value)] if kind is not None else []
    while todo:
        path, descriptor, item = todo.pop()
        if not isinstance(item, dict):
            continue
        if descriptor.full_name == ANY:
            packed = find_message(type_name(item.get("@type", "")))
            if packed is None:
                continue
            descriptor = packed.DESCRIPTOR
        if has_own_form(descriptor.full_name):
            continue
        yield JsonPart(path, descriptor.full_name, item)
        todo += reversed(list(_inside(path, descriptor, item)))


def _inside(path: Path, descriptor: Descriptor, item: dict[str, Any]) -> Iterator[tuple[Path, Descriptor, Any]]:
    """Yield the messages that are the values of fields."""
    fields = descriptor.fields_by_name
    for name, value in item.items():
        field = fields.get(name)
        kind = _message_of(field) if field is not None else None
        if field is None or kind is None:
            continue
        at = (*path, name)
        if is_map(field):
            yield from [((*at, key), kind, each) for key, each in value.items()]
        elif field.is_repeated:
            yield from [((*at, index), kind, each) for index, each in enumerate(value)]
        else:
            yield at, kind, value


def _message_of(field: FieldDescriptor) -> Descriptor | None:
    """Return the type of the messages in a field, or in the values of a map; None: it has no messages."""
    if field.message_type is None or not is_map(field):
        return field.message_type
    return field.message_type.fields_by_name["value"].message_type


def texts_in(value: Any) -> Iterator[tuple[Path, str]]:
    """Yield every text in a JSON value, with its path; names of fields are no texts."""
    todo: list[tuple[Path, Any]] = [((), value)]
    while todo:
        path, item = todo.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, dict):
            todo += [((*path, str(key)), each) for key, each in reversed(item.items())]
        elif isinstance(item, list):
            todo += [((*path, index), each) for index, each in reversed(list(enumerate(item)))]
