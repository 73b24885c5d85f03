"""Converts discovery requests from proto3 JSON, and responses to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.json_format import ParseDict, ParseError

from ..core.codec.server_responses import Encoder, sotw_forms
from ..core.model.events import Send
from ..core.model.types import Variant
from ..errors import PeerError
from ..messages.as_json import as_json
from ..messages.document import camel

SLICE = 0.005  # seconds of work before the event loop gets a turn

# The fields of a node that are read. Envoy's node has 77 kB, nearly all of it a list of its extensions.
_NODE = (
    "id",
    "cluster",
    "locality",
    "user_agent_name",
    "user_agent_version",
    "user_agent_build_version",
    "metadata",
    "client_features",
)


def read_request(text: bytes) -> bytes:
    """Convert a JSON request to the bytes that gRPC would carry; field names may be proto or camelCase (RST-1).

    Unknown fields are skipped, as they are in the binary form: the client may be newer. Raises PeerError.
    """
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise PeerError("INVALID_ARGUMENT", "a DiscoveryRequest is a JSON object")
        request = ParseDict(_relevant(fields), DiscoveryRequest(), ignore_unknown_fields=True)
        return bytes(request.SerializeToString())
    except (ParseError, ValueError, RecursionError) as error:
        raise PeerError("INVALID_ARGUMENT", f"not a DiscoveryRequest in JSON: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _relevant(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what the server does not read: most of the node, and error details, whose Any may have unknown types."""
    kept = dict(fields)
    node = kept.get("node")
    if isinstance(node, dict):
        kept["node"] = {key: node[key] for name in _NODE for key in {name, camel(name)} if key in node}
    for name in ("error_detail", "errorDetail"):
        if isinstance(kept.get(name), dict):
            kept[name] = {key: value for key, value in kept[name].items() if key != "details"}
    return kept


async def write_answer(send: Send, encoder: Encoder) -> bytes:
    """Encode a response as JSON, in slices of SLICE seconds, so that streams are served between. Raises UsageError."""
    bare = replace(send, plain=(), located=(), beats=(), located_beats=())
    head = json.dumps(as_json(DiscoveryResponse.FromString(encoder.encode(bare))), ensure_ascii=False)
    parts: list[bytes] = []
    until = time.perf_counter() + SLICE
    for variants, form in sotw_forms(send):
        for variant in variants:
            parts.append(_resource(variant, form, encoder))
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE
    return b'%s, "resources": [%s]}' % (head[:-1].encode(), b", ".join(parts))


def _resource(variant: Variant, form: str, encoder: Encoder) -> bytes:
    """Encode one resource as JSON, once for each form and API version: the variant keeps the text."""
    key = f"json-v2-{form}" if encoder.is_v2 else f"json-{form}"
    found = variant.frames.get(key)
    if found is None:
        (frame,) = encoder.frames((variant,), form)
        (resource,) = DiscoveryResponse.FromString(frame).resources
        found = json.dumps(as_json(resource), ensure_ascii=False).encode()
        variant.frames = {**variant.frames, key: found}
    return found
