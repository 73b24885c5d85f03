"""The server behind a relay goes down and comes back: clients only miss updates meanwhile."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, endpoint, follow, quiet, server, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, marks, pair, station
from xdsprism.core.model.facts import Sent

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}


@modes
@timeless
async def test_when_the_server_is_lost_no_stream_ends_and_no_resource_is_removed(up: bool, down: bool) -> None:
    # PRX-2, PRX-10
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.put(cluster("a", "1"), endpoint("a", "1"))
        watched = [follow(client, xp.CLUSTER, "a", params=PROD), follow(client, xp.CLUSTER)]
        watched.append(follow(client, xp.ENDPOINT, "a"))
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 3
        sent = relay.facts(Sent)
        origin.wire.cut(down=True)
        await quiet(3600.0)
        assert [await marks(each) for each in watched] == [[]] * 3
        assert len(relay.wire.opened) == 1
        assert sent == []
        async with relay.client(delta=down) as late:
            assert await marks(follow(late, xp.CLUSTER, "a", params=PROD)) == [("a", "1")]
            assert await marks(follow(late, xp.CLUSTER)) == [("a", "1")]


@both
@pytest.mark.parametrize("params", [None, PROD], ids=["plain", "located"])
@timeless
async def test_an_uncached_subscription_waits_while_the_server_is_down(
    delta: bool, params: dict[str, str] | None
) -> None:
    # PRX-11
    async with pair() as (origin, relay):
        origin.wire.down = True
        client = await relay.raw(delta=delta)
        await client.want(xp.CLUSTER, "a", params=params)
        await client.want(xp.ENDPOINT, "a", params=params)
        await client.want(xp.LISTENER, "*", params=params)
        await quiet(3600.0)
        for response in await client.rest():  # to those who ask by locators it is said why there is no answer (TP3)
            (error,) = response.resource_errors
            assert (error.resource_name.name, error.error_detail.code) == ("a", 14)
            assert params is not None
            assert not response.resources
            assert not delta or not (response.removed_resources or response.removed_resource_names)
        origin.put(endpoint("a", "1"))
        origin.wire.down = False
        await quiet(300.0)
        said = {response.type_url: response for response in await client.rest()}
        if delta:
            assert [*said[xp.CLUSTER].removed_resources, *said[xp.CLUSTER].removed_resource_names]
        assert len(said[xp.ENDPOINT].resources) == 1
        assert not said[xp.LISTENER].resources
        client.close()


@pytest.mark.parametrize("type_url", [xp.CLUSTER, xp.ENDPOINT])
@timeless
async def test_a_full_state_never_leaves_out_what_is_not_known(type_url: str) -> None:
    # PRX-11, SOT-4: to a client of full state what a response lacks is gone
    make = cluster if type_url == xp.CLUSTER else endpoint
    async with pair() as (origin, relay):
        origin.put(make("a", "1"), make("b", "1"))
        client = await relay.raw(delta=False)
        await client.want(type_url, "a")
        (first,) = await client.rest()
        origin.wire.cut(down=True)
        await client.want(type_url, "a", "b", version_info=first.version_info, response_nonce=first.nonce)
        await quiet(3600.0)
        assert await client.rest() == []
        origin.wire.down = False
        await quiet(300.0)
        (second,) = await client.rest()
        bodies = [make("a", "1"), make("b", "1")] if type_url == xp.CLUSTER else [make("b", "1")]
        assert [each.value for each in second.resources] == [body.SerializeToString() for body in bodies]
        client.close()


@modes
@timeless
async def test_when_the_server_is_back_only_what_changed_is_passed_on(up: bool, down: bool) -> None:
    # PRX-12
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        for name in "abc":
            origin.vary(prod=endpoint(name, "1"), test=endpoint(name, "test"))
        watched = follow(client, xp.ENDPOINT, *"abcd", params=PROD)
        await quiet(60.0)
        assert sorted(await marks(watched)) == [("a", "1"), ("b", "1"), ("c", "1"), ("d", "NOT_FOUND")]
        sent = relay.facts(Sent)
        origin.wire.cut(down=True)
        await quiet(10.0)
        origin.vary(prod=endpoint("b", "2"))
        origin.vary(prod=endpoint("d", "1"))
        origin.delete(xp.ENDPOINT, "c", when="env=prod")
        origin.wire.down = False
        await quiet(300.0)
        assert sorted(await marks(watched)) == [("b", "2"), ("c", "NOT_FOUND"), ("d", "1")]
        if up:
            assert dict(origin.wire.requests[0].initial_resource_versions).keys() == set("abc")
        assert sum(fact.resources for fact in sent) == 2


@modes
@timeless
async def test_a_resource_deleted_meanwhile_leaves_the_full_state_and_the_wildcard(up: bool, down: bool) -> None:
    # PRX-12
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.put(*[cluster(name, "1") for name in "abc"])
        named, everything = follow(client, xp.CLUSTER, *"abc", params=PROD), follow(client, xp.CLUSTER)
        expected = [("a", "1"), ("b", "1"), ("c", "1")]
        assert [sorted(await marks(named)), sorted(await marks(everything))] == [expected, expected]
        origin.wire.cut(down=True)
        origin.put(cluster("b", "2"))
        origin.delete(xp.CLUSTER, "c")
        origin.wire.down = False
        await quiet(300.0)
        expected = [("b", "2"), ("c", "NOT_FOUND")]
        assert [sorted(await marks(named)), sorted(await marks(everything))] == [expected, expected]


@modes
@timeless
async def test_when_the_server_is_back_unchanged_nothing_is_said_to_anybody(up: bool, down: bool) -> None:
    # PRX-12
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.put(*[cluster(name, "1") for name in "abc"])
        watched = follow(client, xp.CLUSTER, "a", "d", params=PROD), follow(client, xp.CLUSTER)
        await quiet(60.0)
        assert [len(await marks(each)) for each in watched] == [2, 3]
        sent = relay.facts(Sent)
        for _ in range(3):
            origin.wire.cut()
            await quiet(60.0)
        assert len(origin.wire.opened) > 3
        assert [await marks(each) for each in watched] == [[], []]
        assert sent == []


@timeless
async def test_tries_to_reach_the_server_become_rarer_and_are_not_made_by_all_at_once() -> None:
    # PRX-13
    tries = []
    for _ in range(2):
        async with pair() as (origin, relay), relay.client() as client:
            origin.wire.down = True
            follow(client, xp.CLUSTER, "a")
            start = len(origin.wire.opened)
            await quiet(3600.0)
            gaps = [round(later - earlier, 6) for earlier, later in pairwise(origin.wire.opened[start:])]
            assert gaps[0] < 2.0
            assert 60.0 < max(gaps) < 180.0  # there is an end to it
            assert gaps[5] > 2 * gaps[0]
            tries.append(gaps)
    assert tries[0] != tries[1]


@both
@timeless
async def test_while_the_first_server_is_down_the_next_one_is_asked(delta: bool) -> None:
    # PRX-26, FBK-1, FBK-2, FBK-4
    origins = {"one:1": Origin(), "two:2": Origin()}
    for uri, origin in origins.items():
        origin.put(cluster("a", uri), cluster("b", uri))
    one, two = origins.values()
    one.wire.down = True
    source = bootstrap(server("one:1"), server("two:2"))
    async with station(lambda config: origins[config.uri].wire, source, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        await quiet(60.0)
        assert await marks(watched) == [("a", "two:2")]
        one.wire.down = False
        await quiet(300.0)
        assert await marks(watched) == [("a", "one:1")]
        assert two.asked(xp.CLUSTER) == []
        one.wire.cut(down=True)
        await quiet(300.0)
        assert two.asked(xp.CLUSTER) == []  # FBK-2: everything that is wanted is there
        late = follow(client, xp.CLUSTER, "b", params=PROD)
        await quiet(300.0)
        assert await marks(late) == [("b", "two:2")]


@timeless
async def test_when_a_name_is_forgotten_during_an_outage_its_variants_are_served_on_and_absences_are_not() -> None:
    # PRX-28, PRX-11
    async with pair() as (origin, relay), relay.client() as client, relay.client() as late:
        origin.put(endpoint("a", "1"))
        assert await marks(follow(client, xp.ENDPOINT, "a", params=PROD)) == [("a", "1")]
        assert await marks(follow(client, xp.ENDPOINT, "b", params=PROD)) == [("b", "NOT_FOUND")]
        origin.wire.cut(down=True)
        await quiet()
        for name in ("a", "b"):
            assert relay.relay.forget(xp.ENDPOINT, name)
        assert await marks(follow(late, xp.ENDPOINT, "a", params=PROD)) == [("a", "1"), ("a", "(UNAVAILABLE)")]
        assert await marks(follow(late, xp.ENDPOINT, "b", params=PROD)) == [("b", "UNAVAILABLE")]


@both
@timeless
async def test_a_client_with_resource_errors_is_told_once_that_no_server_can_be_reached(delta: bool) -> None:
    # PRX-11, TP3
    async with pair() as (origin, relay), relay.client(delta=delta) as client:
        origin.put(endpoint("a", "1"))
        origin.wire.down = True
        watched = follow(client, xp.ENDPOINT, "a", params=PROD)
        await quiet(600.0)
        assert await marks(watched) == [("a", "UNAVAILABLE")]
        origin.wire.down = False
        await quiet(300.0)
        assert await marks(watched) == [("a", "1")]


@timeless
async def test_a_name_that_is_left_beside_a_wildcard_is_spoken_of_when_it_is_known_what_that_covers() -> None:
    # WLD-6, PRX-11: until then the client keeps what it has, and after that nothing that is gone
    async with pair() as (origin, relay):
        origin.put(cluster("a", "1"), cluster("b", "1"))
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "a")
        (given,) = await raw.rest()
        await raw.ack(given)
        origin.wire.cut(down=True)
        await raw.want(xp.CLUSTER, "*")
        await raw.send(type_url=xp.CLUSTER, resource_names_unsubscribe=["a"])
        assert await raw.rest() == []
        origin.delete(xp.CLUSTER, "a")
        origin.wire.down = False
        said: list[Any] = []
        while not any("a" in response.removed_resources for response in said):
            said += await raw.rest()
            await asyncio.sleep(1)
        assert [each.name for response in said for each in response.resources] == ["b"]
        raw.close()
