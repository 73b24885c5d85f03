"""What a client tells of its load: who counts it, and when it goes out on a stream (lrs.proto, A27).

`Loads` counts for as long as the client lives; a `LoadSession` is one stream. Counts leave the recorder when a report
is made of them and belong to the stream from then on: what was written to a stream that broke counts as sent, since
sending it again would count it twice if the server had it; what was never written is put back.

    session = LoadSession(loads)
    request = session.poll(now)        # at once: who we are, and no counts
    session.receive(answer, now)       # which clusters, and how often; may come again at any time
    session.deadline()                 # when to poll for the next report
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ...errors import UsageError

DEFAULT_INTERVAL = 10.0  # where the server names none, or one that can't be
SHORTEST_INTERVAL = 0.1  # our choice: a server's slip must not make a client busy with nothing but reports


@dataclass(frozen=True, slots=True)
class Locality:
    """Where an endpoint is, as its ClusterLoadAssignment says."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


NOWHERE = Locality()

# A85: metrics that have fields of their own in a report, and the map of all that backends name themselves. Both go by
# the same strings here, in `Cluster.lrs_report_endpoint_metrics` and in reports.
UTILIZATIONS = ("cpu_utilization", "mem_utilization", "application_utilization")
NAMED_METRICS = "named_metrics."


# -- what is said


@dataclass(frozen=True, slots=True)
class MetricReport:
    """A metric that backends gave along with answers; one of UTILIZATIONS, or by any other name."""

    name: str
    requests: int
    total: float


@dataclass(frozen=True, slots=True)
class LocalityReport:
    locality: Locality
    issued: int
    succeeded: int
    failed: int
    in_progress: int  # a gauge: as of now; the others are since the last report
    metrics: tuple[MetricReport, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.issued or self.succeeded or self.failed or self.in_progress or self.metrics)


@dataclass(frozen=True, slots=True)
class ClusterReport:
    cluster: str
    service: str
    since: float
    until: float
    localities: tuple[LocalityReport, ...] = ()
    drops: tuple[tuple[str, int], ...] = ()  # by category; "": dropped for no particular reason

    @property
    def interval(self) -> float:
        return self.until - self.since

    @property
    def is_empty(self) -> bool:
        return not (self.localities or self.drops)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The first one of a stream carries the node, and only the first one."""

    first: bool = False
    reports: tuple[ClusterReport, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """What the server wants to hear, from now on."""

    interval: float = 0.0
    clusters: frozenset[str] = frozenset()
    send_all: bool = False


# -- who counts


@dataclass(slots=True)
class _Locality:
    issued: int = 0
    succeeded: int = 0
    failed: int = 0
    in_progress: int = 0
    metrics: dict[str, tuple[int, float]] = field(default_factory=dict)

    def measured(self, name: str, requests: int, value: float) -> None:
        count, total = self.metrics.get(name, (0, 0.0))
        self.metrics[name] = count + requests, total + value

    def take(self, locality: Locality) -> LocalityReport:
        metrics = tuple(MetricReport(name, *sums) for name, sums in self.metrics.items())
        report = LocalityReport(locality, self.issued, self.succeeded, self.failed, self.in_progress, metrics)
        self.issued = self.succeeded = self.failed = 0
        self.metrics.clear()
        return report

    def put_back(self, report: LocalityReport) -> None:
        self.issued += report.issued
        self.succeeded += report.succeeded
        self.failed += report.failed
        for metric in report.metrics:
            self.measured(metric.name, metric.requests, metric.total)


@dataclass(slots=True)
class _Cluster:
    name: str
    service: str
    since: float
    localities: dict[Locality, _Locality] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)

    def at(self, locality: Locality) -> _Locality:
        return self.localities.setdefault(locality, _Locality())

    def drop(self, category: str, count: int) -> None:
        self.drops[category] = self.drops.get(category, 0) + count

    def take(self, now: float) -> ClusterReport:
        taken = [counts.take(locality) for locality, counts in self.localities.items()]
        localities = tuple(report for report in taken if not report.is_empty)
        report = ClusterReport(self.name, self.service, self.since, now, localities, tuple(self.drops.items()))
        self.since = now
        self.drops.clear()
        self.localities = {place: counts for place, counts in self.localities.items() if counts.in_progress}
        return report

    def put_back(self, report: ClusterReport) -> None:
        self.since = min(self.since, report.since)
        for category, count in report.drops:
            self.drop(category, count)
        for locality in report.localities:
            self.at(locality.locality).put_back(locality)


class MetricFilter:
    """Which metrics of backends are reported, by `Cluster.lrs_report_endpoint_metrics` (LRS-3, A85).

    None: there is no such list, and the application passes only what is to be reported. Strings that name no metric
    known here are ignored, since newer control planes may know more.
    """

    def __init__(self, listed: Iterable[str] | None) -> None:
        self._everything = listed is None
        listed = frozenset(listed or ())
        self._all_named = f"{NAMED_METRICS}*" in listed
        self._names = {name for name in listed if name in UTILIZATIONS or name.startswith(NAMED_METRICS)}

    def passes(self, name: str) -> bool:
        return self._everything or name in self._names or (self._all_named and name.startswith(NAMED_METRICS))


class ClusterLoads:
    """Records the load of one cluster, under the name by which an EDS service knows it, if there is one.

    May be kept for as long as one likes: a cluster that falls silent is forgotten, and begins anew with its next
    request. Not to be shared between threads.
    """

    def __init__(self, find: Callable[[], _Cluster], metrics: MetricFilter) -> None:
        self._find = find
        self._metrics = metrics

    def started(self, locality: Locality = NOWHERE) -> None:
        """A request went out."""
        counts = self._find().at(locality)
        counts.issued += 1
        counts.in_progress += 1

    def finished(
        self, locality: Locality = NOWHERE, *, ok: bool = True, metrics: Mapping[str, float] | None = None
    ) -> None:
        """A request that was `started` is over.

        metrics: what the backend said of it (ORCA), by the names that A85 gives them: `cpu_utilization`,
        `mem_utilization`, `application_utilization`, and `named_metrics.KEY`.
        """
        counts = self._find().at(locality)
        if not counts.in_progress:
            raise UsageError(f"finished() without started() at {locality}: a request is started where it goes to")
        counts.in_progress -= 1
        if ok:
            counts.succeeded += 1
        else:
            counts.failed += 1
        for name, value in (metrics or {}).items():
            if self._metrics.passes(name):
                counts.measured(name, 1, value)

    def dropped(self, category: str = "") -> None:
        """A request was turned away before it went anywhere, by the policy's category if it has one."""
        self._find().drop(category, 1)


