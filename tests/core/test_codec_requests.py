"""The codec, in: requests as clients send them, and constraints both ways."""

from __future__ import annotations

from contextlib import suppress

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.rpc.status_pb2 import Status
from hypothesis import example, given
from hypothesis import strategies as st

from xdsprism.core.codec import server_requests as codec
from xdsprism.core.codec.constraints import constraint_from_proto, constraint_to_proto
from xdsprism.core.codec.expression import Expression
from xdsprism.core.codec.pieces import Piece
from xdsprism.core.codec.server_requests import Decoder, node_of
from xdsprism.core.model.constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not
from xdsprism.core.model.events import DeltaRequest, Node, Rejection, Request, SotwRequest
from xdsprism.core.model.types import CLUSTER, NO_PARAMS, ROUTE, Params
from xdsprism.errors import PeerError, UsageError

PROD = Params({"env": "prod"})


def locator(name: str, **params: str) -> pb.ResourceLocator:
    return pb.ResourceLocator(name=name, dynamic_parameters=params)


def sotw(**fields) -> bytes:
    return pb.DiscoveryRequest(type_url=CLUSTER, **fields).SerializeToString()


def delta(**fields) -> bytes:
    return pb.DeltaDiscoveryRequest(type_url=CLUSTER, **fields).SerializeToString()


# -- requests


@pytest.mark.parametrize("delta_", [False, True])
def test_a_node_behind_other_fields_is_compared_like_one_in_front(delta_: bool) -> None:
    # SRV-7. Serialisers write fields in the order of their numbers, and none has to.
    form = pb.DeltaDiscoveryRequest if delta_ else pb.DiscoveryRequest
    names = {"resource_names_subscribe" if delta_ else "resource_names": ["a"]}
    head = form(type_url=CLUSTER, **names).SerializeToString()

    def late(node: str) -> bytes:
        return head + form(node=NodeProto(id=node)).SerializeToString()

    for read in (Decoder.decode, lambda *given: _at_once(Decoder.decoding(*given))):
        for first in (late("n"), form(node=NodeProto(id="n")).SerializeToString()):
            decoder = Decoder(delta=delta_)
            known = decoder.decode(first).node
            assert known is not None
            assert known.id == "n"
            assert [read(decoder, late(node)).other_node for node in ("n", "other")] == [False, True]


def _at_once(steps):
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def bad(message: bytes) -> bytes:
    """The same message with a byte that is not UTF-8 wherever it says `%`."""
    return message.replace(b"%", b"\xe9")


def test_a_delta_request_is_used_without_its_names_that_are_not_utf8():
    # VHD-26, DYN-46
    message = delta(
        node=NodeProto(id="envoy-1"),
        response_nonce="n",
        resource_names_subscribe=["a", "caf%", "é"],
        resource_names_unsubscribe=["b", "x%"],
        resource_locators_subscribe=[locator("l%", env="prod"), locator("m", env="p%"), locator("n", env="prod")],
        initial_resource_versions={"a": "1", "c%": "2"},
        error_detail=Status(code=3, message="no %"),
    )
    request = Decoder(delta=True).decode(bad(message))
    assert request == Request(
        CLUSTER,
        DeltaRequest(
            (
                ("a", None),
                ("é", None),
                ("n", PROD),
                ("caf\udce9", None),
                ("l\udce9", PROD),
                ("m", Params({"env": "p\udce9"})),
            ),
            (("b", None),),
            {"a": "1"},
            "n",
            Rejection(3, "no \ufffd"),
        ),
        Node("envoy-1"),
    )
    assert not request.is_plain


def test_a_sotw_request_is_used_without_its_names_that_are_not_utf8():
    # VHD-26, DYN-46
    message = sotw(
        version_info="v", response_nonce="n", resource_names=["a", "caf%"], resource_locators=[locator("l%")]
    )
    wanted = ("a", None), ("caf\udce9", None), ("l\udce9", NO_PARAMS)
    assert Decoder(delta=False).decode(bad(message)) == Request(CLUSTER, SotwRequest(wanted, "v", "n"), None)


