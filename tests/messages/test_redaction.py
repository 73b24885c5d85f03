"""Every field that may hold a secret, in every message type and form: what is shown of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from udpa.annotations import sensitive_pb2

from tests.cli.rig import run
from tests.support.resources import Document
from xdsprism.admin.bodies import redacted
from xdsprism.cli.documents import Documents
from xdsprism.core.model.steps import finish
from xdsprism.core.model.types import make_variant
from xdsprism.messages import redaction
from xdsprism.messages.descriptors import shipped
from xdsprism.messages.protos import find_message, pool, type_url
from xdsprism.messages.redaction import REDACTED, redact, redacted_bytes, redacting_bytes

MARK = "hunter2-hunter2"
CLUSTER = "envoy.config.cluster.v3.Cluster"
TYPED = "xds.type.v3.TypedStruct"
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

# What the protos do not mark: a token, a key, a password, or settings in which there are some.
UNMARKED = [
    "envoy.api.v2.core.GrpcService.GoogleGrpc.CallCredentials.GoogleIAMCredentials.authorization_token",
    "envoy.api.v2.core.GrpcService.GoogleGrpc.CallCredentials.access_token",
    "envoy.api.v2.core.GrpcService.GoogleGrpc.CallCredentials.google_refresh_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.GoogleIAMCredentials.authorization_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.ServiceAccountJWTAccessCredentials.json_key",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.access_token",
    "envoy.config.trace.v3.LightstepConfig.access_token",
    "envoy.extensions.filters.http.aws_lambda.v3.Credentials.secret_access_key",
    "envoy.extensions.filters.http.aws_lambda.v3.Credentials.session_token",
    "envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaClusterDefinition.producer_config",
    "envoy.extensions.grpc_service.call_credentials.google_iam.v3.GoogleIamCredentials.authorization_token",
    "envoy.extensions.grpc_service.call_credentials.google_refresh_token.v3.GoogleRefreshTokenCredentials.token",
    (
        "envoy.extensions.grpc_service.call_credentials.service_account_jwt_access.v3.ServiceAccountJwtAccessCredentials."
        "json_key"
    ),
    "envoy.extensions.stat_sinks.kafka.v3.KafkaStatsSinkConfig.producer_config",
    "envoy.extensions.wasm.v3.EnvironmentVariables.key_values",
]


def nested(descriptor: Descriptor) -> Iterator[Descriptor]:
    yield descriptor
    for inner in descriptor.nested_types:
        yield from nested(inner)


@cache
def marked() -> list[str]:
    """The full names of all fields that a proto marks as sensitive."""
    library = shipped()
    kinds = [
        find_message(f"{package}.{name}") for package in library.packages() for name in library.messages_of(package)
    ]
    every = [inner for kind in kinds if kind is not None for inner in nested(kind.DESCRIPTOR)]
    fields = [field for each in every for field in each.fields]
    return sorted({each.full_name for each in fields if each.GetOptions().Extensions[sensitive_pb2.sensitive]})


def make(name: str) -> Any:
    kind = find_message(name)
    assert kind is not None, name
    return kind()


def plant(message: Any, field: FieldDescriptor) -> None:
    """Write the mark wherever it goes in one field."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        values = getattr(message, field.name)
        inner = kind.fields_by_name["value"].message_type
        if inner is None:
            values["name"] = MARK
        else:
            fill(values["name"])
    elif kind is not None:
        target = getattr(message, field.name)
        fill(target.add() if field.is_repeated else target)
    elif field.is_repeated:
        getattr(message, field.name).append(MARK)
    else:
        setattr(message, field.name, MARK.encode() if field.type == FieldDescriptor.TYPE_BYTES else MARK)


