"""Checks messages against the `validate.rules` annotations in Envoy's protos, as Envoy does.

protoc-gen-validate's own Python validator does not run on protobuf 7, and protovalidate reads other annotations (it
finds nothing, silently). So this module interprets the annotations. It compiles the rules of a message type once into
closures, which visit only the fields that are set. For a field that is not set, the compilation decides whether its
default breaks the rule. The range of a Duration is checked even without an annotation.
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


def check(message: Message) -> Faults:
    """List the fields of a message that break a rule, with the path and the reason of each."""
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
    """Return the compiled rules of a message type."""
    return Checker(descriptor)


class Checker:
    """The compiled rules of one message type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.unknown: list[str] = []  # rules of a kind that this interpreter does not know
        self._present: dict[FieldDescriptor, Check] = {}  # checks of fields that are set
        self._absent: dict[FieldDescriptor, str] = {}  # faults of fields that are not set
        self._oneofs: list[tuple[str, str]] = []  # required oneofs, and the fault if none of the fields is set
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
        """Compile the rules of a field, for when it is set and for when it is not."""
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
        """Return the tests of a field's rules. Unknown rules refuse every value."""
        kind = rules.WhichOneof("type")
        if kind is None:
            return []
        tests, unknown = tests_of(kind, getattr(rules, kind), field)
        self.unknown += [f"{field.full_name}: {kind}.{name}" for name in unknown]
        tests += [_not_understood(f"{kind}.{name}") for name in unknown]
        return [_unwrapped(test) for test in tests] if is_wrapper(field.message_type) else tests

    def _of_contents(self, field: FieldDescriptor, rules: Any) -> list[Check]:
        """Return the checks of a list's or map's elements, or of a nested message's fields."""
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
    """Whether a field must be set."""
    if field.containing_oneof is not None:  # PGV checks a field of a oneof only if it is the one that is set
        return False
    kind = rules.WhichOneof("type")
    own = kind in ("any", "duration", "timestamp") and getattr(rules, kind).required
    return bool(rules.message.required or own)


def _of_default(field: FieldDescriptor, tests: list[Test]) -> str | None:
    """Return the fault of a field's default value, or None. A field with presence has no fault while it is not set."""
    if field.has_presence:
        return None
    default: object = () if field.is_repeated else field.default_value
    return next((text for test in tests if (text := test(default))), None)


# -- from tests to checks


def _of_tests(tests: list[Test]) -> Check:
    """Turn tests into a check, which reports only the first failure."""
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
    """Refuse any value: Envoy may refuse what an unknown rule forbids."""
    return lambda _: f"has a rule of the kind {rule}, which xdsprism does not know"


# -- checks of lists, maps and nested messages


def _each_pair(key: Check, value: Check) -> Check:
    """Turn checks of keys and values into a check of a map."""

    def check_pairs(pairs: Any, faults: Faults) -> None:
        for name in pairs:
            count = len(faults)
            key(name, faults)
            value(pairs[name], faults)
            if len(faults) > count:
                prefix(faults, count, str(name))

    return check_pairs


def _inside(descriptor: Descriptor | None) -> list[Check]:
    """Return the check of a nested message, or nothing if its type has no rules."""
    if descriptor is None or not _matters(descriptor):
        return []
    if descriptor.full_name == _ANY:
        return [_check_any]
    if descriptor.full_name == _DURATION:
        return [_check_duration]

    rules: Checker | None = None

    def check_inside(message: Any, faults: Faults) -> None:
        nonlocal rules
        if rules is None:  # compiled on first use, as message types contain each other
            rules = checker(descriptor)
        rules(message, faults)

    return [check_inside]


_ANY = "google.protobuf.Any"
_DURATION = "google.protobuf.Duration"


@cache
def _matters(descriptor: Descriptor) -> bool:
    """Whether a type or any type nested in it has a rule. Most have none, and their messages are not visited."""
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
    """Check the message in an Any. Its fields stand beside `@type` in JSON, so their paths need no further step."""
    if not value.type_url:
        return
    kind = find_message(type_name(value.type_url))
    if kind is None:
        faults.append(((), unknown_type(value.type_url)))
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
    prefix(faults, count, "value")  # proto3 JSON writes an Any that is inside an Any under "value"
