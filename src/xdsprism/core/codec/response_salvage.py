"""Read a response that has parts which protobuf refuses, and keep all other parts (NAK-18).

protobuf refuses a whole message for one part of it: for constraints or metadata that are nested too deep, or for a name
that is not UTF-8. A control plane sends what many authors gave it. If the client ended the stream for one resource, its
author could keep all others from being updated. So a response that protobuf refuses is read once more, as a message
whose parts are declared as bytes. The parts that can't be read are cut out, and make the response a NACK.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import DecodeError

from .salvage import forms, is_utf8

# Field numbers of discovery.proto. Other fields are kept as unknown ones.
_FORMS = forms(
    delta=(("resources", 2, True), ("removed", 6, True), ("withdrawn", 8, True), ("errors", 9, True)),
    sotw=(("resources", 2, True), ("errors", 7, True)),
    resource=(("name", 3, False), ("resource_name", 8, False)),
    resource_name=(("name", 1, False),),
    error=(("resource_name", 1, False),),
)


class Unreadable(NamedTuple):
    """A part of a response that protobuf refuses, and the name in it; empty if that can't be read either."""

    name: str
    reason: str


def salvaged_response(message: bytes, *, delta: bool) -> tuple[Any, list[Unreadable]]:
    """Return the response without its unreadable parts, and those. Raise DecodeError if it is no response at all."""
    raw = _FORMS["delta" if delta else "sotw"].FromString(message)
    unreadable: list[Unreadable] = []
    _keep(raw.resources, pb.Resource if delta else AnyProto, "resource" if delta else "", "it", unreadable)
    _keep(raw.errors, pb.ResourceError, "error", "its error", unreadable)
    if delta:
        _keep(raw.withdrawn, pb.ResourceName, "resource_name", "its removal", unreadable)
        names = [name for name in raw.removed if is_utf8(name)]
        if len(names) < len(raw.removed):
            unreadable.append(Unreadable("", "a removal of a name that is not UTF-8"))
            raw.removed[:] = names
    form = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
    return form.FromString(raw.SerializeToString()), unreadable


def _keep(payloads: Any, kind: Any, form: str, what: str, unreadable: list[Unreadable]) -> None:
    """Remove the payloads that are no messages of this kind, and note their names."""
    good: list[bytes] = []
    for payload in payloads:
        try:
            kind.FromString(payload)
        except DecodeError as error:
            unreadable.append(Unreadable(_name_in(payload, form), f"{what} can't be decoded: {error}"))
        else:
            good.append(payload)
    if len(good) < len(payloads):
        payloads[:] = good


def _name_in(payload: bytes, form: str) -> str:
    """Return the name in a part that can't be decoded, as far as it can be read."""
    if not form:
        return ""
    try:
        part = _FORMS[form].FromString(payload)
        name: bytes = getattr(part, "name", b"")
        if not name and form != "resource_name":
            name = _FORMS["resource_name"].FromString(part.resource_name).name
    except DecodeError:
        return ""
    return name.decode(errors="replace")
