"""Types that clients make up: one stream takes so many of them, and one client can't use up what all share."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3.base_pb2 import Node

import xdsprism as xp
from tests.client.rig import both, endpoint, follow, quiet, timeless
from tests.relay.rig import ADS, Origin, Raw, Station, Wire, held, marks, pair, station
from xdsprism.core.model.types import make_variant


def custom(count: int, prefix: str) -> list[str]:
    return [f"type.googleapis.com/acme.{prefix}{number}" for number in range(count)]


async def want_all(relay: Station, types: list[str], *, delta: bool, whose: str = "raw") -> Raw:
    """whose: a node at an address of its own."""
    wire = Wire(relay.hub, f"ipv4:{whose}:1")
    path = ADS.format("v3", "Delta" if delta else "Stream")
    client = Raw(await wire.open(path), delta=delta).be(Node(id=whose))
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
async def test_a_type_beyond_the_bound_is_refused_and_served_when_there_is_room(
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
        late = await want_all(relay, types[128:], delta=True)  # from the same address
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


TYPES = 10


@pytest.fixture
def few_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 2)
    monkeypatch.setattr("xdsprism.core.relay.spread.TYPES_PER_STREAM", TYPES // 2)


def asked(origin: Origin, types: list[str]) -> list[str]:
    return [each for each in types if origin.asked(each)]


@pytest.mark.parametrize("first", ["greedy", "modest"])
@pytest.mark.usefixtures("few_types")
@both
@timeless
async def test_a_modest_client_has_its_types_in_any_order_of_arrival(delta: bool, first: str) -> None:
    # PRX-35
    async with pair(delta=delta) as (origin, relay):
        mine, others = custom(3, "Mine"), custom(3 * TYPES, "Greedy")
        fill(origin, mine + others)
        order = [(others, "greedy"), (mine, "modest")]
        clients: dict[str, Raw] = {}
        for types, whose in order if first == "greedy" else order[::-1]:
            clients[whose] = await want_all(relay, types, delta=delta, whose=whose)
            await quiet()
        assert asked(origin, mine + others) == mine + others[: TYPES - 3]  # what the greedy client got last gave way
        assert values(await clients["modest"].rest(), delta=delta) == sorted(each.encode() for each in mine)
        responses = await clients["greedy"].rest()
        told = [error.error_detail for response in responses for error in response.resource_errors]
        assert len(told) == len(others) - (TYPES - 3)
        assert all(each.code == 3 and "this client has its share" in each.message for each in told)
        assert {response.type_url for response in responses if response.resource_errors} == {*others[TYPES - 3 :]}
        clients["modest"].close()
        await quiet(60)
        again = asked(origin, others)
        assert (again[: TYPES - 3], len(again)) == (others[: TYPES - 3], TYPES)
        clients["greedy"].close()


@pytest.mark.usefixtures("few_types")
@timeless
async def test_a_type_gives_way_with_all_its_names_and_comes_back_with_them() -> None:
    # PRX-35
    async with pair(linger=0.0) as (origin, relay):
        types, names = custom(TYPES + 1, "Type"), [f"n{number}" for number in range(50)]
        origin.store.apply({(each, name): (make_variant(each, name, b"1"),) for each in types for name in names})
        greedy = await want_all(relay, types[: TYPES - 1], delta=True, whose="greedy")
        await greedy.want(types[TYPES - 1], *names)
        sent = [name for response in await greedy.rest() for name in held(response)]
        assert len(sent) == 50
        modest = await want_all(relay, [], delta=True, whose="modest")
        await modest.want(types[TYPES], "n0")
        responses = await greedy.rest()
        assert sorted(error.resource_name.name for each in responses for error in each.resource_errors) == sorted(names)
        assert not any(response.removed_resources for response in responses)
        assert asked(origin, types) == [*types[: TYPES - 1], types[TYPES]]
        modest.close()
        assert sorted(name for response in await greedy.rest() for name in held(response)) == sorted(names)
        greedy.close()


@pytest.mark.usefixtures("few_types")
@timeless
async def test_types_that_nobody_wants_any_more_give_way_first() -> None:
    # PRX-35, PRX-9
    async with pair() as (origin, relay):
        types = custom(TYPES + 3, "Type")
        fill(origin, types)
        client = await want_all(relay, types[:TYPES], delta=True)
        await client.want(types[0], "b")
        await client.rest()
        for type_url in types[:3]:
            await client.send(type_url=type_url, resource_names_unsubscribe=["a", "b"])
        for type_url in types[TYPES:]:
            await client.want(type_url, "a")
        assert values(await client.rest(), delta=True) == [each.encode() for each in types[TYPES:]]
        client.close()


@timeless
async def test_a_modest_client_has_its_group_in_any_order_of_arrival(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-35, PRX-20
    monkeypatch.setattr("xdsprism.relay.feed.GROUPS", 5)
    origin = Origin()
    origin.put(endpoint("a", "1"))
    async with (
        station(origin.wire.connect, group_by=["env"]) as relay,
        relay.client(node="greedy", address="10.0.0.1") as greedy,
        relay.client(node="modest", address="10.0.0.2") as modest,
    ):
        relay.relay.seek()  # the stream that finds out whether a server is there is no group
        much = [follow(greedy, xp.ENDPOINT, "a", params={"env": str(number)}) for number in range(8)]
        assert [await marks(each) for each in much].count([("a", "1")]) == 5
        few = [follow(modest, xp.ENDPOINT, "a", params={"env": each}) for each in ("mine", "too")]
        assert [await marks(each) for each in few] == [[("a", "1")]] * 2
        told = [await marks(each) for each in much]
        assert told == [[]] * 3 + [[("a", "(INVALID_ARGUMENT)")]] * 2 + [[]] * 3
        assert len([*origin.hub.connected()]) == 5
        origin.put(endpoint("a", "2"))
        assert [await marks(each) for each in few] == [[("a", "2")]] * 2
        assert [await marks(each) for each in much] == [[("a", "2")]] * 3 + [[]] * 5
        await few[0].close()
        await quiet(60)
        assert len([each for each in much if await marks(each)]) == 1  # there is room for one again


@timeless
async def test_a_client_that_shares_a_group_with_the_greedy_client_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-35, PRX-5: it is served by what the greedy client asked for
    monkeypatch.setattr("xdsprism.relay.feed.GROUPS", 3)
    origin = Origin()
    origin.put(endpoint("a", "1"))
    async with (
        station(origin.wire.connect, group_by=["env"]) as relay,
        relay.client(node="greedy", address="10.0.0.1") as greedy,
        relay.client(node="modest", address="10.0.0.2") as modest,
        relay.client(node="late", address="10.0.0.3") as late,
    ):
        for number in range(3):
            await marks(follow(greedy, xp.ENDPOINT, "a", params={"env": str(number), "pod": "x"}))
        shared = follow(modest, xp.ENDPOINT, "a", params={"env": "2", "pod": "y"})
        assert await marks(shared) == [("a", "1")]
        assert await marks(follow(late, xp.ENDPOINT, "a", params={"env": "new"})) == [("a", "1")]
        await quiet(60)
        assert await marks(shared) == []
        origin.put(endpoint("a", "2"))
        assert await marks(shared) == [("a", "2")]
