"""Every message type that is known, and random messages of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import validate
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from xdsprism.messages.descriptors import shipped
from xdsprism.messages.protos import find_message


@cache
def all_types() -> tuple[Descriptor, ...]:
    library = shipped()
    tops = [f"{package}.{name}" for package in library.packages() for name in library.messages_of(package)]
    ours = [name for name in tops if name.startswith(("envoy.", "xds.", "udpa."))]
    return tuple(each for name in sorted(ours) for each in _with_nested(find_message(name).DESCRIPTOR))


@cache
def installed_types() -> tuple[Descriptor, ...]:
    """Those of xds-protos."""
    site = Path(validate.__path__[0]).parent
    found: dict[str, Descriptor] = {}
    for root in ("envoy", "xds", "udpa"):
        for file in sorted((site / root).rglob("*_pb2.py")):
            module = importlib.import_module(".".join(file.relative_to(site).with_suffix("").parts))
            for top in module.DESCRIPTOR.message_types_by_name.values():
                found |= {each.full_name: each for each in _with_nested(top)}
    return tuple(found[name] for name in sorted(found))


def _with_nested(descriptor: Descriptor) -> Iterator[Descriptor]:
    if not descriptor.GetOptions().map_entry:
        yield descriptor
    for nested in descriptor.nested_types:
        yield from _with_nested(nested)


def empty(descriptor: Descriptor) -> Message:
    return message_factory.GetMessageClass(descriptor)()


def random_message(random: Random) -> Message:
    """A message of any type, with typed configs of any type inside."""
    return filled(random.choice(all_types()), random, 3)


def filled(descriptor: Descriptor, random: Random, depth: int = 3) -> Message:
    message = empty(descriptor)
    _fill(message, random, depth)
    return message


def _fill(message: Any, random: Random, depth: int) -> None:
    special = SPECIAL.get(message.DESCRIPTOR.full_name)
    if special is not None:
        special(message, random)
    elif message.DESCRIPTOR.full_name == "google.protobuf.Any":
        if depth > 0:
            names = ["google.protobuf.Duration", "google.protobuf.UInt32Value", "google.protobuf.Struct"]
            descriptor = random.choice(all_types())
            if random.random() < 0.1:
                descriptor = descriptor_pool.Default().FindMessageTypeByName(random.choice(names))
            message.Pack(filled(descriptor, random, depth - 1), deterministic=True)
    else:
        for field in message.DESCRIPTOR.fields:
            taken = field.containing_oneof is not None and message.WhichOneof(field.containing_oneof.name)
            if not taken and random.random() < 0.4:
                fill_field(message, field, random, depth)


def fill_field(message: Any, field: FieldDescriptor, random: Random, depth: int) -> None:
    kind: Any = field.message_type
    values = getattr(message, field.name)
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        if value.message_type is None:
            values[_scalar(key, random)] = _scalar(value, random)  # one: Any keeps the order that maps were written in
        else:
            _fill(values[_scalar(key, random)], random, depth - 1)
    elif field.is_repeated:
        for _ in range(random.randrange(3)):
            if kind is None:
                values.append(_scalar(field, random))
            else:
                _fill(values.add(), random, depth - 1)
    elif kind is None:
        setattr(message, field.name, _scalar(field, random))
    elif depth > 0:
        values.SetInParent()
        _fill(values, random, depth - 1)


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.enum_type is not None:
        return random.choice(field.enum_type.values).number
    return random.choice(SCALARS[field.type])


def _small(low: int, high: int) -> list[int]:
    return [0, 1, low, high]


SCALARS: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_STRING: ["", "a", "\N{SNOWMAN}", "no", "1.10", "/x"],
    FieldDescriptor.TYPE_BYTES: [b"", b"ab", b"\xff\xfe\x00\xfb\xef"],
    FieldDescriptor.TYPE_BOOL: [True, False],
    FieldDescriptor.TYPE_DOUBLE: [0.0, 1.5, -2.0, 1e300, float("inf")],
    FieldDescriptor.TYPE_FLOAT: [0.0, 1.5, -2.0, 1e30, float("-inf")],
    FieldDescriptor.TYPE_INT32: _small(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: _small(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED32: _small(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: _small(0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: _small(0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: _small(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: _small(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: _small(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: _small(0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: _small(0, 2**64 - 1),
}
SPECIAL: dict[str, Any] = {
    "google.protobuf.Duration": lambda message, random: message.FromJsonString(
        random.choice(["0s", "-1.5s", "0.000001s"])
    ),
    "google.protobuf.Timestamp": lambda message, random: message.FromSeconds(random.choice([0, 1_700_000_000])),
    "google.protobuf.FieldMask": lambda message, _: message.paths.extend(["a.b", "foo_bar"]),
    "google.protobuf.Struct": lambda message, random: message.update(
        random.choice([{}, {"a": [1, "x", None, {"b": True}]}])
    ),
    "google.protobuf.Value": lambda message, random: setattr(message, random.choice(["number_value", "null_value"]), 0),
    "google.protobuf.ListValue": lambda message, _: message.extend([1, "a", [True]]),
}
