"""An answer for one client serves others where its constraints prove that it is for them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import FOREVER, both, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, marks, pair, station
from xdsprism.core.model.types import Params
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}
PROD_EU, PROD_US = {"env": "prod", "region": "eu"}, {"env": "prod", "region": "us"}


def _renumbered(sent: Any, passed: Any) -> Any:
    """With what is the relay's own: its name, the numbers of its responses and of its states."""
    same = type(sent)()
    same.CopyFrom(sent)
    same.nonce, same.system_version_info = passed.nonce, passed.system_version_info
    same.control_plane.CopyFrom(passed.control_plane)
    return same


def _mark(resource: Any) -> str:
    return Cluster.FromString(resource.resource.value).alt_stat_name


def _shown(about: Any) -> str:
    return str(xp.Expression.from_proto(about.dynamic_parameter_constraints))


def _located(name: str, mark: str, when: str) -> Any:
    made = pb.Resource(version=mark)
    made.resource_name.name = name
    made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    made.resource.Pack(cluster(name, mark))
    return made


def _steps(requests: list[Any]) -> list[int]:
    """Of the requests that want something (1) or let go of it (-1)."""
    steps = [bool(each.resource_locators_subscribe) - bool(each.resource_locators_unsubscribe) for each in requests]
    return [step for step in steps if step]


@modes
@timeless
async def test_many_clients_of_one_resource_cause_one_subscription(up: bool, down: bool) -> None:
    # PRX-1
    async with pair(delta=up) as (origin, relay), AsyncExitStack() as stack:
        origin.put(endpoint("a", "1"))
        clients = [await stack.enter_async_context(relay.client(delta=down)) for _ in range(5)]
        watched = [follow(client, xp.ENDPOINT, "a", params=PROD) for client in clients]
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 5
        assert origin.asked(xp.ENDPOINT) == [("a", Params(PROD))]
        origin.put(endpoint("a", "2"))
        assert [await marks(each) for each in watched] == [[("a", "2")]] * 5
        assert len(origin.wire.opened) == 1


@both
@timeless
async def test_a_client_that_matches_a_cached_variant_is_answered_without_asking_the_server(delta: bool) -> None:
    # PRX-2, PRX-4, PRX-5
    async with pair() as (origin, relay), relay.client(delta=delta) as first, relay.client(delta=delta) as second:
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        assert await marks(follow(first, xp.CLUSTER, "a", params=PROD_EU)) == [("a", "prod")]
        assert await marks(follow(first, xp.CLUSTER, "a", params=TEST)) == [("a", "test")]
        origin.wire.cut(down=True)
        assert await marks(follow(second, xp.CLUSTER, "a", params=PROD_US)) == [("a", "prod")]
        assert await marks(follow(second, xp.CLUSTER, "a", params={"env": "test", "x": "y"})) == [("a", "test")]


@timeless
async def test_an_absence_is_answered_from_the_cache_too() -> None:
    # PRX-2, PRX-5
    async with pair() as (origin, relay), relay.client() as first, relay.client() as second:
        origin.put(cluster("a", "prod"), when="env=prod")
        assert await marks(follow(first, xp.CLUSTER, "a", params={"env": "test", "x": "1"})) == [("a", "NOT_FOUND")]
        origin.wire.cut(down=True)
        assert await marks(follow(second, xp.CLUSTER, "a", params={"env": "test", "x": "2"})) == [("a", "NOT_FOUND")]


@timeless
async def test_constraints_are_passed_on_as_the_server_wrote_them() -> None:
    # PRX-3
    async with pair(upstream_form="locators") as (origin, relay):
        origin.put(cluster("a"), when="region=eu and not (env=canary or env=test)")
        direct = await relay.raw()
        await direct.want(xp.CLUSTER, "a", params=PROD_EU)
        (response,) = await direct.rest()
        assert response == _renumbered(origin.wire.responses[0], response)
        assert _shown(response.resources[0].resource_name) == "region=eu and not env in (canary, test)"
        direct.close()


