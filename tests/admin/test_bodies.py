"""Bodies as proto3 JSON, and what is hidden in them on a page that anybody may see."""

from __future__ import annotations

import json

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from google.protobuf.any_pb2 import Any
from google.protobuf.struct_pb2 import Struct

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


def test_of_a_secret_nothing_is_shown():
    secret = Secret(name="key")
    secret.generic_secret.secret.inline_string = PASSWORD
    assert redacted(SECRET, secret.SerializeToString()) == "[redacted]"


def test_what_can_not_be_read_is_base64_and_on_a_page_hidden():
    unknown = "type.googleapis.com/my.own.Thing"
    assert document_of(unknown, b"\x01\x02") == {"@type": unknown, "value": "AQI="}
    assert redacted(unknown, b"\x01\x02") == "[redacted]"
    assert document_of(CLUSTER, b"\xff") == {"@type": CLUSTER, "value": "/w=="}


def test_an_unknown_type_inside_makes_the_whole_opaque():
    socket = TransportSocket(name="own", typed_config=Any(type_url="type.googleapis.com/my.own.Thing", value=b"x"))
    body = Cluster(name="c", transport_socket=socket).SerializeToString()
    assert set(document_of(CLUSTER, body)) == {"@type", "value"}


def test_a_type_with_a_json_form_of_its_own_stands_under_value():
    struct = Struct()
    struct.update({"a": "b"})
    assert document_of(STRUCT, struct.SerializeToString()) == {"@type": STRUCT, "value": {"a": "b"}}
