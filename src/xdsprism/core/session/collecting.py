"""Compare what the client holds with the store, and collect what it must be sent into a batch.

`collect` looks at each dirty name subscription and at each wildcard that is behind. For both it finds transitions from
the variant that the client holds to the variant that it should hold:

| client holds | store selects  | what happens                                                                         |
|--------------|----------------|--------------------------------------------------------------------------------------|
| nothing      | a variant      | the variant goes into the batch                                                      |
| a variant    | the same       | nothing, unless the client asked again (DLT-3)                                       |
| a variant    | another        | the new one goes out; the old one is withdrawn with it if its constraints differ     |
| a variant    | nothing        | the variant is LEAVING (holdings.py)                                                 |
| nothing      | nothing        | delta answers at once that there is nothing (DLT-4, DYN-11)                          |
| either       | unknown        | nothing: a relay waits for its upstream, and the client keeps what it has (PRX-11)   |

A variant that is LEAVING is not removed at once. It waits until the stream allows removals (make before break, ORD-2),
and `Delivery.release` then puts the removal into a batch. If the resource comes back before that, the client never
hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.constraint_index import FirstMatch
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import Variant
from .batch import Batch
from .client_state import ClientState
from .context import SessionContext
from .delivery import Delivery
from .lifecycle import Lifecycle
from .subscription import NameSubscription
from .type_rules import TypeRules
from .verdicts import Verdicts
from .wildcard_members import WildcardMembers

ROUNDS = 3  # how often a full state looks again at what changed while it was collected


class Collector:
    """Finds what one client must be sent."""

    __slots__ = (
        "_client",
        "_context",
        "_delivery",
        "_lifecycle",
        "_members",
        "_rules",
        "_verdicts",
    )

    def __init__(
        self,
        context: SessionContext,
        client: ClientState,
        verdicts: Verdicts,
        delivery: Delivery,
        lifecycle: Lifecycle,
        rules: TypeRules,
    ) -> None:
        self._context = context
        self._client = client
        self._verdicts = verdicts
        self._delivery = delivery
        self._lifecycle = lifecycle
        self._members = WildcardMembers(context, client, verdicts, delivery, rules)
        self._rules = rules

    def collect(self) -> Steps[Batch]:
        """Return everything that the client must be sent now, in steps. Removals wait.

        What changes between two steps goes into the next response, with all else of its transaction. A full state can't
        leave anything out (SOT-4), so `_catch_up` looks at those changes too.
        """
        batch = Batch()
        owed = self._client.due.take_owed()
        yield from self._collect_names(batch)
        for wild in list(self._client.subscriptions.all_wildcards()):
            yield from self._members.collect(wild, batch)
        for keys in pieces(owed) if owed else ():
            for key in keys:
                self._members.collect_owed(key, batch)
            if len(keys) == EVERY:
                yield
        if self._context.full_state and self._client.due.dirty:
            yield from self._catch_up(batch)
        yield from self._delivery.withdraw_replaced(batch)
        leaving = self._client.holdings.leaving
        if leaving and (batch.removed or batch.withdrawn):
            # A removal for one subscription removes the variant for all. So release the others that wait for the same
            # removal: a variant that is replaced for some subscriptions may only go away for others.
            said = [key for key, held in leaving.items() if batch.takes(held, located=key.is_locator)]
            batch.join(self._delivery.release(said))
        # A cache may hold variants that overlap, so their order in the response matters (DYN-45).
        if batch.located and not self._context.table.authoritative:
            yield from self._repeat_overtaken(batch)
            batch.located = dict.fromkeys(self.oldest_first(batch.located))
        if self._client.holdings.unknown:
            yield from self._lifecycle.forget_unknown()
        if self._client.due.passing:
            yield from self._answer_passing(batch)
        yield from self._rules.collected(batch)
        self._context.report_denied()
        return batch

    def foresee(self) -> Steps[None]:
        """Let the table compute, in steps, the snapshots and differences that `collect` will ask it for."""
        for wild in list(self._client.subscriptions.all_wildcards()):
            if not wild.started or wild.again or (wild.is_behind and not self._context.delta):
                yield from wild.listing.snapshotting(wild.params)
            if wild.started and wild.is_behind:
                yield from wild.listing.differencing(wild.cursor, wild.params)

    # -- subscriptions to names

    def _collect_names(self, batch: Batch) -> Steps[None]:
        """Look at each dirty name subscription, in steps if there are many."""
        dirty = self._client.due.take_dirty()
        if len(dirty) <= EVERY:
            for want in dirty:
                self._collect_name(want, batch)
            return
        for piece in pieces(dirty):
            for want in piece:
                # What changed again since this began is in the next response.
                if want not in self._client.due.dirty:
                    self._collect_name(want, batch)
            yield

    def _collect_name(self, want: NameSubscription, batch: Batch) -> None:
        """Find what one name subscription should hold, and put the transition into the batch."""
        was_answered, before, availability = want.answered, want.held, self._client.availability
        self._delivery.warn(want, batch)
        after = availability.selected(want)
        if after is None:
            unresolved = self._rules.needs_empty_resource(want.key)
            # Otherwise the upstream has not answered: the client keeps what it has.
            if availability.knows(want) or availability.is_given_up(want, unresolved=unresolved):
                self._miss(want, batch)
        elif availability.serves(want):
            # DLT-13: the client came back with this version, so it need not be sent.
            if want.initial is not None and not want.answered and self.is_brought(want, after):
                self._client.holdings.bring(want, after)
            elif self._client.holdings.deliver(want, after):
                self._delivery.deliver(batch, before, after, located=want.located)
        self._rules.collected_name(want, before, was_answered=was_answered)

    def _miss(self, want: NameSubscription, batch: Batch) -> None:
        """Handle a subscription that matches nothing: withdraw what the client holds, or answer negatively."""
        absence = self._delivery.absence(want) if want.located else None
        if self._client.holdings.miss(want, absence):
            self._delivery.absent(batch, want)

    def is_brought(self, want: NameSubscription, found: Variant) -> bool:
        """Whether the client came back with this variant in its current version, so that it is not sent (DLT-13)."""
        initial, want.initial = want.initial or {}, None
        always = self._context.table.spec.always_resend
        if initial.get(found.name) != found.version or always or found.ttl is not None:
            return False  # TTL-2: it is unknown how much of its TTL is left
        self._verdicts.suppressed(1)
        return True

    def _answer_passing(self, batch: Batch) -> Steps[None]:
        """Answer the names that were passed over, of which the session remembers nothing (VHD-25)."""
        for piece in pieces(self._client.due.take_passing()):
            for want in piece:
                self._delivery.absent(batch, want)
            yield

    # -- a full state, which must be of one moment

    def _catch_up(self, batch: Batch) -> Steps[None]:
        """Look again at the names that changed meanwhile, the last time without a pause."""
        for _ in range(ROUNDS):
            self._drop_outdated_errors(batch)
            yield from self._collect_names(batch)
        self._drop_outdated_errors(batch)
        finish(self._collect_names(batch))

    def _drop_outdated_errors(self, batch: Batch) -> None:
        """Drop the errors about names that changed since: the next look makes them anew, if they are still true."""
        names = {want.name for want in self._client.due.dirty}
        for error in [error for error in batch.errors if error.about.name in names]:
            del batch.errors[error]

    # -- variants that overlap, in a cache

    def _repeat_overtaken(self, batch: Batch) -> Steps[None]:
        """Send again the variants that a client would otherwise replace by one that is for another locator (DYN-45).

        Variants of a cache may overlap, since it learns for one parameter set after the other that a variant is gone. A
        client that subscribes with several parameter sets uses, for each, the matching variant that it received last
        (PRX-24).
        """
        coming: dict[str, list[Variant]] = {}
        for variant in batch.located if self._rules.may_overlap else ():
            coming.setdefault(variant.name, []).append(variant)
        for name, variants in coming.items():
            first = FirstMatch([each.constraint for each in variants])
            for piece in cut(self._client.view.located(name)):
                for held, params in piece:
                    if held not in batch.located and first.find(params) is not None:
                        batch.located[held] = None
                if len(piece) == EVERY and not self._context.full_state:  # a full state shows one moment: no pause
                    yield

    def oldest_first(self, located: Iterable[Variant]) -> list[Variant]:
        """Return the variants so that the newest comes last: of overlapping ones a client uses that (DYN-45).

        A cache lists the newest variant first. Variants that the cache no longer lists come before all others: the
        client keeps them only until something comes in their place (PRX-38).
        """
        variants = [*located]
        names = {each.name for each in variants} if len(variants) > 1 else ()
        known = [found for found in map(self._context.table.get, names) if found is not None]
        ages = {id(each): age for found in known for age, each in enumerate(found.variants)}
        return sorted(variants, key=lambda variant: -ages.get(id(variant), len(ages)))
