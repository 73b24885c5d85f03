"""Where connections come in that are to be secured: it accepts them, and agrees on TLS with each.

A server of asyncio with an `ssl` of its own would do, but for three things: it says nothing of handshakes that fail, it
keeps the one context that it began with, and connections that are not there yet can't be counted or ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..http2.facts import Cause, Fact, HandshakeFailed
from ..http2.limits import Times
from .addresses import shown
from .room import Admits, Seat
from .secured import Secured

log = logging.getLogger("xdsprism.server")

BURST = 64  # connections that are accepted in one turn of the loop
PAUSE = 1.0  # seconds, where none can be accepted: most likely there are too many open files

# What OpenSSL calls it.
_CAUSES = {
    "HTTP_REQUEST": Cause.PLAIN,
    "HTTPS_PROXY_REQUEST": Cause.PLAIN,
    "WRONG_VERSION_NUMBER": Cause.PLAIN,  # of a record, which this is not then
    "PACKET_LENGTH_TOO_LONG": Cause.PLAIN,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Cause.NO_CERTIFICATE,
    "CERTIFICATE_VERIFY_FAILED": Cause.UNTRUSTED,
    # Alerts of the client.
    "TLSV1_ALERT_UNKNOWN_CA": Cause.DISTRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": Cause.DISTRUST,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": Cause.DISTRUST,
}


class Entrance:
    """One listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        secured: Callable[[Seat], Secured],
        room: Admits,
        tell: Callable[[Sequence[Fact]], None],
        times: Times,
    ) -> None:
        """`secured` makes what has a connection."""
        self._listening = listening
        self._secured = secured
        self._room = room
        self._tell = tell
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting = self._loop.create_task(self._accept(), name="xdsprism accept")

    def close(self) -> None:
        """Take no more, and let those go whose handshake is not over."""
        self._accepting.cancel()
        self._accepting.add_done_callback(lambda _: self._listening.close())
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting, *self._handshakes])

    async def _accept(self) -> None:
        while True:
            for _ in range(BURST):
                try:
                    made, _ = await self._loop.sock_accept(self._listening)
                except ConnectionError:  # it was gone before it was here
                    continue
                except OSError as error:
                    log.error("can't accept connections: %s", error)  # noqa: TRY400 # there is nothing to trace
                    await asyncio.sleep(PAUSE)
                    continue
                handshake = self._loop.create_task(self._shake_hands(made))
                self._handshakes[handshake] = made
                handshake.add_done_callback(self._over)
            await asyncio.sleep(0)

    async def _shake_hands(self, made: socket.socket) -> None:
        peer = "unknown"
        with suppress(OSError):
            peer = shown(made.getpeername())
        seat = self._room.enter(peer)
        if seat.refused is None:
            await self._seated(made, peer, seat)
            return
        seat.leave()
        made.close()
        self._tell(seat.facts(peer))

    async def _seated(self, made: socket.socket, peer: str, seat: Seat) -> None:
        secured = self._secured(seat)
        agreed = False
        try:
            await self._loop.connect_accepted_socket(lambda: secured, made)
            async with asyncio.timeout(self._times.preface):
                await secured.agreed
            agreed = True
        except OSError as error:  # as those of TLS are too
            self._tell([HandshakeFailed(peer, cause_of(error), _text(error))])
        finally:
            if not agreed:
                secured.give_up()
                seat.leave()

    def _over(self, handshake: asyncio.Task[None]) -> None:
        made = self._handshakes.pop(handshake)
        if handshake.cancelled():  # perhaps before it began, and then the socket is nobody's
            with suppress(OSError):
                made.close()
        elif error := handshake.exception():
            log.error("a handshake failed", exc_info=error)


def cause_of(error: OSError) -> Cause:
    if isinstance(error, ssl.SSLError):
        return _CAUSES.get(error.reason or "", Cause.OTHER)
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return Cause.LEFT
    return Cause.TIMEOUT if isinstance(error, ConnectionAbortedError | TimeoutError) else Cause.OTHER


def _text(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (isinstance(error, ssl.SSLError) and error.reason) or str(error) or type(error).__name__
