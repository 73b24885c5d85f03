"""Read delta (incremental) requests of one type, and make delta responses.

A request says what changes in the client's subscriptions, and a response says what changed in the resources. A request
is read in this order:

1. The nonce, if there is one, makes the request the ACK or NACK of that response.
2. initial_resource_versions of the first request tell what the client holds from an earlier stream (DLT-16).
3. Names of resource_names_subscribe and its locators begin or repeat subscriptions, whatever the nonce (DLT-10). A name
   that is subscribed again is answered again (DLT-3).
4. Names of resource_names_unsubscribe end subscriptions. The client drops their resources by itself, so no removal is
   sent. But if a wildcard still covers the name, the client is sent the member again (WLD-6).

A removal goes in the response that brings the replacement, if there is one (DYN-24). A resource that only goes away is
removed last, by a response of its own, once the other types on the stream no longer refer to it (ORD-3).

A NACK of several resources does not say which one was bad, and Envoy may have applied all, some or none of them. So the
response counts as not delivered, and each of its resources goes out once more, alone: the client ACKs the good ones,
and each remaining NACK names a bad one (NAK-29, isolation.py).
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
        self._is_over = False  # the stream is closed, so no response can go out any more
        self._given_up: dict[str, dict[Variant, None]] = {}  # by name: variants held by ended subscriptions
        self._passing: list[NameSubscription] = []  # answered negatively in the next response, and not remembered

    # -- in

    def receive(
        self, request: DeltaRequest, now: float, *, legacy_wildcard: bool = True, continues: bool = False
    ) -> Steps[None]:
        """Take one request, in steps: the ACK or NACK, then subscriptions, then unsubscriptions.

        `legacy_wildcard`: an empty first request means everything (WLD-8). `continues`: the request is a further part
        of a large one that the server reads in pieces (SRV-24).
        """
        refused: dict[Key, Refusal] = {}
        wanted = yield from self._read(request.subscribe, refused)
        gone = yield from self._read(request.unsubscribe, {})  # a refused key never was a subscription
        if request.nonce:
            self._take_verdict(request, now)
        first, self._first = self._first, False
        # DLT-16: only the first request of the type counts, which may come in several parts (SRV-24).
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
        # Subscribe before unsubscribing, so that a name takes over from its wildcard what the client holds.
        allowed = (yield from chosen(kept, lambda key: key not in refused)) if refused else kept
        yield from self._subscribe_all(allowed, initial)
        for piece in pieces(leaving):
            for key in piece:
                self._unsubscribe(key, wanted)
            if len(piece) == EVERY:
                yield
        yield from self._withdraw_silently_lost()
        # A client that unsubscribes from a refused key needs no answer about it any more.
        if self._refused is not None:
            for key in request.unsubscribe:
                self._refused.drop(key)
        if refused:
            self._refuse_unless_told(refused, claimed)

    def _claim_more(self, initial: Mapping[str, str]) -> None:
        """Give the wildcards further initial_resource_versions, from a later part of the first request (SRV-24)."""
        for wild in self._wildcards():
            wild.initial = {**wild.initial, **initial}
            self._due = True

    def _read(self, keys: tuple[Key, ...], refused: dict[Key, Refusal]) -> Steps[dict[Key, None]]:
        """Return the keys within the limits, each once. Note the others in `refused` (DYN-46)."""
        if len(keys) <= EVERY:
            return dict.fromkeys(self._admitted(keys, refused)) if keys else {}
        return (yield from in_order((yield from self._admitting(keys, refused))))

    def _take_verdict(self, request: DeltaRequest, now: float) -> None:
        """Take the ACK or NACK that the request's nonce makes it. After a NACK, resend each resource alone (NAK-29)."""
        rejected = self._judge(request.nonce, request.error, now)
        if rejected is not None and request.error is not None and rejected.send is not None:
            self._isolate(rejected.send)

    accept = SteadySession.acknowledged  # a delta ACK carries nothing else

    def _pass_over(self, keys: Collection[Key], initial: Mapping[str, str], most: int) -> Steps[Collection[Key]]:
        """Return the names to answer negatively at once, without a subscription, out of very many (VHD-25).

        An Envoy whose users scanned hosts or clusters comes back with all of these names. `_forget_unknown` would drop
        the oldest of those that match nothing right after they were added. So the session answers them and marks them
        as forgotten.
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
        """Whether the store has any variant of this name or alias."""
        return self.table.get(name) is not None

    def collect(self) -> Steps[Batch]:
        """Collect what the client must be sent, and the negative answers to names that were passed over."""
        batch = yield from super().collect()
        passing, self._passing = self._passing, []
        for piece in pieces(passing):
            for want in piece:
                self._absent(batch, want)
                self._unknown.pop(want, None)
            yield
        return batch

    def _refuse_unless_told(self, refused: Mapping[Key, Refusal], initial: Mapping[str, str]) -> None:
        """Refuse these keys, except hosts for which the client came back with the negative answer (VHD-7)."""
        known = {name for name, tag in refused if tag is None and initial.get(name, "").startswith(ABSENT)}
        if known:
            self._suppressed(len(known))
        self._refuse_keys(
            {key: refusal for key, refusal in refused.items() if key[1] is not None or key[0] not in known}
        )

    def _spelled(self, versions: Mapping[str, str]) -> Steps[Mapping[str, str]]:
        """Return initial_resource_versions with canonical names (XTP-1), in steps.

        DYN-46: a name past the limits is left out, as it would be in a subscription.
        """
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
        """Subscribe to everything after a first request without any names, for types that have a wildcard (WLD-8)."""
        if self.table.spec.has_wildcard:
            self._subscribe((WILDCARD, None), initial)

    def _subscribe_all(self, keys: Collection[Key], initial: Mapping[str, str]) -> Steps[None]:
        """Begin or repeat these subscriptions, in steps."""
        for piece in pieces(keys):
            # Create the new ones of a large piece together; `_subscribe` then finds them.
            if len(piece) == EVERY and not self._declined:
                yield from self._adding([key for key in piece if not self._is_wild(key[0])])
                yield
            for key in piece:
                self._subscribe(key, initial)
            if len(piece) == EVERY:
                yield

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        """Begin one subscription, or mark it as due for an answer if there is one already (DLT-3)."""
        if self._is_wild(key[0]):
            wild = self._wild(key)
            if wild is not None:
                wild.again = True  # DLT-3: asked again, answered again
            else:
                self._add_wild(key).initial = initial
            self._due = self._due or not initial  # WLD-10; a client that comes back with everything is sent nothing
            return
        want = self._add(key)
        want.answered = False  # DLT-3: asked again, answered again
        if not self.table.authoritative:
            self._open[want] = None
        self._dirty[want] = None
        self._spare(want, initial)

    def _spare(self, want: NameSubscription, initial: Mapping[str, str]) -> None:
        """Record what the client claims to hold. What it holds in the current version is not sent again (DLT-13)."""
        want.claimed = initial or None
        current = self._selected(want) if initial else None
        if current is not None and self._is_claimed(want, current):
            self._hold(want, current)

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        """End the subscriptions that this key means."""
        wild = self._wild(key)
        if wild is not None:
            self._drop_wild(wild)  # WLD-9: the client drops what only the wildcard gave it
            return
        if self._forgotten is not None and key[1] is None:
            self._forgotten.unsubscribe(key[0])
        for want in self._meant(key):
            if want.key in wanted:
                continue  # the same request subscribes to it by another alias
            name, tag = want.held.name if want.held is not None else want.name, key[1]
            self._drop(want)
            for wild in self._over((name, tag)):  # WLD-6, XTP-7: if a wildcard covers it, say what it is now
                if wild.started:
                    self._owed[name, tag] = None
                else:  # the wildcard has not sent anything yet: its start sends the member, or its removal
                    wild.initial = {**wild.initial, name: ""}

    def _is_wild(self, name: str) -> bool:
        """Whether this name is a wildcard: `*`, or a glob collection (XTP-3).

        A glob collection that can't have members, as its URL is malformed or of another type, is a name that nothing
        has (XTP-9).
        """
        if not is_wild(name):
            return False
        return name == WILDCARD or (not self.table.spec.on_demand and self.complaint(name) is None)

    def _wild(self, key: Key) -> WildcardSubscription | None:
        """Return the wildcard subscription with this key, if there is one."""
        return self._wilds.get(key[0], {}).get(key[1])

    def _drop_wild(self, wild: WildcardSubscription) -> None:
        """End a wildcard, and forget isolated withdrawals of names that no locator covers any more (WLD-9)."""
        super()._drop_wild(wild)
        self.isolation.forget_all_withdrawals(self)

    def close(self) -> Steps[None]:
        """End all subscriptions without withdrawing anything: the stream is over."""
        self._is_over = True
        yield from super().close()

    def _drop(self, want: NameSubscription) -> None:
        """End a subscription. In a cache, note the variant that the client held by it (PRX-31)."""
        held = want.held
        super()._drop(want)
        self.isolation.forget_withdrawals([want.name] if held is None else [want.name, held.name], self)
        if held is not None and want.located and not self.table.authoritative and not self._is_over:
            self._given_up.setdefault(held.name, {})[held] = None

    def _withdraw_silently_lost(self) -> Steps[None]:
        """Withdraw variants that only the subscriptions that end now kept alive at the client (PRX-31).

        A cache learns for one parameter set after the other that a variant is gone. A removal is about the variant and
        not about one subscription. So while one subscription of the client still holds the variant, the others that
        lost it are not told. When the last one ends, they must be.
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
        """Return the subscriptions that an unsubscribe of this key ends.

        DLT-20: a client may unsubscribe by the resource's name or by any of its aliases. DLT-8: if there is no such
        subscription, the list is empty.
        """
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
        """Send each resource of a NACKed response again, alone (NAK-29)."""
        self._deny_again(absence for absence in send.withdrawn if absence.never)
        for name in send.unresolved:  # VHD-24: the good ones arrive, with a version of their own (V8)
            for want in self._wants.get(name, {}).values():
                want.answered = False
                self._dirty[want] = None
        self.isolation.add_delta(send, self)

    def _deny_again(self, absences: Iterable[Absence]) -> None:
        """Mark negative answers of a NACKed response as due: they are made anew from the store (DESIGN 6.4)."""
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
        """Collect what a wildcard has new, and remove what the client held before and the wildcard does not list."""
        yield from super()._collect_wild(wild, batch)
        if wild.initial and wild.started:
            yield from self._take_leave(wild, batch)

    def is_judging(self, names: Iterable[str]) -> bool:
        """Whether a change of these names is unsent, in flight, or to be resent alone after a NACK."""
        return self.isolation.has_resources or super().is_judging(names)

    @property
    def at_rest(self) -> bool:
        """Whether only a change or a request can make a response due: also nothing is in isolation."""
        return not (self.isolation or self._first) and super().at_rest

    def _shared(self, replaced: list[Replaced]) -> Send | None:
        """Return the shared response with these replacements. None if they are in both forms (DYN-15)."""
        located = replaced[0][0].located
        if len(replaced) == 1:
            return self._once((replaced[0][1],), located=located)
        if any(want.located != located for want, _ in replaced):
            return None  # DYN-15
        return self._once(tuple(dict.fromkeys(after for _, after in replaced)), located=located)  # SRV-19

    def _shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """Return the shared response with one plain variant, looked up by the variant alone.

        The general lookup in `_once` builds a key with the form and a tuple. This runs for each client, so it avoids
        that.
        """
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
        """Return the shared response with a wildcard's changed members."""
        return self._once(news, located=False)

    def _once(self, news: News, *, located: bool) -> Send | None:
        """Return the response with these variants, made by the first session that asks at this revision.

        All sessions that send it use the same object, and so the same nonce, and it is encoded once.
        """
        key = True, located, news
        send = self.table.shared.get(key)
        if send is None and self._fits(news):
            plain, other = ((), news) if located else (news, ())
            url, version = self.table.spec.url, str(self.table.revision)
            send = self.table.shared[key] = Send(url, True, self._nonce(), version, plain, other)  # noqa: FBT003
        return send

    @property
    def pending(self) -> bool:
        """Whether the next poll has something to look at, or may resend a NACKed resource."""
        return bool(self._passing or (self.isolation.is_waiting and self.in_flight.room)) or super().pending

    @property
    def paced_until(self) -> float | None:
        """Return until when the session sends nothing to a client that is slow to ACK; None: it does not wait."""
        return None

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """Return the responses that are due, in steps.

        `together`: no other type on the stream refers to this one, so removals go with the rest and do not wait.
        """
        if not self.pending or now < (self.paced_until or now):
            return []
        greeting = self.greet(now) if not self.progress.sent else None
        if greeting is not None:
            return greeting
        # An empty response is due only once nothing waits for the upstream.
        due = self._due and not self._waits
        self._due = self._due and not due
        batch = yield from self.collect()
        if together and self.leaving:
            batch.join(self.release([key for key, held in self.leaving.items() if not held.is_remnant]))
        self.isolation.add_withdrawals(batch, self)
        yield
        sends = (yield from self._chunks(batch, now)) if batch or due else []
        if self._refused:  # in responses of their own: a NACK of them resends nothing
            told = yield from self._answer_refused()
            parts = yield from told.in_parts(self.settings.response_bytes)
            for part in parts:
                sends.append((yield from self._respond(part, now, keep=False)))
        # What a NACK isolated goes out last, if this poll has not said something newer about it.
        alone = self.isolation.take(batch, self, self.in_flight.room, self.settings.response_bytes)
        self.news = (*batch.variants, *(variant for part in alone for variant in part.variants))
        for part in alone:
            sends.append((yield from self._respond(part, now)))
        return sends

    def settle(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """Return the responses that remove these leaving variants: removals.py allows them."""
        gone = self.release(keys)
        self.isolation.add_withdrawals(gone, self)
        return finish(self._chunks(gone, now)) if gone else []

    def _start_member(self, wild: WildcardSubscription, variant: Variant, batch: Batch) -> None:
        """Deliver a member of a new wildcard, unless the client came back with its current version (DLT-13)."""
        due = self.table.spec.always_resend or variant.ttl is not None  # TTL-2: the TTL's remainder is unknown
        if wild.initial.get(variant.name) == variant.version and not due:
            self._suppressed(1)
        else:
            super()._start_member(wild, variant, batch)

    def _take_leave(self, wild: WildcardSubscription, batch: Batch) -> Steps[None]:
        """Remove what the client holds from an earlier stream and the wildcard no longer lists (DLT-14), in steps."""
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
            if wild.tag is None:  # ORD-2: its removal waits until nothing refers to it
                self.leaving[name, None] = remnant(self.table.spec.url, name)
            else:
                self._depart(name, wild, batch)
        wild.initial = {}

    def _chunks(self, batch: Batch, now: float) -> Steps[list[Send]]:
        """Return the batch as responses: several, if one would be too large or have a name in both forms.

        DLT-21 limits the size. DYN-15 forbids a name both plain and with constraints in one response.
        """
        limit = self.settings.response_bytes
        if (yield from batch.weighing()) > limit:
            yield from self._refuse(batch, limit)
        sends = []
        for part in (yield from batch.in_parts(limit)):
            sends.append((yield from self._respond(part, now)))
            yield
        return sends

    def _refuse(self, batch: Batch, limit: int) -> Steps[None]:
        """Replace each resource that is too large for any response by an error (DLT-22)."""
        for variant in (yield from chosen(batch.variants, lambda variant: variant.size > limit)):
            batch.errors[self._oversize(variant)] = None
            batch.located.pop(variant, None)
            if batch.plain.get(variant.name) is variant:
                del batch.plain[variant.name]

    def _respond(self, batch: Batch, now: float, *, keep: bool = True) -> Steps[Send]:
        """Make the response with this batch, and wait for its ACK. `keep`: isolation needs its content after a NACK."""
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
        """Note the client's initial_resource_versions."""

    def _may_take_leave(self) -> bool:
        """Whether `_take_leave` can tell by now which of the client's resources are still subscribed."""
        return True

    def _completed(self, send: Send, _batch: Batch) -> Steps[Send]:
        """Return the response with what only virtual hosts have: aliases, and hosts that there are none for."""
        yield from ()
        return send

    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """Return a response with these heartbeats. In delta they have no contents."""
        version = str(self.table.revision)
        return Send(self.table.spec.url, True, self._nonce(), version, beats=plain, located_beats=located)  # noqa: FBT003
