"""Schedule heartbeats: when a client must be told that a resource with a TTL is still good (TTL-2).

A client drops a resource with a TTL by itself, unless it receives the resource or a heartbeat in time. A heartbeat is
due when half of the TTL is over since the client was last sent either. It is sent only for a resource that the client
ACKed, and not while a response about the same resource is in flight, since a heartbeat names the version that the
client has. The state of one resource:

    sent -> response in flight, not in the heap
    ACK  -> accepted: in the heap, due after half of the TTL (or forgotten, if this version has no TTL)
    NACK -> the version before it, if there is one, is in the heap again
    due  -> the caller sends a heartbeat (in flight again), or forgets the resource

In delta a heartbeat has no contents. In SotW it repeats the contents, since Envoy ACKs one without contents and still
lets the TTL expire. For listeners and clusters Envoy takes a heartbeat for the full state, so the full state is sent
(S17).

A heap gives the next resource that is due, so resources that are not due cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ..model.types import Variant
from .batch import Slot

SOON = 1 / 2  # of the TTL: when a heartbeat is due
GRACE = 1 / 10  # of the TTL: resources due this soon come along, and so are due together from then on
STALE = 64  # outdated entries of the heap, beyond which it is cleaned up


@dataclass(eq=False, slots=True)
class TimedResource:
    """One resource with a TTL, at one client."""

    slot: Slot
    variant: Variant | None = None  # what the client accepted
    told_at: float = 0.0  # when the client was last sent it, or a heartbeat of it
    response: int = 0  # the newest response in flight about it; 0: none
    due: float | None = None  # when the heap returns it

    def at(self, part: float) -> float:
        """Return the time at which this part of the TTL is over."""
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
        self._count = 0  # breaks ties, so that the heap never compares TimedResources

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._lives

    @property
    def deadline(self) -> float | None:
        """Return when the next heartbeat is due."""
        return self._heap[0][0] if self._heap else None

    # -- what became of it

    def sent(self, slot: Slot, response: int) -> None:
        """Note that a response about this resource is in flight: until its ACK, no heartbeat is due."""
        life = self._lives.get(slot)
        if life is None:
            life = self._lives[slot] = TimedResource(slot)
        life.response, life.due = response, None
        self._tidy()

    def accepted(self, slot: Slot, variant: Variant, response: int, sent_at: float) -> None:
        """Note the ACK of a response about this resource. Its TTL counts from when the response was sent."""
        life = self._lives.get(slot)
        if life is not None and response <= life.response:  # otherwise it was removed, or the client is further
            life.variant, life.told_at = (variant if variant.ttl is not None else None), sent_at
            self._judged(life, response)

    def rejected(self, slot: Slot, response: int, *, lost: bool = False) -> None:
        """Note the NACK of a response about this resource: the client goes on with the version before.

        `lost`: nobody knows which version the client has, so none is kept alive.
        """
        life = self._lives.get(slot)
        if life is not None and response <= life.response:
            life.variant = None if lost else life.variant
            self._judged(life, response)

    def forget(self, slot: Slot) -> None:
        """Stop heartbeats for this resource."""
        if self._lives.pop(slot, None) is not None:
            self._tidy()

    def _judged(self, life: TimedResource, response: int) -> None:
        """Schedule the next heartbeat, unless a newer response about the resource is in flight."""
        if life.response != response:
            return  # a newer response is in flight
        life.response = 0
        if life.variant is None:
            self.forget(life.slot)
        else:
            self._push(life, life.at(SOON))

    # -- what is due

    def take(self, now: float) -> list[TimedResource]:
        """Return the resources that are due, each once. The caller must send each, or `forget` it."""
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
        """Whether an entry is due within GRACE."""
        due, _, life = entry
        return due - (life.at(GRACE) - life.told_at) <= now

    def _push(self, life: TimedResource, due: float) -> None:
        """Schedule a resource. Older heap entries of it are outdated from now on."""
        life.due = due
        self._count += 1
        heappush(self._heap, (due, self._count, life))

    def _is_current(self, life: TimedResource, due: float) -> bool:
        """Whether a heap entry is still valid: the resource was not rescheduled or forgotten."""
        return life.due == due and self._lives.get(life.slot) is life

    def _tidy(self) -> None:
        """Drop outdated heap entries: at the front always, elsewhere once there are many."""
        while self._heap and not self._is_current(self._heap[0][2], self._heap[0][0]):
            heappop(self._heap)
        if len(self._heap) > 2 * len(self._lives) + STALE:
            self._heap = [entry for entry in self._heap if self._is_current(entry[2], entry[0])]
            heapify(self._heap)
