"""A server that denies something: one resource to whoever asks for it, or everything to the relay itself."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import both, cluster, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, marks, station
from xdsprism.testing import PeerStream, ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)
DENIED, UNAVAILABLE = 7, 14
PROD = {"env": "prod"}


def deny(stream: PeerStream, name: str, when: str = "true", nonce: str = "n9") -> None:
    """TP3."""
    response: Any = pb.DeltaDiscoveryResponse() if stream.is_delta else pb.DiscoveryResponse(version_info=nonce)
    response.type_url, response.nonce = xp.CLUSTER, nonce
    error = response.resource_errors.add()
    error.resource_name.name = name
    error.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    error.error_detail.code, error.error_detail.message = DENIED, "not for you"
    stream.send(response)


def located(name: str, mark: str) -> Any:
    made = pb.Resource(version=mark)
    made.resource_name.name = name
    made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse("env=prod").to_proto())
    made.resource.Pack(cluster(name, mark))
    return made


@modes
@timeless
async def test_a_denial_is_passed_on_in_the_servers_words(up: bool, down: bool) -> None:
    # PRX-22, ERR-10
    peer = ScriptedPeer()
    asked = station(peer.connect, delta=up, upstream_form="locators")
    async with asked as relay, relay.client(delta=down) as client:
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        deny(stream, "a", "env=prod")
        await quiet()
        (update,) = watched.seen()
        assert str(update.error) == "PERMISSION_DENIED: not for you"
        late = follow(client, xp.CLUSTER, "a", params={**PROD, "x": "1"})  # for whom it holds is known
        await quiet()
        assert [str(update.error) for update in late.seen()] == ["PERMISSION_DENIED: not for you"]
        assert [request.response_nonce for request in stream.pending()] == ["n9"]


@modes
@timeless
async def test_a_client_without_resource_errors_is_told_of_a_denial_as_an_absence(up: bool, down: bool) -> None:
    # PRX-22: Envoy waits for an answer to each name
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay:
        client = (await relay.raw(delta=down)).of(**PROD)
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await quiet()
        deny(stream, "a", "env=prod")
        (response,) = await client.rest()
        assert not response.resources
        assert not response.resource_errors
        if down:
            assert list(response.removed_resources) == ["a"]
        client.close()


@modes
@pytest.mark.parametrize("drops", [True, False], ids=["drops", "keeps"])
@timeless
async def test_a_resource_that_is_denied_later_is_dropped_by_clients_that_fail_on_data_errors(
    up: bool, down: bool, drops: bool
) -> None:
    # PRX-22, ERR-10
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=up) as relay,
        relay.client(delta=down, fail_on_data_errors=drops) as client,
    ):
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.CLUSTER, located("a", "1"))
        assert await marks(watched) == [("a", "1")]
        deny(stream, "a", "env=prod")
        assert await marks(watched) == [("a", "PERMISSION_DENIED" if drops else "(PERMISSION_DENIED)")]
        stream.respond(xp.CLUSTER, located("a", "2"), version="2", nonce="n10")
        assert await marks(watched) == [("a", "2")]


@both
@timeless
async def test_a_refusal_of_the_relay_itself_is_not_passed_on_as_a_denial_of_resources(delta: bool) -> None:
    # PRX-11, ERR-10: a client that has it would drop it
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        for _ in range(100):
            peer.refuse("PERMISSION_DENIED", "who are you?")
        client = await relay.raw(delta=delta)
        claim = {"initial_resource_versions": {"a": "1"}} if delta else {"version_info": "1"}
        await client.want(xp.CLUSTER, "a", params=PROD, **claim)
        await quiet(60.0)
        (response,) = await client.rest()
        assert [(error.resource_name.name, error.error_detail.code) for error in response.resource_errors] == [
            ("a", UNAVAILABLE)
        ]
        assert "who are you?" in response.resource_errors[0].error_detail.message
        assert not response.resources
        if delta:
            assert not [*response.removed_resources, *response.removed_resource_names]
        client.close()
