"""Accepts TLS connections and does their handshakes.

asyncio's own server with an `ssl` context would do, but for three things: it does not report failed handshakes, it
never changes its context when certificates are renewed, and it can't count or end connections during the handshake.
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
from .addresses import format_peer
from .connection_limits import ConnectionSlot, SlotSource
from .tls_transport import TlsTransport

log = logging.getLogger("xdsprism.server")

BURST = 64  # connections accepted in one turn of the loop
PAUSE = 1.0  # seconds until the next try, if accept fails: most likely there are too many open files

# By OpenSSL's name of the error.
_CAUSES = {
    "HTTP_REQUEST": Cause.PLAIN,
    "HTTPS_PROXY_REQUEST": Cause.PLAIN,
    "WRONG_VERSION_NUMBER": Cause.PLAIN,  # the bytes are no TLS record
    "PACKET_LENGTH_TOO_LONG": Cause.PLAIN,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Cause.NO_CERTIFICATE,
    "CERTIFICATE_VERIFY_FAILED": Cause.UNTRUSTED,
    # Alerts that the client sent.
    "TLSV1_ALERT_UNKNOWN_CA": Cause.DISTRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": Cause.DISTRUST,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Cause.DISTRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": Cause.DISTRUST,
}


class TlsListener:
    """One listening socket, and the handshakes of the connections that it accepted."""

    def __init__(
        self,
        listening: socket.socket,
        make_transport: Callable[[ConnectionSlot], TlsTransport],
        connection_limits: SlotSource,
        report: Callable[[Sequence[Fact]], None],
        times: Times,
    ) -> None:
        """`make_transport` makes the TLS layer of a connection; it is called once for each."""
        self._listening = listening
        self._make_transport = make_transport
        self._connection_limits = connection_limits
        self._report = report
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting = self._loop.create_task(self._accept(), name="xdsprism accept")

    def close(self) -> None:
        """Accept no more connections, and end those that are still in the handshake."""
        self._accepting.cancel()
        self._accepting.add_done_callback(lambda _: self._listening.close())
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting, *self._handshakes])

    async def _accept(self) -> None:
        """Accept connections and start their handshakes, in bursts between which the loop does other work."""
        while True:
            for _ in range(BURST):
                try:
                    made, _ = await self._loop.sock_accept(self._listening)
                except ConnectionError:  # the client left before it was accepted
                    continue
                except OSError as error:
                    log.error("can't accept connections: %s", error)  # noqa: TRY400 # a traceback would not help
                    await asyncio.sleep(PAUSE)
                    continue
                handshake = self._loop.create_task(self._shake_hands(made))
                self._handshakes[handshake] = made
                handshake.add_done_callback(self._over)
            await asyncio.sleep(0)

    async def _shake_hands(self, made: socket.socket) -> None:
        """Admit a connection and do its handshake; close it at once if it is refused."""
        peer = "unknown"
        with suppress(OSError):
            peer = format_peer(made.getpeername())
        slot = self._connection_limits.admit(peer)
        if slot.refused is None:
            await self._shake_hands_with_slot(made, peer, slot)
            return
        slot.release()
        made.close()
        self._report(slot.facts(peer))

    async def _shake_hands_with_slot(self, made: socket.socket, peer: str, slot: ConnectionSlot) -> None:
        """Do the handshake of an admitted connection, and report a failure."""
        transport = self._make_transport(slot)
        agreed = False
        try:
            await self._loop.connect_accepted_socket(lambda: transport, made)
            async with asyncio.timeout(self._times.preface):
                await transport.agreed
            agreed = True
        except OSError as error:  # ssl.SSLError and TimeoutError are OSErrors too
            self._report([HandshakeFailed(peer, cause_of(error), _text(error))])
        finally:
            if not agreed:
                transport.give_up()
                slot.release()

    def _over(self, handshake: asyncio.Task[None]) -> None:
        """Clean up after a handshake."""
        made = self._handshakes.pop(handshake)
        if handshake.cancelled():  # perhaps before it started, when no transport owns the socket
            with suppress(OSError):
                made.close()
        elif error := handshake.exception():
            log.error("a handshake failed", exc_info=error)


def cause_of(error: OSError) -> Cause:
    """Classify the error of a failed handshake."""
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
