"""The events that a connection returns to the layer above it, as a closed union, and the queue that they wait in.

`Received` is the commonest, one for each DATA frame, and therefore a bare tuple instead of a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass

from .codes import Code
from .facts import Fact, Limited
from .limits import Limit
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


class EventQueue:
    """What the layer above has yet to take: the events, the facts for metrics and logs, and whether to look further."""

    __slots__ = ("facts", "has_changed", "peer", "waiting")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.waiting: list[Event] = []
        self.facts: list[Fact] = []
        # Something other than messages happened: a stream opened or closed, a fault, a fact. The engine then looks at
        # timers, facts and the end of the connection, and sets it to false.
        self.has_changed = True

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.waiting = self.waiting, []
        return events

    def take_facts(self) -> list[Fact]:
        """Return the facts since the last call."""
        facts, self.facts = self.facts, []
        return facts

    def report_limit(self, limit: Limit, code: Code, *, connection: bool) -> None:
        """Report to metrics that the peer exceeded a limit."""
        self.has_changed = True
        self.facts.append(Limited(self.peer, limit, code, connection))
