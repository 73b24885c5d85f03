"""A delta request that is too large for one message: reading it in pieces has the same result (SRV-24)."""

from __future__ import annotations

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Bench, Peer
from xdsprism.core.codec.pieces import Piece, RequestPieces
from xdsprism.core.codec.server_requests import Decoder
from xdsprism.core.model.types import CLUSTER, VIRTUAL_HOST
from xdsprism.errors import PeerError

NAMES = st.lists(st.text(max_size=30), max_size=40)


def parted(message: bytes, limit: int, step: int) -> list[bytes]:
    pieces = RequestPieces(limit)
    made = [piece for at in range(0, len(message), step) for piece in pieces.feed(message[at : at + step])]
    return made + pieces.end()


# SRV-24
@given(
    NAMES, NAMES, st.dictionaries(st.text(max_size=9), st.text(max_size=9)), st.integers(150, 400), st.integers(1, 99)
)
def test_the_pieces_of_a_request_say_what_it_says(
    subscribe: list[str], unsubscribe: list[str], versions: dict[str, str], limit: int, step: int
):
    request = pb.DeltaDiscoveryRequest(
        node=NodeProto(id="envoy-1"),
        type_url=CLUSTER,
        resource_names_subscribe=subscribe,
        resource_names_unsubscribe=unsubscribe,
        initial_resource_versions=versions,
        response_nonce="n",
        resource_locators_subscribe=[pb.ResourceLocator(name="l")],
    )
    message = request.SerializeToString()
    _, *others = pieces = parted(message, limit, step)
    assert [type(piece) for piece in pieces] == [bytes, *[Piece] * len(others)]
    assert max(map(len, pieces)) <= limit + 150  # and the last field of each
    found = [pb.DeltaDiscoveryRequest.FromString(piece) for piece in pieces]
    assert {each.type_url for each in found} == {CLUSTER}
    assert [each.HasField("node") for each in found] == [True, *[False] * len(others)]
    joined = pb.DeltaDiscoveryRequest()
    for each in found:
        joined.MergeFrom(each)
    assert joined == request


# SRV-24, VHD-26
def test_a_name_that_is_too_large_for_a_piece_is_passed_over_and_the_rest_is_used():
    request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=["a", "x" * 5_000, "b"])
    found = [pb.DeltaDiscoveryRequest.FromString(each) for each in parted(request.SerializeToString(), 1_000, 7)]
    assert [name for each in found for name in each.resource_names_subscribe] == ["a", "b"]


# SRV-24
@pytest.mark.parametrize(
    ("message", "status"),
    [
        (pb.DeltaDiscoveryRequest(type_url="x" * 5_000).SerializeToString(), "RESOURCE_EXHAUSTED"),
        (b"\x07" * 5_000, "INVALID_ARGUMENT"),
    ],
)
def test_a_message_that_can_not_be_split_is_refused(message: bytes, status: str):
    with pytest.raises(PeerError) as refused:
        parted(message, 1_000, 100)
    assert refused.value.status == status


def come_back(peer: Peer, request: pb.DeltaDiscoveryRequest, limit: int) -> int:
    """Ask in pieces, and poll after each."""
    decoder = Decoder(delta=True)
    pieces = parted(request.SerializeToString(), limit, 1_000)
    for piece in pieces:
        peer.stream.receive(decoder.decode(piece), peer.bench.now)
    return len(pieces)


# SRV-24, DLT-14
def test_a_client_that_comes_back_in_pieces_is_told_what_is_gone():
    bench = Bench()
    bench.put("rds rc<on_demand>=1; vhds rc/shop<shop.test>=2")
    peer = bench.delta()
    scanned = [f"rc/{number:04}.test" for number in range(100)]
    versions = dict.fromkeys(scanned, "absent.1") | {"rc/gone": "1", "rc/shop": "1"}
    request = pb.DeltaDiscoveryRequest(
        type_url=VIRTUAL_HOST,
        resource_names_subscribe=["*", *scanned, "rc/shop.test"],
        initial_resource_versions=versions,
    )
    assert come_back(peer, request, 500) > 5
    heard = " ".join(peer.hears())
    assert "rc/shop(rc/shop.test)=2" in heard
    assert "-rc/gone" in heard
    peer.ask("ack")
    bench.put("vhds rc/late<0042.test>=1")
    assert peer.hears() == ["vhds rc/late(rc/0042.test)=1"]


# SRV-24
def test_fields_that_are_not_known_are_passed_on_whatever_their_kind():
    unknown = b"\xf8\x07\x96\x01" + b"\xfd\x07" + b"\1\2\3\4" + b"\xf9\x07" + b"\1\2\3\4\5\6\7\x08"
    names = [f"n{number}" for number in range(40)]
    known = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=names).SerializeToString()
    parts = parted(unknown + known, 150, 7)
    assert len(parts) > 1
    assert b"".join(parts).startswith(unknown)
    found = [pb.DeltaDiscoveryRequest.FromString(part) for part in parts]
    assert [name for each in found for name in each.resource_names_subscribe] == names
