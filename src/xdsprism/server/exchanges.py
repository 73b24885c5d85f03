"""Calls on one connection of our own transport: what `engine_grpcio` does per call, without a task and without I/O.

A `Line` is told of bytes and of the time, drives its calls, and has bytes to be written. Whatever wakes a call only
notes it; `flush` polls all that were woken, so that a turn of the loop costs one write, however many calls it touched.
A call is polled while its stream takes what it is given, and not again before that is on its way (SOT-16, DLT-23).
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import inf

from ..errors import PeerError
from ..http2.facts import CallRefused, Wrong
from ..http2.grpc import PREFIX, Framer
from ..http2.requests import Field
from ..http2.rpc import Called, Drained, Ended, HalfClosed, Message, Rpc, RpcConnection, RpcEvent
from .calls import Call, Method, Peer

log = logging.getLogger("xdsprism.server")

DETAILS = 1_000  # characters of what is said about an error
SILENCE = 1.0  # seconds, until a caller that says nothing is told that there is nobody to talk to
BITE = 16 * 1024  # bytes of messages that are heard at once: these may be a thousand requests
PILE = 64  # timers that were set anew, or whose call is over


class Unknown(Call):
    """A method that there is not.

    The caller is told when it has said something: grpcio's clients lose the status of a call that ends while their
    first message is on its way. Who says nothing is told a moment later.
    """

    def __init__(self, path: str, now: float) -> None:
        super().__init__()
        self._error = PeerError("UNIMPLEMENTED", f"no method {path}"[:DETAILS])
        self._due = now + SILENCE
        self._opened = False

    def receive(self, message: bytes) -> None:
        del message
        raise self._error

    def half_close(self) -> None:
        raise self._error

    def poll(self) -> Iterator[bytes]:
        if self._opened:
            raise self._error
        self._opened = True
        return iter(())

    def deadline(self) -> float | None:
        return self._due


class Exchange:
    """One call and its stream."""

    __slots__ = ("_awake", "_last", "_line", "_messages", "call", "over", "rpc", "timer")

    def __init__(self, line: Line, rpc: Rpc, call: Call) -> None:
        self.rpc = rpc
        self.call = call
        self.over = False
        self.timer: float | None = None  # when to poll though nobody woke it
        self._line = line
        self._awake = False
        self._messages: Iterator[bytes] | None = None  # what is left of the last poll
        self._last = False  # that poll was the last
        call.wake = self.wake
        call.hold_back = self.hold_back

    def wake(self) -> None:
        if not self._awake and not self.over:
            self._awake = True
            line = self._line
            if not line.woken:
                line.on_wake()
            line.woken.append(self)

    def hold_back(self, waits: bool) -> None:  # noqa: FBT001 # as the call has it
        """Let the peer send no more than fits into the window of its stream."""
        line = self._line
        if not self.over and line.rpcs.hold_back(self.rpc, waits=waits) and not line.woken:
            line.on_wake()

    def half_close(self) -> None:
        try:
            self.call.half_close()
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)
        else:
            self.wake()

    def fill(self) -> None:
        """Write what there is, as long as the peer takes it."""
        line, rpc, call = self._line, self.rpc, self.call
        stream = rpc.stream
        queue = stream.queue
        try:
            while not queue and not self.over:
                if self._messages is None:
                    if not self._awake:
                        return
                    self._awake = False
                    self._last = call.finished  # if it is only set later, there may be something to say after that
                    self._messages = iter(call.poll())
                for message in self._messages:
                    framed = line.framer.known.get(id(message))
                    parcel = framed[1] if framed is not None else line.framer(message)
                    if stream.answered:
                        line.out.send(stream, parcel)
                    else:
                        line.rpcs.send(rpc, parcel)
                    if queue:
                        return
                self._messages = None
                if self._last and not call.is_busy:
                    self.close()
                    line.rpcs.end(rpc)
                    return
                deadline = call.deadline()
                if deadline != self.timer:
                    line.set_timer(self, deadline)
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Say what was wrong; let go of all that the call holds first, it may be long until the peer reads."""
        if self.over:
            return
        self.close((str(error) or repr(error))[:DETAILS])
        if isinstance(error, PeerError):
            status, details = error.status, error.message
        else:
            log.error("a stream failed", exc_info=error)
            status, details = "INTERNAL", f"internal error: {error!r}"
        self._line.rpcs.end(self.rpc, status, details[:DETAILS])

    def close(self, reason: str = "") -> None:
        """It is over, however that came. The first reason counts."""
        if self.over:
            return
        self.over = True
        self.timer = None
        self._messages = None
        self._line.exchanges.discard(self)
        try:
            self.call.close(reason)
        except Exception:
            log.exception("a stream could not be closed")
        self.call.wake = _nobody  # nothing that belongs to it is to wait for the collector of garbage
        self.call.hold_back = _nothing
        self.rpc.owner = None


def _nobody() -> None:
    """Whom a call wakes that is over."""


def _nothing(_: bool) -> None:  # noqa: FBT001 # as the call has it
    """What it holds back then."""


