"""Redacts secrets (OPS-14): what the protos mark as sensitive, as Envoy does, and what sensitive.py adds to that."""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value

from ..core.model.steps import Steps
from ..core.model.types import TypeUrl
from .convert import has_own_form, is_map
from .protos import find_message, type_name
from .sensitive import is_credential, is_secret_text, is_sensitive
from .typed_parts import ANY, TYPED

REDACTED = "[redacted]"
TYPED_STRUCTS = TYPED - {ANY}

# What is redacted in one step: a message of so many bytes, or so many messages of a repeated field.
SMALL = 8 * 1024
FEW = 16


def redact(message: Message) -> bool:
    """Redact the secrets in a message and in all messages nested in it. Return whether there were any.

    An Any of an unknown type loses its value, as it may contain secrets; so do fields that the proto does not define.
    """
    message.DiscardUnknownFields()
    return _redact(message, sensitive=False)


def redacted_bytes(type_url: TypeUrl, body: bytes) -> bytes:
    """Return the contents of a resource without its secrets; nothing if its type is unknown or it can't be decoded."""
    kind = find_message(type_name(type_url))
    try:
        message = kind.FromString(body) if kind is not None else None
    except DecodeError:
        message = None
    if message is None:
        return b""
    redact(message)
    return message.SerializeToString(deterministic=True)


def redacting_bytes(type_url: TypeUrl, body: bytes) -> Steps[bytes]:
    """Do what `redacted_bytes` does, in steps: a resource may have a hundred thousand endpoints or routes."""
    if len(body) <= SMALL:
        return redacted_bytes(type_url, body)
    kind = find_message(type_name(type_url))
    yield
    try:
        message = kind.FromString(body) if kind is not None else None
    except DecodeError:
        message = None
    if message is None:
        return b""
    yield
    message.DiscardUnknownFields()
    yield from _redacting(message)
    return message.SerializeToString(deterministic=True)


def _redacting(message: Message) -> Steps[None]:
    """Redact a message in steps, field by field where it is long."""
    if message.ByteSize() <= SMALL or message.DESCRIPTOR.full_name in TYPED_STRUCTS:
        _redact(message, sensitive=False)
        yield
        return
    if message.DESCRIPTOR.full_name == ANY:
        yield from _redacting_any(message)
        return
    for field, value in message.ListFields():
        if field.message_type is None or is_map(field) or is_sensitive(field):
            _redact_field(message, field, value, sensitive=False)
            yield
            continue
        for number, item in enumerate(value if field.is_repeated else [value]):
            if item.ByteSize() > SMALL:
                yield from _redacting(item)
            else:
                _redact(item, sensitive=is_credential(field, getattr(message, "key", "")))
            if number % FEW == 0:
                yield


def _redacting_any(message: Any) -> Steps[None]:
    """Redact the message in an Any, in steps."""
    inner = _unpacked(message)
    yield
    if inner is None:
        message.ClearField("value")
        return
    inner.DiscardUnknownFields()
    yield from _redacting(inner)
    message.value = inner.SerializeToString(deterministic=True)
    yield


def _redact(message: Message, *, sensitive: bool) -> bool:
    """Redact a message; with `sensitive`, all of its fields."""
    name = message.DESCRIPTOR.full_name
    if name == ANY:
        return _redact_any(message, sensitive=sensitive)
    if name in TYPED_STRUCTS and not sensitive:
        return _redact_typed_struct(message)
    found = False
    for field, value in message.ListFields():
        found |= _redact_field(message, field, value, sensitive=sensitive)
    return found


def _redact_field(message: Message, field: FieldDescriptor, value: Any, *, sensitive: bool) -> bool:
    """Redact one field of a message."""
    hidden = sensitive or is_sensitive(field) or is_credential(field, getattr(message, "key", ""))
    if is_map(field):
        return _redact_map(value, sensitive=hidden)
    if field.message_type is not None:
        found = False
        for item in value if field.is_repeated else [value]:
            found |= _redact(item, sensitive=hidden)
        return found
    if hidden or _has_secret_text(field, value):
        _hide(message, field)
        return True
    return False


