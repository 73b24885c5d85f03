"""gRPC calls on one connection, without its socket.

It stands between `Connection`, which knows streams, and whoever serves calls: bytes in, events out; messages and
statuses in, bytes out. All that time decides is decided in `tick`, at the latest when `due` says.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from .codes import Code
from .connection import Connection
from .events import Aborted, Event, Received, Requested
from .facts import CallRefused, Wrong
from .grpc import HEADERS, Broken, Inbox, PiecesFactory, is_grpc, plain_answer, timeout, trailers
from .lifetime import Lifetime, Stage
from .limits import Crowd, Limit, Limits, Times
from .outbound import Parcel, parcel
from .requests import Field, Request
from .stream import Stream

NOT_GRPC = "This port speaks gRPC: POST with content-type application/grpc.\n"
PILE = 64  # deadlines of calls that are over
LATE = 0.1  # seconds, for a caller to see by its own clock that its deadline is over, before we cut a message short
SCANS = 4  # looks for stalled streams, in the time that a stall may take


class Rpc:
    """One call."""

    __slots__ = ("began", "deadline", "inbox", "late", "over", "owner", "stream")

    def __init__(self, stream: Stream, inbox: Inbox, deadline: float) -> None:
        self.stream = stream
        self.inbox = inbox
        self.began = 0.0  # when the message that is not complete did, if there is one
        self.deadline = deadline
        self.late = False  # its deadline is over, and the caller had better say so itself
        self.over = False  # its end is said, or there is nobody to say it to
        self.owner: Any = None  # whatever the layer above keeps with it


class Message(NamedTuple):
    rpc: Rpc
    message: bytes


@dataclass(frozen=True, slots=True)
class Called:
    rpc: Rpc
    path: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class HalfClosed:
    rpc: Rpc


@dataclass(frozen=True, slots=True)
class Ended:
    """A call is over, and not because we said so."""

    rpc: Rpc
    why: str  # empty: the caller left


@dataclass(frozen=True, slots=True)
class Drained:
    """All that was sent on it is on its way: there may be more."""

    rpc: Rpc


RpcEvent = Message | Called | HalfClosed | Ended | Drained


class RpcConnection:
    """A connection that carries calls."""

    __slots__ = (
        "_crowd",
        "_deadlines",
        "_events",
        "_limits",
        "_parting",
        "_scan",
        "_times",
        "_unfinished",
        "connection",
        "life",
        "out",
    )

    def __init__(
        self,
        limits: Limits,
        times: Times,
        now: float,
        peer: str = "",
        *,
        age: float = inf,
        crowd: Crowd | None = None,
        parting: Mapping[str, PiecesFactory] | None = None,
    ) -> None:
        """`parting`: by the path of a call, how to read its messages that are above the limit."""
        self.connection = Connection(limits, now, peer)
        self._crowd = crowd or Crowd(limits)
        self.life = Lifetime(self.connection, times, now, age)
        self.out = self.connection.out
        self._limits = limits
        self._parting = parting or {}
        self._times = times
        self._events: list[RpcEvent] = []
        self._deadlines: list[tuple[float, int, Rpc]] = []
        self._unfinished = 0  # bytes of messages that have begun
        self._scan = now + times.stall / SCANS

    # -- from the wire

    def receive(self, data: bytes, now: float) -> list[RpcEvent]:
        connection = self.connection
        self._take(connection.receive(data, now))
        if connection.failed is not None:  # it may have, of what came in messages
            self._take(connection.told())
        events, self._events = self._events, []
        return events

    def pump(self) -> list[RpcEvent]:
        """Send on; whoever has room again is told."""
        self._take(self.connection.pump())
        drained = self.out.drained
        if drained:
            self.out.drained = []
            self._events += [Drained(stream.owner) for stream in drained if stream.owner is not None]
        return self._told()

    def tick(self, now: float) -> list[RpcEvent]:
        """Whatever time brings: deadlines, keepalive, the end of the connection."""
        self.out.now = now
        if now >= self.life.due or self.connection.failed is not None:
            self.life.tick(now)
        while self._deadlines and self._deadlines[0][0] <= now:
            self._expire(heapq.heappop(self._deadlines)[2])
        if now >= self._scan:
            self._scan = now + self._times.stall / SCANS
            self._find_stalled(now)
        self._take(self.connection.told())
        return self._told()

    def lost(self) -> None:
        """There is nobody to hear from, and what was unfinished is gone."""
        self._crowd.unfinished -= self._unfinished
        self._unfinished = 0
        for stream in self.connection.streams.values():
            stream.owner = None

    @property
    def due(self) -> float:
        if self.connection.failed is not None:
            return self.connection.failed_at + self._times.linger
        deadline = self._deadlines[0][0] if self._deadlines else inf
        return min(self.life.due, deadline, self._scan if self.connection.streams else inf)

    @property
    def closing(self) -> bool:
        """Nothing more will be said on it: write what there is, and hang up."""
        life = self.life
        return life.over or (life.stage is Stage.REFUSING and not self.connection.streams)

    # -- to the wire

    def send(self, rpc: Rpc, message: Parcel) -> None:
        stream = rpc.stream
        if not stream.answered:
            self.out.headers(stream, HEADERS)
        self.out.send(stream, message)

    def end(self, rpc: Rpc, status: str = "OK", message: str = "") -> None:
        """The last word, after all that waits to be sent."""
        if rpc.over:
            return
        self._over(rpc)
        if not rpc.stream.gone:
            self.out.finish(rpc.stream, trailers(status, message, alone=not rpc.stream.answered))

    def hold_back(self, rpc: Rpc, *, waits: bool) -> bool:
        """Let the caller say no more than its window takes, until `waits` is over; whether there is something to write.

        Unlike a pause of the whole connection, that leaves the other calls on it alone.
        """
        return not rpc.stream.gone and self.connection.hold_back(rpc.stream, waits=waits)

    # -- inside

    def _told(self) -> list[RpcEvent]:
        events, self._events = self._events, []
        return events

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, tuple):
                stream, body, last = event
                rpc: Rpc | None = stream.owner
                if rpc is not None and not last and not rpc.over:
                    message = rpc.inbox.whole(body)
                    if message is not None:  # as nearly always
                        self._events.append(tuple.__new__(Message, (rpc, message)))
                        continue
                self._received(event)
            elif isinstance(event, Requested):
                self._requested(event)
            elif isinstance(event, Aborted):
                rpc = event.stream.owner
                event.stream.owner = None  # or the two keep each other until the collector comes
                if rpc is not None and not rpc.over:
                    self._over(rpc)
                    self._events.append(Ended(rpc, event.why))
            else:
                self.life.ponged(event.payload)

    def _requested(self, event: Requested) -> None:
        stream, request = event.stream, event.request
        if stream.gone:  # it was taken back in the same breath: nobody need know
            return
        if request.method != b"POST" or not is_grpc(request.get(b"content-type")):
            self.connection.facts.append(CallRefused(self.connection.peer, Wrong.NOT_GRPC, _shown(request)))
            if event.last:
                self._answer_plainly(stream)
            return
        try:
            rpc = self._opened(stream, request)
        except Broken as broken:
            if not stream.gone:
                self.out.finish(stream, trailers(broken.status, broken.message, alone=True))
            return
        self._events.append(Called(rpc, request.path.decode("latin-1"), request.fields))
        if event.last:
            self._events.append(HalfClosed(rpc))

    def _opened(self, stream: Stream, request: Request) -> Rpc:
        if request.size > self._limits.header_bytes:
            self.connection.tire(Limit.HEADER_LIST)
            raise Broken("RESOURCE_EXHAUSTED", f"metadata of more than {self._limits.header_bytes:,} bytes")
        seconds = timeout(request.get(b"grpc-timeout"))
        parting = self._parting.get(request.path.decode("latin-1"))
        inbox = Inbox(request.get(b"grpc-encoding"), self._limits.message_bytes, parting)
        rpc = stream.owner = Rpc(stream, inbox, inf if seconds is None else self.out.now + seconds)
        if seconds is not None:
            self._note_deadline(rpc)
        return rpc

    def _note_deadline(self, rpc: Rpc) -> None:
        """Deadlines may be far away and calls short: those of calls that are over must not pile up."""
        if len(self._deadlines) > PILE + 2 * len(self.connection.streams):
            self._deadlines = [entry for entry in self._deadlines if not entry[2].over]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (rpc.deadline, rpc.stream.number, rpc))

    def _received(self, event: Received) -> None:
        stream, body, last = event
        rpc: Rpc | None = stream.owner
        if rpc is None:
            if last and stream.ending is None and not stream.gone:
                self._answer_plainly(stream)
            return
        if rpc.over:
            return
        try:
            self._messages(rpc, body)
            if last:
                rpc.inbox.check_empty()
                self._events.append(HalfClosed(rpc))
        except Broken as broken:
            self.end(rpc, broken.status, broken.message)
            self._events.append(Ended(rpc, broken.message))

    def _messages(self, rpc: Rpc, body: bytes) -> None:
        inbox = rpc.inbox
        before = inbox.unfinished
        try:
            messages = inbox.feed(body)
        except Broken as broken:
            if broken.status == "RESOURCE_EXHAUSTED":
                self.connection.tire(Limit.MESSAGE_SIZE)
            raise
        finally:
            self._hold(inbox.unfinished - before)
        if messages or not before:
            rpc.began = self.out.now
        self._events += [Message(rpc, message) for message in messages]
        if self._unfinished > self._limits.message_bytes + self._limits.unfinished_bytes:
            self.connection.tire(Limit.UNFINISHED)
            raise Broken("RESOURCE_EXHAUSTED", "too many large messages at once on one connection")
        if not self._crowd.has_room(self._unfinished):
            self.connection.tire(Limit.UNFINISHED)
            raise Broken("RESOURCE_EXHAUSTED", "too many large messages at once on all connections")

    def _hold(self, size: int) -> None:
        self._unfinished += size
        self._crowd.unfinished += size

    def _answer_plainly(self, stream: Stream) -> None:
        """As gRPC wants it. Not before all of the request is there: its faults are to be found first."""
        block, body = plain_answer(415, NOT_GRPC)
        self.out.headers(stream, block)
        self.out.send(stream, parcel(b"", body))
        self.out.finish(stream)

    def _expire(self, rpc: Rpc) -> None:
        if rpc.over:
            return
        if rpc.stream.queue and not rpc.late:
            rpc.late = True
            rpc.deadline += LATE
            self._note_deadline(rpc)
            return
        if rpc.stream.queue:  # half a message can't be followed by a status
            self._over(rpc)
            self.connection.reset(rpc.stream, Code.CANCEL)
        else:
            self.end(rpc, "DEADLINE_EXCEEDED", "the deadline of the call is over")
        self._events.append(Ended(rpc, "its deadline was over"))

    def _find_stalled(self, now: float) -> None:
        for stream in list(self.connection.streams.values()):
            self._find_unfinished(stream.owner, now)
            if not stream.queue:
                continue
            if stream.stuck_since is None:
                stream.stuck_since = now
            elif now - stream.stuck_since >= self._times.stall:
                self.connection.limited(Limit.STALLED, Code.ENHANCE_YOUR_CALM, connection=False)
                self.connection.abandon(stream, Code.ENHANCE_YOUR_CALM, "what was sent is not read")

    def _find_unfinished(self, rpc: Rpc | None, now: float) -> None:
        if rpc is not None and rpc.inbox.unfinished and now - rpc.began >= self._times.stall:
            self.connection.limited(Limit.STALLED, Code.NO_ERROR, connection=False)
            self.end(rpc, "RESOURCE_EXHAUSTED", "a message was begun long ago, and is not complete")
            self._events.append(Ended(rpc, "a message was never complete"))

    def _over(self, rpc: Rpc) -> None:
        rpc.over = True
        self._hold(-rpc.inbox.unfinished)
        rpc.inbox.clear()


def _shown(request: Request) -> str:
    kind = request.get(b"content-type").decode("latin-1") or "nothing"
    return f"a {request.method.decode('latin-1')} of {kind}"
