"""The codec, responses: the bytes equal those of protobuf, and each piece is made once."""

from __future__ import annotations

import tracemalloc

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc.status_pb2 import Status

from xdsprism.core.codec import server_responses as codec
from xdsprism.core.codec.constraints import constraint_to_proto
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.constraints import TRUE, Constraint, Exists, Not
from xdsprism.core.model.events import Absence, ResourceError, Send
from xdsprism.core.model.expr import parse
from xdsprism.core.model.steps import EVERY, finish
from xdsprism.core.model.types import CLUSTER, ENDPOINT, PREFIX, ROUTE, VIRTUAL_HOST, Origin, Variant, make_variant
from xdsprism.errors import UsageError

PROD = parse("env=prod and not version exists")
LONG = "n" * 300  # its length takes two bytes on the wire


def route(name: str = "main", constraint: Constraint = TRUE, **options) -> Variant:
    return variant_of(RouteConfiguration(name=name), constraint=constraint, **options)


def wire_name(name: str, constraint: Constraint = TRUE) -> pb.ResourceName:
    if constraint == TRUE:
        return pb.ResourceName(name=name)
    return pb.ResourceName(name=name, dynamic_parameter_constraints=constraint_to_proto(constraint))


def wire_any(name: str) -> Any:
    return Any(type_url=ROUTE, value=RouteConfiguration(name=name).SerializeToString())


def wire_error(name: str, constraint: Constraint, code: int, message: str) -> pb.ResourceError:
    return pb.ResourceError(resource_name=wire_name(name, constraint), error_detail=Status(code=code, message=message))


def delta(*, nonce: str = "1.rds", **parts) -> Send:
    return Send(ROUTE, True, nonce, "7", **parts)


def sotw(*, nonce: str = "1.rds", **parts) -> Send:
    return Send(ROUTE, False, nonce, "0123456789abcdef", **parts)


# -- responses, in every form


def test_a_delta_response_is_what_protobuf_would_have_made():
    # DLT-1, DLT-24, DYN-2, DYN-3, DYN-25, SRV-18, SRV-20
    plain, long, located, free = route("a"), route(LONG), route("b", PROD), route("c")
    send = delta(
        plain=(plain, long),
        located=(located, free),
        removed=("d", LONG),
        withdrawn=(Absence("e", PROD), Absence("f", TRUE)),
        errors=(ResourceError(Absence("g", Not(Exists("env"))), 5, "not there"),),
    )
    expected = pb.DeltaDiscoveryResponse(
        system_version_info="7",
        type_url=ROUTE,
        nonce="1.rds",
        resources=[
            pb.Resource(name="a", version=plain.version, resource=wire_any("a")),
            pb.Resource(name=LONG, version=long.version, resource=wire_any(LONG)),
            pb.Resource(resource_name=wire_name("b", PROD), version=located.version, resource=wire_any("b")),
            pb.Resource(resource_name=wire_name("c"), version=free.version, resource=wire_any("c")),
        ],
        removed_resources=["d", LONG],
        removed_resource_names=[wire_name("e", PROD), wire_name("f")],
        resource_errors=[wire_error("g", Not(Exists("env")), 5, "not there")],
    )
    expected.control_plane.identifier = "here"
    encoded = Encoder("here").encode(send)
    assert pb.DeltaDiscoveryResponse.FromString(encoded) == expected
    assert len(encoded) == expected.ByteSize()


def test_a_sotw_response_is_what_protobuf_would_have_made():
    # DYN-2, DYN-3, DYN-12, SRV-18, SRV-20
    plain, long, located, free = route("a"), route(LONG), route("b", PROD), route("c")
    send = sotw(
        plain=(plain, long),
        located=(located, free),
        errors=(ResourceError(Absence("g", PROD), 5, "not there"), ResourceError(Absence(LONG, TRUE), 8, "x" * 200)),
    )
    wrapped = [
        pb.Resource(resource_name=wire_name("b", PROD), version=located.version, resource=wire_any("b")),
        pb.Resource(resource_name=wire_name("c"), version=free.version, resource=wire_any("c")),
    ]
    expected = pb.DiscoveryResponse(
        version_info="0123456789abcdef",
        type_url=ROUTE,
        nonce="1.rds",
        resources=[
            wire_any("a"),
            wire_any(LONG),
            *(Any(type_url=codec.RESOURCE, value=resource.SerializeToString()) for resource in wrapped),
        ],
        resource_errors=[wire_error("g", PROD, 5, "not there"), wire_error(LONG, TRUE, 8, "x" * 200)],
    )
    expected.control_plane.identifier = "here"
    found = pb.DiscoveryResponse.FromString(Encoder("here").encode(send))
    unwrapped = [pb.Resource.FromString(any_.value) for any_ in found.resources if any_.type_url == codec.RESOURCE]
    assert unwrapped == wrapped
    del found.resources[2:], expected.resources[2:]  # field order within the wrapper is free
    assert found == expected


