"""Ask clients for load reports, check them, and turn them into rates: the server's side of lrs.proto.

The client's side is in loads.py. On each stream the server says how often the client is to report, and for which
clusters (LRS-1):

    settings and client                                     answer
    ------------------------------------------------------  ----------------------------------------
    the settings list clusters                              these clusters
    the client announces `send_all_clusters`                all clusters of the client
    otherwise                                               the clusters that the client gets from us

The server keeps the last report of each cluster, until the next one, until the stream ends, or until MISSED reports in
a row have not come. An implausible report is an error by itself: the stream goes on, and the other reports in the
message count.

    reporter = reports.open(facts)     # a stream
    reporter.receive(message, now)     # the node, later the reports
    reporter.poll()                    # which clusters, and how often, when that changed
    reports.clients(now)               # the rates, by node id
    reporter.close()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from math import inf, isfinite
from typing import TypeVar

from ..model.events import SEND_ALL_CLUSTERS, WILDCARD, Node
from ..model.facts import Facts, LoadsHeard, LoadsRefused
from ..model.settings import Settings
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.types import CLUSTER, Params
from ..policy.grant import Grant
from .loads import ClusterReport, LoadAnswer, Locality, LocalityReport, MetricReport

MISSED = 3  # reports in a row that may stay out before the last one is dropped
LONGEST = 366 * 86400.0  # seconds: the longest period of a report
MOST = 2**63  # a count from here on is a negative number, written as unsigned
ERRORS = 100  # clusters with an error to remember for each stream
GUARANTEED = 1_000  # clusters and localities that each stream may hold, whatever all others hold
SWEEP = 1.0  # seconds between two looks for reports that are too old
T = TypeVar("T")


def ungranted(_: Node) -> Grant | None:
    """Return None: there is no policy."""
    return None


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """A decoded request, unchecked: the figures may be implausible, and an invalid interval is NaN."""

    node: Node | None = None
    reports: tuple[ClusterReport, ...] = ()
    oversize: tuple[str, ...] = ()  # clusters whose report is too large to be read


@dataclass(frozen=True, slots=True)
class MetricRate:
    """How often a metric was reported, and its mean."""

    per_second: float  # requests with this metric
    mean: float | None  # None: no request had it


@dataclass(frozen=True, slots=True)
class LocalityRates:
    """The load of one locality in requests per second; `in_progress` is a count."""

    locality: Locality
    issued: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    in_progress: int = 0
    metrics: dict[str, MetricRate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterRates:
    """The load of one cluster, as one node reports it."""

    cluster: str
    service: str
    heard_at: float
    localities: tuple[LocalityRates, ...]
    drops: dict[str, float]  # per second, by category; "": without a category


@dataclass(frozen=True, slots=True)
class ClientLoads:
    """The load that all streams with one node id report."""

    node: str
    streams: int
    clusters: tuple[ClusterRates, ...]
    errors: dict[str, tuple[float, str]]  # cluster -> when, and what was wrong


def fault_in(report: ClusterReport, name_bytes: int) -> str | None:
    """Return why a report is implausible; None if it is not."""
    if not report.cluster:
        return "cluster_name is empty"
    if len(report.cluster) > name_bytes or len(report.service) > name_bytes:
        return f"a name of more than {name_bytes} characters"
    if not isfinite(report.interval):
        return "load_report_interval is not a finite number of seconds"
    # Rates divide by the interval.
    if not 0 < report.interval <= LONGEST:
        return f"load_report_interval is {report.interval:g} seconds: it must be positive"
    for what, number in _numbers(report):
        # protobuf has unsigned counts: a client's -1 arrives as a huge number.
        if not (number < MOST and isfinite(number)):
            return f"{what} is {number}: it must be a finite number, and not negative"
    return None


def _numbers(report: ClusterReport) -> Iterator[tuple[str, int | float]]:
    """Yield all figures of a report, each with the name of its field."""
    for category, count in report.drops:
        yield f"dropped_requests of {category!r}" if category else "total_dropped_requests", count
    for place in report.localities:
        yield "total_issued_requests", place.issued
        yield "total_successful_requests", place.succeeded
        yield "total_error_requests", place.failed
        yield "total_requests_in_progress", place.in_progress
        for metric in place.metrics:
            yield f"num_requests_finished_with_metric of {metric.name!r}", metric.requests
            yield f"total_metric_value of {metric.name!r}", metric.total


@dataclass(frozen=True, slots=True)
class _Kept:
    """A report, and when it came."""

    at: float
    report: ClusterReport


class LoadReports:
    """The load reports of all clients; `seen` returns the clusters that a client with these params gets from us."""

    def __init__(self, settings: Settings, seen: Callable[[Params], Iterable[str]]) -> None:
        self.settings = settings
        self._seen = seen
        self.held = 0  # clusters, localities, metrics and drops that all streams hold
        self._reporters: dict[Reporter, None] = {}

    def open(self, facts: Facts, grant_of: Callable[[Node], Grant | None] = ungranted) -> Reporter:
        """Begin a stream of load reports; `facts` receives what happens on it.

        `grant_of`: what a node may have by the policy in force.
        """
        reporter = Reporter(self, self._seen, facts, lambda: self._reporters.pop(reporter, None), grant_of)
        self._reporters[reporter] = None
        return reporter

    def __len__(self) -> int:
        return len(self._reporters)

    def clients(self, now: float) -> list[ClientLoads]:
        """Return the current loads by node id, sorted; the loads of streams with the same id add up."""
        return finish(self.listing(now))

    def listing(self, now: float) -> Steps[list[ClientLoads]]:
        """Do what `clients` does, in steps: clients choose how many clusters and localities they report."""
        found: dict[str, list[Reporter]] = {}
        for reporter in self._reporters:
            # A stream without a first message belongs to no client yet.
            if reporter.node is not None:
                found.setdefault(reporter.node.id, []).append(reporter)
        clients: list[ClientLoads] = []
        for node in sorted(found):
            clients.append((yield from _adding_up(node, found[node], now)))
            yield
        return clients

    def has_room(self, size: int, more: int) -> bool:
        """Whether a stream that holds `size` may hold `more` beside all others."""
        return size + more <= GUARANTEED or self.held + more <= self.settings.limits.all_loads


class Reporter:
    """One stream of load reports."""

    def __init__(
        self,
        reports: LoadReports,
        seen: Callable[[Params], Iterable[str]],
        facts: Facts,
        forget: Callable[[], object],
        grant_of: Callable[[Node], Grant | None],
    ) -> None:
        self.node: Node | None = None
        self.errors: dict[str, tuple[float, str]] = {}
        self._all = reports
        self._settings = reports.settings
        self._seen = seen
        self._facts = facts
        self._forget = forget
        self._grant_of = grant_of
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._size = 0  # of all kept reports, with their localities, metrics and drops
        self._swept = -inf  # when old reports were dropped last
        # The last answer to the client, and whether there may be another one.
        self._last_answer: LoadAnswer | None = None
        self._is_due = False

    @property
    def lists(self) -> bool:
        """Whether the client needs its clusters by name, because it does not support `send_all_clusters`."""
        return (
            self.node is not None
            and self._settings.load_clusters is None
            and SEND_ALL_CLUSTERS not in self.node.features
        )

    def receive(self, message: LoadMessage, now: float) -> None:
        """Take the reports of one message; the first message on a stream also says who the client is."""
        finish(self.receiving(message, now))

    def receiving(self, message: LoadMessage, now: float) -> Steps[None]:
        """Do what `receive` does, in steps."""
        if self.node is None:  # as in SRV-6: without a node in its first message the client is anonymous
            self._is_due = True
            self.node = message.node or Node()
        # Make room first, since the limit counts what is kept. Small messages may come by the thousand.
        if now - self._swept >= SWEEP:
            self._swept = now
            for key in [key for key, kept in self._kept.items() if self._is_old(kept, now)]:
                self._drop(key)
        taken = 0
        for count, report in enumerate(message.reports, 1):
            taken += self._keep(report, now)
            if count % EVERY == 0:
                yield
        for count, cluster in enumerate(message.oversize, 1):
            self._refuse(cluster, "the report has more than 1 MiB", now)
            if count % EVERY == 0:
                yield
        self._facts.append(LoadsHeard(self.node.id, taken))

    def clusters_changed(self) -> None:
        """Note that the client may need another list of clusters."""
        self._is_due = True

    def poll(self) -> LoadAnswer | None:
        """Return the answer to send now; None if the client has it already."""
        if self.node is None or not self._is_due:
            return None
        self._is_due = False
        answer = self._answer()
        if answer == self._last_answer:
            return None
        self._last_answer = answer
        return answer

    def close(self) -> None:
        """Forget the stream with its reports."""
        self._all.held -= self._size
        self._size = 0
        self._kept.clear()
        self._forget()

    def kept(self, now: float) -> list[_Kept]:
        """Return the reports that are not too old."""
        return [kept for kept in self._kept.values() if not self._is_old(kept, now)]

    def _answer(self) -> LoadAnswer:
        """Return which clusters the client is to report, and how often (LRS-1)."""
        interval, listed = self._settings.load_interval, self._settings.load_clusters
        # The operator's choice comes first.
        if listed is not None:
            return LoadAnswer(interval, self._allowed(listed))
        if self.lists:
            return LoadAnswer(interval, self._allowed(None))
        return LoadAnswer(interval, send_all=True)

    def _allowed(self, listed: Iterable[str] | None) -> frozenset[str]:
        """Return those of the listed clusters that the client may have; None: of all that it gets from us.

        The params of its node decide which clusters it gets, as for a plain subscription.
        """
        node = self.node or Node()
        params, grant = self._settings.params_of(node), self._grant_of(node)
        claim = grant.claim_node(params) if grant is not None else None
        if claim is not None:
            if claim.denial is not None:
                return frozenset()
            params = claim.params
        clusters = self._seen(self._settings.plain_params(params, WILDCARD)) if listed is None else listed
        return frozenset(each for each in clusters if grant is None or grant.denies(CLUSTER, each) is None)

    def _is_old(self, kept: _Kept, now: float) -> bool:
        """Whether MISSED reports in a row should have replaced this one."""
        return now - kept.at > MISSED * max(self._settings.load_interval, kept.report.interval)

    def _keep(self, report: ClusterReport, now: float) -> bool:
        """Keep a report in place of the cluster's last one, or refuse it; return whether it was kept."""
        limits = self._settings.limits
        fault = fault_in(report, limits.name_bytes)
        key = report.cluster, report.service
        last = self._kept.get(key)
        # The new report replaces the last one, so that one does not count against the limit.
        more = _size(report) - (_size(last.report) if last is not None else 0)
        if fault is None and self._size + more > limits.loads:
            fault = f"more than {limits.loads} clusters and localities on one stream"
        if fault is None and not self._all.has_room(self._size, more):
            fault = f"all streams together have {limits.all_loads} clusters and localities, and no more are accepted"
        if fault is not None:
            self._refuse(report.cluster[: limits.name_bytes], fault, now)
            return False
        self.errors.pop(report.cluster, None)
        self._drop(key)  # so that the newest report is the last in order
        self._kept[key] = _Kept(now, report)
        self._count(_size(report))
        return True

    def _drop(self, key: tuple[str, str]) -> None:
        """Drop the report of a cluster."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._count(-_size(kept.report))

    def _count(self, more: int) -> None:
        self._size += more
        self._all.held += more

    def _refuse(self, cluster: str, fault: str, now: float) -> None:
        """Remember what is wrong with a cluster's report, and note a fact."""
        # Put the newest error last, so that the oldest ones are dropped first.
        before = self.errors.pop(cluster, (0.0, ""))[1]
        self.errors[cluster] = now, fault
        for old in islice(list(self.errors), max(0, len(self.errors) - ERRORS)):
            del self.errors[old]
        node = self.node.id if self.node is not None else ""
        self._facts.append(LoadsRefused(node, cluster, fault, news=before != fault))


