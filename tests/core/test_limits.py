"""What a client may ask for at most, and reading its node once only (C1, DYN-46)."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.core.modes import both, connect, wanting
from tests.core.support import Bench
from xdsprism.core.codec import Decoder
from xdsprism.core.events import DeltaRequest, Node, Request, SotwRequest
from xdsprism.core.settings import Limits, Settings
from xdsprism.core.types import CLUSTER, Params
from xdsprism.errors import PeerError

# -- limits


def limited(**limits: int) -> Bench:
    return Bench(Settings(limits=Limits(**limits)))


@both
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({str(number): "" for number in range(65)}, "65 parameters; at most 64"),
        ({"k" * 257: ""}, "a key of 257 bytes; at most 256"),
        ({"é" * 129: ""}, "a key of 258 bytes"),
        ({"k": "v" * 1025}, "a value of 1025 bytes; at most 1024"),
        ({"k": "é" * 513}, "a value of 1026 bytes"),
    ],
)
def test_params_past_the_limits_end_the_stream_and_no_other(mode: str, params: dict[str, str], text: str):
    # DYN-46
    bench = Bench()
    bench.put("cds a=1")
    bystander, peer = connect(bench, mode), connect(bench, mode)
    bystander.ask("cds +a{env=prod}")
    with pytest.raises(PeerError, match=text) as caught:
        peer.receive(CLUSTER, wanting(mode, ("fine", None), ("a", Params(params))))
    assert caught.value.status == "INVALID_ARGUMENT"
    assert "'a'" in caught.value.message
    peer.close()
    assert bystander.hears() == ["cds a[]=1"]


@both
def test_params_at_the_limits_are_served(mode: str):
    # DYN-46
    bench = Bench()
    bench.put("cds a=1")
    peer = connect(bench, mode)
    params = {f"{number:0256}": "v" * 1024 for number in range(64)}
    peer.receive(CLUSTER, wanting(mode, ("a", Params(params))))
    assert peer.hears() == ["cds a[]=1"]


@both
@pytest.mark.parametrize("form", ["", "{}"])
def test_more_subscriptions_than_the_limit_end_the_stream_whatever_their_types(mode: str, form: str):
    # DYN-46
    bench = limited(locators=3) if form else limited(subscriptions=3)
    peer = connect(bench, mode)
    peer.ask(f"cds +a{form} +b{form}")
    peer.ask(f"rds +a{form}")
    with pytest.raises(PeerError, match=r"more than .*3.* on one stream") as caught:
        peer.ask(f"lds +a{form}")
    assert caught.value.status == "INVALID_ARGUMENT"


@both
def test_subscriptions_at_the_limit_may_be_repeated_and_replaced(mode: str):
    # DYN-46
    bench = limited(locators=2, subscriptions=3)
    bench.put("cds a=1 b=1 c=1")
    peer = connect(bench, mode)
    peer.ask("cds +a{} +b{} +c")
    peer.ask("cds +a{} +b{} +c")
    assert peer.hears() == ["cds a[]=1 b[]=1 c=1"]
    peer.ask("cds -a{} -c +c{} +a" if mode == "delta" else "cds a b{} c{}")
    said = ["cds a=1 c[]=1"] if mode == "delta" else ["cds a=1 b[]=1 c[]=1"]
    assert peer.hears() == said
    with pytest.raises(PeerError, match="on one stream"):
        peer.ask("cds +a +b{} +c{} +d")


@both
def test_a_limit_of_names_that_is_passed_says_nothing_to_others(mode: str):
    # DYN-46, OPS-10
    bench = limited(subscriptions=2)
    bench.put("cds a=1")
    bystander, peer = connect(bench, mode), connect(bench, mode)
    bystander.ask("cds +a")
    with pytest.raises(PeerError):
        peer.ask("cds +a +b +c")
    peer.close()
    assert bench.interest.subscribers(CLUSTER, "a") == 1
    assert bystander.hears() == ["cds a=1"]


@both
def test_a_stream_with_too_many_types_ends(mode: str):
    # OPS-3
    peer = connect(limited(types=2), mode)
    peer.ask("cds +a")
    peer.ask("acme.A +a")
    peer.ask("cds +a")
    with pytest.raises(PeerError, match="more than 2 types") as caught:
        peer.ask("acme.B +a")
    assert caught.value.status == "RESOURCE_EXHAUSTED"


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
def test_what_is_no_request_ends_the_stream(mode: str):
    # OPS-10
    with pytest.raises(PeerError) as caught:
        Decoder(delta=mode == "delta").decode(b"\xff\xff\xff")
    assert caught.value.status == "INVALID_ARGUMENT"


# -- what is too much is refused before anything is made of it


@both
def test_more_names_in_one_request_than_a_stream_may_have_are_refused_as_it_is_read(mode: str):
    # DYN-46
    names = [""] * 11
    limits = Limits(subscriptions=10)
    if mode == "delta":
        message = pb.DeltaDiscoveryRequest(resource_names_subscribe=names)
        versions = pb.DeltaDiscoveryRequest(initial_resource_versions={str(n): "1" for n in range(11)})
        with pytest.raises(PeerError, match="11 names in one request; at most 10"):
            Decoder(delta=True, limits=limits).decode(versions.SerializeToString())
    else:
        message = pb.DiscoveryRequest(resource_names=names)
    with pytest.raises(PeerError, match="11 names in one request; at most 10"):
        Decoder(delta=mode == "delta", limits=limits).decode(message.SerializeToString())


@both
def test_names_and_type_urls_have_a_length(mode: str):
    # DYN-46
    peer = Bench().delta() if mode == "delta" else Bench().sotw()
    with pytest.raises(PeerError, match="a name of 5000 characters; at most 4096"):
        peer.ask(f"cds {'+' if mode == 'delta' else ''}{'x' * 5000}")
    request = pb.DeltaDiscoveryRequest if mode == "delta" else pb.DiscoveryRequest
    with pytest.raises(PeerError, match="a type_url of 5000 characters"):
        Decoder(delta=mode == "delta").decode(request(type_url="x" * 5000).SerializeToString())


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
