"""Begin and end subscriptions, and forget everywhere what an ended one has left behind.

A subscription leaves traces in the index, the budget of the stream, what the client holds, what is due, the rejections,
the TTLs and the isolated withdrawals. `begin` and `end` are the only functions that know all of them.

Envoy never unsubscribes from what it requested on demand (V14), and anybody can make it request any name. So all
requests are answered, but above a limit the oldest subscriptions that match nothing are forgotten (VHD-25). If one of
their names is created later, `resubscribe` begins it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from ..model.events import Key
from ..model.facts import Forgotten
from ..model.steps import EVERY, Steps, pieces
from ..model.table import Table
from ..model.types import Change, Params, Variant
from .claims import params_of, regrant_wildcard
from .client_state import ClientState
from .context import SessionContext
from .forgotten_names import ForgottenNames
from .isolation import Isolation
from .subscription import NameSubscription, WildcardSubscription
from .ttl import Ttl
from .type_rules import TypeRules
from .verdicts import Verdicts


class Lifecycle:
    """Begins and ends the subscriptions of one session."""

    __slots__ = (
        "_client",
        "_context",
        "_forgotten",
        "_given_up",
        "_is_over",
        "_isolation",
        "_rules",
        "_ttl",
        "_verdicts",
    )

    def __init__(
        self,
        context: SessionContext,
        client: ClientState,
        isolation: Isolation,
        verdicts: Verdicts,
        ttl: Ttl,
        rules: TypeRules,
    ) -> None:
        self._context = context
        self._client = client
        self._isolation = isolation
        self._verdicts = verdicts
        self._ttl = ttl
        self._rules = rules
        self._forgotten: ForgottenNames | None = None
        self._given_up: dict[str, dict[Variant, None]] | None = None  # by name: variants held by ended subscriptions
        self._is_over = False  # the stream is closed, so no response can go out any more

    # -- one subscription

    def begin(self, key: Key) -> NameSubscription:
        """Return the subscription with this key. Begin it if there is none."""
        want = self._client.subscriptions.find(key)
        if want is None:
            want = self._note(key)
            self._follow(want)
        return want

    def beginning(self, keys: Iterable[Key]) -> Steps[list[NameSubscription]]:
        """Begin many subscriptions at once, in steps. Return the new ones.

        A dictionary that grows is copied as a whole, which takes 10 ms for 200,000 entries. All dictionaries with one
        entry per subscription would grow at the same subscription. So each step adds to one or two of them only.
        """
        wants = [self._note(key) for key in keys if self._client.subscriptions.find(key) is None]
        try:
            yield
        finally:  # even if the caller abandons the work: `end` takes all of this back
            for want in wants:
                self._follow(want)
        return wants

    def _note(self, key: Key) -> NameSubscription:
        """Remember and count a new subscription."""
        want = self._client.subscriptions.note(key)
        self._client.availability.add(want)
        return want

    def _follow(self, want: NameSubscription) -> None:
        """Register a new subscription, and let it hold what the client has of it already."""
        self._client.subscriptions.register(want)
        self._client.holdings.begin(want)

    def end(self, want: NameSubscription) -> None:
        """End a subscription and undo all that was done for it.

        In a cache, note the variant that the client held by it (PRX-31).
        """
        held = want.held
        self._client.subscriptions.remove(want)
        self._client.due.drop(want)
        self._client.availability.forget(want)
        self._client.holdings.forget(want)
        self._verdicts.forget_unwanted()
        if held is not None:
            self._ttl.forget(held, located=want.located)
        self._isolation.forget_withdrawals([want.name] if held is None else [want.name, held.name], self._client.view)
        noted = self._context.delta and not self._context.table.authoritative and not self._is_over
        if noted and held is not None and want.located:
            self._given_up = self._given_up or {}
            self._given_up.setdefault(held.name, {})[held] = None

    def begin_wildcard(self, key: Key) -> WildcardSubscription:
        """Return the wildcard subscription with this key. Begin it if there is none."""
        return self._client.subscriptions.add_wildcard(key)

    def end_wildcard(self, wild: WildcardSubscription) -> None:
        """End a wildcard, and forget what only it owed the client, or covered (WLD-9)."""
        self._client.subscriptions.remove_wildcard(wild)
        self._client.holdings.forget_wildcard(wild)
        self._verdicts.forget_unwanted()
        self._isolation.forget_all_withdrawals(self._client.view)
        self._rules.wildcard_ended(wild)

    def take_given_up(self) -> dict[str, dict[Variant, None]]:
        """Return, by name, the variants that subscriptions held which ended since the last call, in a cache."""
        taken, self._given_up = self._given_up, None
        return taken or {}

    def regrant(self, before: Table) -> Steps[None]:
        """Compare all subscriptions with what another policy lets the client have, in steps.

        What it may not have any more is removed like what was deleted, in order. `before`: the table until now.
        """
        subscriptions, due = self._client.subscriptions, self._client.due
        for wild in list(subscriptions.all_wildcards()):
            regrant_wildcard(self._context, wild, before)
        for piece in pieces([*subscriptions.all_names()]):
            for want in piece:
                subscriptions.regrant(want)
                self._client.availability.add(want)
                due.mark(want)
            if len(piece) == EVERY:
                yield
        if self._forgotten is not None:  # what the client may have now may be what it waits for
            for known in pieces([*self._context.table]):
                for name, after in known:
                    self.resubscribe(Change(0, self._context.type_url, name, None, after))
                if len(known) == EVERY:
                    yield

    def closing(self) -> Steps[None]:
        """End all subscriptions, in steps, without withdrawing anything: the stream is over."""
        self._is_over = True
        names = [*self._client.subscriptions.names]
        names.reverse()
        while names:  # `del` frees the list in pieces too: one large list would take long to free
            piece = names[: -EVERY - 1 : -1]
            del names[-EVERY:]
            for name in piece:
                for want in [*self._client.subscriptions.names[name].values()]:
                    self.end(want)
            if len(piece) == EVERY:
                yield
        for wild in list(self._client.subscriptions.all_wildcards()):
            self.end_wildcard(wild)
        if self._forgotten is not None:
            self._context.interest.remove_forgetful(self._context.session, self._context.type_url)

    # -- names that the session does not remember (VHD-25)

    def forget_unknown(self) -> Steps[None]:
        """Drop the oldest subscriptions to names that match nothing, above a limit (VHD-25), in steps."""
        unknown, context = self._client.holdings.unknown, self._context
        excess = len(unknown) - context.settings.limits.unresolved
        for oldest in pieces([*islice(unknown, max(0, excess))]):
            self.forget([want.name for want in oldest])
            for want in oldest:
                context.interest.demand.forgot(context.type_url, want.name, want.params)
                self.end(want)
            if len(oldest) == EVERY:
                yield

    def forget(self, names: Collection[str]) -> None:
        """Mark names as forgotten. If one of them is created, `resubscribe` subscribes to it again."""
        if not names:
            return
        context, spec = self._context, self._context.table.spec
        if self._forgotten is None:
            self._forgotten = ForgottenNames(spec.url)
            context.interest.add_forgetful(context.session, spec.url)
        for name in names:
            self._forgotten.add(name)
        context.facts.append(Forgotten(context.stream, spec.url, len(names)))

    def unsubscribe_forgotten(self, name: str) -> None:
        """Note that the client no longer waits for a name, in case the session has forgotten it."""
        if self._forgotten is not None:
            self._forgotten.unsubscribe(name)

    def has_forgotten(self, name: str) -> bool:
        """Whether the client still waits for this name although the session dropped its subscription (VHD-25)."""
        forgotten = self._forgotten
        return forgotten is not None and forgotten.awaits(name) and name not in self._client.subscriptions.names

    def params_of_forgotten(self, name: str) -> Params | None:
        """Return with which params to ask for a name that the session has forgotten; None: the policy denies it."""
        claim = self._context.claim(Key(name))
        return params_of(self._context, Key(name), claim) if claim is None or claim.denial is None else None

    def resubscribe(self, change: Change) -> bool:
        """Subscribe again to dropped names that this change may create (VHD-25). Return whether there are any.

        OPS-2: what the client may not have tells it nothing, not even by an answer to what it forgot.
        """
        context = self._context
        if self._forgotten is None or not context.may_have(change.name):
            return False
        keys = [Key(name) for name in self._forgotten.concerned(change) if context.may_have(name)]
        recalled = [self.begin(key) for key in keys if self._client.subscriptions.find(key) is None]
        for want in recalled:
            self._client.holdings.resubscribe(want)
        return bool(recalled)
