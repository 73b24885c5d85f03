"""A server can be asked for so many resources, and one client wants all of that: the others have theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import Follower, both, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, Raw, Station, held, marks, pair
from xdsprism.core.model.types import make_variant

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

ROOM, MANY = 20, 60  # what all streams to the server carry, and what the greedy client wants


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 2)
    monkeypatch.setattr("xdsprism.core.relay.spread.SUBSCRIPTIONS_PER_STREAM", ROOM // 2)


def names(whose: str, count: int) -> list[str]:
    return [f"{whose}-{number}" for number in range(count)]


@asynccontextmanager
async def several(relay: Station, *clients: str, **options: Any) -> AsyncIterator[Sequence[xp.Client]]:
    """Each from an address of its own."""
    async with AsyncExitStack() as stack:
        made = [relay.client(node=each, address=f"10.0.0.{at}", **options) for at, each in enumerate(clients, 1)]
        yield [await stack.enter_async_context(each) for each in made]


def fill(origin: Origin, *owners: str) -> None:
    origin.put(*(endpoint(name, "1") for each in owners for name in names(each, MANY)))


async def has(follower: Follower, known: dict[str, str]) -> set[str]:
    """What it has by now and was told nothing bad of."""
    await quiet(60)
    known.update(await marks(follower))
    return {name for name, mark in known.items() if mark == "1"}


@pytest.mark.parametrize("first", ["greedy", "modest"])
@modes
@timeless
async def test_modest_clients_are_served_in_any_order_of_arrival(up: bool, down: bool, first: str) -> None:
    # PRX-35
    async with pair(delta=up) as (origin, relay), several(relay, "greedy", "one", "two", delta=down) as clients:
        fill(origin, "greedy", "one", "two")
        greedy, *modest = clients
        if first == "greedy":
            much = follow(greedy, xp.ENDPOINT, *names("greedy", MANY))
            await quiet(60)
        whose = ("one", "two")
        watched = [follow(each, xp.ENDPOINT, *names(at, 5)) for each, at in zip(modest, whose, strict=True)]
        if first == "modest":
            await quiet(60)
            much = follow(greedy, xp.ENDPOINT, *names("greedy", MANY))
        kept = await has(much, {})
        asked = {name for name, _ in origin.asked(xp.ENDPOINT) if name.startswith("greedy")}
        assert len(asked) == ROOM - 10
        assert asked == kept
        for each, at in zip(watched, whose, strict=True):
            told = await marks(each)
            assert told == [(name, "1") for name in names(at, 5)]  # and was told nothing else at any time
        origin.put(endpoint("one-3", "2"))
        assert await marks(watched[0]) == [("one-3", "2")]


@timeless
async def test_the_newest_subscription_of_the_greedy_client_gives_way_with_a_reason() -> None:
    # PRX-35, DYN-46
    async with pair() as (origin, relay), several(relay, "greedy", "modest") as (greedy, modest):
        fill(origin, "greedy", "modest")
        much = follow(greedy, xp.ENDPOINT, *names("greedy", ROOM))
        known: dict[str, str] = {}
        assert await has(much, known) == {*names("greedy", ROOM)}
        few = follow(modest, xp.ENDPOINT, *names("modest", 3))
        assert [mark for _, mark in await marks(few)] == ["1"] * 3
        told = [(f"greedy-{number}", "(INVALID_ARGUMENT)") for number in (19, 18, 17)]
        assert await marks(much) == told  # and it keeps what it has
        known.update(told)
        assert len(origin.asked(xp.ENDPOINT)) == ROOM
        await few.close()
        assert await has(much, known) == {*names("greedy", ROOM)}  # when nothing lingers, there is room again


async def settle(client: Raw, wanted: dict[str, Any]) -> list[Any]:
    """Accept everything until all are quiet. wanted: what each SotW request repeats."""
    responses = await client.rest()
    for response in responses:
        await client.ack(response, **wanted)
    return responses


@pytest.mark.parametrize("params", [None, {"env": "prod"}], ids=["plain", "locators"])
@pytest.mark.parametrize("make", [endpoint, cluster], ids=["one by one", "full state"])
@both
@timeless
async def test_a_subscription_that_gave_way_gets_an_error_and_no_removal(
    delta: bool, make: Any, params: dict[str, str] | None
) -> None:
    # PRX-35, SOT-4, ERR-7: the resource is still there, only the relay can't follow it
    type_url = f"type.googleapis.com/{make('a', '1').DESCRIPTOR.full_name}"
    async with pair(linger=0.0) as (origin, relay), several(relay, "modest") as (modest,):
        mine = names("greedy", ROOM)
        origin.put(*(make(name, "1") for name in mine), endpoint("modest-0", "1"))
        greedy = await relay.raw(delta=delta)
        await greedy.want(type_url, *mine, params=params)
        keys = [pb.ResourceLocator(name=name, dynamic_parameters=params) for name in mine] if params else mine
        wanted = {} if delta else {"resource_locators" if params else "resource_names": keys}
        responses = await settle(greedy, wanted)
        assert sum(len(held(response)) for response in responses) == ROOM
        few = follow(modest, xp.ENDPOINT, "modest-0")
        responses = await settle(greedy, wanted)
        if (
            make is cluster and not delta
        ):  # ERR-2: a full state repeats what stays, and so has no word for what is wrong
            assert responses == []
        else:
            (error,) = [error for each in responses for error in each.resource_errors]
            assert (error.resource_name.name, error.error_detail.code) == ("greedy-19", 3)
            assert "this client has its share" in error.error_detail.message
            assert [held(each) for each in responses] == [{}]
        assert not (delta and any(each.removed_resources or each.removed_resource_names for each in responses))
        origin.put(make("greedy-0", "2"))
        assert [len(held(each)) for each in await settle(greedy, wanted)] == [
            ROOM if make is cluster and not delta else 1
        ]
        await few.close()
        await quiet(60)
        responses = await settle(greedy, wanted)
        assert [len(held(each)) for each in responses] == ([] if make is cluster and not delta else [1])  # it is over
        origin.put(make("greedy-19", "2"))
        assert len(await settle(greedy, wanted)) == 1
        greedy.close()


@pytest.mark.parametrize("make", [endpoint, cluster], ids=["one by one", "full state"])
@both
@timeless
async def test_a_new_subscription_without_room_is_absent_with_the_reason(delta: bool, make: Any) -> None:
    # PRX-35, DYN-46
    type_url = f"type.googleapis.com/{make('a', '1').DESCRIPTOR.full_name}"
    async with pair() as (origin, relay):
        mine = names("greedy", ROOM + 2)
        origin.put(*(make(name, "1") for name in mine))
        greedy = await relay.raw(delta=delta)
        await greedy.want(type_url, *mine)
        responses = await greedy.rest()
        assert sum(len(held(response)) for response in responses) == ROOM
        errors = {error.resource_name.name for each in responses for error in each.resource_errors}
        assert len(errors) == 2
        if delta:
            assert {name for each in responses for name in each.removed_resources} == errors
        greedy.close()


@both
@timeless
async def test_a_new_subscription_to_what_gave_way_takes_it_from_no_client(delta: bool) -> None:
    # PRX-35: another stream of the greedy client, or one that comes back
    async with pair() as (origin, relay), several(relay, "greedy", "modest", delta=delta) as (greedy, modest):
        fill(origin, "greedy", "modest")
        much = follow(greedy, xp.ENDPOINT, *names("greedy", ROOM))
        assert len(await marks(much)) == ROOM
        await marks(follow(modest, xp.ENDPOINT, "modest-0"))
        assert await marks(much) == [("greedy-19", "(INVALID_ARGUMENT)")]
        async with relay.client(node="greedy", address="10.0.0.1", delta=delta) as other:
            late = follow(other, xp.ENDPOINT, "greedy-19")
            await quiet(60)
            assert [mark for _, mark in await marks(late)][-1:] == ["INVALID_ARGUMENT"]
        assert await marks(much) == []  # it has it, and was told once


@timeless
async def test_a_wildcard_gives_way_after_all_names_of_its_client() -> None:
    # PRX-35: what a wildcard lists would be removed
    async with pair() as (origin, relay), several(relay, "greedy", "modest") as (greedy, modest):
        fill(origin, "greedy", "modest")
        origin.put(cluster("c", "1"))
        follow(greedy, xp.ENDPOINT, *names("greedy", ROOM - 1))
        everything = follow(greedy, xp.CLUSTER)
        assert await marks(everything) == [("c", "1")]
        follow(modest, xp.ENDPOINT, *names("modest", 5))
        await quiet(60)
        origin.put(cluster("c", "2"))
        assert await marks(everything) == [("c", "2")]


@modes
@timeless
async def test_a_name_that_was_refused_to_the_greedy_client_is_served_to_another(up: bool, down: bool) -> None:
    # PRX-35
    async with pair(delta=up) as (origin, relay), several(relay, "greedy", "modest", delta=down) as (greedy, modest):
        fill(origin, "greedy", "modest")
        much = follow(greedy, xp.ENDPOINT, *names("greedy", MANY))
        known: dict[str, str] = {}
        served = await has(much, known)
        refused = [name for name in names("greedy", MANY) if name not in served][:4]
        few = follow(modest, xp.ENDPOINT, *refused, *[*served][:4])
        assert await has(few, {}) == {*refused, *[*served][:4]}


@timeless
async def test_parameter_sets_of_a_name_that_all_want_give_way_too() -> None:
    # PRX-35: the greedy client makes up params, each of which has a variant of its own
    async with pair() as (origin, relay), several(relay, "greedy", "modest") as (greedy, modest):
        with origin.store.transaction() as tx:
            for number in range(MANY):
                tx.put(endpoint("a", f"m{number}"), when=f"pod=p{number}")
        much = [follow(greedy, xp.ENDPOINT, "a", params={"pod": f"p{number}"}) for number in range(MANY - 5)]
        await quiet(60)
        few = [follow(modest, xp.ENDPOINT, "a", params={"pod": f"p{number}"}) for number in range(MANY - 5, MANY)]
        await quiet(60)
        assert [(await marks(each))[-1] for each in few] == [("a", f"m{number}") for number in range(MANY - 5, MANY)]
        had = [(await marks(each))[-1][1] for each in much]
        assert len([mark for mark in had if mark.startswith("m")]) == ROOM - 5


@timeless
async def test_wildcards_of_made_up_params_give_way_to_a_wildcard_and_to_names() -> None:
    # PRX-35
    async with pair() as (origin, relay), several(relay, "greedy", "modest") as (greedy, modest):
        origin.put(cluster("c", "1"), endpoint("e", "1"))
        much = [follow(greedy, xp.CLUSTER, params={"pod": f"p{number}"}) for number in range(MANY)]
        await quiet(60)
        few = [follow(modest, xp.CLUSTER, params={"pod": "mine"}), follow(modest, xp.ENDPOINT, "e")]
        await quiet(60)
        assert [await marks(each) for each in few] == [[("c", "1")], [("e", "1")]]
        origin.put(cluster("c", "2"))
        await quiet(60)
        assert await marks(few[0]) == [("c", "2")]
        had = [await marks(each) for each in much]
        assert len([each for each in had if each and each[-1] == ("c", "2")]) >= ROOM - 2


@timeless
async def test_streams_of_one_address_have_the_share_of_one_client() -> None:
    # PRX-35
    async with pair() as (origin, relay), AsyncExitStack() as stack:
        fill(origin, "greedy", "modest")
        many = [
            await stack.enter_async_context(relay.client(node=f"n{number}", address="10.0.0.1")) for number in range(20)
        ]
        for number, each in enumerate(many):
            follow(each, xp.ENDPOINT, *names("greedy", MANY)[number * 3 : number * 3 + 3])
        await quiet(60)
        modest = await stack.enter_async_context(relay.client(node="modest", address="10.0.0.2"))
        assert await has(follow(modest, xp.ENDPOINT, *names("modest", 10)), {}) == {*names("modest", 10)}


@timeless
async def test_a_type_that_clients_make_up_is_served_where_its_stream_is_full() -> None:
    # PRX-35: names of other types have filled the stream that it is on
    made_up = "type.googleapis.com/acme.Thing"
    async with pair() as (origin, relay), several(relay, "greedy") as (greedy,):
        fill(origin, "greedy")
        origin.store.apply({(made_up, f"t{at}"): (make_variant(made_up, f"t{at}", b"1"),) for at in range(3)})
        raw = await relay.raw()
        await raw.want(made_up, "t0")
        assert len(await raw.rest()) == 1
        follow(greedy, xp.ENDPOINT, *names("greedy", MANY))
        await quiet(60)
        await raw.want(made_up, "t1", "t2")
        responses = await raw.rest()
        assert sorted(each.name for response in responses for each in response.resources) == ["t1", "t2"]
        raw.close()
