"""How long ago a server could have said otherwise: what is too old is not for those who ask now (PRX-25)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..watch.entry import Entry

Silence = Callable[[Entry, float], float]  # for how many seconds nobody can be asked any more; 0: somebody can


class StalenessTracker:
    """Which subscriptions say what is too old. Somebody has to look, from time to time, while a server is away."""

    def __init__(self, silence: Silence, limit: float) -> None:
        self._silence = silence
        self._limit = limit
        self._past: set[Entry] = set()

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._past

    def look(self, entries: Iterable[Entry], now: float) -> tuple[list[Entry], float | None]:
        """Those that are another now than they were, and when the next will be."""
        changed, due = [], None
        for entry in entries:
            left = self._limit - self._silence(entry, now)
            if (left <= 0) != (entry in self._past):
                self._past ^= {entry}
                changed.append(entry)
            if 0 < left < self._limit:
                due = min(due if due is not None else now + left, now + left)
        return changed, due

    def drop(self, entry: Entry) -> None:
        self._past.discard(entry)
