"""Endpoints in resources of their own, by LEDS list collections (CLI-25, gRFC A95)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from envoy.config.core.v3.config_source_pb2 import ConfigSource
from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

import xdsprism as xp
from tests.client.config_parts import by_eds, listener, packed, route
from tests.client.rig import accept, bootstrap, both, follow, quiet, status, talk, timeless
from tests.client.test_dependencies import Plane, Reader
from tests.client.wrapping import wrap
from xdsprism.messages.protos import find_message

LEFT = "xdstp://x/envoy.config.endpoint.v3.LbEndpointCollection/left"
RIGHT = "xdstp://x/envoy.config.endpoint.v3.LbEndpointCollection/right"
BOOT = bootstrap(authorities={"x": {}})


def endpoint_at(port: int, **fields: Any) -> LbEndpoint:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return LbEndpoint(endpoint={"address": address}, **fields)


def collection(*endpoints: Any) -> Any:
    """An LbEndpointCollection with these inside."""
    kind = find_message("envoy.config.endpoint.v3.LbEndpointCollection")
    assert kind is not None
    made: Any = kind()
    for each in endpoints:
        resource = made.entries.add().inline_entry.resource
        resource.type_url, resource.value = packed(each).type_url, packed(each).value
    return made


def assignment(*names: str, **leds: Any) -> ClusterLoadAssignment:
    """Endpoints of the cluster `a`: a locality for each collection, and one with endpoints of its own."""
    made = ClusterLoadAssignment(cluster_name="a")
    for name in names:
        place = made.endpoints.add(locality={"region": name.rpartition("/")[2]})
        config = place.leds_cluster_locality_config
        config.leds_collection_name = name
        if "leds_config" in leds:
            config.leds_config.CopyFrom(leds["leds_config"])
        else:
            config.leds_config.self.SetInParent()
        place.lb_endpoints.append(endpoint_at(1))  # A95: ignored
    made.endpoints.add(locality={"region": "own"}, lb_endpoints=[endpoint_at(2)])
    return made


def ports(config: Any) -> dict[str, list[int]]:
    """By locality, where the endpoints of the cluster `a` are."""
    found = config.clusters["a"].endpoints.endpoints
    return {each.locality.region: [*map(_port, each.lb_endpoints)] for each in found}


def _port(endpoint: LbEndpoint) -> int:
    return endpoint.endpoint.address.socket_address.port_value


class Shop(Plane):
    """A server with a listener that leads to the cluster `a`; collections have no names but those of a wrapper."""

    def put_collections(self, **collections: Iterable[int]) -> None:
        names = {"left": LEFT, "right": RIGHT}
        for which, there in collections.items():
            self._has[xp.LB_ENDPOINT_COLLECTION][names[which]] = wrap(
                collection(*map(endpoint_at, there)), name=names[which]
            )
            self._tell(xp.LB_ENDPOINT_COLLECTION, [names[which]])


async def open_shop(peer: Any, *messages: Any) -> Shop:
    shop = Shop(await peer.accept())
    shop.put(listener(), route("a"), by_eds("a"), *messages)
    return shop


# CLI-25
@both
@timeless
async def test_a_client_gets_its_endpoints_from_collections(delta: bool) -> None:
    async with talk(BOOT, delta=delta) as (client, peer):
        reader = Reader(client.watch_config("shop"))
        shop = await open_shop(peer, assignment(LEFT, RIGHT))
        shop.put_collections(left=[10, 11, 12])
        assert await reader.is_waiting()  # for the other one
        shop.put_collections(right=[20])
        assert ports(await reader.next()) == {"left": [10, 11, 12], "right": [20], "own": [2]}
        shop.put_collections(left=[])
        config = await reader.next()
        assert ports(config) == {"left": [], "right": [20], "own": [2]}  # A95: that locality can't be reached
        assert not config.clusters["a"].collection_errors
        shop.put(assignment(RIGHT))
        assert ports(await reader.next()) == {"right": [20], "own": [2]}
        await quiet()
        assert shop.wanted[xp.LB_ENDPOINT_COLLECTION] == {RIGHT}
        await reader.close()
        shop.forget()


# CLI-25
@both
@timeless
async def test_a_collection_that_does_not_exist_leaves_the_others_in_use(delta: bool) -> None:
    async with talk(BOOT, delta=delta) as (client, peer):
        reader = Reader(client.watch_config("shop"))
        shop = await open_shop(peer, assignment(LEFT, "xdstp://stranger/T/n"))
        shop.put_collections(right=[1])
        config = await reader.next()  # after 15 seconds
        assert ports(config) == {"left": [], "n": [], "own": [2]}
        found = config.clusters["a"]
        assert {name: error.status for name, error in found.collection_errors.items()} == {
            LEFT: "NOT_FOUND",
            "xdstp://stranger/T/n": "INVALID_ARGUMENT",  # XTP-12
        }
        assert found.endpoints_error is None
        shop.put_collections(left=[10])
        assert ports(await reader.next())["left"] == [10]
        await reader.close()
        shop.forget()


# CLI-25
@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("xdstp://x/envoy.config.endpoint.v3.LbEndpoint/left/*", None, "glob"),
        ("", None, "empty"),
        (LEFT, {"ads": {}}, "expected `self`"),
    ],
)
@timeless
async def test_endpoints_whose_collection_cannot_be_followed_are_an_error_of_their_cluster(
    name: str, source: Any, words: str
) -> None:
    leds = {} if source is None else {"leds_config": ConfigSource(**source)}
    async with talk(BOOT) as (client, peer):
        reader = Reader(client.watch_config("shop"))
        shop = await open_shop(peer, assignment(name, **leds))
        found = (await reader.next()).clusters["a"]
        assert (found.cluster.name, found.endpoints) == ("a", None)
        assert found.endpoints_error.status == "INVALID_ARGUMENT"
        assert words in found.endpoints_error.message
        assert not shop.wanted[xp.LB_ENDPOINT_COLLECTION]
        await reader.close()
        shop.forget()


def _reference() -> Any:
    made = collection()
    made.entries.add().locator.id = "elsewhere"
    return made


# CLI-25
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            collection(endpoint_at(1), by_eds("c")),
            "entries[1].inline_entry.resource: expected an envoy.config.endpoint",
        ),
        (_reference(), "entries[0]: expected an inline_entry, got locator"),
        (collection(endpoint_at(1, load_balancing_weight={"value": 0})), "load_balancing_weight: must be at least 1"),
    ],
)
@both
@timeless
async def test_a_collection_of_something_else_is_refused_and_the_last_good_one_stays(
    delta: bool, bad: Any, words: str
) -> None:
    async with talk(BOOT, delta=delta) as (client, peer):
        watcher = follow(client, xp.LB_ENDPOINT_COLLECTION, LEFT)
        stream, _ = await accept(peer)
        stream.respond(xp.LB_ENDPOINT_COLLECTION, wrap(collection(endpoint_at(1)), name=LEFT), version="1", nonce="n1")
        await stream.request()
        stream.respond(xp.LB_ENDPOINT_COLLECTION, wrap(bad, name=LEFT), version="2", nonce="n2")
        nack = await stream.request()
        assert words in nack.error_detail.message
        await quiet()
        assert list(map(status, watcher.seen())) == [("resource", LEFT), ("ambient", "INVALID_ARGUMENT")]


# CLI-25
@timeless
async def test_every_entry_of_a_collection_is_read() -> None:
    # envoy#45764: the entries are a list, whatever the installed protos say
    async with talk(BOOT) as (client, peer):
        watcher = follow(client, xp.LB_ENDPOINT_COLLECTION, LEFT)
        stream, _ = await accept(peer)
        made = collection(*map(endpoint_at, (1, 2, 3)))
        stream.respond(xp.LB_ENDPOINT_COLLECTION, wrap(made, name=LEFT), version="1", nonce="n1")
        assert (await watcher.next()).resource == made
        assert len(made.entries) == 3
