"""A server can be asked for so many resources, and one client wants all of that: the others have theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import Follower, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, Station, marks, pair
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
    """What it has by now, of all that it was told."""
    await quiet(60)
    known.update(await marks(follower))
    return {name for name, mark in known.items() if mark == "1"}


@pytest.mark.parametrize("first", ["greedy", "modest"])
@modes
@timeless
async def test_modest_clients_are_served_whoever_comes_first(up: bool, down: bool, first: str) -> None:
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
        assert asked == kept if down or first == "modest" else asked < kept  # SOT-7: SotW has no word for a removal
        for each, at in zip(watched, whose, strict=True):
            told = await marks(each)
            assert told == [(name, "1") for name in names(at, 5)]  # and was told nothing else at any time
        origin.put(endpoint("one-3", "2"))
        assert await marks(watched[0]) == [("one-3", "2")]


@timeless
async def test_what_the_greedy_client_got_last_gives_way_and_it_is_told_why() -> None:
    # PRX-35, DYN-46
    async with pair() as (origin, relay), several(relay, "greedy", "modest") as (greedy, modest):
        fill(origin, "greedy", "modest")
        much = follow(greedy, xp.ENDPOINT, *names("greedy", ROOM))
        known: dict[str, str] = {}
        assert await has(much, known) == {*names("greedy", ROOM)}
        few = follow(modest, xp.ENDPOINT, *names("modest", 3))
        assert [mark for _, mark in await marks(few)] == ["1"] * 3
        assert await marks(much) == [(f"greedy-{number}", "NOT_FOUND") for number in (19, 18, 17)]
        known.update((f"greedy-{number}", "NOT_FOUND") for number in (19, 18, 17))
        assert len(origin.asked(xp.ENDPOINT)) == ROOM
        await few.close()
        assert await has(much, known) == {*names("greedy", ROOM)}  # when nothing lingers, there is room again


@timeless
async def test_who_reads_errors_is_told_why_something_gave_way() -> None:
    # PRX-35, DYN-46
    async with pair() as (origin, relay), several(relay, "modest") as (modest,):
        fill(origin, "greedy", "modest")
        greedy = await relay.raw()
        await greedy.want(xp.ENDPOINT, *names("greedy", ROOM), params={"env": "prod"})
        for response in await greedy.rest():
            await greedy.ack(response)
        follow(modest, xp.ENDPOINT, "modest-0")
        responses = await greedy.rest()
        assert [gone.name for each in responses for gone in each.removed_resource_names] == ["greedy-19"]
        (error,) = [error for each in responses for error in each.resource_errors]
        assert (error.resource_name.name, error.error_detail.code) == ("greedy-19", 3)
        assert "this client has its share" in error.error_detail.message
        greedy.close()


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
