"""What would take long to parse of a long request is cut out of it in steps, and the rest means what it meant."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyProto
from google.rpc.status_pb2 import Status

from xdsprism.core.codec.salvage import ODD
from xdsprism.core.codec.server_requests import Decoder
from xdsprism.core.codec.trimming import LARGE, MOST, SCANNED
from xdsprism.core.codec.wire import join_field
from xdsprism.core.model.events import Request
from xdsprism.core.model.limits import Limits
from xdsprism.core.model.node_params import METADATA, params_of
from xdsprism.core.model.steps import finish
from xdsprism.core.model.types import CLUSTER
from xdsprism.errors import PeerError

MANY = 60_000
LONG = "x" * 1_500_000
LIMITS = Limits()

both = pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])


def message(delta: bool, **fields: Any) -> bytes:
    kind = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
    known = {"subscribe": "resource_names", "locators": "resource_locators", "version": "version_info"}
    if delta:
        known = {"subscribe": "resource_names_subscribe", "locators": "resource_locators_subscribe"}
    return kind(
        **{"type_url": CLUSTER, **{known.get(key, key): value for key, value in fields.items()}}
    ).SerializeToString()


def locator(params: int, name: str = "a", value: str = "v") -> pb.ResourceLocator:
    return pb.ResourceLocator(name=name, dynamic_parameters={f"k{number}": value for number in range(params)})


def node(**metadata: Any) -> NodeProto:
    found = NodeProto(id="n")
    found.metadata.update(metadata)
    return found


def keys(count: int, value: str = "") -> NodeProto:
    """A node with so many metadata keys."""
    found = NodeProto(id="n")
    for number in range(count):
        found.metadata.fields[f"key-{number}"].string_value = value
    return found


class Watched:
    """A message class of protobuf that notes the most that it was given at once."""

    def __init__(self, kind: Any) -> None:
        self.DESCRIPTOR = kind.DESCRIPTOR
        self._kind = kind
        self.most = 0

    def FromString(self, message: bytes) -> Any:  # noqa: N802 # the name that protobuf gives it
        self.most = max(self.most, len(message))
        return self._kind.FromString(message)


def decoded(delta: bool, sent: bytes, names: list[str] | None = None) -> tuple[Request, int, int]:
    """The request, the most that was parsed at once, and in how many steps it was read."""
    kind = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
    watched = Watched(kind)
    with patch.object(pb, kind.__name__, watched):
        steps = Decoder(delta=delta, node_params=names).decoding(sent)
        count = 0
        try:
            while True:
                next(steps)
                count += 1
        except StopIteration as done:
            return done.value, watched.most, count


def status(text: str = "", details: int = 0) -> Status:
    return Status(code=3, message=text, details=[AnyProto(type_url="t")] * details)


# OPS-10
@both
@pytest.mark.parametrize(
    "fields",
    [
        {"node": keys(MANY)},
        {"node": NodeProto(id=LONG, cluster=LONG, user_agent_name=LONG)},
        {"node": NodeProto(client_features=["f"] * MANY)},
        {"node": NodeProto(listening_addresses=[{}] * MANY)},
        {"node": NodeProto(extensions=[{}] * MANY)},
        {"node": NodeProto(dynamic_parameters={f"k{number}": {} for number in range(30_000)})},
        {"node": node(a=dict.fromkeys(map(str, range(MANY)), 1))},
        {"locators": [locator(MANY)]},
        {"locators": [locator(1, value=LONG)]},
        {"locators": [locator(1, name=LONG)]},
        {"subscribe": [LONG]},
        {"subscribe": ["a", LONG.replace("x", "é"), "b"]},
        {"response_nonce": LONG},
        {"error_detail": status(LONG)},
        {"error_detail": status("no", MANY)},
    ],
    ids="-".join,
)
def test_nothing_of_a_long_request_takes_long_to_parse(delta: bool, fields: dict[str, Any]):
    _, most, _ = decoded(delta, message(delta, **fields))
    assert most <= max(METADATA, MOST) + LARGE


# OPS-10
@both
@pytest.mark.parametrize("fields", [{"node": keys(MANY)}, {"locators": [locator(MANY)]}], ids="-".join)
def test_a_field_with_very_many_parts_is_looked_at_in_steps(delta: bool, fields: dict[str, Any]):
    assert decoded(delta, message(delta, **fields))[2] >= MANY / SCANNED - 1


# OPS-10
@pytest.mark.parametrize("fields", [{"version": LONG}, {"initial_resource_versions": {LONG: "1", "a": "1"}}])
def test_nothing_that_only_one_form_has_takes_long_to_parse(fields: dict[str, Any]):
    delta = "version" not in fields
    request, most, _ = decoded(delta, message(delta, **fields))
    assert most <= MOST + LARGE
    if delta:
        assert request.body.initial_versions == {"a": "1"}


# SRV-6, NAK-12, DYN-46
@both
def test_a_long_request_read_in_steps_equals_one_read_at_once(delta: bool):
    sent = message(
        delta,
        node=NodeProto(
            id="n",
            cluster="c",
            user_agent_name="u",
            client_features=["f", "g"],
            extensions=[{"name": "x" * 100}] * 3_000,
            metadata=node(env="prod", tier=3, labels={"app": "shop"}).metadata,
        ),
        subscribe=["a", "é" * 3_000, "y" * (LARGE + 1), "b"],
        locators=[locator(2), locator(LIMITS.params, value="v" * 300)],
        response_nonce="n",
        error_detail=status("no " * 3_000, 10_000),
    )
    for names in (None, ["env", "tier", "labels.app", "node.id"]):
        at_once = Decoder(delta=delta, node_params=names).decode(sent)
        assert decoded(delta, sent, names)[0] == at_once


# SRV-25, DYN-13
@both
def test_short_entries_of_too_much_metadata_count_in_steps_too(delta: bool):
    much = keys(60_000, "some value")
    much.metadata.fields["e"].string_value = "prod"
    much.metadata.fields["number"].number_value = 1
    much.metadata.fields["long"].string_value = LONG
    request, _, _ = decoded(delta, message(delta, node=much))
    assert request.node is not None
    kept = params_of(request.node, None)
    assert kept["e"] == "prod"
    assert "long" not in kept
    assert 10_000 < len(kept) < 60_000


# SRV-25, DYN-13
@both
@pytest.mark.parametrize("names", [None, ["odd"]], ids=["all", "named"])
def test_unknown_fields_in_and_beside_an_entry_of_the_metadata_mean_in_steps_what_they_mean_at_once(
    delta: bool, names: list[str] | None
):
    odd = join_field(1, b"odd") + join_field(2, join_field(3, b"prod")) + join_field(15, b"x") + b"\x20\x01"
    metadata = join_field(1, odd) + join_field(9, b"y") + b"\x40\x01"
    much = join_field(1, b"n") + join_field(3, keys(60_000, "some value").metadata.SerializeToString() + metadata)
    sent = message(delta) + join_field(1 if delta else 2, much)
    request, _, _ = decoded(delta, sent, names)
    at_once = Decoder(delta=delta, node_params=names).decode(sent)
    assert request.node is not None
    assert at_once.node is not None
    assert params_of(request.node, names).get("odd") == params_of(at_once.node, names).get("odd")


# SRV-25, DYN-13
@both
def test_named_entries_of_too_much_metadata_count_wherever_they_are(delta: bool):
    much = keys(60_000, "some value")
    much.metadata.update(
        {"env": "prod", "tier": 3, "labels": {"app": {"name": "shop"}}, "a.b": {"c": "d"}, "long": LONG}
    )
    names = ["env", "tier", "labels.app.name", "a.b.c", "long", "node.id"]
    request, _, _ = decoded(delta, message(delta, node=much), names)
    assert request.node is not None
    found = params_of(request.node, names)
    assert {**found, "long": ""} == {
        "env": "prod",
        "tier": "3",
        "labels.app.name": "shop",
        "a.b.c": "d",
        "node.id": "n",
        "long": "",
    }
    assert found["long"].startswith("xxx")


# SRV-7, DYN-13
@both
def test_two_long_texts_that_begin_alike_stay_two(delta: bool):
    requests = [decoded(delta, message(delta, node=NodeProto(id=LONG + end)))[0] for end in "xy"]
    assert len({request.node.id for request in requests if request.node is not None}) == 2
    values = [decoded(delta, message(delta, node=node(k="é" * 70_000 + "x" * LARGE + end)))[0] for end in "xy"]
    assert len({params_of(request.node, None)["k"] for request in values if request.node is not None}) == 2


# DYN-46
@both
def test_a_locator_with_very_many_params_is_past_a_limit_and_keeps_its_name(delta: bool):
    request, _, _ = decoded(delta, message(delta, locators=[locator(MANY), locator(1)]))
    wanted = request.body.subscribe if delta else request.body.wanted
    refused = [LIMITS.refuses(CLUSTER, *key) for key in wanted]
    assert [name for name, _ in wanted] == ["a", "a"]
    assert [each and each.kind for each in refused] == ["params", None]


# NAK-12
@both
def test_the_code_and_the_beginning_of_a_long_nack_are_read(delta: bool):
    request, _, _ = decoded(delta, message(delta, error_detail=status("é" * 1_000_000, 10_000)))
    assert request.body.error is not None
    assert request.body.error.code == 3
    assert request.body.error.message.startswith("é" * 1_000)
    assert request.body.error.message.endswith("… (2,000,000 bytes)")


# NAK-12, SRV-25, DYN-13
@both
@pytest.mark.parametrize("letter", ["x", "é", "€", "\U0001f600"])
def test_a_long_text_is_cut_as_if_it_were_read_at_once(delta: bool, letter: str):
    long = letter * (LARGE + 5)
    only = {} if delta else {"version": long}
    sent = message(delta, node=node(k=long, tier="x" + long), error_detail=status("no" + long), **only)
    assert decoded(delta, sent)[0] == Decoder(delta=delta).decode(sent)


# VHD-26
@both
def test_long_names_are_answered_whatever_bytes_are_in_them(delta: bool):
    odd, long = b"\xe9" * LARGE * 2, "x" * (2 * MOST)
    sent = message(delta, subscribe=["a", long, "b"]) + join_field(3, odd)
    request, _, _ = decoded(delta, sent)
    wanted = request.body.subscribe if delta else request.body.wanted
    assert [name for name, _ in wanted] == ["a", long, "b", "\udce9" * LARGE * 2]


# SRV-4
@both
@pytest.mark.parametrize(
    "inside",
    [
        b"\x1a\x7f" + b"x" * LARGE,
        b"\x0b" + b"\x0c" * LARGE,
        b"\x0e" * LARGE * 2,
        b"\xff" * LARGE * 2,
        b"\x0a" + b"\xff" * 9 + b"\x01" + b"x" * LARGE,
        join_field(1, b"\x80" * LARGE * 2),  # a text without the first byte of any character
    ],
)
def test_a_long_field_that_is_no_message_ends_the_stream(delta: bool, inside: bytes):
    number = 1 if delta else 2
    with pytest.raises(PeerError) as told:
        finish(Decoder(delta=delta).decoding(message(delta) + join_field(number, inside)))
    assert told.value.status == "INVALID_ARGUMENT"


# SRV-4
@both
def test_a_type_url_that_is_longer_than_any_name_ends_the_stream(delta: bool):
    with pytest.raises(PeerError, match="type_url"):
        finish(Decoder(delta=delta).decoding(message(delta, type_url=LONG)))


# VHD-26
@both
def test_a_very_long_name_that_is_not_utf8_is_refused_by_its_beginning(delta: bool):
    request, _, _ = decoded(delta, message(delta, subscribe=["a"]) + join_field(3, b"\xe9" * (2 * ODD)))
    wanted = request.body.subscribe if delta else request.body.wanted
    assert [name for name, _ in wanted] == ["a", "\udce9" * ODD]