def _size(report: ClusterReport) -> int:
    """Return how much a report counts against the limit of a stream."""
    return 1 + len(report.drops) + sum(1 + len(place.metrics) for place in report.localities)


# -- rates


def _adding_up(node: str, reporters: list[Reporter], now: float) -> Steps[ClientLoads]:
    """Return the loads of all streams with one node id, in steps."""
    found: dict[tuple[str, str], list[_Kept]] = {}
    for reporter in reporters:
        for piece in pieces(reporter.kept(now)):
            for kept in piece:
                found.setdefault((kept.report.cluster, kept.report.service), []).append(kept)
            yield
    errors = {cluster: error for reporter in reporters for cluster, error in reporter.errors.items()}
    clusters: list[ClusterRates] = []
    for key in (yield from _sorted([*found], lambda key: key)):
        clusters.append((yield from _adding_up_cluster(*key, found[key])))
        if len(clusters) % EVERY == 0:
            yield
    return ClientLoads(node, len(reporters), tuple(clusters), errors)


def _sorted(items: list[T], by: Callable[[T], tuple[str, ...]]) -> Steps[Iterable[T]]:
    """Sort in steps: in runs, which are merged while the result is read."""
    runs = []
    for run in pieces(items, 16 * EVERY):
        runs.append(sorted(run, key=by))
        yield
    return merge(*runs, key=by) if len(runs) > 1 else [each for run in runs for each in run]


