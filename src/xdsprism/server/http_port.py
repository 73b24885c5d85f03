"""Serves an HTTP/1 port with uvicorn inside our event loop, and adds the limits that uvicorn lacks.

Each connection has a slot (connection_limits.py) and deadlines (http_deadlines.py). When all slots are taken, a new
connection evicts an idle one: of its own address, if that address is at its limit, so that a flood from one address
only hurts itself; otherwise of the address that has most idle connections.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..errors import XdsError
from ..http2.facts import Cause, Fact, HandshakeFailed, HttpConnectionRefused, HttpRefusal
from ..http2.limits import Limit, Limits, Times
from ..peer_address import host_of
from .addresses import address_of, check_listen, why_not
from .connection_limits import ConnectionLimits, ConnectionSlot
from .http_deadlines import HttpDeadlines, HttpTimes, IdleConnections
from .tls_listener import TlsListener
from .tls_transport import TlsTransport

GRACE = 2  # seconds for requests in progress when the server stops
ENDLESS = "xdsprism.endless"  # in the extensions of the scope: what to call if the response is a stream without end
BACKLOG = 2048  # connections that may wait to be accepted, as in uvicorn
PLAIN = "content-type: text/plain\r\nx-content-type-options: nosniff"
TLS_RECORD = b"\x16\x03"  # how a TLS handshake begins (RFC 8446, section 5.1)
WRONG = "HTTP/1.1 400 Bad Request"
LATE = "HTTP/1.1 408 Request Timeout"
FULL = "HTTP/1.1 503 Service Unavailable"


class CannotListenError(XdsError):
    """The server can't listen on an address: it is in use, or not an address of this machine."""