@pytest.mark.parametrize("field", ["type_url", "response_nonce"])
def test_a_request_with_another_field_that_is_not_utf8_is_refused(field: str):
    # SRV-4
    message = pb.DeltaDiscoveryRequest(**{"type_url": CLUSTER, field: "%"}).SerializeToString()
    with pytest.raises(PeerError, match="not a discovery request"):
        Decoder(delta=True).decode(bad(message))


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_decoded_as_a_request_or_refused(message: bytes, delta: bool):
    # VHD-26
    with suppress(PeerError):
        Decoder(delta=delta).decode(bad(sotw(resource_names=["%"])) + message)


def test_a_sotw_request_is_read():
    # DYN-1, DYN-14, DYN-19
    message = sotw(
        node=NodeProto(id="envoy-1", cluster="edge", user_agent_name="envoy"),
        version_info="v",
        response_nonce="n",
        resource_names=["a", "b"],
        resource_locators=[locator("a", env="prod"), locator("a")],
        error_detail=Status(code=3, message="no"),
    )
    wanted = ("a", None), ("b", None), ("a", PROD), ("a", NO_PARAMS)
    assert Decoder(delta=False).decode(message) == Request(
        CLUSTER, SotwRequest(wanted, "v", "n", Rejection(3, "no")), Node("envoy-1", "edge", "envoy")
    )


def test_a_delta_request_is_read():
    # DYN-1, DYN-14, DYN-19
    message = delta(
        node=NodeProto(id="envoy-1", client_features=["xds.config.resource-in-sotw"]),
        response_nonce="n",
        resource_names_subscribe=["a"],
        resource_names_unsubscribe=["b"],
        resource_locators_subscribe=[locator("a", env="prod")],
        resource_locators_unsubscribe=[locator("b")],
        initial_resource_versions={"a": "1", "b": "2"},
        error_detail=Status(code=3, message="no"),
    )
    assert Decoder(delta=True).decode(message) == Request(
        CLUSTER,
        DeltaRequest(
            (("a", None), ("a", PROD)),
            (("b", None), ("b", NO_PARAMS)),
            {"a": "1", "b": "2"},
            "n",
            Rejection(3, "no"),
        ),
        Node("envoy-1", features=frozenset({"xds.config.resource-in-sotw"})),
    )


def test_an_empty_request_is_read():
    assert Decoder(delta=False).decode(b"") == Request("", SotwRequest())
    assert Decoder(delta=True).decode(b"") == Request("", DeltaRequest())


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_rejection_is_one_whatever_its_code(is_delta):
    # NAK-1, NAK-2
    make = delta if is_delta else sotw
    decoder = Decoder(delta=is_delta)
    assert decoder.decode(make(response_nonce="n", error_detail=Status())).body.error == Rejection(0, "")
    assert decoder.decode(make(response_nonce="n")).body.error is None


@pytest.mark.parametrize("make", [delta, sotw])
def test_a_request_with_an_odd_name_and_an_empty_error_is_a_nack_like_any_other(make):
    # NAK-1, VHD-26
    names = {"resource_names_subscribe" if make is delta else "resource_names": ["caf%"]}
    message = make(response_nonce="n", error_detail=Status(), **names)
    assert Decoder(delta=make is delta).decode(bad(message)).body.error == Rejection(0, "")


def test_an_empty_parameter_map_is_a_locator_and_not_a_plain_name():
    # DYN-13
    request = Decoder(delta=False).decode(sotw(resource_locators=[locator("a")]))
    assert request.body.wanted == (("a", NO_PARAMS),)
    assert request.body.wanted != (("a", None),)


def test_an_empty_value_is_a_value():
    # DYN-7
    request = Decoder(delta=False).decode(sotw(resource_locators=[locator("a", env="")]))
    assert request.body.wanted == (("a", Params({"env": ""})),)


# -- nodes


def test_only_string_metadata_makes_params_and_the_context_never_does():
    # DYN-12, DYN-43
    proto = NodeProto(id="x")
    proto.metadata.update(
        {"env": "prod", "empty": "", "count": 3, "on": True, "none": None, "list": ["a"], "in": {"a": "b"}}
    )
    proto.dynamic_parameters[ROUTE].params["zone"] = "a"
    assert node_of(proto).metadata == Params({"env": "prod", "empty": ""})