def fill(message: Any) -> None:
    """Write the mark into a message of a sensitive field."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Any":
        message.type_url, message.value = (
            type_url(StringValue.DESCRIPTOR.full_name),
            StringValue(value=MARK).SerializeToString(),
        )
    elif name == "google.protobuf.Struct":
        message.update({"a": MARK, "b": [{"c": MARK}]})
    elif "inline_string" in message.DESCRIPTOR.fields_by_name:
        message.inline_string = MARK
    else:
        texts = [each for each in message.DESCRIPTOR.fields if each.type == FieldDescriptor.TYPE_STRING]
        assert texts, name
        plant(message, texts[0])


def planted(full_name: str) -> Message:
    owner, _, field = full_name.rpartition(".")
    message: Message = make(owner)
    plant(message, message.DESCRIPTOR.fields_by_name[field])
    assert MARK in str(message)
    return message


def packed(message: Message) -> Message:
    return any_of(type_url(message.DESCRIPTOR.full_name), message.SerializeToString())


def any_of(url: str, value: bytes) -> Message:
    made = make("google.protobuf.Any")
    made.type_url, made.value = url, value
    return made  # type: ignore[no-any-return]


def as_struct(message: Message) -> Any:
    """The same message, in a TypedStruct."""
    made = make(TYPED)
    made.type_url = type_url(message.DESCRIPTOR.full_name)
    made.value.update(MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool()))
    return made


def in_cluster(inner: Message) -> Message:
    cluster = make(CLUSTER)
    cluster.name = "shop"
    cluster.typed_extension_protocol_options["x"].CopyFrom(inner)
    return cluster  # type: ignore[no-any-return]


def forms(message: Message) -> dict[str, Message]:
    """The message as it is, and as it comes in other messages."""
    struct = as_struct(message)
    camel = make(TYPED)
    camel.type_url = struct.type_url
    camel.value.update(MessageToDict(message, descriptor_pool=pool()))
    twice = make(TYPED)
    twice.type_url = type_url(CLUSTER)
    inside = {"@type": type_url(TYPED), "type_url": struct.type_url, "value": MessageToDict(struct.value)}
    twice.value.update({"typed_extension_protocol_options": {"x": inside}})
    json_any = make(TYPED)
    json_any.type_url = type_url(CLUSTER)
    plain = {"@type": struct.type_url, **MessageToDict(struct.value)}
    json_any.value.update({"typed_extension_protocol_options": {"x": plain}})
    any_in_any = packed(packed(message))
    return {
        "alone": message,
        "packed": in_cluster(packed(message)),
        "packed twice": in_cluster(any_in_any),
        "as JSON": in_cluster(packed(struct)),
        "as JSON in camelCase": in_cluster(packed(camel)),
        "packed in JSON": in_cluster(packed(json_any)),
        "as JSON in JSON": in_cluster(packed(twice)),
    }


def shown(message: Message) -> dict[str, str]:
    """What each output has of a resource."""
    url, body = type_url(message.DESCRIPTOR.full_name), message.SerializeToString()
    return {
        "page": json.dumps(redacted(url, body)),
        "csds": str(redacted_bytes(url, body)),
        "get": json.dumps(Documents(secrets=False)(make_variant(url, "shop", body))),
    }


def printed(message: Message) -> str:
    url, body = type_url(message.DESCRIPTOR.full_name), message.SerializeToString()
    return json.dumps(Documents(secrets=True)(make_variant(url, "shop", body)))


def test_fields_that_are_marked_are_found() -> None:
    assert len(marked()) > 35
    assert not set(UNMARKED) & set(marked())


# OPS-14
def test_no_output_shows_what_is_in_a_field_that_a_proto_marks_as_sensitive() -> None:
    check(marked())


# OPS-14
def test_no_output_shows_tokens_that_no_proto_marks() -> None:
    check(UNMARKED)


# OPS-14
def test_in_steps_the_same_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long contents each part is looked at by itself."""
    monkeypatch.setattr(redaction, "SMALL", 0)
    for field in (*marked(), *UNMARKED):
        for form, message in forms(planted(field)).items():
            url, body = type_url(message.DESCRIPTOR.full_name), message.SerializeToString()
            assert finish(redacting_bytes(url, body)) == redacted_bytes(url, body), (field, form)


# OPS-6
def test_long_contents_are_looked_at_in_steps() -> None:
    endpoints = make("envoy.config.endpoint.v3.ClusterLoadAssignment")
    endpoints.cluster_name = "shop"
    locality = endpoints.endpoints.add()
    for number in range(2_000):
        locality.lb_endpoints.add().endpoint.address.socket_address.address = f"10.0.{number // 250}.{number % 250}"
    body = endpoints.SerializeToString()
    steps = redacting_bytes(type_url("envoy.config.endpoint.v3.ClusterLoadAssignment"), body)
    assert sum(1 for _ in steps) > 100
    assert finish(redacting_bytes("type.googleapis.com/acme.Widget", b"x" * 10_000)) == b""
    assert finish(redacting_bytes(type_url(CLUSTER), b"\xff" * 10_000)) == b""


def check(fields: list[str]) -> None:
    leaks = []
    for field in fields:
        for form, message in forms(planted(field)).items():
            assert MARK in str(message)
            leaks += [(field, form, where) for where, text in shown(message).items() if MARK in text]
        if ".v2" not in field:  # what v3 lacks of v2 is not printed at all
            assert MARK in printed(forms(planted(field))["packed"])
    assert leaks == []


# OPS-14
@pytest.mark.parametrize("name", ["Authorization", "cookie", "proxy-authorization", "X-Api-Key", "x-vault-token"])
@pytest.mark.parametrize("field", ["value", "raw_value"])
def test_a_header_that_lets_a_client_in_is_hidden(name: str, field: str) -> None:
    header = make("envoy.config.core.v3.HeaderValue")
    header.key = name
    setattr(header, field, MARK.encode() if field == "raw_value" else MARK)
    for form, message in forms(header).items():
        assert not [where for where, text in shown(message).items() if MARK in text], form
        assert name in shown(message)["page"]


def test_other_headers_are_shown() -> None:
    header = make("envoy.config.core.v3.HeaderValue")
    header.key, header.value = "x-env", MARK
    for form, message in forms(header).items():
        assert MARK in shown(message)["page"], form
        assert not redact(message), form


