"""Checks messages against the `validate.rules` annotations in Envoy's protos: what Envoy refuses is refused here.

protoc-gen-validate's own Python validator does not run on protobuf 7, and protovalidate reads other annotations
(and so finds nothing, silently). This interprets the annotations: once per message type into closures, which then
visit only the fields that are set. A field that is not set is decided beforehand: its default breaks the rule, or not.
A Duration has a range of its own, annotated or not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from validate import validate_pb2

from .convert import is_map, is_wrapper, unknown_type
from .faults import Check, Faults, all_of, each_item, prefix
from .protos import find_message, type_name
from .rule_kinds import Test, duration_fault, tests_of


class UnknownType(str):
    """The text of a fault that may be nobody's: the type of an Any is none of the installed ones, but perhaps newer."""

    __slots__ = ()


def check(message: Message) -> Faults:
    """List what Envoy would refuse in a message: the path of each field, and what is wrong with it."""
    faults: Faults = []
    descriptor: Any = message.DESCRIPTOR
    for each in _whole(descriptor):
        each(message, faults)
    return faults


@cache
def _whole(descriptor: Descriptor) -> list[Check]:
    return _inside(descriptor)


@cache
def checker(descriptor: Descriptor) -> Checker:
    """Give the rules of a message type, compiled on first use."""
    return Checker(descriptor)


