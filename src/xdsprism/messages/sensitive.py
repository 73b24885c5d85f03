"""Decides which fields hold secrets, and removes the values of such fields from the texts of faults (OPS-14)."""

from __future__ import annotations

import re

from google.protobuf.descriptor import FieldDescriptor
from udpa.annotations import sensitive_pb2

# Tokens and keys that the protos do not mark as sensitive.
_GOOGLE = "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials."
_UNMARKED = frozenset(
    {
        _GOOGLE + "access_token",
        _GOOGLE + "google_refresh_token",
        _GOOGLE + "ServiceAccountJWTAccessCredentials.json_key",
        "envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials.token",
    }
)

# Texts of convert.py that contain no value, only names of types and fields, and texts without the value by now.
_EXPECTED = r"expected (?:(?!, got ).)+, got "
_HARMLESS = re.compile(
    rf"{_EXPECTED}(?:a mapping|a list|null|a string|a number|a boolean)"
    "|expected base64|no such field|can't be set together|given twice|needs an|does not fit"
)
_WITH_VALUE = re.compile(rf"({_EXPECTED})the (string|number|boolean) ")


def is_sensitive(field: FieldDescriptor) -> bool:
    """Whether the protos, or the list above, mark a field as sensitive."""
    return field.GetOptions().Extensions[sensitive_pb2.sensitive] or field.full_name in _UNMARKED


def may_hold_a_secret(field: FieldDescriptor) -> bool:
    """Whether a field is sensitive, or contains a sensitive field directly.

    In `generic_secret: hunter2` an author has written the secret one level too high.
    """
    inside = field.message_type.fields if field.message_type is not None else ()
    return is_sensitive(field) or any(map(is_sensitive, inside))


def without_value(fault: str) -> str:
    """Return the text of a fault without the value: only which kind of value was expected, and which was found."""
    if _HARMLESS.match(fault):
        return fault
    found = _WITH_VALUE.match(fault)
    if found is None:
        return "does not fit; the value is not shown, as the field is sensitive"
    return f"{found[1]}a {found[2]}{'; quote it' if fault.endswith('; quote it') else ''}"