# OPS-14
@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN CERTIFICATE-----\nx\n-----BEGIN EC PRIVATE KEY-----\n{MARK}\n-----END EC PRIVATE KEY-----",
        f"http://user:{MARK}@proxy.example/",
    ],
)
def test_a_secret_in_a_field_for_something_else_is_hidden(text: str) -> None:
    chain = make("envoy.extensions.transport_sockets.tls.v3.TlsCertificate")
    chain.certificate_chain.inline_string = text
    raw = make("envoy.extensions.transport_sockets.tls.v3.TlsCertificate")
    raw.certificate_chain.inline_bytes = text.encode()
    metadata = make(CLUSTER)
    metadata.metadata.filter_metadata["a"].update({"b": [{"c": text}]})
    for message in (chain, raw, metadata):
        assert not any(MARK in value for value in shown(message).values())
        assert not any(MARK in value for value in shown(in_cluster(packed(message))).values())
    assert not any(MARK in value for value in shown(in_cluster(packed(as_struct(chain)))).values())


# OPS-14
def test_fields_that_the_protos_lack_are_hidden() -> None:
    """A newer version of a message may have a sensitive field that is unknown here."""
    newer = StringValue(value=MARK).SerializeToString().replace(b"\x0a", b"\xfa\x7f", 1)  # field 2047
    for message in (make(CLUSTER), in_cluster(packed(make(OPTIONS)))):
        extended = message.FromString(message.SerializeToString() + newer)
        assert MARK.encode() in extended.SerializeToString()
        assert not any(MARK in text for text in shown(extended).values())
    inner = any_of(type_url(OPTIONS), newer)
    assert not any(MARK in text for text in shown(in_cluster(inner)).values())
    struct = make(TYPED)
    struct.type_url = type_url("envoy.extensions.transport_sockets.tls.v3.TlsCertificate")
    struct.value.update({"pasword": {"inline_string": MARK}, "private_key": MARK, "certificate_chain": MARK})
    assert not any(MARK in text for text in shown(in_cluster(packed(struct))).values())


# OPS-14
def test_contents_of_types_that_nobody_knows_are_hidden() -> None:
    url, body = type_url("no.such.Type"), StringValue(value=MARK).SerializeToString()
    assert redacted_bytes(url, body) == b""
    assert redacted(url, body) == REDACTED
    document = Documents(secrets=False)(make_variant(url, "shop", body))
    assert document["resource"] == {"@type": url, "value": REDACTED}
    assert not any(MARK in text for text in shown(in_cluster(any_of(url, body))).values())


# -- errors

WRONG: list[Any] = [MARK, [MARK], {MARK: MARK}, {"inline_string": [MARK]}, {"inline_bytes": MARK}, {"x": {"y": MARK}}]


# OPS-14
def test_no_error_shows_what_is_in_a_sensitive_field(tmp_path: Path) -> None:
    documents: list[Document] = []
    for full_name in [*marked(), *UNMARKED]:
        owner, _, field = full_name.rpartition(".")
        if ".v2." in owner or ".v2alpha" in owner:
            continue
        for wrong in WRONG:
            if full_name.endswith(("secrets", "_config", "key_values", "context_extensions")) and MARK in wrong:
                continue  # a map: its keys are names
            for value in (wrong, [wrong]):
                inner = {"@type": type_url(owner), field: value}
                documents.append(
                    {
                        "@type": type_url(CLUSTER),
                        "name": f"c{len(documents)}",
                        "typed_extension_protocol_options": {"x": inner},
                    }
                )
    for document in documents:  # each in a file: only some problems of a file are told
        (tmp_path / f"{document['name']}.yaml").write_text(yaml.safe_dump(document))
    found = run("check", tmp_path)
    assert found.exit_code == 1
    assert len(found.stderr.splitlines()) > len(documents) / 2
    assert [line for line in found.stderr.splitlines() if MARK in line] == []


# OPS-14
@pytest.mark.parametrize("value", [4711000, True, ["4711000"], {"a": "4711000"}, "4711000\n"])
def test_no_error_shows_the_value_of_a_header(tmp_path: Path, value: Any) -> None:
    header = {"header": {"key": "authorization", "value": value}}
    kind = type_url("envoy.config.route.v3.RouteConfiguration")
    document = {"@type": kind, "name": "r", "request_headers_to_add": [header]}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(document))
    found = run("check", tmp_path)
    assert found.exit_code == 1
    assert "request_headers_to_add[0].header.value: " in found.stderr
    assert "4711000" not in found.stderr
    assert "true" not in found.stderr


# OPS-14
@pytest.mark.parametrize(
    "written",
    [
        f"*{MARK}",
        f"!{MARK} x",
        f"&{MARK} &b c",
        f"'{MARK}",
        f"{MARK}: b: c",
        f"@{MARK}",
        f"%{MARK}",
        f"`{MARK}",
        f"[{MARK}",
    ],
)
def test_no_error_about_yaml_shows_what_is_written_there(tmp_path: Path, written: str) -> None:
    head = "'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: s\n"
    (tmp_path / "all.yaml").write_text(f"{head}generic_secret:\n  secret:\n    inline_string: {written}\n")
    found = run("check", tmp_path)
    assert found.exit_code == 1
    assert MARK not in found.stderr
