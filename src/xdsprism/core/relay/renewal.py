"""What must not be cached: whoever comes later is not served from the cache, but causes a new question (PRX-17)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.cached import CachedSet
from ..model.types import TypeUrl
from ..watch.entry import Entry, State

Subject = tuple[TypeUrl, str]


class NoCacheRefresh:
    """Subscriptions that were asked again, each for the names that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[Entry, set[Subject]] = {}
        self._done: set[Subject] = set()

    @property
    def is_due(self) -> bool:
        return any(entry.state is not State.REQUESTED for entry in self._waiting)

    def add(self, entry: Entry, subject: Subject) -> bool:
        """False if it has been asked already."""
        first = entry not in self._waiting
        self._waiting.setdefault(entry, set()).add(subject)
        return first

    def drop(self, entry: Entry) -> None:
        """The subscription goes. Who waits for it takes what there is, as others hold it up to date."""
        self._done |= self._waiting.pop(entry, set())

    def answered(self) -> Iterable[Subject]:
        """The names of which there is news."""
        for entry in [entry for entry in self._waiting if entry.state is not State.REQUESTED]:
            self.drop(entry)
        return tuple(self._done)

    def stamp(self, known: CachedSet, before: CachedSet, subject: Subject, revision: int) -> CachedSet:
        """Note since when each answer is there that is only for those who came before."""
        again = subject in self._done
        self._done.discard(subject)
        if not any(variant.do_not_cache for variant in known.variants):
            return known
        old = set(map(id, before.findings)) if not again else set()
        stamped = [
            replace(each, revision=revision)
            if each.variant is not None and each.variant.do_not_cache and id(each) not in old
            else each
            for each in known.findings
        ]
        return known if stamped == [*known.findings] else CachedSet(stamped)
