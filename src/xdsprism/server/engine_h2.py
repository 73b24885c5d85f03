"""The transport of our own: sockets and timers around `exchanges.Line`, and nothing about the protocol.

In a turn of the loop, what came is heard after all of it was read, and what there is to say is said after that. To call
the kernel in a row, and not between the rest, made both cheaper where it was measured (PERFORMANCE.md): most likely
since each call leaves the caches cold. What is written, uvloop keeps for the end of the turn by itself.
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
from math import inf
from typing import Any, cast

from ..errors import UsageError
from ..http2.codes import Code
from ..http2.facts import Cause, Connected, Disconnected, Fact, HandshakeFailed
from ..http2.grpc import Framer
from ..http2.limits import Limits, Times
from ..http2.rpc import RpcConnection
from .addresses import address_of, bound, resolve, why_not
from .calls import Method, Peer
from .certificates import identities_of
from .exchanges import Line
from .handshake import Entrance
from .room import Room, Seat
from .secured import Secured

log = logging.getLogger("xdsprism.server")

BACKLOG = 4_096  # a fleet may come back at once
SMALL = 4 * 1024  # bytes that may wait for the engine's turn; ACKs have some 100
NO_H2 = "no HTTP/2 over TLS"
JITTER = 0.1  # of the age of connections, either way: those that came together are not to leave together


class H2Engine:
    """Serves methods of bytes over HTTP/2."""

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
        self.framer = Framer()
        self.loop = asyncio.get_running_loop()
        self.room = Room(self.limits, self.loop.time)
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self.secure(tls)
        self._servers: list[asyncio.Server | Entrance] = []
        self._plugs: set[Plug] = set()
        self._idle = asyncio.Event()  # there is no connection
        self._idle.set()
        self._stopping: tuple[float, float] | None = None
        self._heard: list[Plug] = []
        self._woken: list[Plug] = []
        self._due = False  # a turn, for these

    @property
    def open_calls(self) -> int:
        return sum(plug.open_calls for plug in self._plugs)

    async def start(self, listen: str) -> str:
        """Bind and serve; returns the address, with the port that was chosen for port 0."""
        sockets: list[socket.socket] = []
        try:
            for address in await resolve(self.loop, listen):
                sockets.append(bound(address, sockets))
        except OSError as error:
            for each in sockets:
                each.close()
            raise UsageError(f"can't listen on {listen}: {why_not(listen, error)}") from error
        for each in sockets:
            self._servers.append(await self._serve(each))
        return f"{listen.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"

    async def stop(self, grace: float) -> None:
        """Let every stream end cleanly; after `grace` seconds end those that did not."""
        for server in self._servers:
            server.close()
        now = self.loop.time()
        self._stopping = now, grace
        for plug in list(self._plugs):
            plug.drain(now, grace)
        for server in self._servers:
            if isinstance(server, Entrance):
                await server.wait_closed()
        await self._idle.wait()

    def secure(self, tls: ssl.SSLContext) -> None:
        """From now on new connections get this. Not from plain to TLS while it serves."""
        tls.set_alpn_protocols(["h2"])  # RFC 9113, section 3.2
        self._tls = tls

    async def _serve(self, bound: socket.socket) -> asyncio.Server | Entrance:
        if self._tls is None:
            return await self.loop.create_server(lambda: Plug(self), sock=bound, backlog=BACKLOG)
        bound.setblocking(False)  # noqa: FBT003 # not ours to name
        bound.listen(BACKLOG)
        return Entrance(bound, self._secured, self.room, self.tell, self.times)

    def _secured(self, seat: Seat) -> Secured:
        """With what is in use now, which may be renewed at any time."""
        tls = cast("ssl.SSLContext", self._tls)  # where there is none, nothing is secured
        return Secured(tls, lambda: Plug(self, seat), self.times.linger)

    def joined(self, plug: Plug) -> None:
        self._plugs.add(plug)
        self._idle.clear()
        if self._stopping is not None:  # it was accepted when the server began to stop
            plug.drain(*self._stopping)

    def left(self, plug: Plug) -> None:
        self._plugs.discard(plug)
        if not self._plugs:
            self._idle.set()

    def heard(self, plug: Plug) -> None:
        """Something came from it."""
        if not self._due:
            self._soon()
        self._heard.append(plug)

    def woken(self, plug: Plug) -> None:
        """Something is to be written to it: this turn of the loop, after everything else in it."""
        if not self._due:
            self._soon()
        self._woken.append(plug)

    def tell(self, facts: Sequence[Fact]) -> None:
        for reader in self.readers:
            reader(facts)

    def _soon(self) -> None:
        self._due = True
        self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        heard, self._heard = self._heard, []
        for plug in heard:
            plug.hear()
        self._due = False
        woken, self._woken = self._woken, []
        for plug in woken:
            try:
                plug.flush()
            except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, the others in this turn are served
                plug.fail(error)


class Plug(asyncio.Protocol):
    """One socket and its line."""

    __slots__ = (
        "_behind",
        "_busy",
        "_engine",
        "_ignored",
        "_leaving",
        "_line",
        "_loop",
        "_paused",
        "_peer",
        "_seat",
        "_since",
        "_timer",
        "_timer_at",
        "_transport",
        "_unheard",
    )

    def __init__(self, engine: H2Engine, seat: Seat | None = None) -> None:
        """`seat`: what it was given when it came, where that was before."""
        self._engine = engine
        self._seat = seat
        self._loop = engine.loop
        self._transport: Any = None  # an asyncio.Transport, once there is one
        self._line: Line | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._paused = False
        self._busy = False  # it is in the engine's next turn anyway, or in this one
        self._unheard = b""  # what came, until the engine's turn
        self._behind = False  # more came than was heard at once, and nothing is read
        self._leaving = False
        self._ignored = 0  # bytes that came after that
        self._peer = ""
        self._since = 0.0

    @property
    def open_calls(self) -> int:
        return len(self._line.rpcs.connection.streams) if self._line is not None else 0

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        engine = self._engine
        self._transport = transport
        self._since = now = self._loop.time()
        self._peer = address_of(transport)
        self._seat = seat = self._seat or engine.room.enter(self._peer)
        engine.tell([Connected(self._peer)])
        if seat.without_words:
            engine.tell(seat.facts(self._peer))
            self._transport.abort()
            return
        if not _speaks_h2(transport):
            engine.tell([HandshakeFailed(self._peer, Cause.ALPN, NO_H2)])
            self._transport.close()
            return
        _without_delay(transport)
        age = engine.times.age * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 # nothing to guess
        crowd, parting = engine.room.crowd, engine.parting
        rpcs = RpcConnection(engine.limits, engine.times, now, self._peer, age=age, crowd=crowd, parting=parting)
        peer = Peer(self._peer, _identities(transport))
        self._line = Line(rpcs, engine.methods, peer, engine.framer, self._wake)
        engine.joined(self)
        if seat.refused is not None:
            rpcs.connection.fail(seat.refused)
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._unheard or len(data) > SMALL:  # or one that sends much fills our memory first
            self.hear(data)
        else:
            self._unheard = data
            self._engine.heard(self)

    def hear(self, more: bytes = b"") -> None:
        """What came before, and what comes with it."""
        data, self._unheard = self._unheard + more, b""
        line = self._line
        if self._leaving:
            self._ignored += len(data)
        elif line is not None and (data or line.unheard):
            busy, self._busy = self._busy, True
            try:
                has_words = line.receive(data, self._loop.time())
            except Exception as error:  # noqa: BLE001 # OPS-10: and whoever had this heard goes on with the others
                self.fail(error)
                return
            if line.unheard and not self._behind:
                self._behind = True  # read no more before all that came is heard
                self._transport.pause_reading()
                self._loop.call_soon(self._hear_on)
            if not has_words:
                self._busy = busy
            elif not busy:
                self._engine.woken(self)

    def _hear_on(self) -> None:
        """More of what came at once, now that others had their turn."""
        self.hear()
        if self._line is not None and self._line.unheard and not self._leaving:
            self._loop.call_soon(self._hear_on)
            return
        self._behind = False
        if self._transport is not None:
            with suppress(RuntimeError):  # it is closing
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._paused = True
        if self._line is not None:
            self._line.rpcs.out.pause()

    def resume_writing(self) -> None:
        """Not at once: a transport that is closed in here by a flush takes itself for lost twice (CPython 3.11)."""
        self._paused = False
        if self._line is not None and self._line.rpcs.connection.failed is None:
            self._line.rpcs.out.resume()
            self._engine.woken(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.hear()
        line, self._line = self._line, None
        self._transport = None  # or the two keep each other, with the buffers of TLS, until the collector comes
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._loop.time() - self._since
        refused = self._seat.refused if self._seat is not None else None
        if self._seat is not None:
            self._seat.leave()
        if line is None:
            code, why = (refused.code, refused.why) if refused else (Code.INADEQUATE_SECURITY, NO_H2)
            self._engine.tell([Disconnected(self._peer, seconds, code, why)])
            return
        line.lost()
        fault = line.rpcs.connection.failed
        code, why = (fault.code, fault.why) if fault else (Code.NO_ERROR, "" if self._leaving else str(error or ""))
        self._engine.tell([*line.rpcs.connection.facts, Disconnected(self._peer, seconds, code, why)])
        self._engine.left(self)

    # -- the line

    def fail(self, error: Exception) -> None:
        log.error("a connection failed", exc_info=error)
        if self._transport is not None:
            self._transport.abort()

    def drain(self, now: float, grace: float) -> None:
        self.hear()  # what came before counts
        if self._line is not None:
            self._line.drain(now, grace)
            self.flush()

    def flush(self) -> None:
        """One write, unless there is more to say than goes into one."""
        line, transport = self._line, self._transport
        if line is None or self._leaving:
            return
        self._busy = True
        out = line.rpcs.out
        while written := line.flush():
            transport.write(written)
            if self._paused or not out.ready or not out.more:
                break
        self._busy = False
        if line.rpcs.connection.stirred:
            self._settle(line)

    def _settle(self, line: Line) -> None:
        """What has no part in the flow of messages, and may have changed with more than that."""
        connection = line.rpcs.connection
        connection.stirred = False
        if connection.facts:
            self._engine.tell(connection.facts)
            connection.facts = []
        if line.rpcs.closing:
            self._hang_up()
            return
        if connection.failed is not None:
            self._say_no_more()
        self._set_timer(line.due)

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._engine.woken(self)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = inf
        self.hear()  # or something was awaited that is here
        if self._line is not None:
            self._busy = True
            self._line.tick(self._loop.time())
            self.flush()

    def _set_timer(self, due: float) -> None:
        """Only if it is sooner: whoever comes too early finds nothing to do, and sets it anew."""
        if due < self._timer_at and not self._leaving:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_at(due, self._tick)

    def _say_no_more(self) -> None:
        """Still read on for a moment: what lies unread when a socket closes makes the peer lose our last words."""
        if not self._leaving and self._transport.can_write_eof():
            with suppress(OSError):
                self._transport.write_eof()

    def _hang_up(self) -> None:
        """When all is said. In good order we wait for the peer to hang up first, see `_say_no_more`; else we do."""
        line = self._line
        if self._leaving or line is None:
            return
        in_good_order = line.rpcs.connection.failed is None and self._loop.time() < line.rpcs.life.grace_ends
        if in_good_order:
            self._say_no_more()
        self._leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if in_good_order:
            self._see_off(line)
        else:
            self._close()

    def _see_off(self, line: Line, before: tuple[int, int] | None = None) -> None:
        """It may have much to read still: as long as something happens there it has time, until the grace is over."""
        now = self._transport.get_write_buffer_size(), self._ignored
        if now == before or self._loop.time() >= line.rpcs.life.grace_ends:
            self._close()
        else:
            self._timer = self._loop.call_later(self._engine.times.linger, self._see_off, line, now)

    def _close(self) -> None:
        """A peer that does not read what is left has a moment to."""
        transport = self._transport
        transport.close()
        self._timer = self._loop.call_later(self._engine.times.linger, transport.abort)


def _speaks_h2(transport: asyncio.BaseTransport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == "h2"


def _identities(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """TLS would not be agreed on, had the certificate not been verified."""
    tls = transport.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    return identities_of(shown) if shown else ()


def _without_delay(transport: asyncio.BaseTransport) -> None:
    """Not every loop does this by itself for a socket that it did not make, and without it an update takes 40 ms."""
    plug = transport.get_extra_info("socket")
    if plug is not None:
        with suppress(OSError):
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
