"""Constraints of a kind that is not known: a newer server restricts a variant in a way that this relay can't read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import both, cluster, follow, quiet, timeless
from tests.client.wrapping import error, is_nack, reply, resource_name, wrap
from tests.relay.rig import marks, station
from xdsprism.core.codec.constraints import constraint_from_proto
from xdsprism.core.model.constraints import TRUE
from xdsprism.errors import UsageError
from xdsprism.testing import ScriptedPeer

US = {"region": "us"}
NEWER = b"\x9a\x06\x04\x0a\x02eu"  # field 99, a message: no release has it yet


def _newer(proto: Any) -> None:
    proto.MergeFromString(NEWER)


def _in_list(proto: Any) -> None:
    proto.and_constraints.constraints.add().constraint.key = "region"
    proto.and_constraints.constraints[0].constraint.exists.SetInParent()
    proto.and_constraints.MergeFromString(NEWER)


def _in_single(proto: Any) -> None:
    proto.constraint.key = "region"
    proto.constraint.value = "us"
    proto.constraint.MergeFromString(NEWER)


def _in_exists(proto: Any) -> None:
    proto.constraint.key = "region"
    proto.constraint.exists.MergeFromString(NEWER)


def _nested(proto: Any) -> None:
    proto.not_constraints.or_constraints.constraints.add().MergeFromString(NEWER)


PLACES: dict[str, Callable[[Any], None]] = {
    "alone": _newer,
    "in a list": _in_list,
    "beside a value": _in_single,
    "inside exists": _in_exists,
    "nested": _nested,
}
places = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


def newer(name: str, place: Callable[[Any], None] = _newer) -> pb.ResourceName:
    made = pb.ResourceName(name=name)
    place(made.dynamic_parameter_constraints)
    return made


def restricted(name: str, mark: str, place: Callable[[Any], None] = _newer) -> pb.Resource:
    """A variant that is for some only, in words that this release does not have."""
    made = wrap(cluster(name, mark), when="true")
    made.resource_name.CopyFrom(newer(name, place))
    return made


@places
def test_a_kind_of_constraint_that_is_not_known_is_an_error_and_not_true(place: Callable[[Any], None]) -> None:
    # PRX-37
    with pytest.raises(UsageError, match=r"does not know \(field 99\): update xdsprism"):
        constraint_from_proto(newer("a", place).dynamic_parameter_constraints)
    with pytest.raises(UsageError, match="field 99"):
        xp.Expression.from_proto(newer("a", place).dynamic_parameter_constraints)


def test_constraints_that_say_nothing_at_all_are_true() -> None:
    # PRX-37, DYN-9
    assert constraint_from_proto(pb.DynamicParameterConstraints()) == TRUE


@places
@both
@timeless
async def test_a_variant_with_such_constraints_reaches_nobody_and_others_of_the_response_are_used(
    delta: bool, place: Callable[[Any], None]
) -> None:
    # PRX-37: an EU-only variant does not reach a client in the US
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=US)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        good = wrap(cluster("b", "1"), when="region=us")
        nack = await reply(stream, xp.CLUSTER, restricted("a", "eu", place), good)
        assert is_nack(nack, "n1")
        assert "a: its constraints can't be read" in nack.error_detail.message
        assert "field 99" in nack.error_detail.message
        assert await marks(watched) == [("b", "1")]


@both
@timeless
async def test_the_variant_that_a_client_matches_is_used_beside_one_with_such_constraints(delta: bool) -> None:
    # PRX-37
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", params=US)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        nack = await reply(stream, xp.CLUSTER, wrap(cluster("a", "us"), when="region=us"), restricted("a", "eu"))
        assert is_nack(nack, "n1")
        assert await marks(watched) == [("a", "us")]


@timeless
async def test_a_removal_with_such_constraints_takes_nothing_from_anybody() -> None:
    # PRX-37
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=US)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        await reply(stream, xp.CLUSTER, *(wrap(cluster(name, "1"), when="region=us") for name in ("a", "b")))
        assert await marks(watched) == [("a", "1"), ("b", "1")]
        gone = [newer("a"), resource_name("b", "region=us")]
        nack = await reply(stream, xp.CLUSTER, nonce="n2", withdrawn=gone)
        assert is_nack(nack, "n2")
        assert "a: its removal can't be read" in nack.error_detail.message
        assert await marks(watched) == [("b", "NOT_FOUND")]
        late = follow(client, xp.CLUSTER, "a", params=US)
        assert await marks(late) == [("a", "1")]


@timeless
async def test_a_replacement_of_a_variant_with_such_constraints_is_used() -> None:
    # PRX-37: the removal can't be read; what comes in the same response, and is for all, can
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", params=US)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        nack = await reply(stream, xp.CLUSTER, wrap(cluster("a", "2"), when="true"), withdrawn=[newer("a")])
        assert is_nack(nack, "n1")
        assert await marks(watched) == [("a", "2")]


@both
@timeless
async def test_an_error_with_such_constraints_denies_nothing_to_anybody(delta: bool) -> None:
    # PRX-37, ERR-10
    peer = ScriptedPeer()
    asked = station(peer.connect, delta=delta, upstream_form="locators")
    async with asked as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=US)
        stream = await peer.accept()
        await quiet()
        stream.pending()
        variants = [wrap(cluster(name, "1"), when="region=us") for name in ("a", "b")]
        await reply(stream, xp.CLUSTER, *variants)
        assert await marks(watched) == [("a", "1"), ("b", "1")]
        denied = error("a", 7, "EU only")
        denied.resource_name.CopyFrom(newer("a"))
        others = [] if delta else [variants[1]]
        nack = await reply(stream, xp.CLUSTER, *others, nonce="n2", errors=[denied])
        assert is_nack(nack, "n2")
        assert "a: the constraints of its error can't be read" in nack.error_detail.message
        assert await marks(watched) == []
        late = follow(client, xp.CLUSTER, "a", params=US)
        assert await marks(late) == [("a", "1")]
