"""Delta: each request says what changes in what the client wants; each response, what changed in what it gets.

Subscriptions count whatever the nonce (DLT-10). What a response removed and what it brought are in one message where
the removal is the other half of a replacement (DYN-24); what only goes away goes last, in a message of its own, when
other types on the stream still have to move off it (ORD-3).

A NACK of several resources does not say which one was bad, and Envoy may have applied all, some or none of them. So
the response counts as not delivered and its resources go out once more, each alone: the good ones arrive and the bad
ones are named by the NACKs that remain (NAK-29).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from ..model.constraint_index import ParamsIndex
from ..model.constraints import matches
from ..model.events import WILDCARD, Absence, DeltaRequest, Key, Send
from ..model.facts import Facts
from ..model.limits import Refusal, SubscriptionBudget
from ..model.settings import Settings
from ..model.steps import EVERY, Steps, chosen, finish, in_order, pieces
from ..model.table import Table
from ..model.types import NO_PARAMS, Params, Variant, remnant
from ..model.xdstp import is_wild, spelled, wildcards
from .batch import Batch
from .fast_path import News, Replaced, SteadySession
from .interest import Interest
from .refusals import ABSENT, refused_among
from .subscriptions import NameSubscription, WildcardSubscription


class DeltaSession(SteadySession):
    """One type on one delta stream."""

    __slots__ = (
        "_first",
        "_given_up",
        "_is_over",
        "_passing",
    )

    delta = True

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
        self._first = True
        self._is_over = False  # the stream is closed: there is nobody to tell anything
        self._given_up: dict[str, dict[Variant, None]] = {}  # what was held by what a request ends; by name
        self._passing: list[NameSubscription] = []  # to be told that there is nothing, and not to be remembered

    # -- in

    def receive(
        self, request: DeltaRequest, now: float, *, legacy_wildcard: bool = True, continues: bool = False
    ) -> Steps[None]:
        refused: dict[Key, Refusal] = {}
        wanted = yield from self._read(request.subscribe, refused)
        gone = yield from self._read(request.unsubscribe, {})  # what was refused never was subscribed
        if request.nonce:
            self._take_verdict(request, now)
        first, self._first = self._first, False
        # DLT-16: only on the first of the type, which may come in several parts (SRV-24)
        claimed = request.initial_versions if first or continues else {}
        initial = (yield from self._spelled(claimed)) if claimed else {}
        self._returns = self._returns or bool(initial)
        self._claim(initial)
        if continues and initial:
            self._claim_more(initial)
        if first and not request.subscribe and not request.unsubscribe and legacy_wildcard:
            self._begin_wild(initial)
        leaving = (yield from chosen(gone, lambda key: key not in wanted)) if gone else []  # DLT-18
        most = self.settings.limits.unresolved
        passing = (yield from self._pass_over(wanted, initial, most)) if len(wanted) > most else {}
        kept = (yield from chosen(wanted, lambda key: key not in passing)) if passing else wanted
        if self._room.is_short(len(kept)):
            refused |= yield from self._lacking_room(kept, leaving)
        # First, so that a name takes over what its wildcard held when that goes.
        allowed = (yield from chosen(kept, lambda key: key not in refused)) if refused else kept
        yield from self._subscribe_all(allowed, initial)
        for piece in pieces(leaving):
            for key in piece:
                self._unsubscribe(key, wanted)
            if len(piece) == EVERY:
                yield
        yield from self._withdraw_silently_lost()
        if self._refused is not None:
            for key in request.unsubscribe:
                self._refused.drop(key)
        if refused:
            self._refuse_unless_told(refused, claimed)

    def _claim_more(self, initial: Mapping[str, str]) -> None:
        """SRV-24: what the client has comes in a later part of its first request than its wildcards."""
        for wild in self._wildcards():
            wild.initial = {**wild.initial, **initial}
            self._due = True

    def _read(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[dict[Key, None]]:
        """What of these can be subscribed, each once; the others are noted in `refused` (DYN-46)."""
        if len(keys) <= EVERY:
            return dict.fromkeys(self._admitted(keys, refused)) if keys else {}
        return (yield from in_order((yield from self._admitting(keys, refused))))

    def _take_verdict(self, request: DeltaRequest, now: float) -> None:
        rejected = self._judge(request.nonce, request.error, now)
        if rejected is not None and request.error is not None and rejected.send is not None:
            self._isolate(rejected.send)

    accept = SteadySession.acknowledged  # of an ACK, that is all

    def _pass_over(self, keys: Collection[Key], initial: Mapping[str, str], most: int) -> Steps[Collection[Key]]:
        """VHD-25: of very many names, those that nothing has and that would be forgotten at once; the oldest.

        An Envoy whose users scanned hosts or clusters comes back with all of them. They are answered, and that is all.
        """
        passing: dict[Key, None] = {}
        if not self.table.authoritative:
            return passing
        absent: list[Key] = []
        for piece in pieces(keys):
            absent += [key for key in piece if key[1] is None and not is_wild(key[0]) and not self._exists(key[0])]
            yield
        for piece in pieces(absent[: max(0, len(absent) - most)]):
            oldest = [key for key in piece if not self._has_subscribed(key)]
            for key in oldest:
                passing[key] = None
                want = NameSubscription(key, NO_PARAMS)
                want.claimed = initial
                self._passing.append(want)
            self._forget([name for name, _ in oldest])
            yield
        return passing

    def _exists(self, name: str) -> bool:
        return self.table.get(name) is not None

    def collect(self) -> Steps[Batch]:
        batch = yield from super().collect()
        passing, self._passing = self._passing, []
        for piece in pieces(passing):
            for want in piece:
                self._absent(batch, want)
                self._unknown.pop(want, None)
            yield
        return batch

    def _refuse_unless_told(self, refused: Mapping[Key, Refusal], initial: Mapping[str, str]) -> None:
        """VHD-7: who comes back with the version of a host that there is none for was told on an earlier stream."""
        known = {name for name, tag in refused if tag is None and initial.get(name, "").startswith(ABSENT)}
        if known:
            self._suppressed(len(known))
        self._refuse_keys(
            {key: refusal for key, refusal in refused.items() if key[1] is not None or key[0] not in known}
        )

    def _spelled(self, versions: Mapping[str, str]) -> Steps[Mapping[str, str]]:
        """XTP-1. DYN-46: what a client has by a name past the limit is not remembered either."""
        limits, type_url, on_demand = self.settings.limits, self.table.spec.url, self.table.spec.on_demand
        found: dict[str, str] = {}
        for piece in pieces(versions.items()):
            refused = refused_among([(name, None) for name, _ in piece], type_url, limits)
            kept = [one for one in piece if (one[0], None) not in refused] if refused else piece
            found.update(kept if on_demand else [(spelled(name), version) for name, version in kept])
            if len(piece) == EVERY:
                yield
        return found

    def _begin_wild(self, initial: Mapping[str, str]) -> None:
        """WLD-8: only a first message without any name means everything, and only for types that have it."""
        if self.table.spec.has_wildcard:
            self._subscribe((WILDCARD, None), initial)

    def _subscribe_all(self, keys: Collection[Key], initial: Mapping[str, str]) -> Steps[None]:
        for piece in pieces(keys):
            if len(piece) == EVERY and not self._declined:
                yield from self._adding([key for key in piece if not self._is_wild(key[0])])
                yield
            for key in piece:
                self._subscribe(key, initial)
            if len(piece) == EVERY:
                yield

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        if self._is_wild(key[0]):
            wild = self._wild(key)
            if wild is not None:
                wild.again = True  # DLT-3: asked again, answered again
            else:
                self._add_wild(key).initial = initial
            self._due = self._due or not initial  # WLD-10; who comes back with all it needs is told nothing
            return
        want = self._add(key)
        want.answered = False  # DLT-3: asked again, answered again
        if not self.table.authoritative:
            self._open[want] = None
        self._dirty[want] = None
        self._spare(want, initial)

    def _spare(self, want: NameSubscription, initial: Mapping[str, str]) -> None:
        """DLT-13: on the first message, what the client has in its current version is not sent again."""
        want.claimed = initial or None
        current = self._selected(want) if initial else None
        if current is not None and self._is_claimed(want, current):
            self._hold(want, current)

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        wild = self._wild(key)
        if wild is not None:
            self._drop_wild(wild)  # WLD-9: the client drops what only the wildcard gave it
            return
        if self._forgotten is not None and key[1] is None:
            self._forgotten.unsubscribe(key[0])
        for want in self._meant(key):
            if want.key in wanted:
                continue  # an alias of what the same message subscribes
            name, tag = want.held.name if want.held is not None else want.name, key[1]
            self._drop(want)
            for wild in self._over((name, tag)):  # WLD-6, XTP-7: it may be covered; the client must know
                if wild.started:
                    self._owed[name, tag] = None
                else:  # and does not yet know what it covers
                    wild.initial = {**wild.initial, name: ""}

    def _is_wild(self, name: str) -> bool:
        """XTP-3: a glob collection is a wildcard; one that can't have members is a name that nothing has (XTP-9)."""
        if not is_wild(name):
            return False
        return name == WILDCARD or (not self.table.spec.on_demand and self.complaint(name) is None)

    def _wild(self, key: Key) -> WildcardSubscription | None:
        return self._wilds.get(key[0], {}).get(key[1])

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        super()._drop_wild(wild)
        self.isolation.forget_all_withdrawals(self)

    def close(self) -> Steps[None]:
        self._is_over = True
        yield from super().close()

    def _drop(self, want: NameSubscription) -> None:
        held = want.held
        super()._drop(want)
        self.isolation.forget_withdrawals([want.name] if held is None else [want.name, held.name], self)
        if held is not None and want.located and not self.table.authoritative and not self._is_over:
            self._given_up.setdefault(held.name, {})[held] = None

    def _withdraw_silently_lost(self) -> Steps[None]:
        """PRX-31: say removals that were left unsaid because a variant was still held by subscriptions that end now.

        A cache learns for one parameter set after the other that a variant is gone. A client that asks with several of
        them is told when the last one loses it, since a removal is about the variant, and not about a subscription.
        """
        let_go, self._given_up = self._given_up, {}
        for name, variants in let_go.items():
            wants = (want for want in self._wants.get(name, {}).values() if want.located and want.answered)
            lost = [want.params for want in wants if want.held is None]
            wilds = (wild for wild in self._covering(name) if wild.located and wild.started)
            crowd = ParamsIndex(
                [*lost, *(wild.params for wild in wilds if wild.listing.member(name, wild.params) is None)]
            )
            for piece in pieces(variants):
                for held in piece:
                    if crowd.has_any(held.constraint):  # isolation drops it where the client still has it
                        self.isolation.withdraw_again([Absence(held.name, held.constraint)])
                if len(piece) == EVERY:
                    yield

    def _meant(self, key: Key) -> list[NameSubscription]:
        """DLT-20: a resource can be unsubscribed by its name or by any alias. DLT-8: or it never was subscribed."""
        want = self._find(key)
        if want is not None:
            return [want]
        name, tag = key
        known = self.table.get(name)
        if known is None:
            return []
        strings = (self.table.owner(name) or name, *known.aliases)
        found = [self._find((string, tag)) for string in strings]
        found += [want for want in self._aliased.get(name, {}) if want.key[1] == tag]  # VHD-11
        return [*dict.fromkeys(want for want in found if want is not None)]

    def _isolate(self, send: Send) -> None:
        """NAK-29: send each resource of a NACKed response again, alone."""
        self._deny_again(absence for absence in send.withdrawn if absence.never)
        for name in send.unresolved:  # VHD-24: the good ones arrive, with a version of their own (V8)
            for want in self._wants.get(name, {}).values():
                want.answered = False
                self._dirty[want] = None
        self.isolation.add_delta(send, self)

    def _deny_again(self, absences: Iterable[Absence]) -> None:
        """A negative answer is not repeated as it was: it is given anew, as things are by then (DESIGN 6.4)."""
        for absence in absences:
            for want in self._wants.get(absence.name, {}).values():
                if want.absence == absence.constraint:
                    want.answered = False
                    self._dirty[want] = None
            for wild in self._covering(absence.name):
                gone = wild.tag is not None and wild.listing.member(absence.name, wild.params) is None
                if gone and matches(absence.constraint, wild.params):
                    self._owed[absence.name, wild.tag] = None

    # -- out

    def _collect_wild(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        yield from super()._collect_wild(wild, batch)
        if wild.initial and wild.started:
            yield from self._take_leave(wild, batch)

    def is_judging(self, names: Iterable[str]) -> bool:
        return self.isolation.has_resources or super().is_judging(names)

    @property
    def at_rest(self) -> bool:
        return not (self.isolation or self._first) and super().at_rest

    def _shared(self, replaced: list[Replaced]) -> Send | None:
        located = replaced[0][0].located
        if len(replaced) == 1:
            return self._once((replaced[0][1],), located=located)
        if any(want.located != located for want, _ in replaced):
            return None  # DYN-15
        return self._once(tuple(dict.fromkeys(after for _, after in replaced)), located=located)  # SRV-19

    def _shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """By the variant alone: who gets it by its plain name, and had another."""
        held = want.held
        if want.key[1] is not None or held is None or held.version == after.version:
            return super()._shared_name(want, after)
        shared = self.table.shared
        send = shared.get(after)
        if send is None:
            send = self._once((after,), located=False)
            if send is not None:
                shared[after] = send
        return send

    def _shared_wild(self, wild: WildcardSubscription, news: News) -> Send | None:  # noqa: ARG002
        return self._once(news, located=False)

    def _once(self, news: News, *, located: bool) -> Send | None:
        key = True, located, news
        send = self.table.shared.get(key)
        if send is None and self._fits(news):
            plain, other = ((), news) if located else (news, ())
            url, version = self.table.spec.url, str(self.table.revision)
            send = self.table.shared[key] = Send(url, True, self._nonce(), version, plain, other)  # noqa: FBT003
        return send

    @property
    def pending(self) -> bool:
        return bool(self._passing or (self.isolation.is_waiting and self.in_flight.room)) or super().pending

    @property
    def paced_until(self) -> float | None:
        """Until when a client that does not keep up is let alone; None: it is not paced."""
        return None

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """What is to be said now. `together`: removals need not wait for other types."""
        if not self.pending or now < (self.paced_until or now):
            return []
        greeting = self.greet(now) if not self.progress.sent else None
        if greeting is not None:
            return greeting
        due = self._due and not self._waits
        self._due = self._due and not due
        batch = yield from self.collect()
        if together and self.leaving:
            batch.join(self.release([key for key, held in self.leaving.items() if not held.is_remnant]))
        self.isolation.add_withdrawals(batch, self)
        yield
        sends = (yield from self._chunks(batch, now)) if batch or due else []
        if self._refused:  # in responses of their own, of which nothing is kept
            told = yield from self._answer_refused()
            parts = yield from told.in_parts(self.settings.response_bytes)
            for part in parts:
                sends.append((yield from self._respond(part, now, keep=False)))
        alone = self.isolation.take(batch, self, self.in_flight.room, self.settings.response_bytes)
        self.news = (*batch.variants, *(variant for part in alone for variant in part.variants))
        for part in alone:
            sends.append((yield from self._respond(part, now)))
        return sends

    def settle(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """These removals may go."""
        gone = self.release(keys)
        self.isolation.add_withdrawals(gone, self)
        return finish(self._chunks(gone, now)) if gone else []

    def _start_member(self, wild: WildcardSubscription, variant: Variant, batch: Batch) -> None:
        """DLT-13: a member that the client has in this version is not sent again."""
        due = self.table.spec.always_resend or variant.ttl is not None  # TTL-2: how long it is good, nobody knows
        if wild.initial.get(variant.name) == variant.version and not due:
            self._suppressed(1)
        else:
            super()._start_member(wild, variant, batch)

    def _take_leave(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """DLT-14: of what the client has from an earlier stream, what is not there for it any more goes."""
        if not self._may_take_leave():
            return
        for number, name in enumerate(wild.initial):
            if number % EVERY == EVERY - 1:
                yield
            if wild.name not in wildcards(name):
                continue
            held = self._held(name, located=wild.tag is not None)
            still = any(wild.tag is None or matches(variant.constraint, wild.params) for variant in held)
            if still or self._find((name, wild.tag)) is not None:
                continue
            if wild.tag is None:  # ORD-2: it goes when whoever may refer to it has moved on
                self.leaving[name, None] = remnant(self.table.spec.url, name)
            else:
                self._depart(name, wild, batch)
        wild.initial = {}

    def _chunks(self, batch: Batch, now: float) -> Steps[list[Send]]:
        """DLT-21, DYN-15: in several responses, where it is too much for one or there are two forms of a name."""
        limit = self.settings.response_bytes
        if (yield from batch.weighing()) > limit:
            yield from self._refuse(batch, limit)
        sends = []
        for part in (yield from batch.in_parts(limit)):
            sends.append((yield from self._respond(part, now)))
            yield
        return sends

    def _refuse(self, batch: Batch, limit: int) -> Steps[None]:
        """DLT-22: what is too large for any response becomes an error."""
        for variant in (yield from chosen(batch.variants, lambda variant: variant.size > limit)):
            batch.errors[self._oversize(variant)] = None
            batch.located.pop(variant, None)
            if batch.plain.get(variant.name) is variant:
                del batch.plain[variant.name]

    def _respond(self, batch: Batch, now: float, *, keep: bool = True) -> Steps[Send]:
        send = Send(
            self.table.spec.url,
            True,  # noqa: FBT003
            self._nonce(),
            str(self.table.revision),
            tuple(batch.plain.values()),
            tuple(batch.located),
            tuple(batch.removed),
            tuple(batch.withdrawn),
            tuple(batch.errors),
        )
        return self._sent((yield from self._completed(send, batch)), now, keep=keep)

    # -- what is different about virtual hosts (core.serve.virtual_host_session)

    def _claim(self, initial: Mapping[str, str]) -> None:
        """The client has these from an earlier stream."""

    def _may_take_leave(self) -> bool:
        """Whether it is known by now what the client still asks for of what it has."""
        return True

    def _completed(self, send: Send, _batch: Batch) -> Steps[Send]:
        yield from ()
        return send

    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        version = str(self.table.revision)
        return Send(self.table.spec.url, True, self._nonce(), version, beats=plain, located_beats=located)  # noqa: FBT003