def test_a_located_resource_has_a_resource_name_and_no_name_and_a_plain_one_the_reverse():
    # DYN-2, DYN-12
    encoded = Encoder("here").encode(delta(plain=(route("a", PROD),), located=(route("b", PROD),)))
    plain, located = pb.DeltaDiscoveryResponse.FromString(encoded).resources
    assert (plain.name, plain.HasField("resource_name")) == ("a", False)
    assert (located.name, located.HasField("resource_name"), located.resource_name.name) == ("", True, "b")


def test_no_constraints_are_sent_as_none():
    # DYN-9, DYN-26
    encoded = Encoder("here").encode(delta(located=(route("b"),), withdrawn=(Absence("c", TRUE),)))
    found = pb.DeltaDiscoveryResponse.FromString(encoded)
    assert not found.resources[0].resource_name.HasField("dynamic_parameter_constraints")
    assert not found.removed_resource_names[0].HasField("dynamic_parameter_constraints")


@pytest.mark.parametrize("located", [True, False])
def test_aliases_and_other_fields_of_a_resource_are_sent_along(located):
    # DLT-20
    extras = pb.Resource(ttl=Duration(seconds=9), cache_control={"do_not_cache": True}).SerializeToString()
    made = route("a", aliases=["x", "y"], extras=extras)
    send = delta(located=(made,)) if located else delta(plain=(made,))
    (found,) = pb.DeltaDiscoveryResponse.FromString(Encoder("here").encode(send)).resources
    assert (made.aliases, list(found.aliases)) == (("x", "y"), ["x", "y"])
    assert (found.ttl.seconds, found.cache_control.do_not_cache) == (9, True)
    assert found.version == made.version != route("a").version


@pytest.mark.parametrize(("send", "kind"), [(delta(), pb.DeltaDiscoveryResponse), (sotw(), pb.DiscoveryResponse)])
def test_an_empty_response_still_has_type_version_nonce_and_identifier(send, kind):
    # WLD-10, SRV-8, SRV-20
    found = kind.FromString(Encoder("here").encode(send))
    version = found.system_version_info if send.delta else found.version_info
    assert (version, found.type_url, found.nonce) == (send.version, ROUTE, "1.rds")
    assert found.control_plane.identifier == "here"
    assert len(found.resources) == 0


def test_names_outside_ascii_survive():
    name = "k\u00f6nig/\u96ea"
    send = delta(plain=(route(name),), removed=(name,), withdrawn=(Absence(name, parse('"\u00e9"="\u96ea"')),))
    found = pb.DeltaDiscoveryResponse.FromString(Encoder("here").encode(send))
    assert found.resources[0].name == found.removed_resources[0] == found.removed_resource_names[0].name == name
    constraints = found.removed_resource_names[0].dynamic_parameter_constraints.constraint
    assert (constraints.key, constraints.value) == ("\u00e9", "\u96ea")


# -- each thing once


def test_a_variant_is_encoded_once_per_form_whatever_the_number_of_responses(monkeypatch):
    # DESIGN 9
    made: list[str] = []
    forms = {form: lambda v, f=form, e=encode: made.append(f) or e(v) for form, encode in codec._FORMS.items()}  # noqa: SLF001 # it counts how often each encodes
    monkeypatch.setattr(codec, "_FORMS", forms)
    one, encoders = route("a", PROD), [Encoder("here"), Encoder("there")]
    for encoder in encoders:
        for nonce in ("1", "2", "3"):
            encoder.encode(delta(nonce=nonce, plain=(one,)))
            encoder.encode(delta(nonce=nonce, located=(one,)))
            encoder.encode(sotw(nonce=nonce, plain=(one,)))
            encoder.encode(sotw(nonce=nonce, located=(one,)))
    assert sorted(made) == ["delta", "delta-located", "sotw", "sotw-located"]


