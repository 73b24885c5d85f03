"""The client in memory that programs on xdsprism may use in their own tests."""

from __future__ import annotations

import pytest
from envoy.config.cluster.v3 import cluster_pb2

import xdsprism as xp
from xdsprism.testing import MemoryClient


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


def test_a_name_that_was_unsubscribed_is_heard_of_no_more(store: xp.Store) -> None:
    client = MemoryClient(store)
    client.subscribe(xp.CLUSTER, "a")
    client.poll()
    client.unsubscribe(xp.CLUSTER, "a")
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a")
    assert client.poll() == []


def test_what_it_rejects_is_sent_again_alone_and_then_parked(store: xp.Store) -> None:
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
