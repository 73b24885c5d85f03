"""Count the load of a client, and decide when to report it: the client's side of lrs.proto (A27).

`Loads` counts for the life of the client; a `LoadSession` is one stream. Making a report takes the counts out of
`Loads`, and from then on they belong to the stream. Counts that were written to a stream that broke are treated as
sent, since sending them again would count them twice if the server has them. Counts that were never written are put
back.

    session = LoadSession(loads)
    request = session.poll(now)        # at once: the node, without counts
    session.receive(answer, now)       # which clusters, and how often; may come again at any time
    session.deadline()                 # when to poll for the next report
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ...errors import UsageError

DEFAULT_INTERVAL = 10.0  # seconds, if the server gives no interval or an invalid one
SHORTEST_INTERVAL = 0.1  # seconds; our choice: a mistake of a server must not keep a client busy with reports


@dataclass(frozen=True, slots=True)
class Locality:
    """The locality of an endpoint, as in its ClusterLoadAssignment."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


NOWHERE = Locality()

# A85: metrics with fields of their own in a report, and the prefix of those that backends name. The same strings appear
# in `Cluster.lrs_report_endpoint_metrics` and in reports.
UTILIZATIONS = ("cpu_utilization", "mem_utilization", "application_utilization")
NAMED_METRICS = "named_metrics."


# -- messages


@dataclass(frozen=True, slots=True)
class MetricReport:
    """One metric that backends sent with their responses (ORCA): one of UTILIZATIONS, or any other name."""

    name: str
    requests: int
    total: float


