"""Decide which wildcards and glob collections a relay can answer, and when their contents are complete.

The relay may answer a downstream wildcard once a server answered the upstream wildcard with the same params. A response
does not name the subscription that it answers, so the first one may be incomplete: the server may have sent it before
it read the wildcard, or it may be one of several. Therefore a wildcard passes two marks in the table:

    mark                   set when                           the relay then answers
    ---------------------  ---------------------------------  --------------------------------------------
    `listed`, `unsure`     the first response arrived         clients that have no resources yet
    `listed`, not unsure   SETTLED seconds passed since       also clients that returned with resources

A returning client would take a resource that is missing from an early response for deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.cache_knowledge import CacheKnowledge
from ..model.cached import NOTHING
from ..model.constraints import Constraint
from ..model.events import WILDCARD
from ..model.store import Store
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry
from .findings import UpstreamAnswer, is_answered, troubles

SETTLED = 2.0  # seconds after its first answer during which resources of a wildcard may still be on their way

Key = tuple[tuple[TypeUrl, str], Params]


class Listings:
    """Marks in the tables which wildcards can be answered, for which params, and which are complete."""

    def __init__(
        self,
        store: Store,
        pin: Callable[[Entry], Constraint | None],
        told: Callable[[TypeUrl, str], None],
    ) -> None:
        self._store = store
        self._pin = pin
        self._told = told  # wakes the sessions that subscribe to a wildcard
        self.due: dict[Key, float] = {}  # wildcards that may be incomplete, and until when

    def look(self, key: Key, entry: Entry, now: float, *, aged: bool) -> None:
        """Update the marks of one wildcard from its upstream subscription.

        aged: the answer is older than `max_stale` (PRX-25), so new subscribers must not get it.
        """
        (type_url, name), params = key
        cache = self._store.table(type_url).knowledge
        if not isinstance(cache, CacheKnowledge):
            return
        self._complain(cache, key, entry)
        if entry.kept_at is not None or not is_answered(entry):
            self.due.pop(key, None)  # no server answered yet, or the relay asked again: the wait starts over
        if aged:
            cache.unlist(params, name)
        elif is_answered(entry) and not cache.lists(params, name, sure=True):
            self._list(cache, key, entry, now)

    def leave(self, key: Key) -> None:
        """Clear the marks of a wildcard whose upstream subscription ended."""
        (type_url, name), params = key
        cache = self._store.table(type_url).knowledge
        if isinstance(cache, CacheKnowledge):
            cache.unlist(params, name)
        self.due.pop(key, None)

    def _complain(self, cache: CacheKnowledge, key: Key, entry: Entry) -> None:
        """Pass on an error about a glob as a whole (ERR-6). For the wildcard `*` the protocol has no such error."""
        (type_url, name), params = key
        wrong = troubles([UpstreamAnswer(params, entry, wild=True, wanted=True)], NOTHING, self._pin)
        if name != WILDCARD and cache.note_wrong((name, params), next(iter(wrong), None)):
            self._told(type_url, name)

    def _list(self, cache: CacheKnowledge, key: Key, entry: Entry, now: float) -> None:
        """Mark a wildcard as listed at once, and as complete SETTLED seconds later.

        An answer from the disk cache stays unsure until a server confirms it.
        """
        subject, params = key
        wild = subject[1], params
        if wild not in cache.listed:
            cache.listed.add(wild)
            cache.unsure.add(wild)
            self._told(*subject)
        if entry.kept_at is None and self.due.setdefault(key, now + SETTLED) <= now:
            del self.due[key]
            cache.unsure.discard(wild)
            self._told(*subject)
