"""Track what one stream still owes the client: answers to subscriptions, and what may be in flight.

`timers` (CLI-11) fire if a server does not answer a subscription in 15 s; `doubts` fire if it says nothing new about a
resource that may be gone, in MOMENT seconds. Time during which the client does not read the stream does not count
(CLI-20): `_deaf` sums it up, and every timer is stored without it.

A response may have been in flight before the client dropped a subscription. `abandoned`, `let_go` and
`expected_removals` keep such a response from counting as the answer to another subscription.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from ..model.constraints import Constraint
from ..model.types import TypeUrl

if TYPE_CHECKING:
    from .entry import Entry

Thing = TypeVar("Thing")

MOMENT = 2.0  # seconds: a server that says nothing for longer confirms a doubt
ON_THEIR_WAY = 64  # dropped subscriptions to remember: only for the last few can a response still be in flight


class PendingAnswers:
    """The subscriptions of one stream that have no answer, with their timers, and what may be in flight."""

    def __init__(self) -> None:
        # When each entry's timer ends, without the time of `_deaf`. All timers of a kind have one length, so both are
        # in the order in which they end.
        self.timers: OrderedDict[Entry, float] = OrderedDict()
        self.doubts: OrderedDict[Entry, float] = OrderedDict()  # of entries with `Entry.doubted`
        self.awaited: set[Entry] = set()  # subscribed on this stream, and not answered yet
        self.passed_over: set[Entry] = set()  # of these, those that a later full state lacked
        # Locators that were unsubscribed before an answer: the answer may still be in flight.
        self.abandoned: dict[tuple[TypeUrl, str], None] = {}
        # Locators that were unsubscribed, answered or not: an update may be in flight.
        self.let_go: dict[tuple[TypeUrl, str], None] = {}
        # Variants from this stream that no entry with the same key holds any more: their removal may still be in
        # flight.
        self.expected_removals: dict[tuple[TypeUrl, str, Constraint], None] = {}
        self._deaf_since: float | None = None
        self._deaf = 0.0  # seconds for which the client did not read, in total

    @property
    def due(self) -> float | None:
        """When the first timer ends; None while the client does not read, since the answer may be unread (CLI-20)."""
        if self._deaf_since is not None:
            return None
        first = min((next(iter(running.values())) for running in (self.timers, self.doubts) if running), default=None)
        return first + self._deaf if first is not None else None

    def take_expired(self, running: OrderedDict[Entry, float], now: float) -> Iterator[Entry]:
        """Remove and yield the entries whose time is over."""
        while running and self._deaf_since is None and next(iter(running.values())) + self._deaf <= now:
            yield running.popitem(last=False)[0]

    def stop_reading(self, now: float) -> None:
        """Stop the clock of the timers, while watchers take a response."""
        self._deaf_since = now

    def read_on(self, now: float) -> None:
        """Start the clock of the timers again; the pause does not count."""
        if self._deaf_since is not None:
            self._deaf += now - self._deaf_since
        self._deaf_since = None

    def note_asked(self, entry: Entry, now: float, timeout: float) -> None:
        """Start the timer of an entry whose subscription goes out now; `timeout`: its length in seconds."""
        self.awaited.add(entry)
        entry.offer_again()
        if entry.unanswered:
            self.timers[entry] = now - self._deaf + timeout
        if entry.doubted is not None:
            self.doubt(entry, now)

    def note_answered(self, entry: Entry) -> None:
        """Stop the timers of an entry that the server answered, or that has no watcher any more."""
        self.awaited.discard(entry)
        self.passed_over.discard(entry)
        self.timers.pop(entry, None)
        self.doubts.pop(entry, None)

    def doubt(self, entry: Entry, now: float) -> None:
        """Start the short timer of a doubted entry, if the server has its subscription."""
        if entry in self.awaited:
            self.doubts.setdefault(entry, now - self._deaf + MOMENT)

    def let_locator_go(self, entry: Entry) -> None:
        """Remember the locator of an unwatched entry: a response to it may be in flight."""
        _note_last(self.let_go, (entry.type_url, entry.name))
        if entry in self.awaited:
            _note_last(self.abandoned, (entry.type_url, entry.name))

    def expect_removal(self, type_url: TypeUrl, identity: tuple[str, Constraint]) -> None:
        """Remember a variant that an entry is about to lose: the server may still send its removal."""
        _note_last(self.expected_removals, (type_url, *identity))


def _note_last(known: dict[Thing, None], thing: Thing) -> None:
    """Remember one more thing, and forget the oldest if there are too many."""
    known[thing] = None
    if len(known) > ON_THEIR_WAY:
        del known[next(iter(known))]