@timeless
async def test_each_client_gets_a_replacement_in_one_response() -> None:
    # PRX-5, PRX-6
    async with pair() as (origin, relay):
        origin.put(cluster("a", "old"), when="env=prod")
        clients = [await relay.raw() for _ in range(2)]
        for client, params in zip(clients, (PROD_EU, PROD_US), strict=True):
            await client.want(xp.CLUSTER, "a", params=params)
            (response,) = await client.rest()
            await client.ack(response)
        assert len(origin.asked(xp.CLUSTER)) == 1
        with origin.store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a")
            tx.put(cluster("a", "eu"), when="env=prod and region=eu")
            tx.put(cluster("a", "us"), when="env=prod and region=us")
        for client, mark in zip(clients, ("eu", "us"), strict=True):
            (response,) = await client.rest()
            assert [_mark(each) for each in response.resources] == [mark]
            assert [_shown(gone) for gone in response.removed_resource_names] == ["env=prod"]
            client.close()
        assert len(origin.asked(xp.CLUSTER)) == 2


@modes
@timeless
async def test_a_variant_that_was_split_goes_on_being_served_until_the_parts_are_known(up: bool, down: bool) -> None:
    # PRX-5, PRX-6: nobody is ever told that there is nothing
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as one, relay.client(delta=down) as other:
        origin.put(cluster("a", "all"), when="env=prod")
        eu, us = follow(one, xp.CLUSTER, "a", params=PROD_EU), follow(other, xp.CLUSTER, "a", params=PROD_US)
        assert [await marks(eu), await marks(us)] == [[("a", "all")], [("a", "all")]]
        with origin.store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a")
            tx.put(cluster("a", "eu"), when="env=prod and region=eu")
            tx.put(cluster("a", "us"), when="env=prod and region=us")
        assert [await marks(eu), await marks(us)] == [[("a", "eu")], [("a", "us")]]
        with origin.store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a")
            tx.put(cluster("a", "all again"), when="env=prod")
        assert [await marks(eu), await marks(us)] == [[("a", "all again")], [("a", "all again")]]
        assert len(origin.asked(xp.CLUSTER)) == 1


@modes
@timeless
async def test_a_variant_that_is_removed_is_gone_for_all_who_had_it(up: bool, down: bool) -> None:
    # PRX-5
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as one, relay.client(delta=down) as other:
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        eu, us = follow(one, xp.CLUSTER, "a", params=PROD_EU), follow(other, xp.CLUSTER, "a", params=PROD_US)
        test = follow(other, xp.CLUSTER, "a", params=TEST)
        assert [await marks(eu), await marks(us), await marks(test)] == [[("a", "prod")]] * 2 + [[("a", "test")]]
        origin.delete(xp.CLUSTER, "a", when="env=prod")
        assert [await marks(eu), await marks(us), await marks(test)] == [[("a", "NOT_FOUND")]] * 2 + [[]]
        origin.vary(prod=cluster("a", "back"))
        assert [await marks(eu), await marks(us), await marks(test)] == [[("a", "back")]] * 2 + [[]]


@timeless
async def test_another_client_takes_over_a_shared_subscription_before_it_ends() -> None:
    # PRX-5
    async with pair(linger=5.0) as (origin, relay), relay.client() as one, relay.client() as other:
        origin.put(cluster("a", "1"), when="env=prod")
        first, second = follow(one, xp.CLUSTER, "a", params=PROD_EU), None
        assert await marks(first) == [("a", "1")]
        second = follow(other, xp.CLUSTER, "a", params=PROD_US)
        assert await marks(second) == [("a", "1")]
        assert origin.asked(xp.CLUSTER) == [("a", Params(PROD_EU))]
        await first.close()
        await quiet(60.0)
        assert origin.asked(xp.CLUSTER) == [("a", Params(PROD_US))]
        assert _steps(origin.wire.requests) == [1, 1, -1]
        assert await marks(second) == []
        origin.put(cluster("a", "2"), when="env=prod")
        assert await marks(second) == [("a", "2")]