class Line:
    """All calls of one connection."""

    __slots__ = (
        "_draining",
        "_methods",
        "_order",
        "_peer",
        "_timers",
        "exchanges",
        "framer",
        "on_wake",
        "out",
        "rpcs",
        "unheard",
        "woken",
    )

    def __init__(
        self, rpcs: RpcConnection, methods: Mapping[str, Method], peer: Peer, framer: Framer, woken: Callable[[], None]
    ) -> None:
        """`woken` is called when there is something to `flush`, once until it is done."""
        self.rpcs = rpcs
        self.out = rpcs.out
        self.framer = framer
        self.exchanges: set[Exchange] = set()
        self._methods = methods
        self._peer = peer
        self.on_wake = woken
        self.woken: list[Exchange] = []
        self._draining = False
        self._timers: list[tuple[float, int, Exchange]] = []
        self._order = count()
        self.unheard: deque[RpcEvent] = deque()  # what came, and is more than one bite

    def receive(self, data: bytes, now: float) -> bool:
        """Hear what came, and what is left of earlier; whether there is something to `flush` now."""
        events: Iterable[RpcEvent] = self.rpcs.receive(data, now)
        if len(data) > BITE or self.unheard:
            self.unheard.extend(events)
            events = self._bite()
        return self._hear(events)

    def _bite(self) -> Iterator[RpcEvent]:
        """What comes next, in its order."""
        left = BITE
        while self.unheard and left > 0:
            event = self.unheard.popleft()
            left -= len(event.message) + PREFIX if isinstance(event, Message) else PREFIX
            yield event

    def _hear(self, events: Iterable[RpcEvent]) -> bool:
        for event in events:
            if type(event) is not Message:
                self._take(event)
                continue
            exchange: Exchange | None = event[0].owner
            if exchange is not None and not exchange.over:
                try:
                    exchange.call.receive(event[1])
                except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, it ends this stream and no other
                    exchange.fail(error)
        out = self.out
        return bool(self.woken or out.pieces or out.ready or out.drained or out.over or self.rpcs.connection.stirred)

    def tick(self, now: float) -> None:
        self.rpcs.connection.stirred = True
        for event in self.rpcs.tick(now):
            self._take(event)
        if self.rpcs.life.draining:  # it is old enough
            self._end_all()
        while self._timers and self._timers[0][0] <= now:
            when, _, exchange = heapq.heappop(self._timers)
            if exchange.timer == when:  # else it was set anew
                exchange.timer = None
                exchange.wake()

    @property
    def due(self) -> float:
        """When to call `tick`."""
        return min(self.rpcs.due, self._timers[0][0] if self._timers else inf)

    def flush(self) -> bytes:
        """Poll all that woke, and go on with all that waited for room; what to write now."""
        out = self.out
        while True:
            if self.woken and not out.paused:
                woken, self.woken = self.woken, []
                for exchange in woken:
                    exchange.fill()
            events = self.rpcs.pump() if out.ready or out.drained or out.over else ()
            for event in events:
                self._take(event)
            if not events and (not self.woken or out.paused):
                return out.take()

    def drain(self, now: float, grace: float) -> None:
        """No more calls, and an end to those that there are."""
        self.rpcs.life.drain(now, grace)
        self._end_all()

    def lost(self, why: str = "") -> None:
        """There is nobody to say anything to."""
        self.unheard.clear()
        for exchange in list(self.exchanges):
            exchange.close(why)
        self.rpcs.lost()

    def set_timer(self, exchange: Exchange, when: float | None) -> None:
        exchange.timer = when
        if when is not None:
            self.rpcs.connection.stirred = True
            if len(self._timers) > PILE + 2 * len(self.exchanges):
                self._timers = [entry for entry in self._timers if entry[2].timer == entry[0]]
                heapq.heapify(self._timers)
            heapq.heappush(self._timers, (when, next(self._order), exchange))

    def _take(self, event: RpcEvent) -> None:
        """All but messages, which come with bytes only."""
        exchange: Exchange | None = event.rpc.owner
        if isinstance(event, Called):
            self._open(event)
        elif exchange is None or exchange.over:
            return
        elif isinstance(event, Drained):
            exchange.fill()
        elif isinstance(event, HalfClosed):
            exchange.half_close()
        elif isinstance(event, Ended):
            exchange.close(event.why)

    def _open(self, event: Called) -> None:
        method = self._methods.get(event.path)
        if method is None:
            self.rpcs.connection.facts.append(CallRefused(self._peer.address, Wrong.METHOD, event.path))  # OPS-15
            method = Method(event.path, lambda _: Unknown(event.path, self.out.now))
        try:
            call = method.open(_calling(self._peer, event.fields))
        except PeerError as error:
            self.rpcs.end(event.rpc, error.status, error.message[:DETAILS])
            return
        except Exception:
            log.exception("a stream could not be opened")
            self.rpcs.end(event.rpc, "INTERNAL", "internal error: the call could not be opened")
            return
        exchange = event.rpc.owner = Exchange(self, event.rpc, call)
        self.exchanges.add(exchange)
        exchange.wake()
        if self.rpcs.life.draining:  # it was under way when the server began to stop
            self._end(exchange)

    def _end_all(self) -> None:
        if not self._draining:
            self._draining = True
            for exchange in list(self.exchanges):
                self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        try:
            exchange.call.drain(self.rpcs.life.grace_ends)
        except Exception as error:  # noqa: BLE001 # OPS-10
            exchange.fail(error)


def _calling(peer: Peer, fields: Sequence[Field]) -> Peer:
    said = tuple(value.decode("latin-1") for name, value in fields if name == b"authorization")
    return replace(peer, authorization=said) if said else peer
