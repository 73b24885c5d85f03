"""The order of updates through relays: slow clients, several types, relays in a row."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

import xdsprism as xp
from tests.client.rig import both, cluster, endpoint, follow, listener, quiet, route, timeless
from tests.relay.rig import MODE_IDS, MODES, chain, held, marks, pair, station
from xdsprism.core.model.types import Params
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}
ORDER = [xp.CLUSTER, xp.ENDPOINT, xp.LISTENER, xp.ROUTE]


# -- slow clients


@both
@timeless
async def test_a_client_that_does_not_read_delays_no_other_and_gets_the_latest(delta: bool) -> None:
    # PRX-23
    async with pair() as (origin, relay), relay.client() as quick:
        origin.put(endpoint("a", "0"))
        slow = await relay.raw(delta=delta)
        slow.end.window = asyncio.Semaphore(1)
        await slow.want(xp.ENDPOINT, "a", params=PROD)
        watched = follow(quick, xp.ENDPOINT, "a", params=PROD)
        assert await marks(watched) == [("a", "0")]
        for number in range(1, 50):
            origin.put(endpoint("a", str(number)))
            assert await marks(watched) == [("a", str(number))]
        responses = await slow.rest()
        while more := await slow.rest():
            responses += more
        assert len(responses) <= 3
        (last,) = responses[-1].resources
        body = last.resource.value if delta else held(responses[-1])["0"]
        assert endpoint("a", "49").SerializeToString() in body
        slow.close()


# -- several types


@both
@timeless
async def test_types_go_out_in_their_order_however_the_server_sends_them(delta: bool) -> None:
    # PRX-29, ORD-1
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay:
        client = await relay.raw()
        for type_url in reversed(ORDER):
            await client.want(type_url, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        made = {xp.CLUSTER: cluster, xp.ENDPOINT: endpoint, xp.LISTENER: listener, xp.ROUTE: route}
        for mark in ("1", "2"):
            for type_url in reversed(ORDER):
                stream.respond(type_url, made[type_url]("a", mark), version=mark, nonce=type_url + mark)
            responses = await client.rest()
            assert [each.type_url for each in responses] == ORDER
            for each in responses:
                await client.ack(each)
        client.close()


@timeless
async def test_a_cluster_that_the_server_removes_too_early_goes_when_routes_have_moved_off_it() -> None:
    # PRX-29, ORD-2
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a")
        await client.want(xp.ROUTE, "r")
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, cluster("a", "1"), nonce="1")
        stream.respond(xp.ROUTE, route("r", "to a"), nonce="2")
        for each in await client.rest():
            await client.ack(each)
        stream.respond(xp.CLUSTER, nonce="3", removed=("a",))
        stream.respond(xp.ROUTE, route("r", "to b"), version="2", nonce="4")
        (moved,) = await client.rest()
        assert moved.type_url == xp.ROUTE
        await client.ack(moved)
        (gone,) = await client.rest()
        assert list(gone.removed_resources) == ["a"]
        client.close()


def to_cluster(name: str, target: str) -> RouteConfiguration:
    made = route(name)
    made.virtual_hosts.add(name="all", domains=["*"]).routes.add().route.cluster = target
    return made


def with_routes(name: str, source: str | RouteConfiguration) -> Listener:
    """A listener with its routes inline, or by RDS."""
    manager = HttpConnectionManager()
    if isinstance(source, str):
        manager.rds.route_config_name = source
        manager.rds.config_source.ads.SetInParent()
    else:
        manager.route_config.CopyFrom(source)
    made = listener(name)
    made.filter_chains.add().filters.add(name="http").typed_config.Pack(manager)
    return made


@modes
@timeless
async def test_a_cluster_goes_when_the_routes_that_a_listener_moved_to_have_arrived(up: bool, down: bool) -> None:
    # PRX-29, ORD-2: a relay knows what the resources of other servers refer to
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay:
        client = await relay.raw(delta=down)
        await client.want(xp.CLUSTER, "old", "new")
        await client.want(xp.LISTENER, "l")
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, cluster("old"), cluster("new"), version="1", nonce="1")
        stream.respond(xp.LISTENER, with_routes("l", to_cluster("inline", "old")), version="1", nonce="2")
        for each in await client.rest():
            await client.ack(each, **asking(down, each))
        gone = {"removed": ("old",)} if up else {}
        stream.respond(xp.CLUSTER, *([] if up else [cluster("new")]), version="2", nonce="3", **gone)
        stream.respond(xp.LISTENER, with_routes("l", "r"), version="2", nonce="4")
        (moved,) = await client.rest()
        assert moved.type_url == xp.LISTENER
        await client.ack(moved, **asking(down, moved))
        assert await client.rest() == []
        await client.want(xp.ROUTE, "r")
        await quiet()
        stream.respond(xp.ROUTE, to_cluster("r", "new"), version="1", nonce="5")
        (routes,) = await client.rest()
        assert routes.type_url == xp.ROUTE
        await client.ack(routes, **asking(down, routes))
        assert await client.rest() == []  # who asks by name may unsubscribe by itself
        await quiet(5)
        (last,) = await client.rest()
        assert last.type_url == xp.CLUSTER
        if down:
            assert list(last.removed_resources) == ["old"]
        else:
            assert [*held(last).values()] == [cluster("new").SerializeToString()]
        client.close()


def asking(delta: bool, response: Any) -> dict[str, Any]:
    """SotW: what was asked for is said again with each ACK."""
    names = {xp.CLUSTER: ["old", "new"], xp.LISTENER: ["l"], xp.ROUTE: ["r"]}
    return {} if delta else {"resource_names": names[response.type_url]}


@timeless
async def test_a_changed_cluster_gets_its_endpoints_again() -> None:
    # PRX-29, ORD-11
    eds = cluster("a", "1")
    eds.type = eds.EDS
    eds.eds_cluster_config.eds_config.ads.SetInParent()
    async with pair() as (origin, relay):
        origin.put(eds, endpoint("a", "1"))
        client = await relay.raw()
        for type_url in (xp.CLUSTER, xp.ENDPOINT):
            await client.want(type_url, "a")
        for each in await client.rest():
            await client.ack(each)
        eds.alt_stat_name = "2"
        origin.put(eds)
        again = await client.rest()
        assert [each.type_url for each in again] == [xp.CLUSTER, xp.ENDPOINT]
        assert ClusterLoadAssignment.FromString(held(again[1])["a"]) == endpoint("a", "1")
        client.close()


# -- relays in a row


@modes
@timeless
async def test_behind_a_relay_a_relay_shares_as_if_it_were_the_first(up: bool, down: bool) -> None:
    # PRX-24
    async with chain(2, delta=up) as (origin, (near, far)):
        either = "(x exists or not x exists)"
        with origin.store.transaction() as tx:
            tx.put(cluster("a", "prod"), when=f"env=prod and {either}")
            tx.put(cluster("a", "test"), when=f"env=test and {either}")
        async with far.client(delta=down) as one, far.client(delta=down, metadata=PROD) as two, near.client() as three:
            located = [follow(one, xp.CLUSTER, "a", params={**PROD, "x": x}) for x in "123"]
            located += [follow(two, xp.CLUSTER, "a"), follow(three, xp.CLUSTER, "a", params={**PROD, "x": "4"})]
            test = follow(one, xp.CLUSTER, "a", params=TEST)
            assert [await marks(each) for each in located] == [[("a", "prod")]] * 5
            assert await marks(test) == [("a", "test")]
            await quiet(
                60.0
            )  # PRX-32: a relay asks its server by a plain name too, until that is known to know locators
            assert len(origin.asked(xp.CLUSTER)) == 2
            assert await marks(follow(one, xp.CLUSTER, "a", params={"env": "dev"})) == [("a", "NOT_FOUND")]
            with origin.store.transaction() as tx:
                tx.delete(xp.CLUSTER, "a", when=f"env=prod and {either}")
                for x in "12":
                    tx.put(cluster("a", f"prod {x}"), when=f"env=prod and x={x}")
            marked = [[("a", f"prod {x}")] for x in "12"] + [[("a", "NOT_FOUND")]] * 3
            assert [await marks(each) for each in located] == marked
            assert await marks(test) == []


@modes
@timeless
async def test_behind_a_relay_a_relay_passes_wildcards_on(up: bool, down: bool) -> None:
    # PRX-24
    async with chain(2, delta=up) as (origin, (_, far)), far.client(delta=down, metadata=PROD) as client:
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        watched = follow(client, xp.CLUSTER)
        assert await marks(watched) == [("a", "prod")]
        assert origin.asked(xp.CLUSTER) == [("*", Params(PROD))]
        origin.put(cluster("b", "1"))
        assert await marks(watched) == [("b", "1")]
        origin.delete(xp.CLUSTER, "a")
        assert await marks(watched) == [("a", "NOT_FOUND")]


@modes
@timeless
async def test_when_an_upstream_relay_is_lost_clients_are_told_nothing(up: bool, down: bool) -> None:
    # PRX-24, PRX-10, PRX-12
    async with chain(2, delta=up) as (origin, (near, far)), far.client(delta=down) as client:
        origin.vary(prod=cluster("a", "1"))
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        assert await marks(watched) == [("a", "1")]
        near.wire.cut(down=True)
        await quiet(600.0)
        assert await marks(watched) == []
        origin.vary(prod=cluster("a", "2"))
        near.wire.down = False
        await quiet(600.0)
        assert await marks(watched) == [("a", "2")]


@timeless
async def test_versions_and_constraints_come_through_two_relays_unchanged() -> None:
    # PRX-24, PRX-22, PRX-3
    async with chain(2, upstream_form="locators") as (origin, (_, far)):
        origin.put(cluster("a", "1"), when="env=prod or not env exists")
        client = await far.raw()
        await client.want(xp.CLUSTER, "a", params=PROD)
        (response,) = await client.rest()
        assert list(response.resources) == list(origin.wire.responses[0].resources)
        client.close()
