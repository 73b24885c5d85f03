"""Messages as proto3 JSON, field names as in the protos."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError, Message

from ..errors import UsageError
from .protos import pool


def as_json(message: Message) -> dict[str, Any]:
    """Raises UsageError where JSON can't say it: something packed inside is of no installed type, or is broken."""
    try:
        fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool())
    except (TypeError, ValueError, DecodeError, RecursionError, SerializeToJsonError) as error:
        raise UsageError(f"{message.DESCRIPTOR.full_name} can't be written as JSON: {error}") from error
    return fields
