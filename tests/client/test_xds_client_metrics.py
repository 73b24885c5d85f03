"""gRFC A78, A88: the metrics of the client library, with exact values."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import xdsprism as xp
from tests.client.rig import (
    accept,
    bootstrap,
    cluster,
    exchange,
    follow,
    quiet,
    server,
    talk,
    talk_to_several,
    timeless,
)
from xdsprism.core.watch.entry import State
from xdsprism.observe import xds_client_metrics

TYPE = "envoy.config.cluster.v3.Cluster"
SHOP = "xds:///shop"


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(
        f"grpc_xds_client_{name}", {"grpc_target": SHOP} | {f"grpc_xds_{key}": text for key, text in labels.items()}
    )


def resources(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """The number of resources by authority and state."""
    (family,) = [each for each in registry.collect() if each.name == "grpc_xds_client_resources"]
    labels = "grpc_xds_authority", "grpc_xds_cache_state"
    return {(each.labels[labels[0]], each.labels[labels[1]]): each.value for each in family.samples}


@timeless
async def test_resources_are_counted_as_they_come():
    registry = CollectorRegistry()
    async with talk(metrics=registry, target=SHOP) as (client, peer):
        assert value(registry, "connected", server="one:1") is None  # nothing was asked of it
        watching = follow(client, xp.CLUSTER, "a", "b", "c")
        stream, _ = await accept(peer)
        assert value(registry, "connected", server="one:1") == 1
        assert resources(registry) == {("#old", "requested"): 3}
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        assert value(registry, "resource_updates_valid_total", server="one:1", resource_type=TYPE) == 2
        assert value(registry, "resource_updates_invalid_total", server="one:1", resource_type=TYPE) == 0
        bad = cluster("a")
        bad.connect_timeout.seconds = -1
        await exchange(stream, xp.CLUSTER, bad, cluster("b"), version="2", nonce="n2")
        assert value(registry, "resource_updates_valid_total", server="one:1", resource_type=TYPE) == 3
        assert value(registry, "resource_updates_invalid_total", server="one:1", resource_type=TYPE) == 1
        await quiet(16)  # the server says nothing of c
        assert resources(registry) == {
            ("#old", "nacked_but_cached"): 1,
            ("#old", "acked"): 1,
            ("#old", "does_not_exist"): 1,
        }
        await watching.close()
        assert resources(registry) == {}
    assert value(registry, "connected", server="one:1") is None


@timeless
async def test_a_failure_is_counted_once_until_the_server_works_again():
    registry = CollectorRegistry()
    async with talk(metrics=registry, target=SHOP) as (client, peer):
        follow(client, xp.CLUSTER, "a")

        def seen() -> tuple[Any, Any]:
            server = {"server": "one:1"}
            return value(registry, "connected", **server), value(registry, "server_failure_total", **server)

        stream, _ = await accept(peer)
        assert seen() == (1, 0)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        stream.end("UNAVAILABLE", "gone")  # it has answered: no failure
        stream, _ = await accept(peer)
        assert seen() == (1, 0)
        for _ in range(2):
            stream.end("UNAVAILABLE", "gone")
            stream, _ = await accept(peer)
            assert seen() == (0, 1)  # a stream is open again, and has had no response yet
        await exchange(stream, xp.CLUSTER, cluster("a"))
        assert seen() == (1, 1)


@timeless
async def test_authorities_have_their_names():
    registry = CollectorRegistry()
    name = "xdstp://other/envoy.config.cluster.v3.Cluster/a"
    source = bootstrap(server("one:1"), authorities={"other": {"xds_servers": [server("two:2")]}})
    async with talk_to_several(source, metrics=registry, target=SHOP) as (client, peers):
        follow(client, xp.CLUSTER, "a", name)
        await accept(peers["one:1"])
        stream, _ = await accept(peers["two:2"])
        await exchange(stream, xp.CLUSTER, cluster(name))
        assert resources(registry) == {("#old", "requested"): 1, ("other", "acked"): 1}
        assert value(registry, "resource_updates_valid_total", server="two:2", resource_type=TYPE) == 1


@timeless
async def test_clients_share_a_registry_and_only_those_that_are_open_are_shown():
    registry = CollectorRegistry()
    async with talk(metrics=registry, target=SHOP) as (client, peer):
        async with talk(metrics=registry, target="other") as (another, second):
            follow(client, xp.CLUSTER, "a")
            follow(another, xp.CLUSTER, "a")
            await accept(peer)
            await accept(second)
            await quiet()
            text = generate_latest(registry).decode()
            assert f'grpc_xds_client_connected{{grpc_target="{SHOP}",grpc_xds_server="one:1"}} 1.0' in text
            assert 'grpc_xds_client_connected{grpc_target="other",grpc_xds_server="one:1"} 1.0' in text
        assert 'grpc_target="other"' not in generate_latest(registry).decode()


def test_each_state_has_a_word_of_a78_or_a88():
    words = dict(xds_client_metrics.STATES)
    assert set(words) == set(State)
    assert {word for pair in words.values() for word in pair} == {
        "requested",
        "does_not_exist",
        "does_not_exist_but_cached",
        "acked",
        "nacked",
        "nacked_but_cached",
        "received_error",
        "received_error_but_cached",
        "timeout",
    }


def test_what_is_no_registry_is_refused_at_once():
    wrong: Any = "registry"
    with pytest.raises(TypeError, match=r"prometheus_client\.registry\.CollectorRegistry object expected; got str"):
        xp.Client(bootstrap(), metrics=wrong)
