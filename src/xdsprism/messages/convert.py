"""Plain Python to protobuf, as proto3 JSON says, with the path of every fault.

`json_format.ParseDict` does the same, but stops at the first fault, leaves the path out of some of its texts, and takes
twenty times as long: this checks and rearranges dicts by tables made once per message type, and then lets upb build the
message from them in one call.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import ListValue, NullValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from .document import Path, Word
from .protos import close_matches, find_message, type_name, type_url

Fault = tuple[Path, str]
Faults = list[Fault]

# Takes a value as YAML gave it, returns what the message's constructor takes. What it appends to the faults makes its
# result worthless, and the caller puts its own step before their paths.
Convert = Callable[[Any, Faults], Any]


class _Field(NamedTuple):
    name: str
    convert: Convert
    oneof: str | None
    takes_null: bool


_tables: dict[str, dict[str, _Field]] = {}


def to_message(value: object, kind: type[Message], faults: Faults) -> Message | None:
    """Build a message of `kind` from proto3 JSON, or return None and append every fault that was found."""
    count = len(faults)
    descriptor: Any = kind.DESCRIPTOR
    try:
        arguments = _of_message(descriptor)(value, faults)
        if len(faults) > count:
            return None
        return arguments if isinstance(arguments, Message) else kind(**arguments)
    except DecodeError:  # each step into a Struct is three messages, of which protobuf reads 100 in each other
        faults.append(((), "nested too deeply: no client could read it"))
        return None


def prefix(faults: Faults, start: int, step: str | int) -> None:
    """Put one more step before the paths of the faults from `start` on."""
    faults[start:] = [((step, *path), message) for path, message in faults[start:]]


def kind_of(value: object) -> str:
    """Name what a value is in the words of somebody who writes YAML."""
    names = {dict: "a mapping", list: "a list", type(None): "null", str: "the string", bool: "the boolean"}
    name = names.get(type(value), "the string" if isinstance(value, str) else "the number")
    if isinstance(value, bool):
        return f"{name} {str(value).lower()}"
    return name if isinstance(value, (dict, list, type(None))) else f"{name} {value}"


def _table(descriptor: Descriptor) -> dict[str, _Field]:
    table = _tables.get(descriptor.full_name)
    if table is None:
        table = _tables[descriptor.full_name] = {}
        for field in descriptor.fields:
            entry = _entry(field)
            table[field.json_name] = entry
            table[field.name] = entry
    return table


def _entry(field: FieldDescriptor) -> _Field:
    oneof = field.containing_oneof.name if field.containing_oneof else None
    if field.full_name in _PARAMETERS:
        return _Field(field.name, _parameter, oneof, takes_null=True)
    kind = field.message_type or field.enum_type
    null = kind is not None and kind.full_name in ("google.protobuf.Value", "google.protobuf.NullValue")
    convert = _of_map(field) if is_map(field) else _of_list(_of_value(field)) if field.is_repeated else _of_value(field)
    return _Field(field.name, convert, oneof, takes_null=null and not field.is_repeated)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_wrapper(descriptor: Descriptor | None) -> bool:
    """Tell `google.protobuf.UInt32Value` and the like: in JSON they are written as what they wrap."""
    if descriptor is None or descriptor.full_name in ("google.protobuf.Value", "google.protobuf.ListValue"):
        return False
    return descriptor.full_name.startswith("google.protobuf.") and descriptor.full_name.endswith("Value")


def has_own_form(full_name: str) -> bool:
    """Tell a type whose JSON form is not a mapping of its fields; inside an Any it stands under `value`."""
    return full_name in _WELL_KNOWN or (full_name.startswith("google.protobuf.") and full_name.endswith("Value"))


def _of_value(field: FieldDescriptor) -> Convert:
    if field.message_type is not None:
        return _of_message(field.message_type)
    if field.enum_type is not None:
        return _of_enum(field.enum_type)
    return _SCALARS[field.type]


# -- messages, lists and maps


def _of_message(descriptor: Descriptor) -> Convert:
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known
    if is_wrapper(descriptor):
        return _of_wrapper(descriptor)

    def convert(value: Any, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return _refuse(faults, f"expected a mapping ({descriptor.full_name}), got {kind_of(value)}")
        return _fill(descriptor, value, faults)

    return convert


def _fill(descriptor: Descriptor, value: Mapping[str, Any], faults: Faults) -> dict[str, object]:
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
    if not isinstance(key, str):
        return f"a key must be a string, got {kind_of(key)}; quote it"
    names = [field.name if key.islower() else field.json_name for field in descriptor.fields]
    close = get_close_matches(key, names, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no such field in {descriptor.full_name}{hint}"


def _refuse(faults: Faults, message: str) -> Any:
    faults.append(((), message))
    return None


def _of_list(convert: Convert) -> Convert:
    def convert_list(value: Any, faults: Faults) -> Any:
        if not isinstance(value, list):
            return _refuse(faults, f"expected a list, got {kind_of(value)}")
        result = []
        for index, item in enumerate(value):
            count = len(faults)
            result.append(convert(item, faults))
            if len(faults) > count:
                prefix(faults, count, index)
        return result

    return convert_list


def _of_map(field: FieldDescriptor) -> Convert:
    pair: Any = field.message_type
    entry = pair.fields_by_name
    convert_key = _KEYS.get(entry["key"].type) or _SCALARS[entry["key"].type]
    convert_item = _of_value(entry["value"])

    def convert(value: Any, faults: Faults) -> Any:
        if not isinstance(value, dict):
            return _refuse(faults, f"expected a mapping, got {kind_of(value)}")
        result = {}
        for key, item in value.items():
            count = len(faults)
            result[convert_key(key, faults)] = convert_item(item, faults)
            if len(faults) > count:
                prefix(faults, count, str(key))
        return result

    return convert


# -- scalars


def _string(value: Any, faults: Faults) -> Any:
    if isinstance(value, str):
        return value
    hint = "" if isinstance(value, (dict, list)) or value is None else "; quote it"
    return _refuse(faults, f"expected a string, got {kind_of(value)}{hint}")


def _parameter(value: Any, faults: Faults) -> Any:
    """A parameter's key or value. `no` and `1.10` without quotes are two things to two readers, so neither passes."""
    if isinstance(value, Word):
        return _refuse(faults, f"expected a string, and {value} is none to every reader of YAML; quote it")
    if value is None:
        return _refuse(faults, "expected a string, got null; quote it")
    return _string(value, faults)


