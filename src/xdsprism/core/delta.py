"""Delta: each request says what changes in what the client wants; each response, what changed in what it gets.

Subscriptions count whatever the nonce (DLT-10). What a response removed and what it brought are in one message where
the removal is the other half of a replacement (DYN-24); what only goes away goes last, in a message of its own, when
other types on the stream still have to move off it (ORD-3).

A NACK of several resources does not say which one was bad, and Envoy may have applied all, some or none of them. So
the response counts as not delivered and its resources go out once more, each alone: the good ones arrive and the bad
ones are named by the NACKs that remain (NAK-29).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from .answers import AnsweredSession, Part
from .batch import Batch, Slot
from .constraints import canonical, matches
from .events import WILDCARD, Absence, DeltaRequest, Key, Send
from .facts import Fact
from .hosts import explicit, split
from .interest import Interest
from .settings import Settings
from .subscription import ABSENT
from .table import Table
from .types import Params, Variant, remnant
from .wants import Want, Wild, check_keys

AHEAD = 4  # responses about virtual hosts that may be under way
PATIENCE = 0.5  # seconds


class DeltaSession(AnsweredSession):
    """One type on one delta stream."""

    delta = True

    def __init__(
        self, table: Table, interest: Interest, settings: Settings, params: Params, stream: int, facts: list[Fact]
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts)
        self._first = True
        # NAK-29: to be sent again, each by itself; by slot, so that there can't be more of it than of resources.
        self._alone: dict[Slot, Batch] = {}
        self._gone = Batch()  # removals to be said again
        self._released: dict[str, None] = {}  # route configurations whose listeners wait for a virtual host (V3)
        self.is_alone = False  # there are no other types on this stream
        self.configs: Callable[[], Iterable[str]] = tuple  # route configurations with virtual hosts on demand
        self._doubtful: dict[str, dict[Absence, None]] = {}  # withdrawn by a response that was rejected; by name

    # -- in

    def receive(self, request: DeltaRequest, now: float, *, legacy_wildcard: bool = True) -> None:
        check_keys((*request.subscribe, *request.unsubscribe), self.settings)
        if request.nonce:
            rejected = self._judge(request.nonce, request.error, now)
            if rejected is not None and request.error is not None and rejected.send is not None:
                self._isolate(rejected.send)
        first, self._first = self._first, False
        initial = request.initial_versions if first else {}  # DLT-16: only on the first message of the type
        self._returns = self._returns or bool(initial)
        if first and not request.subscribe and not request.unsubscribe:
            self._begin_wild(initial, legacy=legacy_wildcard and self.table.spec.has_wildcard)
        wanted = dict.fromkeys(request.subscribe)
        for key in wanted:  # first, so that a name takes over what its wildcard held when that goes
            self._subscribe(key, initial)
        for key in request.unsubscribe:
            if key not in wanted:  # DLT-18
                self._unsubscribe(key, wanted)

    def _begin_wild(self, initial: Mapping[str, str], *, legacy: bool) -> None:
        """WLD-8: only a first message without any name means everything, and only for types that have it."""
        if legacy:
            self._subscribe((WILDCARD, None), initial)

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        name, tag = key
        if name == WILDCARD:
            if tag in self._wilds:
                self._wilds[tag].again = True  # DLT-3: asked again, answered again
            else:
                self._add_wild(tag).initial = initial
            self._due = self._due or not initial  # WLD-10; who comes back with all it needs is told nothing
            return
        want = self._add(key)
        want.answered = False  # DLT-3: asked again, answered again
        self._dirty[want] = None
        self._spare(want, initial)

    def _spare(self, want: Want, initial: Mapping[str, str]) -> None:
        """DLT-13: on the first message, what the client has in its current version is not sent again."""
        want.claimed = initial or None
        current = self._selected(want) if initial else None
        if current is not None and self._is_claimed(want, current):
            self._hold(want, current)

    def _unsubscribe(self, key: Key, wanted: Container[Key]) -> None:
        name, tag = key
        if name == WILDCARD:
            if tag in self._wilds:
                self._drop_wild(self._wilds[tag])  # WLD-9: the client drops what only the wildcard gave it
            return
        for want in self._meant(key):
            if want.key in wanted:
                continue  # an alias of what the same message subscribes
            held = want.held
            self._drop(want)
            if tag in self._wilds:  # WLD-6: the wildcard may still cover it; the client has to know
                self._owed[held.name if held is not None else want.name, tag] = None

    def _drop_wild(self, wild: Wild) -> None:
        super()._drop_wild(wild)
        self._forget_doubts(list(self._doubtful))

    def _drop(self, want: Want) -> None:
        held = want.held
        super()._drop(want)
        self._forget_doubts([want.name] if held is None else [want.name, held.name])

    def _forget_doubts(self, names: Iterable[str]) -> None:
        """What no locator covers any more, be it by an alias or as a wildcard, the client drops by itself (WLD-9)."""
        for name in names:
            if name in self._doubtful and not self._asked(name, located=True):
                del self._doubtful[name]

    def _meant(self, key: Key) -> list[Want]:
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
        """NAK-29. A response with one resource is its own proof: it is parked until it changes (NAK-3)."""
        batch = Batch({variant.name: variant for variant in send.plain}, dict.fromkeys(send.located))
        batch.removed = dict.fromkeys(send.removed)
        batch.withdrawn = {absence: None for absence in send.withdrawn if not absence.never}
        self._deny_again(absence for absence in send.withdrawn if absence.never)
        for name in send.unresolved:  # VHD-24: the good ones arrive, with a version of their own (V8)
            for want in self._wants.get(name, {}).values():
                want.answered = False
                self._dirty[want] = None
        units, gone = batch.alone()
        if len(units) + bool(gone) + bool(send.unresolved) > 1:
            for slot, unit in units.items():
                unit.withdrawn.update(self._alone.pop(slot, unit).withdrawn)
                self._alone[slot] = unit
            self._gone.join(gone)
            return
        for variant in batch.located:
            if self._has(variant, located=True):
                self._doubtful.setdefault(variant.name, {}).update(batch.withdrawn)
            else:
                self._gone.withdrawn.update(batch.withdrawn)  # it was overtaken: what it replaced must still go

    def _deny_again(self, absences: Iterable[Absence]) -> None:
        """A negative answer is not repeated as it was: it is given anew, as things are by then (DESIGN 6.4)."""
        for absence in absences:
            for want in self._wants.get(absence.name, {}).values():
                if want.absence == absence.constraint:
                    want.answered = False
                    self._dirty[want] = None
            for wild in self._wilds.values():
                gone = wild.tag is not None and self.table.member(absence.name, wild.params) is None
                if gone and matches(absence.constraint, wild.params):
                    self._owed[absence.name, wild.tag] = None

    # -- out

    def rerouted(self, config: str) -> None:
        """VHD-16: where the route configuration itself goes by another stream, nothing else would say so."""
        if self.is_alone:
            self.revisit({config})

    def revisit(self, configs: Collection[str]) -> None:
        """VHD-16: route configurations changed, so their virtual hosts are sent again, after them.

        VHD-23: of one that is new Envoy does not ask for the base set (V4).
        """
        for want in (want for wants in self._wants.values() for want in wants.values()):
            if want.held is not None and split(want.name)[0] in configs:
                want.answered = False
                self._dirty[want] = None
        for tag, wild in self._wilds.items():
            for config, name in self._base(wild):
                if config in configs and self._find((name, tag)) is None:
                    self._owed[name, tag] = None
            if tag is None and wild.started:
                self._released.update(dict.fromkeys(configs))

    def _base(self, wild: Wild) -> Iterator[tuple[str, str]]:
        """The base set: route configurations and names."""
        return ((split(variant.name)[0], variant.name) for variant in self.table.snapshot(wild.params).variants)

    def _collect_wild(self, wild: Wild, batch: Batch) -> None:
        super()._collect_wild(wild, batch)
        if wild.tag is None and wild.started:
            released, self._released = self._released, {}
            based = {config for config, _ in self._base(wild)} if released else set()
            for config in released:
                if config not in based:
                    batch.removed[f"{config}/_"] = None  # V3: the cheapest answer that ends Envoy's waiting
        if wild.initial and wild.started:
            self._take_leave(wild, batch)

    @property
    def pending(self) -> bool:
        return bool((self._alone or self._gone) and self._room) or bool(self._released) or super().pending

    @property
    def paced_until(self) -> float | None:
        """VHD-24: Envoy makes its whole table anew with each response, which takes the longer the more it has (V18).

        So where it does not keep up, what is asked meanwhile waits for it and goes out together. A client that answers
        nothing waits for a moment only.
        """
        late = self.table.spec.on_demand and len(self._unjudged) >= AHEAD and self.pending
        return self.progress.sent_at + PATIENCE if late and self.progress.sent_at is not None else None

    def poll(self, now: float, *, together: bool = True) -> list[Send]:
        """What is to be said now. `together`: removals need not wait for other types."""
        if not self.pending or now < (self.paced_until or now):
            return []
        due = self._due and not self._waits
        self._due = self._due and not due
        batch = self.collect()
        if together and self.leaving:
            batch.join(self.release([key for key, held in self.leaving.items() if not held.is_remnant]))
        self._take_along(batch)
        sends = self._chunks(batch, now) if batch or due else []
        alone = self._next_alone(batch)
        self.news = (*batch.variants, *(variant for part in alone for variant in part.variants))
        return sends + [self._respond(part, now) for part in alone]

    def settle(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """These removals may go."""
        gone = self.release(keys)
        self._take_along(gone)
        return self._chunks(gone, now) if gone else []

    def _take_along(self, batch: Batch) -> None:
        """What a rejected response withdrew may still be there, next to what comes now (TP2, Matching Ambiguity).

        DYN-24: so it goes in the same response, whether what replaced it was parked or waits to be sent alone. What
        waits and is said now, or is not so any more, need not be said again.
        """
        names = {variant.name for variant in batch.located}
        names.update(absence.name for absence in batch.withdrawn if not absence.never)
        for name in names.intersection(self._doubtful):
            doubtful = self._doubtful.pop(name)
            batch.withdrawn.update((absence, None) for absence in doubtful if self._is_gone(absence))
        for slot in [slot for slot in self._alone if slot[1] in (names if slot[0] else batch.plain)]:
            part = self._still(self._alone[slot])
            batch.withdrawn.update(part.withdrawn)
            if part.plain or part.located.keys() <= batch.located.keys():
                del self._alone[slot]

    def _next_alone(self, batch: Batch) -> list[Batch]:
        """Of what waits to be sent alone: what is still the state of things."""
        parts: list[Batch] = []
        room = self._room
        while self._alone and len(parts) < room:
            part = self._still(self._alone.pop(next(iter(self._alone))))
            parts += [part] if part else []
        if not self._alone and len(parts) < room and self._gone:
            gone, self._gone = self._still(self._gone), Batch()
            gone.removed = {name: None for name in gone.removed if name not in batch.removed}
            gone.withdrawn = {absence: None for absence in gone.withdrawn if absence not in batch.withdrawn}
            parts += gone.parts(self.settings.response_bytes) if gone else []
        return parts

    def _still(self, part: Batch) -> Batch:
        """What of it is still so."""
        plain = {name: v for name, v in part.plain.items() if self._has(v, located=False)}
        located = {variant: None for variant in part.located if self._has(variant, located=True)}
        still = Batch(plain, located)
        for name in part.removed:
            if self._may_have(name, located=False) and not any(self._held(name, located=False)):
                still.removed[name] = None
        for absence in part.withdrawn:
            if self._may_have(absence.name, located=True) and self._is_gone(absence):
                still.withdrawn[absence] = None
        for (_, tag), held in self.leaving.items() if still.removed or still.withdrawn else ():
            still.spare(held, located=tag is not None)  # it came and goes again, and that will be said in its time
        return still

    def _asked(self, name: str, *, located: bool) -> bool:
        return self._wanted(Part(name, located, None, name))

    def _may_have(self, name: str, *, located: bool) -> bool:
        """Whether the client had this by one of its subscriptions: perhaps one by an alias that nobody knows now."""
        wants = (want for wants in self._wants.values() for want in wants.values())
        lacking = (want for want in wants if want.held is None and want.located == located)
        return self._asked(name, located=located) or any(lacking)

    def _is_gone(self, absence: Absence) -> bool:
        gone = canonical(absence.constraint)  # DYN-30
        return all(held.identity[1] != gone for held in self._held(absence.name, located=True))

    def _start_member(self, wild: Wild, variant: Variant, batch: Batch) -> None:
        """DLT-13: a member that the client has in this version is not sent again."""
        due = self.table.spec.always_resend or variant.ttl is not None  # TTL-2: how long it is good, nobody knows
        if wild.initial.get(variant.name) == variant.version and not due:
            self._suppressed(1)
        else:
            super()._start_member(wild, variant, batch)

    def _start(self, wild: Wild, batch: Batch) -> None:
        """VHD-13: the base set, and for route configurations without one an answer all the same."""
        super()._start(wild, batch)
        if self.table.spec.on_demand and wild.tag is None:
            self._released.update(dict.fromkeys(self.configs()))  # VHD-13

    def _take_leave(self, wild: Wild, batch: Batch) -> None:
        """DLT-14: of what the client has from an earlier stream, what is not there for it any more goes."""
        if self.table.spec.on_demand and self._waits:
            return  # what it asks for by hosts may turn out to be it
        for name in wild.initial:
            held = self._held(name, located=wild.tag is not None)
            still = any(wild.tag is None or matches(variant.constraint, wild.params) for variant in held)
            if still or self._find((name, wild.tag)) is not None:
                continue
            if wild.tag is None:  # ORD-2: it goes when whoever may refer to it has moved on
                self.leaving[name, None] = remnant(self.table.spec.url, name)
            else:
                self._depart(name, wild, batch)
        wild.initial = {}

    def _chunks(self, batch: Batch, now: float) -> list[Send]:
        """DLT-21, DYN-15: in several responses, where it is too much for one or there are two forms of a name."""
        limit = self.settings.response_bytes
        if batch.size > limit:
            self._refuse(batch, limit)
        return [self._respond(part, now) for part in batch.parts(limit)]

    def _refuse(self, batch: Batch, limit: int) -> None:
        """DLT-22: what is too large for any response becomes an error."""
        for variant in [variant for variant in batch.variants if variant.size > limit]:
            batch.errors[self._oversize(variant)] = None
            batch.located.pop(variant, None)
            if batch.plain.get(variant.name) is variant:
                del batch.plain[variant.name]

    def _respond(self, batch: Batch, now: float) -> Send:
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
        if self.table.spec.on_demand:
            absent = f"{ABSENT}{self.settings.epoch}.{self.stream}.{send.nonce}"  # V8: a new one each time
            plain = tuple(self._strings(variant, located=False) for variant in send.plain)
            located = tuple(self._strings(variant, located=True) for variant in send.located)
            send = replace(send, unresolved=tuple(batch.unresolved), absent=absent, aliases=plain + located)
        return self._sent(send, now)

    def _strings(self, variant: Variant, *, located: bool) -> tuple[str, ...]:
        """VHD-4: every explicit domain, and whatever this client called it."""
        config, _ = split(variant.name)
        strings = dict.fromkeys(f"{config}/{domain}" for domain in explicit(variant.domains))
        for want in self._aliased.get(variant.name, {}):
            if want.located == located and want.held is not None and want.held.identity == variant.identity:
                strings[want.name] = None
        return tuple(string for string in strings if string != variant.name and string not in variant.aliases)

    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        version = str(self.table.revision)
        return Send(self.table.spec.url, True, self._nonce(), version, beats=plain, located_beats=located)  # noqa: FBT003
