"""State of the world: each request lists everything that the client wants of one type.

A request is read in three steps, and the steps do not depend on each other:

1. Judgement. A nonce that was sent and not yet judged makes the request the ACK or NACK of *that* response, be it the
   newest or not (NAK-11). Any other nonce judges nothing.
2. Interest. The list is taken as what the client wants now, whatever the nonce (SRV-14, SRV-16).
3. Answer. With the newest nonce, or none, what the list added is sent. With a stale nonce nothing is: the client has
   not seen the newest response and will speak again; what it added waits for that, or for the next push.

Listeners and clusters are sent as full state (SOT-4), all others one by one as they change (SOT-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from ..model.constraints import Constraint
from ..model.events import WILDCARD, Key, ResourceError, Send, SotwRequest
from ..model.facts import Facts
from ..model.limits import Refusal, SubscriptionBudget
from ..model.settings import Settings
from ..model.steps import EVERY, Steps, cut, finish, in_order, pieces
from ..model.table import Table
from ..model.types import Params, Variant
from ..model.views import digest_of, digesting
from .batch import Batch
from .fast_path import News, Replaced, SteadySession
from .interest import Interest
from .subscriptions import NameSubscription, WildcardSubscription


class SotwSession(SteadySession):
    """One type on one SotW stream."""

    __slots__ = (
        "_added",
        "_client_version",
        "_copies",
        "_digest",
        "_first",
        "_list",
        "_newest",
        "_refused_mark",
        "_stale",
        "_told_refused",
    )

    delta = False

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
        self._newest = ""  # the nonce of the newest response
        self._client_version = ""  # that the client says it accepted last
        self._list: tuple[Key, ...] = ()  # the last that the client sent, without what was refused
        self._refused_mark: int | None = None  # of all that was refused in it
        self._told_refused: frozenset[int] = frozenset()  # hashes of these, up to a limit
        self._added: dict[NameSubscription, None] = {}  # subscribed and not yet answered
        self._copies: dict[Variant, int] = {}  # by how many subscriptions the client has each
        self._digest = 0  # of all that it has
        self._stale = False  # the last request answered an old response, so additions wait

    # -- in

    def receive(self, request: SotwRequest, now: float, *, legacy_wildcard: bool = True) -> Steps[None]:
        wanted, refused = (yield from self._read(request.wanted)) if request.wanted else ((), {})
        self._client_version = request.version
        if self._first:
            self._first = False
            self._returns = bool(request.version)
            yield from self._begin(request, wanted, refused, legacy_wildcard=legacy_wildcard)
            return
        judged = self._judge(request.nonce, request.error, now) if request.nonce else None
        if judged is not None:
            self._forget_superseded()
            if request.error is not None and judged.send is not None:
                self.isolation.add_sotw(judged.send, is_outdated=judged.send.nonce != self._newest)
        self._stale = bool(request.nonce) and request.nonce != self._newest  # SRV-13
        if not self._is_list(wanted, refused):
            yield from self._want_exactly(wanted, refused)
        elif request.nonce == self._newest and judged is None and request.error is None:
            yield from self._repeat()

    def accept(self, request: SotwRequest, now: float) -> bool:
        """Here an ACK says all that is wanted, too; and it is that of the newest response."""
        if request.error is not None or request.nonce != self._newest or request.wanted != self._list:
            return False
        if not self.acknowledged(request, now):
            return False
        self._client_version = request.version
        if self.in_flight:
            self._forget_superseded()
        return True

    def _repeat(self) -> Steps[None]:
        """ORD-5: no news, and no ACK either, since that was before: Envoy asks so for a warming cluster's endpoints."""
        if self.table.spec.always_resend and self.progress.nack is None:
            for piece in pieces(self._wants):
                for name in piece:
                    self.resend(name)
                if len(piece) == EVERY:
                    yield

    def _read(self, names: tuple[Key, ...]) -> Steps[tuple[tuple[Key, ...], dict[Key, Refusal]]]:
        """What of a list can be wanted, and what is refused (DYN-46)."""
        refused: dict[Key, Refusal] = {}
        few = len(names) <= EVERY
        wanted = self._admitted(names, refused) if few else (yield from self._admitting(names, refused))
        if wanted != self._list:
            keys = dict.fromkeys(wanted) if few else (yield from in_order(wanted))
            if not self._room.is_short(len(keys)):
                return wanted, refused
            lacking = yield from self._lacking_room(keys, [key for key in self.keys() if key not in keys])
            if lacking:
                refused.update(lacking)
                wanted = tuple(key for key in wanted if key not in lacking)
        return wanted, refused

    def _is_list(self, wanted: tuple[Key, ...], refused: Mapping[Key, Refusal]) -> bool:
        """Whether this is what the client wanted before: the usual ACK."""
        return wanted == self._list and _mark(refused) == self._refused_mark

    def _begin(
        self,
        request: SotwRequest,
        wanted: tuple[Key, ...],
        refused: Mapping[Key, Refusal],
        *,
        legacy_wildcard: bool,
    ) -> Steps[None]:
        """SRV-10: a nonce in a first request is from another stream and means nothing here."""
        if not request.wanted and self.table.spec.wildcard and legacy_wildcard:
            self._add_wild((WILDCARD, None))  # WLD-1
        if wanted or refused:  # otherwise WLD-1: an empty list keeps a legacy wildcard
            yield from self._want_exactly(wanted, refused)
        self._due = bool(self._wilds) or (self.table.spec.full_state and bool(request.wanted))  # WLD-10, SOT-9
        if self.table.spec.full_state and not self._wants and list(self._whole_table) == [None]:
            yield from self._spare(request.version)

    def _spare(self, version: str) -> Steps[None]:
        """SOT-12: who wants everything and names the current version has everything."""
        wild = self._whole_table[None]
        if not version or not self.table.lists(wild.params):
            return
        yield from self.table.snapshotting(wild.params)
        snapshot = self.table.snapshot(wild.params)
        if version == _version(snapshot.digest) and not self.ttl.concerns(snapshot.variants):
            wild.started, self._due = True, False
            self._suppressed(len(snapshot.variants))

    def _refuse_once(self, refused: Mapping[Key, Refusal]) -> None:
        """A list names on and on what was refused: it is said once (ERR-3), and only hashes are kept (DYN-46)."""
        mark = _mark(refused)
        if mark == self._refused_mark:
            return
        if self._refused is not None:
            self._refused.keep(refused)
        told = self._told_refused
        self._refused_mark = mark
        self._told_refused = frozenset(islice(map(hash, refused), self.settings.limits.unresolved))
        self._refuse_keys({key: refusal for key, refusal in refused.items() if hash(key) not in told})

    def _want_exactly(self, wanted: tuple[Key, ...], refused: Mapping[Key, Refusal]) -> Steps[None]:
        self._refuse_once(refused)
        self._list = wanted
        tags = {tag for name, tag in wanted if name == WILDCARD}
        keys = dict.fromkeys(wanted) if len(wanted) <= EVERY else (yield from in_order(wanted))
        for tag in tags:
            keys.pop((WILDCARD, tag), None)
        held = [want for wants in self._wants.values() for want in wants.values()]
        for piece in pieces(held):
            for want in piece:
                if want.key not in keys:
                    self._drop(want)  # SOT-10: needs no response
            if len(piece) == EVERY:
                yield
        for tag in tags:
            self._due = self._due or tag not in self._whole_table
            self._add_wild((WILDCARD, tag))
        for named in pieces(keys):
            if len(named) < EVERY:
                new = [self._add(key) for key in named if self._find(key) is None]
            else:
                new = yield from self._adding(named)
                yield
            self._added.update(dict.fromkeys(new))
        for wild in [wild for tag, wild in self._whole_table.items() if tag not in tags]:
            self._drop_wild(wild)  # WLD-3, WLD-5: a list that names anything, or none any more, is taken literally

    def _drop(self, want: NameSubscription) -> None:
        self._added.pop(want, None)
        super()._drop(want)

    def _hold(self, want: NameSubscription, variant: Variant | None) -> None:
        """SRV-12: the version is about what the client has, not about how many ways it asked for it."""
        copies, held = self._copies, want.held
        if held is not None:
            left = copies[held] - 1
            if left:
                copies[held] = left
            else:
                del copies[held]
                self._digest -= held.digest
        if variant is not None:
            had = copies.get(variant, 0)
            copies[variant] = had + 1
            self._digest += 0 if had else variant.digest
        super()._hold(want, variant)

    def _forget_superseded(self) -> None:
        """S10. A heartbeat that is not answered keeps the resource that the client has, whichever version that is."""
        for response in self.in_flight.drop_superseded():
            self.ttl.accepted(response)

    # -- out

    @property
    def at_rest(self) -> bool:
        odd = self._stale or self._added or self.isolation or self._first
        return not odd and super().at_rest

    def _shared(self, replaced: list[Replaced]) -> Send | None:
        """SOT-5. SRV-12: the version is that of all the client has, which need not be the same for all who get this."""
        (want, after), *more = replaced
        held = want.held
        if more or held is None or self._full_state or self._copies[held] != 1 or after in self._copies:
            return None
        return self._once(_version(self._digest - held.digest + after.digest), (after,), located=want.located)

    def _shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """By what the client has then, and what of it is new."""
        held, copies, shared = want.held, self._copies, self.table.shared
        if want.key[1] is not None or held is None or held.version == after.version or self._full_state:
            return super()._shared_name(want, after)
        if copies[held] != 1 or after in copies:
            return None
        key = self._digest - held.digest + after.digest, after
        send = shared.get(key)
        if send is None:
            send = self._once(_version(key[0]), (after,), located=False)
            if send is not None:
                shared[key] = send
        return send

    def _shared_wild(self, wild: WildcardSubscription, news: News) -> Send | None:
        """SOT-4, or SOT-5."""
        snapshot = self.table.snapshot(wild.params)
        return self._once(_version(snapshot.digest), snapshot.variants if self._full_state else news, located=False)

    def _once(self, version: str, variants: News, *, located: bool) -> Send | None:
        key = False, located, version, variants
        send = self.table.shared.get(key)
        if send is None and not self.ttl.concerns(variants):
            url, nonce = self.table.spec.url, self._nonce()
            plain, other = ((), variants) if located else (variants, ())
            send = self.table.shared[key] = Send(url, False, nonce, version, plain, other)  # noqa: FBT003
        return send

    def _pushed_out(self, send: Send, now: float) -> Send:
        self._newest = send.nonce
        return super()._pushed_out(send, now)

    @property
    def pending(self) -> bool:
        if self._stale:
            return self._pushed
        return bool(self._added or (self.isolation.is_waiting and self.in_flight.room)) or super().pending

    @property
    def _pushed(self) -> bool:
        """The store has news, apart from anything that the client asked."""
        wilds = self._whole_table.values()
        return bool(self._dirty) or any(wild.started and wild.is_behind for wild in wilds)

    @property
    def _whole_table(self) -> Mapping[Params | None, WildcardSubscription]:
        """XTP-8: there are no other wildcards in SotW."""
        return self._wilds.get(WILDCARD, {})

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """What is to be said now. `together`: removals need not wait for other types."""
        if not self.pending or (self._full_state and self._waits):
            return []  # SOT-4: what a full response lacks is gone, so what is not known can't be left out
        greeting = self.greet(now) if not self.progress.sent else None
        if greeting is not None:
            self._newest = greeting[0].nonce
            return greeting
        if self._pushed:
            self.isolation.note_change()
        due, batch = yield from self._gather()
        if not self._full_state:
            batch.join(self.release())
            return self._changed(batch, now, due=due) + self._send_alone(batch, now)
        if together and self.leaving:
            batch.join(self.release())
        return [(yield from self._whole(batch, now))] if due or batch else []

    @property
    def backlog(self) -> int:
        return len(self._added) + super().backlog

    def _gather(self) -> Steps[tuple[bool, Batch]]:
        """Whether an answer is due whatever there is to say, and what there is."""
        self._dirty.update(self._added)
        self._added.clear()
        due = self._due and not self._waits
        self._due = self._due and not due
        batch = yield from self.collect()
        self.news = batch.variants
        if self._refused:
            # Full state is of one moment, from the last look on.
            refused = self._answer_refused()
            batch.join(finish(refused) if self._full_state else (yield from refused))
        return due, batch

    def settle(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """These removals may go: in full state by leaving them out (SOT-6). SRV-14: with all else there is to say."""
        if self._full_state and self._waits:
            return []
        due, batch = finish(self._gather())
        batch.join(self.release(keys))
        return [finish(self._whole(batch, now))] if due or batch else []

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """SOT-7: where a removal can't be said, it can't be accepted either, and what is gone holds nothing up."""
        batch = super().release(keys)
        if self.rejections.discard_unless(lambda part: any(self._held(part.name, located=part.located))):
            self.progress.nack = None
        return batch

    def _changed(self, batch: Batch, now: float, *, due: bool) -> list[Send]:
        """Only what changed (SOT-5). DYN-15: a name in both forms goes out in two responses."""
        plain, located, errors = tuple(batch.plain.values()), tuple(batch.located), tuple(batch.errors)
        other = {variant.name for variant in located}.union(error.about.name for error in errors)
        both = not other.isdisjoint(variant.name for variant in plain)
        parts = [(plain, (), ()), ((), located, errors)] if both else [(plain, located, errors)]
        version = self._current
        return [self._respond(version, *part, now) for part in parts if due or any(part)]

    @property
    def _current(self) -> str:
        """SRV-12: of all that the client has, not only of what it is being sent."""
        return _version(digest_of({variant for _, variant in self._holdings()}) if self._wilds else self._digest)

    def _send_alone(self, batch: Batch, now: float) -> list[Send]:
        """Send what a NACK put aside, each resource alone, unless this poll has said it or it is outdated."""
        self.isolation.drop_outdated(self)
        parts = self.isolation.take(batch, self, self.in_flight.room, self.settings.response_bytes)
        version = self._current if parts else ""
        return [self._respond(version, tuple(part.plain.values()), tuple(part.located), (), now) for part in parts]

    def _whole(self, batch: Batch, now: float) -> Steps[Send]:
        """SOT-4, DYN-23: every subscribed resource that exists, and what is leaving but may not go yet (ORD-3)."""
        errors = tuple(batch.errors)
        if not self._wants and not self.leaving and list(self._whole_table) == [None]:
            snapshot = self.table.snapshot(self._whole_table[None].params)
            return self._respond(_version(snapshot.digest), snapshot.variants, (), errors, now)
        plain: dict[str, Variant] = {}
        located: dict[tuple[str, Constraint], Variant] = {}
        # What the client has changes by this session's work alone, and wildcards are looked at in the first step. So
        # the response is about that moment, whatever the store becomes between two steps.
        is_long = self.count > EVERY or bool(self._whole_table)
        held: Iterable[Iterable[tuple[Params | None, Variant]]] = [self._holdings()]
        for piece in cut(self._holdings(), 8 * EVERY) if is_long else held:
            for tag, variant in piece:
                if tag is None:
                    plain[variant.name] = variant
                else:
                    located[variant.identity] = variant
            if is_long:
                yield
        plain_sorted = tuple([plain[name] for name in sorted(plain)])
        if len(plain) > EVERY:
            yield
        if is_long:
            every = yield from in_order((*plain_sorted, *located.values()))  # one may be there in both forms
            version = _version((yield from digesting(every)))
        else:
            version = _version(digest_of({*plain_sorted, *located.values()}))
        ordered = located.values() if self.table.authoritative else self._oldest_first(located.values())
        return self._respond(version, plain_sorted, tuple(ordered), errors, now)

    def _holdings(self) -> Iterable[tuple[Params | None, Variant]]:
        """What is leaving comes first: where something else has taken its place, that counts.

        So does what a client keeps only until a cache knows what comes in its place (PRX-38): of overlapping variants
        the last wins (DYN-45).
        """
        wants = [want for wants in self._wants.values() for want in wants.values() if want.key not in self.leaving]
        kept = {want: None for want in wants if not self._knows(want)} if not self.table.authoritative else {}
        listed = [(tag, self.table.snapshot(wild.params).variants) for tag, wild in self._whole_table.items()]
        yield from [(tag, variant) for (_, tag), variant in self.leaving.items()]
        yield from ((want.key[1], want.held) for want in kept if want.held is not None)
        for tag, variants in listed:
            yield from ((tag, variant) for variant in variants)
        yield from ((want.key[1], want.held) for want in wants if want.held is not None and want not in kept)

    def _respond(
        self,
        version: str,
        plain: tuple[Variant, ...],
        located: tuple[Variant, ...],
        errors: tuple[ResourceError, ...],
        now: float,
    ) -> Send:
        self._newest = self._nonce()
        self._stale = False
        url, ttl = self.table.spec.url, self.ttl.concerns((*plain, *located))
        send = Send(url, False, self._newest, version, plain, located, errors=errors, ttl=ttl)  # noqa: FBT003
        return self._sent(send, now)

    # -- heartbeats

    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """The encoder sends these with their contents. The version stays: nothing is new."""
        self._newest = self._nonce()
        url, version = self.table.spec.url, self._client_version
        return Send(url, False, self._newest, version, beats=plain, located_beats=located)  # noqa: FBT003


def _mark(refused: Mapping[Key, Refusal]) -> int | None:
    """What tells one set of refused subscriptions from another, however long their names are."""
    return hash(frozenset(refused)) if refused else None


def _version(digest: int) -> str:
    return f"{digest & 0xFFFF_FFFF_FFFF_FFFF:016x}"
