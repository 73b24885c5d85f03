"""When a client has to be told that what it holds is still good (TTL-2).

A resource with a time to live goes away by itself at the client, unless it hears of it again. Half that time after the
client was last told, it gets a heartbeat: but only of what it accepted, and not while something newer about the same
resource is on its way, since a heartbeat names the version that the client has.

In delta a heartbeat has no contents. In SotW it has: Envoy takes one without for no news of the time to live, and among
listeners and clusters for the full state. There the whole state is sent again.

Only what is due costs anything: a heap knows the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ..model.types import Variant
from .batch import Slot

SOON = 1 / 2  # of the time to live: when a heartbeat is due
GRACE = 1 / 10  # what is due this soon comes along, and so is due together from then on
STALE = 64  # entries of the heap that mean nothing any more, before it is worth cleaning up


@dataclass(eq=False, slots=True)
class TimedResource:
    """One resource with a time to live, at one client."""

    slot: Slot
    variant: Variant | None = None  # what the client accepted
    told_at: float = 0.0  # when it was last sent this, or a heartbeat of it
    response: int = 0  # the newest response about it that the client has not judged; 0: none
    due: float | None = None  # when the heap gives it back

    def at(self, part: float) -> float:
        ttl = self.variant.ttl if self.variant is not None else None
        return self.told_at + part * (ttl or 0.0)


class Heartbeats:
    """The schedule of one session."""

    __slots__ = (
        "_count",
        "_heap",
        "_lives",
    )

    def __init__(self) -> None:
        self._lives: dict[Slot, TimedResource] = {}
        self._heap: list[tuple[float, int, TimedResource]] = []
        self._count = 0  # so that the heap never compares lives

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._lives

    @property
    def deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    # -- what became of it

    def sent(self, slot: Slot, response: int) -> None:
        """Until the client judged this, nobody knows which version it has."""
        life = self._lives.get(slot)
        if life is None:
            life = self._lives[slot] = TimedResource(slot)
        life.response, life.due = response, None
        self._tidy()

    def accepted(self, slot: Slot, variant: Variant, response: int, sent_at: float) -> None:
        life = self._lives.get(slot)
        if life is not None and response <= life.response:  # otherwise it went away, or the client is further
            life.variant, life.told_at = (variant if variant.ttl is not None else None), sent_at
            self._judged(life, response)

    def rejected(self, slot: Slot, response: int, *, lost: bool = False) -> None:
        """The client goes on with what it had; or nobody knows with what, and that is not kept alive."""
        life = self._lives.get(slot)
        if life is not None and response <= life.response:
            life.variant = None if lost else life.variant
            self._judged(life, response)

    def forget(self, slot: Slot) -> None:
        if self._lives.pop(slot, None) is not None:
            self._tidy()

    def _judged(self, life: TimedResource, response: int) -> None:
        if life.response != response:
            return  # there is something newer on its way
        life.response = 0
        if life.variant is None:
            self.forget(life.slot)
        else:
            self._push(life, life.at(SOON))

    # -- what is due

    def take(self, now: float) -> list[TimedResource]:
        """What is due, each once: it is up to the caller to send something, or to `forget` it."""
        taken: list[TimedResource] = []
        if self._heap and self._heap[0][0] <= now:
            while self._heap and self._is_near(self._heap[0], now):
                due, _, life = heappop(self._heap)
                if self._is_current(life, due):
                    life.due = None
                    taken.append(life)
            self._tidy()
        return taken

    def _is_near(self, entry: tuple[float, int, TimedResource], now: float) -> bool:
        due, _, life = entry
        return due - (life.at(GRACE) - life.told_at) <= now

    def _push(self, life: TimedResource, due: float) -> None:
        life.due = due
        self._count += 1
        heappush(self._heap, (due, self._count, life))

    def _is_current(self, life: TimedResource, due: float) -> bool:
        return life.due == due and self._lives.get(life.slot) is life

    def _tidy(self) -> None:
        """What was sent again long before it was due must not pile up."""
        while self._heap and not self._is_current(self._heap[0][2], self._heap[0][0]):
            heappop(self._heap)
        if len(self._heap) > 2 * len(self._lives) + STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry[2], entry[0])]
            heapify(self._heap)
