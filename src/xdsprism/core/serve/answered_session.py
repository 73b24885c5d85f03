"""Decide what an ACK or a NACK of a response means for its resources, and send heartbeats.

A response is in flight until its nonce comes back (in_flight.py). Then:

- An ACK accepts its resources: rejections of the same resources end, and their TTLs begin (ttl.py).
- A NACK of one resource rejects that resource. It is not sent again until it changes (NAK-3, rejections.py).
- A delta NACK of several resources rejects none of them yet: isolation.py resends each of them alone (NAK-29).
- A SotW NACK of several resources rejects all of them: the client may go on with the old version of any. A NACK of a
  full state rejects it as a whole, and names no resource (SOT-4).

A NACK counts for nothing if the client no longer subscribes to what was in the response, or has since accepted newer
versions of all of it (NAK-11).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model.events import WILDCARD, Absence, Key, Rejection, ResourceError, Send
from ..model.facts import Acked, Facts, Nacked, Oversize, Sent, Suppressed
from ..model.limits import SubscriptionBudget
from ..model.settings import Settings
from ..model.table import Table
from ..model.types import Params, Variant
from ..model.views import alike
from .batch import Batch, portions, slot_of
from .collecting import CollectingSession
from .heartbeat import TimedResource
from .in_flight import InFlight, InFlightResponse
from .interest import Interest
from .isolation import Isolation
from .rejections import Part, Rejections, parts_of
from .subscriptions import NameSubscription, WildcardSubscription
from .ttl import Ttl

RESOURCE_EXHAUSTED = 8


class AnsweredSession(CollectingSession):
    """A session that follows its responses until the client ACKs or NACKs them."""

    __slots__ = ("in_flight", "isolation", "progress", "rejections", "ttl", "v2")

    def __init__(
        self,
        table: Table,
        interest: Interest,
        settings: Settings,
        params: Params,
        stream: int,
        facts: Facts,
        room: SubscriptionBudget,
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts, room)
        self.in_flight = InFlight(table.spec.label)
        self.progress = self.in_flight.progress
        self.rejections = Rejections()
        self.isolation = Isolation()
        self.ttl = Ttl(full_state=self._full_state, isolates=self.delta)
        self.v2 = False  # the last request was of xDS v2

    def _nonce(self) -> str:
        """Return a nonce for a response at the table's revision."""
        return self.in_flight.next_nonce(self.table.revision)

    def _sent(self, send: Send, now: float, *, keep: bool = True) -> Send:
        """Count a response and wait for its answer. `keep`: isolation needs its content after a NACK.

        Errors are not kept: a NACK never resends them, and their names may be as long as a client likes (DYN-46).
        """
        timed = self.ttl.sent(send, self.progress.sent + 1)
        kept = None if self._full_state or not keep else replace(send, errors=()) if send.errors else send
        forgotten = self.in_flight.add(send, now, kept, timed)
        if forgotten is not None:
            self.ttl.forgotten(forgotten)
        gone = len(send.removed) + len(send.withdrawn)
        self._facts.append(Sent(self.stream, send.type_url, send.nonce, send.count, gone))
        return send

    def _judge(self, nonce: str, error: Rejection | None, now: float) -> InFlightResponse | None:
        """Take the ACK or NACK of a response; None: the nonce answers nothing (NAK-28).

        NAK-1, NAK-2: error_detail alone makes a NACK, whatever version_info says.
        """
        response = self.in_flight.answer(nonce)
        if response is None:
            return None
        if error is None:
            self._accepted(response, now)
            self._facts.append(Acked(self.stream, self.table.spec.url, nonce, now - response.sent_at))
        else:
            self._rejected(response, nonce, error, now)
            parts = [(each.name, each.version) for each in response.variants]
            isolates = self.delta and len(parts) > 1
            self._facts.append(
                Nacked(self.stream, self.table.spec.url, nonce, response.version, error, tuple(parts), isolates)
            )
        return response

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether a change of these names has yet to be sent, or any response is in flight."""
        return bool(self.in_flight) or super().is_judging(names)

    def _accepted(self, response: InFlightResponse, now: float) -> None:
        """Take an ACK: end the rejections that it answers, and the NACK state if none remain (NAK-13)."""
        self.in_flight.accepted(response, now)
        self.ttl.accepted(response)
        if response.is_heartbeat:
            return  # an ACK of a heartbeat says nothing about a rejected newer version
        if self.rejections and response.send is not None:
            self.rejections.accept(response.send, self._is_current)
        if self.progress.nacked < response.number and not (self.delta and self.rejections):
            self.progress.nack = None  # NAK-13

    def _rejected(self, response: InFlightResponse, nonce: str, error: Rejection, now: float) -> None:
        """Take a NACK: record which resources it rejects, as far as it tells."""
        self.ttl.rejected(response)
        parts = {part.label: part for part in parts_of(response.send)} if response.send is not None else {}
        wanted = {label: part for label, part in parts.items() if self._is_wanted(part)}
        # NAK-11, ORD-4: a NACK of what is unsubscribed or replaced since then changes nothing.
        if (parts and not wanted) or self._overtaken(response):
            return
        self.in_flight.rejected(response, nonce, error, now)
        # A delta NACK of several resources does not tell which one is bad; isolation finds out (NAK-29).
        if len(parts) == 1 or not self.delta:
            self.rejections.add(wanted, response, error)

    def _overtaken(self, response: InFlightResponse) -> bool:
        """Whether the client has since accepted something newer in place of all that was in the response (NAK-11)."""
        if response.send is None or response.number > self.progress.acked:
            return False
        return not any(self._is_current(part) for part in parts_of(response.send))

    def _is_current(self, part: Part) -> bool:
        """Whether the client is to have this variant."""
        return part.variant is not None and self.has(part.variant, located=part.located)

    def _drop(self, want: NameSubscription) -> None:
        """End a subscription, and forget rejections and TTLs of what the client held by it."""
        held = want.held
        super()._drop(want)
        self._forget_unwanted()
        if held is not None:
            self._forget_life(held, located=want.located)

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        """End a wildcard, and forget rejections of what only it covered."""
        super()._drop_wild(wild)
        self._forget_unwanted()

    def _forget_unwanted(self) -> None:
        """Forget rejected resources that the client no longer subscribes to: they hold up no removal (ORD-4)."""
        if self.rejections and self.rejections.discard_unless(self._is_wanted):
            self.progress.nack = None

    def _is_wanted(self, part: Part) -> bool:
        """Whether the client still subscribes to this resource in this form."""
        return self.is_subscribed(part.name, located=part.located)

    def is_subscribed(self, name: str, *, located: bool) -> bool:
        """Whether a subscription of this form covers this name: by itself, by an alias or by a wildcard."""
        # The subscription may be to the name, or to an alias that the store, or the client's resource, has for it.
        known = self.table.get(name)
        strings = (name, *(known.aliases if known is not None else ()))
        named = (want for string in strings for want in self._wants.get(string, {}).values())
        wilds = (wild.tag for wild in self._covering(name))
        tags = (*wilds, *(want.key[1] for want in (*named, *self._aliased.get(name, {}))))
        return any((tag is not None) == located for tag in tags)

    def may_have(self, name: str, *, located: bool) -> bool:
        """Whether the client may hold this name by one of its subscriptions, perhaps by an alias that is gone now."""
        wants = (want for wants in self._wants.values() for want in wants.values())
        lacking = (want for want in wants if want.held is None and want.located == located)
        return self.is_subscribed(name, located=located) or any(lacking)

    def held_of(self, name: str, *, located: bool) -> Iterator[Variant]:
        """Yield the variants that the client holds of this name, or of the glob collection of this name."""
        yield from self._held(name, located=located)
        for wild in self._wilds.get(name, {}).values():
            if name != WILDCARD and (wild.tag is not None) == located:
                yield from wild.listing.snapshot(wild.params).variants

    def _suppressed(self, resources: int) -> None:
        """Count resources that were not sent because the client has them from an earlier stream."""
        self.progress.spared = True
        if resources:
            self._facts.append(Suppressed(self.stream, self.table.spec.url, resources))

    def _oversize(self, variant: Variant) -> ResourceError:
        """Return the error that replaces a resource above the size limit (DLT-22). The others are delivered."""
        self._facts.append(Oversize(self.stream, self.table.spec.url, variant.name, variant.size))
        limit = self.settings.response_bytes
        message = f"{variant.name!r} takes {variant.size} bytes, more than the {limit} that a response may have"
        return ResourceError(Absence(variant.name, variant.constraint), RESOURCE_EXHAUSTED, message)

    # -- TTL

    def tick(self, now: float) -> None:
        """Find the resources whose TTL is half over (TTL-2)."""
        if self.ttl:
            self.ttl.tick(now, self._keeps, self._renew)

    def beat(self, now: float) -> list[Send]:
        """Return the heartbeats that `tick` found due, in as few responses as possible.

        DYN-15: plain heartbeats and those with constraints go out in separate responses.
        """
        if not self.ttl:
            return []
        due = [(life.slot[0], life.variant) for life in self.ttl.take_due() if life.variant is not None]
        plain, located = ([variant for form, variant in due if form is each] for each in (False, True))
        limit = self.settings.response_bytes
        sends = [self._beat_with(part, ()) for part in portions(plain, limit, whole=not self.delta)]
        sends += [self._beat_with((), part) for part in portions(located, limit, whole=not self.delta)]
        return [self._sent(send, now) for send in sends]

    @abstractmethod
    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """Return one response with these heartbeats."""

    def _keeps(self, life: TimedResource) -> bool:
        """Whether to prolong this resource: the client should have it, or goes on with it after a rejection."""
        if life.variant is None or not self.ttl.is_read:
            return False
        if self._full_state:
            return self.progress.nack is None  # NAK-3
        # A resource whose removal waits is kept alive until the removal goes out. So is the accepted version of a
        # resource whose newer version the client rejected (NAK-3).
        located, variant = life.slot[0], life.variant
        going = (held for (_, tag), held in self.leaving.items() if (tag is not None) == located)
        return (
            self.has(variant, located=located)
            or any(alike(held, variant) for held in going)
            or self.rejections.has_variant_of(variant.name, located=located)
        )

    def _renew(self, life: TimedResource) -> None:
        """Send a resource as if it were new: its TTL is over, so the client has dropped it."""
        if self._full_state:
            self._due = True
            return
        located, variant = life.slot[0], life.variant
        if variant is None or not self.has(variant, located=located):
            self.ttl.forget(life.slot)
            return
        for name in (variant.name, *variant.aliases):
            self.resend(name)

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Return the removals of leaving variants, and forget their TTLs."""
        # `release` of the layer below empties `leaving`, so note the variants first.
        leaving = {key: self.leaving[key] for key in (self.leaving if keys is None else keys)}
        batch = super().release(leaving)
        for (_, tag), held in leaving.items():
            self._forget_life(held, located=tag is not None)
        return batch

    def _forget_life(self, held: Variant, *, located: bool) -> None:
        """Forget the TTL of a variant that the client holds by no subscription any more."""
        if self.ttl and not any(self._held(held.name, located=located)):
            self.ttl.forget(slot_of(held, located=located))
