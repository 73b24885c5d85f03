"""Calls on one connection of our own transport: what `engine_grpcio` does per call, without a task and without I/O.

A `Line` is told of bytes and of the time, drives its calls, and has bytes to be written. Whatever wakes a call only
notes it; `flush` polls all that were woken, so that a turn of the loop costs one write, however many calls it touched.
A call is polled while its stream takes what it is given, and not again before that is on its way (SOT-16, DLT-23).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import inf

from ..errors import PeerError
from ..http2.grpc import Framer
from ..http2.rpc import Called, Drained, Ended, HalfClosed, Message, Rpc, RpcConnection, RpcEvent
from .calls import Call, Method

log = logging.getLogger("xdsprism.server")

DETAILS = 1_000  # characters of what is said about an error
PILE = 64  # timers that were set anew, or whose call is over


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

    def wake(self) -> None:
        if not self._awake and not self.over:
            self._awake = True
            self._line.note(self)

    def receive(self, message: bytes) -> None:
        try:
            self.call.receive(message)
        except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, it ends this stream and no other
            self.fail(error)
        else:
            self.wake()

    def half_close(self) -> None:
        try:
            self.call.half_close()
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)
        else:
            self.wake()

    def fill(self) -> None:
        """Write what there is, as long as the peer takes it."""
        line, rpc = self._line, self.rpc
        queue = rpc.stream.queue
        try:
            while not queue and not self.over:
                if self._messages is None:
                    if not self._awake:
                        return
                    self._awake = False
                    self._last = self.call.finished  # if it is only set later, there may be something to say after that
                    self._messages = iter(self.call.poll())
                for message in self._messages:
                    line.rpcs.send(rpc, line.framer(message))
                    if queue:
                        return
                self._polled()
        except Exception as error:  # noqa: BLE001 # OPS-10
            self.fail(error)

    def _polled(self) -> None:
        self._messages = None
        if self._last:
            self.close()
            self._line.rpcs.end(self.rpc)
            return
        deadline = self.call.deadline()
        if deadline != self.timer:
            self._line.set_timer(self, deadline)

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


class Line:
    """All calls of one connection."""

    __slots__ = (
        "_draining",
        "_methods",
        "_on_wake",
        "_order",
        "_peer",
        "_timers",
        "_woken",
        "exchanges",
        "framer",
        "rpcs",
    )

    def __init__(
        self, rpcs: RpcConnection, methods: Mapping[str, Method], peer: str, framer: Framer, woken: Callable[[], None]
    ) -> None:
        """`woken` is called when there is something to `flush`, once until it is done."""
        self.rpcs = rpcs
        self.framer = framer
        self.exchanges: set[Exchange] = set()
        self._methods = methods
        self._peer = peer
        self._on_wake = woken
        self._woken: list[Exchange] = []
        self._draining = False
        self._timers: list[tuple[float, int, Exchange]] = []
        self._order = count()

    def receive(self, data: bytes, now: float) -> None:
        for event in self.rpcs.receive(data, now):
            self._take(event)

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
        rpcs = self.rpcs
        out = rpcs.out
        while True:
            if self._woken and not out.paused:
                woken, self._woken = self._woken, []
                for exchange in woken:
                    exchange.fill()
            events = rpcs.pump() if out.waits else ()
            for event in events:
                self._take(event)
            if not events and (not self._woken or out.paused):
                return out.take()

    def drain(self, now: float, grace: float) -> None:
        """No more calls, and an end to those that there are."""
        self.rpcs.life.drain(now, grace)
        self._end_all()

    def lost(self, why: str = "") -> None:
        """There is nobody to say anything to."""
        for exchange in list(self.exchanges):
            exchange.close(why)

    def note(self, exchange: Exchange) -> None:
        if not self._woken:
            self._on_wake()
        self._woken.append(exchange)

    def set_timer(self, exchange: Exchange, when: float | None) -> None:
        exchange.timer = when
        if when is not None:
            self.rpcs.connection.stirred = True
            if len(self._timers) > PILE + 2 * len(self.exchanges):
                self._timers = [entry for entry in self._timers if entry[2].timer == entry[0]]
                heapq.heapify(self._timers)
            heapq.heappush(self._timers, (when, next(self._order), exchange))

    def _take(self, event: RpcEvent) -> None:
        exchange: Exchange | None = event.rpc.owner
        if isinstance(event, Called):
            self._open(event)
        elif exchange is None or exchange.over:
            return
        elif type(event) is Message:
            exchange.receive(event.message)
        elif isinstance(event, Drained):
            exchange.fill()
        elif isinstance(event, HalfClosed):
            exchange.half_close()
        elif isinstance(event, Ended):
            exchange.close(event.why)

    def _open(self, event: Called) -> None:
        method = self._methods.get(event.path)
        if method is None:
            self.rpcs.end(event.rpc, "UNIMPLEMENTED", f"no method {event.path}"[:DETAILS])
            return
        try:
            call = method.open(self._peer)
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
            exchange.call.end()
        except Exception as error:  # noqa: BLE001 # OPS-10
            exchange.fail(error)
