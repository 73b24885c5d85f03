"""Read State-of-the-World requests of one type, and make SotW responses.

Each request lists everything that the client wants of the type. A request is read in three steps, and the steps do not
depend on each other:

1. ACK or NACK. A nonce of a response that is in flight makes the request the answer to *that* response, whether it is
   the newest or not (NAK-11). Any other nonce answers nothing.
2. Subscriptions. The list replaces the subscriptions, whatever the nonce (SRV-14, SRV-16).
3. Response. With the newest nonce, or none, the session sends what the list added. With a stale nonce it sends nothing:
   the client has not seen the newest response and will send another request. What the list added waits for that, or for
   the next push.

Types of two kinds differ in what a response holds. Clusters, listeners and scoped routes are sent as full state: each
response has all subscribed resources, and a resource that is missing from it is removed (SOT-4, SOT-6). For all other
types a response has the changed resources only (SOT-5), and SotW can't express a removal (SOT-7).

The version of a response is a hash of all that the client holds once it has applied the response (SRV-12). So it is the
same on all replicas, and a client that comes back with the current version need not be sent anything (SOT-12).
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
        self._client_version = ""  # version_info of the last request
        self._list: tuple[Key, ...] = ()  # the keys of the last request, without the refused ones
        self._refused_mark: int | None = None  # a hash of the keys of the last request that were refused
        self._told_refused: frozenset[int] = frozenset()  # hashes of refused keys that were answered, up to a limit
        self._added: dict[NameSubscription, None] = {}  # new subscriptions that are not answered yet
        self._copies: dict[Variant, int] = {}  # by how many subscriptions the client holds each variant
        self._digest = 0  # the hash of all that the client holds by name
        self._stale = False  # the last request had a stale nonce, so its additions wait

    # -- in

    def receive(self, request: SotwRequest, now: float, *, legacy_wildcard: bool = True) -> Steps[None]:
        """Take one request, in steps: the ACK or NACK, then the list."""
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
        # The same list once more, with a nonce that was ACKed before.
        elif request.nonce == self._newest and judged is None and request.error is None:
            yield from self._repeat()

    def accept(self, request: SotwRequest, now: float) -> bool:
        """Take an ACK on the fast path. Return False if the request is more than the ACK of the newest response.

        A SotW ACK repeats the list, so it must be the same list as before.
        """
        if request.error is not None or request.nonce != self._newest or request.wanted != self._list:
            return False
        if not self.acknowledged(request, now):
            return False
        self._client_version = request.version
        if self.in_flight:
            self._forget_superseded()
        return True

    def _repeat(self) -> Steps[None]:
        """Send all resources again to a client that repeats its request without an ACK (ORD-5).

        Envoy does so for the endpoints of a warming cluster, so only types with `always_resend` are sent.
        """
        if self.table.spec.always_resend and self.progress.nack is None:
            for piece in pieces(self._wants):
                for name in piece:
                    self.resend(name)
                if len(piece) == EVERY:
                    yield

    def _read(self, names: tuple[Key, ...]) -> Steps[tuple[tuple[Key, ...], dict[Key, Refusal]]]:
        """Return the keys of a list that can be subscribed, and those that are refused (DYN-46), in steps."""
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
        """Whether the client wanted the same before, which is the usual ACK."""
        return wanted == self._list and _mark(refused) == self._refused_mark

    def _begin(
        self,
        request: SotwRequest,
        wanted: tuple[Key, ...],
        refused: Mapping[Key, Refusal],
        *,
        legacy_wildcard: bool,
    ) -> Steps[None]:
        """Take the first request. SRV-10: its nonce is from another stream, so it answers nothing here."""
        if not request.wanted and self.table.spec.wildcard and legacy_wildcard:
            self._add_wild((WILDCARD, None))  # WLD-1
        if wanted or refused:  # otherwise WLD-1: an empty list keeps a legacy wildcard
            yield from self._want_exactly(wanted, refused)
        self._due = bool(self._wilds) or (self.table.spec.full_state and bool(request.wanted))  # WLD-10, SOT-9
        if self.table.spec.full_state and not self._wants and list(self._whole_table) == [None]:
            yield from self._spare(request.version)

    def _spare(self, version: str) -> Steps[None]:
        """Send nothing to a client that wants everything and names the current version: it has everything (SOT-12)."""
        wild = self._whole_table[None]
        if not version or not self.table.lists(wild.params):
            return
        yield from self.table.snapshotting(wild.params)
        snapshot = self.table.snapshot(wild.params)
        if version == _version(snapshot.digest) and not self.ttl.concerns(snapshot.variants):
            wild.started, self._due = True, False
            self._suppressed(len(snapshot.variants))

    def _refuse_once(self, refused: Mapping[Key, Refusal]) -> None:
        """Answer refused keys once, although every further list repeats them (ERR-3).

        The session keeps only hashes of them (DYN-46).
        """
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
        """Make the subscriptions equal to this list, in steps: drop what it lacks, and begin what is new."""
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
        """End a subscription, answered or not."""
        self._added.pop(want, None)
        super()._drop(want)

    def _hold(self, want: NameSubscription, variant: Variant | None) -> None:
        """Record what the client holds, and keep the hash of all that it holds up to date.

        SRV-12: the version is about what the client holds. A variant that it holds by several subscriptions counts
        once.
        """
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
        """Drop responses that Envoy will not answer because it has answered a newer one (S10).

        For TTLs they count as accepted: a heartbeat without an answer still prolongs the resource that the client has.
        """
        for response in self.in_flight.drop_superseded():
            self.ttl.accepted(response)

    # -- out

    @property
    def at_rest(self) -> bool:
        """Whether only a change or a request can make a response due."""
        odd = self._stale or self._added or self.isolation or self._first
        return not odd and super().at_rest

    def _shared(self, replaced: list[Replaced]) -> Send | None:
        """Return the shared response with one replacement (SOT-5). None if there are several.

        SRV-12: the version is about all that a client holds. So clients share a response only if they hold the same.
        """
        (want, after), *more = replaced
        held = want.held
        if more or held is None or self._full_state or self._copies[held] != 1 or after in self._copies:
            return None
        return self._once(_version(self._digest - held.digest + after.digest), (after,), located=want.located)

    def _shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """Return the shared response with one plain variant, looked up by the hash of what the client will hold."""
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
        """Return the shared response with all resources of a full state (SOT-4), or with the changed ones (SOT-5)."""
        snapshot = self.table.snapshot(wild.params)
        return self._once(_version(snapshot.digest), snapshot.variants if self._full_state else news, located=False)

    def _once(self, version: str, variants: News, *, located: bool) -> Send | None:
        """Return the response with this version and these variants, made by the first session that asks.

        All sessions that send it use the same object, and so the same nonce, and it is encoded once.
        """
        key = False, located, version, variants
        send = self.table.shared.get(key)
        if send is None and not self.ttl.concerns(variants):
            url, nonce = self.table.spec.url, self._nonce()
            plain, other = ((), variants) if located else (variants, ())
            send = self.table.shared[key] = Send(url, False, nonce, version, plain, other)  # noqa: FBT003
        return send

    def _pushed_out(self, send: Send, now: float) -> Send:
        """Count a shared response as the newest one."""
        self._newest = send.nonce
        return super()._pushed_out(send, now)

    @property
    def pending(self) -> bool:
        """Whether the next poll has something to look at. After a stale nonce, only a change of the store counts."""
        if self._stale:
            return self._pushed
        return bool(self._added or (self.isolation.is_waiting and self.in_flight.room)) or super().pending

    @property
    def _pushed(self) -> bool:
        """Whether the store changed, regardless of what the client asked for."""
        wilds = self._whole_table.values()
        return bool(self._dirty) or any(wild.started and wild.is_behind for wild in wilds)

    @property
    def _whole_table(self) -> Mapping[Params | None, WildcardSubscription]:
        """Return the subscriptions to `*`, by tag. SotW has no other wildcards (XTP-8)."""
        return self._wilds.get(WILDCARD, {})

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """Return the responses that are due, in steps.

        `together`: no other type on the stream refers to this one, so removals go with the rest and do not wait.
        """
        if not self.pending or (self._full_state and self._waits):
            return []  # SOT-4: the client removes what a full state lacks, so an unknown resource can't be left out
        greeting = self.greet(now) if not self.progress.sent else None
        if greeting is not None:
            self._newest = greeting[0].nonce
            return greeting
        # After a NACK, SotW resends the resources alone only once something changes (NAK-3).
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
        """Return about how many subscriptions and resources the next poll looks at."""
        return len(self._added) + super().backlog

    def _gather(self) -> Steps[tuple[bool, Batch]]:
        """Return whether a response is due even if it is empty, and the batch, in steps."""
        self._dirty.update(self._added)
        self._added.clear()
        due = self._due and not self._waits
        self._due = self._due and not due
        batch = yield from self.collect()
        self.news = batch.variants
        if self._refused:
            # A full state shows one moment, the last look of `collect`: no pause from there on.
            refused = self._answer_refused()
            batch.join(finish(refused) if self._full_state else (yield from refused))
        return due, batch

    def settle(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """Return the full state without these leaving variants: removals.py allows their removal (SOT-6).

        SRV-14: whatever else is due goes out with it.
        """
        if self._full_state and self._waits:
            return []
        due, batch = finish(self._gather())
        batch.join(self.release(keys))
        return [finish(self._whole(batch, now))] if due or batch else []

    def release(self, keys: Iterable[Key] | None = None) -> Batch:
        """Let go of leaving variants. A rejected resource that is gone holds up nothing any more (SOT-7).

        SotW has no removal that the client could ACK, so the rejection ends here.
        """
        batch = super().release(keys)
        if self.rejections.discard_unless(lambda part: any(self._held(part.name, located=part.located))):
            self.progress.nack = None
        return batch

    def _changed(self, batch: Batch, now: float, *, due: bool) -> list[Send]:
        """Return responses with the changed resources only (SOT-5).

        DYN-15: a name that is there both plain and with constraints goes out in two responses.
        """
        plain, located, errors = tuple(batch.plain.values()), tuple(batch.located), tuple(batch.errors)
        other = {variant.name for variant in located}.union(error.about.name for error in errors)
        both = not other.isdisjoint(variant.name for variant in plain)
        parts = [(plain, (), ()), ((), located, errors)] if both else [(plain, located, errors)]
        version = self._current
        return [self._respond(version, *part, now) for part in parts if due or any(part)]

    @property
    def _current(self) -> str:
        """Return the version of all that the client holds, and not only of what it is being sent (SRV-12)."""
        return _version(digest_of({variant for _, variant in self._holdings()}) if self._wilds else self._digest)

    def _send_alone(self, batch: Batch, now: float) -> list[Send]:
        """Return the responses with what a NACK isolated, each resource alone.

        Isolation leaves out what `batch` says anew, and what is outdated.
        """
        self.isolation.drop_outdated(self)
        parts = self.isolation.take(batch, self, self.in_flight.room, self.settings.response_bytes)
        version = self._current if parts else ""
        return [self._respond(version, tuple(part.plain.values()), tuple(part.located), (), now) for part in parts]

    def _whole(self, batch: Batch, now: float) -> Steps[Send]:
        """Return the full state: each subscribed resource that exists, and those that leave but may not go yet.

        SOT-4, DYN-23, ORD-3.
        """
        errors = tuple(batch.errors)
        # The usual case: one plain wildcard. The table has this snapshot, sorted and hashed, for all its clients.
        if not self._wants and not self.leaving and list(self._whole_table) == [None]:
            snapshot = self.table.snapshot(self._whole_table[None].params)
            return self._respond(_version(snapshot.digest), snapshot.variants, (), errors, now)
        plain: dict[str, Variant] = {}
        located: dict[tuple[str, Constraint], Variant] = {}
        # What the client holds changes only by this session's own work, and `_holdings` reads the wildcards in its
        # first step. So the response shows that moment, even if the store changes between two steps.
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
            every = yield from in_order((*plain_sorted, *located.values()))  # one variant may be there in both forms
            version = _version((yield from digesting(every)))
        else:
            version = _version(digest_of({*plain_sorted, *located.values()}))
        ordered = located.values() if self.table.authoritative else self._oldest_first(located.values())
        return self._respond(version, plain_sorted, tuple(ordered), errors, now)

    def _holdings(self) -> Iterable[tuple[Params | None, Variant]]:
        """Yield what the client holds, with the tag of each subscription, in an order in which the last one wins.

        Leaving variants come first: if another variant has taken the place of one, that counts. Then come variants that
        the client keeps only until the cache knows what replaces them (PRX-38): of overlapping variants the client uses
        the last (DYN-45).
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
        """Make a response with these contents, and wait for its ACK."""
        self._newest = self._nonce()
        self._stale = False
        url, ttl = self.table.spec.url, self.ttl.concerns((*plain, *located))
        send = Send(url, False, self._newest, version, plain, located, errors=errors, ttl=ttl)  # noqa: FBT003
        return self._sent(send, now)

    # -- heartbeats

    def _beat_with(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """Return a response with these heartbeats, under the client's own version: nothing is new.

        The encoder sends SotW heartbeats with their contents.
        """
        self._newest = self._nonce()
        url, version = self.table.spec.url, self._client_version
        return Send(url, False, self._newest, version, beats=plain, located_beats=located)  # noqa: FBT003


def _mark(refused: Mapping[Key, Refusal]) -> int | None:
    """Return a hash that tells one set of refused keys from another, however long their names are."""
    return hash(frozenset(refused)) if refused else None


def _version(digest: int) -> str:
    """Return the version_info for a digest: 16 hexadecimal digits."""
    return f"{digest & 0xFFFF_FFFF_FFFF_FFFF:016x}"