class Loads:
    """Every count that is not on its way to the server yet."""

    def __init__(self, now: float) -> None:
        self._reported = now
        self._clusters: dict[tuple[str, str], _Cluster] = {}

    def cluster(self, name: str, service: str = "", *, report_metrics: Iterable[str] | None = None) -> ClusterLoads:
        """Where to record the load of one cluster.

        report_metrics: `lrs_report_endpoint_metrics` of the Cluster, which lists the metrics of backends that are
        reported; an empty list: none (A85). None: all that are recorded.
        """
        if not name:
            raise UsageError("loads are recorded for a cluster: give its name")
        return ClusterLoads(partial(self._find, name, service), MetricFilter(report_metrics))

    def report(self, now: float, only: Collection[str] | None = None) -> tuple[ClusterReport, ...]:
        """Take what was counted since the last report; of clusters that are not in `only` it stays.

        Clusters without news are left out, and forgotten where nothing is in progress.
        """
        wanted = [cluster for cluster in self._clusters.values() if only is None or cluster.name in only]
        reports = [cluster.take(now) for cluster in wanted]
        for cluster in wanted:
            if not cluster.localities:
                del self._clusters[cluster.name, cluster.service]
        self._reported = now
        return tuple(report for report in reports if not report.is_empty)

    def put_back(self, reports: Iterable[ClusterReport]) -> None:
        """These were taken and never sent: they are part of the next report."""
        for report in reports:
            self._find(report.cluster, report.service).put_back(report)

    def _find(self, name: str, service: str) -> _Cluster:
        cluster = self._clusters.get((name, service))
        if cluster is None:  # it had nothing to say until the last report, so its period begins there
            cluster = self._clusters[name, service] = _Cluster(name, service, self._reported)
        return cluster


# -- when it goes out


class LoadSession:
    """One stream of load reports, from the moment it is open."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._greeted = False
        self._answer: LoadAnswer | None = None
        self._last = 0.0  # when a period began: at the first answer, then at each report

    def receive(self, answer: LoadAnswer, now: float) -> None:
        """Do as the server says from now on; a running period is not begun anew, it only gets another end.

        Else a server that answers every report, or repeats itself, would put the next report off for ever.
        """
        if self._answer is None:
            self._last = now
        self._answer = answer

    def poll(self, now: float) -> LoadRequest | None:
        """What is to be sent now: at first who we are, later reports.

        An empty report goes out too, as Envoy's and grpc-go's do: silence could be no load, or no client.
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
        """The stream broke before this was written to it."""
        self._loads.put_back(request.reports)

    def deadline(self) -> float | None:
        """When the next report is due; None: not before the server has said what it wants."""
        if self._answer is None:
            return None
        interval = self._answer.interval
        return self._last + (max(interval, SHORTEST_INTERVAL) if interval > 0 else DEFAULT_INTERVAL)
