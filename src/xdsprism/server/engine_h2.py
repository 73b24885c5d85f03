"""The `h2` engine: sockets and timers around `ConnectionCalls`; it decides nothing about the protocol.

The engine works in turns of the event loop. First the loop reads all sockets, and each connection only stores its
bytes. Then the queue (wake_queue.py) has all connections process their input, and after that write their output. System
calls that run in a row, not between other work, made both cheaper where it was measured (PERFORMANCE.md), most likely
because each system call leaves the caches cold. uvloop itself delays writes to the end of a turn.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, cast

from ..errors import UsageError
from ..http2.codes import Code
from ..http2.facts import Cause, Connected, Disconnected, Fact, HandshakeFailed
from ..http2.limits import Limits, Times
from ..http2.rpc import RpcConnection
from ..peer_address import host_of
from .addresses import address_of, bind_socket, resolve, why_not
from .calls import Method, Peer
from .certificates import identities_of, proved_by
from .connection_calls import ConnectionCalls
from .connection_limits import ConnectionLimits, ConnectionSlot
from .tls_listener import TlsListener
from .tls_transport import TlsTransport
from .wake_queue import WakeQueue

log = logging.getLogger("xdsprism.server")

BACKLOG = 4_096  # a whole fleet may reconnect at once
# Bytes of input that may wait for the engine's turn: of one connection before it is read no further (an ACK has about
# 100), and of all such connections together.
SMALL_INPUT: Final = 4 * 1024
MOST_INPUT = 8 * 1024 * 1024
NO_H2 = "no HTTP/2 over TLS"
JITTER = 0.1  # of the maximum age, more or less: clients that connected together must not reconnect together


class H2Engine:
    """Serves gRPC methods over HTTP/2, with the protocol of our own (http2/)."""

    def __init__(
        self,
        methods: Iterable[Method],
        *,
        receive_bytes: int,
        limits: Limits | None = None,
        times: Times | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.methods = {method.path: method for method in methods}
        self.parting = {path: each.parting for path, each in self.methods.items() if each.parting is not None}
        self.limits = replace(limits or Limits(), message_bytes=receive_bytes)
        self.times = times or Times()
        self.readers: list[Callable[[Sequence[Fact]], None]] = []
        self.loop = asyncio.get_running_loop()
        self.connection_limits = ConnectionLimits(self.limits, self.loop.time)
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self.secure(tls)
        self._servers: list[asyncio.Server | TlsListener] = []
        self._connections: set[SocketConnection] = set()
        self._idle = asyncio.Event()  # set while there is no connection
        self._idle.set()
        self._stopping: tuple[float, float] | None = None
        self.queue = WakeQueue(self.loop)
        self.large_input = 0  # bytes that wait for a turn at connections with more than SMALL_INPUT

    @property
    def open_calls(self) -> int:
        """How many calls are open on all connections."""
        return sum(connection.open_calls for connection in self._connections)

    async def start(self, listen: str) -> str:
        """Bind and serve. Return the address, with the chosen port in place of port 0."""
        sockets: list[socket.socket] = []
        try:
            for address in await resolve(self.loop, listen):
                sockets.append(bind_socket(address, sockets))
        except OSError as error:
            for each in sockets:
                each.close()
            raise UsageError(f"can't listen on {listen}: {why_not(listen, error)}") from error
        for each in sockets:
            self._servers.append(await self._serve(each))
        return f"{listen.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"

    async def stop(self, grace: float) -> None:
        """Drain every connection, reset the streams that are left after `grace` seconds, and wait for all to close."""
        for server in self._servers:
            server.close()
        now = self.loop.time()
        self._stopping = now, grace
        for connection in list(self._connections):
            connection.drain(now, grace)
        for server in self._servers:
            if isinstance(server, TlsListener):
                await server.wait_closed()
        await self._idle.wait()

    def secure(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections. A port that serves plain text can't change to TLS."""
        tls.set_alpn_protocols(["h2"])  # RFC 9113, section 3.2
        self._tls = tls

    async def _serve(self, bound: socket.socket) -> asyncio.Server | TlsListener:
        """Accept connections on a bound socket."""
        if self._tls is None:
            return await self.loop.create_server(lambda: SocketConnection(self), sock=bound, backlog=BACKLOG)
        bound.setblocking(False)  # noqa: FBT003 # positional only
        bound.listen(BACKLOG)
        return TlsListener(bound, self._make_tls_transport, self.connection_limits, self.report, self.times)

    def _make_tls_transport(self, slot: ConnectionSlot) -> TlsTransport:
        """Make the TLS layer of a new connection, with the certificates that are in use now."""
        tls = cast("ssl.SSLContext", self._tls)  # `_serve` makes a TlsListener only if there is one
        return TlsTransport(tls, lambda: SocketConnection(self, slot), self.times.linger)

    def add_connection(self, connection: SocketConnection) -> None:
        """Note a new connection, and drain it at once if the engine is stopping."""
        self._connections.add(connection)
        self._idle.clear()
        if self._stopping is not None:  # it was accepted just before the server began to stop
            connection.drain(*self._stopping)

    def remove_connection(self, connection: SocketConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._idle.set()

    def report(self, facts: Sequence[Fact]) -> None:
        """Pass facts to metrics and logs."""
        for reader in self.readers:
            reader(facts)


class SocketConnection(asyncio.Protocol):
    """One client's socket, and the calls on it."""

    __slots__ = (
        "_calls",
        "_certificate",
        "_connected_at",
        "_engine",
        "_has_begun",
        "_ignored_bytes",
        "_input",
        "_is_closing",
        "_is_lost",
        "_is_queued",
        "_is_reading_paused",
        "_is_writing_paused",
        "_large_input",
        "_loop",
        "_lost_at",
        "_lost_by",
        "_peer",
        "_slot",
        "_timer",
        "_timer_at",
        "_transport",
        "awaits_delayed",
        "is_scheduled",
        "owner",
    )

    def __init__(self, engine: H2Engine, slot: ConnectionSlot | None = None) -> None:
        """`slot`: from the TLS listener, which admits connections before the handshake; None: admit this one later."""
        self._engine = engine
        self._slot = slot
        self._loop = engine.loop
        self._transport: Any = None  # an asyncio.Transport, once there is one
        self._calls: ConnectionCalls | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_writing_paused = False
        self.is_scheduled = False  # its output is written in the engine's next turn, or is being written
        self.awaits_delayed = False  # the engine's queue looks at it when its delayed output is due
        self._input = b""  # received bytes, until the engine's turn
        self._large_input = 0  # bytes of it that the engine has counted
        self._is_queued = False  # it has its input processed in the engine's next turn
        self._is_reading_paused = False  # until the calls have processed their input
        self._has_begun = False  # the engine's turn has come after it was accepted
        self._is_closing = False
        self._ignored_bytes = 0  # received after `_is_closing`
        self._peer = self.owner = ""
        self._certificate: bytes | None = None
        self._connected_at = 0.0
        self._is_lost = False  # it ends in the engine's turn
        self._lost_at = 0.0
        self._lost_by: Exception | None = None

    @property
    def open_calls(self) -> int:
        return len(self._calls.rpcs.connection.streams) if self._calls is not None else 0

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a slot. The rest is done in the engine's turn, since the loop accepts a whole fleet at once."""
        engine = self._engine
        self._transport = transport
        self._connected_at = self._loop.time()
        self._peer = address_of(transport)
        self.owner = host_of(self._peer)
        self._slot = slot = self._slot or engine.connection_limits.admit(self._peer)
        if slot.is_silent:
            self._has_begun = True
            engine.report([Connected(self._peer), *slot.facts(self._peer)])
            self._transport.abort()
            return
        if not _speaks_h2(transport):
            self._has_begun = True
            engine.report([Connected(self._peer), HandshakeFailed(self._peer, Cause.ALPN, NO_H2)])
            self._transport.close()
            return
        self._certificate = _certificate(transport)  # of TLS that has not failed yet
        engine.add_connection(self)
        # The client's preface is on its way, or here: after the loop has read it, one write answers it and has ours.
        self._loop.call_soon(self._queue_input)

    def _begin(self) -> ConnectionCalls:
        """Make the calls of this connection."""
        self._has_begun = True
        engine, slot = self._engine, self._slot
        engine.report([Connected(self._peer)])
        age = engine.times.age * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 # not a secret
        now, count, parting = self._loop.time(), engine.connection_limits.count, engine.parting
        rpcs = RpcConnection(engine.limits, engine.times, now, self._peer, age=age, count=count, parting=parting)
        shown = self._certificate
        peer = Peer(self._peer, identities_of(shown), proved=proved_by(shown)) if shown else Peer(self._peer)
        self._calls = calls = ConnectionCalls(rpcs, engine.methods, peer, partial(engine.queue.add_output, self))
        if slot is not None and slot.refused is not None:
            rpcs.connection.fail(slot.refused)
        engine.queue.add_output(self)
        return calls

    def data_received(self, data: bytes) -> None:
        # Only store input, however much of it there is: if a whole fleet sends something, turns process a part each.
        self._input = self._input + data if self._input else data
        self._queue_input()
        if len(self._input) > SMALL_INPUT:
            self._hold_back(len(data))

    def _queue_input(self) -> None:
        """Have input processed in the engine's next turn."""
        if not self._is_queued:
            self._is_queued = True
            self._engine.queue.add_input(self)

    def _hold_back(self, size: int) -> None:
        """Read no more before the input is processed. If all connections hold very much, process it now."""
        self._large_input += size
        self._engine.large_input += size
        if self._engine.large_input > MOST_INPUT:
            self.process_input()
        else:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def process_input(self) -> None:
        """Process stored input, or a batch of it; the next turn goes on with the rest."""
        data, self._input = self._input, b""
        self._is_queued = False
        if self._large_input:
            self._engine.large_input -= self._large_input
            self._large_input = 0
        calls = self._calls
        if calls is None and not self._has_begun:
            try:
                calls = self._begin()
            except Exception as error:  # noqa: BLE001 # OPS-10
                self.fail(error)
        if self._is_closing:
            self._ignored_bytes += len(data)
        elif calls is not None and (data or calls.backlog):
            was_scheduled, self.is_scheduled = self.is_scheduled, True
            try:
                has_output = calls.receive(data, self._loop.time())
                if self._slot is not None and self._slot.shakes_hands and calls.rpcs.connection.is_established:
                    self._slot.end_handshake()
            except Exception as error:  # noqa: BLE001 # OPS-10: the engine goes on with other connections
                self.fail(error)
                return
            self.is_scheduled = was_scheduled
            if has_output:
                self._engine.queue.add_output(self)
            if not self.awaits_delayed and calls.out.delayed_until < inf:
                self._engine.queue.add_delayed(self)
            if calls.backlog:
                self._pause_reading()
                self._queue_input()
                return
        if self._is_reading_paused:
            self._resume_reading()

    def _resume_reading(self) -> None:
        self._is_reading_paused = False
        if not self._is_lost:
            with suppress(RuntimeError):  # it is closing
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if self._calls is not None:
            self._calls.out.pause()

    def resume_writing(self) -> None:
        """Schedule the queued output.

        A flush from here could close the transport, and then CPython 3.11 calls `connection_lost` twice.
        """
        self._is_writing_paused = False
        if self._calls is not None and self._calls.rpcs.connection.failed is None:
            self._calls.out.resume()
            self._engine.queue.add_output(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Have the connection end in a turn of the engine, since a whole fleet may leave at once.

        Its descriptor is free, so a client that comes back finds room although the connection has not ended.
        """
        if self._timer is not None:
            self._timer.cancel()
        if self._slot is not None:
            self._slot.release()
        self._is_lost = True
        self._lost_at, self._lost_by = self._loop.time(), error
        self._engine.queue.add_lost(self)

    def end(self) -> None:
        """Process the input that came before the connection was lost, close its calls, and report its end."""
        self.process_input()
        calls, self._calls = self._calls, None
        error, self._lost_by = self._lost_by, None
        self._transport = None  # otherwise this cycle, with the buffers of TLS, waits for the garbage collector
        seconds = self._lost_at - self._connected_at
        if calls is None:
            refused = self._slot.refused if self._slot is not None else None
            code, why = (refused.code, refused.why) if refused else (Code.INADEQUATE_SECURITY, NO_H2)
            self._engine.report([Disconnected(self._peer, seconds, code, why)])
        else:
            calls.connection_lost()
            fault = calls.rpcs.connection.failed
            why = fault.why if fault else "" if self._is_closing else str(error or "")
            code = fault.code if fault else Code.NO_ERROR
            self._engine.report([*calls.rpcs.connection.facts, Disconnected(self._peer, seconds, code, why)])
        self._engine.remove_connection(self)

    # -- the calls

    def fail(self, error: Exception) -> None:
        """Abort the connection after an unexpected error."""
        log.error("a connection failed", exc_info=error)
        if not self._is_lost:
            self._transport.abort()

    def drain(self, now: float, grace: float) -> None:
        """Let the calls end within `grace` seconds, and close the connection after the last."""
        self.process_input()  # calls that have arrived are served
        if self._calls is not None:
            self._calls.drain(now, grace)
            self.flush()

    def flush(self) -> None:
        """Write the output of all woken calls: one write, or more while there is queued DATA and room."""
        calls, transport = self._calls, self._transport
        if calls is None or self._is_lost or self._is_closing:
            return
        self.is_scheduled = True
        out = calls.out
        while written := calls.flush():
            transport.write(written)
            if self._is_writing_paused or not out.waits or not out.can_write_more:
                break
        self.is_scheduled = False
        if calls.events.has_changed:
            self._apply_state(calls)

    @property
    def delayed_until(self) -> float:
        return self._calls.out.delayed_until if self._calls is not None and not self._is_lost else inf

    def flush_delayed(self, now: float) -> None:
        """Write the delayed output if it is due."""
        if self._calls is not None:
            self._calls.out.send_delayed(now)
            self.flush()

    def _apply_state(self, calls: ConnectionCalls) -> None:
        """Act on changes other than messages: report facts, close the connection, set the timer."""
        state = calls.rpcs.connection
        state.events.has_changed = False
        if state.facts:
            self._engine.report(state.events.take_facts())
        if calls.rpcs.is_closing:
            self._hang_up()
            return
        if state.failed is not None:
            self._write_eof()
        self._set_timer(calls.due)

    def _tick(self) -> None:
        """Do what is due on this connection."""
        self._timer = None
        self._timer_at = inf
        self.process_input()  # otherwise a timeout could fire for bytes that have arrived
        if self._calls is not None:
            self.is_scheduled = True
            self._calls.tick(self._loop.time())
            self.flush()

    def _set_timer(self, due: float) -> None:
        """Set the timer if `due` is earlier. A timer that fires too early does nothing and is set again."""
        if due < self._timer_at and not self._is_closing:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_at(due, self._tick)

    def _write_eof(self) -> None:
        """Shut down the sending side, and go on reading.

        If a socket closes with unread input, the kernel sends RST, and the client loses our last frames.
        """
        if not self._is_closing and self._transport.can_write_eof():
            with suppress(OSError):
                self._transport.write_eof()

    def _hang_up(self) -> None:
        """Close the connection after the last output.

        After a clean drain the client closes first (see `_write_eof`); after a fault, or without time left, we do.
        """
        calls = self._calls
        if self._is_closing or calls is None:
            return
        in_good_order = calls.rpcs.connection.failed is None and self._loop.time() < calls.rpcs.life.grace_ends
        if in_good_order:
            self._write_eof()
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        if in_good_order:
            self._await_peer_close(calls)
        else:
            self._close()

    def _await_peer_close(self, calls: ConnectionCalls, before: tuple[int, int] | None = None) -> None:
        """Wait for the client to close, as long as it goes on reading or sending and the grace is not over."""
        now = self._transport.get_write_buffer_size(), self._ignored_bytes
        if now == before or self._loop.time() >= calls.rpcs.life.grace_ends:
            self._close()
        else:
            self._timer = self._loop.call_later(self._engine.times.linger, self._await_peer_close, calls, now)

    def _close(self) -> None:
        """Close the transport; abort it if the client does not read what is left within `times.linger` seconds."""
        transport = self._transport
        transport.close()
        self._timer = self._loop.call_later(self._engine.times.linger, transport.abort)


def _speaks_h2(transport: asyncio.BaseTransport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == "h2"


def _certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """Return the client's certificate, which the handshake has verified."""
    tls = transport.get_extra_info("ssl_object")
    shown: bytes | None = tls.getpeercert(binary_form=True) if tls is not None else None
    return shown
