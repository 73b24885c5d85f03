"""Bodies as proto3 JSON, and the secrets that pages hide."""

from __future__ import annotations

import base64
import json

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.config.core.v3.grpc_service_pb2 import GrpcService
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from google.protobuf.any_pb2 import Any
from google.protobuf.struct_pb2 import Struct
from xds.type.v3.typed_struct_pb2 import TypedStruct

from xdsprism import CLUSTER, SECRET
from xdsprism.admin.bodies import document_of, redacted

PASSWORD = "hunter2"
STRUCT = "type.googleapis.com/google.protobuf.Struct"


def _cluster() -> Cluster:
    context = UpstreamTlsContext(sni="example.com")
    certificate = context.common_tls_context.tls_certificates.add()
    certificate.certificate_chain.inline_string = "public"
    certificate.private_key.inline_string = PASSWORD
    certificate.password.inline_bytes = PASSWORD.encode()
    socket = TransportSocket(name="tls")
    socket.typed_config.Pack(context)
    cluster = Cluster(name="secure", transport_socket=socket)
    cluster.metadata.filter_metadata["x"].update({"a": [1, {"b": "c"}]})
    return cluster


def test_field_names_are_those_of_the_protos_and_nested_types_are_resolved():
    cluster = _cluster()
    document = document_of(CLUSTER, cluster.SerializeToString())
    assert document["@type"] == CLUSTER
    nested = document["transport_socket"]["typed_config"]
    assert nested["@type"].endswith("tls.v3.UpstreamTlsContext")
    assert nested["common_tls_context"]["tls_certificates"][0]["private_key"] == {"inline_string": PASSWORD}


def test_fields_that_the_protos_mark_as_sensitive_are_hidden_however_deep():
    document = redacted(CLUSTER, _cluster().SerializeToString())
    assert isinstance(document, dict)
    certificate = document["transport_socket"]["typed_config"]["common_tls_context"]["tls_certificates"][0]
    assert certificate["certificate_chain"] == {"inline_string": "public"}
    assert certificate["private_key"] == {"inline_string": "[redacted]"}
    assert PASSWORD not in json.dumps(document)
    assert "aHVudGVyMg==" not in json.dumps(document)
    assert document["metadata"]["filter_metadata"]["x"] == {"a": [1.0, {"b": "c"}]}


def test_a_secret_is_hidden_as_a_whole():
    secret = Secret(name="key")
    secret.generic_secret.secret.inline_string = PASSWORD
    assert redacted(SECRET, secret.SerializeToString()) == "[redacted]"


def test_a_body_that_can_not_be_parsed_is_base64_and_hidden_on_a_page():
    unknown = "type.googleapis.com/my.own.Thing"
    assert document_of(unknown, b"\x01\x02") == {"@type": unknown, "value": "AQI="}
    assert redacted(unknown, b"\x01\x02") == "[redacted]"
    assert document_of(CLUSTER, b"\xff") == {"@type": CLUSTER, "value": "/w=="}


def test_a_body_with_an_unknown_type_inside_is_base64_as_a_whole():
    socket = TransportSocket(name="own", typed_config=Any(type_url="type.googleapis.com/my.own.Thing", value=b"x"))
    body = Cluster(name="c", transport_socket=socket).SerializeToString()
    assert set(document_of(CLUSTER, body)) == {"@type", "value"}


def test_a_type_with_a_json_form_of_its_own_stands_under_value():
    struct = Struct()
    struct.update({"a": "b"})
    assert document_of(STRUCT, struct.SerializeToString()) == {"@type": STRUCT, "value": {"a": "b"}}


def _typed(kind: str, **fields: object) -> Cluster:
    config = TypedStruct(type_url=f"type.googleapis.com/{kind}")
    config.value.update(fields)
    socket = TransportSocket(name="tls")
    socket.typed_config.Pack(config)
    return Cluster(name="typed", transport_socket=socket)


def test_sensitive_fields_of_a_typed_struct_are_hidden():  # OPS-14
    certificates = [{"certificate_chain": {"inline_string": "public"}, "privateKey": {"inline_string": PASSWORD}}]
    cluster = _typed(UpstreamTlsContext.DESCRIPTOR.full_name, common_tls_context={"tls_certificates": certificates})
    text = json.dumps(redacted(CLUSTER, cluster.SerializeToString()))
    assert PASSWORD not in text
    assert "public" in text


def test_sensitive_fields_of_a_message_packed_in_a_typed_struct_are_hidden():  # OPS-14
    packed = {"@type": "type.googleapis.com/envoy.config.trace.v3.ClientConfig", "backend_token": PASSWORD}
    unknown = {"@type": "type.googleapis.com/my.own.Thing", "backend_token": PASSWORD}
    for config in (packed, unknown):
        cluster = _typed(TransportSocket.DESCRIPTOR.full_name, name="x", typed_config=config)
        assert PASSWORD not in json.dumps(redacted(CLUSTER, cluster.SerializeToString()))


def test_contents_of_types_that_are_not_installed_are_hidden_on_a_page():  # OPS-14
    socket = TransportSocket(name="own")
    socket.typed_config.type_url, socket.typed_config.value = "type.googleapis.com/my.own.Thing", PASSWORD.encode()
    body = Cluster(name="c", transport_socket=socket).SerializeToString()
    shown = redacted(CLUSTER, body)
    assert isinstance(shown, dict)
    assert PASSWORD.encode() not in base64.b64decode(shown["value"])
    assert PASSWORD not in json.dumps(redacted(CLUSTER, _typed("my.own.Thing", key=PASSWORD).SerializeToString()))


def test_tokens_that_their_protos_do_not_mark_are_hidden():  # OPS-14
    service = GrpcService()
    service.google_grpc.target_uri = "example.com"
    service.google_grpc.call_credentials.add(access_token=PASSWORD)
    shown = redacted("type.googleapis.com/envoy.config.core.v3.GrpcService", service.SerializeToString())
    assert PASSWORD not in json.dumps(shown)
    assert "example.com" in json.dumps(shown)


def test_a_secret_of_v2_is_hidden_too():  # OPS-14
    assert redacted("type.googleapis.com/envoy.api.v2.auth.Secret", b"") == "[redacted]"
