"""What Envoy would say of a message: the one place where all checks of a message come together.

A check takes a message and lists faults. What `_ERRORS` find Envoy refuses; what `_NOTES` find it takes, and somebody
should know of it all the same. Whether an error is one depends on what the user says (`Validate`), and on whom the
resource is for: gRPC takes much that Envoy refuses, and the protocol warns control planes against deciding for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from google.protobuf.message import DecodeError, Message

from ..core.model.types import LISTENER, TypeUrl
from ..errors import UsageError
from . import envoy_checks, rules
from .faults import Faults
from .protos import find_message, type_name
from .rules import UnknownType

# envoy: what Envoy refuses is an error; warn: it is a warning; off: it is not looked for
Validate = Literal["envoy", "warn", "off"]

Check = Callable[[Message], Faults]

_ERRORS: tuple[Check, ...] = (rules.check, envoy_checks.check)
_NOTES: tuple[Check, ...] = (envoy_checks.notes,)


class Verdict(NamedTuple):
    """What is wrong with a message."""

    errors: Faults  # Envoy refuses it
    notes: Faults  # it is taken, but may not be what was meant


def judge(message: Message) -> Verdict:
    """List what Envoy refuses in a message, and what else is to be said of it."""
    found = [fault for check in _ERRORS for fault in check(message)]
    notes = [fault for check in _NOTES for fault in check(message)]
    # What is packed and of no known type may be newer, or the user's own: whoever reads it will know.
    notes += [(path, f"{text}; it is passed on as it is") for path, text in found if isinstance(text, UnknownType)]
    return Verdict([fault for fault in found if not isinstance(fault[1], UnknownType)], notes)


def errors_in(message: Message) -> Faults:
    return judge(message).errors


def notes_in(message: Message) -> Faults:
    return judge(message).notes


def judge_contents(type_url: TypeUrl, body: bytes) -> Verdict:
    """The same for a resource in bytes. A type that is not known here is taken as it is: any type works."""
    kind = find_message(type_name(type_url))
    if kind is None:
        return Verdict([], [])
    try:
        return judge(kind.FromString(body))
    except DecodeError as error:
        return Verdict([((), f"the bytes are no {type_name(type_url)}: {error}")], [])


def is_for_grpc(type_url: TypeUrl, body: bytes) -> bool:
    """Whether a resource is by itself one for gRPC: a listener with an `api_listener`."""
    kind: Any = find_message(type_name(type_url)) if type_url == LISTENER else None
    try:
        return kind is not None and bool(kind.FromString(body).HasField("api_listener"))
    except DecodeError:
        return False


def check_mode(text: str) -> Validate:
    """Raises UsageError for what is no mode."""
    modes: dict[str, Validate] = {"envoy": "envoy", "warn": "warn", "off": "off"}
    if text not in modes:
        raise UsageError(f"validate={text!r}: it is one of {', '.join(modes)}")
    return modes[text]