def test_equal_responses_are_the_same_bytes_until_they_are_forgotten():
    # DESIGN 6.7, DESIGN 9
    encoder = Encoder("here")
    one = route("a")
    first = encoder.encode(delta(plain=(one,)))
    assert encoder.encode(delta(plain=(one,))) is first
    assert encoder.encode(delta(plain=(one,), nonce="2.rds")) != first
    assert encoder.encode(delta(plain=(one,))) is first
    encoder.forget()
    again = encoder.encode(delta(plain=(one,)))
    assert (again == first, again is first) == (True, False)


def test_responses_with_equal_words_but_other_variants_are_not_mixed_up():
    # DESIGN 9: equal sends are those with the same variant objects
    encoder = Encoder("here")
    old, new = route("a"), variant_of(RouteConfiguration(name="a", vhds={}))
    assert encoder.encode(delta(plain=(old,))) != encoder.encode(delta(plain=(new,)))
    assert encoder.encode(delta(plain=(old,))) != encoder.encode(delta(located=(old,)))
    assert encoder.encode(delta(removed=("a",))) != encoder.encode(delta(withdrawn=(Absence("a", TRUE),)))
    assert encoder.encode(delta()) != encoder.encode(sotw())


def test_the_responses_shared_within_a_turn_are_bounded(monkeypatch):
    # DESIGN 8
    monkeypatch.setattr(codec, "SHARED_BYTES", 1000)
    encoder = Encoder("here")
    for number in range(100):
        encoder.encode(delta(nonce=str(number), plain=(route(LONG),)))
        assert encoder.held <= 2000
    last = encoder.encode(delta(nonce="99", plain=()))
    assert encoder.encode(delta(nonce="99", plain=())) is last


# -- resources in


@pytest.mark.parametrize(
    ("message", "type_url", "name"),
    [
        (Cluster(name="a"), CLUSTER, "a"),
        (ClusterLoadAssignment(cluster_name="a"), ENDPOINT, "a"),
        (VirtualHost(name="main/shop"), VIRTUAL_HOST, "main/shop"),
        (TypedExtensionConfig(name="a"), PREFIX + "envoy.config.core.v3.TypedExtensionConfig", "a"),
    ],
)
def test_a_variant_has_the_type_name_and_bytes_of_its_message(message, type_url, name):
    made = variant_of(message, constraint=PROD, origin=Origin("x.yaml", 3))
    assert (made.type_url, made.name, made.constraint, made.origin) == (type_url, name, PROD, Origin("x.yaml", 3))
    assert type(message).FromString(made.body) == message


def test_the_bytes_of_a_message_do_not_depend_on_the_order_in_which_it_was_filled():
    # SRV-12
    one, other = (RouteConfiguration(name="a") for _ in range(2))
    for message, keys in ((one, "abcdefgh"), (other, "hgfedcba")):
        for key in keys:
            message.typed_per_filter_config[key].Pack(StringValue(value=key))
    assert variant_of(one).version == variant_of(other).version


def test_a_packed_message_is_taken_as_it_is_and_needs_a_name():
    packed = Any(type_url="type.example/Thing", value=b"\x00\xff")
    made = variant_of(packed, name="a")
    assert (made.type_url, made.name, made.body) == ("type.example/Thing", "a", b"\x00\xff")
    with pytest.raises(UsageError, match="Thing has no name"):
        variant_of(packed)


def test_a_message_has_one_name():
    assert variant_of(RouteConfiguration(), name="a").name == "a"
    assert variant_of(StringValue(value="x"), name="a").name == "a"
    with pytest.raises(UsageError, match="RouteConfiguration has no name"):
        variant_of(RouteConfiguration())
    with pytest.raises(UsageError, match="'a' and its contents 'b'"):
        variant_of(RouteConfiguration(name="b"), name="a")


