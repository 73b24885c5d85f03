"""Converts plain Python values to protobuf messages by the rules of proto3 JSON, and lists every fault with its path.

Envoy's reader accepts more than proto3 JSON, and this module accepts the same: enum values in any case, booleans in
quotes, one element in place of a list, durations and wrappers as mappings of their fields.

`json_format.ParseDict` does the conversion too, but it stops at the first fault, omits the path in some of its texts,
and takes twenty times as long. This module checks and rearranges dicts by tables made once per message type, and then
has upb build the message from them in one call.

A converter (`Convert`) takes a value and returns what the message's constructor takes. It appends the faults that it
finds to a list, with paths that begin at its own value; its caller prefixes them with the step that leads there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ..core.model.truncation import NAME_BYTES, bounded
from ..similar import did_you_mean
from .document import Path
from .faults import Faults, kind_of, prefix, refuse
from .protos import close_matches, find_message, type_name, type_url
from .rule_kinds import duration_fault
from .scalars import PARAMETERS, SCALARS, Convert, of_enum, parameter
from .sensitive import is_sensitive, may_hold_a_secret, without_key, without_value


class UnknownField(str):
    """The text of a fault for an unknown field. A newer Envoy may have the field, so callers may ignore the fault."""

    __slots__ = ()


class UnknownType(str):
    """The text of a fault for an unknown type. A newer Envoy may know the type, so callers may ignore the fault."""

    __slots__ = ()


class _Field(NamedTuple):
    """How to convert one field of a message."""

    name: str
    convert: Convert
    oneof: str | None
    takes_null: bool


_tables: dict[Descriptor, dict[str, _Field]] = {}


def to_message(value: object, kind: type[Message], faults: Faults) -> Message | None:
    """Build a message of `kind` from proto3 JSON. If it has faults, append all of them and return None.

    If unknown fields are the only faults (UnknownField), return the message without them.
    """
    count = len(faults)
    descriptor: Any = kind.DESCRIPTOR
    try:
        arguments = _of_message(descriptor)(value, faults)
        if len(faults) > count and not all(isinstance(text, UnknownField) for _, text in faults[count:]):
            return None
        return arguments if isinstance(arguments, Message) else kind(**arguments)
    except DecodeError:  # protobuf reads 100 nested messages, and each level of a Struct is three of them
        faults.append(((), "nested too deeply: no client could read it"))
        return None


def _table(descriptor: Descriptor) -> dict[str, _Field]:
    """Return the fields of a message type by both of their spellings."""
    table = _tables.get(descriptor)
    if table is None:
        table = _tables[descriptor] = {}
        for field in descriptor.fields:
            entry = _entry(field)
            table[field.json_name] = entry
            table[field.name] = entry
    return table


def _entry(field: FieldDescriptor) -> _Field:
    """Choose the converter of a field."""
    oneof = field.containing_oneof.name if field.containing_oneof else None
    if field.full_name in PARAMETERS:
        return _Field(field.name, parameter, oneof, takes_null=True)
    kind = field.message_type or field.enum_type
    null = kind is not None and kind.full_name in ("google.protobuf.Value", "google.protobuf.NullValue")
    convert = _of_map(field) if is_map(field) else _of_repeated(field) if field.is_repeated else _of_value(field)
    if may_hold_a_secret(field):
        convert = _without_values(convert, keys=is_sensitive(field))
    return _Field(field.name, convert, oneof, takes_null=null and not field.is_repeated)


def _without_values(convert: Convert, *, keys: bool) -> Convert:
    """OPS-14: remove the value of a secret from its faults; with `keys`, also what stands where a field belongs."""

    def convert_secret(value: Any, faults: Faults) -> Any:
        count = len(faults)
        result = convert(value, faults)
        faults[count:] = [
            (without_key(path, message) if keys else path, without_value(message)) for path, message in faults[count:]
        ]
        return result

    return convert_secret


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_wrapper(descriptor: Descriptor | None) -> bool:
    """Whether a type is `google.protobuf.UInt32Value` or the like, which JSON writes as the value that it wraps."""
    if descriptor is None or descriptor.full_name in ("google.protobuf.Value", "google.protobuf.ListValue"):
        return False
    return descriptor.full_name.startswith("google.protobuf.") and descriptor.full_name.endswith("Value")


def has_own_form(full_name: str) -> bool:
    """Whether the JSON form of a type is not a mapping of its fields; inside an Any it stands under `value`."""
    return full_name in _WELL_KNOWN or (full_name.startswith("google.protobuf.") and full_name.endswith("Value"))


def _of_value(field: FieldDescriptor) -> Convert:
    """Return the converter of a single value of a field, or of an element of a repeated field."""
    if field.message_type is not None:
        return _of_message(field.message_type)
    if field.enum_type is not None:
        return of_enum(field.enum_type)
    return SCALARS[field.type]


# -- messages, lists and maps


def _of_message(descriptor: Descriptor) -> Convert:
    """Return the converter of a message type."""
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known(descriptor)
    if is_wrapper(descriptor):
        return _of_wrapper(descriptor)

    def convert(value: Any, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return refuse(faults, f"expected a mapping ({descriptor.full_name}), got {kind_of(value)}")
        return _fill(descriptor, value, faults)

    return convert


def _fill(descriptor: Descriptor, value: Mapping[str, Any], faults: Faults) -> dict[str, object]:
    """Convert the fields of a message, and return the arguments of its constructor."""
    table = _table(descriptor)
    result: dict[str, object] = {}
    oneofs: dict[str, str] = {}
    for key, item in value.items():
        field = table.get(key)
        if field is None:
            faults.append((_step(key), _unknown(descriptor, key)))
            continue
        name, convert, oneof, takes_null = field
        if item is None and not takes_null:  # proto3 JSON: null is "not set"
            continue
        if name in result:
            faults.append(((key,), f"given twice: {name} is the same field"))
        if oneof is not None and oneofs.setdefault(oneof, name) != name:
            faults.append(((key,), f"can't be set together with {oneofs[oneof]}"))
        count = len(faults)
        result[name] = convert(item, faults)
        if len(faults) > count:
            prefix(faults, count, key)
    return result


def _step(key: object) -> Path:
    return (key if isinstance(key, (str, int)) else str(key),)


def _unknown(descriptor: Descriptor, key: object) -> str:
    """Return the text of a fault for a key that no field has, with the name of a similar field."""
    if not isinstance(key, str):
        return f"a key must be a string, got {kind_of(key)}; quote it"
    names = [field.name if key.islower() else field.json_name for field in descriptor.fields]
    return UnknownField(f"no such field in {descriptor.full_name}{did_you_mean(key, names)}")


def _of_repeated(field: FieldDescriptor) -> Convert:
    """Convert a list, or a single element that is written without a list, as Envoy accepts it."""
    convert = _of_value(field)
    convert_list = _of_list(convert)
    kind = field.message_type
    takes_any_form = kind is not None and has_own_form(kind.full_name)  # the element may be a mapping or a scalar
    takes_mapping = kind is not None

    def convert_repeated(value: Any, faults: Faults) -> Any:
        is_single = not isinstance(value, list) and (takes_any_form or isinstance(value, dict) is takes_mapping)
        return [convert(value, faults)] if is_single else convert_list(value, faults)

    return convert_repeated


def _of_list(convert: Convert) -> Convert:
    """Turn the converter of an element into one of a list."""

    def convert_list(value: Any, faults: Faults) -> Any:
        if not isinstance(value, list):
            return refuse(faults, f"expected a list, got {kind_of(value)}")
        result = []
        for index, item in enumerate(value):
            count = len(faults)
            result.append(convert(item, faults))
            if len(faults) > count:
                prefix(faults, count, index)
        return result

    return convert_list


def _of_map(field: FieldDescriptor) -> Convert:
    """Return the converter of a map field."""
    pair: Any = field.message_type
    entry = pair.fields_by_name
    convert_key = SCALARS[entry["key"].type]
    convert_item = _of_value(entry["value"])

    def convert(value: Any, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return refuse(faults, f"expected a mapping, got {kind_of(value)}")
        result = {}
        for key, item in value.items():
            count = len(faults)
            result[convert_key(key, faults)] = convert_item(item, faults)
            if len(faults) > count:
                prefix(faults, count, str(key))
        return result

    return convert


# -- well-known types


def _of_wrapper(descriptor: Descriptor) -> Convert:
    """Return the converter of a wrapper type: its value, or a mapping with the field `value`, as Envoy accepts it."""
    convert_value = SCALARS[descriptor.fields_by_name["value"].type]

    def convert(value: Any, faults: Faults) -> Any:
        return _fill(descriptor, value, faults) if isinstance(value, dict) else {"value": convert_value(value, faults)}

    return convert


_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")


def _duration(value: Any, faults: Faults) -> Any:
    """Convert a duration such as `0.25s`, or a mapping with seconds and nanos, as Envoy accepts it."""
    if isinstance(value, dict):
        return _duration_fields(value, faults)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    sign = -1 if match and match[1] else 1
    seconds, nanos = (sign * int(match[2]), sign * int((match[3] or "").ljust(9, "0"))) if match else (0, 0)
    if match is None or duration_fault(seconds, nanos):
        return refuse(faults, f"expected a duration such as 0.25s or 15s, got {kind_of(value)}")
    return {"seconds": seconds, "nanos": nanos}


def _duration_fields(value: dict[str, Any], faults: Faults) -> Any:
    count = len(faults)
    fields: dict[str, Any] = _fill(Duration.DESCRIPTOR, value, faults)
    if len(faults) == count and (fault := duration_fault(fields.get("seconds", 0), fields.get("nanos", 0))):
        return refuse(faults, fault)
    return fields


def _by_text(example: str) -> Callable[[Descriptor], Convert]:
    """Convert a well-known type whose JSON form is a string, by protobuf's own parser."""

    def make(descriptor: Descriptor) -> Convert:
        kind: Any = GetMessageClass(descriptor)

        def convert(value: Any, faults: Faults) -> Any:
            message = kind()
            try:
                message.FromJsonString(value)
            except (ValueError, TypeError, AttributeError):
                return refuse(faults, f"expected {example}, got {kind_of(value)}")
            return message

        return convert

    return make


