"""Decide whether the store can answer a subscription yet, and with what.

A store that is authoritative knows everything. A relay's store is a cache: it knows a resource, or that there is none,
only once its upstream has answered. Until then the client keeps what it has (PRX-11). The same goes for providers.
"""

from __future__ import annotations

from ..model.table import Table
from ..model.types import ResourceProblem, Variant
from ..policy.grant import Denial
from .context import SessionContext
from .subscription import NameSubscription, WildcardSubscription
from .subscriptions import Subscriptions


class Availability:
    """What the store knows for one client."""

    __slots__ = ("_context", "_open", "_subscriptions", "is_returning")

    def __init__(self, context: SessionContext, subscriptions: Subscriptions) -> None:
        self._context = context
        self._subscriptions = subscriptions
        # In a cache: subscriptions not yet seen answered by `is_waiting`. None: there are none, as in any other store.
        self._open: dict[NameSubscription, None] | None = None
        self.is_returning = False  # the client holds something from an earlier stream

    @property
    def _table(self) -> Table:
        return self._context.table

    def add(self, want: NameSubscription) -> None:
        """Wait for the answer to this subscription, if this is a cache."""
        if not self._table.authoritative:
            self._open = self._open or {}
            self._open[want] = None

    def forget(self, want: NameSubscription) -> None:
        """Wait no more: the subscription ended."""
        if self._open:
            self._open.pop(want, None)

    @property
    def is_waiting(self) -> bool:
        """Whether a subscription has no answer yet because a cache does not know one (PRX-11)."""
        if self._table.authoritative:
            return False
        if any(not wild.started and not self.lists(wild) for wild in self._subscriptions.all_wildcards()):
            return True
        answered: list[NameSubscription] = []
        waiting = next((want for want in self._open or () if self._waits_for(want, answered)), None)
        for want in answered:  # each is seen answered once; then only the open ones remain to be looked at
            self.forget(want)
        return waiting is not None

    def _waits_for(self, want: NameSubscription, answered: list[NameSubscription]) -> bool:
        """Whether this subscription waits for the upstream. Note it in `answered` if it has its answer."""
        if want.answered:
            answered.append(want)
            return False
        late = self._table.knowledge.is_late(want.name, want.params, is_returning=self.is_returning)
        return not (self.knows(want) or late or self._is_refused(want)) and self.problem(want) is None

    def lists(self, wild: WildcardSubscription) -> bool:
        """Whether the table knows the whole listing of this wildcard, well enough for this client (PRX-25).

        What a relay restored from disk may be older than what a client holds that comes back. So the restored listing
        serves only clients that hold nothing yet. The others keep what they have until the upstream has answered.
        """
        return wild.is_denied or self._table.knowledge.lists(wild.params, wild.name, sure=self.is_returning)

    def knows(self, want: NameSubscription) -> bool:
        """Whether the table knows the answer to this subscription: a variant, or that there is none."""
        if want.claim is not None and self.denial(want) is not None:
            return True
        if not self._table.authoritative and self._context.complaint(want.name) is not None:
            return True
        return self._table.knowledge.knows(want.name, want.params, sure=self.is_returning) and self.serves(want)

    def serves(self, want: NameSubscription) -> bool:
        """Whether this subscription may have what the table holds (PRX-17).

        A resource with do_not_cache serves only the subscriptions that were there before it arrived. PRX-25: a
        resource that no upstream confirmed for too long is given to no new client.
        """
        return want.answered or self._table.knowledge.serves(want.name, want.params, want.since)

    def denial(self, want: NameSubscription) -> Denial | None:
        """Return why the policy denies this subscription, or None (DYN-44)."""
        claim, grant = want.claim, self._context.grant
        if claim is None or grant is None:
            return None
        if claim.denial is not None or claim.unlisted is None:
            return claim.denial
        known = self._table.get(want.name)
        return grant.unlisted_denial(claim.unlisted, known.mentioned(want.params)) if known is not None else None

    def selected(self, want: NameSubscription) -> Variant | None:
        """Return the variant that this subscription should hold by the store.

        A client that subscribes by a locator may be a cache, and serve the answer to others (TP2, Caching).
        So it gets the variant with constraints that say for whom else it is the answer.
        """
        if want.claim is not None and self.denial(want) is not None:
            return None
        select = self._table.select_for_cache if want.located else self._table.select
        return select(want.name, want.params)

    def problem(self, want: NameSubscription | WildcardSubscription) -> ResourceProblem | None:
        """Return the problem with getting this resource, if this client may be told of it in resource_errors.

        A client that does not read TP3 errors as transient would take one for an answer. So plain subscriptions hear of
        problems only where the settings say "all", or where the relay has no room for the resource: that is an answer,
        as for a subscription past a limit (PRX-35, DYN-46).
        """
        told = self._context.settings.resource_errors
        if told == "none" or want.is_denied or (isinstance(want, NameSubscription) and self.denial(want) is not None):
            return None
        problem = self._table.knowledge.problem(want.name, want.params)
        return problem if told == "all" or want.located or (problem is not None and problem.refused) else None

    def _is_refused(self, want: NameSubscription) -> bool:
        """Whether the relay has no room for this resource, even if the client is not told why (PRX-35)."""
        problem = self._table.knowledge.problem(want.name, want.params)
        return problem is not None and problem.refused

    def is_given_up(self, want: NameSubscription, *, unresolved: bool) -> bool:
        """Whether to answer that there is nothing although the upstream, or a provider, has not answered (VHD-19).

        This is for clients that hold nothing and have waited long enough, if `unresolved`: they need an answer. PRX-35:
        it is also for resources that a relay has no room for.
        """
        if want.answered or want.held is not None:
            return False
        problem = self._table.knowledge.problem(want.name, want.params)
        return problem is not None and (problem.refused or (problem.unresolved and unresolved))
