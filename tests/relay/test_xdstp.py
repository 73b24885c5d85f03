"""xdstp names through a relay: one spelling, and one upstream subscription for a collection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.client.rig import bootstrap, cluster, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, Raw, Station, station
from xdsprism.core.model.types import Params

BASE = "xdstp://auth/envoy.config.cluster.v3.Cluster"
A, B, FOO = f"{BASE}/foo/a", f"{BASE}/foo/b", f"{BASE}/foo/*"
NO_PARAMS = Params()

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[Origin, Station]]:
    """A server of an authority, and a relay that knows it."""
    origin = Origin()
    async with station(origin.wire.connect, bootstrap(authorities={"auth": {}}), **options) as relay:
        yield origin, relay


async def heard(client: Raw) -> tuple[dict[str, str], list[str]]:
    """All that came, and is ACKed: marks of contents by name, and what went."""
    marks, gone = {}, []
    for response in await client.rest():
        await client.ack(response)
        for each in response.resources:
            marks[each.name] = Cluster.FromString(each.resource.value).alt_stat_name
        gone += response.removed_resources
    return marks, gone


@modes
@timeless
async def test_a_name_is_asked_for_in_one_spelling(up: bool, down: bool) -> None:
    # XTP-1, PRX-15
    async with pair(delta=up) as (origin, relay):
        origin.put(cluster(f"{BASE}/a?x=1&y=2", "1"))
        clients = [await relay.raw(delta=down) for _ in range(2)]
        for client, name in zip(clients, (f"{BASE}/a?x=1&y=2", f"{BASE}/a?y=2&x=1"), strict=True):
            await client.want(xp.CLUSTER, name)
        for client in clients:
            (response,) = await client.rest()
            assert len(response.resources) == 1
        assert origin.asked(xp.CLUSTER) == [(f"{BASE}/a?x=1&y=2", NO_PARAMS)]


@timeless
async def test_members_of_a_collection_come_and_go() -> None:
    # XTP-3, XTP-5, PRX-15
    async with pair() as (origin, relay):
        origin.put(cluster(A, "1"), cluster(f"{BASE}/bar/c", "1"), cluster("plain", "1"))
        client = await relay.raw()
        await client.want(xp.CLUSTER, FOO)
        assert await heard(client) == ({A: "1"}, [])
        origin.put(cluster(B, "1"), cluster(A, "2"), cluster(f"{BASE}/bar/c", "2"))
        assert await heard(client) == ({A: "2", B: "1"}, [])
        origin.delete(xp.CLUSTER, A)
        assert await heard(client) == ({}, [A])
        origin.delete(xp.CLUSTER, B)
        assert await heard(client) == ({}, [B])
        late = await relay.raw()
        await late.want(xp.CLUSTER, FOO)
        assert await heard(late) == ({}, [FOO])


@timeless
async def test_a_collection_is_one_question_however_many_ask_it() -> None:
    # XTP-3, PRX-5, PRX-9
    async with pair(linger=0.0) as (origin, relay):
        origin.put(cluster(A, "1"))
        clients = [await relay.raw() for _ in range(3)]
        for client in clients:
            await client.want(xp.CLUSTER, FOO)
        for client in clients:
            assert await heard(client) == ({A: "1"}, [])
        assert origin.asked(xp.CLUSTER) == [(FOO, NO_PARAMS)]
        for client in clients:
            client.close()
        await quiet()
        assert origin.asked(xp.CLUSTER) == []
        assert not relay.relay.server.store.tables() or len(relay.relay.server.store.table(xp.CLUSTER)) == 0


@timeless
async def test_a_subscription_to_a_member_is_served_by_its_collection() -> None:
    # XTP-7, PRX-5
    async with pair(linger=0.0) as (origin, relay):
        origin.put(cluster(A, "1"), cluster(B, "1"))
        one, other = await relay.raw(), await relay.raw()
        await one.want(xp.CLUSTER, FOO)
        assert await heard(one) == ({A: "1", B: "1"}, [])
        await other.want(xp.CLUSTER, A)
        assert await heard(other) == ({A: "1"}, [])
        origin.delete(xp.CLUSTER, A)
        assert await heard(other) == ({}, [A])
        assert origin.asked(xp.CLUSTER) == [(FOO, NO_PARAMS)], "the collection has said so"
        origin.put(cluster(A, "1"))
        assert await heard(other) == ({A: "1"}, [])
        one.close()
        await quiet()
        assert origin.asked(xp.CLUSTER) == [(A, NO_PARAMS)]
        origin.put(cluster(A, "2"))
        assert await heard(other) == ({A: "2"}, [])


@timeless
async def test_each_class_of_clients_has_its_variants_of_the_members() -> None:
    # XTP-3, DYN-41, PRX-2
    async with pair() as (origin, relay):
        origin.vary(prod=cluster(A, "prod"), test=cluster(A, "test"))
        origin.put(cluster(B, "prod"), when="env=prod")
        prod, test = (await relay.raw()).of(env="prod"), (await relay.raw()).of(env="test")
        await prod.want(xp.CLUSTER, FOO)
        await test.want(xp.CLUSTER, FOO)
        assert await heard(prod) == ({A: "prod", B: "prod"}, [])
        assert await heard(test) == ({A: "test"}, [])
        origin.vary(test=cluster(A, "test 2"))
        assert await heard(prod) == ({}, [])
        assert await heard(test) == ({A: "test 2"}, [])


@timeless
async def test_a_collection_is_kept_while_the_server_is_away() -> None:
    # XTP-3, PRX-10
    async with pair() as (origin, relay):
        origin.put(cluster(A, "1"), cluster(B, "1"))
        one = await relay.raw()
        await one.want(xp.CLUSTER, FOO)
        assert await heard(one) == ({A: "1", B: "1"}, [])
        origin.wire.cut(down=True)
        late = await relay.raw()
        await late.want(xp.CLUSTER, FOO)
        assert await heard(late) == ({A: "1", B: "1"}, [])
        origin.delete(xp.CLUSTER, B)
        origin.wire.down = False
        await asyncio.sleep(60)
        for client in (one, late):
            assert (await heard(client))[1] == [B]


@timeless
async def test_a_name_that_nothing_can_have_is_not_passed_on() -> None:
    # XTP-9
    async with pair() as (origin, relay):
        client = await relay.raw()
        bad = "xdstp://auth/envoy.config.listener.v3.Listener/foo/*"
        await client.want(xp.CLUSTER, bad, f"{BASE}/%zz", "xdstp://nobody/envoy.config.cluster.v3.Cluster/a")
        gone = [name for response in await client.rest() for name in response.removed_resources]
        assert sorted(gone) == sorted([bad, f"{BASE}/%zz", "xdstp://nobody/envoy.config.cluster.v3.Cluster/a"])
        assert origin.asked(xp.CLUSTER) == []


@timeless
async def test_a_collection_of_an_unknown_authority_is_empty() -> None:
    # XTP-5, XTP-9
    async with pair() as (_, relay):
        client = await relay.raw()
        await client.want(xp.CLUSTER, FOO.replace("auth", "nobody"))
        assert await heard(client) == ({}, [FOO.replace("auth", "nobody")])


@pytest.mark.parametrize("down", [True, False])
@timeless
async def test_an_error_of_a_collection_names_the_collection(down: bool) -> None:
    # ERR-6, PRX-22, PRX-11: the server refuses globs, as in SotW it does, or it can't be reached
    async with pair(delta=False) as (origin, relay):
        origin.wire.down = down
        client = await relay.raw()
        await client.want(xp.CLUSTER, FOO, params={"env": "prod"})
        await asyncio.sleep(60)
        (response,) = await client.rest()
        assert (len(response.resources), list(response.removed_resources)) == (0, [])
        (error,) = response.resource_errors
        assert error.resource_name.name == FOO
        code, text = (14, "refused") if down else (3, "a glob collection can only be asked for in delta")
        assert error.error_detail.code == code
        assert text in error.error_detail.message


@timeless
async def test_an_error_of_a_wildcard_is_not_told_as_an_error_of_a_resource() -> None:
    # ERR-6: there is no name for it
    async with pair() as (origin, relay):
        origin.wire.down = True
        client = await relay.raw()
        await client.want(xp.CLUSTER, "*", params={"env": "prod"})
        await asyncio.sleep(60)
        assert await client.rest() == []
