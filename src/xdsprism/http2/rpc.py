"""Turns the streams of one connection into gRPC calls; it has no socket.

`RpcConnection` stands between `Connection`, which knows streams, and the server, which serves calls: bytes in, events
out; messages and statuses in, bytes out. It checks that a request is gRPC, splits bodies into messages, ends calls at
their deadlines, and bounds incomplete messages. Time is an argument: `tick(now)` does everything that depends on time,
and the caller calls it at the latest at `due`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ..timer_heap import TimerHeap
from .codes import Code
from .connection import Connection
from .events import Aborted, Event, Received, Requested
from .facts import CallRefused, RefusalCause
from .grpc import HEADERS, GrpcError, MessageReader, PiecesFactory, is_grpc, plain_response, timeout, trailers
from .lifetime import Lifetime, Stage
from .limits import ConnectionCount, Limit, Limits, Times
from .outbound import DataPayload, make_payload
from .requests import Field, Request
from .stream import Stream

NOT_GRPC = "This port speaks gRPC: POST with content-type application/grpc.\n"
# Seconds after its deadline that a call with a half-sent message goes on. The client's own clock usually ends the call
# within that time, and then we need not reset the stream.
DEADLINE_GRACE = 0.1
SCANS = 4  # searches for stalled streams within `Times.stall` seconds


class Rpc:
    """One gRPC call: its stream, the reader of its messages, and its deadline."""

    __slots__ = ("deadline", "is_late", "is_over", "message_began", "owner", "reader", "stream")

    def __init__(self, stream: Stream, reader: MessageReader, deadline: float) -> None:
        self.stream = stream
        self.reader = reader
        self.message_began = 0.0  # when the first byte of the incomplete message came, if there is one
        self.deadline = deadline
        self.is_late = False  # its deadline passed, and it is within DEADLINE_GRACE
        self.is_over = False  # its trailers are sent or queued, or its stream is closed
        self.owner: Any = None  # the CallStream of the layer above; None once the call is closed


class Message:
    """A client sent a message. Not a dataclass: there is one for each message, and this is made faster."""

    __slots__ = ("message", "rpc")

    def __init__(self, rpc: Rpc, message: bytes) -> None:
        self.rpc = rpc
        self.message = message


@dataclass(frozen=True, slots=True)
class Called:
    """A client began a call."""

    rpc: Rpc
    path: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class HalfClosed:
    """The client sends no more messages on this call."""

    rpc: Rpc


@dataclass(frozen=True, slots=True)
class Ended:
    """A call ended without `RpcConnection.end`: by the client, a limit, its deadline, or a lost connection."""

    rpc: Rpc
    why: str  # empty: the client cancelled it


@dataclass(frozen=True, slots=True)
class Drained:
    """All messages of a call are handed to the transport: the call may send more."""

    rpc: Rpc


RpcEvent = Message | Called | HalfClosed | Ended | Drained


class RpcConnection:
    """The calls of one connection."""

    __slots__ = (
        "_count",
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
        count: ConnectionCount | None = None,
        parting: Mapping[str, PiecesFactory] | None = None,
    ) -> None:
        """`parting`: by the path of a method, how to split its messages that are above the limit."""
        self.connection = Connection(limits, now, peer)
        self._count = count or ConnectionCount(limits)
        self.life = Lifetime(self.connection, times, now, age)
        self.out = self.connection.out
        self._limits = limits
        self._parting = parting or {}
        self._times = times
        self._events: list[RpcEvent] = []
        self._deadlines: TimerHeap[int] = TimerHeap()  # by the numbers of streams, so that it keeps none of them
        self._unfinished = 0  # bytes of incomplete messages
        self._scan = now + times.stall / SCANS

    # -- from the wire

    def receive(self, data: bytes, now: float) -> list[RpcEvent]:
        """Process bytes from the client, cut anywhere, and return what happened to calls."""
        connection = self.connection
        self._process(connection.receive(data, now))
        if connection.failed is not None:  # perhaps by a limit on messages, after its events were taken
            self._process(connection.take_events())
        events, self._events = self._events, []
        return events

    def send_queued(self) -> list[RpcEvent]:
        """Send queued DATA, and report the calls whose queue became empty."""
        self._process(self.connection.send_queued())
        drained = self.out.drained
        if drained:
            self.out.drained = []
            self._events += [Drained(stream.owner) for stream in drained if stream.owner is not None]
        out = self.out
        out.waits = bool(out.ready or out.drained or out.finished)
        return self._take_events()

    def tick(self, now: float) -> list[RpcEvent]:
        """Do what is due at `now`: deadlines of calls, keepalive, stalled streams, the end of the connection."""
        self.out.now = now
        self.out.send_delayed(now)
        if now >= self.life.due or self.connection.failed is not None:
            self.life.tick(now)
        while (number := self._deadlines.take(now)) is not None:
            stream = self.connection.streams.get(number)
            rpc: Rpc | None = stream.owner if stream is not None else None
            if rpc is not None and not rpc.is_over:
                self._expire(rpc, now)
        if now >= self._scan:
            self._scan = now + self._times.stall / SCANS
            self._find_stalled(now)
        self._process(self.connection.take_events())
        return self._take_events()

    def release(self) -> None:
        """Release what the connection holds: it is lost."""
        self._count.unfinished -= self._unfinished
        self._unfinished = 0
        for stream in self.connection.streams.values():
            stream.owner = None

    @property
    def due(self) -> float:
        """When to call `tick`."""
        if self.connection.failed is not None:
            return self.connection.failed_at + self._times.linger
        deadline = self._deadlines.next_due
        scan = self._scan if self.connection.streams else inf
        return min(self.life.due, deadline if deadline is not None else inf, scan, self.out.delayed_until)

    @property
    def is_closing(self) -> bool:
        """Whether to write what is left and then close the socket."""
        life = self.life
        return life.is_over or (life.stage is Stage.REFUSING and not self.connection.streams)

    # -- to the wire

    def send(self, rpc: Rpc, message: DataPayload) -> None:
        """Send a message, with the response headers before the first. `rpc.stream.queue` holds what has to wait."""
        stream = rpc.stream
        if not stream.has_sent_headers:
            self.out.headers(stream, HEADERS)
        self.out.send(stream, message)

    def end(self, rpc: Rpc, status: str = "OK", message: str = "") -> None:
        """End a call with a status, after its queued messages. Idempotent."""
        if rpc.is_over:
            return
        self._close_call(rpc)
        if not rpc.stream.is_closed:
            self.out.finish(rpc.stream, trailers(status, message, alone=not rpc.stream.has_sent_headers))

    def hold_back(self, rpc: Rpc, *, waits: bool) -> bool:
        """Stop (`waits`) or resume restoring the window of a call. Return whether there is a WINDOW_UPDATE to write.

        Unlike pausing the socket, this holds back one call and leaves the other calls of the connection alone.
        """
        return not rpc.stream.is_closed and self.connection.hold_back(rpc.stream, waits=waits)

    # -- events of the connection

    def _take_events(self) -> list[RpcEvent]:
        events, self._events = self._events, []
        return events

    def _process(self, events: list[Event]) -> None:
        """Turn events of the connection into events of calls."""
        for event in events:
            if isinstance(event, tuple):
                stream, body, last = event
                rpc: Rpc | None = stream.owner
                if rpc is not None and not last and not rpc.is_over:
                    message = rpc.reader.read_single(body)
                    if message is not None:  # fast path: nearly every DATA frame is one message
                        self._events.append(Message(rpc, message))
                        continue
                self._received(event)
            elif isinstance(event, Requested):
                self._requested(event)
            elif isinstance(event, Aborted):
                rpc = event.stream.owner
                event.stream.owner = None  # otherwise this reference cycle waits for the garbage collector
                if rpc is not None and not rpc.is_over:
                    self._close_call(rpc)
                    self._events.append(Ended(rpc, event.why))
            else:
                self.life.ping_acked(event.payload)

    def _requested(self, event: Requested) -> None:
        """Begin the call that a request describes, or answer what is not a valid call."""
        stream, request = event.stream, event.request
        if stream.is_closed:  # the client reset it in the same bytes: report nothing
            return
        if request.method != b"POST" or not is_grpc(request.get(b"content-type")):
            events = self.connection.events
            events.facts.append(CallRefused(events.peer, RefusalCause.NOT_GRPC, _describe(request)))
            if event.last:
                self._send_plain_response(stream)
            return
        try:
            rpc = self._opened(stream, request)
        except GrpcError as broken:
            if not stream.is_closed:
                self.out.finish(stream, trailers(broken.status, broken.message, alone=True))
            return
        self._events.append(Called(rpc, request.path.decode("latin-1"), request.fields))
        if event.last:
            self._events.append(HalfClosed(rpc))

    def _opened(self, stream: Stream, request: Request) -> Rpc:
        """Make the call of a request. Raises GrpcError."""
        if request.size > self._limits.header_bytes:
            self.connection.charge_limit(Limit.HEADER_LIST)
            raise GrpcError("RESOURCE_EXHAUSTED", f"metadata of more than {self._limits.header_bytes:,} bytes")
        seconds = timeout(request.get(b"grpc-timeout"))
        parting = self._parting.get(request.path.decode("latin-1"))
        reader = MessageReader(request.get(b"grpc-encoding"), self._limits.message_bytes, parting)
        rpc = stream.owner = Rpc(stream, reader, inf if seconds is None else self.out.now + seconds)
        self._deadlines.set(rpc.stream.number, min(rpc.deadline, self.out.now + self._times.first_request))
        return rpc

    def _received(self, event: Received) -> None:
        """Process part of a request body that is not exactly one message, or that ends the request."""
        stream, body, last = event
        rpc: Rpc | None = stream.owner
        if rpc is None:
            if last and stream.end_block is None and not stream.is_closed:
                self._send_plain_response(stream)
            return
        if rpc.is_over:
            return
        try:
            self._messages(rpc, body)
            if last:
                rpc.reader.check_complete()
                self._events.append(HalfClosed(rpc))
        except GrpcError as broken:
            self.end(rpc, broken.status, broken.message)
            self._events.append(Ended(rpc, broken.message))

    def _messages(self, rpc: Rpc, body: bytes) -> None:
        """Read messages from a body, within the limits on incomplete messages. Raises GrpcError."""
        reader = rpc.reader
        before = reader.unfinished
        try:
            messages = reader.feed(body)
        except GrpcError as broken:
            if broken.status == "RESOURCE_EXHAUSTED":
                self.connection.charge_limit(Limit.MESSAGE_SIZE)
            raise
        finally:
            self._count_unfinished(reader.unfinished - before)
        if messages or not before:
            rpc.message_began = self.out.now
        self._events += [Message(rpc, message) for message in messages]
        if self._unfinished > self._limits.message_bytes + self._limits.unfinished_bytes:
            self.connection.charge_limit(Limit.UNFINISHED)
            raise GrpcError("RESOURCE_EXHAUSTED", "too many large messages at once on one connection")
        if not self._count.can_buffer(self._unfinished):
            self.connection.charge_limit(Limit.UNFINISHED)
            raise GrpcError("RESOURCE_EXHAUSTED", "too many large messages at once on all connections")

    def _count_unfinished(self, size: int) -> None:
        """Add to the bytes of incomplete messages, of this connection and of all."""
        self._unfinished += size
        self._count.unfinished += size

    def _send_plain_response(self, stream: Stream) -> None:
        """Answer a request that is not gRPC with HTTP status 415, as gRPC demands.

        Only after END_STREAM: a stream error in the request comes first.
        """
        block, body = plain_response(415, NOT_GRPC)
        self.out.headers(stream, block)
        self.out.send(stream, make_payload(b"", body))
        self.out.finish(stream)

    def _expire(self, rpc: Rpc, now: float) -> None:
        """End a call at its deadline; one with a half-sent message first gets DEADLINE_GRACE.

        Before that it is looked at once, to end it if its client has sent nothing (OPS-3).
        """
        if now < rpc.deadline:
            if self._is_silent(rpc):
                self.connection.report_limit(Limit.FIRST_REQUEST, Code.NO_ERROR, connection=False)
                text = f"no request came within {self._times.first_request:g} seconds: send one once the stream is open"
                self.end(rpc, "DEADLINE_EXCEEDED", text)
                self._events.append(Ended(rpc, text))
            elif rpc.deadline < inf:
                self._deadlines.set(rpc.stream.number, rpc.deadline)
            return
        if rpc.stream.queue and not rpc.is_late:
            rpc.is_late = True
            rpc.deadline += DEADLINE_GRACE
            self._deadlines.set(rpc.stream.number, rpc.deadline)
            return
        if rpc.stream.queue:  # a status can't follow half a message: reset the stream
            self._close_call(rpc)
            self.connection.reset(rpc.stream, Code.CANCEL)
        else:
            self.end(rpc, "DEADLINE_EXCEEDED", "the deadline of the call has passed")
        self._events.append(Ended(rpc, "its deadline passed"))

    def _find_stalled(self, now: float) -> None:
        """Reset streams whose client has read nothing for `Times.stall` seconds."""
        for stream in list(self.connection.streams.values()):
            self._find_unfinished(stream.owner, now)
            if not stream.queue:
                continue
            if stream.stalled_since is None:
                stream.stalled_since = now
            elif now - stream.stalled_since >= self._times.stall:
                self.connection.report_limit(Limit.STALLED, Code.ENHANCE_YOUR_CALM, connection=False)
                self.connection.abandon(stream, Code.ENHANCE_YOUR_CALM, "the client does not read what was sent")

    def _find_unfinished(self, rpc: Rpc | None, now: float) -> None:
        """End a call whose client began a message `Times.stall` seconds ago and has not completed it."""
        if rpc is not None and rpc.reader.unfinished and now - rpc.message_began >= self._times.stall:
            self.connection.report_limit(Limit.STALLED, Code.NO_ERROR, connection=False)
            self.end(rpc, "RESOURCE_EXHAUSTED", "the client did not complete a message in time")
            self._events.append(Ended(rpc, "the client did not complete a message in time"))

    def _is_silent(self, rpc: Rpc) -> bool:
        """Whether the client has sent no part of a message, and we no response.

        To remember each first message would cost more than to look at what it leaves behind.
        """
        stream = rpc.stream
        if stream.has_sent_headers or rpc.message_began or rpc.reader.unfinished:
            return False
        return stream.can_receive and stream.credit == self._limits.stream_window >> 1

    def _close_call(self, rpc: Rpc) -> None:
        """Mark a call as over, and drop its deadline and its incomplete message."""
        rpc.is_over = True
        self._deadlines.cancel(rpc.stream.number)  # it may be hours away, and calls are short
        self._count_unfinished(-rpc.reader.unfinished)
        rpc.reader.clear()


def _describe(request: Request) -> str:
    kind = request.get(b"content-type").decode("latin-1") or "nothing"
    return f"a {request.method.decode('latin-1')} of {kind}"
