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
    HttpRequestRefused,
    Limited,
    RefusalCause,
    RequestRefusal,
)
from ..http2.limits import Limit
from .metrics import Metrics


class ConnectionMetrics:
    """Counts connections of the h2 engine: `server.connection_readers.append(ConnectionMetrics(registry))`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("xdsprism_connections", "Open connections", registry=registry)
        text = "Connections that ended before HTTP/2 began, by cause"
        self._failed = Counter("xdsprism_handshake_failures", text, ["cause"], registry=registry)
        for cause in Cause:
            self._failed.labels(cause.value)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case Connected():
                    self._open.inc()
                case Disconnected():
                    self._open.dec()
                case HandshakeFailed(_, cause, _, "xds"):
                    self._failed.labels(cause.value).inc()
                case _:
                    pass


class LimitMetrics:
    """Counts what the transports limit, of both engines; `Metrics` counts what the core does, in the same metric."""

    def __init__(self, metrics: Metrics) -> None:
        self._limited = metrics.limited
        for limit in Limit:
            self._limited.labels(limit.value, "stream")
            self._limited.labels(limit.value, "connection")

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Limited):
                self._limited.labels(fact.limit.value, "connection" if fact.connection else "stream").inc()


class RefusedCallMetrics:
    """Counts refused calls, of both engines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Calls that this server can never serve, by cause"
        self._refused = Counter("xdsprism_refused_calls", text, ["cause"], registry=registry)
        for cause in RefusalCause:
            self._refused.labels(cause.value)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, CallRefused):
                self._refused.labels(fact.cause.value).inc()


class HttpPortMetrics:
    """Counts the refused connections and requests of the admin and REST ports: `HttpPort(..., report=metrics)`."""

    def __init__(self, registry: CollectorRegistry, ports: Iterable[str]) -> None:
        text = "Connections to the admin and REST ports that the server refused or ended, by cause"
        self._dismissed = Counter("xdsprism_http_refused_connections", text, ["port", "reason"], registry=registry)
        for port in ports:
            for why in HttpRefusal:
                self._dismissed.labels(port, why.value)
        text = "Requests to the admin and REST ports that the server refused for who sent them, by cause"
        self._refused = Counter("xdsprism_http_refused_requests", text, ["port", "reason"], registry=registry)
        for reason in RequestRefusal:
            for port in ports:
                if port == "admin" or reason is RequestRefusal.PAGE:
                    self._refused.labels(port, reason.value)
        text = "Connections to the admin and REST ports that ended before HTTP began, by cause"
        self._failed = Counter("xdsprism_http_handshake_failures", text, ["port", "cause"], registry=registry)
        for cause in Cause:
            for port in ports:
                if cause not in (Cause.HTTP1, Cause.ALPN):
                    self._failed.labels(port, cause.value)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case HttpConnectionRefused(_, port, why):
                    self._dismissed.labels(port, why.value).inc()
                case HttpRequestRefused(_, port, reason):
                    self._refused.labels(port, reason.value).inc()
                case HandshakeFailed(_, cause, _, "admin" | "rest" as port):
                    self._failed.labels(port, cause.value).inc()
                case _:
                    pass


class CertificateMetrics:
    """Reports the expiry and the loads of certificates, of both engines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "When the first certificate in a file expires, in seconds since the epoch"
        self._ends = Gauge("xdsprism_tls_certificate_not_after_seconds", text, ["file"], registry=registry)
        text = "When the first certificate for a port and a use expires, in seconds since the epoch"
        name = "xdsprism_certificate_expiry_timestamp_seconds"
        self._expiry = Gauge(name, text, ["port", "use"], registry=registry)
        text = "Loads of the certificate files, by result; after a refusal the last good certificates stay in use"
        self._loads = Counter("xdsprism_tls_loads", text, ["result"], registry=registry)
        self._loads.labels("ok")
        self._loads.labels("refused")

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case CertificatesInUse(not_after, uses, ports):
                    self._loads.labels("ok").inc()
                    for file, end in not_after.items():
                        self._ends.labels(file).set(end)
                    for port in ports:
                        for use, end in uses.items():
                            self._expiry.labels(port, use).set(end)
                case CertificatesRefused():
                    self._loads.labels("refused").inc()
                case _:
                    pass
