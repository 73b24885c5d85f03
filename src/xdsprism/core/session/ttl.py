"""TTL for one session: which resources of which responses have one, and which of them need a heartbeat now (TTL-2).

heartbeat.py keeps the times. A session without any TTL pays for one test: `if self.ttl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from ..model.constraints import TRUE
from ..model.events import WILDCARD, Send
from ..model.types import Variant
from ..model.views import alike
from .batch import Slot, portions, slot_of
from .client_state import ClientState
from .context import SessionContext
from .heartbeat import Heartbeats, TimedResource
from .in_flight import InFlightResponse, Progress, Timed
from .rejections import Rejections

EVERYTHING: Slot = (False, WILDCARD, TRUE)  # stands for all resources of a full state


class Ttl:
    """The resources with a TTL that one client has of one type.

    Where each response carries everything (SOT-4), Envoy would take a heartbeat for all that there is. So the whole
    state is sent again instead, in time for the shortest TTL in it.
    """

    __slots__ = (
        "_client",
        "_delta",
        "_full_state",
        "_heartbeats",
        "_now_due",
        "_progress",
        "_rejections",
        "is_read",
    )

    def __init__(
        self, context: SessionContext, client: ClientState, progress: Progress, rejections: Rejections
    ) -> None:
        self.is_read = False  # TTL-1: the client reads TTLs
        self._full_state = context.full_state
        self._delta = context.delta  # NAK-29: the resources of a NACKed response are judged when sent again alone
        self._client = client
        self._progress = progress
        self._rejections = rejections
        self._heartbeats: Heartbeats | None = None  # made for the first response with a TTL: most types have none
        self._now_due: Sequence[TimedResource] = ()  # a heartbeat goes out in this turn

    def __bool__(self) -> bool:
        return bool(self._heartbeats or self._now_due)

    @property
    def deadline(self) -> float | None:
        return self._heartbeats.deadline if self._heartbeats is not None else None

    def concerns(self, variants: Iterable[Variant]) -> bool:
        """TTL-1: whether one of these has a TTL and the client reads it."""
        return self.is_read and any(variant.ttl is not None for variant in variants)

    # -- responses

    def sent(self, send: Send, number: int) -> Timed:
        """Note a response. Return the resources in it that have a TTL, or take the place of one that had."""
        timed = self._whole(send) if self._full_state else self._timed(send)
        if timed:
            self._heartbeats = heartbeats = self._heartbeats if self._heartbeats is not None else Heartbeats()
            for slot, _ in timed:
                heartbeats.sent(slot, number)
        return timed

    def accepted(self, response: InFlightResponse) -> None:
        if self._heartbeats is not None:
            for slot, variant in response.timed:
                self._heartbeats.accepted(slot, variant, response.number, response.sent_at)

    def rejected(self, response: InFlightResponse) -> None:
        """NAK-3: a rejected heartbeat is not repeated. NAK-29: of several resources, each is judged when sent alone."""
        if not (self._delta and response.send is not None and response.send.count > 1):
            self._lose(response, lost=response.is_heartbeat)

    def forgotten(self, response: InFlightResponse) -> None:
        """Note that the client never answered this response: its version is unknown."""
        self._lose(response, lost=True)

    def _lose(self, response: InFlightResponse, *, lost: bool) -> None:
        """Go back to the versions before this response; `lost`: they are unknown."""
        if self._heartbeats is not None:
            for slot, _ in response.timed:
                self._heartbeats.rejected(slot, response.number, lost=lost)

    def forget(self, held: Variant, *, located: bool) -> None:
        """Forget the TTL of a variant, unless the client holds it by another subscription."""
        if self and not any(self._client.view.held(held.name, located=located)):
            self._stop(slot_of(held, located=located))

    def _stop(self, slot: Slot) -> None:
        """Stop heartbeats for this resource, if there are any."""
        if self._heartbeats is not None:
            self._heartbeats.forget(slot)

    def _timed(self, send: Send) -> Timed:
        known = self._heartbeats or ()
        if not known and not self.concerns((*send.plain, *send.located)):
            return ()
        found = [(slot_of(variant, located=False), variant) for variant in (*send.plain, *send.beats)]
        found += [(slot_of(variant, located=True), variant) for variant in (*send.located, *send.located_beats)]
        return tuple(one for one in found if one[1].ttl is not None or one[0] in known)

    def _whole(self, send: Send) -> Timed:
        sent = (*send.plain, *send.located) if send.ttl else ()
        timed = [(variant.ttl, variant) for variant in sent if variant.ttl is not None]
        if not timed:
            self._stop(EVERYTHING)
            return ()
        return ((EVERYTHING, min(timed, key=itemgetter(0))[1]),)

    # -- heartbeats

    def tick(self, now: float) -> None:
        """Find what is due: half of its TTL is over since the client was last told (TTL-2)."""
        for life in self._heartbeats.take(now) if self._heartbeats is not None else ():
            if not self._keeps(life):
                self._stop(life.slot)
            elif self._full_state or now >= life.at(1):
                self._renew(life)
            else:
                self._now_due = [*self._now_due, life]

    def take_due(self, limit: int) -> Iterator[tuple[tuple[Variant, ...], tuple[Variant, ...]]]:
        """Yield the heartbeats of this turn, plain and located, in as few responses below `limit` as possible.

        Those whose resource a response in flight is about are left out. DYN-15: plain heartbeats and those with
        constraints go out in separate responses.
        """
        due, self._now_due = self._now_due, ()
        lives = [(life.slot[0], life.variant) for life in due if not life.response and life.variant is not None]
        plain, located = ([variant for form, variant in lives if form is each] for each in (False, True))
        for part in portions(plain, limit, whole=not self._delta):
            yield part, ()
        for part in portions(located, limit, whole=not self._delta):
            yield (), part

    def _keeps(self, life: TimedResource) -> bool:
        """Whether to prolong this resource: the client should have it, or goes on with it after a rejection."""
        if life.variant is None or not self.is_read:
            return False
        if self._full_state:
            return self._progress.nack is None  # NAK-3
        # A resource whose removal waits is kept alive until the removal goes out. So is the accepted version of a
        # resource whose newer version the client rejected (NAK-3).
        located, variant = life.slot[0], life.variant
        leaving = self._client.holdings.leaving.items()
        return (
            self._client.view.has(variant, located=located)
            or any(alike(held, variant) for (_, tag), held in leaving if (tag is not None) == located)
            or self._rejections.has_variant_of(variant.name, located=located)
        )

    def _renew(self, life: TimedResource) -> None:
        """Send a resource as if it were new: it is too late for a heartbeat, so the client has dropped it."""
        if self._full_state:
            self._client.due.response = True
            return
        located, variant = life.slot[0], life.variant
        if variant is None or not self._client.view.has(variant, located=located):
            self._stop(life.slot)
            return
        for name in (variant.name, *variant.aliases):
            self._client.holdings.resend(name)
