"""A port for HTTP: uvicorn as a guest in our event loop."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from ..errors import XdsError

GRACE = 2  # seconds for requests in progress when the server stops
IDLE = 75  # seconds that a connection is kept for: who polls each minute is to find it open


class CannotListenError(XdsError):
    """The address is taken, or not ours."""


class _Guest(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon, which has more to end than this."""
        yield


class HttpPort:
    """Binds first, so that the port is known (and known to be ours) before anything is said about it."""

    def __init__(self, app: Starlette, listen: str, purpose: str) -> None:
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
        )
        self._server = _Guest(settings)

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
    except OSError as error:
        raise CannotListenError(f"can't listen on {listen} for {purpose}: {error}") from error
    return bound
