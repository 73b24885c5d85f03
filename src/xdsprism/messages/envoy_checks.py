"""Finds what Envoy refuses beyond the annotations in its protos, and what it accepts with a warning.

`check` finds what every Envoy refuses, whatever its bootstrap: two virtual hosts with the same domain, a host name
where an IP address must be, a regular expression that RE2 does not compile. A real Envoy was seen to refuse each of
them (interop/configs). `notes` finds what Envoy warns of, such as deprecated fields.

Both walk a message by plans that are made once per message type, and visit only fields that can contain something to
check.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from . import envoy_network, envoy_routes, envoy_texts
from .convert import is_map
from .faults import Check, Faults, all_of, each_item, prefix
from .field_checks import FieldChecks
from .protos import find_message, type_name
from .typed_parts import ANY

_SMALL = 1024  # bytes; the faults of smaller contents of Anys are cached
_MAX_PROGRAM_SIZE = 100  # instructions of RE2: Envoy's default for re2.max_program_size.error_level


def check(message: Message) -> Faults:
    """List what Envoy would refuse in a message beyond `rules.check`, with the path and the reason of each fault."""
    faults: Faults = []
    descriptor: Any = message.DESCRIPTOR
    check_resource = envoy_network.RESOURCE_CHECKS.get(descriptor.full_name)
    if check_resource is not None:
        check_resource(message, faults)
    _refused.visit(message, faults)
    return faults


def notes(message: Message) -> Faults:
    """List what Envoy accepts in a message and warns of."""
    faults: Faults = []
    _warned.visit(message, faults)
    return faults


# For one message type: checks by field, the check of the whole message, and the fields that make it run.
_Plan = tuple[dict[FieldDescriptor, Check], Check | None, frozenset[FieldDescriptor]]


class _Walk:
    """Runs the checks of a message and of all messages nested in it, visiting only those that can have checks.

    checks_of   returns the checks of a message type
    skipped     message types that are never visited
    """

    def __init__(
        self, checks_of: Callable[[Descriptor], FieldChecks | None], skipped: frozenset[str] = frozenset()
    ) -> None:
        self._checks_of = cache(checks_of)
        self._skipped = skipped
        self._may_have_checks = cache(self._search)
        self._plans: dict[Descriptor, _Plan] = {}
        self._faults_of_small = lru_cache(maxsize=1024)(self._faults_of)  # most resources have the same few filters

    def visit(self, message: Any, faults: Faults) -> None:
        """Append the faults of a message and of all messages nested in it."""
        checks, whole, leading = self._plans.get(message.DESCRIPTOR) or self._plan(message.DESCRIPTOR)
        fields = message.ListFields()
        for field, value in fields:
            check_value = checks.get(field)
            if check_value is not None:
                count = len(faults)
                check_value(value, faults)
                if len(faults) > count:
                    prefix(faults, count, field.name)
        if whole is not None:
            for field, _ in fields:
                if field in leading:
                    whole(message, faults)
                    break

    def _plan(self, descriptor: Descriptor) -> _Plan:
        """Make the plan of a message type."""
        found = self._checks_of(descriptor) or _NO_CHECKS
        checks = {}
        for field in descriptor.fields:
            own = [each for each in (found.values.get(field.name), self._visit_field(field)) if each is not None]
            if own:
                checks[field] = all_of(own)
        leading = frozenset(field for field in descriptor.fields if field.name in found.leading)
        plan = self._plans[descriptor] = checks, found.whole, leading
        return plan

    def _visit_field(self, field: FieldDescriptor) -> Check | None:
        """Return the check that visits the messages in a field, or None if they have nothing to check."""
        kind: Any = field.message_type
        if kind is None:
            return None
        if is_map(field):
            kind = kind.fields_by_name["value"].message_type
        if kind is None or kind.full_name in self._skipped or not self._may_have_checks(kind):
            return None
        visit = self._visit_any if kind.full_name == ANY else self.visit
        return _each_value(visit) if is_map(field) else each_item(visit) if field.is_repeated else visit

    def _visit_any(self, value: Any, faults: Faults) -> None:
        """Check the message in an Any. JSON writes its fields beside `@type`, so their paths need no further step."""
        body = value.value
        if body:
            find = self._faults_of_small if len(body) <= _SMALL else self._faults_of
            faults += find(value.type_url, body)

    def _faults_of(self, type_url: str, body: bytes) -> Faults:
        """Return the faults of a serialized message."""
        faults: Faults = []
        kind = find_message(type_name(type_url))
        if kind is None or not self._may_have_checks(kind.DESCRIPTOR):
            return faults
        try:
            message: Any = kind.FromString(body)
        except DecodeError:  # rules.check reports it
            return faults
        if kind.DESCRIPTOR.full_name != ANY:
            self.visit(message, faults)
            return faults
        self._visit_any(message, faults)
        prefix(faults, 0, "value")  # proto3 JSON writes an Any that is inside an Any under "value"
        return faults

    def _search(self, descriptor: Descriptor) -> bool:
        """Whether a message type, or any type nested in it, has checks; an Any may contain such a type."""
        seen: set[str] = set()
        waiting = [descriptor]
        while waiting:
            each = waiting.pop()
            if each.full_name == ANY or self._checks_of(each) is not None:
                return True
            if each.full_name not in seen and each.full_name not in self._skipped:
                seen.add(each.full_name)
                waiting += [field.message_type for field in each.fields if field.message_type is not None]
        return False


def _each_value(check_value: Check) -> Check:
    """Turn a check of a value into a check of a map."""

    def visit_values(pairs: Any, faults: Faults) -> None:
        for name in pairs:
            count = len(faults)
            check_value(pairs[name], faults)
            if len(faults) > count:
                prefix(faults, count, str(name))

    return visit_values


# -- warnings


def _warnings(descriptor: Descriptor) -> FieldChecks | None:
    """Return the checks for what Envoy warns of in a message type: deprecated fields and large regular expressions."""
    if descriptor.full_name in envoy_routes.REGEXES:
        return FieldChecks({"regex": _large_program})
    text = f"is deprecated in {descriptor.full_name}: a later Envoy may refuse it"

    def note(_: Any, faults: Faults) -> None:
        faults.append(((), text))

    deprecated = {field.name: note for field in descriptor.fields if field.GetOptions().deprecated}
    return FieldChecks(deprecated) if deprecated else None


def _large_program(regex: str, faults: Faults) -> None:
    size = envoy_texts.program_size(regex)
    if size > _MAX_PROGRAM_SIZE:
        limit = f"Envoy refuses more than {_MAX_PROGRAM_SIZE} unless its runtime sets re2.max_program_size.error_level"
        faults.append(((), f"makes an RE2 program of the size {size}, and {limit}"))


_NO_CHECKS = FieldChecks({})
_REFUSED = envoy_network.CHECKS | envoy_routes.CHECKS
# Most messages contain these two types, and there is no check for anything in them.
_SKIPPED = frozenset(("envoy.config.core.v3.ConfigSource", "envoy.config.core.v3.Metadata"))
_refused = _Walk(lambda descriptor: _REFUSED.get(descriptor.full_name), _SKIPPED)
_warned = _Walk(_warnings)