def _adding_up_cluster(cluster: str, service: str, heard: list[_Kept]) -> Steps[ClusterRates]:
    """Add up the reports of one cluster, each divided by its own interval, in steps."""
    places: dict[Locality, list[tuple[LocalityReport, float]]] = {}
    drops: Counter[str] = Counter()
    # Each report has an interval of its own, so divide before adding up.
    for kept in heard:
        for piece in pieces(kept.report.localities):
            for place in piece:
                places.setdefault(place.locality, []).append((place, kept.report.interval))
            if len(piece) == EVERY:
                yield
        for category, count in kept.report.drops:
            drops[category] += count / kept.report.interval  # type: ignore[assignment] # a Counter of floats
    localities: list[LocalityRates] = []
    for locality in (yield from _sorted([*places], _by_name)):
        localities.append(_locality(locality, places[locality]))
        if len(localities) % EVERY == 0:
            yield
    return ClusterRates(cluster, service, max(kept.at for kept in heard), tuple(localities), dict(drops))


def _by_name(locality: Locality) -> tuple[str, str, str]:
    return locality.region, locality.zone, locality.sub_zone


def _locality(locality: Locality, heard: list[tuple[LocalityReport, float]]) -> LocalityRates:
    """Add up the reports of one locality, which may be there several times, with different priorities."""
    metrics: dict[str, list[tuple[MetricReport, float]]] = {}
    for place, seconds in heard:
        for metric in place.metrics:
            metrics.setdefault(metric.name, []).append((metric, seconds))
    return LocalityRates(
        locality,
        sum(place.issued / seconds for place, seconds in heard),
        sum(place.succeeded / seconds for place, seconds in heard),
        sum(place.failed / seconds for place, seconds in heard),
        sum(place.in_progress for place, _ in heard),
        {name: _metric(found) for name, found in metrics.items()},
    )


def _metric(found: list[tuple[MetricReport, float]]) -> MetricRate:
    """Add up the reports of one metric."""
    requests = sum(metric.requests for metric, _ in found)
    total = sum(metric.total for metric, _ in found)
    mean = total / requests if requests else None  # no mean of no requests
    return MetricRate(sum(metric.requests / seconds for metric, seconds in found), mean)
