"""Reports how many readers of events there are, since their number has a limit."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class EventMetrics:
    """A gauge that is computed at each scrape. `readers` returns how many there are."""

    def __init__(self, registry: CollectorRegistry, readers: Callable[[], int]) -> None:
        gauge = Gauge("xdsprism_event_readers", "Readers of /api/events, of which there may be 64", registry=registry)
        gauge.set_function(readers)
