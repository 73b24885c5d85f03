"""Texts from outside are cut where they come in."""

from __future__ import annotations

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest
from google.rpc.status_pb2 import Status

from xdsprism.core.codec.client_side import Checked, ResponseDecoder
from xdsprism.core.codec.loads import decode_request
from xdsprism.core.codec.server_requests import Decoder
from xdsprism.core.model.node_params import ENTRY, METADATA, VALUE_BYTES, node_of, params_of
from xdsprism.core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from xdsprism.core.model.types import CLUSTER

MARK = "… (10,485,760 bytes)"
MANY = 10 * 1024 * 1024


def test_a_text_within_the_bound_is_unchanged():
    for text in ("", "a" * 256, "é" * 128, "\U0001f600" * 64):
        assert bounded(text, 256) == text


@pytest.mark.parametrize("letter", ["a", "é", "€", "\U0001f600"])
def test_the_cut_is_between_two_characters_and_says_how_long_it_was(letter: str):
    size = len(letter.encode())
    mark = f"… ({size * MANY:,} bytes)"
    cut = bounded(letter * MANY, 255)
    assert cut == letter * ((255 - len(mark.encode())) // size) + mark
    assert bounded(cut, 255) == cut


def test_two_texts_that_begin_alike_stay_two_where_they_must():
    one, other = (bounded("a" * 300 + end, 256, distinct=True) for end in "xy")
    assert one != other
    assert one == bounded("a" * 300 + "x", 256, distinct=True)


def request(is_delta: bool, **fields: object) -> bytes:
    return (pb.DeltaDiscoveryRequest if is_delta else pb.DiscoveryRequest)(
        type_url=CLUSTER, **fields
    ).SerializeToString()


both = pytest.mark.parametrize("is_delta", [True, False], ids=["delta", "sotw"])


# NAK-12
@both
def test_four_kilobytes_of_the_text_of_a_nack_are_kept(is_delta: bool):
    error = Status(code=3, message="x" * MANY)
    rejection = Decoder(delta=is_delta).decode(request(is_delta, error_detail=error)).body.error
    assert rejection is not None
    assert rejection.message == "x" * (TEXT_BYTES - len(MARK.encode())) + MARK


# SRV-6
@both
def test_the_fields_of_a_node_are_bounded(is_delta: bool):
    long = "é" * 60_000
    node = NodeProto(id=long, cluster=long, user_agent_name=long, client_features=[long, *map(str, range(10_000))])
    found = Decoder(delta=is_delta).decode(request(is_delta, node=node)).node
    assert found is not None
    for text in (found.id, found.cluster, found.user_agent, *found.features):
        assert len(text.encode()) <= NAME_BYTES
    assert len(found.features) <= 256


# SRV-6, DYN-13
@both
def test_a_long_node_id_still_tells_clients_apart_where_it_decides(is_delta: bool):
    ids = [f"{'a' * 6_500}{end}" for end in "xy"]
    nodes = [
        Decoder(delta=is_delta, node_params=["node.id"]).decode(request(is_delta, node=NodeProto(id=each))).node
        for each in ids
    ]
    assert [params_of(node, ["node.id"])["node.id"] for node in nodes if node is not None] == ids
    assert len({node.id for node in nodes if node is not None}) == 2


# SRV-25, DYN-13
@both
def test_metadata_that_settings_name_is_whole_and_of_the_rest_little_is_kept(is_delta: bool):
    node = NodeProto(id="a")
    node.metadata.update({"env": "e" * 6_500, **{f"key-{number}": "v" * 6_500 for number in range(500)}})
    found = Decoder(delta=is_delta, node_params=["env"]).decode(request(is_delta, node=node)).node
    assert found is not None
    assert dict(params_of(found, ["env"])) == {"env": "e" * 6_500}
    assert sum(len(key) + len(value) for key, value in found.metadata.items()) < 50_000
    whole = Decoder(delta=is_delta).decode(request(is_delta, node=node)).node
    assert whole is not None
    assert len(params_of(whole, None)) == 501  # without names all of it decides


# DYN-46, SRV-25
@both
@pytest.mark.parametrize(
    "much",
    [
        {"long": "v" * 5_000_000},
        {f"{number:05}": "v" * 50_000 for number in range(100)},
        {f"k{number}": "" for number in range(60_000)},
    ],
    ids=["one value", "many values", "many keys"],
)
def test_the_metadata_of_a_node_is_bounded_and_short_keys_are_kept(is_delta: bool, much: dict[str, str]):
    node = NodeProto(id="a")
    for key, value in {**much, "e": ""}.items():
        node.metadata.fields[key].string_value = value
    found = Decoder(delta=is_delta).decode(request(is_delta, node=node)).node
    assert found is not None
    kept = params_of(found, None)
    assert kept["e"] == ""
    assert sum(len(key) + len(value) + ENTRY for key, value in kept.items()) <= METADATA


# DYN-46
@pytest.mark.parametrize("names", [None, ["k"], ["k", "nested.k"]])
def test_values_that_are_too_long_to_be_kept_stay_two_if_they_begin_alike(names: list[str] | None):
    nodes = [NodeProto(id="a") for _ in "xy"]
    for node, end in zip(nodes, "xy", strict=True):
        node.metadata.update({"k": "v" * MANY + end, "nested": {"k": "v" * MANY + end}})
    kept = [params_of(node_of(node, names), names) for node in nodes]
    assert kept[0].keys() == kept[1].keys() == {"k", *(names or ())}
    for key in kept[0]:
        assert len({each[key] for each in kept}) == 2
        assert all(len(each[key].encode()) <= VALUE_BYTES for each in kept)


def test_the_version_in_a_request_is_bounded():
    found = Decoder(delta=False).decode(request(False, version_info="v" * MANY))
    assert len(found.body.version) <= TEXT_BYTES


# LRS-1
def test_names_in_load_reports_are_cut_and_stay_apart():
    long = "c" * 100_000
    message = LoadStatsRequest(node=NodeProto(id=long))
    for end in "xy":
        stats = message.cluster_stats.add(cluster_name=long + end, cluster_service_name=long)
        stats.upstream_locality_stats.add().locality.region = long
    heard = decode_request(message.SerializeToString())
    names = {report.cluster for report in heard.reports}
    assert len(names) == 2
    for report in heard.reports:
        assert len(repr(report)) < 2_000


# PRX-22
@both
def test_the_name_and_the_errors_of_a_server_are_bounded(is_delta: bool):
    error = pb.ResourceError(resource_name={"name": "a"}, error_detail=Status(code=14, message="x" * MANY))
    kind = pb.DeltaDiscoveryResponse if is_delta else pb.DiscoveryResponse
    message = kind(type_url=CLUSTER, resource_errors=[error], control_plane={"identifier": "xdsprism " + "i" * MANY})
    faulty = message.resources.add()
    (faulty.resource if is_delta else faulty).type_url = "t" * MANY
    decoder = ResponseDecoder(lambda _url, _body: Checked(None, "", ()), delta=is_delta)
    response = decoder.decode(message.SerializeToString())
    (found,) = response.errors
    assert found.message == "x" * (TEXT_BYTES - len(MARK.encode())) + MARK
    assert response.server.startswith("xdsprism ")
    assert len(response.server.encode()) <= NAME_BYTES
    (flaw,) = response.flaws
    assert len(flaw.reason.encode()) <= NAME_BYTES + 200


def test_the_reason_why_a_resource_is_invalid_is_bounded():
    message = pb.DiscoveryResponse(type_url=CLUSTER)
    message.resources.add(type_url=CLUSTER)
    decoder = ResponseDecoder(lambda _url, _body: Checked(None, "a", ("f" * MANY,)), delta=False)
    (flaw,) = decoder.decode(message.SerializeToString()).flaws
    assert len(flaw.reason.encode()) <= TEXT_BYTES