class Checker:
    """The rules of one message type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.unknown: list[str] = []  # rules of a kind that this interpreter does not know
        self._present: dict[FieldDescriptor, Check] = {}
        self._absent: dict[FieldDescriptor, str] = {}
        self._oneofs: list[tuple[str, str]] = []
        if _is_disabled(descriptor):
            return
        for field in descriptor.fields:
            self._add(field)
        for oneof in descriptor.oneofs:
            if oneof.GetOptions().Extensions[validate_pb2.required]:
                names = ", ".join(field.name for field in oneof.fields)
                self._oneofs.append((oneof.name, f"one of these is required: {names}"))

    def __call__(self, message: Message, faults: Faults) -> None:
        present, absent = self._present, self._absent
        fields = message.ListFields()
        lacking = len(absent)
        for field, value in fields:
            if field in absent:
                lacking -= 1
            test = present.get(field)
            if test is not None:
                count = len(faults)
                test(value, faults)
                if len(faults) > count:
                    prefix(faults, count, field.name)
        if lacking:
            there = {field for field, _ in fields}
            faults.extend(((field.name,), text) for field, text in absent.items() if field not in there)
        for name, text in self._oneofs:
            if message.WhichOneof(name) is None:
                faults.append(((), text))

    def _add(self, field: FieldDescriptor) -> None:
        rules = field.GetOptions().Extensions[validate_pb2.rules]
        tests = self._tests(field, rules)
        checks = [_of_tests(tests)] if tests else []
        checks += self._of_contents(field, rules)
        if checks:
            self._present[field] = all_of(checks)
        absent = "is required" if _is_required(field, rules) else _of_default(field, tests)
        if absent is not None:
            self._absent[field] = absent

    def _tests(self, field: FieldDescriptor, rules: Any) -> list[Test]:
        kind = rules.WhichOneof("type")
        if kind is None:
            return []
        tests, unknown = tests_of(kind, getattr(rules, kind), field)
        self.unknown += [f"{field.full_name}: {kind}.{name}" for name in unknown]
        tests += [_not_understood(f"{kind}.{name}") for name in unknown]
        return [_unwrapped(test) for test in tests] if is_wrapper(field.message_type) else tests

    def _of_contents(self, field: FieldDescriptor, rules: Any) -> list[Check]:
        """Give what is to be done with each element of a list or map, and with the fields of a message inside."""
        if is_map(field):
            pair: Any = field.message_type
            entry = pair.fields_by_name
            keys = self._of_element(entry["key"], rules.map.keys)
            values = self._of_element(entry["value"], rules.map.values)
            return [_each_pair(all_of(keys), all_of(values))] if keys or values else []
        if field.is_repeated:
            items = self._of_element(field, rules.repeated.items)
            return [each_item(all_of(items))] if items else []
        return [] if rules.message.skip else _inside(field.message_type)

    def _of_element(self, field: FieldDescriptor, rules: Any) -> list[Check]:
        tests = self._tests(field, rules)
        return ([_of_tests(tests)] if tests else []) + ([] if rules.message.skip else _inside(field.message_type))


def _is_disabled(descriptor: Descriptor) -> bool:
    options = descriptor.GetOptions().Extensions
    return bool(options[validate_pb2.disabled] or options[validate_pb2.ignored])


def _is_required(field: FieldDescriptor, rules: Any) -> bool:
    if field.containing_oneof is not None:  # PGV: looked at only where it is the one that is set
        return False
    kind = rules.WhichOneof("type")
    own = kind in ("any", "duration", "timestamp") and getattr(rules, kind).required
    return bool(rules.message.required or own)


def _of_default(field: FieldDescriptor, tests: list[Test]) -> str | None:
    """Say what is wrong with a field that is not set; nothing, where "not set" is a state of its own."""
    if field.has_presence:
        return None
    default: object = () if field.is_repeated else field.default_value
    return next((text for test in tests if (text := test(default))), None)


# -- from tests to checks


def _of_tests(tests: list[Test]) -> Check:
    if len(tests) == 1:
        (only,) = tests

        def check_one(value: Any, faults: Faults) -> None:
            if (text := only(value)) is not None:
                faults.append(((), text))

        return check_one

    def check_first(value: Any, faults: Faults) -> None:
        for test in tests:
            if (text := test(value)) is not None:
                faults.append(((), text))
                return

    return check_first


def _unwrapped(test: Test) -> Test:
    return lambda message: test(message.value)


def _not_understood(rule: str) -> Test:
    """Refuse rather than let something pass that Envoy may not."""
    return lambda _: f"has a rule of the kind {rule}, which xdsprism does not know"


# -- into lists, maps and messages


def _each_pair(key: Check, value: Check) -> Check:
    def check_pairs(pairs: Any, faults: Faults) -> None:
        for name in pairs:
            count = len(faults)
            key(name, faults)
            value(pairs[name], faults)
            if len(faults) > count:
                prefix(faults, count, str(name))

    return check_pairs


def _inside(descriptor: Descriptor | None) -> list[Check]:
    if descriptor is None or not _matters(descriptor):
        return []
    if descriptor.full_name == _ANY:
        return [_check_any]
    if descriptor.full_name == _DURATION:
        return [_check_duration]

    rules: Checker | None = None

    def check_inside(message: Any, faults: Faults) -> None:
        nonlocal rules
        if rules is None:  # compiled when first met: messages contain each other
            rules = checker(descriptor)
        rules(message, faults)

    return [check_inside]


_ANY = "google.protobuf.Any"
_DURATION = "google.protobuf.Duration"


@cache
def _matters(descriptor: Descriptor) -> bool:
    """Tell whether there is any rule in a type or below; most of what a message holds has none, and is not visited."""
    seen: set[str] = set()
    waiting = [descriptor]
    while waiting:
        each = waiting.pop()
        if each.full_name in (_ANY, _DURATION) or _has_rules(each):
            return True
        if each.full_name not in seen and not _is_disabled(each):
            seen.add(each.full_name)
            waiting += [field.message_type for field in each.fields if field.message_type is not None]
    return False


def _has_rules(descriptor: Descriptor) -> bool:
    if _is_disabled(descriptor):
        return False
    on_oneofs = any(oneof.GetOptions().Extensions[validate_pb2.required] for oneof in descriptor.oneofs)
    return on_oneofs or any(field.GetOptions().HasExtension(validate_pb2.rules) for field in descriptor.fields)


def _check_duration(value: Any, faults: Faults) -> None:
    fault = duration_fault(value.seconds, value.nanos)
    if fault is not None:
        faults.append(((), fault))


def _check_any(value: Any, faults: Faults) -> None:
    """Check a typed config as what it says it is. Its fields stand beside `@type` in JSON, so the path goes on."""
    if not value.type_url:
        return
    kind = find_message(type_name(value.type_url))
    if kind is None:
        faults.append(((), UnknownType(unknown_type(value.type_url))))
        return
    try:
        message = kind.FromString(value.value)
    except DecodeError:
        faults.append(((), f"does not hold a {kind.DESCRIPTOR.full_name}"))
        return
    if kind.DESCRIPTOR.full_name != _ANY:
        checker(kind.DESCRIPTOR)(message, faults)
        return
    count = len(faults)
    _check_any(message, faults)
    prefix(faults, count, "value")  # proto3 JSON: an Any has a form of its own, which inside an Any stands there