def _bool(value: Any, faults: Faults) -> Any:
    if isinstance(value, bool):
        return value
    hint = f"; write {'true' if value.lower() in _YES else 'false'}" if isinstance(value, Word) else ""
    return _refuse(faults, f"expected true or false, got {kind_of(value)}{hint}")


_YES = frozenset(("y", "yes", "on"))


def _bool_key(value: Any, faults: Faults) -> Any:
    return _bool({"true": True, "false": False}.get(value, value), faults)


def _bytes(value: Any, faults: Faults) -> Any:
    text = _string(value, faults)
    if text is None:
        return b""
    padded = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return _refuse(faults, "expected base64")


def _integers(bits: int, *, signed: bool) -> Convert:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: Any, faults: Faults) -> Any:
        number = value
        if type(number) is not int:
            number = _whole(value)
        if number is None:
            return _refuse(faults, f"expected a whole number, got {kind_of(value)}")
        if not low <= number <= high:
            return _refuse(faults, f"{number} is out of range, {low} to {high}")
        return number

    return convert


_DIGITS = re.compile(r"-?[0-9]{1,20}")


def _whole(value: object) -> int | None:
    """Accept 5.0 and "5" as proto3 JSON does; 64-bit numbers are written as strings."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return None


_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_LARGEST_FLOAT = 3.4028234663852886e38


def _double(value: Any, faults: Faults) -> Any:
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return _NUMBERS[value] if value in _NUMBERS else float(value)
        except ValueError:
            pass
    return _refuse(faults, f"expected a number, got {kind_of(value)}")


def _float(value: Any, faults: Faults) -> Any:
    number = _double(value, faults)
    if number is not None and _LARGEST_FLOAT < abs(number) < float("inf"):
        return _refuse(faults, f"{value} is out of range for a float")
    return number


def _of_enum(enum: EnumDescriptor) -> Convert:
    names = {name: value.number for name, value in enum.values_by_name.items()}
    null = enum.full_name == "google.protobuf.NullValue"

    def convert(value: Any, faults: Faults) -> Any:
        if isinstance(value, str) and value in names:
            return names[value]
        number = 0 if null and value is None else value if type(value) is int else _whole(value)
        if number is not None and -(1 << 31) <= number < 1 << 31:
            return number
        if not isinstance(value, str):
            return _refuse(faults, f"expected a name of {enum.full_name}, got {kind_of(value)}")
        close = get_close_matches(value.upper(), names, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(list(names)[:8])}"
        return _refuse(faults, f"{value} is no value of {enum.full_name}; {hint}")

    return convert


_SCALARS: dict[int, Convert] = {
    FieldDescriptor.TYPE_STRING: _string,
    FieldDescriptor.TYPE_BYTES: _bytes,
    FieldDescriptor.TYPE_BOOL: _bool,
    FieldDescriptor.TYPE_DOUBLE: _double,
    FieldDescriptor.TYPE_FLOAT: _float,
    FieldDescriptor.TYPE_INT32: _integers(32, signed=True),
    FieldDescriptor.TYPE_SINT32: _integers(32, signed=True),
    FieldDescriptor.TYPE_SFIXED32: _integers(32, signed=True),
    FieldDescriptor.TYPE_UINT32: _integers(32, signed=False),
    FieldDescriptor.TYPE_FIXED32: _integers(32, signed=False),
    FieldDescriptor.TYPE_INT64: _integers(64, signed=True),
    FieldDescriptor.TYPE_SINT64: _integers(64, signed=True),
    FieldDescriptor.TYPE_SFIXED64: _integers(64, signed=True),
    FieldDescriptor.TYPE_UINT64: _integers(64, signed=False),
    FieldDescriptor.TYPE_FIXED64: _integers(64, signed=False),
}
_KEYS: dict[int, Convert] = {FieldDescriptor.TYPE_BOOL: _bool_key}

_SINGLE = "envoy.service.discovery.v3.DynamicParameterConstraints.SingleConstraint."
_PARAMETERS = frozenset((_SINGLE + "key", _SINGLE + "value"))


# -- well-known types


def _of_wrapper(descriptor: Descriptor) -> Convert:
    convert_value = _SCALARS[descriptor.fields_by_name["value"].type]

    def convert(value: Any, faults: Faults) -> Any:
        return {"value": convert_value(value, faults)}

    return convert


_DURATION = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_LONGEST = 315_576_000_000  # seconds; google/protobuf/duration.proto


def _duration(value: Any, faults: Faults) -> Any:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[2]) > _LONGEST:
        return _refuse(faults, f"expected a duration such as 0.25s or 15s, got {kind_of(value)}")
    sign = -1 if match[1] else 1
    return {"seconds": sign * int(match[2]), "nanos": sign * int((match[3] or "").ljust(9, "0"))}


def _by_text(kind: type[Timestamp | FieldMask], example: str) -> Convert:
    def convert(value: Any, faults: Faults) -> Any:
        message = kind()
        try:
            message.FromJsonString(value)
        except (ValueError, TypeError, AttributeError):
            return _refuse(faults, f"expected {example}, got {kind_of(value)}")
        return message

    return convert


# Built as messages, not left as dicts: upb reads a dict that stands for a Struct as its contents.


def _struct(value: Any, faults: Faults) -> Any:
    if not isinstance(value, dict):
        return _refuse(faults, f"expected a mapping, got {kind_of(value)}")
    fields = {}
    for key, item in value.items():
        count = len(faults)
        fields[key] = _value(item, faults)
        if not isinstance(key, str):
            faults.append(((), f"a key must be a string, got {kind_of(key)}; quote it"))
        if len(faults) > count:
            prefix(faults, count, str(key))
    return Struct(fields={key: item for key, item in fields.items() if isinstance(key, str)})


def _list_value(value: Any, faults: Faults) -> Any:
    return ListValue(values=_of_list(_value)(value, faults))


def _value(value: Any, faults: Faults) -> Any:
    match value:
        case None:
            return Value(null_value=NullValue.NULL_VALUE)
        case bool():
            return Value(bool_value=value)
        case str():
            return Value(string_value=value)
        case int() | float():
            return Value(number_value=value)
        case list():
            return Value(list_value=_list_value(value, faults))
        case _:
            return Value(struct_value=_struct(value, faults))


def _any(value: Any, faults: Faults) -> Any:
    if not isinstance(value, dict):
        return _refuse(faults, f"expected a mapping with an @type, got {kind_of(value)}")
    if not value:
        return {}
    name = value.get("@type")
    if not isinstance(name, str):
        return _refuse(faults, "needs an @type")
    kind = find_message(type_name(name))
    if kind is None:
        faults.append((("@type",), unknown_type(name)))
        return {}
    message = from_any(value, kind, faults)
    if message is None:
        return {}
    return {"type_url": type_url(kind.DESCRIPTOR.full_name), "value": message.SerializeToString(deterministic=True)}


def from_any(value: dict[str, Any], kind: type[Message], faults: Faults) -> Message | None:
    """Build what stands beside an `@type`, which names `kind`."""
    rest = {key: item for key, item in value.items() if key != "@type"}
    if not has_own_form(kind.DESCRIPTOR.full_name):
        return to_message(rest, kind, faults)
    # proto3 JSON: a type with a JSON form of its own stands under "value"
    count = len(faults)
    if list(rest) != ["value"]:
        faults.append(((), f"expected @type and value, as {kind.DESCRIPTOR.full_name} has a JSON form of its own"))
        return None
    message = to_message(rest["value"], kind, faults)
    prefix(faults, count, "value")
    return message


def unknown_type(name: str) -> str:
    """Say that a type does not exist, and which ones are called nearly so."""
    close = close_matches(type_name(name))
    return f"unknown type {name}" + (f"; did you mean {' or '.join(close)}?" if close else "")


_WELL_KNOWN: dict[str, Convert] = {
    "google.protobuf.Any": _any,
    "google.protobuf.Duration": _duration,
    "google.protobuf.FieldMask": _by_text(FieldMask, "a field mask such as a.b,c"),
    "google.protobuf.ListValue": _list_value,
    "google.protobuf.Struct": _struct,
    "google.protobuf.Timestamp": _by_text(Timestamp, "a time such as 2030-01-31T12:00:00Z"),
    "google.protobuf.Value": _value,
}
