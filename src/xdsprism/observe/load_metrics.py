"""Exposes the loads that clients report (LRS) as Prometheus gauges, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import GaugeMetricFamily

from ..core.loads.load_reports import LoadReports, LocalityRates, MetricRate
from ..core.loads.loads import UTILIZATIONS, Locality
from ..core.model.facts import Fact, LoadsHeard, LoadsRefused
from ..core.model.steps import EVERY, Steps
from ..core.model.truncation import NAME_BYTES, bounded
from .prepared import PreparedGauges

MAX_SERIES = 1000  # of a gauge: clients choose the names of clusters and localities, and could send any number
OTHER = "other"

Labels = tuple[str, ...]


class LoadMetrics:
    """A reader of facts: `hub.readers.append(LoadMetrics(registry, hub.reports, hub.clock))`."""

    def __init__(self, registry: CollectorRegistry, reports: LoadReports, clock: Callable[[], float]) -> None:
        self._heard = reports
        self._clock = clock
        self._gauges = PreparedGauges(self._compute)
        registry.register(self._gauges)
        text = "Load reports for one cluster, by whether they were valid"
        self._reports = CounterMetric("xdsprism_load_reports", text, ["result"], registry=registry)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, LoadsHeard):
                self._reports.labels("ok").inc(fact.clusters)
            elif isinstance(fact, LoadsRefused):
                self._reports.labels("refused").inc()

    def preparing(self) -> Steps[None]:
        """Compute the gauges of the next scrape, in steps."""
        return self._gauges.preparing()

    def _compute(self) -> Steps[list[GaugeMetricFamily]]:
        clients = yield from self._heard.listing(self._clock())
        requests = _Sums(["client", "cluster", "locality", "result"])
        in_progress = _Sums(["client", "cluster", "locality"])
        answers = _Sums(["client", "cluster", "locality", "kind"])
        utilization = _Sums(["client", "cluster", "locality", "kind"])
        drops = _Sums(["client", "cluster", "category"])
        count = 0
        for client in clients:
            for cluster in client.clusters:
                for rates in cluster.localities:
                    key = client.node, cluster.cluster, place_of(rates.locality)
                    for result, rate in _results(rates):
                        requests.add((*key, result), rate)
                    in_progress.add(key, rates.in_progress)
                    for kind, metric in _utilizations(rates):
                        answers.add((*key, kind), metric.per_second)
                        utilization.add((*key, kind), metric.per_second * (metric.mean or 0.0))
                    count += 1
                    if count % EVERY == 0:
                        yield
                for category, rate in cluster.drops.items():
                    drops.add((client.node, cluster.cluster, category), rate)
                    count += 1
                    if count % EVERY == 0:
                        yield
        # Means with equal labels are combined, weighted by the number of their answers.
        means = {key: total / answers.found[key] for key, total in utilization.found.items() if answers.found[key]}
        return [
            GaugeMetricFamily("xdsprism_load_streams", "Clients that report their loads", len(self._heard)),
            requests.gauge("xdsprism_load_requests_per_second", "Requests to backends, as clients report them"),
            in_progress.gauge("xdsprism_load_requests_in_progress", "Requests in progress, as clients report them"),
            utilization.gauge(
                "xdsprism_load_utilization",
                "Mean utilization that backends reported to clients with their answers",
                means,
            ),
            drops.gauge("xdsprism_load_drops_per_second", "Requests that clients dropped"),
        ]


def _results(rates: LocalityRates) -> Iterator[tuple[str, float]]:
    yield "issued", rates.issued
    yield "succeeded", rates.succeeded
    yield "failed", rates.failed


def _utilizations(rates: LocalityRates) -> Iterator[tuple[str, MetricRate]]:
    """LRS-3: yield the utilizations that reports have fields for. Custom metrics are on the admin port only."""
    for name in UTILIZATIONS:
        if name in rates.metrics and rates.metrics[name].mean is not None:
            yield name.removesuffix("_utilization"), rates.metrics[name]


class _Sums:
    """A gauge of sums: a cluster may have several EDS names, whose rates add up. Excess series become `other`."""

    def __init__(self, labels: list[str]) -> None:
        self._labels = labels
        self.found: dict[Labels, float] = {}

    def add(self, key: Labels, value: float) -> None:
        """Add a value to the series with these labels, each cut to NAME_BYTES."""
        key = tuple(bounded(label, NAME_BYTES, distinct=True) for label in key)
        if key not in self.found and len(self.found) >= MAX_SERIES:
            key = (OTHER,) * len(key)
        self.found[key] = self.found.get(key, 0.0) + value

    def gauge(self, name: str, text: str, values: Mapping[Labels, float] | None = None) -> GaugeMetricFamily:
        """Return the gauge; `values` in place of the sums, if given."""
        family = GaugeMetricFamily(name, text, labels=self._labels)
        for key, value in (self.found if values is None else values).items():
            family.add_metric(key, value)
        return family


def place_of(locality: Locality) -> str:
    """Return `region/zone/sub_zone`, without empty parts at the end."""
    return f"{locality.region}/{locality.zone}/{locality.sub_zone}".rstrip("/")
