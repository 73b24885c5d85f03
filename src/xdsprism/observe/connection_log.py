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
from ..http2.facts import (
    CallRefused,
    Cause,
    Fact,
    HandshakeFailed,
    HttpRequestRefused,
    RefusalCause,
    RequestRefusal,
)
from ..peer_address import host_of
from ..token_bucket import Rate, TokenBucket

log = logging.getLogger("xdsprism")

INTERVAL = 600.0  # seconds between two lines about the same mistake of the same address
TOTAL = Rate(30, 0.1)  # lines about all mistakes of all addresses
MEMORY = 1_000  # mistakes that are remembered
SHOWN = 200  # characters of a text that a client chose

Mistake = Cause | RefusalCause | RequestRefusal

_TEXTS: dict[Mistake, str] = {
    Cause.HTTP1: "it speaks HTTP/1, and this port is for gRPC, which is HTTP/2 (for HTTP/1 there is --rest)",
    Cause.PLAIN: "it speaks plain text, and this port is for TLS: have the client use TLS",
    Cause.TLS: "it speaks TLS, and this port is for plain text: give the server --tls-cert and --tls-key",
    Cause.NO_CERTIFICATE: "it sent no certificate, and --tls-client-ca demands one",
    Cause.UNTRUSTED: "its certificate is not signed by an authority in --tls-client-ca: %(why)s",
    Cause.DISTRUST: "it does not trust the certificate in --tls-cert: %(why)s",
    Cause.ALPN: "it does not offer HTTP/2 in the TLS handshake (ALPN h2), which gRPC needs",
    Cause.TIMEOUT: "it did not complete the TLS handshake in time",
    Cause.LEFT: "it closed the connection before the TLS handshake was complete",
    Cause.OTHER: "%(why)s",
    RefusalCause.METHOD: "there is no gRPC method %(why)s here",
    RefusalCause.NOT_GRPC: "it sent %(why)s, and a gRPC call is a POST of application/grpc",
    RequestRefusal.PAGE: "a web page of another site sent the request",
    RequestRefusal.NO_TOKEN: "it sent no token, and --admin-token-file demands one (Authorization: Bearer)",
    RequestRefusal.WRONG_TOKEN: "it sent a token that is not in the file of --admin-token-file",
}
# Causes that port scanners and health checks of load balancers have too are logged at a lower level.
_LEVELS: dict[Mistake, int] = {Cause.LEFT: logging.DEBUG, Cause.TIMEOUT: logging.INFO}


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
        self._last_lines: dict[tuple[str, str, Mistake, str], _LastLine] = {}
        self._omitted = 0  # mistakes without a line, because of the total rate

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case HandshakeFailed(peer, cause, why, port):
                    self._note(peer, port, cause, bounded(why, SHOWN), "")
                case CallRefused(peer, wrong, why):
                    self._note(peer, "xds", wrong, why[:SHOWN], why[:SHOWN])
                case HttpRequestRefused(peer, port, reason) if reason in _TEXTS:
                    self._note(peer, port, reason, "", "")
                case _:
                    pass

    def _note(self, peer: str, port: str, mistake: Mistake, why: str, detail: str) -> None:
        """Log a mistake, unless it was logged lately. Mistakes with another `detail` are logged separately."""
        now = self._clock()
        key = (host_of(peer), port, mistake, detail)
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
        text = f"%(peer)s can't be served{_ON[port]}: {_text(port, mistake)}{more}"
        if self._omitted:
            text = f"{text} (%(omitted)d similar lines were omitted)"
        fields = {
            "peer": peer,
            "port": port,
            "cause": mistake.value,
            "why": why,
            "again": again,
            "omitted": self._omitted,
        }
        self._omitted = 0
        log.log(_LEVELS.get(mistake, logging.WARNING), text, fields)


_ON = {"xds": "", "admin": " on the admin port", "rest": " on the REST port"}


def _text(port: str, mistake: Mistake) -> str:
    """Return what is wrong; the admin port has TLS options of its own."""
    text = _TEXTS[mistake]
    return text.replace("--tls-", "--admin-tls-") if port == "admin" else text
