"""Ask the server again when a new client wants a resource that is marked `do_not_cache` (PRX-17).

The relay passes such a resource on to the clients that wanted it when it arrived, and keeps it up to date for them. A
client that comes later must not get the cached copy: the relay subscribes once more and holds the new client back until
the answer is there. The finding then carries the store's revision, and only clients that came before that revision are
served from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.cached import CachedSet
from ..model.types import TypeUrl
from ..watch.entry import Entry, State

Subject = tuple[TypeUrl, str]


class NoCacheRefresh:
    """Records the subscriptions that were asked again, each with the names that clients wait for."""

    def __init__(self) -> None:
        self._waiting: dict[Entry, set[Subject]] = {}
        self._done: set[Subject] = set()

    @property
    def is_due(self) -> bool:
        """Whether a server answered one of them."""
        return any(entry.state is not State.REQUESTED for entry in self._waiting)

    def add(self, entry: Entry, subject: Subject) -> bool:
        """Note that a client waits for a name. Return False if the relay asked again already."""
        first = entry not in self._waiting
        self._waiting.setdefault(entry, set()).add(subject)
        return first

    def drop(self, entry: Entry) -> None:
        """Stop waiting for a subscription that was answered or ended.

        If it ended, the clients that waited for it get the cached answer, because another subscription keeps it up to
        date.
        """
        self._done |= self._waiting.pop(entry, set())

    def answered(self) -> Iterable[Subject]:
        """Return the names that have a new answer."""
        for entry in [entry for entry in self._waiting if entry.state is not State.REQUESTED]:
            self.drop(entry)
        return tuple(self._done)

    def stamp(self, known: CachedSet, before: CachedSet, subject: Subject, revision: int) -> CachedSet:
        """Set the revision on each `do_not_cache` finding that is new, or that the server just confirmed."""
        again = subject in self._done
        self._done.discard(subject)
        if not any(variant.do_not_cache for variant in known.variants):
            return known
        # A finding that was there before keeps its revision, unless the server was asked again.
        old = set(map(id, before.findings)) if not again else set()
        stamped = [
            replace(each, revision=revision)
            if each.variant is not None and each.variant.do_not_cache and id(each) not in old
            else each
            for each in known.findings
        ]
        return known if stamped == [*known.findings] else CachedSet(stamped)
