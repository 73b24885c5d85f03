"""Resources as people read and write them: proto3 JSON with `@type`, field names as in the protos."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from udpa.annotations import sensitive_pb2

from ..core.types import SECRET, TypeUrl
from ..errors import UsageError
from ..messages.as_json import as_json
from ..messages.convert import has_own_form
from ..messages.protos import find_message, type_name

REDACTED = "[redacted]"  # as Envoy's config_dump says it


def document_of(type_url: TypeUrl, body: bytes) -> dict[str, Any]:
    """Decode a resource; one whose proto is not installed stays base64."""
    message = _decode(type_url, body)
    return _document(type_url, body, message)


def redacted(type_url: TypeUrl, body: bytes) -> dict[str, Any] | str:
    """The same for a page that anybody may see: no secrets, and no field that its proto marks as sensitive."""
    message = _decode(type_url, body)
    if type_url == SECRET or message is None:
        return REDACTED
    _visit(message, sensitive=False)
    return _document(type_url, message.SerializeToString(), message)


def _document(type_url: TypeUrl, body: bytes, message: Message | None) -> dict[str, Any]:
    opaque = {"@type": type_url, "value": base64.b64encode(body).decode()}
    if message is None:
        return opaque
    try:
        fields = as_json(message)
    except UsageError:  # something nested is of a type that is not installed
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


def _visit(message: Message, *, sensitive: bool) -> None:
    """Walk through everything nested, and hide what is sensitive."""
    if isinstance(message, AnyMessage):
        _visit_any(message, sensitive=sensitive)
        return
    for field, value in message.ListFields():
        marked = sensitive or field.GetOptions().Extensions[sensitive_pb2.sensitive]
        entries = field.message_type is not None and field.message_type.GetOptions().map_entry
        if entries:
            _visit_map(value, sensitive=marked)
        elif field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                _visit(item, sensitive=marked)
        elif marked:
            _hide(message, field)


def _visit_any(message: AnyMessage, *, sensitive: bool) -> None:
    inner = _decode(message.type_url, message.value)
    if inner is not None:
        _visit(inner, sensitive=sensitive)
        message.value = inner.SerializeToString()
    elif sensitive:
        message.Clear()


def _visit_map(values: Any, *, sensitive: bool) -> None:
    for key in list(values):
        if isinstance(values[key], Message):
            _visit(values[key], sensitive=sensitive)
        elif sensitive:
            del values[key]


def _hide(message: Message, field: Any) -> None:
    if field.cpp_type != field.CPPTYPE_STRING:
        message.ClearField(field.name)
        return
    hidden: Any = REDACTED.encode() if field.type == field.TYPE_BYTES else REDACTED
    setattr(message, field.name, hidden) if not field.is_repeated else _hide_each(getattr(message, field.name), hidden)


def _hide_each(values: Any, hidden: Any) -> None:
    values[:] = [hidden] * len(values)
