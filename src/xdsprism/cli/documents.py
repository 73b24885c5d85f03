"""Turn resources from the wire into documents that `serve` can read (DESIGN 3)."""

from __future__ import annotations

from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import Resource
from google.protobuf.json_format import MessageToDict

from ..admin.bodies import document_of, shown_document
from ..core.codec.resources import name_of
from ..core.model.constraints import TRUE
from ..core.model.expr import show
from ..core.model.type_versions import RESOURCE
from ..core.model.types import TypeUrl, Variant
from ..messages.api_versions import to_v3
from ..messages.protos import find_message, type_name
from . import output as out


class Documents:
    """Makes documents of resources, with their secrets or without (OPS-14)."""

    def __init__(self, *, secrets: bool) -> None:
        self._secrets = secrets
        self._has_news = False  # whether a document lacked a secret, and that was not said yet
        self._was_told = False

    def __call__(self, variant: Variant) -> dict[str, Any]:
        """Return the resource itself if that is enough, else a discovery.Resource around it.

        Always in v3, whatever the server speaks, since `serve` reads nothing else (VER-4).
        """
        contents = to_v3(variant.type_url, variant.body)
        if self._secrets:
            return _document(variant, document_of(variant.type_url, contents))
        body, is_redacted = shown_document(variant.type_url, contents)
        self._has_news |= is_redacted
        return _document(variant, body)

    def tell(self) -> None:
        """Say once on stderr that secrets were left out, if any were."""
        if self._has_news and not self._was_told:
            self._was_told = True
            out.note(HINT)


HINT = "secrets are not shown: --show-secrets prints them"


def _document(variant: Variant, body: dict[str, Any]) -> dict[str, Any]:
    when = {"$when": show(variant.shown)} if variant.shown != TRUE else {}
    around = Resource.FromString(to_v3(RESOURCE, variant.extras))
    extras = MessageToDict(around, preserving_proto_field_name=True)
    if extras or _name_in(variant.type_url, variant.body) != variant.name:
        return {"@type": RESOURCE, **when, "name": variant.name, **extras, "resource": body}
    return {"@type": body.pop("@type"), **when, **body}


def columns(variant: Variant) -> tuple[str, str]:
    """Constraint and version. In SotW the version is that of the response: resources have none of their own there."""
    return show(variant.shown) if variant.shown != TRUE else "-", variant.version or "-"


def aliases(variant: Variant) -> str:
    """Aliases; for a virtual host, the hosts that it is known to serve."""
    return ",".join(variant.aliases) or "-"


def _name_in(type_url: TypeUrl, body: bytes) -> str:
    kind = find_message(type_name(type_url))
    return (name_of(kind.FromString(body)) or "") if kind is not None else ""
