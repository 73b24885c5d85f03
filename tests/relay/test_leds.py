"""LEDS through a relay: what the relay announces, and lists of endpoints that pass it (CLI-25, gRFC A95)."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import accept, bootstrap, both, follow, quiet, timeless
from tests.client.test_leds import LEFT, collection, endpoint_at
from tests.client.wrapping import wrap
from tests.relay.rig import station
from xdsprism.testing import ScriptedPeer

FEATURE = "xds.endpoint.supports_lb_endpoint_collection"


# CLI-25
@pytest.mark.parametrize("announced", [False, True])
@timeless
async def test_a_relay_announces_lists_of_endpoints_only_if_its_bootstrap_does(announced: bool) -> None:
    """It can't know what the clients behind it are able to do."""
    peer = ScriptedPeer()
    node = {"id": "relay", "client_features": [FEATURE] if announced else []}
    async with station(peer.connect, bootstrap(node=node)) as relay, relay.client() as client:
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert (FEATURE in request.node.client_features) is announced
        assert "xds.config.supports-resource-ttl" in request.node.client_features


# CLI-25, XTP-10
@both
@timeless
async def test_a_list_of_endpoints_passes_a_relay_as_it_is(delta: bool) -> None:
    peer = ScriptedPeer()
    source = bootstrap(authorities={"x": {}})
    async with station(peer.connect, source, delta=delta) as relay, relay.client() as client:
        client.bootstrap = xp.Bootstrap.load(source)
        watcher = follow(client, xp.LB_ENDPOINT_COLLECTION, LEFT)
        stream, _ = await accept(peer)
        made = collection(*map(endpoint_at, (1, 2, 3)))
        stream.respond(xp.LB_ENDPOINT_COLLECTION, wrap(made, name=LEFT), version="1", nonce="n1")
        assert (await watcher.next()).resource == made
        await quiet()