@timeless
async def test_a_crowd_that_leaves_one_by_one_causes_no_crowd_of_questions() -> None:
    # PRX-5, PRX-9: another takes over when the one who left has lingered, not at once
    async with pair(linger=30.0) as (origin, relay):
        origin.put(cluster("a", "1"), when="env=prod")
        clients = [await relay.raw() for _ in range(200)]
        for number, client in enumerate(clients):
            await client.want(xp.CLUSTER, "a", params={**PROD, "id": str(number)})
            (response,) = await client.rest()
            await client.ack(response)
        for client in clients[:-1]:
            client.close()
            await quiet(0.5)
        asked = [each for request in origin.wire.requests for each in request.resource_locators_subscribe]
        assert len(asked) <= 1 + 200 * 0.5 / 30
        await quiet(60.0)
        assert origin.asked(xp.CLUSTER) == [("a", Params({**PROD, "id": "199"}))]
        origin.put(cluster("a", "2"), when="env=prod")
        (response,) = await clients[-1].rest()
        assert [_mark(each) for each in response.resources] == ["2"]
        clients[-1].close()


@timeless
async def test_a_shared_subscription_lingers_after_its_last_client() -> None:
    # PRX-9
    async with pair(linger=30.0) as (origin, relay), relay.client() as one, relay.client() as other:
        origin.put(cluster("a", "1"), when="env=prod")
        first = follow(one, xp.CLUSTER, "a", params=PROD_EU)
        assert await marks(first) == [("a", "1")]
        second = follow(other, xp.CLUSTER, "a", params=PROD_US)
        assert await marks(second) == [("a", "1")]
        await first.close()
        await quiet(25.0)
        await second.close()
        await quiet(25.0)
        assert origin.asked(xp.CLUSTER) == [("a", Params(PROD_EU))]
        await quiet(10.0)
        assert origin.asked(xp.CLUSTER) == []


@both
@timeless
async def test_names_get_plain_updates_and_locators_get_locator_updates(delta: bool) -> None:
    # PRX-7
    async with pair(delta=delta) as (origin, relay):
        origin.vary(prod=endpoint("a", "1"), test=endpoint("a", "no"))
        plain = (await relay.raw()).of(**PROD)
        located = await relay.raw()
        await plain.want(xp.ENDPOINT, "a")
        await located.want(xp.ENDPOINT, "a", params=PROD)
        (by_name,), (by_locator,) = await plain.rest(), await located.rest()
        assert by_name.resources[0].name == "a"
        assert not by_name.resources[0].HasField("resource_name")
        assert by_locator.resources[0].resource_name.name == "a"
        assert not by_locator.resources[0].name
        assert len(origin.asked(xp.ENDPOINT)) == 1
        await plain.ack(by_name)
        await located.ack(by_locator)
        origin.delete(xp.ENDPOINT, "a", when="env=prod")
        (by_name,), (by_locator,) = await plain.rest(), await located.rest()
        assert list(by_name.removed_resources) == ["a"]
        assert not by_name.removed_resource_names
        assert [_shown(gone) for gone in by_locator.removed_resource_names] == ["env=prod"]
        assert not by_locator.removed_resources
        plain.close()
        located.close()


@timeless
async def test_the_newest_of_two_overlapping_variants_wins_and_nothing_is_nacked() -> None:
    # PRX-8
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        eu = follow(client, xp.CLUSTER, "a", params=PROD_EU)
        await quiet()
        stream = await peer.accept()
        first = await stream.request()
        stream.respond(first.type_url, _located("a", "old", "env=prod"))
        assert await marks(eu) == [("a", "old")]
        stream.respond(first.type_url, _located("a", "new", "region=eu"), nonce="n2")
        assert await marks(eu) == [("a", "new")]
        assert not any(request.HasField("error_detail") for request in stream.pending())
        assert await marks(follow(client, xp.CLUSTER, "a", params={**PROD_EU, "x": "y"})) == [("a", "new")]


@timeless
async def test_a_variant_whose_constraints_do_not_match_is_for_exactly_the_params_that_were_asked_with() -> None:
    # DYN-56, PRX-4: the server has a reason that the constraints do not say
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client() as late:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a", params=TEST)
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, _located("a", "1", "env=prod"))
        (response,) = await client.rest()
        constraints = [each.resource_name.dynamic_parameter_constraints for each in response.resources]
        assert [str(xp.Expression.from_proto(each)) for each in constraints] == ["env=test"]
        assert await marks(follow(late, xp.CLUSTER, "a", params=PROD)) == []
        assert await marks(follow(late, xp.CLUSTER, "a", params={**TEST, "x": "y"})) == []


