"""Counts connections, refused calls and certificates: readers of the transports' facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..http2.facts import (
    CallRefused,
    Cause,
    CertificatesInUse,
    CertificatesRefused,
    Connected,
    Disconnected,
    Fact,
    HandshakeFailed,
    HttpConnectionRefused,
    HttpRefusal,
    Limited,
    RefusalCause,
)
from ..http2.limits import Limit


class ConnectionMetrics:
    """Counts connections of the h2 engine: `server.connection_readers.append(ConnectionMetrics(registry))`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("xdsprism_connections", "Open connections", registry=registry)
        text = "Limits that peers met, by which, and whether all of the connection ended of it"
        self._limited = Counter("xdsprism_limited", text, ["limit", "ended"], registry=registry)
        text = "Connections that came to nothing, by why"
        self._failed = Counter("xdsprism_handshake_failures", text, ["cause"], registry=registry)
        for cause in Cause:
            self._failed.labels(cause.value)
        for limit in Limit:
            self._limited.labels(limit.value, "stream")
            self._limited.labels(limit.value, "connection")

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case Connected():
                    self._open.inc()
                case Disconnected():
                    self._open.dec()
                case HandshakeFailed(_, cause, _):
                    self._failed.labels(cause.value).inc()
                case Limited(_, limit, _, connection):
                    self._limited.labels(limit.value, "connection" if connection else "stream").inc()
                case CallRefused() | HttpConnectionRefused() | CertificatesInUse() | CertificatesRefused():
                    pass


class RefusedCallMetrics:
    """Counts refused calls, of both engines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Calls that nobody can be served with here, by why"
        self._refused = Counter("xdsprism_refused_calls", text, ["cause"], registry=registry)
        for cause in RefusalCause:
            self._refused.labels(cause.value)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, CallRefused):
                self._refused.labels(fact.cause.value).inc()


class HttpPortMetrics:
    """Counts refused connections of the admin and REST ports: `HttpPort(..., report=metrics)`."""

    def __init__(self, registry: CollectorRegistry, ports: Iterable[str]) -> None:
        text = "Connections to the admin and REST ports that were refused or hung up on, by why"
        self._dismissed = Counter("xdsprism_http_refused_connections", text, ["port", "reason"], registry=registry)
        for port in ports:
            for why in HttpRefusal:
                self._dismissed.labels(port, why.value)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, HttpConnectionRefused):
                self._dismissed.labels(fact.port, fact.why.value).inc()


class CertificateMetrics:
    """Reports the expiry and the loads of certificates, of both engines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "When the first certificate in a file ends, in seconds since the epoch"
        self._ends = Gauge("xdsprism_tls_certificate_not_after_seconds", text, ["file"], registry=registry)
        text = "Certificates that were loaded, and those that were refused, so that the last good ones stay"
        self._loads = Counter("xdsprism_tls_loads", text, ["result"], registry=registry)
        self._loads.labels("ok")
        self._loads.labels("refused")

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case CertificatesInUse(not_after):
                    self._loads.labels("ok").inc()
                    for file, end in not_after.items():
                        self._ends.labels(file).set(end)
                case CertificatesRefused():
                    self._loads.labels("refused").inc()
                case _:
                    pass
