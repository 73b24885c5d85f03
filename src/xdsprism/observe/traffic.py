"""Counts requests, responses and ACKs in plain integers, which are read at each scrape.

A counter of prometheus_client takes a lock for each increment, and a histogram takes two. That would cost more than
everything else that is done for a message, and the locks are not needed, as all messages are handled in one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from ..core.model.facts import Acked, Fact, Requested, Routine, Sent
from ..core.model.types import TypeUrl

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
EVERYDAY = frozenset({Requested, Sent, Acked, Routine})

COUNTERS = (
    ("requests", "Discovery requests received"),
    ("responses", "Discovery responses sent"),
    ("resources", "Resources in the responses sent"),
    ("removals", "Removals in the responses sent"),
    ("acks", "Responses that clients accepted"),
)
_NAMES = {"resources": "sent_resources", "removals": "sent_removals"}


class Counts:
    """The counts of one resource type."""

    __slots__ = ("acks", "buckets", "removals", "requests", "resources", "responses", "seconds")

    def __init__(self) -> None:
        self.requests = self.responses = self.resources = self.removals = self.acks = 0
        self.seconds = 0.0  # from response to ACK, summed over all responses
        self.buckets = [0] * (len(SECONDS) + 1)

    def cumulated(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus expects them: each contains those before it."""
        so_far = 0
        found = []
        for bound, number in zip((*map(float, SECONDS), float("inf")), self.buckets, strict=True):
            so_far += number
            found.append(("+Inf" if bound == float("inf") else str(bound), float(so_far)))
        return found


class Traffic:
    """Requests, responses and ACKs by type."""

    def __init__(self, label: Callable[[TypeUrl], str], rest: str) -> None:
        """`rest` is the label of all types without a label of their own; clients can request any number of types."""
        self._label = label
        self._rest = rest
        self._labels: dict[str, Counts] = {}
        self._types: dict[TypeUrl, Counts] = {}

    def count(self, fact: Fact) -> None:
        """Count one fact."""
        if isinstance(fact, Routine):
            self._routine(fact, self._of(fact.type_url))
        elif isinstance(fact, Requested):
            self._of(fact.type_url).requests += 1
        elif isinstance(fact, Sent):
            counts = self._of(fact.type_url)
            counts.responses += 1
            counts.resources += fact.resources
            counts.removals += fact.removed
        elif isinstance(fact, Acked):
            counts = self._of(fact.type_url)
            self._acked(counts, (fact.seconds,))

    def _routine(self, fact: Routine, counts: Counts) -> None:
        """Count a fact that stands for many requests and responses of the fast path."""
        counts.requests += len(fact.waits)
        counts.responses += fact.pushes
        counts.resources += fact.resources
        self._acked(counts, fact.waits)

    def _acked(self, counts: Counts, waits: Sequence[float]) -> None:
        counts.acks += len(waits)
        counts.seconds += sum(waits)
        # A search for each bound, among all waits in order, costs less than one for each wait among the bounds.
        ordered, buckets = sorted(waits), counts.buckets
        counted, most = 0, len(ordered)
        for number, bound in enumerate(SECONDS):
            upto = bisect_right(ordered, bound, counted)
            buckets[number] += upto - counted
            counted = upto
            if counted == most:
                return
        buckets[-1] += most - counted

    def totals(self) -> dict[str, int]:
        """Return the counts of all types together."""
        counted = [*self._labels.values()]
        return {attribute: sum([getattr(counts, attribute) for counts in counted]) for attribute, _ in COUNTERS}

    def collect(self) -> Iterator[Metric]:
        for attribute, text in COUNTERS:
            family = CounterMetricFamily(f"xdsprism_{_NAMES.get(attribute, attribute)}", text, labels=["type"])
            for label, counts in self._labels.items():
                family.add_metric([label], getattr(counts, attribute))
            yield family
        seconds = HistogramMetricFamily("xdsprism_push_ack_seconds", "From a response to its ACK", labels=["type"])
        for label, counts in self._labels.items():
            seconds.add_metric([label], counts.cumulated(), counts.seconds)
        yield seconds

    def _of(self, type_url: TypeUrl) -> Counts:
        """Return the counts of a resource type; types without a label of their own share them."""
        found = self._types.get(type_url)
        if found is None:
            label = self._label(type_url)
            found = self._labels.setdefault(label, Counts())
            if label != self._rest:
                self._types[type_url] = found
        return found
