"""Decides what a trace says of a revision: when it was published, what was sent because of it, and when clients ACKed.

A revision is kept until all its responses are answered and nothing more was sent for QUIET seconds, and at most for
PATIENCE seconds. Time is an argument, in seconds since the epoch.

A response belongs to the revision that its nonce names. Pushes on the fast path are counted together, without nonces:
they belong to the newest revision of their type, and their ACKs to the one that was the newest when the response was
sent. Once nothing was sent for QUIET seconds, later responses are no pushes of the revision: somebody has connected.

Ten thousand clients make no more than LINKS spans of ACKs: of the slowest. All others are counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import NamedTuple

from ..core.model.facts import Acked, Fact, Nacked, Routine, Sent
from ..core.model.store import Applied
from ..core.model.types import TypeUrl

QUIET = 1.0  # seconds without a response, after which a revision pushes no more, and is over if it has all answers
PATIENCE = 30.0  # seconds after which it is over in any case
MOST = 256  # revisions that are kept; a further one ends the oldest
LAG = 0.1  # seconds that the report of an ACK may take
LINKS = 16  # ACKs of a revision that get a span of their own: the slowest


class SlowAck(NamedTuple):
    """One ACK: how many seconds after the response it came, when, and of which type."""

    seconds: float
    at: float
    label: str


@dataclass(slots=True)
class Push:
    """The responses of one type that a revision caused, and what became of them."""

    first: float
    last: float
    responses: int = 0
    resources: int = 0
    acks: int = 0
    nacks: int = 0


@dataclass(slots=True, eq=False)
class Revision:
    """A revision of the store, and what it caused so far."""

    number: int
    at: float  # when it was published
    changed: Counter[str]  # names by type
    pushes: dict[str, Push] = field(default_factory=dict)
    slowest: list[SlowAck] = field(default_factory=list)  # a heap

    @property
    def last(self) -> float:
        """When the last response was sent, or it was published."""
        return max([self.at, *(push.last for push in self.pushes.values())])

    @property
    def is_answered(self) -> bool:
        return all(push.acks + push.nacks >= push.responses for push in self.pushes.values())

    def push(self, label: str, now: float, responses: int, resources: int) -> None:
        """Count responses, unless the revision pushes no more."""
        if now - self.last >= QUIET:
            return
        push = self.pushes.get(label)
        if push is None:
            push = self.pushes[label] = Push(now, now)
        push.last = now
        push.responses += responses
        push.resources += resources

    def ack(self, label: str, now: float, seconds: float) -> None:
        """Count an ACK, and keep it if it is among the slowest."""
        push = self.pushes.get(label)
        if push is None or now - seconds > push.last + LAG:
            return
        push.acks += 1
        if len(self.slowest) < LINKS:
            heappush(self.slowest, SlowAck(seconds, now, label))
        elif seconds > self.slowest[0].seconds:
            heappushpop(self.slowest, SlowAck(seconds, now, label))


class RevisionSpans:
    """The revisions that are not over yet. `label` names a resource type."""

    def __init__(self, label: Callable[[TypeUrl], str]) -> None:
        self._label = label
        self._open: deque[Revision] = deque()
        self._over: list[Revision] = []

    def published(self, applied: Applied, now: float) -> None:
        """Begin a revision."""
        types = Counter(change.type_url for change in applied.changes)
        changed: Counter[str] = Counter()
        for type_url, number in types.items():
            changed[self._label(type_url)] += number
        if len(self._open) >= MOST:
            self._over.append(self._open.popleft())
        self._open.append(Revision(applied.revision, now, changed))

    def see(self, facts: Sequence[Fact], now: float) -> None:
        """Take in what happened."""
        for fact in facts:
            match fact:
                case Sent(_, type_url, nonce, resources, _):
                    label = self._label(type_url)
                    found = self._named(label, nonce, now)
                    if found is not None:
                        found.push(label, now, 1, resources)
                case Acked(_, type_url, nonce, seconds):
                    label = self._label(type_url)
                    found = self._named(label, nonce, now - seconds)
                    if found is not None:
                        found.ack(label, now, seconds)
                case Nacked(_, type_url, nonce):
                    label = self._label(type_url)
                    found = self._named(label, nonce, now)
                    if found is not None and label in found.pushes:
                        found.pushes[label].nacks += 1
                case Routine(type_url):
                    self._routine(fact, now)
                case _:
                    pass

    def _routine(self, fact: Routine, now: float) -> None:
        label = self._label(fact.type_url)
        found = self._at(label, now)
        if found is not None and fact.pushes:
            found.push(label, now, fact.pushes, fact.resources)
        for seconds in fact.waits:
            found = self._at(label, now - seconds)
            if found is not None:
                found.ack(label, now, seconds)

    def _named(self, label: str, nonce: str, at: float) -> Revision | None:
        """Return the revision that a nonce begins with; if it names none of the store, the newest at that time."""
        number = nonce.partition(".")[0]
        if number.isdecimal() and self._open:
            wanted = int(number)
            if wanted <= self._open[-1].number:
                return next((each for each in reversed(self._open) if each.number == wanted), None)
        return self._at(label, at)

    def _at(self, label: str, at: float) -> Revision | None:
        """Return the newest revision of that time which changed the type."""
        return next((each for each in reversed(self._open) if each.at <= at and label in each.changed), None)

    def take(self, now: float) -> list[Revision]:
        """Return and forget the revisions that are over."""
        kept: deque[Revision] = deque()
        for each in self._open:
            quiet = each.is_answered and now - each.last >= QUIET
            (self._over if quiet or now - each.at >= PATIENCE else kept).append(each)
        self._open = kept
        over, self._over = self._over, []
        return over

    def take_all(self) -> list[Revision]:
        """Return and forget all revisions, because the server stops."""
        over = [*self._over, *self._open]
        self._over = []
        self._open.clear()
        return over