class _Structs:
    """Converts the types of google/protobuf/struct.proto, for one descriptor pool.

    It builds messages instead of dicts, as upb takes a dict given for a Struct as the Struct's contents.
    """

    def __init__(self, file: FileDescriptor) -> None:
        kinds = file.message_types_by_name
        self._struct_kind: Any = GetMessageClass(kinds["Struct"])
        self._list_kind: Any = GetMessageClass(kinds["ListValue"])
        self._value_kind: Any = GetMessageClass(kinds["Value"])

    def struct(self, value: Any, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return refuse(faults, f"expected a mapping, got {kind_of(value)}")
        fields = {}
        for key, item in value.items():
            count = len(faults)
            fields[key] = self.value(item, faults)
            if not isinstance(key, str):
                faults.append(((), f"a key must be a string, got {kind_of(key)}; quote it"))
            if len(faults) > count:
                prefix(faults, count, str(key))
        return self._struct_kind(fields={key: item for key, item in fields.items() if isinstance(key, str)})

    def list_value(self, value: Any, faults: Faults) -> Any:
        return self._list_kind(values=_of_list(self.value)(value, faults))

    def value(self, value: Any, faults: Faults) -> Any:
        kind = self._value_kind
        match value:
            case None:
                return kind(null_value=0)
            case bool():
                return kind(bool_value=value)
            case str():
                return kind(string_value=value)
            case int() | float():
                return kind(number_value=value)
            case list():
                return kind(list_value=self.list_value(value, faults))
            case _:
                return kind(struct_value=self.struct(value, faults))


@cache
def _structs(file: FileDescriptor) -> _Structs:
    """Return the converter of one descriptor pool."""
    return _Structs(file)


def _any(value: Any, faults: Faults) -> Any:
    """Convert a mapping with an `@type` to the fields of an Any."""
    if not isinstance(value, dict):
        return refuse(faults, f"expected a mapping with an @type, got {kind_of(value)}")
    if not value:
        return {}
    name = value.get("@type")
    if not isinstance(name, str):
        return refuse(faults, "needs an @type")
    kind = find_message(type_name(name))
    if kind is None:
        faults.append((("@type",), unknown_extension(name)))
        return {}
    message = from_any(value, kind, faults)
    if message is None:
        return {}
    return {"type_url": type_url(kind.DESCRIPTOR.full_name), "value": message.SerializeToString(deterministic=True)}


def from_any(value: dict[str, Any], kind: type[Message], faults: Faults) -> Message | None:
    """Build the message that is written beside an `@type`, which names `kind`."""
    rest = {key: item for key, item in value.items() if key != "@type"}
    if not has_own_form(kind.DESCRIPTOR.full_name):
        return to_message(rest, kind, faults)
    # proto3 JSON: a type with a JSON form of its own is written under "value".
    count = len(faults)
    if list(rest) != ["value"]:
        faults.append(((), f"expected @type and value, as {kind.DESCRIPTOR.full_name} has a JSON form of its own"))
        return None
    message = to_message(rest["value"], kind, faults)
    prefix(faults, count, "value")
    return message


def unknown_type(name: str, otherwise: str = "") -> UnknownType:
    """Return the text of a fault for a type that does not exist.

    It has types of similar names, or if there are none, `otherwise`.
    """
    close = close_matches(type_name(name))
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; {otherwise}" if otherwise else ""
    return UnknownType(f"unknown type {bounded(name, NAME_BYTES)}{hint}")


def unknown_extension(name: str) -> UnknownType:
    """Return the same for an extension in a document, which can be written without its type."""
    return unknown_type(name, "wrap it in a TypedStruct, or make it known with --descriptors FILE")


# Types with a JSON form of their own. Each converter belongs to the pool of its descriptor, as pools don't mix.
_WELL_KNOWN: dict[str, Callable[[Descriptor], Convert]] = {
    "google.protobuf.Any": lambda _: _any,
    "google.protobuf.Duration": lambda _: _duration,
    "google.protobuf.FieldMask": _by_text("a field mask such as a.b,c"),
    "google.protobuf.ListValue": lambda descriptor: _structs(descriptor.file).list_value,
    "google.protobuf.Struct": lambda descriptor: _structs(descriptor.file).struct,
    "google.protobuf.Timestamp": _by_text("a time such as 2030-01-31T12:00:00Z"),
    "google.protobuf.Value": lambda descriptor: _structs(descriptor.file).value,
}
