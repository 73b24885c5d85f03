"""Exposes the loads that clients report (LRS) as Prometheus gauges, computed at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..core.loads.load_reports import ClientLoads, LoadReports, LocalityRates, MetricRate
from ..core.loads.loads import UTILIZATIONS, Locality
from ..core.model.facts import Fact, LoadsHeard, LoadsRefused

MAX_SERIES = 1000  # of a gauge: clients choose the names of clusters and localities, and could send any number
OTHER = "other"

Labels = tuple[str, ...]


class LoadMetrics:
    """A reader of facts: `hub.readers.append(LoadMetrics(registry, hub.reports, hub.clock))`."""

    def __init__(self, registry: CollectorRegistry, reports: LoadReports, clock: Callable[[], float]) -> None:
        registry.register(_LoadCollector(reports, clock))
        text = "Clusters that clients reported loads of, by whether that made sense"
        self._reports = CounterMetric("xdsprism_load_reports", text, ["result"], registry=registry)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, LoadsHeard):
                self._reports.labels("ok").inc(fact.clusters)
            elif isinstance(fact, LoadsRefused):
                self._reports.labels("refused").inc()


class _LoadCollector(Collector):
    """Computes the gauges from the load reports at each scrape."""

    def __init__(self, reports: LoadReports, clock: Callable[[], float]) -> None:
        self._reports = reports
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        clients = self._reports.clients(self._clock())
        places = [row for client in clients for row in _places(client)]
        yield GaugeMetricFamily("xdsprism_load_streams", "Clients that report their loads", len(self._reports))
        yield _gauge(
            "xdsprism_load_requests_per_second",
            "Requests to backends that clients report",
            ["client", "cluster", "locality", "result"],
            [((*key, result), rate) for key, rates in places for result, rate in _results(rates)],
        )
        yield _gauge(
            "xdsprism_load_requests_in_progress",
            "Requests to backends that clients wait for",
            ["client", "cluster", "locality"],
            [(key, rates.in_progress) for key, rates in places],
        )
        yield _means(
            "xdsprism_load_utilization",
            "Utilization that backends tell clients of, on average over their answers",
            ["client", "cluster", "locality", "kind"],
            [((*key, kind), metric) for key, rates in places for kind, metric in _utilizations(rates)],
        )
        yield _gauge(
            "xdsprism_load_drops_per_second",
            "Requests that clients dropped",
            ["client", "cluster", "category"],
            [((client.node, *row), rate) for client in clients for row, rate in _drops(client)],
        )


def _places(client: ClientLoads) -> Iterator[tuple[Labels, LocalityRates]]:
    """Yield the rates of each cluster and locality of a client, with their labels."""
    for cluster in client.clusters:
        for rates in cluster.localities:
            yield (client.node, cluster.cluster, place_of(rates.locality)), rates


def _results(rates: LocalityRates) -> Iterator[tuple[str, float]]:
    yield "issued", rates.issued
    yield "succeeded", rates.succeeded
    yield "failed", rates.failed


def _utilizations(rates: LocalityRates) -> Iterator[tuple[str, MetricRate]]:
    """LRS-3: yield the utilizations that reports have fields for. Custom metrics are on the admin port only."""
    for name in UTILIZATIONS:
        if name in rates.metrics:
            yield name.removesuffix("_utilization"), rates.metrics[name]


def _drops(client: ClientLoads) -> Iterator[tuple[Labels, float]]:
    for cluster in client.clusters:
        for category, rate in cluster.drops.items():
            yield (cluster.cluster, category), rate


def place_of(locality: Locality) -> str:
    """Return `region/zone/sub_zone`, without empty parts at the end."""
    return f"{locality.region}/{locality.zone}/{locality.sub_zone}".rstrip("/")


def _means(name: str, text: str, labels: list[str], rows: list[tuple[Labels, MetricRate]]) -> GaugeMetricFamily:
    """Make a gauge of means. Means with equal labels are combined, weighted by the number of their answers."""
    answers, sums = Counter[Labels](), Counter[Labels]()
    for key, metric in rows:
        if metric.mean is not None:
            shown = key if key in sums or len(sums) < MAX_SERIES else (OTHER,) * len(key)
            answers[shown] += metric.per_second  # type: ignore[assignment] # Counters of floats
            sums[shown] += metric.per_second * metric.mean  # type: ignore[assignment]
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, total in sums.items():
        family.add_metric(key, total / answers[key])
    return family


def _gauge(name: str, text: str, labels: list[str], rows: list[tuple[Labels, float]]) -> GaugeMetricFamily:
    """Make a gauge of sums: a cluster may have several EDS names, whose rates add up. Excess series become `other`."""
    sums: Counter[Labels] = Counter()
    for key, value in rows:
        known = key in sums or len(sums) < MAX_SERIES
        sums[key if known else (OTHER,) * len(key)] += value  # type: ignore[assignment] # a Counter of floats
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, total in sums.items():
        family.add_metric(key, total)
    return family
