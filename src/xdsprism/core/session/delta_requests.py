"""Read delta (incremental) requests of one type.

A request says what changes in the client's subscriptions. It is read in this order:

1. The nonce, if there is one, makes the request the ACK or NACK of that response.
2. initial_resource_versions of the first request tell what the client holds from an earlier stream (DLT-16).
3. Names of resource_names_subscribe and its locators begin or repeat subscriptions, whatever the nonce (DLT-10). A name
   that is subscribed again is answered again (DLT-3).
4. Names of resource_names_unsubscribe end subscriptions. The client drops their resources by itself, so no removal is
   sent. But if a wildcard still covers the name, the client is sent the member again (WLD-6).

A NACK of several resources does not say which one was bad, and Envoy may have applied all, some or none of them. So the
response counts as not delivered, and each of its resources goes out once more, alone: the client ACKs the good ones,
and each remaining NACK names a bad one (NAK-29, isolation.py).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING

from ..model.constraint_index import ParamsIndex
from ..model.constraints import matches
from ..model.events import WILDCARD, Absence, DeltaRequest, Key, Send, plain_keys
from ..model.limits import Refusal
from ..model.steps import EVERY, Steps, chosen, in_order, pieces
from ..model.types import NO_PARAMS
from ..model.xdstp import is_wild, spelled
from .fast_path import acknowledged
from .refusals import ABSENT, refused_among
from .subscription import NameSubscription

if TYPE_CHECKING:
    from ..model.table import Table
    from .session import Session


class DeltaRequests:
    """The requests of one type on one delta stream."""

    __slots__ = ("_session", "is_first")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_first = True  # no request of this type came yet

    @property
    def _table(self) -> Table:
        return self._session.table

    def receive(
        self, request: DeltaRequest, now: float, *, legacy_wildcard: bool = True, continues: bool = False
    ) -> Steps[None]:
        """Take one request, in steps: the ACK or NACK, then subscriptions, then unsubscriptions.

        `legacy_wildcard`: an empty first request means everything (WLD-8). `continues`: the request is a further part
        of a large one that the server reads in pieces (SRV-24).
        """
        session = self._session
        refused: dict[Key, Refusal] = {}
        wanted = yield from self._read(request.subscribe, refused)
        gone = yield from self._read(request.unsubscribe, {})  # a refused key never was a subscription
        if request.nonce:
            self._take_verdict(request, now)
        first, self.is_first = self.is_first, False
        # DLT-16: only the first request of the type counts, which may come in several parts (SRV-24).
        versions = request.initial_versions if first or continues else {}
        initial = yield from self._note_brought(versions, continues=continues)
        if first and not request.subscribe and not request.unsubscribe and legacy_wildcard:
            self._begin_wildcard(initial)
        leaving = (yield from chosen(gone, lambda key: key not in wanted)) if gone else []  # DLT-18
        allowed = yield from self._admit(wanted, leaving, initial, refused)
        # Subscribe before unsubscribing, so that a name takes over from its wildcard what the client holds.
        yield from self._subscribe_all(allowed, initial)
        for piece in pieces(leaving):
            for key in piece:
                self._unsubscribe(key, wanted)
            if len(piece) == EVERY:
                yield
        yield from self._withdraw_silently_lost()
        # A client that unsubscribes from a refused key needs no answer about it any more.
        if session.admission.refusals is not None:
            for key in request.unsubscribe:
                session.admission.refusals.drop(key)
        if refused:
            self._refuse_unless_told(refused, versions)

    def accept(self, request: DeltaRequest, now: float) -> bool:
        """Take an ACK on the fast path: a delta ACK carries nothing else. Return False if it is more than that."""
        return acknowledged(self._session, request, now)

    def is_answer(self, request: DeltaRequest) -> bool:
        """Whether the request is nothing but the ACK or NACK of a response in flight."""
        is_all = not request.subscribe and not request.unsubscribe
        return is_all and request.nonce in self._session.in_flight.responses

    def _read(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[dict[Key, None]]:
        """Return the keys within the limits, each once. Note the others in `refused` (DYN-46)."""
        admission = self._session.admission
        if len(keys) <= EVERY:
            return dict.fromkeys(admission.admit(keys, refused)) if keys else {}
        return (yield from in_order((yield from admission.admitting(keys, refused))))

    # -- the ACK or NACK

    def _take_verdict(self, request: DeltaRequest, now: float) -> None:
        """Take the ACK or NACK that the request's nonce makes it. After a NACK, resend each resource alone (NAK-29)."""
        rejected = self._session.verdicts.judge(request.nonce, request.error, now)
        if rejected is not None and request.error is not None and rejected.send is not None:
            self.resend_nacked(rejected.send)

    def resend_nacked(self, send: Send) -> None:
        """Send again what a NACKed response said: each resource alone (NAK-29), negative answers made anew."""
        session = self._session
        self._deny_again([absence for absence in send.withdrawn if absence.never])
        for name in send.unresolved:  # VHD-24: the good ones arrive, with a version of their own (V8)
            for want in session.subscriptions.names.get(name, {}).values():
                session.holdings.ask_again(want)
        session.isolation.add_delta(send, session.view)

    def _deny_again(self, absences: Iterable[Absence]) -> None:
        """Mark negative answers of a NACKed response as due: they are made anew from the store (DESIGN 6.4)."""
        subscriptions, holdings = self._session.subscriptions, self._session.holdings
        for absence in absences:
            for want in subscriptions.names.get(absence.name, {}).values():
                if want.absence == absence.constraint:
                    holdings.ask_again(want)
            for wild in subscriptions.covering(absence.name):
                gone = wild.tag is not None and wild.listing.member(absence.name, wild.params) is None
                if gone and matches(absence.constraint, wild.params):
                    holdings.owe(wild.key_of(absence.name))

    # -- what the client holds from an earlier stream

    def _note_brought(self, versions: Mapping[str, str], *, continues: bool) -> Steps[Mapping[str, str]]:
        """Take note of initial_resource_versions, in steps, and return them with canonical names."""
        session = self._session
        initial = (yield from self._spelled(versions)) if versions else {}
        session.availability.is_returning = session.availability.is_returning or bool(initial)
        session.rules.note_brought(initial)
        if continues and initial:
            self._add_brought(initial)
        return initial

    def _spelled(self, versions: Mapping[str, str]) -> Steps[Mapping[str, str]]:
        """Return initial_resource_versions with canonical names (XTP-1), in steps.

        DYN-46: a name past the limits is left out, as it would be in a subscription.
        """
        spec, limits = self._table.spec, self._session.context.settings.limits
        found: dict[str, str] = {}
        for piece in pieces(versions.items()):
            refused = refused_among([*plain_keys([name for name, _ in piece])], spec.url, limits)
            kept = [one for one in piece if Key(one[0]) not in refused] if refused else piece
            found.update([(spelled(name), version) for name, version in kept] if spec.has_xdstp_names else kept)
            if len(piece) == EVERY:
                yield
        return found

    def _add_brought(self, initial: Mapping[str, str]) -> None:
        """Give the wildcards further initial_resource_versions, from a later part of the first request (SRV-24)."""
        for wild in self._session.subscriptions.all_wildcards():
            wild.initial = {**wild.initial, **initial}
            self._session.due.response = True

    # -- names that are past a limit, or are answered and forgotten

    def _admit(
        self, wanted: Collection[Key], leaving: Collection[Key], initial: Mapping[str, str], refused: dict[Key, Refusal]
    ) -> Steps[Collection[Key]]:
        """Return the keys to subscribe to, in steps. Note in `refused` those for which the budget has no room."""
        session = self._session
        most = session.context.settings.limits.unresolved
        passing = (yield from self._answered_once(wanted, initial, most)) if len(wanted) > most else {}
        kept = (yield from chosen(wanted, lambda key: key not in passing)) if passing else wanted
        if session.context.budget.is_short(len(kept)):
            refused |= yield from session.admission.lacking_room(kept, leaving)
        return (yield from chosen(kept, lambda key: key not in refused)) if refused else kept

    def _answered_once(self, keys: Collection[Key], initial: Mapping[str, str], most: int) -> Steps[Collection[Key]]:
        """Return the names to answer negatively at once, without a subscription, out of very many (VHD-25).

        An Envoy whose users scanned hosts or clusters comes back with all of these names. `Lifecycle.forget_unknown`
        would drop the oldest of those that match nothing right after they were added. So the session answers them and
        marks them as forgotten.
        """
        passing: dict[Key, None] = {}
        if not self._table.authoritative:
            return passing
        session = self._session
        absent: list[Key] = []
        for piece in pieces(keys):
            absent += [
                key for key in piece if not key.is_locator and not is_wild(key.name) and not self._exists(key.name)
            ]
            yield
        for piece in pieces(absent[: max(0, len(absent) - most)]):
            oldest = [key for key in piece if not session.subscriptions.has(key)]
            for key in oldest:
                passing[key] = None
                want = NameSubscription(key, NO_PARAMS, claim=session.context.claim(key))
                want.initial = initial
                session.due.answer_once(want)
            session.lifecycle.forget([name for name, _ in oldest])
            yield
        return passing

    def _exists(self, name: str) -> bool:
        """Whether the store has any variant of this name or alias."""
        return self._table.get(name) is not None

    def _refuse_unless_told(self, refused: Mapping[Key, Refusal], initial: Mapping[str, str]) -> None:
        """Refuse these keys, except hosts for which the client came back with the negative answer (VHD-7)."""
        known = {name for name, tag in refused if tag is None and initial.get(name, "").startswith(ABSENT)}
        if known:
            self._session.verdicts.suppressed(len(known))
        self._session.admission.refuse(
            {key: refusal for key, refusal in refused.items() if key.is_locator or key.name not in known}
        )

    # -- subscriptions

    def _begin_wildcard(self, initial: Mapping[str, str]) -> None:
        """Subscribe to everything after a first request without any names, for types that have a wildcard (WLD-8)."""
        if self._table.spec.has_wildcard:
            self._subscribe(Key(WILDCARD), initial)

    def _subscribe_all(self, keys: Collection[Key], initial: Mapping[str, str]) -> Steps[None]:
        """Begin or repeat these subscriptions, in steps."""
        session = self._session
        for piece in pieces(keys):
            # Create the new ones of a large piece together; `_subscribe` then finds them.
            if len(piece) == EVERY and not session.holdings.declined:
                yield from session.lifecycle.beginning(
                    [key for key in piece if not session.context.is_wildcard(key.name)]
                )
                yield
            for key in piece:
                self._subscribe(key, initial)
            if len(piece) == EVERY:
                yield

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        """Begin one subscription, or mark it as due for an answer if there is one already (DLT-3)."""
        session = self._session
        session.rules.subscribing(key)
        if session.context.is_wildcard(key.name):
            wild = session.subscriptions.wildcard(key)
            if wild is not None:
                wild.again = True  # DLT-3: asked again, answered again
            else:
                session.lifecycle.begin_wildcard(key).initial = initial
            # WLD-10; a client that comes back with everything is sent nothing
            session.due.response = session.due.response or not initial
            return
        want = session.lifecycle.begin(key)
        session.holdings.ask_again(want)  # DLT-3: asked again, answered again
        session.availability.add(want)
        # DLT-13: what the client holds in the current version is not sent again.
        want.initial = initial or None
        current = session.availability.selected(want) if initial else None
        if current is not None and session.collector.is_brought(want, current):
            session.holdings.bring(want, current)

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        """End the subscriptions that this key means."""
        session = self._session
        member = session.rules.member_meant(key)
        wild = session.subscriptions.wildcard(key)
        if wild is not None:
            session.lifecycle.end_wildcard(wild)  # WLD-9: the client drops what only the wildcard gave it
            return
        if not key.is_locator:
            session.lifecycle.unsubscribe_forgotten(key.name)
        for want in self._meant(key):
            if want.key in wanted:
                continue  # the same request subscribes to it by another alias
            held = Key(want.held.name if want.held is not None else want.name, key.tag)
            session.lifecycle.end(want)
            # WLD-6, XTP-7: if a wildcard covers it, say what it is now.
            for wild in session.subscriptions.wildcards_over(held):
                if wild.started:
                    session.holdings.owe(held)
                else:  # the wildcard has not sent anything yet: its start sends the member, or its removal
                    wild.initial = {**wild.initial, held.name: ""}
        if member is not None:
            session.rules.unsubscribed(member, key)

    def _meant(self, key: Key) -> list[NameSubscription]:
        """Return the subscriptions that an unsubscribe of this key ends.

        DLT-20: a client may unsubscribe by the resource's name or by any of its aliases. DLT-8: if there is no such
        subscription, the list is empty.
        """
        subscriptions = self._session.subscriptions
        want = subscriptions.find(key)
        if want is not None:
            return [want]
        name, tag = key
        known = self._table.get(name)
        if known is None:
            return []
        strings = (self._table.owner(name) or name, *known.aliases)
        found = [subscriptions.find(Key(string, tag)) for string in strings]
        found += [want for want in subscriptions.aliased.get(name, {}) if want.key.tag == tag]  # VHD-11
        return [*dict.fromkeys(want for want in found if want is not None)]

    def _withdraw_silently_lost(self) -> Steps[None]:
        """Withdraw variants that only the subscriptions that end now kept alive at the client (PRX-31).

        A cache learns for one parameter set after the other that a variant is gone. A removal is about the variant and
        not about one subscription. So while one subscription of the client still holds the variant, the others that
        lost it are not told. When the last one ends, they must be.
        """
        subscriptions = self._session.subscriptions
        for name, variants in self._session.lifecycle.take_given_up().items():
            wants = (want for want in subscriptions.names.get(name, {}).values() if want.located and want.answered)
            lost = [want.params for want in wants if want.held is None]
            wilds = (wild for wild in subscriptions.covering(name) if wild.located and wild.started)
            crowd = ParamsIndex(
                [*lost, *(wild.params for wild in wilds if wild.listing.member(name, wild.params) is None)]
            )
            for piece in pieces(variants):
                for held in piece:
                    if crowd.has_any(held.constraint):  # isolation drops it where the client still has it
                        self._session.isolation.withdraw_again([Absence(held.name, held.constraint)])
                if len(piece) == EVERY:
                    yield
