"""Converts resources to proto3 JSON with `@type`, with or without secrets; fields are named as in the protos."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.message import DecodeError, Message

from ..core.model.type_versions import as_v3
from ..core.model.types import SECRET, TypeUrl
from ..errors import UsageError
from ..messages.as_json import as_json
from ..messages.convert import has_own_form
from ..messages.protos import find_message, type_name
from ..messages.redaction import REDACTED, redact


def document_of(type_url: TypeUrl, body: bytes) -> dict[str, Any]:
    """Convert a resource to JSON; the contents of a resource of an unknown type stay base64."""
    message = _decode(type_url, body)
    return _document(type_url, body, message)


def shown_document(type_url: TypeUrl, body: bytes) -> tuple[dict[str, Any], bool]:
    """Convert a resource to JSON without its secrets, and say whether it had any; one of an unknown type is one."""
    message = _decode(type_url, body)
    if message is None:
        return {"@type": type_url, "value": REDACTED}, True
    found = redact(message)
    return _document(type_url, message.SerializeToString(), message), found


def redacted(type_url: TypeUrl, body: bytes) -> dict[str, Any] | str:
    """Convert a resource to JSON without secrets and without fields that the protos mark as sensitive."""
    message = _decode(type_url, body)
    if as_v3(type_url) == SECRET or message is None:
        return REDACTED
    redact(message)
    return _document(type_url, message.SerializeToString(), message)


def _document(type_url: TypeUrl, body: bytes, message: Message | None) -> dict[str, Any]:
    """Write a message as JSON, or as base64 if JSON can't express it."""
    opaque = {"@type": type_url, "value": base64.b64encode(body).decode()}
    if message is None:
        return opaque
    try:
        fields = as_json(message)
    except UsageError:  # an Any in it is of an unknown type
        return opaque
    if has_own_form(message.DESCRIPTOR.full_name):
        return {"@type": type_url, "value": fields}
    return {"@type": type_url, **fields}


def _decode(type_url: TypeUrl, body: bytes) -> Message | None:
    kind = find_message(type_name(type_url))
    try:
        return kind.FromString(body) if kind is not None else None
    except DecodeError:
        return None
