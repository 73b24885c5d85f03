"""Converts a message to proto3 JSON, with the field names as the protos spell them."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError, Message

from ..errors import UsageError
from .protos import pool


def as_json(message: Message) -> dict[str, Any]:
    """Convert a message to JSON. Raises UsageError if an Any in it is of an unknown type, or can't be decoded."""
    try:
        fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool())
    except (TypeError, ValueError, DecodeError, RecursionError, SerializeToJsonError) as error:
        raise UsageError(f"{message.DESCRIPTOR.full_name} can't be written as JSON: {error}") from error
    return fields
