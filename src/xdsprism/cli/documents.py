"""Resources that came over the wire, as documents that `serve` reads back (DESIGN 3)."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from ..admin.bodies import document_of
from ..client.raw import Received
from ..core.codec import name_of
from ..core.constraints import TRUE
from ..core.expr import show
from ..core.twins import RESOURCE
from ..core.types import TypeUrl
from ..messages.protos import find_message, type_name


def name_in(type_url: TypeUrl, body: bytes) -> str:
    kind = find_message(type_name(type_url))
    return (name_of(kind.FromString(body)) or "") if kind is not None else ""


def document(received: Received) -> dict[str, Any]:
    """The resource itself where that says it all, else a discovery.Resource around it."""
    body = document_of(received.type_url, received.body)
    when = {"$when": show(received.constraint)} if received.constraint not in (None, TRUE) else {}
    extras = MessageToDict(received.extras, preserving_proto_field_name=True) if received.extras is not None else {}
    if extras or name_in(received.type_url, received.body) != received.name:
        return {"@type": RESOURCE, **when, "name": received.name, **extras, "resource": body}
    return {"@type": body.pop("@type"), **when, **body}
