"""Count which names downstream sessions want, with which params, and mark what the relay has to examine.

A subscription that joins a class of clients with a current finding is only counted. Any other marks its name
(names_to_examine.py):

    a subscription                                     marks
    -------------------------------------------------  ------------------------------------------------------------
    is the first of its class, or has no finding       its params: the relay may have to subscribe
    comes for an upstream subscription that lingers    its params: the upstream subscription stays
    has a `do_not_cache` finding                       nothing yet: the relay asks again, and the answer marks it
    leaves, and the relay subscribed with its params   its params: that subscription may have to linger, or pass on
    leaves as the last of its class                    its params: a finding may have lost its last user
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from ..model.cache_knowledge import CacheKnowledge
from ..model.cached import CachedSet, Finding
from ..model.constraints import matches
from ..model.facts import Fact, Looked, Lookup
from ..model.steps import EVERY, Steps, finish
from ..model.store import Store
from ..model.types import Params, TypeUrl
from ..model.xdstp import is_wild
from .audience import Audience, Audiences
from .fairness import Fairness
from .names_to_examine import NamesToExamine
from .upstream_subscription import Subject
from .upstream_subscriptions import UpstreamSubscriptions

Arrival = tuple[TypeUrl, str, Params, int | None]  # the stream that subscribed; None: one unsubscribed


class Subscribers:
    """What downstream sessions want, counted in steps.

    audiences: the subscribers of each name. known: the cached answers of each name. facts: where lookups are reported.
    """

    def __init__(  # the parts of a relay that a subscription concerns
        self,
        store: Store,
        audiences: Audiences,
        subscriptions: UpstreamSubscriptions,
        fairness: Fairness,
        marked: NamesToExamine,
        *,
        known: dict[Subject, CachedSet],
        reaches: Callable[[str, Params], bool],
        facts: list[Fact],
    ) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._audiences = audiences
        self._subscriptions = subscriptions
        self._known = known
        self._store = store
        self._fairness = fairness
        self._marked = marked
        self._reaches = reaches
        self._facts = facts

    def __bool__(self) -> bool:
        """Whether subscriptions came or went that were not counted yet."""
        return bool(self._arrivals)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Note that a session subscribes. The next flush acts on it.

        A wildcard that lists `do_not_cache` resources is asked again at once, before the session can answer it from the
        cache.
        """
        self._arrivals.append((type_url, name, params, stream))
        if is_wild(name):
            self._refresh_wildcard((type_url, name), params)  # before the session answers from the cache

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Note that a session unsubscribes. The next flush acts on it."""
        self._arrivals.append((type_url, name, params, None))

    def count(self) -> None:
        """Count the subscriptions that came and went since the last flush, at once."""
        finish(self.counting())

    def counting(self) -> Steps[None]:
        """Count the subscriptions that came and went since the last flush, in steps.

        Most of them join a class that is served already, and need nothing else.
        """
        arrivals = self._arrivals
        while arrivals:
            self._count_some([arrivals.popleft() for _ in range(min(4 * EVERY, len(arrivals)))])
            if arrivals:
                yield

    def _count_some(self, arrivals: Iterable[Arrival]) -> None:
        """Count some subscriptions, and mark the names that have to be examined because of them.

        Consecutive arrivals are mostly for one name, and share few findings, so both are looked up once.
        """
        looked: list[tuple[TypeUrl, Lookup, bool]] = []  # what each found, and if counting is enough
        ways: dict[int, tuple[TypeUrl, Lookup, bool]] = {}  # by finding: equal for all who share it
        audience: Audience | None = None
        subject: Subject = ("", "")
        for type_url, name, params, stream in arrivals:
            if name != subject[1] or type_url != subject[0]:  # mostly many come for one name
                subject = type_url, name
                known, audience = self._known.get(subject), None
            same, finding = known.classify(params) if known is not None else (None, None)
            if stream is None:
                self._leave(subject, params, finding)
                audience = None
                continue
            if audience is None:
                audience = self._audiences.open(subject)
            way = ways.get(id(finding))
            if way is None or finding is None:
                lookup = self._classify(subject, params, finding)
                way = ways[id(finding)] = type_url, lookup, self._is_plain(finding)
            looked.append(way)
            if not audience.add(params, same):  # the first of its class: the relay may have to subscribe for it
                self._marked.add(subject, params)
            if not way[2]:
                self._come(subject, params, finding, stream)
        self._facts += [Looked(*way[:2], count) for way, count in Counter(looked).items()]

    def _is_plain(self, finding: Finding | None) -> bool:
        """Whether a subscriber that a finding answers only has to be counted."""
        stands = finding is not None and finding.stands and not finding.do_not_cache
        return stands and not self._subscriptions.grace and not self._fairness.is_scarce

    def _come(self, subject: Subject, params: Params, finding: Finding | None, stream: int) -> None:
        """Mark a name for a new subscriber that has no current finding, or whose upstream subscription lingers."""
        asked = self._subscriptions.of(subject).get(params)
        lingered = asked is not None and self._subscriptions.grace.end(asked)
        if lingered or finding is None or not finding.stands:
            self._marked.add(subject, params)
        if finding is not None and finding.do_not_cache:
            self._refresh(subject, finding)
        self._fairness.note_wanted(subject, params, stream, asked)

    def _leave(self, subject: Subject, params: Params, finding: Finding | None) -> None:
        """Count one subscription less, and mark the name if something may have lost its last client."""
        audience = self._audiences.remove(subject, params)
        # Others of its class still use the finding, so nothing changes unless the relay asked with these params.
        served = audience.has_like(params) and finding is not None and finding.stands
        asked = self._subscriptions.of(subject).get(params)
        if asked is not None:
            self._fairness.note_unwanted(asked)
            self._marked.add(subject, params)
        elif not served:
            self._marked.add(subject, params)

    def _classify(self, subject: Subject, params: Params, finding: Finding | None) -> Lookup:
        """Return whether the cache has an answer for a new subscriber: hit, stale or miss (OPS-11)."""
        type_url, name = subject
        known, fresh = finding is not None and not finding.removed, finding is not None and not finding.stale
        if is_wild(name):
            known, fresh = self._store.table(type_url).knowledge.lists(params, name), True
        if not known:
            return "miss"
        return "hit" if fresh and self._reaches(name, params) else "stale"

    def _refresh_wildcard(self, subject: Subject, params: Params) -> None:
        """Ask a wildcard again whose listing contains `do_not_cache` resources (PRX-17)."""
        table, name = self._store.table(subject[0]), subject[1]
        asked = self._subscriptions.of(subject).get(params)
        do_not_cache = any(each.do_not_cache for each in table.listing(name).snapshot(params).variants)
        if asked is not None and do_not_cache and isinstance(table.knowledge, CacheKnowledge):
            # Until the new answer is there, the session must not take the wildcard for answered.
            table.knowledge.listed.discard((name, params))
            self._subscriptions.refresh(asked, subject)

    def _refresh(self, subject: Subject, finding: Finding) -> None:
        """Ask the subscription again that a `do_not_cache` finding came from (PRX-17)."""
        for answer in self._subscriptions.answers(subject):
            if answer.entry.variant is not None and matches(finding.constraint, answer.params):
                self._subscriptions.refresh(answer.subscription, subject)
                return
