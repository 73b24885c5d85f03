"""What a relay thinks of the resources that it passes on: nothing, unless it is told to."""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from ..core.codec.client_side import Check, Checked
from ..core.codec.server_side import name_of
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TypeUrl
from ..errors import show_path
from ..messages.protos import find_message, type_name
from ..messages.validation import Validate, errors_in, is_for_grpc
from ..observe.logs import log

REMEMBERED = 10_000  # faults that were logged


def checking(validate: Validate) -> Check:
    """How contents are looked at. PRX-16: by default as little as can be.

    off     only the name matters, and what it refers to
    warn    what Envoy would refuse is logged, of each resource once
    envoy   it is refused: the server gets a NACK that names it, and clients keep what they have

    A listener for gRPC is let pass. Of what it leads to a relay can't tell, as it knows only what was asked for.
    """
    if validate == "off":
        return named
    told: set[tuple[TypeUrl, str, str]] = set()

    def check(type_url: TypeUrl, body: bytes) -> Checked:
        checked = named(type_url, body)
        faults = _faults(type_url, body, checked)
        if validate == "envoy":
            return Checked(checked.message, checked.name, faults)
        for fault in faults:
            said = type_name(type_url), bounded(checked.name, NAME_BYTES), bounded(fault, TEXT_BYTES)
            if said not in told:
                if len(told) >= REMEMBERED:
                    told.clear()
                told.add(said)
                log.warning("%s %r is passed on, though Envoy would refuse it: %s", *said)
        return checked

    return check


def _faults(type_url: TypeUrl, body: bytes, checked: Checked) -> tuple[str, ...]:
    if not isinstance(checked.message, Message) or is_for_grpc(type_url, body):
        return ()
    return tuple(f"{show_path(path)}: {text}" if path else text for path, text in errors_in(checked.message))


def named(type_url: TypeUrl, body: bytes) -> Checked:
    """Of what is passed on only the name matters, and what it refers to."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return Checked(None, "")
    try:
        message = kind.FromString(body)
    except DecodeError:
        return Checked(None, "")
    return Checked(message, name_of(message) or "")
