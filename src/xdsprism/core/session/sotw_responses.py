"""Make State-of-the-World responses of one type.

Types of two kinds differ in what a response holds. Clusters, listeners and scoped routes are sent as full state: each
response has all subscribed resources, and a resource that is missing from it is removed (SOT-4, SOT-6). For all other
types a response has the changed resources only (SOT-5), and SotW can't express a removal (SOT-7).

The version of a response is a hash of all that the client holds once it has applied the response (SRV-12). So it is the
same on all replicas, and a client that comes back with the current version need not be sent anything (SOT-12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..model.constraints import Constraint
from ..model.events import Key, ResourceError, Send
from ..model.steps import EVERY, Steps, cut, finish, in_order
from ..model.types import Params, Variant
from ..model.views import alike, digest_of, digesting
from .batch import Batch
from .fast_path import News, Replaced, greet
from .subscription import NameSubscription, WildcardSubscription

if TYPE_CHECKING:
    from ..model.table import Table
    from .session import Session
    from .sotw_requests import SotwRequests


class SotwResponses:
    """The responses of one type on one SotW stream."""

    __slots__ = ("_requests", "_session")

    def __init__(self, session: Session, requests: SotwRequests) -> None:
        self._session = session
        self._requests = requests

    @property
    def _table(self) -> Table:
        return self._session.table

    @property
    def is_pending(self) -> bool:
        """Whether the next poll has something to look at. After a stale nonce, only a change of the store counts."""
        session = self._session
        if self._requests.is_stale:
            return self._is_pushed
        return bool(
            session.due
            or session.admission.refusals
            or (session.isolation.is_waiting and session.in_flight.room)
            or session.subscriptions.is_behind
        )

    @property
    def _is_pushed(self) -> bool:
        """Whether the store changed, regardless of what the client asked for."""
        wilds = self._session.subscriptions.whole_table.values()
        return bool(self._session.due.dirty) or any(wild.started and wild.is_behind for wild in wilds)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that only SotW knows of is due: the first request came, and the last nonce was not stale."""
        return not (self._requests.is_stale or self._session.isolation or self._requests.is_first)

    def poll(self, now: float, *, together: bool = True) -> Steps[list[Send]]:
        """Return the responses that are due, in steps.

        `together`: no other type on the stream refers to this one, so removals go with the rest and do not wait.
        """
        session, full_state = self._session, self._session.context.full_state
        if not self.is_pending or (full_state and session.availability.is_waiting):
            return []  # SOT-4: the client removes what a full state lacks, so an unknown resource can't be left out
        greeting = greet(session, now) if not session.progress.sent else None
        if greeting is not None:
            return greeting
        # After a NACK, SotW resends the resources alone only once something changes (NAK-3).
        if self._is_pushed:
            session.isolation.note_change()
        due, batch = yield from self._gather()
        if not full_state:
            batch.join(session.delivery.release())
            return self._changed(batch, now, due=due) + self._send_alone(batch, now)
        if together and session.holdings.leaving:
            batch.join(session.delivery.release())
        return [(yield from self._whole(batch, now))] if due or batch else []

    def removal_responses(self, now: float, keys: Iterable[Key] | None = None) -> list[Send]:
        """Return the full state without these leaving variants: removals.py allows their removal (SOT-6).

        SRV-14: whatever else is due goes out with it.
        """
        session = self._session
        if session.context.full_state and session.availability.is_waiting:
            return []
        due, batch = finish(self._gather())
        batch.join(session.delivery.release(keys))
        return [finish(self._whole(batch, now))] if due or batch else []

    def _gather(self) -> Steps[tuple[bool, Batch]]:
        """Return whether a response is due even if it is empty, and the batch, in steps."""
        session = self._session
        session.due.admit_added()
        due = session.due.response and not session.availability.is_waiting
        session.due.response = session.due.response and not due
        batch = yield from session.collector.collect()
        session.news = batch.variants
        if session.admission.refusals:
            # A full state shows one moment, the last look of `collect`: no pause from there on.
            refused = session.admission.answering(session.view)
            batch.join(finish(refused) if session.context.full_state else (yield from refused))
        return due, batch

    # -- types whose responses have the changed resources only

    def _changed(self, batch: Batch, now: float, *, due: bool) -> list[Send]:
        """Return responses with the changed resources only (SOT-5).

        DYN-15: a name that is there both plain and with constraints goes out in two responses.
        """
        plain, located, errors = tuple(batch.plain.values()), tuple(batch.located), tuple(batch.errors)
        other = {variant.name for variant in located}.union([error.about.name for error in errors])
        both = not other.isdisjoint([variant.name for variant in plain])
        parts = [(plain, (), ()), ((), located, errors)] if both else [(plain, located, errors)]
        version = self._current
        return [self._respond(version, *part, now) for part in parts if due or any(part)]

    @property
    def _current(self) -> str:
        """Return the version of all that the client holds, and not only of what it is being sent (SRV-12)."""
        if self._session.subscriptions.wildcards:
            return version_of(digest_of({variant for _, variant in self._holdings()}))
        return version_of(self._digest)

    @property
    def _digest(self) -> int:
        """Return the hash of all that the client holds by name."""
        digest = self._session.holdings.digest
        return digest.value if digest is not None else 0

    def _send_alone(self, batch: Batch, now: float) -> list[Send]:
        """Return the responses with what a NACK isolated, each resource alone.

        Isolation leaves out what `batch` says anew, and what is outdated.
        """
        session = self._session
        session.isolation.drop_outdated(session.view)
        limit = session.context.settings.response_bytes
        parts = session.isolation.take(batch, session.view, session.in_flight.room, limit)
        version = self._current if parts else ""
        return [self._respond(version, tuple(part.plain.values()), tuple(part.located), (), now) for part in parts]

    # -- types whose responses have everything

    def _whole(self, batch: Batch, now: float) -> Steps[Send]:
        """Return the full state: each subscribed resource that exists, and those that leave but may not go yet.

        SOT-4, DYN-23, ORD-3.
        """
        session, subscriptions = self._session, self._session.subscriptions
        errors = tuple(batch.errors)
        # The usual case: one plain wildcard. The table has this snapshot, sorted and hashed, for all its clients.
        if not subscriptions.names and not session.holdings.leaving and list(subscriptions.whole_table) == [None]:
            wild = subscriptions.whole_table[None]
            snapshot = wild.listing.snapshot(wild.params)
            return self._respond(version_of(snapshot.digest), snapshot.variants, (), errors, now)
        plain: dict[str, Variant] = {}
        located: dict[tuple[str, Constraint], Variant] = {}
        # What the client holds changes only by this session's own work, and `_holdings` reads the wildcards in its
        # first step. So the response shows that moment, even if the store changes between two steps.
        is_long = len(subscriptions) > EVERY or bool(subscriptions.whole_table)
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
            version = version_of((yield from digesting(every)))
        else:
            version = version_of(digest_of({*plain_sorted, *located.values()}))
        ordered = located.values() if self._table.authoritative else session.collector.oldest_first(located.values())
        return self._respond(version, plain_sorted, tuple(ordered), errors, now)

    def _holdings(self) -> Iterable[tuple[Params | None, Variant]]:
        """Yield what the client holds, with the tag of each subscription, in an order in which the last one wins.

        Leaving variants come first: if another variant has taken the place of one, that counts. Then come variants that
        the client keeps only until the cache knows what replaces them (PRX-38): of overlapping variants the client uses
        the last (DYN-45).
        """
        session, table, leaving = self._session, self._table, self._session.holdings.leaving
        wants = [want for want in session.subscriptions.all_names() if want.key not in leaving]
        knows = session.availability.knows
        kept = {want: None for want in wants if not knows(want)} if not table.authoritative else {}
        wilds = session.subscriptions.whole_table.items()
        listed = [(tag, wild.listing.snapshot(wild.params).variants) for tag, wild in wilds]
        yield from [(tag, variant) for (_, tag), variant in leaving.items()]
        for want in kept:
            if want.held is not None:
                yield want.key.tag, want.held
        for tag, variants in listed:
            for variant in variants:
                yield tag, variant
        for want in wants:
            if want.held is not None and want not in kept:
                yield want.key.tag, want.held

    def _respond(
        self,
        version: str,
        plain: tuple[Variant, ...],
        located: tuple[Variant, ...],
        errors: tuple[ResourceError, ...],
        now: float,
    ) -> Send:
        """Make a response with these contents, and wait for its ACK."""
        session = self._session
        self._requests.is_stale = False
        url, ttl = self._table.spec.url, session.ttl.concerns((*plain, *located))
        nonce = session.verdicts.next_nonce()
        send = Send(url, False, nonce, version, plain, located, errors=errors, ttl=ttl)  # noqa: FBT003
        return session.verdicts.sent(send, now)

    def heartbeat(self, plain: tuple[Variant, ...], located: tuple[Variant, ...]) -> Send:
        """Return a response with these heartbeats, under the client's own version: nothing is new.

        The encoder sends SotW heartbeats with their contents.
        """
        url, version, nonce = (
            self._table.spec.url,
            self._requests.client_version,
            self._session.verdicts.next_nonce(),
        )
        return Send(url, False, nonce, version, beats=plain, located_beats=located)  # noqa: FBT003

    # -- responses that sessions share (fast_path.py)

    def shared(self, replaced: list[Replaced]) -> Send | None:
        """Return the shared response with one replacement (SOT-5). None if there are several.

        SRV-12: the version is about all that a client holds. So clients share a response only if they hold the same.
        """
        (want, after), *more = replaced
        held, digest = want.held, self._session.holdings.digest
        if more or held is None or digest is None or self._session.context.full_state:
            return None
        if digest.copies[held] != 1 or after in digest.copies:
            return None
        return self._once(version_of(digest.value - held.digest + after.digest), (after,), located=want.located)

    def shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """Return the shared response with one replacement; None: the fast path looks at all that is dirty.

        A plain variant is looked up by the hash of what the client will hold.
        """
        held, digest = want.held, self._session.holdings.digest
        if digest is None or want.located or held is None or held.version == after.version:
            return self.shared([(want, after)]) if not alike(held, after) else None
        if self._session.context.full_state or digest.copies[held] != 1 or after in digest.copies:
            return None
        shared = self._session.table.shared
        key = digest.value - held.digest + after.digest, after
        send = shared.get(key)
        if send is None:
            send = self._once(version_of(key[0]), (after,), located=False)
            if send is not None:
                shared[key] = send
        return send

    def shared_wildcard(self, wild: WildcardSubscription, news: News) -> Send | None:
        """Return the shared response with all resources of a full state (SOT-4), or with the changed ones (SOT-5)."""
        snapshot, full_state = wild.listing.snapshot(wild.params), self._session.context.full_state
        return self._once(version_of(snapshot.digest), snapshot.variants if full_state else news, located=False)

    def _once(self, version: str, variants: News, *, located: bool) -> Send | None:
        """Return the response with this version and these variants, made by the first session that asks.

        All sessions that send it use the same object, and so the same nonce, and it is encoded once.
        """
        key = False, located, version, variants
        send = self._session.table.shared.get(key)
        if send is None and not self._session.ttl.concerns(variants):
            url, nonce = self._table.spec.url, self._session.verdicts.next_nonce()
            plain, other = ((), variants) if located else (variants, ())
            send = self._session.table.shared[key] = Send(url, False, nonce, version, plain, other)  # noqa: FBT003
        return send


def version_of(digest: int) -> str:
    """Return the version_info for a digest: 16 hexadecimal digits."""
    return f"{digest & 0xFFFF_FFFF_FFFF_FFFF:016x}"