@dataclass(frozen=True, slots=True)
class LocalityReport:
    """The counts of one locality since the last report."""

    locality: Locality
    issued: int
    succeeded: int
    failed: int
    in_progress: int  # a gauge, as of now; all others count since the last report
    metrics: tuple[MetricReport, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.issued or self.succeeded or self.failed or self.in_progress or self.metrics)


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The counts of one cluster over a period."""

    cluster: str
    service: str
    since: float
    until: float
    localities: tuple[LocalityReport, ...] = ()
    drops: tuple[tuple[str, int], ...] = ()  # by category; "": without a category

    @property
    def interval(self) -> float:
        """Seconds that the report covers."""
        return self.until - self.since

    @property
    def is_empty(self) -> bool:
        return not (self.localities or self.drops)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A message to the server; only the first one of a stream has the node."""

    first: bool = False
    reports: tuple[ClusterReport, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Which clusters the server wants reports for, and how often."""

    interval: float = 0.0
    clusters: frozenset[str] = frozenset()
    send_all: bool = False


# -- counting


@dataclass(slots=True)
class _Locality:
    """The counters of one locality."""

    issued: int = 0
    succeeded: int = 0
    failed: int = 0
    in_progress: int = 0
    metrics: dict[str, tuple[int, float]] = field(default_factory=dict)

    def measured(self, name: str, requests: int, value: float) -> None:
        """Add a metric of some requests."""
        count, total = self.metrics.get(name, (0, 0.0))
        self.metrics[name] = count + requests, total + value

    def take(self, locality: Locality) -> LocalityReport:
        """Return the counts since the last report, and reset them; requests in progress stay."""
        metrics = tuple(MetricReport(name, *sums) for name, sums in self.metrics.items())
        report = LocalityReport(locality, self.issued, self.succeeded, self.failed, self.in_progress, metrics)
        self.issued = self.succeeded = self.failed = 0
        self.metrics.clear()
        return report

    def put_back(self, report: LocalityReport) -> None:
        """Add the counts of a report that was not sent."""
        self.issued += report.issued
        self.succeeded += report.succeeded
        self.failed += report.failed
        for metric in report.metrics:
            self.measured(metric.name, metric.requests, metric.total)


@dataclass(slots=True)
class _Cluster:
    """The counters of one cluster."""

    name: str
    service: str
    since: float
    localities: dict[Locality, _Locality] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)

    def at(self, locality: Locality) -> _Locality:
        """Return the counters of a locality."""
        return self.localities.setdefault(locality, _Locality())

    def drop(self, category: str, count: int) -> None:
        self.drops[category] = self.drops.get(category, 0) + count

    def take(self, now: float) -> ClusterReport:
        """Return the report since the last one, and reset the counters; localities without requests in progress go."""
        taken = [counts.take(locality) for locality, counts in self.localities.items()]
        localities = tuple(report for report in taken if not report.is_empty)
        report = ClusterReport(self.name, self.service, self.since, now, localities, tuple(self.drops.items()))
        self.since = now
        self.drops.clear()
        self.localities = {place: counts for place, counts in self.localities.items() if counts.in_progress}
        return report

    def put_back(self, report: ClusterReport) -> None:
        """Add the counts of a report that was not sent, and extend the period to its beginning."""
        self.since = min(self.since, report.since)
        for category, count in report.drops:
            self.drop(category, count)
        for locality in report.localities:
            self.at(locality.locality).put_back(locality)


class MetricFilter:
    """Decides which metrics of backends are reported, by `Cluster.lrs_report_endpoint_metrics` (LRS-3, A85).

    None: there is no list, and the application passes only metrics to report. Strings that name no known metric are
    ignored, since newer control planes may know more.
    """

    def __init__(self, listed: Iterable[str] | None) -> None:
        self._everything = listed is None
        listed = frozenset(listed or ())
        self._all_named = f"{NAMED_METRICS}*" in listed
        self._names = {name for name in listed if name in UTILIZATIONS or name.startswith(NAMED_METRICS)}

    def passes(self, name: str) -> bool:
        """Whether to report the metric."""
        return self._everything or name in self._names or (self._all_named and name.startswith(NAMED_METRICS))


class ClusterLoads:
    """Records the load of one cluster, with the name of its EDS service, if it has one.

    An application may keep it as long as it likes: a cluster without load is forgotten, and begins anew with its next
    request. Not to be shared between threads.
    """

    def __init__(self, find: Callable[[], _Cluster], metrics: MetricFilter) -> None:
        self._find = find
        self._metrics = metrics

    def started(self, locality: Locality = NOWHERE) -> None:
        """Count a request that goes out to a locality."""
        counts = self._find().at(locality)
        counts.issued += 1
        counts.in_progress += 1

    def finished(
        self, locality: Locality = NOWHERE, *, ok: bool = True, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Count the end of a request that was `started` at the same locality.

        metrics: the metrics of the response (ORCA), by the names of A85: `cpu_utilization`, `mem_utilization`,
        `application_utilization`, and `named_metrics.KEY`.
        """
        counts = self._find().at(locality)
        if not counts.in_progress:
            raise UsageError(f"finished() without started() at {locality}: call both for the same locality")
        counts.in_progress -= 1
        if ok:
            counts.succeeded += 1
        else:
            counts.failed += 1
        for name, value in (metrics or {}).items():
            if self._metrics.passes(name):
                counts.measured(name, 1, value)

    def dropped(self, category: str = "") -> None:
        """Count a request that was dropped before it went anywhere; `category` as in the drop policy, if it has one."""
        self._find().drop(category, 1)


class Loads:
    """All counts that no report has taken yet."""

    def __init__(self, now: float) -> None:
        self._reported = now
        self._clusters: dict[tuple[str, str], _Cluster] = {}

    def cluster(self, name: str, service: str = "", *, report_metrics: Iterable[str] | None = None) -> ClusterLoads:
        """Return where to record the load of one cluster.

        report_metrics: `lrs_report_endpoint_metrics` of the Cluster, the metrics of backends to report; an empty list:
        none (A85). None: all that are recorded.
        """
        if not name:
            raise UsageError("loads are recorded for a cluster: give its name")
        return ClusterLoads(partial(self._find, name, service), MetricFilter(report_metrics))

    def report(self, now: float, only: Collection[str] | None = None) -> tuple[ClusterReport, ...]:
        """Take the counts since the last report, of the clusters in `only`; None: of all clusters.

        Clusters without counts are left out, and forgotten if they have no request in progress.
        """
        wanted = [cluster for cluster in self._clusters.values() if only is None or cluster.name in only]
        reports = [cluster.take(now) for cluster in wanted]
        for cluster in wanted:
            if not cluster.localities:
                del self._clusters[cluster.name, cluster.service]
        self._reported = now
        return tuple(report for report in reports if not report.is_empty)

    def put_back(self, reports: Iterable[ClusterReport]) -> None:
        """Put reports that were never sent into the next report."""
        for report in reports:
            self._find(report.cluster, report.service).put_back(report)

    def _find(self, name: str, service: str) -> _Cluster:
        """Return the counters of a cluster, and make them if there are none."""
        cluster = self._clusters.get((name, service))
        if cluster is None:  # it had no load until the last report, so its period begins there
            cluster = self._clusters[name, service] = _Cluster(name, service, self._reported)
        return cluster


# -- reporting


class LoadSession:
    """One stream of load reports."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._greeted = False
        self._answer: LoadAnswer | None = None
        self._last = 0.0  # when the current period began: at the first answer, then at each report

    def receive(self, answer: LoadAnswer, now: float) -> None:
        """Follow the server's answer from now on; the current period only gets another end.

        If it began anew, a server that answers each report, or repeats itself, would delay the next report without end.
        """
        if self._answer is None:
            self._last = now
        self._answer = answer

    def poll(self, now: float) -> LoadRequest | None:
        """Return the message to send now: first the node, later a report when it is due.

        An empty report goes out too, as those of Envoy and grpc-go do: silence could mean no load, or no client.
        """
        if not self._greeted:
            self._greeted = True
            return LoadRequest(first=True)
        due = self.deadline()
        if self._answer is None or due is None or now < due:
            return None
        self._last = now
        return LoadRequest(reports=self._loads.report(now, None if self._answer.send_all else self._answer.clusters))

    def unsent(self, request: LoadRequest) -> None:
        """Put back a report that was not written before the stream broke."""
        self._loads.put_back(request.reports)

    def deadline(self) -> float | None:
        """When the next report is due; None until the server has sent its first response."""
        if self._answer is None:
            return None
        interval = self._answer.interval
        return self._last + (max(interval, SHORTEST_INTERVAL) if interval > 0 else DEFAULT_INTERVAL)
