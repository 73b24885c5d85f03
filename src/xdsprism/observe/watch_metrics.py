"""Whether the kernel tells of changes to the configuration, for alerts."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class WatchMetrics:
    """Asked when somebody scrapes. `polling` says why files are looked at every so often; empty: they are watched."""

    def __init__(self, registry: CollectorRegistry, polling: Callable[[], str]) -> None:
        text = "1 if the files are looked at every second, as they can't be watched, else 0"
        polled = Gauge("xdsprism_config_polled", text, registry=registry)
        polled.set_function(lambda: bool(polling()))
