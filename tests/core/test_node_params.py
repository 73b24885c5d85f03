"""Which fields of a node become params of plain subscriptions (DESIGN 6.2)."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest
from google.protobuf.json_format import MessageToDict

from xdsprism.core.codec.loads import decode_request
from xdsprism.core.codec.server_requests import Decoder
from xdsprism.core.model.expr import parse, show
from xdsprism.core.model.node_params import NODE_FIELDS, write_named
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, Params
from xdsprism.errors import UsageError

METADATA = {
    "env": "prod",
    "count": 3,
    "ratio": 1.5,
    "on": True,
    "off": False,
    "nothing": None,
    "list": ["x"],
    "labels": {"app": "shop", "deep": {"er": "yes"}, "app.kubernetes.io/name": "web", "count": 7},
    "a.b": "literal",
    "a": {"b": "nested", "c": "inner"},
    "empty": "",
}


def node(metadata: dict[str, Any] | None = None, **fields: Any) -> NodeProto:
    proto = NodeProto(**fields)
    proto.metadata.update(METADATA if metadata is None else metadata)
    return proto


def read(proto: NodeProto, names: list[str] | None, *, delta: bool = False) -> dict[str, str]:
    """As a server does it: from the first message of a stream."""
    settings = Settings(node_params=names)
    kind = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
    message = kind(node=proto, type_url=CLUSTER).SerializeToString()
    request = Decoder(delta=delta, node_params=names).decode(message)
    assert request.node is not None
    return dict(settings.params_of(request.node))


FIELDS = node(
    {},
    id="envoy-1",
    cluster="edge",
    locality={"region": "eu", "zone": "eu-1", "sub_zone": "rack-7"},
    user_agent_name="envoy",
    user_agent_version="1.36.4-dev",
)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node.id", "envoy-1"),
        ("node.cluster", "edge"),
        ("node.locality.region", "eu"),
        ("node.locality.zone", "eu-1"),
        ("node.locality.sub_zone", "rack-7"),
        ("node.user_agent_name", "envoy"),
        ("node.user_agent_version", "1.36.4-dev"),
        ("node.user_agent_version.major_minor", "1.36"),
    ],
)
def test_a_field_of_the_node_counts_where_it_is_named(name: str, value: str, delta: bool) -> None:
    # DYN-12, DYN-43
    assert read(FIELDS, [name], delta=delta) == {name: value}
    assert read(FIELDS, None) == read(FIELDS, []) == {}
    assert read(NodeProto(), [name]) == {}
    assert show(parse(f"{name}={value}")) == f"{name}={value}"


@pytest.mark.parametrize(
    ("version", "whole", "short"),
    [
        (
            {"user_agent_build_version": {"version": {"major_number": 1, "minor_number": 36, "patch": 4}}},
            "1.36.4",
            "1.36",
        ),
        ({"user_agent_build_version": {"version": {}}}, "0.0.0", "0.0"),
        ({"user_agent_build_version": {}}, None, None),
        ({"user_agent_version": "C-core 1.60.0 linux"}, "C-core 1.60.0 linux", "1.60"),
        ({"user_agent_version": "v7"}, "v7", None),
        ({}, None, None),
    ],
)
def test_the_version_of_the_user_agent_is_a_string_or_made_of_its_numbers(
    version: dict[str, Any], whole: str | None, short: str | None
) -> None:
    # DYN-12: Envoy sends numbers, gRPC a string
    names = ["node.user_agent_version", "node.user_agent_version.major_minor"]
    expected = {name: value for name, value in zip(names, (whole, short), strict=True) if value is not None}
    assert read(node({}, **version), names) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("env", "prod"),
        ("count", "3"),
        ("ratio", "1.5"),
        ("on", "true"),
        ("off", "false"),
        ("labels.app", "shop"),
        ("labels.deep.er", "yes"),
        ("labels.count", "7"),
        ("labels.app.kubernetes.io/name", "web"),
        ("a.b", "literal"),
        ("a.c", "inner"),
        ("empty", ""),
        ("nothing", None),
        ("list", None),
        ("labels", None),
        ("labels.none", None),
        ("labels.app.x", None),
        ("labels.", None),
        (".labels", None),
        ("missing.x", None),
    ],
)
def test_a_metadata_key_counts_where_it_is_named_in_its_json_form(name: str, value: str | None) -> None:
    # DYN-12
    assert read(node(), [name]) == ({name: value} if value is not None else {})


def test_without_names_the_strings_at_the_top_count_as_ever() -> None:
    # DYN-12, DYN-43
    assert read(node(), None) == {"env": "prod", "a.b": "literal", "empty": ""}


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (-2, "-2"), (2**53, "9007199254740992"), (1e22, "1e+22"), (0.1, "0.1"), (-0.5, "-0.5")],
)
def test_numbers_are_written_as_in_json(number: float, text: str) -> None:
    # DYN-12
    assert read(node({"n": number}), ["n"]) == {"n": text}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_no_params(number: float) -> None:
    proto = NodeProto()
    proto.metadata.fields["n"].number_value = number
    assert read(proto, ["n"]) == {}


def test_metadata_can_not_pass_for_a_field_of_the_node() -> None:
    # DYN-12: `node.` is the prefix of the node's own fields
    proto = node({"node.id": "false", "node": {"cluster": "false"}, "node.x": "y", "env": "prod"}, id="true")
    assert read(proto, None) == {"env": "prod"}
    assert read(proto, ["node.id", "node.cluster", "env"]) == {"node.id": "true", "env": "prod"}


def test_a_literal_key_that_is_no_scalar_does_not_hide_the_nested_one() -> None:
    assert read(node({"a.b": {"c": "x"}, "a": {"b": "y"}}), ["a.b", "a.b.c"]) == {"a.b": "y", "a.b.c": "x"}


@pytest.mark.parametrize("names", [["node.xyz"], ["env", "node.locality"], ["node."]])
def test_a_field_that_a_node_does_not_have_is_refused_with_those_it_has(names: list[str]) -> None:
    # DYN-12
    with pytest.raises(UsageError, match=r"the node has no field 'node.*node.locality.sub_zone"):
        Settings(node_params=names)


def test_a_string_in_place_of_a_list_of_names_is_refused() -> None:
    with pytest.raises(UsageError, match=r"node_params=\['env'\]"):
        Settings(node_params="env")


def test_a_repeated_node_is_not_read_again() -> None:
    # SRV-25
    decoder = Decoder(delta=False, node_params=["labels.app"])
    message = pb.DiscoveryRequest(node=node(), type_url=CLUSTER).SerializeToString()
    first, second = decoder.decode(message), decoder.decode(message)
    assert first.node is not None
    assert first.node.named == Params({"labels.app": "shop"})
    assert second.node is None


def test_only_what_is_named_is_kept() -> None:
    # SRV-25
    message = pb.DiscoveryRequest(node=node(id="x"), type_url=CLUSTER).SerializeToString()
    request = Decoder(delta=False, node_params=["env", "count", "node.cluster"]).decode(message)
    assert request.node is not None
    assert request.node.named == Params({"count": "3"})


def test_load_reports_know_their_client_by_the_same_names() -> None:
    # LRS-1
    message = decode_request(LoadStatsRequest(node=FIELDS).SerializeToString(), ["node.locality.zone"])
    assert message.node is not None
    assert message.node.named == Params({"node.locality.zone": "eu-1"})


def test_params_of_a_node_can_be_written_into_a_node() -> None:
    # PRX-21
    names = [*NODE_FIELDS, "env", "labels.app"]
    params = Params(read(FIELDS, names) | {"env": "prod", "labels.app": "shop"})
    written = NodeProto(metadata=None)
    write_named(written, params)
    assert read(written, names) == dict(params)
    assert MessageToDict(written.metadata) == {"env": "prod", "labels.app": "shop"}
