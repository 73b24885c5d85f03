"""Messages as proto3 JSON, field names as in the protos."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError, Message

from ..errors import UsageError
from .nested import ANY, typed_parts
from .protos import find_message, type_name


def as_json(message: Message) -> dict[str, Any]:
    """Raises UsageError where JSON can't say it: something packed inside is of no installed type, or is broken."""
    _know(message)
    try:
        fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    except (TypeError, ValueError, DecodeError, RecursionError, SerializeToJsonError) as error:
        raise UsageError(f"{message.DESCRIPTOR.full_name} can't be written as JSON: {error}") from error
    return fields


def _know(message: Message) -> None:
    """Import the protos of all that is packed inside: the writer looks for them among those that are there."""
    waiting = [message]
    while waiting:
        each: Any = waiting.pop()
        if each.DESCRIPTOR.full_name != ANY:
            waiting += typed_parts(each)
            continue
        kind = find_message(type_name(each.type_url))
        with suppress(DecodeError):  # the writer will say so
            waiting += [kind.FromString(each.value)] if kind is not None else []
