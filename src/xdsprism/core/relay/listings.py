"""Decide which wildcards and glob collections a relay can answer, and when their contents are complete.

The relay may answer a downstream wildcard once a server answered the upstream wildcard with the same params. A response
does not name the subscription that it answers, so the first one may be incomplete: the server may have sent it before
it read the wildcard, or it may be one of several. Therefore a wildcard passes two marks in the table:

    mark                   set when                           the relay then answers
    ---------------------  ---------------------------------  --------------------------------------------
    `listed`, `unsure`     the first response arrived         clients that have no resources yet
    `listed`, not unsure   SETTLED seconds passed since       also clients that returned with resources

A returning client would take a resource that is missing from an early response for deleted. For the same reason a
wildcard is marked only after the flush has published what it read (`mark`), and stays unsure while a name that it
covers could not be examined (`FailedNames`).
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.cache_knowledge import CacheKnowledge
from ..model.cached import NOTHING
from ..model.constraints import Constraint
from ..model.events import WILDCARD
from ..model.store import Store
from ..model.types import TypeUrl
from ..watch.entry import Entry
from .findings import problems
from .names_to_examine import FailedNames
from .timers import TimerTable
from .upstream_subscription import UpstreamAnswer, UpstreamSubscription, is_answered

SETTLED = 2.0  # seconds after its first answer during which resources of a wildcard may still be on their way


class Listings:
    """Marks in the tables which wildcards can be answered, for which params, and which are complete.

    due: the timers of wildcards that may be incomplete. `UpstreamSubscriptions` stops them with their subscriptions.
    """

    def __init__(
        self,
        store: Store,
        pin: Callable[[Entry], Constraint | None],
        wake: Callable[[TypeUrl, str], None],
        due: TimerTable,
        failed: FailedNames,
    ) -> None:
        self._failed = failed
        self._answered: dict[UpstreamSubscription, None] = {}  # not marked yet
        self._store = store
        self._pin = pin
        self._wake = wake  # wakes the sessions that subscribe to a wildcard
        self._due = due

    def update(self, wildcard: UpstreamSubscription) -> None:
        """Update the marks of one wildcard from its upstream subscription; `mark` marks new answers.

        New subscribers must not get an answer that is older than `max_stale` (PRX-25).
        """
        (type_url, name), params, entry = wildcard.subject, wildcard.params, wildcard.entry
        cache = self._store.table(type_url).knowledge
        if not isinstance(cache, CacheKnowledge):
            return
        self._publish_error(cache, wildcard)
        if entry.kept_at is not None or not is_answered(entry):
            self._due.pop(wildcard, None)  # no server answered yet, or the relay asked again: the wait starts over
        if wildcard.is_too_old:
            cache.unlist(params, name)
        elif is_answered(entry) and not cache.lists(params, name, sure=True):
            self._answered[wildcard] = None

    def mark(self, now: float) -> None:
        """Mark the wildcards that servers answered, now that all that these said is published."""
        answered, self._answered = self._answered, {}
        for wildcard in answered:
            cache = self._store.table(wildcard.subject[0]).knowledge
            if isinstance(cache, CacheKnowledge) and is_answered(wildcard.entry) and not wildcard.is_too_old:
                self._list(cache, wildcard, now)

    def doubt(self, wildcard: UpstreamSubscription) -> None:
        """Mark a wildcard as unsure, since a name that it covers could not be examined."""
        (type_url, name), params = wildcard.subject, wildcard.params
        cache = self._store.table(type_url).knowledge
        self._due.pop(wildcard, None)
        if isinstance(cache, CacheKnowledge) and cache.lists(params, name):
            cache.unsure.add((name, params))

    def leave(self, wildcard: UpstreamSubscription) -> None:
        """Clear the marks of a wildcard whose upstream subscription ended."""
        type_url, name = wildcard.subject
        self._answered.pop(wildcard, None)
        cache = self._store.table(type_url).knowledge
        if isinstance(cache, CacheKnowledge):
            cache.unlist(wildcard.params, name)

    def _publish_error(self, cache: CacheKnowledge, wildcard: UpstreamSubscription) -> None:
        """Pass on an error about a glob as a whole (ERR-6). For the wildcard `*` the protocol has no such error."""
        type_url, name = wildcard.subject
        wrong = problems([UpstreamAnswer(wildcard, wildcard.entry, wild=True, wanted=True)], NOTHING, self._pin)
        if name != WILDCARD and cache.note_wrong((name, wildcard.params), next(iter(wrong), None)):
            self._wake(type_url, name)

    def _list(self, cache: CacheKnowledge, wildcard: UpstreamSubscription, now: float) -> None:
        """Mark a wildcard as listed at once, and as complete SETTLED seconds later.

        An answer from the disk cache stays unsure until a server confirms it.
        """
        wild = wildcard.subject[1], wildcard.params
        if wild not in cache.listed:
            cache.listed.add(wild)
            cache.unsure.add(wild)
            self._wake(*wildcard.subject)
        if wildcard.entry.kept_at is not None or self._failed.is_under(wildcard.subject):
            return
        if self._due.setdefault(wildcard, now + SETTLED) <= now:
            del self._due[wildcard]
            cache.unsure.discard(wild)
            self._wake(*wildcard.subject)