def _unpacked(message: Any) -> Message | None:
    """Return the message in an Any; None if it can't be decoded."""
    kind = find_message(type_name(message.type_url))
    try:
        return kind.FromString(message.value) if kind is not None else None
    except DecodeError:
        return None


def _redact_any(message: Any, *, sensitive: bool) -> bool:
    """Redact the message in an Any; clear its value if it can't be decoded."""
    inner = _unpacked(message)
    if inner is None:
        had_value = bool(message.value)
        message.ClearField("value")
        return had_value
    inner.DiscardUnknownFields()
    found = _redact(inner, sensitive=sensitive)
    message.value = inner.SerializeToString(deterministic=True)
    return found


def _redact_map(values: Any, *, sensitive: bool) -> bool:
    """Redact the values of a map; its keys are names."""
    found = False
    for key in list(values):
        value = values[key]
        if isinstance(value, Message):
            found |= _redact(value, sensitive=sensitive)
        elif sensitive or (isinstance(value, str | bytes) and is_secret_text(value)):
            found = True
            if isinstance(value, str):
                values[key] = REDACTED
            else:
                del values[key]
    return found


def _has_secret_text(field: FieldDescriptor, value: Any) -> bool:
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        return False
    return any(map(is_secret_text, value if field.is_repeated else [value]))


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


def _redact_typed_struct(message: Any) -> bool:
    descriptor = _descriptor(message.type_url)
    if descriptor is not None:
        return _redact_struct(message.value, descriptor)
    had_value: bool = message.HasField("value")
    message.ClearField("value")
    return had_value


def _redact_struct(struct: Struct, descriptor: Descriptor) -> bool:
    """Redact a Struct that is the JSON form of a message type. What is no field of it is hidden."""
    if descriptor.full_name in TYPED_STRUCTS:
        return _redact_nested(struct)
    if has_own_form(descriptor.full_name):
        found = False
        for value in struct.fields.values():  # under `value`, if it is packed
            found |= _redact_value(value, descriptor)
        return found
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    name = struct.fields["key"].string_value if "key" in struct.fields else ""
    found = False
    for key, value in struct.fields.items():
        field = fields.get(key)
        if key == "@type":
            continue
        if field is None or is_sensitive(field) or is_credential(field, name):
            value.string_value = REDACTED
            found = True
        elif is_map(field):
            inner = _map_value(field)
            for entry in value.struct_value.fields.values():
                found |= _redact_value(entry, inner)
        else:
            for item in value.list_value.values if value.HasField("list_value") else [value]:
                found |= _redact_value(item, field.message_type)
    return found


def _redact_value(value: Value, descriptor: Descriptor | None) -> bool:
    """Redact a value inside a Struct; `descriptor`: of the message that it is the JSON form of, or None."""
    if descriptor is None or (has_own_form(descriptor.full_name) and descriptor.full_name != ANY):
        return _redact(value, sensitive=False)
    if not value.HasField("struct_value"):  # a secret that was written one level too high, perhaps
        found = not value.HasField("null_value")
        if found:
            value.string_value = REDACTED
        return found
    if descriptor.full_name != ANY:
        return _redact_struct(value.struct_value, descriptor)
    packed = _descriptor(value.struct_value.fields["@type"].string_value)  # an Any in JSON form names its type
    if packed is None:
        value.string_value = REDACTED
        return True
    return _redact_struct(value.struct_value, packed)


def _map_value(field: FieldDescriptor) -> Descriptor | None:
    """Return the message type of a map's values; None if they are no messages."""
    entry = field.message_type
    return entry.fields_by_name["value"].message_type if entry is not None else None


def _redact_nested(struct: Struct) -> bool:
    """Redact a TypedStruct that is itself written as JSON."""
    given = struct.fields
    url = given["type_url" if "type_url" in given else "typeUrl"].string_value
    descriptor = _descriptor(url)
    if descriptor is None or not given["value"].HasField("struct_value"):
        given["value"].string_value = REDACTED
        return True
    return _redact_struct(given["value"].struct_value, descriptor)


def _descriptor(type_url: str) -> Descriptor | None:
    kind = find_message(type_name(type_url))
    return cast("Descriptor", kind.DESCRIPTOR) if kind is not None else None
