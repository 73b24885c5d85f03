"""Delta: each request says what changes in what the client wants; each response, what changed in what it gets.

Subscriptions count whatever the nonce (DLT-10). What a response removed and what it brought are in one message where
the removal is the other half of a replacement (DYN-24); what only goes away goes last, in a message of its own, when
other types on the stream still have to move off it (ORD-3).

A NACK of several resources does not say which one was bad, and Envoy may have applied all, some or none of them. So
the response counts as not delivered and its resources go out once more, each alone: the good ones arrive and the bad
ones are named by the NACKs that remain (NAK-29).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .events import WILDCARD, DeltaRequest, Key, Send
from .facts import Fact
from .interest import Interest
from .settings import Settings
from .store import Table
from .subscription import UNJUDGED, Batch, Session, Want, Wild, check_keys
from .types import Params, Variant

REMOVALS = 10_000  # names that go together when removals have to be split


class DeltaSession(Session):
    """One type on one delta stream."""

    delta = True

    def __init__(
        self, table: Table, interest: Interest, settings: Settings, params: Params, stream: int, facts: list[Fact]
    ) -> None:
        super().__init__(table, interest, settings, params, stream, facts)
        self._first = True
        self._alone: list[Batch] = []  # NAK-29: to be sent again, each by itself

    # -- in

    def receive(self, request: DeltaRequest, now: float, *, legacy_wildcard: bool = True) -> None:
        check_keys((*request.subscribe, *request.unsubscribe), self.settings)
        if request.nonce:
            rejected = self._judge(request.nonce, request.error, now)
            if rejected is not None and request.error is not None and rejected.send is not None:
                self._isolate(rejected.send)
        first, self._first = self._first, False
        initial = request.initial_versions if first else {}  # DLT-16: only on the first message of the type
        if first and not request.subscribe and not request.unsubscribe:
            self._begin_wild(initial, legacy=legacy_wildcard and self.table.spec.wildcard)
        for key in request.unsubscribe:
            if key not in request.subscribe:  # DLT-18
                self._unsubscribe(key)
        for key in dict.fromkeys(request.subscribe):
            self._subscribe(key, initial)

    def _begin_wild(self, initial: Mapping[str, str], *, legacy: bool) -> None:
        """WLD-8: only a first message without any name means everything, and only for types that have it."""
        if legacy:
            self._subscribe((WILDCARD, None), initial)

    def _subscribe(self, key: Key, initial: Mapping[str, str]) -> None:
        name, tag = key
        if name == WILDCARD:
            wild = self._add_wild(tag)
            wild.started = False  # DLT-3: asked again, answered again
            wild.initial = initial
            self._due = not initial  # WLD-10; who comes back with all it needs is told nothing
            return
        want = self._add(key)
        want.answered = False  # DLT-3: asked again, answered again
        self._dirty[want] = None
        self._spare(want, initial.get(name))

    def _spare(self, want: Want, version: str | None) -> None:
        """DLT-13: on the first message, what the client has in its current version is not sent again."""
        current = self.table.select(want.name, want.params)
        if current is None or current.version != version or self.table.spec.always_resend:
            return
        want.held, want.answered = current, True
        self._suppressed(1)

    def _unsubscribe(self, key: Key) -> None:
        name, tag = key
        if name == WILDCARD:
            if tag in self._wilds:
                self._drop_wild(self._wilds[tag])  # WLD-9: the client drops what only the wildcard gave it
            return
        for want in self._meant(key):
            self._drop(want)
            if tag in self._wilds:
                self._owed[want.key] = None  # WLD-6: the wildcard may still cover it; the client has to know

    def _meant(self, key: Key) -> list[Want]:
        """DLT-20: a resource can be unsubscribed by its name or by any alias. DLT-8: or it never was subscribed."""
        want = self._find(key)
        if want is not None:
            return [want]
        name, tag = key
        known = self.table.get(name)
        if known is None:
            return []
        strings = (known.variants[0].name, *known.aliases)
        found = (self._find((string, tag)) for string in strings)
        return [want for want in found if want is not None]

    def _isolate(self, send: Send) -> None:
        """NAK-29. A response with one resource is its own proof: it is parked until it changes (NAK-3)."""
        batch = Batch(
            {variant.name: variant for variant in send.plain},
            dict.fromkeys(send.located),
            dict.fromkeys(send.removed),
            dict.fromkeys(send.withdrawn),
        )
        units = list(_units(batch))
        if len(units) > 1:
            self._alone += units

    # -- out

    @property
    def pending(self) -> bool:
        return bool(self._alone and self._room) or super().pending

    @property
    def _room(self) -> int:
        """How many more responses may go out alone: a client that NACKs thousands is asked a few at a time."""
        return max(0, UNJUDGED // 2 - len(self._unjudged))

    def poll(self, now: float, *, together: bool = True) -> list[Send]:
        """What is to be said now. `together`: removals need not wait for other types."""
        if not self.pending:
            return []
        due, self._due = self._due, False
        batch = self.collect()
        if together and self.leaving:
            _join(batch, self.release())
        sends = self._chunks(batch, now) if batch or due else []
        return sends + [self._respond(part, now) for part in self._next_alone(batch)]

    def settle(self, now: float) -> list[Send]:
        """Removals may go."""
        return self._chunks(self.release(), now)

    def _next_alone(self, batch: Batch) -> list[Batch]:
        """Of what waits to be sent alone: what this poll did not say anyway, and what is still the state of things."""
        parts: list[Batch] = []
        room = self._room
        while self._alone and len(parts) < room:
            part = self._alone.pop(0)
            part.plain = {n: v for n, v in part.plain.items() if n not in batch.plain and self._holds(v, located=False)}
            part.located = {v: None for v in part.located if v not in batch.located and self._holds(v, located=True)}
            part.removed = {n: None for n in part.removed if self.table.select(n, self.params) is None}
            if part:
                parts.append(part)
        return parts

    def _holds(self, variant: Variant, *, located: bool) -> bool:
        """Whether this is (to our knowledge) what the client should have."""
        wants = self._wants.get(variant.name, {}).values()
        if any(want.held is variant and want.located == located for want in wants):
            return True
        wilds = [wild for wild in self._wilds.values() if (wild.tag is not None) == located]
        return any(self.table.select(variant.name, wild.params) is variant for wild in wilds)

    def _start_member(self, wild: Wild, variant: Variant, batch: Batch) -> None:
        """DLT-13: a member that the client has in this version is not sent again."""
        if wild.initial.get(variant.name) == variant.version and not self.table.spec.always_resend:
            self._suppressed(1)
        else:
            super()._start_member(wild, variant, batch)

    def _start(self, wild: Wild, batch: Batch) -> None:
        """DLT-14: what the client still has from an earlier stream, and what is not there for it any more."""
        super()._start(wild, batch)
        for name in wild.initial:
            if self.table.select(name, wild.params) is None:
                self._depart(name, wild, batch)
        wild.initial = {}

    def _chunks(self, batch: Batch, now: float) -> list[Send]:
        """DLT-21: a response past the size limit is split, and each part is a whole response.

        DYN-15: so is one with the same name in both forms.
        """
        limit = self.settings.response_bytes
        names = {variant.name for variant in batch.located}
        if _size(batch) <= limit and names.isdisjoint(batch.plain):
            return [self._respond(batch, now)]
        parts, filled = [Batch()], 0
        for unit in sorted(_units(batch), key=lambda unit: bool(unit.located)):
            size = _size(unit)
            if size > limit:
                unit, size = self._refuse(unit), 0  # noqa: PLW2901
            if filled + size > limit or (unit.located and parts[-1].plain):
                parts.append(Batch())
                filled = 0
            _join(parts[-1], unit)
            filled += size
        return [self._respond(part, now) for part in parts]

    def _refuse(self, unit: Batch) -> Batch:
        variants = (*unit.plain.values(), *unit.located)
        return Batch(errors={self._oversize(variant): None for variant in variants}, withdrawn=unit.withdrawn)

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
        return self._sent(send, now)


def _units(batch: Batch) -> Iterator[Batch]:
    """The smallest responses that this one can be taken apart into.

    A variant and the one that it replaces stay together (DYN-24), and so do plain removals.
    """
    for name, variant in batch.plain.items():
        yield Batch(plain={name: variant})
    replaced = {variant.name for variant in batch.located} & {absence.name for absence in batch.withdrawn}
    for variant in batch.located:
        if variant.name not in replaced:
            yield Batch(located={variant: None})
    for name in sorted(replaced):
        yield Batch(
            located={variant: None for variant in batch.located if variant.name == name},
            withdrawn={absence: None for absence in batch.withdrawn if absence.name == name},
        )
    for start in range(0, len(batch.removed), REMOVALS):
        yield Batch(removed=dict.fromkeys(list(batch.removed)[start : start + REMOVALS]))
    gone = {absence: None for absence in batch.withdrawn if absence.name not in replaced}
    if gone or batch.errors:
        yield Batch(withdrawn=gone, errors=batch.errors)


def _join(batch: Batch, other: Batch) -> None:
    batch.plain.update(other.plain)
    batch.located.update(other.located)
    batch.removed.update(other.removed)
    batch.withdrawn.update(other.withdrawn)
    batch.errors.update(other.errors)


def _size(batch: Batch) -> int:
    bodies = sum(variant.size for variant in (*batch.plain.values(), *batch.located))
    return bodies + sum(len(name) + 4 for name in batch.removed) + 256 * (len(batch.withdrawn) + len(batch.errors))
