"""Decode resources into the classes that programs import."""

from __future__ import annotations

from functools import lru_cache
from typing import Any as AnyType

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from ..core.model.types import LB_ENDPOINT_COLLECTION, TypeUrl
from .installed import installed_class
from .protos import find_message, type_name


def decoded(type_url: TypeUrl, body: bytes) -> AnyType:
    """Decode a resource that was checked before into the class that the program imports; an unknown one into an Any."""
    kind = class_of(type_url)
    return kind.FromString(body) if kind is not None else Any(type_url=type_url, value=body)


@lru_cache(maxsize=256)
def class_of(type_url: TypeUrl) -> type[Message] | None:
    """Return the class that programs import, or the one of our own pool if there is none.

    The field `entries` of LbEndpointCollection was one message at first (envoy#38777) and is a list now (envoy#45764).
    With an xds-protos in which it is one message, all entries but the last would be lost.
    """
    name = type_name(type_url)
    return find_message(name) if type_url == LB_ENDPOINT_COLLECTION else installed_class(name) or find_message(name)
