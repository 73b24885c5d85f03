"""What happens to connections, where the transport is our own: a reader of its facts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..http2.facts import Connected, Disconnected, Fact, Limited
from ..http2.limits import Limit


class ConnectionMetrics:
    """`server.connection_readers.append(ConnectionMetrics(registry))`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("xdsprism_connections", "Open connections", registry=registry)
        text = "Limits that peers met, by which, and whether all of the connection ended of it"
        self._limited = Counter("xdsprism_limited", text, ["limit", "ended"], registry=registry)
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
                case Limited(_, limit, _, connection):
                    self._limited.labels(limit.value, "connection" if connection else "stream").inc()
