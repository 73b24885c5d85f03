"""Counts facts in Prometheus metrics (OPS-11). Each server has its own registry, so a process can have several servers.

A text that a client chose must not become a label, as clients could make any number of series. So a type that the
server does not serve is counted as `other`, and so are types past FURTHER_TYPES that neither Envoy nor gRPC knows.
"""

from __future__ import annotations

from collections import Counter as StagedChanges
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ..core.model.facts import (
    Ambiguous,
    Closed,
    Consulted,
    Denied,
    Fact,
    Forgotten,
    Joined,
    LimitReached,
    Looked,
    Lost,
    Nacked,
    NackReported,
    Opened,
    Oversize,
    PolicyRefused,
    PolicyTaken,
    Polled,
    Reached,
    Refused,
    Rejected,
    ShareExceeded,
    SubscriptionQuarantined,
    SubscriptionsRefused,
    Suppressed,
    TokenRefused,
)
from ..core.model.limits import ClientLimit, Scarce
from ..core.model.steps import Steps, finish
from ..core.model.store import Applied, Store
from ..core.model.types import TYPES, TypeUrl
from .state_metrics import BuildMetrics
from .traffic import EVERYDAY, SECONDS, Traffic

# What is over for a client that exceeds a limit. A request that comes too early is only delayed.
ENDED: Mapping[ClientLimit, str] = {
    "client_streams": "stream",
    "all_streams": "stream",
    "requests": "nothing",
    "reports": "nothing",
    "fetches": "request",
    "idle_stream": "stream",
}

CONTENT_TYPE = CONTENT_TYPE_LATEST
OTHER = "other"
FURTHER_TYPES = 64  # types that get labels of their own, beside those that Envoy and gRPC know


class _OfType:
    """The counters of one resource type, looked up once, as looking up a label takes a lock."""

    __slots__ = ("forgotten", "nacks", "oversize", "suppressed")

    def __init__(self, families: _Families, label: str) -> None:
        self.nacks = families.nacks.labels(label)
        self.suppressed = families.suppressed.labels(label)
        self.oversize = families.oversize.labels(label)
        self.forgotten = families.forgotten.labels(label)


class _Families:
    """The counters that have a label for the resource type."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"xdsprism_{name}", text, ["type"], registry=registry)

        self.nacks = counter("nacks", "Responses that clients refused")
        self.suppressed = counter("suppressed_resends", "Resources not sent because the client already had them")
        self.oversize = counter("oversize_resources", "Resources too large for any response")
        self.forgotten = counter("forgotten_names", "Unknown names that sessions forgot for want of room (VHD-25)")


class _StoreCollector(Collector):
    """Counts the resources in the store at each scrape."""

    def __init__(self, store: Store, label: Callable[[TypeUrl], str]) -> None:
        self._store = store
        self._label = label

    def collect(self) -> Iterator[GaugeMetricFamily]:
        resources = GaugeMetricFamily("xdsprism_resources", "Resources served", labels=["type"])
        variants = GaugeMetricFamily("xdsprism_variants", "Variants served, of all resources", labels=["type"])
        sums: dict[str, tuple[int, int]] = {}
        for table in self._store.tables():
            if len(table) or table.spec.words:
                label = self._label(table.spec.url)
                before = sums.get(label, (0, 0))
                sums[label] = before[0] + len(table), before[1] + table.variants
        for label, (names, made) in sums.items():
            resources.add_metric([label], names)
            variants.add_metric([label], made)
        yield resources
        yield variants
        text = "The revision of the store, which grows with each change"
        yield GaugeMetricFamily("xdsprism_revision", text, self._store.revision)


class _Alone(CollectorRegistry):
    """One family of metrics, without the `_created` series of prometheus_client, which would double all counters."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family
        if family.type in ("counter", "histogram", "summary"):
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]

    def collect(self) -> Iterator[Metric]:
        yield self._family


