"""A port for HTTP: uvicorn as a guest in our event loop."""

from __future__ import annotations

import contextlib
import socket
import ssl
from asyncio import BaseTransport
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ..errors import XdsError
from .addresses import why_not

GRACE = 2  # seconds for requests in progress when the server stops
BACKLOG = 2048  # connections that may wait; uvicorn has as many
IDLE = 75  # seconds that a connection is kept for: who polls each minute is to find it open


class CannotListenError(XdsError):
    """The address is taken, or not ours."""


class _Live(ssl.SSLContext):
    """Whatever is in use when a connection comes: a server of asyncio has one context for all of its life."""

    current: ssl.SSLContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **options)


class _Shown(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # which class that is depends on what is installed
    """Has the application know the client's certificate, as ASGI's extension for TLS has it."""

    app: ASGIApp

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        if shown:
            app = self.app
            chain = [ssl.DER_cert_to_PEM_cert(shown)]

            async def known(scope: Scope, receive: Receive, send: Send) -> None:
                extensions = {**scope.get("extensions", {}), "tls": {"client_cert_chain": chain}}
                await app({**scope, "extensions": extensions}, receive, send)

            self.app = known


class _Guest(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon, which has more to end than this."""
        yield


class HttpPort:
    """Listens at once, so that the port is known, and ours, and answered, before anything is said about it."""

    def __init__(self, app: Starlette, listen: str, purpose: str, tls: ssl.SSLContext | None = None) -> None:
        self._tls = live = _Live(ssl.PROTOCOL_TLS_SERVER) if tls is not None else None
        if tls is not None:
            self.secure(tls)
        self._socket = _bind(listen, purpose)
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=IDLE,
            http=_Shown,
            ssl_context_factory=(lambda *_: live) if live is not None else None,
        )
        self._server = _Guest(settings)

    def secure(self, tls: ssl.SSLContext) -> None:
        """From now on new connections get this."""
        if self._tls is not None:
            self._tls.current = tls

    async def serve(self) -> None:
        """Answer until told to stop."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


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
