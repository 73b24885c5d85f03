"""Check the resources that a relay passes on, as far as it is told to (PRX-16).

A relay passes payloads on unchanged. It decodes them to learn their names and references, and rejects none by default.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from ..core.codec.client_side import Check, Checked
from ..core.codec.resources import name_of
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TypeUrl
from ..errors import show_path
from ..messages.protos import find_message, type_name
from ..messages.validation import Validate, errors_in, is_for_grpc
from ..observe.lines import log

REMEMBERED = 10_000  # faults that were logged; then the log starts over


def checking(validate: Validate) -> Check:
    """Return the function that checks a payload.

        off     read only the name and the references (PRX-16, the default)
        warn    log what Envoy would reject, once for each fault of a resource
        envoy   reject it: the server gets a NACK that names the resource, and clients keep what they have

    Listeners for gRPC pass, since Envoy's rules do not apply to them. For the resources that such a listener leads to,
    a relay cannot tell: it knows only the names that clients asked for.
    """
    if validate == "off":
        return named
    told: set[tuple[TypeUrl, str, str]] = set()

    def check(type_url: TypeUrl, body: bytes) -> Checked:
        """Check one payload, and log or return its faults."""
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
                log.warning("%s %r is passed on although Envoy would refuse it: %s", *said)
        return checked

    return check


def _faults(type_url: TypeUrl, body: bytes, checked: Checked) -> tuple[str, ...]:
    """Return what Envoy would reject in a message, each fault with its path."""
    if not isinstance(checked.message, Message) or is_for_grpc(type_url, body):
        return ()
    return tuple(f"{show_path(path)}: {text}" if path else text for path, text in errors_in(checked.message))


def named(type_url: TypeUrl, body: bytes) -> Checked:
    """Decode a payload for its name and references. An unknown or broken one passes without a name."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return Checked(None, "")
    try:
        message = kind.FromString(body)
    except DecodeError:
        return Checked(None, "")
    return Checked(message, name_of(message) or "")
