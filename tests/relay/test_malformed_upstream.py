"""Responses of which one part is malformed, at any level, or nested without measure: the other parts are passed on."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import both, cluster, follow, quiet, timeless
from tests.client.wrapping import is_nack, pack, resource_name, wrap
from tests.relay.rig import marks, station
from tests.support.malformed import corrupted, deep_constraints, deep_struct
from xdsprism.core.codec.wire import fields_of, join_field
from xdsprism.testing import PeerStream, ScriptedPeer


def rich(stream: PeerStream) -> Any:
    """A response with something in nearly every field, most of it about the resource `odd`."""
    odd = pb.Resource(name="odd", version="1", aliases=["another"])
    odd.resource.CopyFrom(pack(cluster("odd", "1")))
    odd.ttl.seconds = 60
    odd.cache_control.do_not_cache = True
    odd.metadata.filter_metadata["a"].update({"b": {"c": ["d"]}})
    if stream.is_delta:
        response = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="odd", resources=[odd])
        response.resources.add(version="1").resource_name.CopyFrom(resource_name("odd-too", "env=prod and not a=b"))
        response.removed_resources.append("gone")
        response.removed_resource_names.append(resource_name("gone-too", "env=prod"))
    else:
        response = pb.DiscoveryResponse(type_url=xp.CLUSTER, nonce="odd", version_info="1", resources=[pack(odd)])
    error = response.resource_errors.add()
    error.resource_name.CopyFrom(resource_name("wrong", "env=prod"))
    error.error_detail.message = "no"
    error.error_detail.details.add(type_url="x", value=b"x")
    response.control_plane.identifier = "somebody"
    return response


def beside(stream: PeerStream, message: bytes, version: str) -> bytes:
    """The same response with a good resource more."""
    good = wrap(cluster("good", version), when="true", version=version)
    if stream.is_delta:
        return message + pb.DeltaDiscoveryResponse(resources=[good]).SerializeToString()
    return message + pb.DiscoveryResponse(resources=[pack(good)]).SerializeToString()


HEAD = ("type_url", "nonce", "version_info", "control_plane")  # what makes it a response at all


@both
@timeless
async def test_a_malformed_field_anywhere_in_a_response_keeps_no_other_resource_from_clients(
    delta: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # NAK-18, PRX-10
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "good")
        follow(client, xp.CLUSTER, "odd")
        stream = await first(peer)
        assert await marks(watched) == [("good", "first")]
        for number, (label, message) in enumerate(corrupted(rich(stream)), 1):
            if label.startswith(HEAD):
                continue
            stream.send(beside(stream, message, str(number)))
            await quiet(5.0)
            assert await marks(watched) == [("good", str(number))], label
            assert not stream.cancelled.is_set(), label
        assert number > 40
    assert not [record for record in caplog.records if record.exc_info]


@both
@timeless
async def test_a_response_whose_own_fields_are_malformed_is_the_end_of_its_stream(delta: bool) -> None:
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "good")
        stream = await peer.accept()
        await quiet()
        cases = [message for label, message in corrupted(rich(stream)) if label.startswith(HEAD)]
        assert len(cases) > 5
        for number, message in enumerate(cases):
            stream.send(beside(stream, message, "bad"))
            await quiet()
            assert stream.cancelled.is_set()
            stream = await peer.accept()
            await quiet()
            stream.respond(xp.CLUSTER, cluster("good", str(number)), version=str(number))
            assert await marks(watched) == [("good", str(number))]


def _metadata(depth: int) -> bytes:
    return join_field(1, join_field(1, b"a") + join_field(2, deep_struct(depth)))


async def first(peer: ScriptedPeer) -> PeerStream:
    """The next stream from the relay, once the relay knows that this server takes locators."""
    stream = await peer.accept()
    await quiet()
    kind = pb.DeltaDiscoveryResponse if stream.is_delta else pb.DiscoveryResponse
    stream.send(beside(stream, kind(type_url=xp.CLUSTER, nonce="first").SerializeToString(), "first"))
    await quiet(5.0)
    stream.pending()
    return stream


DEEP = {
    "constraints": lambda depth: join_field(8, join_field(1, b"odd") + join_field(2, deep_constraints(depth))),
    "metadata": lambda depth: join_field(3, b"odd") + join_field(9, _metadata(depth)),
}


@pytest.mark.parametrize("depth", [30, 40, 60, 5_000])
@pytest.mark.parametrize("what", DEEP)
@timeless
async def test_constraints_and_metadata_that_are_nested_without_measure_are_refused_by_name(
    what: str, depth: int
) -> None:
    # DYN-8, NAK-18, PRX-37: also where protobuf refuses the whole message for them
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "good")
        follow(client, xp.CLUSTER, "odd", params={"env": "prod"})
        stream = await first(peer)
        assert await marks(watched) == [("good", "first")]
        resource = DEEP[what](depth) + pb.Resource(version="1", resource=pack(cluster("odd", "1"))).SerializeToString()
        head = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="deep").SerializeToString()
        stream.send(beside(stream, head + join_field(2, resource), "1"))
        await quiet(5.0)
        assert await marks(watched) == [("good", "1")]
        (answer,) = [each for each in stream.pending() if each.response_nonce == "deep"]
        assert is_nack(answer, "deep") is (depth > 30)
        if is_nack(answer, "deep"):
            assert "odd" in answer.error_detail.message


def test_a_deep_field_is_as_deep_as_it_says() -> None:
    """The helpers do make what the tests are about."""
    inner = deep_constraints(3)
    for _ in range(3):
        (found,) = list(fields_of(inner))
        assert found[0] == 4
        inner = inner[found[2] : found[3]]
    assert pb.DynamicParameterConstraints.FromString(inner).constraint.key == "env"
