"""The transport of our own: sockets and timers around `exchanges.Line`, and nothing about the protocol."""

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
from typing import Any

from ..errors import UsageError
from ..http2.codes import Code
from ..http2.facts import Connected, Disconnected, Fact
from ..http2.grpc import Framer
from ..http2.limits import Limits, Times
from ..http2.rpc import RpcConnection
from .calls import Method
from .exchanges import Line

log = logging.getLogger("xdsprism.server")

BACKLOG = 4_096  # a fleet may come back at once
BUFFER = 64 * 1024  # bytes read at once
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
        """`tls` may load another certificate at any time: connections made after that get it."""
        self.methods = {method.path: method for method in methods}
        self.limits = replace(limits or Limits(), message_bytes=receive_bytes)
        self.times = times or Times()
        self.readers: list[Callable[[Sequence[Fact]], None]] = []
        self.framer = Framer()
        self.loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(BUFFER))
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._plugs: set[Plug] = set()
        self._idle = asyncio.Event()  # there is no connection
        self._idle.set()
        self._stopping: tuple[float, float] | None = None
        self._woken: list[Plug] = []

    @property
    def open_calls(self) -> int:
        return sum(plug.open_calls for plug in self._plugs)

    async def start(self, listen: str) -> str:
        """Bind and serve; returns the address, with the port that was chosen for port 0."""
        sockets: list[socket.socket] = []
        try:
            for address in await _resolve(self.loop, listen):
                sockets.append(_bound(address, sockets))
        except OSError as error:
            for each in sockets:
                each.close()
            raise UsageError(f"can't listen on {listen}: the address is in use, or not one of this machine") from error
        secure = self._secure()
        for each in sockets:
            self._servers.append(await self.loop.create_server(self._plug, sock=each, backlog=BACKLOG, **secure))
        return f"{listen.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"

    async def stop(self, grace: float) -> None:
        """Let every stream end cleanly; after `grace` seconds end those that did not."""
        for server in self._servers:
            server.close()
        now = self.loop.time()
        self._stopping = now, grace
        for plug in list(self._plugs):
            plug.drain(now, grace)
        await self._idle.wait()

    def _secure(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        self._tls.set_alpn_protocols(["h2"])  # RFC 9113, section 3.2
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": self.times.preface,
            "ssl_shutdown_timeout": self.times.linger,
        }

    def _plug(self) -> Plug:
        return Plug(self)

    def buffer(self) -> memoryview:
        """One for all connections, for nothing stays in it; but loops of Windows read ahead, each into its own."""
        windows = getattr(asyncio, "ProactorEventLoop", None)
        if windows is not None and isinstance(self.loop, windows):
            return memoryview(bytearray(BUFFER))
        return self._buffer

    def joined(self, plug: Plug) -> None:
        self._plugs.add(plug)
        self._idle.clear()
        if self._stopping is not None:  # it was accepted when the server began to stop
            plug.drain(*self._stopping)

    def left(self, plug: Plug) -> None:
        self._plugs.discard(plug)
        if not self._plugs:
            self._idle.set()

    def woken(self, plug: Plug) -> None:
        """Something is to be written to it: this turn of the loop, after everything else in it."""
        if not self._woken:
            self.loop.call_soon(self._flush)
        self._woken.append(plug)

    def tell(self, facts: Sequence[Fact]) -> None:
        for reader in self.readers:
            reader(facts)

    def _flush(self) -> None:
        woken, self._woken = self._woken, []
        for plug in woken:
            try:
                plug.flush()
            except Exception:  # OPS-10: whatever it is, the others in this turn are served
                log.exception("a connection failed")
                plug.abort()


class Plug(asyncio.BufferedProtocol):
    """One socket and its line."""

    __slots__ = (
        "_buffer",
        "_busy",
        "_engine",
        "_leaving",
        "_line",
        "_loop",
        "_paused",
        "_peer",
        "_since",
        "_timer",
        "_timer_at",
        "_transport",
    )

    def __init__(self, engine: H2Engine) -> None:
        self._engine = engine
        self._buffer = engine.buffer()
        self._loop = engine.loop
        self._transport: Any = None  # an asyncio.Transport, once there is one
        self._line: Line | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._paused = False
        self._busy = False  # a flush is about to come anyway
        self._leaving = False
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
        self._peer = _peer_of(transport)
        engine.tell([Connected(self._peer)])
        if not _speaks_h2(transport):
            self._transport.abort()
            return
        _without_delay(transport)
        age = engine.times.age * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 # nothing to guess
        rpcs = RpcConnection(engine.limits, engine.times, now, self._peer, age=age)
        self._line = Line(rpcs, engine.methods, self._peer, engine.framer, self._wake)
        engine.joined(self)
        self.flush()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        line = self._line
        if line is not None:
            self._busy = True
            line.receive(bytes(self._buffer[:nbytes]), self._loop.time())
            self.flush()

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
        line, self._line = self._line, None
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._loop.time() - self._since
        if line is None:
            self._engine.tell([Disconnected(self._peer, seconds, Code.INADEQUATE_SECURITY, "no HTTP/2 over TLS")])
            return
        line.lost()
        fault = line.rpcs.connection.failed
        code, why = (fault.code, fault.why) if fault else (Code.NO_ERROR, str(error or ""))
        self._engine.tell([*line.rpcs.connection.facts, Disconnected(self._peer, seconds, code, why)])
        self._engine.left(self)

    # -- the line

    def abort(self) -> None:
        self._transport.abort()

    def drain(self, now: float, grace: float) -> None:
        if self._line is not None:
            self._line.drain(now, grace)
            self.flush()

    def flush(self) -> None:
        """One write, unless there is more to say than goes into one."""
        line, transport = self._line, self._transport
        if line is None:
            return
        self._busy = True
        out = line.rpcs.out
        while written := line.flush():
            transport.write(written)
            if self._paused or not out.more:
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
            self._engine.woken(self)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = inf
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
        """Once all is written; a peer that does not read that has a moment to."""
        if not self._leaving:
            self._leaving = True
            if self._timer is not None:
                self._timer.cancel()
            self._transport.close()
            self._timer = self._loop.call_later(self._engine.times.linger, self._transport.abort)


def _peer_of(transport: asyncio.BaseTransport) -> str:
    """As gRPC writes it."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return "unknown"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _speaks_h2(transport: asyncio.BaseTransport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == "h2"


def _without_delay(transport: asyncio.BaseTransport) -> None:
    """Not every loop does this by itself for a socket that it did not make, and without it an update takes 40 ms."""
    plug = transport.get_extra_info("socket")
    if plug is not None:
        with suppress(OSError):
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


Address = tuple[socket.AddressFamily, tuple[Any, ...]]


async def _resolve(loop: asyncio.AbstractEventLoop, listen: str) -> list[Address]:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"can't listen on {listen!r}: it should be HOST:PORT")
    found = await loop.getaddrinfo(
        host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bound(address: Address, before: Sequence[socket.socket]) -> socket.socket:
    """If the port is ours to choose, it is the same one for every address of the host."""
    family, (host, port, *rest) = address
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" and not before else 1)
        made.bind((host, port or (before[0].getsockname()[1] if before else 0), *rest))
    except OSError:
        made.close()
        raise
    return made