@pytest.mark.parametrize(
    ("cluster", "warms"),
    [
        (Cluster(name="a", type=Cluster.EDS), "a"),
        (Cluster(name="a", type=Cluster.EDS, eds_cluster_config={"service_name": "svc"}), "svc"),
        (Cluster(name="a", type=Cluster.STATIC), None),
        (Cluster(name="a", type=Cluster.STRICT_DNS, eds_cluster_config={"service_name": "svc"}), None),
        (Cluster(name="a"), None),
        (Cluster(name="a", cluster_type={"name": "envoy.clusters.redis"}), None),
    ],
)
def test_a_cluster_knows_whose_endpoints_it_waits_for(cluster, warms):
    # ORD-11
    assert variant_of(cluster).warms == warms


def test_a_resource_and_its_aliases_have_the_canonical_spelling_of_their_names():
    # XTP-1: who asks by any spelling finds it
    base = "xdstp://x/envoy.config.route.v3.RouteConfiguration"
    made = route(f"{base}/%61?b=1&a=2", aliases=[f"{base}/%62"])
    assert (made.name, made.aliases) == (f"{base}/a?a=2&b=1", (f"{base}/b",))


@pytest.mark.parametrize(("kind", "inner"), [(Listener, "a"), (Cluster, "%61")])
def test_only_a_listener_has_the_canonical_spelling_inside_too(kind, inner):
    # XTP-1: Envoy removes a listener by the name outside; of others, other messages refer to the name inside (X5)
    base = f"xdstp://x/{kind.DESCRIPTOR.full_name}"
    made = variant_of(kind(name=f"{base}/%61"))
    assert (made.name, kind.FromString(made.body).name) == (f"{base}/a", f"{base}/{inner}")


def test_the_name_of_a_virtual_host_is_left_as_it_is():
    # VHD-2: its first part names a route configuration, and what follows it is no part of that
    name = "xdstp://x/envoy.config.route.v3.RouteConfiguration/%61/shop"
    assert variant_of(VirtualHost(name=name, domains=["*"])).name == name


@pytest.mark.parametrize("message", [Cluster(), VirtualHost(name="shop", domains=["*"])])
def test_a_resource_without_a_name_or_a_host_outside_a_route_configuration_is_refused(message):
    with pytest.raises(UsageError, match=r"has no name|<route configuration>/<virtual host>"):
        variant_of(message)


def test_a_message_of_v2_is_refused_and_the_error_names_the_type_of_v3():
    # VER-3
    with pytest.raises(UsageError, match=r"api\.v2\.Cluster is of xDS v2: give it as .*config\.cluster\.v3\.Cluster"):
        variant_of(Any(type_url="type.googleapis.com/envoy.api.v2.Cluster"), name="a")


@pytest.mark.parametrize("ttl", [0.0, -1.0, 1e12])
def test_a_ttl_out_of_range_is_refused(ttl: float):
    # TTL-2
    with pytest.raises(UsageError, match="it must be"):
        variant_of(Cluster(name="a"), ttl=ttl)


@pytest.mark.parametrize("ttl", [0.1, 315_576_000_000.0])
def test_the_shortest_and_the_longest_ttl_are_taken(ttl: float):
    # TTL-2
    assert variant_of(Cluster(name="a"), ttl=ttl).ttl == ttl


# -- long responses


def _long(kind: str) -> Send:
    names = [f"{number:01024}" for number in range(4_000)]
    absences = [Absence(name, TRUE) for name in names]
    variants = [make_variant(VIRTUAL_HOST, name, b"body") for name in names]
    fields: dict[str, tuple[object, ...]] = {
        "plain": (*variants,),
        "located": (*variants,),
        "removed": (*names,),
        "unresolved": (*names,),
        "withdrawn": (*absences,),
        "errors": tuple(ResourceError(absence, 5, "not found") for absence in absences),
    }
    return Send(VIRTUAL_HOST, True, "n", "7", **{kind: fields[kind]})  # type: ignore[arg-type] # as the kind has them


@pytest.mark.parametrize("kind", ["plain", "located", "removed", "unresolved", "withdrawn", "errors"])
def test_a_step_encodes_few_fields_of_a_long_response(kind: str) -> None:
    # OPS-10: seen by the memory that a step takes, of four megabytes in all
    send, encoder = _long(kind), Encoder("x")
    steps, taken = encoder.encoding(send), list[int]()
    tracemalloc.start()
    try:
        while len(taken) < 4_000 // EVERY:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            next(steps)
            taken.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert max(taken) < 1_000_000
    assert finish(steps).body == Encoder("x").encode(_long(kind))
