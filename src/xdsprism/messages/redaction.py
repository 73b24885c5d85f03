"""Redacts the fields that the protos mark as sensitive (OPS-14): keys, passwords, tokens. Envoy does the same."""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value

from ..core.model.types import TypeUrl
from .protos import find_message, type_name
from .sensitive import is_sensitive
from .typed_parts import ANY, TYPED

REDACTED = "[redacted]"


def redact(message: Message, *, sensitive: bool = False) -> None:
    """Redact the sensitive fields of a message and of all messages nested in it; with `sensitive`, all fields.

    An Any of an unknown type loses its value, as it may contain secrets.
    """
    if message.DESCRIPTOR.full_name == ANY:
        _redact_any(message, sensitive=sensitive)
        return
    if message.DESCRIPTOR.full_name in TYPED and not sensitive:
        _redact_typed_struct(message)
        return
    for field, value in message.ListFields():
        hidden = sensitive or is_sensitive(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _redact_map(value, sensitive=hidden)
        elif field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                redact(item, sensitive=hidden)
        elif hidden:
            _hide(message, field)


def redacted_bytes(type_url: TypeUrl, body: bytes) -> bytes:
    """Return the contents of a resource without its secrets; the same object if it has none."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return body
    try:
        message, original = kind.FromString(body), kind.FromString(body)
    except DecodeError:
        return b""  # bytes that can't be decoded may contain secrets
    redact(message)
    return body if message == original else message.SerializeToString(deterministic=True)


def _redact_any(message: Any, *, sensitive: bool) -> None:
    """Redact the message in an Any; clear its value if it can't be decoded."""
    kind = find_message(type_name(message.type_url))
    try:
        inner = kind.FromString(message.value) if kind is not None else None
    except DecodeError:
        inner = None
    if inner is None:
        message.ClearField("value")
        return
    redact(inner, sensitive=sensitive)
    message.value = inner.SerializeToString()


def _redact_map(values: Any, *, sensitive: bool) -> None:
    """Redact the messages in a map; with `sensitive`, delete the entries whose values are no messages."""
    for key in list(values):
        if isinstance(values[key], Message):
            redact(values[key], sensitive=sensitive)
        elif sensitive:
            del values[key]


def _hide(message: Message, field: FieldDescriptor) -> None:
    """Replace a text by a mark, and clear a field of any other type."""
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        message.ClearField(field.name)
        return
    hidden: Any = REDACTED.encode() if field.type == FieldDescriptor.TYPE_BYTES else REDACTED
    if field.is_repeated:
        values = getattr(message, field.name)
        values[:] = [hidden] * len(values)
    else:
        setattr(message, field.name, hidden)


# -- a TypedStruct: a message of a named type, written as JSON


def _redact_typed_struct(message: Any) -> None:
    descriptor = _descriptor(message.type_url)
    if descriptor is None:
        message.ClearField("value")
    else:
        _redact_struct(message.value, descriptor)


def _redact_struct(struct: Struct, descriptor: Descriptor) -> None:
    """Redact a Struct that is the JSON form of a message type."""
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    for key, value in struct.fields.items():
        field = fields.get(key)
        if field is not None and is_sensitive(field):
            value.string_value = REDACTED
        elif field is not None and field.message_type is not None:
            for item in value.list_value.values if value.HasField("list_value") else [value]:
                _redact_value(item, field.message_type)


def _redact_value(value: Value, descriptor: Descriptor) -> None:
    """Redact a message inside a Struct. An Any in JSON form names its type in `@type`."""
    if not value.HasField("struct_value"):
        return
    if descriptor.full_name == ANY:
        packed = _descriptor(value.struct_value.fields["@type"].string_value)
        if packed is None:
            value.string_value = REDACTED
            return
        descriptor = packed
    _redact_struct(value.struct_value, descriptor)


def _descriptor(type_url: str) -> Descriptor | None:
    kind = find_message(type_name(type_url))
    return cast("Descriptor", kind.DESCRIPTOR) if kind is not None else None
