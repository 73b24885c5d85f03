"""TTL for one session: which resources of which responses have one, and which of them need a heartbeat now (TTL-2).

heartbeat.py keeps the times. A session without any TTL pays for one test: `if self.ttl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

from ..model.constraints import TRUE
from ..model.events import WILDCARD, Send
from ..model.types import Variant
from .batch import Slot, slot_of
from .heartbeat import Heartbeats, TimedResource
from .in_flight import InFlightResponse, Timed

EVERYTHING: Slot = (False, WILDCARD, TRUE)  # stands for all resources of a full state


class Ttl:
    """The resources with a TTL that one client has of one type.

    full_state  each response carries everything (SOT-4). Envoy would take a heartbeat for all that there is, so the
                whole state is sent again instead, in time for the shortest TTL in it.
    isolates    the resources of a NACKed response are sent again alone (NAK-29), so its heartbeats are judged then.
    """

    __slots__ = ("_due", "_full_state", "_heartbeats", "_isolates", "is_read")

    def __init__(self, *, full_state: bool, isolates: bool) -> None:
        self.is_read = False  # TTL-1: the client reads TTLs
        self._full_state = full_state
        self._isolates = isolates
        self._heartbeats = Heartbeats()
        self._due: list[TimedResource] = []  # a heartbeat goes out in this turn

    def __bool__(self) -> bool:
        return bool(self._heartbeats or self._due)

    @property
    def deadline(self) -> float | None:
        return self._heartbeats.deadline

    def concerns(self, variants: Iterable[Variant]) -> bool:
        """TTL-1: whether one of these has a TTL and the client reads it."""
        return self.is_read and any(variant.ttl is not None for variant in variants)

    # -- responses

    def sent(self, send: Send, number: int) -> Timed:
        """Note a response. Return the resources in it that have a TTL, or take the place of one that had."""
        timed = self._whole(send) if self._full_state else self._timed(send)
        for slot, _ in timed:
            self._heartbeats.sent(slot, number)
        return timed

    def accepted(self, response: InFlightResponse) -> None:
        for slot, variant in response.timed:
            self._heartbeats.accepted(slot, variant, response.number, response.sent_at)

    def rejected(self, response: InFlightResponse) -> None:
        """NAK-3: a rejected heartbeat is not repeated. NAK-29: of several resources, each is judged when sent alone."""
        if not (self._isolates and response.send is not None and response.send.count > 1):
            for slot, _ in response.timed:
                self._heartbeats.rejected(slot, response.number, lost=response.is_heartbeat)

    def forgotten(self, response: InFlightResponse) -> None:
        """The client never answered this response, so nobody knows which version it has."""
        for slot, _ in response.timed:
            self._heartbeats.rejected(slot, response.number, lost=True)

    def forget(self, slot: Slot) -> None:
        self._heartbeats.forget(slot)

    def _timed(self, send: Send) -> Timed:
        known = self._heartbeats
        if not known and not self.concerns((*send.plain, *send.located)):
            return ()
        found = [(slot_of(variant, located=False), variant) for variant in (*send.plain, *send.beats)]
        found += [(slot_of(variant, located=True), variant) for variant in (*send.located, *send.located_beats)]
        return tuple(one for one in found if one[1].ttl is not None or one[0] in known)

    def _whole(self, send: Send) -> Timed:
        sent = (*send.plain, *send.located) if send.ttl else ()
        timed = [(variant.ttl, variant) for variant in sent if variant.ttl is not None]
        if not timed:
            self._heartbeats.forget(EVERYTHING)
            return ()
        return ((EVERYTHING, min(timed, key=itemgetter(0))[1]),)

    # -- heartbeats

    def tick(self, now: float, keeps: Callable[[TimedResource], bool], renew: Callable[[TimedResource], None]) -> None:
        """Find what is due: half of its TTL is over since the client was last told (TTL-2).

        keeps  whether the client is to go on with it
        renew  send it as if it were new: it is too late for a heartbeat, so the client has dropped it
        """
        for life in self._heartbeats.take(now):
            if not keeps(life):
                self._heartbeats.forget(life.slot)
            elif self._full_state or now >= life.at(1):
                renew(life)
            else:
                self._due.append(life)

    def take_due(self) -> list[TimedResource]:
        """The heartbeats of this turn, without those whose resource a response in flight is about."""
        due, self._due = self._due, []
        return [life for life in due if not life.response]