@pytest.mark.parametrize("is_delta", [True, False])
def test_the_node_is_read_from_the_first_message_only(is_delta):
    # SRV-6, SRV-7
    make = delta if is_delta else sotw
    decoder = Decoder(delta=is_delta)
    nodes = [NodeProto(id="a"), None, NodeProto(id="a", cluster="other"), NodeProto(id="b"), NodeProto()]
    requests = [decoder.decode(make(node=node)) for node in nodes]
    assert [request.node for request in requests] == [Node("a"), None, None, None, None]
    assert [request.other_node for request in requests] == [False, False, False, True, True]
    assert {request.type_url for request in requests} == {CLUSTER}


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_node_that_comes_late_is_not_read_but_seen(is_delta):
    # SRV-7: the stream is anonymous then
    make = delta if is_delta else sotw
    decoder = Decoder(delta=is_delta)
    assert decoder.decode(make()).node is None
    late = decoder.decode(make(node=NodeProto(id="a")))
    assert (late.node, late.other_node) == (None, True)


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_node_that_is_repeated_is_cut_off_before_the_message_is_parsed(is_delta, monkeypatch):
    # SRV-25: Envoy's node has 60 kB
    node = NodeProto(id="a", cluster="c" * 60_000)
    kind = pb.DeltaDiscoveryRequest if is_delta else pb.DiscoveryRequest
    names = "resource_names_subscribe" if is_delta else "resource_names"
    message = (delta if is_delta else sotw)(node=node, response_nonce="n", **{names: ["x"]})
    parsed: list[int] = []

    class Counted:
        @staticmethod
        def FromString(data: bytes):  # noqa: N802 - protobuf's name
            parsed.append(len(data))
            return kind.FromString(data)

    monkeypatch.setattr(codec.pb, kind.__name__, Counted)
    decoder = Decoder(delta=is_delta)
    first, second = decoder.decode(message), decoder.decode(message)
    assert first.body == second.body
    assert sum(parsed) == len(message)  # each byte once, by the first
    mark = "… (60,000 bytes)"
    assert first.node.cluster == "c" * (256 - len(mark.encode())) + mark
    assert (second.node, second.other_node) == (None, False)


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_first_request_is_decoded_once_for_all_clients_but_its_node(is_delta):
    make, known = (delta if is_delta else sotw), {True: {}, False: {}}
    names = {"resource_names_subscribe" if is_delta else "resource_names": ["x"]}
    nodes = [NodeProto(id=name) for name in ("a", "b")]
    requests = [Decoder(delta=is_delta, known=known).decode(make(node=node, **names)) for node in nodes]
    anonymous = Decoder(delta=is_delta, known=known).decode(make(**names))
    assert [request.node and request.node.id for request in (*requests, anonymous)] == ["a", "b", None]
    assert requests[0].body is requests[1].body is anonymous.body


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_node_in_two_parts_is_merged_as_protobuf_does(is_delta):
    make = delta if is_delta else sotw
    ends = (pb.DeltaDiscoveryRequest if is_delta else pb.DiscoveryRequest)(node=NodeProto(cluster="c"))
    for _ in range(2):
        request = Decoder(delta=is_delta).decode(make(node=NodeProto(id="a")) + ends.SerializeToString())
        assert (request.node.id, request.node.cluster) == ("a", "c")


def test_a_late_node_in_an_odd_place_is_not_remembered_without_it():
    # SRV-6: it counts where the same bytes are the first request of another stream
    known = {True: {}, False: {}}
    message = sotw(resource_names=["x"]) + pb.DiscoveryRequest(node=NodeProto(id="a")).SerializeToString()
    late = Decoder(delta=False, known=known)
    late.decode(sotw(resource_names=["y"]))
    assert late.decode(message).node is None
    assert Decoder(delta=False, known=known).decode(message).node == Node("a")


def test_a_further_piece_of_a_request_is_not_taken_for_an_equal_request():
    # SRV-24
    known = {True: {}, False: {}}
    message = delta(resource_names_subscribe=["x"])
    requests = [Decoder(delta=True, known=known).decode(kind(message)) for kind in (bytes, Piece, bytes)]
    assert [request.continues for request in requests] == [False, True, False]


