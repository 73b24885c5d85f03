"""Decides which fields hold secrets, and removes the values of such fields from the texts of faults (OPS-14)."""

from __future__ import annotations

import re

from google.protobuf.descriptor import FieldDescriptor
from udpa.annotations import sensitive_pb2

from .document import Path

# Tokens, keys and passwords that the protos do not mark as sensitive.
_GOOGLE = ("envoy.config.core.v3.GrpcService.GoogleGrpc.", "envoy.api.v2.core.GrpcService.GoogleGrpc.")
_CALLS = "envoy.extensions.grpc_service.call_credentials."
_UNMARKED = frozenset(
    {
        *(f"{package}CallCredentials.access_token" for package in _GOOGLE),
        *(f"{package}CallCredentials.google_refresh_token" for package in _GOOGLE),
        *(f"{package}CallCredentials.ServiceAccountJWTAccessCredentials.json_key" for package in _GOOGLE),
        *(f"{package}CallCredentials.GoogleIAMCredentials.authorization_token" for package in _GOOGLE),
        f"{_CALLS}access_token.v3.AccessTokenCredentials.token",
        f"{_CALLS}google_iam.v3.GoogleIamCredentials.authorization_token",
        f"{_CALLS}google_refresh_token.v3.GoogleRefreshTokenCredentials.token",
        f"{_CALLS}service_account_jwt_access.v3.ServiceAccountJwtAccessCredentials.json_key",
        "envoy.config.trace.v3.LightstepConfig.access_token",
        "envoy.extensions.filters.http.api_key_auth.v3.Credential.key",
        "envoy.extensions.filters.http.aws_lambda.v3.Credentials.secret_access_key",
        "envoy.extensions.filters.http.aws_lambda.v3.Credentials.session_token",
        # Settings of Kafka's library, passwords among them, and what a Wasm program gets for its environment.
        "envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaClusterDefinition.producer_config",
        "envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaClusterDefinition.consumer_config",
        "envoy.extensions.stat_sinks.kafka.v3.KafkaStatsSinkConfig.producer_config",
        "envoy.extensions.wasm.v3.EnvironmentVariables.key_values",
        "envoy.service.redis_auth.v3.RedisProxyExternalAuthRequest.password",
    }
)

# A header that is added to requests, and the names of those that let a client in.
_HEADERS = frozenset({"envoy.config.core.v3.HeaderValue", "envoy.api.v2.core.HeaderValue"})
_CREDENTIALS = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "private-token",
        "proxy-authorization",
        "set-cookie",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-goog-api-key",
        "x-vault-token",
    }
)

# A private key in any field, or a password in a URL.
_SECRET_TEXT = re.compile(r"PRIVATE KEY-----|://[^/\s:@]*:[^/\s@]+@")
_SECRET_BYTES = re.compile(rb"PRIVATE KEY-----|://[^/\s:@]*:[^/\s@]+@")

# Keys of metadata whose values are secrets, such as API_KEY, and values that let somebody in: a JWT, a bearer token.
_SECRET_KEY = re.compile(
    r"(?i:passw(or)?d|passphrase|secret|token|credential|cookie|authorization|(api|access|private|signing)[-_. ]?key)"
)
_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.|(?i:\b(bearer|basic) +[\w+/=.-]{8,})")

# Texts of convert.py that contain no value, only names of types and fields, and texts without the value by now.
_EXPECTED = r"expected (?:(?!, got ).)+, got "
_HARMLESS = re.compile(
    rf"{_EXPECTED}(?:a mapping|a list|null|a string|a number|a boolean)"
    "|expected base64|no such field|can't be set together|given twice|needs an|does not fit"
)
_NO_FIELD = re.compile("no such field|a key must be a string")
_WITH_VALUE = re.compile(rf"({_EXPECTED})the (string|number|boolean) ")


def is_sensitive(field: FieldDescriptor) -> bool:
    """Whether the protos, or the list above, mark a field as sensitive."""
    return field.GetOptions().Extensions[sensitive_pb2.sensitive] or field.full_name in _UNMARKED


def is_credential(field: FieldDescriptor, name: str) -> bool:
    """Whether a field is the value of a header `name` that lets a client in, such as Authorization."""
    return _is_header_value(field) and name.lower() in _CREDENTIALS


def _is_header_value(field: FieldDescriptor) -> bool:
    owner = field.containing_type
    return owner is not None and owner.full_name in _HEADERS and field.name != "key"


def is_secret_text(text: str | bytes) -> bool:
    """Whether a text is a secret wherever it is written: it has a private key, or a URL with a password."""
    return bool(_SECRET_TEXT.search(text) if isinstance(text, str) else _SECRET_BYTES.search(text))


def is_secret_metadata(key: str, value: str) -> bool:
    """Whether an entry of a node's metadata looks like a secret: by its key, or by its value.

    Metadata is free text of a client's author, and other clients may be shown it.
    """
    return bool(_SECRET_KEY.search(key) or _TOKEN.search(value)) or is_secret_text(value)


def may_hold_a_secret(field: FieldDescriptor) -> bool:
    """Whether a field is sensitive, is the value of any header, or contains a sensitive field directly.

    In `generic_secret: hunter2` an author has written the secret one level too high.
    """
    inside = field.message_type.fields if field.message_type is not None else ()
    return is_sensitive(field) or _is_header_value(field) or any(map(is_sensitive, inside))


def without_key(path: Path, fault: str) -> Path:
    """Return the path of a fault without its last step, if that is no field: it may be a secret in the wrong place."""
    return path[:-1] if path and _NO_FIELD.match(fault) else path


def without_value(fault: str) -> str:
    """Return the text of a fault without the value: only which kind of value was expected, and which was found."""
    if _HARMLESS.match(fault):
        return fault
    found = _WITH_VALUE.match(fault)
    if found is None:
        return "does not fit; the value is not shown, as the field is sensitive"
    return f"{found[1]}a {found[2]}{'; quote it' if fault.endswith('; quote it') else ''}"
