"""Find the upstream subscriptions whose cached answers are older than `max_stale` (PRX-25).

A cached answer counts as current while the relay has a stream to a server that could correct it. Once every such server
is gone, the answer ages. After `max_stale` seconds the relay no longer gives it to new subscribers; clients that have
the resource keep it. When a server is back, the answer counts as current again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..watch.entry import Entry

Silence = Callable[[Entry, float], float]  # seconds since a server could be asked last; 0: one can be asked now


class StalenessTracker:
    """Remembers which upstream subscriptions are too old.

    No event marks the moment at which an answer becomes too old, so the owner calls `look` from time to time while a
    server is away.
    """

    def __init__(self, silence: Silence, limit: float) -> None:
        self._silence = silence
        self._limit = limit
        self._past: set[Entry] = set()

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._past

    def look(self, entries: Iterable[Entry], now: float) -> tuple[list[Entry], float | None]:
        """Return the entries that became too old or current again, and when the next one becomes too old.

        The time is None if no entry is ageing.
        """
        changed, due = [], None
        for entry in entries:
            left = self._limit - self._silence(entry, now)
            # Either the limit passed, or a server came back: the entry changes sides.
            if (left <= 0) != (entry in self._past):
                self._past ^= {entry}
                changed.append(entry)
            if 0 < left < self._limit:
                due = min(due if due is not None else now + left, now + left)
        return changed, due

    def drop(self, entry: Entry) -> None:
        """Forget an entry whose subscription ended."""
        self._past.discard(entry)