class Metrics:
    """A reader of facts: `hub.readers.append(metrics)`."""

    def __init__(self, store: Store, *, files: bool = True) -> None:
        """`files`: the resources come from configuration files, so there are loads to count."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        BuildMetrics(self.registry)
        self.preparations: list[Callable[[], Steps[None]]] = []  # what to do before a scrape, in steps
        self._store = store
        self._served: set[TypeUrl] = set()  # types with labels of their own that neither Envoy nor gRPC knows
        for table in store.tables():
            if len(table):
                self._serve(table.spec.url)
        self.registry.register(_StoreCollector(store, self.label))
        store.listeners.append(self._applied)
        self._traffic = Traffic(self.label, OTHER)
        self.registry.register(self._traffic)
        self._families = _Families(self.registry)
        self._types: dict[TypeUrl, _OfType] = {}
        self._other = _OfType(self._families, OTHER)
        self._streams = Gauge("xdsprism_streams", "Open discovery streams", ["method"], registry=self.registry)
        clients = Gauge("xdsprism_clients", "Distinct nodes with an open stream", registry=self.registry)
        clients.set_function(lambda: len(self._node_streams))
        self._unserved = Counter(
            "xdsprism_refused_subscriptions",
            "Subscriptions answered as not existing because they exceed a limit (docs/limits.md)",
            ["type", "limit"],
            registry=self.registry,
        )
        # `ConnectionMetrics` and `LimitMetrics` count what the transports limit here, too.
        text = "Times that a client exceeded a limit, by limit, and what that ended (docs/limits.md)"
        self.limited = Counter("xdsprism_limited", text, ["limit", "ended"], registry=self.registry)
        for limit, ended in ENDED.items():
            self.limited.labels(limit, ended)
        self._denied = Counter(
            "xdsprism_denied_subscriptions",
            "Subscriptions that the policy denies (docs/policy.md)",
            ["type", "kind"],
            registry=self.registry,
        )
        self._tokens = Counter(
            "xdsprism_refused_tokens",
            "Calls refused because of their bearer token (docs/policy.md)",
            ["cause"],
            registry=self.registry,
        )
        self._policies = Counter(
            "xdsprism_policy_changes", "Changed policies, taken or refused", ["result"], registry=self.registry
        )
        loads = self.registry if files else None
        self._refused = Counter("xdsprism_refused_writes", "Configurations that were refused", registry=loads)
        self._loads = Counter("xdsprism_config_loads", "Loads of the configuration", ["result"], registry=loads)
        self._loaded = Gauge("xdsprism_config_ok", "1 if the last load was accepted, else 0", registry=loads)
        text = "When the last load was that was accepted, in seconds since the epoch; 0: there was none yet"
        self._good = Gauge("xdsprism_config_last_good_load_timestamp_seconds", text, registry=loads)
        self._calls = Counter(
            "xdsprism_provider_calls", "Calls of providers, by result", ["type", "result"], registry=self.registry
        )
        self._call_seconds = Histogram(
            "xdsprism_provider_seconds", "Duration of these calls", ["type"], buckets=SECONDS, registry=self.registry
        )
        self._methods: dict[str, Gauge] = {}  # their open streams
        self._open: dict[int, Gauge] = {}  # by stream: the gauge that counts it
        self._nodes: dict[int, str] = {}
        self._node_streams: StagedChanges[str] = StagedChanges()

    def loaded(self, result: Literal["ok", "refused", "held_back"]) -> None:
        """Count a load of the configuration. It is not a fact, as a load without changes never reaches the core."""
        self._loads.labels(result).inc()
        self._loaded.set(result == "ok")
        if result == "ok":
            self._good.set_to_current_time()

    def close(self) -> None:
        """Stop following the store."""
        self._store.listeners.remove(self._applied)

    def _applied(self, applied: Applied) -> None:
        for change in applied.changes:
            if change.type_url not in self._served and change.after is not None and change.after.variants:
                self._serve(change.type_url)

    def _serve(self, type_url: TypeUrl) -> None:
        """Give a type a label of its own, unless there are too many: a relay's clients can request any type."""
        if len(self._served) < FURTHER_TYPES and not self._store.spec(type_url).words:
            self._served.add(type_url)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return finish(self.rendering())

    def rendering(self) -> Steps[bytes]:
        """Do the same in steps, after what has to be done before a scrape."""
        for prepare in self.preparations:
            yield from prepare()
        parts = []
        for family in self.registry.collect():
            parts.append(generate_latest(_Alone(family)))
            yield
        return b"".join(parts)

    def totals(self) -> dict[str, int]:
        """Return how many requests, responses, ACKs and so on there were, of all types together."""
        return self._traffic.totals() | {"nacks": sum(self.sums("xdsprism_nacks_total", "type").values())}

    def sums(self, name: str, label: str) -> dict[str, int]:
        """Return the sums of one counter by the values of a label."""
        found: dict[str, int] = {}
        for family in self.registry.restricted_registry([name]).collect():
            for sample in family.samples:
                if sample.name == name:
                    found[sample.labels[label]] = found.get(sample.labels[label], 0) + int(sample.value)
        return found

    def __call__(self, facts: Sequence[Fact]) -> None:
        everyday = self._traffic.count
        for fact in facts:
            if type(fact) in EVERYDAY:
                everyday(fact)
            else:
                self._count(fact)

    def _count(self, fact: Fact) -> None:
        """Count a fact. The cases are in the order of how often they happen."""
        match fact:
            case Suppressed(_, type_url, resources):
                self._of(type_url).suppressed.inc(resources)
            case Nacked(_, type_url):
                self._of(type_url).nacks.inc()
            case Opened() | Joined() | Closed():
                self._connection(fact)
            case Oversize(_, type_url):
                self._of(type_url).oversize.inc()
            case Forgotten(_, type_url, names):
                self._of(type_url).forgotten.inc(names)
            case SubscriptionsRefused() | LimitReached() | Denied() | TokenRefused():
                self._restriction(fact)
            case PolicyTaken():
                self._policies.labels("taken").inc()
            case PolicyRefused():
                self._policies.labels("refused").inc()
            case Refused(problems):
                self._refused.inc(bool(problems))  # no new problems: the same configuration was refused before
            case Consulted(type_url, _, _, result, seconds):
                self._calls.labels(self.label(type_url), result).inc()
                self._call_seconds.labels(self.label(type_url)).observe(seconds)
            case _:
                pass

    def _restriction(self, fact: SubscriptionsRefused | LimitReached | Denied | TokenRefused) -> None:
        """Count what a client is not given: beyond a limit, by the policy, or for its token."""
        match fact:
            case SubscriptionsRefused(_, type_url, limit, count):
                self._unserved.labels(self.label(type_url), limit).inc(count)
            case LimitReached(exceeded):
                self.limited.labels(exceeded, ENDED[exceeded]).inc()
            case Denied(_, type_url, kind, count):
                self._denied.labels(self.label(type_url), kind).inc(count)
            case TokenRefused(_, cause):
                self._tokens.labels(cause).inc()

    def _connection(self, fact: Opened | Joined | Closed) -> None:
        """Count streams by method, and distinct nodes."""
        match fact:
            case Opened(stream, method):
                found = self._methods.get(method)
                if found is None:
                    found = self._methods[method] = self._streams.labels(method.rpartition("/")[2])
                found.inc()
                self._open[stream] = found
            case Joined(stream, node):
                self._nodes[stream] = node.id
                self._node_streams[node.id] += 1
            case Closed(stream):
                self._open.pop(stream).dec()
                self._leave(self._nodes.pop(stream, None))

    def _leave(self, node: str | None) -> None:
        if node is not None:
            self._node_streams[node] -= 1
            if not self._node_streams[node]:
                del self._node_streams[node]

    def label(self, type_url: TypeUrl) -> str:
        """Return the label of a resource type; `other` if it has none of its own."""
        spec = self._store.spec(type_url)
        return spec.label if spec.words or type_url in self._served else OTHER

    def _of(self, type_url: TypeUrl) -> _OfType:
        found = self._types.get(type_url)
        if found is None:
            label = self.label(type_url)
            if label == OTHER:
                return self._other
            found = self._types[type_url] = _OfType(self._families, label)
        return found


