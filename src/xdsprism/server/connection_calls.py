"""Serves the calls of one HTTP/2 connection: what `engine_grpcio` does with a task per call, without tasks or I/O.

    receive(data, now)    bytes from the client become messages, which go to `Call.receive`
    Call.wake()           a call asks to be polled: its CallStream joins `woken`, and the first one schedules a flush
    flush()               poll every woken call, frame its messages, and return the bytes for one write

However many calls one turn of the event loop wakes, the connection costs one write. A call is polled only while its
stream accepts messages: with a message queued behind a window it is not polled, so that changes merge meanwhile
(SOT-16, DLT-23).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from ..core.model.events import EncodedResponse
from ..errors import PeerError
from ..http2.facts import CallRefused, RefusalCause
from ..http2.grpc import PREFIX, framed
from ..http2.outbound import DataPayload
from ..http2.requests import Field
from ..http2.rpc import Called, Drained, Ended, HalfClosed, Message, Rpc, RpcConnection, RpcEvent
from ..timer_heap import TimerHeap
from .calls import DETACHED, DETAILS, Call, CallPort, Method, Peer, RefusedCall, reason_of, status_of

log = logging.getLogger("xdsprism.server")

BATCH_BYTES: Final = 8 * 1024  # of messages that are processed in one turn of the loop; they may be a thousand requests


class CallStream(CallPort):
    """One call and the HTTP/2 stream that carries it: polls the call, and writes what the stream accepts."""

    __slots__ = ("_calls", "_is_last_poll", "_is_woken", "_messages", "_stream", "call", "is_over", "rpc", "timer")

    def __init__(self, calls: ConnectionCalls, rpc: Rpc, call: Call) -> None:
        self.rpc = rpc
        self.call = call
        self.is_over = False
        self.timer: float | None = None  # when to poll although nothing woke the call
        self._calls = calls
        self._stream = rpc.stream
        self._is_woken = False
        self._messages: Iterator[bytes | EncodedResponse] | None = (
            None  # messages of the last poll that are not written yet
        )
        self._is_last_poll = False  # the call was finished before that poll
        call.attach(self)

    def wake(self) -> None:
        """Have the call polled with the next flush."""
        if not self._is_woken and not self.is_over:
            self._is_woken = True
            calls = self._calls
            if not calls.woken:
                calls.on_wake()
            calls.woken.append(self)

    def hold_back(self, *, waits: bool) -> None:
        """Let the client send no more than its stream's window, while `waits`."""
        calls = self._calls
        if not self.is_over and calls.rpcs.hold_back(self.rpc, waits=waits) and not calls.woken:
            calls.on_wake()

    def half_close(self) -> None:
        """Tell the call that the client sends no more messages."""
        try:
            self.call.half_close()
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)
        else:
            self.wake()

    def write_messages(self) -> None:
        """Poll the call and send its messages, until it has none or the stream has to queue one."""
        calls, call, stream = self._calls, self.call, self._stream
        queue = stream.queue
        try:
            while not queue and not self.is_over:
                if self._messages is None:
                    if not self._is_woken:
                        return
                    self._is_woken = False
                    # Read `finished` before the poll: if it is set later, the call may have more messages.
                    self._is_last_poll = call.finished
                    self._messages = call.poll_shared()
                for message in self._messages:
                    payload = framed(message) if isinstance(message, bytes) else message.framed or _frame(message)
                    if stream.has_sent_headers:
                        calls.out.send(stream, payload)
                    else:
                        calls.rpcs.send(self.rpc, payload)
                    if queue:
                        return
                self._messages = None
                if self._is_last_poll and not call.is_busy:
                    self.close()
                    calls.rpcs.end(self.rpc)
                    return
                deadline = call.deadline()
                if deadline != self.timer:
                    calls.set_timer(self, deadline)
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the call with the error as its status.

        The call is closed first: the client may take long to read the status, and must not hold memory until then.
        """
        if self.is_over:
            return
        self.close(reason_of(error))
        if not isinstance(error, PeerError):
            log.error("a stream failed", exc_info=error)
        self._calls.rpcs.end(self.rpc, *status_of(error))

    def close(self, reason: str = "") -> None:
        """Close the call, however it ended. Idempotent: the first reason counts."""
        if self.is_over:
            return
        self.is_over = True
        if self.timer is not None:
            self._calls.set_timer(self, None)
        self._messages = None
        self._calls.call_streams.discard(self)
        try:
            self.call.close(reason)
        except Exception:
            log.exception("a stream could not be closed")
        # Otherwise the reference cycle of call and stream waits for the garbage collector.
        self.call.attach(DETACHED)
        self.rpc.owner = None


def _frame(message: EncodedResponse) -> DataPayload:
    """Frame a shared response, once for all streams that send it."""
    payload = message.framed = framed(message.body)
    return payload


class ConnectionCalls:
    """All calls of one connection, and their timers."""

    __slots__ = (
        "_draining",
        "_methods",
        "_peer",
        "_timers",
        "backlog",
        "call_streams",
        "events",
        "on_wake",
        "out",
        "rpcs",
        "woken",
    )

    def __init__(
        self, rpcs: RpcConnection, methods: Mapping[str, Method], peer: Peer, woken: Callable[[], None]
    ) -> None:
        """`woken` is called when there is something to `flush`; not again before the next `flush`."""
        self.rpcs = rpcs
        self.events = rpcs.connection.events
        self.out = rpcs.out
        self.call_streams: set[CallStream] = set()
        self._methods = methods
        self._peer = peer
        self.on_wake = woken
        self.woken: list[CallStream] = []
        self._draining = False
        self._timers: TimerHeap[CallStream] = TimerHeap()
        self.backlog: deque[RpcEvent] | None = None  # events received beyond BATCH_BYTES

    def receive(self, data: bytes, now: float) -> bool:
        """Process received bytes and the backlog, one batch at most. Return whether there is something to `flush`."""
        events: Iterable[RpcEvent] = self.rpcs.receive(data, now)
        backlog = self.backlog
        if len(data) > BATCH_BYTES or backlog is not None:
            if backlog is None:
                backlog = self.backlog = deque()
            backlog.extend(events)
            events = self._next_batch(backlog)
        return self._process(events)

    def _next_batch(self, backlog: deque[RpcEvent]) -> Iterator[RpcEvent]:
        """Take events from the backlog, in order, up to BATCH_BYTES of messages."""
        left = BATCH_BYTES
        while backlog and left > 0:
            event = backlog.popleft()
            left -= len(event.message) + PREFIX if isinstance(event, Message) else PREFIX
            yield event
        if not backlog:
            self.backlog = None

    def _process(self, events: Iterable[RpcEvent]) -> bool:
        """Pass messages to their calls. Return whether there is something to flush."""
        for event in events:
            if not isinstance(event, Message):
                self._process_other(event)
                continue
            call_stream: CallStream | None = event.rpc.owner
            if call_stream is not None and not call_stream.is_over:
                try:
                    call_stream.call.receive(event.message)
                except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, it ends this stream and no other
                    call_stream.fail(error)
        out = self.out
        return bool(self.woken or out.pieces or out.waits or self.events.has_changed)

    def tick(self, now: float) -> None:
        """Do what is due at `now`: deadlines, keepalive, draining, and timers of calls."""
        self.events.has_changed = True
        for event in self.rpcs.tick(now):
            self._process_other(event)
        if self.rpcs.life.is_draining:  # the connection reached its maximum age
            self._drain_all()
        while (call_stream := self._timers.take(now)) is not None:
            call_stream.timer = None
            call_stream.wake()

    @property
    def due(self) -> float:
        """When to call `tick`."""
        timer = self._timers.next_due
        return min(self.rpcs.due, timer if timer is not None else inf)

    def flush(self) -> bytes:
        """Poll woken calls, send queued DATA, and return the bytes to write."""
        out = self.out
        while True:
            if self.woken and not out.is_paused:
                woken, self.woken = self.woken, []
                for call_stream in woken:
                    call_stream.write_messages()
            events = self.rpcs.send_queued() if out.waits else ()
            for event in events:
                self._process_other(event)
            if not events and (not self.woken or out.is_paused):
                return out.take_output()

    def drain(self, now: float, grace: float) -> None:
        """Announce the end of the connection to the client, and let every call end within `grace` seconds."""
        self.rpcs.life.drain(now, grace)
        self._drain_all()

    def connection_lost(self, why: str = "") -> None:
        """Close every call: the connection is lost."""
        if self.backlog is not None:
            self.backlog.clear()
        for call_stream in list(self.call_streams):
            call_stream.close(why)
        self.woken.clear()  # they refer to this object
        self.rpcs.release()

    def set_timer(self, call_stream: CallStream, when: float | None) -> None:
        """Have the call polled at `when`; None: only when it wakes."""
        call_stream.timer = when
        if when is None:
            self._timers.cancel(call_stream)
        else:
            self.events.has_changed = True
            self._timers.set(call_stream, when)

    def _process_other(self, event: RpcEvent) -> None:
        """Process any event but a message; messages come only from `receive`."""
        call_stream: CallStream | None = event.rpc.owner
        if isinstance(event, Called):
            self._open(event)
        elif call_stream is None or call_stream.is_over:
            return
        elif isinstance(event, Drained):
            call_stream.write_messages()
        elif isinstance(event, HalfClosed):
            call_stream.half_close()
        elif isinstance(event, Ended):
            call_stream.close(event.why)

    def _open(self, event: Called) -> None:
        """Open the method's call for a new RPC, or end the RPC with a status."""
        method = self._methods.get(event.path)
        if method is None:
            refused = CallRefused(self._peer.address, RefusalCause.METHOD, event.path)
            self.events.facts.append(refused)  # OPS-15
            text = f"no method {event.path}"[:DETAILS]
            method = Method(event.path, lambda _: RefusedCall("UNIMPLEMENTED", text, self.out.now))
        try:
            call = method.open(_with_authorization(self._peer, event.fields))
        except PeerError as error:
            self.rpcs.end(event.rpc, error.status, error.message[:DETAILS])
            return
        except Exception:
            log.exception("a stream could not be opened")
            self.rpcs.end(event.rpc, "INTERNAL", "internal error: the call could not be opened")
            return
        call_stream = event.rpc.owner = CallStream(self, event.rpc, call)
        self.call_streams.add(call_stream)
        call_stream.wake()
        if self.rpcs.life.is_draining:  # it was in flight when the server began to stop
            self._drain_call(call_stream)

    def _drain_all(self) -> None:
        """Drain every call, once."""
        if not self._draining:
            self._draining = True
            for call_stream in list(self.call_streams):
                self._drain_call(call_stream)

    def _drain_call(self, call_stream: CallStream) -> None:
        try:
            call_stream.call.drain(self.rpcs.life.grace_ends)
        except Exception as error:  # noqa: BLE001 # OPS-10
            call_stream.fail(error)


def _with_authorization(peer: Peer, fields: Sequence[Field]) -> Peer:
    """Add the `authorization` fields of a call to its peer."""
    values = tuple(value.decode("latin-1") for name, value in fields if name == b"authorization")
    return replace(peer, authorization=values) if values else peer
