"""A port for HTTP/1: uvicorn as a guest in our event loop, which knows no limits of its own.

Each connection has a seat (room.py) and a pace (http_pace.py). When the room is full, a connection that asks for
nothing makes place for the one that comes: first one of the same address, so that a flood of one address turns on
itself.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..errors import XdsError
from ..http2.facts import Dismissal, Dismissed, Fact
from ..http2.limits import Limit, Limits, Times
from .addresses import address_of, why_not
from .handshake import Entrance
from .http_pace import HttpTimes, Pace, Waiting
from .room import Room, Seat, host_of
from .secured import Secured

GRACE = 2  # seconds for requests in progress when the server stops
BACKLOG = 2048  # connections that may wait; uvicorn has as many
PLAIN = "content-type: text/plain\r\nx-content-type-options: nosniff"
LATE = "HTTP/1.1 408 Request Timeout"
FULL = "HTTP/1.1 503 Service Unavailable"


class CannotListenError(XdsError):
    """The address is taken, or not ours."""


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # which class that is depends on what is installed
    """One connection of uvicorn's, held to our limits; the application knows its client's certificate."""

    app: ASGIApp
    transport: Any  # an asyncio.Transport, once there is one

    def __init__(self, port: HttpPort, seat: Seat | None = None, **given: Any) -> None:
        """`seat`: what it was given when it came, where that was before."""
        super().__init__(**given)
        self._port = port
        self._seat = seat
        self._pace: Pace | None = None  # until it has a seat, and where it gets none
        self._timer: TimerHandle | None = None
        self._timer_at = inf
        self._peer = ""
        self._host = ""

    # -- asyncio

    def connection_made(self, transport: BaseTransport) -> None:
        self._peer = peer = address_of(transport)
        self._host = host_of(peer)
        self._seat = seat = self._seat or self._port.enter(peer)
        if seat.refused is not None:
            self.transport = transport
            self._port.tell(seat.facts(peer))
            self._refuse(seat.refused.why, silently=seat.without_words)
            return
        super().connection_made(transport)
        self._pace = Pace(self._port.times, self.loop.time())
        self._port.waiting.add(self._host, self)
        self.app = self._watched(_shown(transport, self.app))
        self._set_timer(self._pace.due)

    def data_received(self, data: bytes) -> None:
        if self._pace is not None:
            self._pace.hear(self.loop.time())
            self._set_timer(self._pace.due)
            super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._leave()
        if self._pace is not None:
            self._pace = None
            super().connection_lost(error)

    # -- ours

    def evict(self) -> None:
        """Make place for another, at once."""
        self._port.dismissed(self._peer, Dismissal.EVICTED)
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        self._port.waiting.discard(self._host, self)
        if self._seat is not None:
            self._seat.leave()

    def _watched(self, app: ASGIApp) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if self._pace is not None:
                self._pace.begin(self.loop.time())
                self._port.waiting.discard(self._host, self)
                self._set_timer(self._pace.due)
            try:
                await app(scope, receive, send)
            finally:
                if self._pace is not None:  # else it is gone
                    self._pace.end(self.loop.time(), self.transport.get_write_buffer_size())
                    self._set_timer(self._pace.due)
                    self._note_waiting(self._pace)

        return watched

    def _set_timer(self, due: float) -> None:
        """Only if it is sooner: whoever comes too early finds nothing to do, and sets it anew."""
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer_at = inf
        if self._pace is None:
            return
        if self._pace.is_over(self.loop.time(), self.transport.get_write_buffer_size()):
            self._hang_up(self._pace)
        else:
            self._set_timer(self._pace.due)
            self._note_waiting(self._pace)

    def _note_waiting(self, pace: Pace) -> None:
        if pace.is_waiting:
            self._port.waiting.add(self._host, self)

    def _hang_up(self, pace: Pace) -> None:
        if pace.fault is not None:
            self._port.dismissed(self._peer, pace.fault)
        if pace.is_within_header and not self.transport.is_closing():
            self._refuse("the header of the request took too long")
        else:
            self.transport.abort()

    def _refuse(self, why: str, *, silently: bool = False) -> None:
        """Say why, and read on for a moment: what lies unread when a socket closes makes the peer lose our words."""
        if silently:
            self.transport.abort()
            return
        status = FULL if self._pace is None else LATE
        head = f"{status}\r\n{PLAIN}\r\ncontent-length: {len(why) + 1}\r\nconnection: close\r\n\r\n"
        self.transport.write(f"{head}{why}\n".encode())
        if self.transport.can_write_eof():
            with suppress(OSError):
                self.transport.write_eof()
        self._timer_at = inf
        self._timer = self.loop.call_later(self._port.times.linger, self.transport.abort)


def _shown(transport: BaseTransport, app: ASGIApp) -> ASGIApp:
    """Have the application know the client's certificate, as ASGI's extension for TLS has it."""
    tls = transport.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    if not shown:
        return app
    chain = [ssl.DER_cert_to_PEM_cert(shown)]

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), "tls": {"client_cert_chain": chain}}
        await app({**scope, "extensions": extensions}, receive, send)

    return known


class _Guest(uvicorn.Server):
    """uvicorn, without signals, and with an entrance of ours where there is TLS."""

    def __init__(self, config: uvicorn.Config, entrance: Callable[[], Entrance] | None) -> None:
        super().__init__(config)
        self._entrance = entrance

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._entrance is not None:
            self.servers: list[Any] = [self._entrance()]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon, which has more to end than this."""
        yield


