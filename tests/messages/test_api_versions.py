"""Contents in the words of the other version: the type URLs inside, wherever they are."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any as AnyType

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.any_pb2 import Any
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from udpa.type.v1.typed_struct_pb2 import TypedStruct as OldTypedStruct
from xds.type.v3.typed_struct_pb2 import TypedStruct

from scripts.v2_fields import CHANGED
from tests.messages.samples import all_types, random_message
from tests.support.examples import examples
from xdsprism.core.model.types import CLUSTER, LISTENER, PREFIX
from xdsprism.messages.api_versions import MAX_DEPTH, to_v2, to_v3, v2_name, v3_name
from xdsprism.messages.protos import find_message

MANAGER_V2 = "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
ROUTER_V2 = "envoy.config.filter.http.router.v2.Router"
TLS_V2 = "envoy.api.v2.auth.UpstreamTlsContext"

# Its message has no annotation, but the same fields in both versions.
ALIKE = "envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker.id_based_broker_address_rewrite_spec"
REUSED = {f"{name}.{field}" for name, fields in CHANGED.items() for field in fields}


def pack(message: Message) -> Any:
    packed = Any()
    packed.Pack(message, deterministic=True)
    return packed


def url_of(message: Message) -> str:
    return PREFIX + message.DESCRIPTOR.full_name


def there(message: AnyType) -> AnyType:
    """What a client of v2 gets, read with the classes of v3."""
    return type(message).FromString(to_v2(url_of(message), message.SerializeToString(deterministic=True)))


def name(packed: Any) -> str:
    return packed.type_url.removeprefix(PREFIX)


def listener(*filters: Message) -> Listener:
    manager = HttpConnectionManager(stat_prefix="x")
    for each in filters:
        manager.http_filters.add(name="f").typed_config.CopyFrom(pack(each))
    made = Listener(name="a")
    made.filter_chains.add().filters.add(name="hcm").typed_config.CopyFrom(pack(manager))
    return made


# -- where type URLs are


def test_an_any_inside_an_any_is_converted_and_its_contents_stay():
    # VER-4
    old = there(listener(Router(start_child_span=True)))
    packed = old.filter_chains[0].filters[0].typed_config
    assert name(packed) == MANAGER_V2
    inner = HttpConnectionManager.FromString(packed.value).http_filters[0].typed_config
    assert name(inner) == ROUTER_V2
    assert Router.FromString(inner.value) == Router(start_child_span=True)


def test_an_api_listener_is_converted():
    """What gRPC reads; its v2 clients know the connection manager by its v2 name."""
    # VER-4
    made = Listener(name="svc")
    made.api_listener.api_listener.CopyFrom(pack(HttpConnectionManager()))
    assert name(there(made).api_listener.api_listener) == MANAGER_V2


def test_maps_and_lists_are_converted_each_part():
    # VER-4
    made = Cluster(name="a")
    for key in ("x", "y"):
        made.typed_extension_protocol_options[key].CopyFrom(pack(UpstreamTlsContext(sni=key)))
        match = made.transport_socket_matches.add(name=key)
        match.transport_socket.typed_config.CopyFrom(pack(UpstreamTlsContext(sni=key)))
    old = there(made)
    assert {key: name(each) for key, each in old.typed_extension_protocol_options.items()} == {"x": TLS_V2, "y": TLS_V2}
    assert [name(each.transport_socket.typed_config) for each in old.transport_socket_matches] == [TLS_V2] * 2
    assert UpstreamTlsContext.FromString(old.typed_extension_protocol_options["y"].value).sni == "y"


def test_an_any_in_an_any_as_such_is_converted():
    # VER-4
    made = TypedExtensionConfig(name="a", typed_config=pack(pack(pack(Router()))))
    once = Any.FromString(there(made).typed_config.value)
    assert name(Any.FromString(once.value)) == ROUTER_V2


@pytest.mark.parametrize("kind", [TypedStruct, OldTypedStruct])
def test_the_type_that_a_typed_struct_names_is_converted(kind: AnyType):
    # VER-4
    struct = kind(type_url=url_of(Router()))
    struct.value["start_child_span"] = True
    old = there(TypedExtensionConfig(name="a", typed_config=pack(struct))).typed_config
    assert name(old) == kind.DESCRIPTOR.full_name  # it has no twin
    assert kind.FromString(old.value) == kind(type_url=PREFIX + ROUTER_V2, value={"start_child_span": True})


def test_the_prefix_of_a_type_url_stays():
    # VER-4
    made = TypedExtensionConfig(
        typed_config=Any(type_url="acme.example/envoy.extensions.filters.http.router.v3.Router")
    )
    assert there(made).typed_config.type_url == f"acme.example/{ROUTER_V2}"


# -- what stays as it is


def test_contents_without_type_urls_are_the_same_object():
    # VER-2
    body = Cluster(name="a", alt_stat_name="envoy").SerializeToString()
    assert to_v2(CLUSTER, body) is body


def test_contents_with_names_of_v3_alone_are_not_parsed_on_the_way_back(monkeypatch: pytest.MonkeyPatch):
    # PRX-36: every resource that passes through a relay comes this way
    body = listener(Router()).SerializeToString()
    monkeypatch.setattr("xdsprism.messages.api_versions.find_message", lambda _: pytest.fail("parsed"))
    assert to_v3(LISTENER, body) is body


@pytest.mark.parametrize(
    "packed",
    [
        pack(HttpProtocolOptions()),
        Any(type_url=PREFIX + "envoy.nobody.has.This", value=b"\n\x01x"),
        Any(type_url="/envoy.", value=b"x"),
        Any(type_url="envoy.extensions.filters.http.router.v3.Router"),
        pack(find_message("envoy.extensions.load_balancing_policies.subset.v3.Subset")()),
    ],
    ids=["no twin", "unknown", "no name", "no authority", "moved within v3"],
)
def test_a_type_without_a_twin_stays(packed: Any):
    # VER-4
    made = TypedExtensionConfig(name="a", typed_config=packed)
    body = made.SerializeToString(deterministic=True)
    assert to_v2(url_of(made), body) is body


def test_inside_a_type_without_a_twin_the_others_are_converted():
    # VER-4
    inner = TypedExtensionConfig(name="b", typed_config=pack(Router()))
    old = there(TypedExtensionConfig(name="a", typed_config=pack(inner)))
    assert name(old.typed_config) == inner.DESCRIPTOR.full_name
    assert name(TypedExtensionConfig.FromString(old.typed_config.value).typed_config) == ROUTER_V2


@pytest.mark.parametrize("type_url", [LISTENER, PREFIX + "nobody.has.This", ""])
def test_undecodable_contents_stay_unchanged(type_url: str):
    # VER-4
    body = b"\xff/envoy.\xff"
    assert to_v2(type_url, body) is body


def test_contents_of_an_any_that_can_not_be_read_stay_under_the_converted_name():
    # VER-4
    broken = Any(type_url=url_of(Router()), value=b"\xff/envoy.\xff")
    old = there(TypedExtensionConfig(typed_config=broken)).typed_config
    assert (name(old), old.value) == (ROUTER_V2, broken.value)


def test_anys_in_each_other_without_end_are_converted_down_to_a_depth():
    # VER-4, OPS-10
    made: Message = Router()
    for _ in range(5_000):
        made = pack(made)
    old = there(TypedExtensionConfig(typed_config=made))
    assert old == TypedExtensionConfig(typed_config=made)
    made = Router()
    for _ in range(MAX_DEPTH - 2):
        made = pack(made)
    assert there(TypedExtensionConfig(typed_config=pack(made))) != TypedExtensionConfig(typed_config=pack(made))


# -- every type


@cache
def annotated() -> tuple[Descriptor, ...]:
    return tuple(each for each in all_types() if v2_name(each.full_name))


def test_a_misprint_in_the_protos_is_put_right():
    # VER-4
    assert v2_name(ExtAuthz.DESCRIPTOR.full_name) == "envoy.config.filter.http.ext_authz.v2.ExtAuthz"


def test_every_name_leads_back():
    # VER-4
    names = {each.full_name: v2_name(each.full_name) or "" for each in annotated()}
    assert len(names) > 500
    assert [new for new, old in names.items() if v3_name(old) != new] == []


def test_a_message_that_never_was_in_v2_keeps_its_name():
    """Its proto says that it was; nobody could read it by that name, nor find the way back."""
    # VER-4
    assert v2_name("envoy.admin.v3.EcdsConfigDump") is None
    assert find_message("envoy.admin.v2alpha.EcdsConfigDump") is None


def test_a_name_of_v3_leads_nowhere_further():
    # VER-4
    assert v3_name(Router.DESCRIPTOR.full_name) is None
    assert v3_name("nobody.has.This") is None
    assert v2_name(ROUTER_V2) is None


def test_fields_that_both_versions_have_are_one_on_the_wire():
    # VER-2: "same payload bytes"
    differ = set()
    for new in annotated():
        old = find_message(v2_name(new.full_name) or "")
        for field in old.DESCRIPTOR.fields if old else ():
            twin = new.fields_by_number.get(field.number)
            if twin is not None and shape(twin) != shape(field):
                differ.add(twin.full_name)
    assert differ == REUSED | {ALIKE}


def shape(field: AnyType) -> tuple[object, ...]:
    kind = field.message_type
    if kind is None:
        return field.type, field.is_repeated
    if kind.GetOptions().map_entry:
        return "map", *[shape(each) for each in kind.fields]
    return field.is_repeated, v2_name(kind.full_name) or kind.full_name


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_converting_to_v2_and_back_loses_nothing(seed: int):
    # VER-4
    message = random_message(Random(seed))
    body = message.SerializeToString(deterministic=True)
    old = to_v2(url_of(message), body)
    kind = type(message)
    back = kind.FromString(to_v3(url_of(message), old))
    once = to_v3(url_of(message), body)  # random contents have types of v2 in them, too
    assert back == kind.FromString(once)
    assert to_v2(url_of(message), old) is old
