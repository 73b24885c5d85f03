"""Converts the scalars and enums of documents for protobuf, by the rules of proto3 JSON and of Envoy's reader."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ..similar import similar
from .document import AmbiguousScalar
from .faults import Faults, kind_of, refuse

# Takes a value as read from YAML, and returns what the message's constructor takes. If it appends a fault, the caller
# does not use its result, and prefixes the fault's path with the step to the value.
Convert = Callable[[Any, Faults], Any]


def _string(value: Any, faults: Faults) -> Any:
    if isinstance(value, str):
        return value
    hint = "" if isinstance(value, (dict, list)) or value is None else "; quote it"
    return refuse(faults, f"expected a string, got {kind_of(value)}{hint}")


def parameter(value: Any, faults: Faults) -> Any:
    """Convert the key or value of a parameter. `no` or `1.10` must be quoted, as YAML readers differ on them."""
    if isinstance(value, AmbiguousScalar):
        return refuse(faults, f"expected a string, but some YAML readers read {value} as another type; quote it")
    if value is None:
        return refuse(faults, "expected a string, got null; quote it")
    return _string(value, faults)


def _bool(value: Any, faults: Faults) -> Any:
    """Convert a boolean, or one of the words that Envoy's reader accepts for it."""
    if isinstance(value, bool):
        return value
    words = _SWITCHES if isinstance(value, AmbiguousScalar) else _BOOLEANS
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    return refuse(faults, f"expected true or false, got {kind_of(value)}")


# What Envoy takes, in any case: these with quotes and without, and without quotes what YAML 1.1 calls booleans too.
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_SWITCHES = _BOOLEANS | {"on": True, "off": False}


def _bytes(value: Any, faults: Faults) -> Any:
    """Convert base64, with or without padding, in the standard or the URL-safe alphabet."""
    text = _string(value, faults)
    if text is None:
        return b""
    padded = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return refuse(faults, "expected base64")


def _integers(bits: int, *, signed: bool) -> Convert:
    """Return the converter of integers of a size."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: Any, faults: Faults) -> Any:
        number = value
        if type(number) is not int:
            number = _whole(value)
        if number is None:
            return refuse(faults, f"expected a whole number, got {kind_of(value)}")
        if not low <= number <= high:
            return refuse(faults, f"{number} is out of range, {low} to {high}")
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
    return refuse(faults, f"expected a number, got {kind_of(value)}")


def _float(value: Any, faults: Faults) -> Any:
    number = _double(value, faults)
    if number is not None and _LARGEST_FLOAT < abs(number) < float("inf"):
        return refuse(faults, f"{value} is out of range for a float")
    return number


def of_enum(enum: EnumDescriptor) -> Convert:
    """Return the converter of an enum: names in any case, and numbers."""
    names = {name: value.number for name, value in enum.values_by_name.items()}
    folded = {name.upper(): number for name, number in reversed(names.items())}
    null = enum.full_name == "google.protobuf.NullValue"

    def convert(value: Any, faults: Faults) -> Any:
        if isinstance(value, str) and value in names:
            return names[value]
        if isinstance(value, str) and value.upper() in folded:
            return folded[value.upper()]
        number = 0 if null and value is None else value if type(value) is int else _whole(value)
        if number is not None and -(1 << 31) <= number < 1 << 31:
            return number
        if not isinstance(value, str):
            return refuse(faults, f"expected a name of {enum.full_name}, got {kind_of(value)}")
        close = similar(value.upper(), names)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(list(names)[:8])}"
        return refuse(faults, f"{value} is not a value of {enum.full_name}; {hint}")

    return convert


SCALARS: dict[int, Convert] = {
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

_SINGLE = "envoy.service.discovery.v3.DynamicParameterConstraints.SingleConstraint."
PARAMETERS = frozenset((_SINGLE + "key", _SINGLE + "value"))
