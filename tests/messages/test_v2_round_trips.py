"""From v3 to v2 and back, read on the way as a client of v2 reads it: with the classes of v2, which drop the rest."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

import xdsprism as xp
from scripts.v2_fields import CHANGED, lacking
from tests.messages.samples import all_types, fill_field, filled
from tests.support.examples import examples
from xdsprism.core.model.types import PREFIX
from xdsprism.messages.api_versions import to_v2, to_v3, v2_name
from xdsprism.messages.convert import is_map
from xdsprism.messages.protos import find_message, type_name
from xdsprism.messages.typed_parts import ANY


@cache
def with_twins() -> dict[Descriptor, type[Message]]:
    """Every message of v3 that there was in v2, and what it was there."""
    named = {each: find_message(v2_name(each.full_name) or "") for each in all_types()}
    return {new: old for new, old in named.items() if old is not None}


def dump(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def parts(message: Any) -> list[Any]:
    """The messages right inside."""
    found: list[Any] = []
    for field, value in message.ListFields():
        if is_map(field):
            found += [each for each in value.values() if isinstance(each, Message)]
        elif field.message_type is not None:
            found += value if field.is_repeated else [value]
    return found


def read(message: Any) -> None:
    """Leave only what the classes know, also of what is packed inside, by names that v2 knows where it has one."""
    message.DiscardUnknownFields()
    if message.DESCRIPTOR.full_name == ANY:
        assert v2_name(type_name(message.type_url)) is None
        kind = find_message(type_name(message.type_url))
        if kind is not None:
            inner = kind.FromString(message.value)
            read(inner)
            message.value = dump(inner)
        return
    for each in parts(message):
        read(each)


def prune(message: Any) -> None:
    """Take out of a message of v3 the fields that are listed as not in v2, also of what is packed inside."""
    if message.DESCRIPTOR.full_name == ANY:
        kind = find_message(type_name(message.type_url))
        if kind is not None:
            inner = kind.FromString(message.value)
            prune(inner)
            message.value = dump(inner)
        return
    for name in [*lacking().get(message.DESCRIPTOR.full_name, ()), *CHANGED.get(message.DESCRIPTOR.full_name, ())]:
        message.ClearField(name)
    for each in parts(message):
        prune(each)


def there_and_back(message: Message, old: type[Message]) -> Message:
    url, old_url = (PREFIX + each.DESCRIPTOR.full_name for each in (message, old))
    seen = old.FromString(to_v2(url, dump(message)))
    read(seen)
    return type(message).FromString(to_v3(old_url, dump(seen)))


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_nothing_is_lost_but_the_fields_that_are_listed(seed: int) -> None:
    # VER-2, VER-4
    random = Random(seed)
    for new, old in with_twins().items():
        message = filled(new, random)
        message = type(message).FromString(to_v3(PREFIX + new.full_name, dump(message)))  # random Anys may be of v2
        back = there_and_back(message, old)
        for each in (message, back):
            prune(each)
        assert back == message, new.full_name


def test_every_field_that_is_listed_is_lost() -> None:
    """Or the list would take out of the comparison above what it should compare."""
    # VER-4
    for name, fields in lacking().items():
        kind = find_message(name)
        assert kind is not None
        for field in fields:
            message = with_one(kind, field)
            assert [each.name for each, _ in message.ListFields()] == [field]
            back = there_and_back(message, with_twins()[kind.DESCRIPTOR])
            assert back == kind(), (name, field)


def with_one(kind: type[Message], field: str) -> Message:
    """With this field and no other; what it is set to may be what it is anyway, so that it takes another try."""
    for seed in range(100):
        message = kind()
        fill_field(message, kind.DESCRIPTOR.fields_by_name[field], Random(seed), 3)
        if message.ListFields():
            break
    return message


def test_there_are_many_types_and_in_most_nothing_is_lost() -> None:
    # VER-4
    assert len(with_twins()) > 500
    assert len(lacking()) < len(with_twins()) / 2


@pytest.mark.parametrize("type_url", [xp.LISTENER, xp.ROUTE, xp.CLUSTER], ids=["lds", "rds", "cds"])
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_resources_with_typed_configs_come_back(type_url: str, seed: int) -> None:
    # VER-2, VER-4
    kind = find_message(type_name(type_url))
    assert kind is not None
    message = filled(kind.DESCRIPTOR, Random(seed), depth=5)
    message = type(message).FromString(to_v3(type_url, dump(message)))
    back = there_and_back(message, with_twins()[kind.DESCRIPTOR])
    for each in (message, back):
        prune(each)
    assert back == message
