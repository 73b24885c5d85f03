"""The same contents once more, under another version or with another time to live."""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import cluster, quiet, timeless
from tests.relay.rig import station
from xdsprism.core.model.types import Params
from xdsprism.testing import ScriptedPeer


def wrapped(name: str, mark: str, version: str, ttl: int | None = None) -> pb.Resource:
    made = pb.Resource(name=name, version=version)
    made.resource.Pack(cluster(name, mark))
    if ttl is not None:
        made.ttl.seconds = ttl
    return made


@timeless
async def test_a_new_version_of_the_same_contents_is_passed_on_and_changes_nothing_that_was_published() -> None:
    # PRX-22
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.CLUSTER, wrapped("a", "1", "v1"))
        (response,) = await client.rest()
        assert [each.version for each in response.resources] == ["v1"]
        await client.ack(response)
        published = relay.relay.store.table(xp.CLUSTER).select("a", Params())
        stream.respond(xp.CLUSTER, wrapped("a", "1", "v2"), nonce="n2")
        (response,) = await client.rest()
        assert [each.version for each in response.resources] == ["v2"]
        assert published is not None
        assert published.version == "v1"
        late = await relay.raw()
        await late.want(xp.CLUSTER, "a")
        (response,) = await late.rest()
        assert [each.version for each in response.resources] == ["v2"]
        for each in (client, late):
            each.close()


@timeless
async def test_a_new_time_to_live_of_the_same_contents_is_passed_on() -> None:
    # PRX-22, TTL-5
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.CLUSTER, wrapped("a", "1", "v1", ttl=100))
        (response,) = await client.rest()
        await client.ack(response)
        stream.respond(xp.CLUSTER, wrapped("a", "1", "v1", ttl=3000), nonce="n2")
        (response, *_) = await client.rest()
        assert [each.ttl.seconds for each in response.resources] == [3000]
        await client.ack(response)
        await quiet(1000.0)
        late = await relay.raw()
        await late.want(xp.CLUSTER, "a")
        (response,) = await late.rest()
        assert [each.ttl.seconds for each in response.resources] == [3000]
        for each in (client, late):
            each.close()
