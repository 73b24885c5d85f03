"""What a connection has to tell. A closed union; the commonest is a bare tuple, for it is made for every message."""

from __future__ import annotations

from dataclasses import dataclass

from .requests import Request
from .stream import Stream

Received = tuple[Stream, bytes, bool]  # bytes of a request's body; whether the peer will say no more


@dataclass(frozen=True, slots=True)
class Requested:
    """A stream was opened."""

    stream: Stream
    request: Request
    last: bool


@dataclass(frozen=True, slots=True)
class Aborted:
    """A stream is over before its time; nothing can be said on it any more."""

    stream: Stream
    why: str  # empty: the peer did not want it any longer


@dataclass(frozen=True, slots=True)
class Ponged:
    """The answer to a PING of ours."""

    payload: bytes


Event = Received | Requested | Aborted | Ponged
