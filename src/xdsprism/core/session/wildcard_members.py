"""Collect what a wildcard has new: all its members at the start, and then the difference since its cursor.

A wildcard is `*`, or a glob collection of TP1. The table computes each difference once for all sessions with the same
cursor and class of params. A client that comes back names the versions that it has (`initial`): it is not sent them
again (DLT-13), and is told which of them are gone (DLT-14).
"""

from __future__ import annotations

from ..model.constraints import matches
from ..model.events import WILDCARD, Key
from ..model.steps import EVERY, Steps, pieces
from ..model.table import Table
from ..model.types import Variant, remnant
from ..model.xdstp import wildcards
from .batch import Batch
from .claims import end_holding_over
from .client_state import ClientState
from .context import SessionContext
from .delivery import Delivery
from .subscription import WildcardSubscription
from .type_rules import TypeRules
from .verdicts import Verdicts


class WildcardMembers:
    """Finds what one client must be sent by its wildcards."""

    __slots__ = (
        "_client",
        "_context",
        "_delivery",
        "_rules",
        "_verdicts",
    )

    def __init__(
        self,
        context: SessionContext,
        client: ClientState,
        verdicts: Verdicts,
        delivery: Delivery,
        rules: TypeRules,
    ) -> None:
        self._context = context
        self._client = client
        self._verdicts = verdicts
        self._delivery = delivery
        self._rules = rules

    @property
    def _table(self) -> Table:
        return self._context.table

    def collect(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Put into the batch what a wildcard has new, in steps."""
        self._delivery.warn(wild, batch)  # ERR-6
        if wild.is_held_over:
            end_holding_over(self._context, wild)
        if not wild.started:
            if not self._client.availability.lists(wild):  # a relay does not know the whole listing yet
                return
            wild.started = True
            wild.cursor = wild.listing.advance(wild.cursor)
            yield from self._collect_all(wild, batch)
            self._rules.wildcard_started(wild)
        elif wild.is_behind:
            transitions = wild.transitions()
            wild.caught_up()
            located = wild.tag is not None
            for piece in pieces(transitions.values()):
                for change in piece:
                    if self._client.view.speaks_for(wild, change.name):
                        before, is_due = self._client.holdings.deliver_member(wild.key_of(change.name), change)
                        if is_due and change.after is not None:
                            self._delivery.deliver(batch, before, change.after, located=located)
                if len(piece) == EVERY:
                    yield
        if wild.again:
            wild.again = False
            yield from self._collect_all(wild, batch)
        if wild.initial and wild.started:
            yield from self._take_leave(wild, batch)
        self._rules.collected_wildcard(wild, batch)

    def collect_owed(self, key: Key, batch: Batch) -> None:
        """Send one member of a wildcard once more, or tell the client that it is not there (WLD-6).

        A member is owed an answer when the client unsubscribed its name and the wildcard still covers it, or after
        `resend`.
        """
        wild = next(self._client.subscriptions.wildcards_over(key), None)
        if wild is None or key in self._client.holdings.leaving:
            return
        name, tag = key
        current = wild.listing.member(name, wild.params)
        if current is not None:
            self._delivery.deliver(batch, None, current, located=tag is not None)
        elif self._rules.has_full_wildcard:
            self._delivery.depart(name, wild, batch)  # WLD-6

    def _collect_all(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Collect all members of a wildcard that is new, or that the client asked for again, in steps."""
        members = wild.listing.snapshot(wild.params).variants
        for piece in pieces(members):
            for variant in piece:
                if self._client.view.speaks_for(wild, variant.name):
                    self._collect_member(wild, variant, batch)
            if len(piece) == EVERY:
                yield
        if not members and wild.name != WILDCARD:
            self._delivery.say_empty(wild, batch)

    def _collect_member(self, wild: WildcardSubscription, variant: Variant, batch: Batch) -> None:
        """Deliver a member, unless the client came back with its current version (DLT-13)."""
        due = self._table.spec.always_resend or variant.ttl is not None  # TTL-2: the TTL's remainder is unknown
        if wild.initial.get(variant.name) == variant.version and not due:
            self._verdicts.suppressed(1)
        else:
            self._delivery.deliver(batch, None, variant, located=wild.tag is not None)

    def _take_leave(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Remove what the client holds from an earlier stream and the wildcard no longer lists (DLT-14), in steps."""
        if not self._rules.knows_brought:
            return
        for number, name in enumerate(wild.initial):
            if number % EVERY == EVERY - 1:
                yield
            if wild.name not in wildcards(name):
                continue
            held = self._client.view.held(name, located=wild.tag is not None)
            still = any(wild.tag is None or matches(variant.constraint, wild.params) for variant in held)
            if still or self._client.subscriptions.find(wild.key_of(name)) is not None:
                continue
            if wild.tag is None:  # ORD-2: its removal waits until nothing refers to it
                self._client.holdings.leave(Key(name), remnant(self._table.spec.url, name))
            else:
                self._delivery.depart(name, wild, batch)
        wild.initial = {}