class _BoundedLog(logging.LoggerAdapter[logging.Logger]):
    """Takes the warnings of uvicorn, one for each connection that is no HTTP, to where lines have a rate."""

    def __init__(self, to: logging.Logger, report: Callable[[str], None]) -> None:
        super().__init__(to)
        self._report = report
        self.level = to.level  # uvicorn looks at it

    def warning(self, msg: object, *args: object, **_: object) -> None:
        self._report(str(msg) % args)


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # the class depends on what is installed
    """A connection of uvicorn with our limits. It also shows the client's certificate to the application."""

    app: ASGIApp
    transport: Any  # an asyncio.Transport, once there is one

    def __init__(self, port: HttpPort, slot: ConnectionSlot | None = None, **given: Any) -> None:
        """`slot`: from the TLS listener, which admits connections before the handshake; None: admit this one later."""
        super().__init__(**given)
        self._port = port
        self._slot = slot
        self._deadlines: HttpDeadlines | None = None  # None before it is admitted, if refused, and once lost
        self._timer: TimerHandle | None = None
        self._timer_at = inf
        self._peer = ""
        self._host = ""
        self._is_new = True  # nothing came yet
        self._is_refused = False
        self.logger: Any = _BoundedLog(self.logger, self._report_fault)

    # -- asyncio

    def connection_made(self, transport: BaseTransport) -> None:
        self._peer = peer = address_of(transport)
        self._host = host_of(peer)
        self._slot = slot = self._slot or self._port.admit(peer)
        if slot.refused is not None:
            self.transport = transport
            self._port.report(slot.facts(peer))
            self._refuse(slot.refused.why, FULL, silently=slot.is_silent)
            return
        slot.end_handshake()
        super().connection_made(transport)
        self._deadlines = HttpDeadlines(self._port.times, self.loop.time())
        self._port.idle.add(self._host, self)
        self.app = self._timed(_with_client_certificate(transport, self.app))
        self._set_timer(self._deadlines.due)

    def data_received(self, data: bytes) -> None:
        if self._deadlines is not None:
            if self._is_new and data.startswith(TLS_RECORD):
                self._is_refused = True
                self._port.report_handshake(self._peer, Cause.TLS, "it speaks TLS")
                self._refuse("this port speaks plain text, and no TLS", WRONG)  # so that the client knows
            self._is_new = False
            if self._is_refused:
                return
            self._deadlines.note_bytes(self.loop.time())
            self._set_timer(self._deadlines.due)
            super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._leave()
        if self._deadlines is not None:
            self._deadlines = None
            super().connection_lost(error)

    # -- ours

    def evict(self) -> None:
        """Close this idle connection at once, and give its slot to another."""
        self._port.report_refusal(self._peer, HttpRefusal.EVICTED)
        self._leave()
        self.transport.abort()

    def _report_fault(self, what: str) -> None:
        self._port.report_handshake(self._peer, Cause.OTHER, f"it is no client of HTTP/1 ({what})")

    def _leave(self) -> None:
        """Give the slot back."""
        self._port.idle.discard(self._host, self)
        if self._slot is not None:
            self._slot.release()

    def _timed(self, app: ASGIApp) -> ASGIApp:
        """Wrap the application so that requests begin and end the deadlines of the connection."""

        async def timed(scope: Scope, receive: Receive, send: Send) -> None:
            if self._deadlines is not None:
                self._deadlines.begin(self.loop.time())
                scope.setdefault("extensions", {})[ENDLESS] = self._deadlines.never_end
                self._port.idle.discard(self._host, self)
                self._set_timer(self._deadlines.due)
            try:
                await app(scope, receive, send)
            finally:
                if self._deadlines is not None:  # otherwise the connection is lost
                    self._deadlines.end(self.loop.time(), self.transport.get_write_buffer_size())
                    self._set_timer(self._deadlines.due)
                    self._note_idle(self._deadlines)

        return timed

    def _set_timer(self, due: float) -> None:
        """Set the timer if `due` is earlier. A timer that fires too early does nothing and is set again."""
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        """Close the connection if its client has taken too long."""
        self._timer_at = inf
        if self._deadlines is None:
            return
        if self._deadlines.is_over(self.loop.time(), self.transport.get_write_buffer_size()):
            self._hang_up(self._deadlines)
        else:
            self._set_timer(self._deadlines.due)
            self._note_idle(self._deadlines)

    def _note_idle(self, deadlines: HttpDeadlines) -> None:
        if deadlines.is_idle:
            self._port.idle.add(self._host, self)

    def _hang_up(self, deadlines: HttpDeadlines) -> None:
        """Report why the connection ends, and close it; a client within a header gets status 408."""
        if deadlines.fault is not None:
            self._port.report_refusal(self._peer, deadlines.fault)
        if deadlines.is_within_header and not self.transport.is_closing():
            self._refuse("the header of the request took too long", LATE)
        else:
            self.transport.abort()

    def _refuse(self, why: str, status: str, *, silently: bool = False) -> None:
        """Send an error response, and close the connection after a moment.

        Go on reading meanwhile: if a socket closes with unread input, the client loses the response.
        """
        if silently:
            self.transport.abort()
            return
        head = f"{status}\r\n{PLAIN}\r\ncontent-length: {len(why) + 1}\r\nconnection: close\r\n\r\n"
        self.transport.write(f"{head}{why}\n".encode())
        if self.transport.can_write_eof():
            with suppress(OSError):
                self.transport.write_eof()
        self._timer_at = inf
        self._timer = self.loop.call_later(self._port.times.linger, self.transport.abort)


def _with_client_certificate(transport: BaseTransport, app: ASGIApp) -> ASGIApp:
    """Wrap the application so that its scope has the client's certificate, as in ASGI's TLS extension."""
    tls = transport.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    if not shown:
        return app
    chain = [ssl.DER_cert_to_PEM_cert(shown)]

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), "tls": {"client_cert_chain": chain}}
        await app({**scope, "extensions": extensions}, receive, send)

    return known