class RestMetrics:
    """Counts responses over REST: a reader of facts. `Metrics` counts REST requests that wait as streams."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._polls = Counter("xdsprism_rest_answers", "Responses over REST", ["status"], registry=registry)
        text = "REST requests that were answered without waiting for a change, because too many waited"
        self._crowded = Counter("xdsprism_rest_not_held", text, registry=registry)

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Polled):
                self._polls.labels(str(fact.status)).inc()
                self._crowded.inc(fact.crowded)


class CacheMetrics:
    """Counts the hits and misses of a relay's cache, and what there was no room for (PRX-35).

    A reader of facts that shares the labels of `Metrics`.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._label = metrics.label
        text = "Subscriptions, by what the cache had: an answer (hit), none (miss), or one that may be outdated (stale)"
        self._lookups = Counter("xdsprism_cache_lookups", text, ["type", "result"], registry=metrics.registry)
        text = "Subscriptions, types and groups beyond a client's share, while the relay has no room for more"
        no_room = Counter("xdsprism_relay_no_room", text, ["kind", "result"], registry=metrics.registry)
        self._no_room = {
            (kind, gave_way): no_room.labels(kind.value, "gave_way" if gave_way else "refused")
            for kind in Scarce
            for gave_way in (True, False)
        }

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Looked):
                self._lookups.labels(self._label(fact.type_url), fact.found).inc(fact.count)
            elif isinstance(fact, ShareExceeded):
                self._no_room[fact.kind, fact.gave_way].inc(fact.count)


