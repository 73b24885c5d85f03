"""Keep the timers of many items, and find those that are due; used by the core, the transport and the server.

An item has one timer at most. To move or to cancel a timer would mean to search the heap, so the heap keeps the old
entry and skips it later ("lazy deletion"): an entry counts only while it has the time that `_due` has for its item.
Outdated entries are dropped when they reach the front, and all of them once they outnumber the timers. Time is an
argument, and no unit is assumed.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

STALE = 64  # outdated entries that a heap may hold, beside one for each timer

_T = TypeVar("_T", bound=Hashable)


class TimerHeap(Generic[_T]):
    """The timers of one owner, each with the item that it is for."""

    __slots__ = ("_due", "_heap", "_ticket")

    def __init__(self) -> None:
        self._due: dict[_T, float] = {}
        self._heap: list[tuple[float, int, _T]] = []
        self._ticket = 0  # breaks ties in the order of `set`, so that the heap never compares items

    def __len__(self) -> int:
        return len(self._due)

    @property
    def entries(self) -> int:
        """Return how many entries the heap has, outdated ones included."""
        return len(self._heap)

    @property
    def first(self) -> tuple[float, _T] | None:
        """Return the timer that is due first, as its time and its item; None if there is no timer."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return (heap[0][0], heap[0][2]) if heap else None

    @property
    def next_due(self) -> float | None:
        """Return when the first timer is due; None if there is no timer."""
        first = self.first
        return first[0] if first is not None else None

    def set(self, item: _T, due: float) -> None:
        """Start the timer of an item, or move it."""
        if self._due.get(item) == due:
            return
        self._due[item] = due
        self._ticket += 1
        heappush(self._heap, (due, self._ticket, item))
        self._tidy()

    def cancel(self, item: _T) -> None:
        """Stop the timer of an item, if it has one."""
        if self._due.pop(item, None) is not None:
            self._tidy()

    def take(self, now: float) -> _T | None:
        """Return an item whose timer is due, and stop that timer; None if none is due."""
        first = self.first
        if first is None or first[0] > now:
            return None
        heappop(self._heap)
        del self._due[first[1]]
        return first[1]

    def _tidy(self) -> None:
        """Drop all outdated entries, once there are many."""
        if len(self._heap) > 2 * len(self._due) + STALE:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapify(self._heap)
