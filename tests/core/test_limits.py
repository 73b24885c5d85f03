"""The limits on subscriptions, and reading a node once only (C1, DYN-46)."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.core.modes import both
from xdsprism.core.codec.server_requests import Decoder
from xdsprism.core.model.events import DeltaRequest, Node, Request, SotwRequest
from xdsprism.core.model.settings import Limits
from xdsprism.core.model.types import CLUSTER, Params
from xdsprism.errors import PeerError

# -- reading the node once


def message(mode: str, node: base_pb2.Node | None = None, **fields: object) -> bytes:
    kind = pb.DeltaDiscoveryRequest if mode == "delta" else pb.DiscoveryRequest
    return bytes(kind(node=node, type_url=CLUSTER, **fields).SerializeToString())


def node_with(name: str, **metadata: str) -> base_pb2.Node:
    node = base_pb2.Node(id=name, cluster="c", user_agent_name="envoy")
    for key, value in metadata.items():
        node.metadata[key] = value
    return node


@both
def test_the_node_of_the_first_message_is_read(mode: str):
    # SRV-6
    node = node_with("n", env="prod")
    node.metadata["number"] = 1
    request = Decoder(delta=mode == "delta").decode(message(mode, node))
    assert request.node == Node("n", "c", "envoy", Params({"env": "prod"}))
    assert not request.other_node


@both
def test_a_node_that_is_repeated_is_not_read_again(mode: str):
    # SRV-25, S6: what can't be read at all shows that nobody tries
    decoder = Decoder(delta=mode == "delta")
    decoder.decode(message(mode, node_with("n")))
    good = node_with("n").SerializeToString()
    broken = good + b"\x0a\xff\xff\x03"  # a field that claims to be longer than what is there
    number = 1 if mode == "delta" else 2
    later = bytes([number << 3 | 2, len(broken)]) + broken + message(mode, response_nonce="7")
    request = decoder.decode(later)
    assert request.node is None
    assert not request.other_node
    assert (request.type_url, request.body.nonce) == (CLUSTER, "7")
    with pytest.raises(PeerError):
        Decoder(delta=mode == "delta").decode(later)


@both
def test_later_messages_are_read_in_full_apart_from_their_node(mode: str):
    # SRV-25
    decoder = Decoder(delta=mode == "delta")
    decoder.decode(message(mode, node_with("n")))
    if mode == "delta":
        fields = {"resource_names_subscribe": ["a"], "initial_resource_versions": {"a": "1"}}
        body: object = DeltaRequest((("a", None),), (), {"a": "1"}, "7")
    else:
        fields = {"resource_names": ["a"], "version_info": "v"}
        body = SotwRequest((("a", None),), "v", "7")
    for node in (None, node_with("n", env="prod")):
        request = decoder.decode(message(mode, node, response_nonce="7", **fields))
        assert request == Request(CLUSTER, body)


@both
def test_another_node_in_a_later_message_is_noticed(mode: str):
    # SRV-7, SRV-25
    decoder = Decoder(delta=mode == "delta")
    decoder.decode(message(mode, node_with("n")))
    assert decoder.decode(message(mode, node_with("other"))).other_node
    assert not decoder.decode(message(mode)).other_node
    assert not decoder.decode(message(mode, node_with("n"))).other_node


@both
def test_a_stream_that_began_without_a_node_stays_without(mode: str):
    # SRV-7
    decoder = Decoder(delta=mode == "delta")
    assert decoder.decode(message(mode)).node is None
    request = decoder.decode(message(mode, node_with("late")))
    assert request.node is None
    assert request.other_node


@both
def test_an_undecodable_request_ends_the_stream(mode: str):
    # OPS-10
    with pytest.raises(PeerError) as caught:
        Decoder(delta=mode == "delta").decode(b"\xff\xff\xff")
    assert caught.value.status == "INVALID_ARGUMENT"


# -- what is too much is not even read


@both
def test_names_beyond_the_limit_of_a_request_are_not_read(mode: str):
    # DYN-46
    names = [str(number) for number in range(11)]
    limits = Limits(request_names=10)
    kind = pb.DeltaDiscoveryRequest if mode == "delta" else pb.DiscoveryRequest
    field = "resource_names_subscribe" if mode == "delta" else "resource_names"
    request = Decoder(delta=mode == "delta", limits=limits).decode(kind(**{field: names}).SerializeToString())
    wanted = request.body.subscribe if mode == "delta" else request.body.wanted
    assert wanted == tuple((name, None) for name in names[:10])
    assert request.unread == 1


def test_versions_beyond_the_limit_of_a_request_are_not_read():
    # DYN-46
    versions = pb.DeltaDiscoveryRequest(initial_resource_versions={str(n): "1" for n in range(11)})
    request = Decoder(delta=True, limits=Limits(request_names=10)).decode(versions.SerializeToString())
    assert len(request.body.initial_versions) == 10
    assert request.unread == 1


def test_fields_in_front_of_the_node_are_not_followed_for_ever():
    # SRV-25
    class Bytes(bytes):
        looks = 0

        def __getitem__(self, place):
            Bytes.looks += 1
            return super().__getitem__(place)

    with pytest.raises(PeerError):
        Decoder(delta=False).decode(Bytes(b"\x0a\x00" * 5000 + b"\xff"))
    assert Bytes.looks < 50


def test_an_xdstp_name_has_so_many_context_parameters_at_most() -> None:
    # DYN-46, XTP-1
    limits = Limits(context_params=3)
    base = "xdstp://a/t/id?a=1&b=2&c=3"
    assert limits.refuses("t", base, None) is None
    refusal = limits.refuses("t", f"{base}&d=4", None)
    assert refusal is not None
    assert (refusal.kind, refusal.message) == (
        "context_params",
        "the name has 4 context parameters; at most 3 are accepted",
    )
    assert limits.refuses("t", "any&other&name&has&no&parameters", None) is None