class _StreamCollector(Collector):
    """Counts the streams to each upstream server at each scrape, and says when it last sent something."""

    def __init__(self, streams: Callable[[], Mapping[str, int]], answers: Callable[[], Mapping[str, float]]) -> None:
        self._streams = streams
        self._answers = answers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        connected = GaugeMetricFamily("xdsprism_upstream_connected", "Open streams to the server", labels=["server"])
        for server, number in self._streams().items():
            connected.add_metric([server], number)
        yield connected
        name = "xdsprism_upstream_last_response_timestamp_seconds"
        text = "When the server last sent a response, in seconds since the epoch; absent before the first one"
        answered = GaugeMetricFamily(name, text, labels=["server"])
        for server, at in self._answers().items():
            answered.add_metric([server], at)
        yield answered


class ClientMetrics:
    """Counts the facts of an xDS client: `client.readers.append(ClientMetrics(registry))`.

    streams: returns the number of streams to each server, for a relay, whose many clients share the metric.
    answers: returns when each server last sent a response, for a relay.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        streams: Callable[[], Mapping[str, int]] | None = None,
        answers: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        def counter(name: str, text: str, label: str) -> Counter:
            return Counter(f"xdsprism_{name}", text, [label], registry=registry)

        self._connected: Gauge | None = None
        if streams is not None:
            registry.register(_StreamCollector(streams, answers))
        else:
            text = "1 if there is a stream to the server"
            self._connected = Gauge("xdsprism_upstream_connected", text, ["server"], registry=registry)
        self._failures = counter("upstream_failures", "Streams that ended before any answer", "server")
        text = "Subscriptions that are withheld because the server ended the stream after they were requested (PRX-35)"
        self._quarantined = counter("upstream_quarantined_subscriptions", text, "server")
        self._reported = counter("upstream_reported_nacks", "NACKs of clients that the relay passed on", "server")
        self._rejected = counter("upstream_rejected_responses", "Responses with resources that can't be used", "type")
        self._ambiguous = counter("ambiguous_variants", "Variants that overlap another one of their name", "type")
        self._types: set[TypeUrl] = {spec.url for spec in TYPES}  # types with labels of their own
        self._most_types = len(self._types) + FURTHER_TYPES

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case Reached(server):
                    self._connect(server, 1)
                case Lost(server, _, failed):
                    self._connect(server, 0)
                    self._failures.labels(server).inc(failed)
                case SubscriptionQuarantined(server):
                    self._quarantined.labels(server).inc()
                case NackReported(server):
                    self._reported.labels(server).inc()
                case Rejected(_, type_url):
                    self._rejected.labels(self._label(type_url)).inc()
                case Ambiguous(type_url):
                    self._ambiguous.labels(self._label(type_url)).inc()
                case _:
                    pass

    def _label(self, type_url: TypeUrl) -> str:
        if len(self._types) < self._most_types:
            self._types.add(type_url)
        return type_url.rpartition("/")[2] if type_url in self._types else OTHER

    def _connect(self, server: str, number: int) -> None:
        if self._connected is not None:
            self._connected.labels(server).set(number)
