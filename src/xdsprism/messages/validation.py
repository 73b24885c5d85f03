"""Runs every check of a message: says what Envoy would refuse in it, and what else an author should know.

A check takes a message and lists faults. Envoy refuses a message in which one of `_ERROR_CHECKS` finds a fault; it
accepts what `_NOTE_CHECKS` find. The caller decides whether an error counts, by the user's choice (`Validate`) and by
the clients that use the resource: gRPC accepts much that Envoy refuses, and the xDS protocol warns control planes
against validating on behalf of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from google.protobuf.message import DecodeError, Message

from ..core.model.types import LISTENER, TypeUrl
from ..errors import UsageError
from . import envoy_checks, rules
from .convert import UnknownType
from .faults import Faults
from .protos import find_message, type_name

# What to do with a resource that Envoy would refuse. envoy: it is an error; warn: a warning; off: do not check.
Validate = Literal["envoy", "warn", "off"]

Check = Callable[[Message], Faults]

_ERROR_CHECKS: tuple[Check, ...] = (rules.check, envoy_checks.check)
_NOTE_CHECKS: tuple[Check, ...] = (envoy_checks.notes,)


class MessageFaults(NamedTuple):
    """The faults that the checks found in a message."""

    errors: Faults  # Envoy refuses these
    notes: Faults  # Envoy accepts these, but the author may have meant something else


def check_message(message: Message) -> MessageFaults:
    """Run all checks of a message."""
    found = [fault for check in _ERROR_CHECKS for fault in check(message)]
    notes = [fault for check in _NOTE_CHECKS for fault in check(message)]
    # An Any of an unknown type may hold an extension of a newer Envoy, or the user's own. The client decides.
    notes += [(path, f"{text}; it is passed on as it is") for path, text in found if isinstance(text, UnknownType)]
    return MessageFaults([fault for fault in found if not isinstance(fault[1], UnknownType)], notes)


def errors_in(message: Message) -> Faults:
    """List what Envoy refuses in a message."""
    return check_message(message).errors


def notes_in(message: Message) -> Faults:
    """List what Envoy accepts in a message, and the author may want to change."""
    return check_message(message).notes


def check_resource(type_url: TypeUrl, body: bytes) -> MessageFaults:
    """Run all checks of a serialized resource. A resource of an unknown type passes: the store takes any type."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return MessageFaults([], [])
    try:
        return check_message(kind.FromString(body))
    except DecodeError as error:
        return MessageFaults([((), f"the bytes can't be decoded as {type_name(type_url)}: {error}")], [])


def is_for_grpc(type_url: TypeUrl, body: bytes) -> bool:
    """Whether a resource itself shows that it is for gRPC: it is a listener with an `api_listener`."""
    kind: Any = find_message(type_name(type_url)) if type_url == LISTENER else None
    try:
        return kind is not None and bool(kind.FromString(body).HasField("api_listener"))
    except DecodeError:
        return False


def check_mode(text: str) -> Validate:
    """Return the text as a mode. Raises UsageError if there is no such mode."""
    modes: dict[str, Validate] = {"envoy": "envoy", "warn": "warn", "off": "off"}
    if text not in modes:
        raise UsageError(f"validate={text!r}: it is one of {', '.join(modes)}")
    return modes[text]