def test_a_node_that_is_not_where_serialisers_put_it_is_read_too():
    # SRV-6: the order of fields on the wire is free
    node = pb.DiscoveryRequest(node=NodeProto(id="a")).SerializeToString()
    decoder = Decoder(delta=False)
    request = decoder.decode(sotw(resource_names=["x"]) + node)
    assert (request.node, request.body.wanted) == (Node("a"), (("x", None),))
    again = decoder.decode(sotw(resource_names=["x", "y"]) + node)
    assert (again.node, again.body.wanted) == (None, (("x", None), ("y", None)))


# -- garbage


SAMPLES = [
    sotw(node=NodeProto(id="envoy-1"), version_info="v", resource_names=["a"], resource_locators=[locator("a", k="v")]),
    delta(node=NodeProto(id="envoy-1"), resource_names_subscribe=["a"], initial_resource_versions={"a": "1"}),
]


def read(messages: list[bytes], *, is_delta: bool) -> None:
    """Whatever comes: a request, or a PeerError that ends that stream."""
    decoder = Decoder(delta=is_delta)
    for message in messages:
        with suppress(PeerError):
            assert isinstance(decoder.decode(message).body, DeltaRequest if is_delta else SotwRequest)


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
@example([b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"], True)
@example([b"\x12\x80"], False)
@example([b"\x0a\x02\x0a\xff", b"\x0a\x02\x0a\xff"], True)
@example([b"\x8a\x00\x00", b"\x8a\x00\x00"], True)
@example([b"\x22\x01\xff"], False)  # a string that is not UTF-8
def test_random_bytes_are_a_request_or_the_peers_fault(messages, is_delta):
    # DESIGN 8
    read(messages, is_delta=is_delta)


@given(st.sampled_from(SAMPLES), st.integers(0, 80), st.binary(max_size=8), st.booleans())
def test_requests_that_are_cut_or_bent_are_a_request_or_the_peers_fault(sample, place, other, is_delta):
    # DESIGN 8
    read([sample[:place], sample[:place] + other + sample[place + len(other) :], sample], is_delta=is_delta)


@pytest.mark.parametrize("is_delta", [True, False])
def test_after_garbage_the_first_message_is_still_to_come(is_delta):
    decoder = Decoder(delta=is_delta)
    with pytest.raises(PeerError, match="INVALID_ARGUMENT: not a discovery request"):
        decoder.decode(b"\xff\xff")
    assert decoder.decode((delta if is_delta else sotw)(node=NodeProto(id="a"))).node == Node("a")


class Watched(bytes):
    """Bytes that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, key):
        self.looks += isinstance(key, int)
        return super().__getitem__(key)


@pytest.mark.parametrize("head", [b"", b"\x0a", b"\x0a\x80\x01", b"\x12"])
@pytest.mark.parametrize("is_delta", [True, False])
def test_a_number_without_an_end_is_not_read_to_its_end(is_delta, head):
    # DESIGN 8: a number that grows with the message would take time by its square
    message = Watched(head + b"\xff" * 5000)
    with pytest.raises(PeerError):
        Decoder(delta=is_delta).decode(message)
    assert message.looks <= 64


# -- constraints


KEYS = st.text(min_size=1, max_size=3)
CONSTRAINTS: st.SearchStrategy[Constraint] = st.recursive(
    st.one_of(st.builds(Eq, KEYS, st.text(max_size=3)), st.builds(Exists, KEYS), st.sampled_from([TRUE, FALSE])),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@given(CONSTRAINTS)
@example(Not(TRUE))
@example(Not(Not(TRUE)))
@example(All((TRUE, FALSE)))
@example(Eq("k", ""))
def test_constraints_survive_the_wire(constraint):
    # DYN-3, DYN-8, DYN-25
    sent = constraint_to_proto(constraint).SerializeToString(deterministic=True)
    assert constraint_from_proto(pb.DynamicParameterConstraints.FromString(sent)) == constraint


def test_constraints_are_written_as_tp2_writes_them():
    # DYN-3
    proto = pb.DynamicParameterConstraints()
    env, version, zone = (proto.and_constraints.constraints.add() for _ in range(3))
    env.constraint.key, env.constraint.value = "env", "prod"
    version.not_constraints.constraint.key = "version"
    version.not_constraints.constraint.exists.SetInParent()
    for value in ("a", ""):
        one = zone.or_constraints.constraints.add()
        one.constraint.key, one.constraint.value = "zone", value
    constraint = All((Eq("env", "prod"), Not(Exists("version")), AnyOf((Eq("zone", "a"), Eq("zone", "")))))
    assert constraint_to_proto(constraint) == proto
    assert constraint_from_proto(proto) == constraint


def test_an_empty_constraint_matches_all_except_an_empty_or():
    # DYN-9
    unset, empty_and, empty_or = (pb.DynamicParameterConstraints() for _ in range(3))
    empty_and.and_constraints.SetInParent()
    empty_or.or_constraints.SetInParent()
    assert [constraint_from_proto(proto) for proto in (unset, empty_and, empty_or)] == [TRUE, TRUE, FALSE]
    assert constraint_to_proto(TRUE) == unset
    assert constraint_to_proto(FALSE) == empty_or
    unset.not_constraints.SetInParent()
    assert constraint_from_proto(unset) == Not(TRUE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "no key"),
        ({"value": "prod"}, "no key"),
        ({"key": "env"}, "'env' has neither value nor exists"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_constraint_without_a_key_or_a_test_is_refused(fields, message, nested):
    # DYN-9
    proto = pb.DynamicParameterConstraints(constraint=fields)
    if nested:
        proto = pb.DynamicParameterConstraints(not_constraints={"and_constraints": {"constraints": [proto]}})
    with pytest.raises(UsageError, match=message):
        constraint_from_proto(proto)


def nested(depth: int) -> pb.DynamicParameterConstraints:
    proto = inner = pb.DynamicParameterConstraints()
    for _ in range(depth - 1):
        inner = inner.not_constraints
    inner.constraint.key, inner.constraint.value = "env", "prod"
    return proto


def test_constraints_may_nest_32_deep_and_no_deeper():
    # DYN-8
    constraint = constraint_from_proto(nested(32))
    assert constraint_to_proto(constraint) == nested(32)
    with pytest.raises(UsageError, match="more than 32 deep"):
        constraint_from_proto(nested(33))


def test_constraints_that_nest_beyond_all_measure_are_refused_too():
    # DYN-8: not by running out of stack
    try:
        constraint_from_proto(nested(3000))
    except (UsageError, RecursionError) as error:
        refusal = type(error)
    assert refusal is UsageError


def test_constraints_may_have_4096_parts_and_no_more():
    # DYN-8
    proto = pb.DynamicParameterConstraints()
    for number in range(4095):
        one = proto.or_constraints.constraints.add()
        one.constraint.key, one.constraint.value = "env", str(number)
    assert constraint_to_proto(constraint_from_proto(proto)) == proto
    proto.or_constraints.constraints.add().constraint.CopyFrom(one.constraint)
    with pytest.raises(UsageError, match="more than 4,096 parts"):
        constraint_from_proto(proto)


# -- expressions


def test_an_expression_can_be_asked_printed_and_turned_into_the_proto():
    # DYN-6, DYN-8
    expression = Expression.parse("env=prod and not version exists")
    assert expression.matches({"env": "prod"})
    assert not expression.matches({"env": "prod", "version": ""})
    assert expression.keys == {"env", "version"}
    assert str(expression) == "env=prod and not version exists"
    assert expression.to_proto() == constraint_to_proto(All((Eq("env", "prod"), Not(Exists("version")))))
    assert Expression.from_proto(expression.to_proto()) == expression
    assert hash(Expression.parse("env = prod and (not version exists)")) == hash(expression)


def test_an_expression_refuses_what_is_none():
    # DYN-9
    with pytest.raises(UsageError):
        Expression.parse("env=")
    with pytest.raises(UsageError, match="no key"):
        Expression.from_proto(pb.DynamicParameterConstraints(constraint={"value": "prod"}))


def test_requests_that_streams_share_are_bounded(monkeypatch: pytest.MonkeyPatch):
    # OPS-6
    monkeypatch.setattr("xdsprism.core.codec.server_requests.KNOWN", 3)
    known: dict[bool, dict[bytes, Request]] = {True: {}, False: {}}
    decoder = Decoder(delta=True, known=known)
    for number in range(10):
        request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=str(number))
        assert decoder.decode(request.SerializeToString()).body.nonce == str(number)
        assert len(known[True]) <= 3
    assert known[True]
