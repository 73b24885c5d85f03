"""Types that clients make up: one stream takes so many of them, and one client can't use up what all share."""

from __future__ import annotations

from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import both, endpoint, follow, quiet, timeless
from tests.relay.rig import Origin, Raw, Station, marks, pair, station
from xdsprism.core.model.types import make_variant


def custom(count: int, prefix: str) -> list[str]:
    return [f"type.googleapis.com/acme.{prefix}{number}" for number in range(count)]


async def want_all(relay: Station, types: list[str], *, delta: bool) -> Raw:
    client = await relay.raw(delta=delta)
    for type_url in types:
        await client.want(type_url, "a")
    return client


def fill(origin: Origin, types: list[str]) -> None:
    origin.store.apply({(each, "a"): (make_variant(each, "a", each.encode()),) for each in types})


def values(responses: list[Any], *, delta: bool) -> list[bytes]:
    return sorted((each.resource if delta else each).value for response in responses for each in response.resources)


@both
@timeless
async def test_two_clients_with_a_hundred_types_each_are_served_and_nobody_starves(delta: bool) -> None:
    # PRX-35
    async with pair(delta=delta) as (origin, relay), relay.client() as other:
        first, second = custom(100, "First"), custom(100, "Second")
        fill(origin, first + second)
        origin.put(endpoint("a", "1"))
        clients = [await want_all(relay, types, delta=delta) for types in (first, second)]
        for client, types in zip(clients, (first, second), strict=True):
            assert values(await client.rest(), delta=delta) == sorted(each.encode() for each in types)
        assert await marks(follow(other, xp.ENDPOINT, "a")) == [("a", "1")]
        await quiet(120)
        assert len(origin.wire.ends) == 4  # no stream ended, and no more of them than are needed
        assert all(len(call.stream.sessions) <= 128 for call in origin.hub.connected())
        for client in clients:
            client.close()
        await quiet(120)
        assert len([*origin.hub.connected()]) == 1  # the others are gone


@timeless
async def test_well_known_types_are_on_one_stream_whatever_else_is_asked() -> None:
    # PRX-35, ORD-1
    async with pair() as (origin, relay):
        types = custom(100, "Type")
        fill(origin, types)
        client = await want_all(relay, [*types, xp.CLUSTER, xp.ENDPOINT, xp.LISTENER, xp.ROUTE], delta=True)
        await quiet()
        known = {xp.CLUSTER, xp.ENDPOINT, xp.LISTENER, xp.ROUTE}
        streams = [{*call.stream.sessions} & known for call in origin.hub.connected()]
        assert sorted(map(len, streams)) == [0, 4]
        client.close()


@timeless
async def test_past_the_bound_a_type_is_refused_to_who_asks_for_it_and_served_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-35
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 2)
    async with pair(linger=1.0) as (origin, relay):
        types = custom(129, "Type")
        fill(origin, types)
        greedy = await want_all(relay, types[:127], delta=True)
        greedy_too = await want_all(relay, types[127:128], delta=True)
        await quiet()
        late = await relay.raw()
        await late.want(types[128], "a")
        (response,) = await late.rest()
        assert [*response.removed_resources] == ["a"]
        late.close()
        for client in (greedy, greedy_too):
            client.close()
        await quiet(60)
        again = await relay.raw()
        await again.want(types[128], "a")
        assert values(await again.rest(), delta=True) == [types[128].encode()]
        again.close()


@timeless
async def test_there_are_so_many_groups_and_not_one_for_each_that_a_client_makes_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-35, PRX-20
    monkeypatch.setattr("xdsprism.relay.feed.GROUPS", 5)
    origin = Origin()
    origin.put(endpoint("a", "1"))
    async with station(origin.wire.connect, group_by=["env"]) as relay, relay.client() as client:
        watched = [follow(client, xp.ENDPOINT, "a", params={"env": str(number)}) for number in range(8)]
        seen = [await marks(each) for each in watched]
        assert seen.count([("a", "1")]) == 5
        assert seen.count([("a", "INVALID_ARGUMENT")]) == 3
        assert len([*origin.hub.connected()]) == 5