@timeless
async def test_one_client_asks_for_its_class_beside_a_variant_that_is_for_one_set_of_params() -> None:
    # PRX-14, DYN-56: what one client got against the constraints says nothing about how many others must ask
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay:
        client, *late = [await relay.raw() for _ in range(4)]
        await client.want(xp.CLUSTER, "a", params=TEST)
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, _located("a", "1", "env=prod"))
        assert len(await client.rest()) == 1
        stream.pending()
        for number, each in enumerate(late):
            await each.want(xp.CLUSTER, "a", params={**TEST, "x": str(number)})
        await quiet(0.1)
        asked = [each for request in stream.pending() for each in request.resource_locators_subscribe]
        assert len(asked) == 1


@timeless
async def test_a_new_locator_does_not_repeat_an_overlapping_variant_that_is_held_by_plain_name() -> None:
    # DYN-45, DYN-15: only a variant that was sent by locator can be replaced by one that comes by locator
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay:
        client, other = (await relay.raw()).of(**PROD_EU), await relay.raw()
        await client.want(xp.CLUSTER, "a")
        await other.want(xp.CLUSTER, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, _located("a", "new", "region=eu"))
        await quiet()
        both = _located("a", "old", "env=prod"), _located("a", "newer", "region=eu")
        stream.respond(xp.CLUSTER, *both, nonce="n2")
        assert [each.version for response in await client.rest() for each in response.resources] == ["new", "newer"]
        await client.want(xp.CLUSTER, "a", params=PROD)
        (response,) = await client.rest()
        constraints = [each.resource_name.dynamic_parameter_constraints for each in response.resources]
        assert [str(xp.Expression.from_proto(each)) for each in constraints] == ["env=prod"]


@both
@timeless
async def test_an_unwanted_subscription_ends_after_a_while(delta: bool) -> None:
    # PRX-9
    async with pair(delta=delta, linger=30.0) as (origin, relay), relay.client() as client:
        origin.put(cluster("a", "1"))
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        assert await marks(watched) == [("a", "1")]
        await watched.close()
        await quiet(20.0)
        assert origin.asked(xp.CLUSTER) == [("a", Params(PROD))]
        again = follow(client, xp.CLUSTER, "a", params=PROD)
        assert await marks(again) == [("a", "1")]
        await quiet(40.0)
        assert origin.asked(xp.CLUSTER) == [("a", Params(PROD))]
        await again.close()
        await quiet(40.0)
        assert origin.asked(xp.CLUSTER) == []
        assert len(relay.relay.store.table(xp.CLUSTER)) == 0  # nobody would tell that it changed


@timeless
async def test_an_unwanted_wildcard_ends_after_a_while() -> None:
    # PRX-9
    async with pair(linger=30.0) as (origin, relay), relay.client() as client:
        origin.put(cluster("a", "1"), cluster("b", "1"))
        watched = follow(client, xp.CLUSTER)
        assert await marks(watched) == [("a", "1"), ("b", "1")]
        await watched.close()
        await quiet(FOREVER / 100)
        assert origin.asked(xp.CLUSTER) == []
        assert len(relay.relay.store.table(xp.CLUSTER)) == 0


@timeless
async def test_a_thousand_simultaneous_clients_cause_one_subscription_per_variant() -> None:
    # PRX-14
    async with pair() as (origin, relay):
        with origin.store.transaction() as tx:
            for env in "abcd":
                for zone in "xyz":
                    tx.put(cluster("a", env + zone), when=f"env={env} and zone={zone}")
        origin.wire.delay = 1.0  # all are there before the server has said anything
        clients = [await relay.raw() for _ in range(1000)]
        kinds = [{"env": "abcd"[n % 4], "zone": "xyz"[n // 4 % 3], "id": str(n)} for n in range(1000)]
        for client, params in zip(clients, kinds, strict=True):
            await client.want(xp.CLUSTER, "a", params=params)
        await quiet(5.0)
        for client, params in zip(clients, kinds, strict=True):
            assert [_mark(each) for each in (await client.read()).resources] == [params["env"] + params["zone"]]
            assert client.end.unread.empty()
        asked = [locator for request in origin.wire.requests for locator in request.resource_locators_subscribe]
        assert len(asked) <= 12
        assert len(origin.asked(xp.CLUSTER)) == 12
        assert len(origin.wire.opened) == 1
        relay.wire.cut()
