"""Logs clients that can never succeed as they are: their mistake and their address (OPS-15).

Such a client tries again and again, and a scanner tries everything. So each mistake of an address is logged once per
INTERVAL, with how often it happened since the last line, and all lines together have a maximum rate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.model.truncation import bounded
from ..http2.facts import CallRefused, Cause, Fact, HandshakeFailed, RefusalCause
from ..http2.limits import Rate, TokenBucket

log = logging.getLogger("xdsprism")

INTERVAL = 600.0  # seconds between two lines about the same mistake of the same address
TOTAL = Rate(30, 0.1)  # lines about all mistakes of all addresses
MEMORY = 1_000  # mistakes that are remembered
SHOWN = 200  # characters of a text that a client chose

_TEXTS: dict[Cause | RefusalCause, str] = {
    Cause.HTTP1: "it speaks HTTP/1, and this port is for gRPC, which is HTTP/2 (for HTTP/1 there is --rest)",
    Cause.PLAIN: "it speaks plain text, and this port is for TLS: have the client use TLS",
    Cause.TLS: "it speaks TLS, and this port is for plain text: give the server --tls-cert and --tls-key",
    Cause.NO_CERTIFICATE: "it shows no certificate, and --tls-client-ca is for clients that have one",
    Cause.UNTRUSTED: "its certificate is of none of the authorities in --tls-client-ca: %(why)s",
    Cause.DISTRUST: "it does not trust the certificate in --tls-cert: %(why)s",
    Cause.ALPN: "it does not ask for HTTP/2 when it agrees on TLS (ALPN h2), which gRPC needs",
    Cause.TIMEOUT: "it did not complete the TLS handshake in time",
    Cause.LEFT: "it left before the TLS handshake was complete",
    Cause.OTHER: "%(why)s",
    RefusalCause.METHOD: "there is no gRPC method %(why)s here",
    RefusalCause.NOT_GRPC: "it sends no gRPC call but %(why)s; a call is a POST of application/grpc",
}
# Causes that port scanners and health checks of load balancers have too are logged at a lower level.
_LEVELS: dict[Cause | RefusalCause, int] = {Cause.LEFT: logging.DEBUG, Cause.TIMEOUT: logging.INFO}


@dataclass(slots=True)
class _LastLine:
    """The last log line about one mistake of one address."""

    at: float
    omitted: int = 0  # times that the mistake happened since then, without a line


class ConnectionLog:
    """A reader of connection facts: `server.connection_readers.append(ConnectionLog())`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = TokenBucket(TOTAL, clock())
        self._last_lines: dict[tuple[str, Cause | RefusalCause, str], _LastLine] = {}
        self._omitted = 0  # mistakes without a line, because of the total rate

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case HandshakeFailed(peer, cause, why):
                    self._note(peer, cause, bounded(why, SHOWN), "")
                case CallRefused(peer, wrong, why):
                    self._note(peer, wrong, why[:SHOWN], why[:SHOWN])
                case _:
                    pass

    def _note(self, peer: str, mistake: Cause | RefusalCause, why: str, detail: str) -> None:
        """Log a mistake, unless it was logged lately. Mistakes with another `detail` are logged separately."""
        now = self._clock()
        key = (peer.rpartition(":")[0], mistake, detail)
        last = self._last_lines.get(key)
        if last is not None and now - last.at < INTERVAL:
            last.omitted += 1
            return
        if not self._total.spend(now):
            self._omitted += 1
            return
        again = last.omitted if last is not None else 0
        self._last_lines.pop(key, None)
        if len(self._last_lines) >= MEMORY:
            del self._last_lines[next(iter(self._last_lines))]
        self._last_lines[key] = _LastLine(now)
        more = " (and %(again)d times since the last such line)" if again else ""
        text = f"%(peer)s can't be served: {_TEXTS[mistake]}{more}"
        if self._omitted:
            text = f"{text} (%(omitted)d other lines such as this were left out)"
        fields = {"peer": peer, "cause": mistake.value, "why": why, "again": again, "omitted": self._omitted}
        self._omitted = 0
        log.log(_LEVELS.get(mistake, logging.WARNING), text, fields)