class HttpPort:
    """Listens at once, so that the port is known, and ours, and answered, before anything is said about it.

    Its connections are in `room`, which for the admin port is one of its own. `tell` hears of those that are refused,
    or hung up on.
    """

    def __init__(
        self,
        app: ASGIApp,
        listen: str,
        purpose: str,
        tls: ssl.SSLContext | None = None,
        *,
        room: Room | None = None,
        tell: Callable[[Sequence[Fact]], None] = lambda _: None,
        times: HttpTimes | None = None,
    ) -> None:
        self.times = times or HttpTimes()
        self.tell = tell
        self._purpose = purpose
        self.waiting: Waiting[_Connection] = Waiting()
        self._room = room or Room(Limits(), time.monotonic, is_admin=True)
        self._tls = tls
        self._socket = _bind(listen, purpose)
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=int(2 * self.times.idle),  # a connection's own pace ends it before
            http=self._connection,  # type: ignore[arg-type] # uvicorn calls it, as it would a class
        )
        self._server = _Guest(settings, self._secure_entrance if tls is not None else None)

    def secure(self, tls: ssl.SSLContext) -> None:
        """From now on new connections get this."""
        self._tls = tls

    async def serve(self) -> None:
        """Answer until told to stop."""
        await self._server.serve(sockets=[self._socket] if self._tls is None else [])

    def stop(self) -> None:
        self._server.should_exit = True

    def enter(self, peer: str) -> Seat:
        """Give a connection its seat; if there is none, that of one that asks for nothing."""
        seat = self._room.enter(peer)
        if seat.refused is None:
            return seat
        is_own = seat.refused.limit is Limit.ADDRESS
        other = self.waiting.of_address(host_of(peer)) if is_own else self.waiting.of_most()
        if other is not None:
            seat.leave()
            other.evict()
            seat = self._room.enter(peer)
        if seat.refused is not None:
            self.dismissed(peer, Dismissal.ADDRESS if seat.refused.limit is Limit.ADDRESS else Dismissal.CONNECTIONS)
        return seat

    def dismissed(self, peer: str, why: Dismissal) -> None:
        self.tell([Dismissed(peer, self._purpose.lower(), why)])

    def _connection(self, seat: Seat | None = None, **given: Any) -> _Connection:
        return _Connection(self, seat, **given)

    def _secure_entrance(self) -> Entrance:
        self._socket.setblocking(False)  # noqa: FBT003 # not ours to name
        return Entrance(self._socket, self._secured, self, self.tell, Times(preface=self.times.header))

    def _secured(self, seat: Seat) -> Secured:
        """With what is in use now, which may be renewed at any time."""
        assert self._tls is not None  # noqa: S101 # or there would be no such entrance
        state = self._server.server_state
        config = self._server.config
        return Secured(
            self._tls,
            lambda: self._connection(seat, config=config, server_state=state, app_state={}),
            self.times.linger,
        )


def _bind(listen: str, purpose: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # now: who reads the ready line may be here before uvicorn is
    except OSError as error:
        raise CannotListenError(f"can't listen on {listen} for {purpose}: {why_not(listen, error)}") from error
    return bound