class _EmbeddedUvicorn(uvicorn.Server):
    """uvicorn's server without signal handling; with TLS it uses our listener."""

    def __init__(self, config: uvicorn.Config, listener: Callable[[], TlsListener] | None) -> None:
        super().__init__(config)
        self._listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._listener is not None:
            self.servers: list[Any] = [self._listener()]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon, which has more to stop than this port."""
        yield


class HttpPort:
    """An HTTP/1 port with one application.

    The constructor binds and listens, so that the address is known and accepts connections before the daemon prints its
    ready line. `connection_limits` are shared with other ports; None: own limits, as the admin port has them. `report`
    gets the facts of connections that are refused or ended.
    """

    def __init__(
        self,
        app: ASGIApp,
        listen: str,
        purpose: str,
        tls: ssl.SSLContext | None = None,
        *,
        connection_limits: ConnectionLimits | None = None,
        report: Callable[[Sequence[Fact]], None] = lambda _: None,
        times: HttpTimes | None = None,
    ) -> None:
        self.times = times or HttpTimes()
        self.report = report
        self.name = purpose.lower()
        self.idle: IdleConnections[_Connection] = IdleConnections()
        self._connection_limits = connection_limits or ConnectionLimits(Limits(), time.monotonic, is_admin=True)
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
            timeout_keep_alive=int(2 * self.times.idle),  # HttpDeadlines ends a connection earlier
            http=self._connection,  # type: ignore[arg-type] # uvicorn calls it like a class
        )
        self._server = _EmbeddedUvicorn(settings, self._make_tls_listener if tls is not None else None)

    def secure(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections."""
        self._tls = tls

    async def serve(self) -> None:
        """Serve until `stop`."""
        await self._server.serve(sockets=[self._socket] if self._tls is None else [])

    def stop(self) -> None:
        self._server.should_exit = True

    def admit(self, peer: str) -> ConnectionSlot:
        """Return a slot for a new connection; if none is free, evict an idle connection first."""
        slot = self._connection_limits.admit(peer)
        if slot.refused is None:
            return slot
        if slot.refused.limit in {Limit.HANDSHAKES, Limit.ADDRESS_HANDSHAKES}:
            self.report_refusal(peer, HttpRefusal.HANDSHAKES)
            return slot
        is_own = slot.refused.limit is Limit.ADDRESS
        other = self.idle.oldest_of(host_of(peer)) if is_own else self.idle.oldest_of_largest()
        if other is not None:
            slot.release()
            other.evict()
            slot = self._connection_limits.admit(peer)
        if slot.refused is not None:
            self.report_refusal(
                peer, HttpRefusal.ADDRESS if slot.refused.limit is Limit.ADDRESS else HttpRefusal.CONNECTIONS
            )
        return slot

    def report_refusal(self, peer: str, why: HttpRefusal) -> None:
        self.report([HttpConnectionRefused(peer, self.name, why)])

    def report_handshake(self, peer: str, cause: Cause, why: str) -> None:
        self.report([HandshakeFailed(peer, cause, why, self.name)])

    def _connection(self, slot: ConnectionSlot | None = None, **given: Any) -> _Connection:
        return _Connection(self, slot, **given)

    def _make_tls_listener(self) -> TlsListener:
        self._socket.setblocking(False)  # noqa: FBT003 # positional only
        times = Times(preface=self.times.header)
        return TlsListener(self._socket, self._make_tls_transport, self, self._report_of_tls, times)

    def _report_of_tls(self, facts: Sequence[Fact]) -> None:
        """Report the facts of the listener, which does not know whose port it is."""
        self.report([replace(fact, port=self.name) if isinstance(fact, HandshakeFailed) else fact for fact in facts])

    def _make_tls_transport(self, slot: ConnectionSlot) -> TlsTransport:
        """Make the TLS layer of a new connection, with the certificates that are in use now."""
        assert self._tls is not None  # noqa: S101 # only a port with TLS has a TlsListener
        state = self._server.server_state
        config = self._server.config
        return TlsTransport(
            self._tls,
            lambda: self._connection(slot, config=config, server_state=state, app_state={}),
            self.times.linger,
        )


def _bind(listen: str, purpose: str) -> socket.socket:
    """Bind and listen. Raises CannotListenError."""
    check_listen(listen, purpose)
    host, _, port = listen.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # at once: a client may connect after the ready line and before uvicorn starts
    except OSError as error:
        raise CannotListenError(f"can't listen on {listen} for {purpose}: {why_not(listen, error)}") from error
    return bound
