"""Clients and servers of version 2 and 3 of the API, with one relay between them (gRFC A30)."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.api.v2 import cluster_pb2
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, follow, quiet, server, timeless
from tests.relay.rig import Origin, marks, pair, station
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.type_versions import as_v2

OLD = as_v2(xp.CLUSTER)
V2_UPSTREAM = bootstrap(server("old:1", v3=False))
UPSTREAMS = {"v3": bootstrap(), "v2": V2_UPSTREAM}


def _anys(response: Any, *, delta: bool) -> list[Any]:
    return [each.resource if delta else each for each in response.resources]


@both
@pytest.mark.parametrize("source", UPSTREAMS.values(), ids=UPSTREAMS)
@timeless
async def test_one_entry_of_the_cache_serves_clients_of_both_versions(delta: bool, source: Any) -> None:
    # VER-14, VER-15
    origin = Origin()
    origin.put(cluster("a", "1"))
    async with station(origin.wire.connect, source, delta=delta) as relay:
        old, new = await relay.raw(delta=delta, v2=True), await relay.raw(delta=delta)
        await old.want(OLD, "a")
        await new.want(xp.CLUSTER, "a")
        for mark in ("1", "2"):
            (to_old,), (to_new,) = await old.rest(), await new.rest()
            assert (to_old.type_url, to_new.type_url) == (OLD, xp.CLUSTER)
            (was,), (now,) = _anys(to_old, delta=delta), _anys(to_new, delta=delta)
            assert (was.type_url, now.type_url) == (OLD, xp.CLUSTER)
            assert cluster_pb2.Cluster.FromString(was.value).alt_stat_name == mark
            assert Cluster.FromString(now.value).alt_stat_name == mark
            await old.ack(to_old, **({} if delta else {"resource_names": ["a"]}))
            await new.ack(to_new, **({} if delta else {"resource_names": ["a"]}))
            origin.put(cluster("a", "2"))
        assert len(origin.asked(xp.CLUSTER)) == 1
        assert len(relay.relay.store.table(xp.CLUSTER)) == 1
        for client in (old, new):
            client.close()


def _listener(name: str) -> Listener:
    manager = HttpConnectionManager(stat_prefix="s")
    manager.route_config.name = "r"
    made = Listener(name=name)
    made.filter_chains.add().filters.add(name="hcm").typed_config.Pack(manager)
    return made


@both
@timeless
async def test_packed_messages_have_the_type_names_of_each_version(delta: bool) -> None:
    # VER-14
    origin = Origin()
    origin.store.apply({(xp.LISTENER, "l"): (variant_of(_listener("l")),)})
    async with station(origin.wire.connect, V2_UPSTREAM, delta=delta) as relay, relay.client(delta=delta) as client:
        watched = follow(client, xp.LISTENER, "l")
        await quiet()
        (update,) = watched.seen()
        (packed,) = [each.typed_config for chain in update.resource.filter_chains for each in chain.filters]
        assert packed.Is(HttpConnectionManager.DESCRIPTOR)


@timeless
async def test_a_v2_server_is_asked_by_name_and_its_answers_serve_clients_with_params() -> None:
    # VER-14, VER-13
    origin = Origin()
    origin.put(cluster("a", "1"))
    async with station(origin.wire.connect, V2_UPSTREAM) as relay, relay.client() as client:
        watched = [follow(client, xp.CLUSTER, "a", params={"env": env}) for env in ("prod", "test")]
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 2
        origin.put(cluster("a", "2"))
        assert [await marks(each) for each in watched] == [[("a", "2")]] * 2
        origin.delete(xp.CLUSTER, "a")
        assert [await marks(each) for each in watched] == [[("a", "NOT_FOUND")]] * 2


@both
@timeless
async def test_ttls_are_passed_on_and_expire_when_the_server_is_silent(delta: bool) -> None:
    # PRX-22, TTL-5
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        origin.put(cluster("a", "1"), ttl=10.0)
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "a")
        (response,) = await raw.rest()
        assert response.resources[0].ttl.seconds == 10
        raw.close()
        watched = follow(client, xp.CLUSTER, "a")
        await quiet(100.0)
        assert await marks(watched) == [("a", "1")]
        origin.wire.cut(down=True)
        await quiet(30.0)
        assert await marks(watched) == [("a", "NOT_FOUND")]
