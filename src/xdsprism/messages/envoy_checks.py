"""What Envoy refuses beyond the annotations in its protos, and what it warns of.

`check` finds what no Envoy takes whatever else it was told: two virtual hosts with one domain, a host name where an IP
address must be, a regular expression that RE2 does not compile. Each was seen to be refused by a real Envoy
(interop/configs). `notes` finds what Envoy takes with a warning: fields that are deprecated.

Both walk a message by plans made once per type, which lead only to fields that may hold something of interest.
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
from .interest import Interest
from .nested import ANY
from .protos import find_message, type_name

_SMALL = 1024  # bytes of what is packed in an Any
_MOST_PROGRAM = 100  # instructions of RE2; Envoy, where its runtime does not say otherwise


def check(message: Message) -> Faults:
    """List what Envoy would refuse in a message, beyond `rules.check`: the path of each field, and what is wrong."""
    faults: Faults = []
    descriptor: Any = message.DESCRIPTOR
    alone = envoy_network.ALONE.get(descriptor.full_name)
    if alone is not None:
        alone(message, faults)
    _refused.visit(message, faults)
    return faults


def notes(message: Message) -> Faults:
    """List what Envoy takes, and warns of."""
    faults: Faults = []
    _warned.visit(message, faults)
    return faults


_Plan = tuple[dict[FieldDescriptor, Check], Check | None, frozenset[FieldDescriptor]]


class _Walk:
    """Visits what may hold something of interest, and nothing else."""

    def __init__(
        self, interest: Callable[[Descriptor], Interest | None], without: frozenset[str] = frozenset()
    ) -> None:
        self._interest = cache(interest)
        self._without = without
        self._leads = cache(self._search)
        self._plans: dict[Descriptor, _Plan] = {}
        self._in_small = lru_cache(maxsize=1024)(self._inside)  # most resources have the same few filters

    def visit(self, message: Any, faults: Faults) -> None:
        ways, whole, leading = self._plans.get(message.DESCRIPTOR) or self._plan(message.DESCRIPTOR)
        fields = message.ListFields()
        for field, value in fields:
            way = ways.get(field)
            if way is not None:
                count = len(faults)
                way(value, faults)
                if len(faults) > count:
                    prefix(faults, count, field.name)
        if whole is not None:
            for field, _ in fields:
                if field in leading:
                    whole(message, faults)
                    break

    def _plan(self, descriptor: Descriptor) -> _Plan:
        found = self._interest(descriptor) or _NOTHING
        ways = {}
        for field in descriptor.fields:
            steps = [step for step in (found.values.get(field.name), self._way(field)) if step is not None]
            if steps:
                ways[field] = all_of(steps)
        leading = frozenset(field for field in descriptor.fields if field.name in found.leading)
        plan = self._plans[descriptor] = ways, found.whole, leading
        return plan

    def _way(self, field: FieldDescriptor) -> Check | None:
        kind: Any = field.message_type
        if kind is None:
            return None
        if is_map(field):
            kind = kind.fields_by_name["value"].message_type
        if kind is None or kind.full_name in self._without or not self._leads(kind):
            return None
        step = self._unpacked if kind.full_name == ANY else self.visit
        return _each_value(step) if is_map(field) else each_item(step) if field.is_repeated else step

    def _unpacked(self, value: Any, faults: Faults) -> None:
        """What an Any holds stands beside its `@type`, so the path goes on; an Any in an Any stands under `value`."""
        body = value.value
        if body:
            find = self._in_small if len(body) <= _SMALL else self._inside
            faults += find(value.type_url, body)

    def _inside(self, type_url: str, body: bytes) -> Faults:
        faults: Faults = []
        kind = find_message(type_name(type_url))
        if kind is None or not self._leads(kind.DESCRIPTOR):
            return faults
        try:
            message: Any = kind.FromString(body)
        except DecodeError:  # rules.check says so
            return faults
        if kind.DESCRIPTOR.full_name != ANY:
            self.visit(message, faults)
            return faults
        self._unpacked(message, faults)
        prefix(faults, 0, "value")
        return faults

    def _search(self, descriptor: Descriptor) -> bool:
        """Tell whether there may be something of interest in a message, or in what it holds."""
        seen: set[str] = set()
        waiting = [descriptor]
        while waiting:
            each = waiting.pop()
            if each.full_name == ANY or self._interest(each) is not None:
                return True
            if each.full_name not in seen and each.full_name not in self._without:
                seen.add(each.full_name)
                waiting += [field.message_type for field in each.fields if field.message_type is not None]
        return False


def _each_value(step: Check) -> Check:
    def visit_values(pairs: Any, faults: Faults) -> None:
        for name in pairs:
            count = len(faults)
            step(pairs[name], faults)
            if len(faults) > count:
                prefix(faults, count, str(name))

    return visit_values


# -- what is warned of


def _warnings(descriptor: Descriptor) -> Interest | None:
    if descriptor.full_name in envoy_routes.REGEXES:
        return Interest({"regex": _large_program})
    text = f"is deprecated in {descriptor.full_name}: a later Envoy may refuse it"

    def note(_: Any, faults: Faults) -> None:
        faults.append(((), text))

    deprecated = {field.name: note for field in descriptor.fields if field.GetOptions().deprecated}
    return Interest(deprecated) if deprecated else None


def _large_program(regex: str, faults: Faults) -> None:
    size = envoy_texts.program_size(regex)
    if size > _MOST_PROGRAM:
        limit = f"Envoy refuses more than {_MOST_PROGRAM} unless its runtime sets re2.max_program_size.error_level"
        faults.append(((), f"makes an RE2 program of the size {size}, and {limit}"))


_NOTHING = Interest({})
_REFUSED = envoy_network.INTERESTS | envoy_routes.INTERESTS
# Where resources come from, and what is said about them: most messages have these, and nothing in them is refused here.
_ASIDE = frozenset(("envoy.config.core.v3.ConfigSource", "envoy.config.core.v3.Metadata"))
_refused = _Walk(lambda descriptor: _REFUSED.get(descriptor.full_name), _ASIDE)
_warned = _Walk(_warnings)
