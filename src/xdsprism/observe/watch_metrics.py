"""Reports whether configuration files are polled instead of watched, for alerts."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class WatchMetrics:
    """A gauge that is computed at each scrape. `polling` says why files are polled; empty: they are watched."""

    def __init__(self, registry: CollectorRegistry, polling: Callable[[], str]) -> None:
        text = "1 if the files are polled every second because they can't be watched, else 0"
        polled = Gauge("xdsprism_config_polled", text, registry=registry)
        polled.set_function(lambda: bool(polling()))
