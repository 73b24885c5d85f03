"""The events that a connection returns to the layer above it, as a closed union.

`Received` is the commonest, one for each DATA frame, and therefore a bare tuple instead of a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass

from .requests import Request
from .stream import Stream

Received = tuple[Stream, bytes, bool]  # the stream; bytes of the request's body; whether END_STREAM came with them


@dataclass(frozen=True, slots=True)
class Requested:
    """The peer opened a stream with a well-formed request."""

    stream: Stream
    request: Request
    last: bool  # END_STREAM is set: no body follows


@dataclass(frozen=True, slots=True)
class Aborted:
    """A stream ended before both sides were done: nothing can be sent on it any more."""

    stream: Stream
    why: str  # empty: the peer reset it


@dataclass(frozen=True, slots=True)
class PingAcked:
    """The peer acknowledged a PING of ours."""

    payload: bytes


Event = Received | Requested | Aborted | PingAcked
