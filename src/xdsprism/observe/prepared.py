"""Collects gauges that take long to compute: in steps before a scrape, so that clients are served meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..core.model.steps import Steps, finish

KEPT = 4  # computed gauges that wait for their scrape: one that was given up leaves some behind


class PreparedGauges(Collector):
    """Gauges that are computed at each scrape, or before it if `preparing` was run.

    Have a registry `register` it, and append `preparing` to `Metrics.preparations`.
    """

    def __init__(self, compute: Callable[[], Steps[list[GaugeMetricFamily]]]) -> None:
        self._compute = compute
        self._prepared: deque[list[GaugeMetricFamily]] = deque(maxlen=KEPT)  # one for each scrape

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._prepared:
            finish(self.preparing())
        yield from self._prepared.pop()

    def preparing(self) -> Steps[None]:
        """Compute the gauges of the next scrape, in steps."""
        self._prepared.append((yield from self._compute()))
