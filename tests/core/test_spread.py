"""Which stream carries a type."""

from __future__ import annotations

import pytest

from xdsprism.core.model.types import CLUSTER, TYPES
from xdsprism.core.relay import spread as spread_module
from xdsprism.core.relay.spread import STREAMS, TYPES_PER_STREAM, TypeSpread

ALL = TYPES_PER_STREAM * STREAMS


def custom(count: int, start: int = 0) -> list[str]:
    return [f"type.googleapis.com/acme.Type{number}" for number in range(start, start + count)]


def test_types_that_every_client_knows_are_always_on_the_first_stream() -> None:
    # PRX-35, ORD-1
    spread = TypeSpread()
    for type_url in custom(ALL):
        spread.place(type_url)
    assert {spread.place(spec.url) for spec in TYPES} == {0}


def test_other_types_share_the_streams_up_to_a_bound() -> None:
    # PRX-35
    spread = TypeSpread()
    places = [spread.place(type_url) for type_url in custom(ALL)]
    assert places == [number // TYPES_PER_STREAM for number in range(ALL)]
    assert spread.place(*custom(1, ALL)) is None
    assert [spread.place(type_url) for type_url in custom(3)] == [0, 0, 0]


def test_a_place_is_free_again_when_nothing_of_its_type_is_asked() -> None:
    # PRX-35
    spread = TypeSpread()
    for type_url in custom(ALL):
        spread.place(type_url)
    (last,) = custom(1, ALL - 1)
    spread.place(last)
    spread.leave(last, STREAMS - 1)
    assert spread.place(*custom(1, ALL)) is None
    spread.leave(last, STREAMS - 1)
    assert spread.place(*custom(1, ALL)) == STREAMS - 1


def test_a_stream_that_has_all_the_subscriptions_it_may_leaves_the_next_to_another(monkeypatch: pytest.MonkeyPatch):
    # PRX-35
    monkeypatch.setattr(spread_module, "SUBSCRIPTIONS_PER_STREAM", 2)
    spread = TypeSpread()
    assert [spread.place(CLUSTER) for _ in range(5)] == [0, 0, 1, 1, 2]
    spread.leave(CLUSTER, 1)
    assert spread.place(CLUSTER) == 1
