"""NACKs in a relay: a client's NACK ends at the relay, and the relay itself NACKs only what it can't pass on."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.rpc.status_pb2 import Status

import xdsprism as xp
from tests.client.rig import both, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, marks, pair, station
from tests.support.facts import each_of
from xdsprism.core.model.facts import Acked, Nacked
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD = {"env": "prod"}


def heard(origin: Origin, kind: type) -> list[Any]:
    found: list[Any] = []
    origin.hub.readers.append(lambda facts: found.extend(fact for fact in each_of(facts) if isinstance(fact, kind)))
    return found


@modes
@timeless
async def test_a_resource_that_a_client_nacks_is_parked_and_the_server_gets_an_ack(up: bool, down: bool) -> None:
    # PRX-18
    behind = pair(delta=up, upstream_form="locators")
    async with behind as (origin, relay), relay.client(delta=down) as content:
        origin.put(endpoint("a", "1"))
        nacks, acks = heard(origin, Nacked), heard(origin, Acked)
        refused = relay.facts(Nacked)
        picky = await relay.raw(delta=down)
        await picky.want(xp.ENDPOINT, "a", params=PROD)
        (response,) = await picky.rest()
        names = {} if down else {"resource_locators": [pb.ResourceLocator(name="a", dynamic_parameters=PROD)]}
        await picky.ack(response, error_detail=Status(code=3, message="I do not like it"), **names)
        assert await picky.rest() == []
        assert [(fact.type_url, fact.error.message) for fact in refused] == [(xp.ENDPOINT, "I do not like it")]
        assert any(session.progress.nack is not None for session in relay.sessions())
        assert await marks(follow(content, xp.ENDPOINT, "a", params=PROD)) == [("a", "1")]
        origin.put(endpoint("a", "2"))
        (response,) = await picky.rest()  # something newer is tried again
        assert len(response.resources) == 1
        assert nacks == []
        assert len(acks) == 2
        picky.close()


@both
@timeless
async def test_a_resource_that_is_twice_in_a_response_is_refused_and_the_rest_is_passed_on(delta: bool) -> None:
    # PRX-19, NAK-19
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=PROD)
        await quiet()
        stream = await peer.accept()
        await quiet()
        stream.pending()
        stream.respond(xp.CLUSTER, cluster("a", "1"), cluster("a", "2"), cluster("b", "1"))
        assert ("b", "1") in await marks(watched)
        (answer,) = stream.pending()
        assert "a: it is in the response twice" in answer.error_detail.message


@both
@timeless
async def test_a_wrapper_that_can_not_be_read_is_refused(delta: bool) -> None:
    # PRX-19
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        follow(client, xp.CLUSTER, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        await quiet()
        stream.pending()
        both_names = pb.Resource(name="a", version="1")
        both_names.resource_name.name = "a"
        both_names.resource.Pack(cluster("a", "1"))
        stream.respond(xp.CLUSTER, both_names)
        await quiet()
        (answer,) = stream.pending()
        assert "both name and resource_name" in answer.error_detail.message


@both
@timeless
async def test_contents_that_a_client_would_refuse_are_not_the_relays_business(delta: bool) -> None:
    # PRX-19
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        stream.pending()
        broken = pb.Resource(name="a", version="1")
        broken.resource.type_url, broken.resource.value = xp.CLUSTER, b"\xff\xff\xff"
        stream.respond(xp.CLUSTER, broken)
        (response,) = await client.rest()
        assert [each.resource.value for each in response.resources] == [b"\xff\xff\xff"]
        assert not any(each.HasField("error_detail") for each in stream.pending())
        client.close()
