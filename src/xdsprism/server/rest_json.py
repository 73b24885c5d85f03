"""Discovery requests and responses as proto3 JSON, to and from what the engine has."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.json_format import ParseDict, ParseError

from ..core.codec.server_side import Encoder, sotw_forms
from ..core.model.events import Send
from ..core.model.types import Variant
from ..errors import PeerError
from ..messages.as_json import as_json
from ..messages.document import camel

SLICE = 0.005  # seconds of work before the loop may turn

# Of a node no more is read: Envoy's has 77 kB, of which all but one are a list of its extensions.
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
    """The same request as gRPC would bring it; proto and camelCase names are both fine (RST-1).

    Fields that are not known here are skipped, as they are in the binary form: the client may be newer. Raises
    PeerError.
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
    """What is packed into the details of an error may be of any type, and nobody reads it."""
    kept = dict(fields)
    node = kept.get("node")
    if isinstance(node, dict):
        kept["node"] = {key: node[key] for name in _NODE for key in {name, camel(name)} if key in node}
    for name in ("error_detail", "errorDetail"):
        if isinstance(kept.get(name), dict):
            kept[name] = {key: value for key, value in kept[name].items() if key != "details"}
    return kept


async def write_answer(send: Send, encoder: Encoder) -> bytes:
    """A few milliseconds at a time, so that streams are served in between. Raises UsageError."""
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
    """Written once for each form and version, as the bytes are that it is made of."""
    key = f"json-v2-{form}" if encoder.is_v2 else f"json-{form}"
    found = variant.frames.get(key)
    if found is None:
        (frame,) = encoder.frames((variant,), form)
        (resource,) = DiscoveryResponse.FromString(frame).resources
        found = json.dumps(as_json(resource), ensure_ascii=False).encode()
        variant.frames = {**variant.frames, key: found}
    return found
