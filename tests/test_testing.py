"""The client in memory that programs on xdsprism may use in their own tests."""

from __future__ import annotations

import asyncio

import pytest
from envoy.config.cluster.v3 import cluster_pb2

import xdsprism as xp
from xdsprism.server.hub import Hub
from xdsprism.testing import HubTransport, MemoryClient, run_timeless


@pytest.fixture
def store() -> xp.Store:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(cluster_pb2.Cluster(name="a", alt_stat_name="prod"), when="env=prod")
        tx.put(cluster_pb2.Cluster(name="a", alt_stat_name="rest"), when="env!=prod")
        tx.put(cluster_pb2.Cluster(name="b"))
    return store


def stat(client: MemoryClient, name: str) -> str:
    cluster = cluster_pb2.Cluster()
    client.view(xp.CLUSTER)[name].Unpack(cluster)
    return cluster.alt_stat_name


def test_it_gets_what_its_metadata_says_and_follows_changes(store: xp.Store) -> None:
    client = MemoryClient(store, metadata={"env": "prod"})
    client.subscribe(xp.CLUSTER)
    client.poll()
    assert (sorted(client.view(xp.CLUSTER)), stat(client, "a")) == (["a", "b"], "prod")
    with store.transaction() as tx:
        tx.put(cluster_pb2.Cluster(name="a", alt_stat_name="changed"), when="env=prod")
        tx.delete(xp.CLUSTER, "b")
    client.poll()
    assert (sorted(client.view(xp.CLUSTER)), stat(client, "a")) == (["a"], "changed")
    client.close()


def test_params_make_a_locator_and_win_over_the_metadata(store: xp.Store) -> None:
    client = MemoryClient(store, metadata={"env": "prod"})
    client.subscribe(xp.CLUSTER, "a", params={"env": "test"})
    (response,) = client.poll()
    assert response.resources[0].resource_name.name == "a"
    assert stat(client, "a") == "rest"


def test_an_unsubscribed_name_gets_no_updates(store: xp.Store) -> None:
    client = MemoryClient(store)
    client.subscribe(xp.CLUSTER, "a")
    client.poll()
    client.unsubscribe(xp.CLUSTER, "a")
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a")
    assert client.poll() == []


def test_a_rejected_resource_is_resent_alone_and_then_parked(store: xp.Store) -> None:
    client = MemoryClient(store)
    client.subscribe(xp.CLUSTER)
    heard = client.poll(reject="no")
    assert [sorted(resource.name for resource in response.resources) for response in heard] == [
        ["a", "b"],
        ["a"],
        ["b"],
    ]
    assert client.view(xp.CLUSTER) == {}
    assert client.poll() == []


SERVER = {"server_uri": "one:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
BOOTSTRAP = {"xds_servers": [SERVER], "node": {"id": "x", "metadata": {"env": "prod"}}}


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
def test_a_client_follows_a_hub_in_the_same_process_through_an_outage(store: xp.Store, delta: bool) -> None:
    async def talk() -> list[str]:
        loop = asyncio.get_running_loop()
        way = HubTransport(Hub(store, xp.Settings(), loop.time, loop.call_soon))
        seen = []
        async with xp.Client(BOOTSTRAP, delta=delta, connect=way.connect) as client:
            async with client.watch(xp.CLUSTER, "a") as updates:
                async for update in updates:
                    seen.append(update.resource.alt_stat_name if update.ambient_error is None else "down")
                    if seen == ["prod"]:
                        way.go_down()
                    elif seen == ["prod", "down"]:
                        with store.transaction() as tx:
                            tx.put(cluster_pb2.Cluster(name="a", alt_stat_name="changed"), when="env=prod")
                        way.come_up()
                    else:
                        break
            assert way.streams == 1
            assert way.opened >= 3  # the first, one that was refused, the last
        assert way.streams == 0
        return seen

    assert run_timeless(talk()) == ["prod", "down", "changed"]


def test_a_stream_that_the_hub_refuses_ends_with_its_reason(store: xp.Store) -> None:
    async def talk() -> list[str]:
        loop = asyncio.get_running_loop()
        way = HubTransport(Hub(store, xp.Settings(), loop.time, loop.call_soon))
        statuses = []
        way.refuse("PERMISSION_DENIED", "not you")
        for message in (b"", b"", b"\xff"):
            try:
                path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
                stream = await way.open(path)
                await stream.send(message)
                await stream.receive()
            except xp.XdsError as error:
                statuses.append(str(error).partition(":")[0])
        return statuses

    assert run_timeless(talk()) == ["PERMISSION_DENIED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]
