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

A heap of timers gives the next resource that is due, so resources that are not due cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...timer_heap import TimerHeap
from ..model.types import Variant
from .batch import Slot

SOON = 1 / 2  # of the TTL: when a heartbeat is due
GRACE = 1 / 10  # of the TTL: resources due this soon come along, and so are due together from then on


@dataclass(eq=False, slots=True)
class TimedResource:
    """One resource with a TTL, at one client."""

    slot: Slot
    variant: Variant | None = None  # what the client accepted
    told_at: float = 0.0  # when the client was last sent it, or a heartbeat of it
    response: int = 0  # the newest response in flight about it; 0: none

    def at(self, part: float) -> float:
        """Return the time at which this part of the TTL is over."""
        ttl = self.variant.ttl if self.variant is not None else None
        return self.told_at + part * (ttl or 0.0)


class Heartbeats:
    """The schedule of one session."""

    __slots__ = ("_lives", "_timers")

    def __init__(self) -> None:
        self._lives: dict[Slot, TimedResource] = {}
        self._timers: TimerHeap[TimedResource] = TimerHeap()

    def __len__(self) -> int:
        return len(self._lives)

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._lives

    @property
    def deadline(self) -> float | None:
        """Return when the next heartbeat is due."""
        return self._timers.next_due

    # -- what became of it

    def sent(self, slot: Slot, response: int) -> None:
        """Note that a response about this resource is in flight: until its ACK, no heartbeat is due."""
        life = self._lives.get(slot)
        if life is None:
            life = self._lives[slot] = TimedResource(slot)
        life.response = response
        self._timers.cancel(life)

    def accepted(self, slot: Slot, variant: Variant, response: int, sent_at: float) -> None:
        """Note the ACK of a response about this resource. Its TTL counts from when the response was sent."""
        life = self._lives.get(slot)
        if life is not None and response <= life.response:  # otherwise it was removed, or the client is further
            life.variant, life.told_at = (variant if variant.ttl is not None else None), sent_at
            self._judged(life, response)

    def rejected(self, slot: Slot, response: int, *, lost: bool = False) -> None:
        """Note the NACK of a response about this resource: the client goes on with the version before.

        `lost`: it is unknown which version the client has, so none is kept alive.
        """
        life = self._lives.get(slot)
        if life is not None and response <= life.response:
            life.variant = None if lost else life.variant
            self._judged(life, response)

    def forget(self, slot: Slot) -> None:
        """Stop heartbeats for this resource."""
        life = self._lives.pop(slot, None)
        if life is not None:
            self._timers.cancel(life)

    def _judged(self, life: TimedResource, response: int) -> None:
        """Schedule the next heartbeat, unless a newer response about the resource is in flight."""
        if life.response != response:
            return  # a newer response is in flight
        life.response = 0
        if life.variant is None:
            self.forget(life.slot)
        else:
            self._timers.set(life, life.at(SOON))

    # -- what is due

    def take(self, now: float) -> list[TimedResource]:
        """Return the resources that are due, each once. The caller must send each, or `forget` it."""
        taken: list[TimedResource] = []
        timers = self._timers
        first = timers.first
        if first is not None and first[0] <= now:
            while first is not None and _is_near(*first, now):
                timers.cancel(first[1])
                taken.append(first[1])
                first = timers.first
        return taken


def _is_near(due: float, life: TimedResource, now: float) -> bool:
    """Whether a heartbeat that is due at `due` is due within GRACE."""
    return due - (life.at(GRACE) - life.told_at) <= now
