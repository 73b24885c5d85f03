"""Read State-of-the-World requests of one type.

Each request lists everything that the client wants of the type. A request is read in three steps, and the steps do not
depend on each other:

1. ACK or NACK. A nonce of a response that is in flight makes the request the answer to *that* response, whether it is
   the newest or not (NAK-11). Any other nonce answers nothing.
2. Subscriptions. The list replaces the subscriptions, whatever the nonce (SRV-14, SRV-16).
3. Response. With the newest nonce, or none, the session sends what the list added. With a stale nonce it sends nothing:
   the client has not seen the newest response and will send another request. What the list added waits for that, or for
   the next push.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ..model.events import WILDCARD, Key, SotwRequest
from ..model.limits import Refusal
from ..model.steps import EVERY, Steps, in_order, pieces
from .fast_path import acknowledged
from .sotw_responses import version_of

if TYPE_CHECKING:
    from ..model.table import Table
    from .session import Session

_NONE_TOLD: frozenset[int] = frozenset()  # one for all sessions: each empty set takes 216 bytes


class SotwRequests:
    """The requests of one type on one SotW stream."""

    __slots__ = (
        "_list",
        "_refused_mark",
        "_session",
        "_told_refused",
        "client_version",
        "is_first",
        "is_stale",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_first = True  # no request of this type came yet
        self.is_stale = False  # the last request had a stale nonce, so its additions wait
        self.client_version = ""  # version_info of the last request
        self._list: tuple[Key, ...] = ()  # the keys of the last request, without the refused ones
        self._refused_mark: int | None = None  # a hash of the keys of the last request that were refused
        self._told_refused = _NONE_TOLD  # hashes of refused keys that were answered, up to a limit

    @property
    def _table(self) -> Table:
        return self._session.table

    def receive(self, request: SotwRequest, now: float, *, legacy_wildcard: bool = True) -> Steps[None]:
        """Take one request, in steps: the ACK or NACK, then the list."""
        session = self._session
        wanted, refused = (yield from self._read(request.wanted)) if request.wanted else ((), {})
        self.client_version = request.version
        if self.is_first:
            self.is_first = False
            session.availability.is_returning = bool(request.version)
            yield from self._begin(request, wanted, refused, legacy_wildcard=legacy_wildcard)
            return
        newest = session.in_flight.newest
        judged = session.verdicts.judge(request.nonce, request.error, now) if request.nonce else None
        if judged is not None:
            session.verdicts.forget_superseded()
            if request.error is not None and judged.send is not None:
                session.isolation.add_sotw(judged.send, is_superseded=judged.send.nonce != newest)
        self.is_stale = bool(request.nonce) and request.nonce != newest  # SRV-13
        if not self._is_list(wanted, refused):
            yield from self._want_exactly(wanted, refused)
        # The same list once more, with a nonce that was ACKed before.
        elif request.nonce == newest and judged is None and request.error is None:
            yield from self._repeat()

    def accept(self, request: SotwRequest, now: float) -> bool:
        """Take an ACK on the fast path. Return False if the request is more than the ACK of the newest response.

        A SotW ACK repeats the list, so it must be the same list as before.
        """
        session = self._session
        if request.error is not None or request.nonce != session.in_flight.newest or request.wanted != self._list:
            return False
        if not acknowledged(session, request, now):
            return False
        self.client_version = request.version
        if session.in_flight.responses:
            session.verdicts.forget_superseded()
        return True

    def is_answer(self, request: SotwRequest) -> bool:
        """Whether the request is nothing but the ACK or NACK of a response in flight."""
        return request.nonce in self._session.in_flight.responses and request.wanted == self._list

    def _repeat(self) -> Steps[None]:
        """Send all resources again to a client that repeats its request without an ACK (ORD-5).

        Envoy does so for the endpoints of a warming cluster, so only types with `always_resend` are sent.
        """
        if self._table.spec.always_resend and self._session.progress.nack is None:
            for piece in pieces(self._session.subscriptions.names):
                for name in piece:
                    self._session.holdings.resend(name)
                if len(piece) == EVERY:
                    yield

    def _read(self, names: tuple[Key, ...]) -> Steps[tuple[tuple[Key, ...], dict[Key, Refusal]]]:
        """Return the keys of a list that can be subscribed, and those that are refused (DYN-46), in steps."""
        admission = self._session.admission
        refused: dict[Key, Refusal] = {}
        few = len(names) <= EVERY
        wanted = admission.admit(names, refused) if few else (yield from admission.admitting(names, refused))
        if wanted != self._list:
            keys = dict.fromkeys(wanted) if few else (yield from in_order(wanted))
            if not self._session.context.budget.is_short(len(keys)):
                return wanted, refused
            ending = [key for key in self._session.subscriptions if key not in keys]
            lacking = yield from admission.lacking_room(keys, ending)
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
        session, spec = self._session, self._table.spec
        if not request.wanted and spec.wildcard and legacy_wildcard:
            session.lifecycle.begin_wildcard(Key(WILDCARD))  # WLD-1
        if wanted or refused:  # otherwise WLD-1: an empty list keeps a legacy wildcard
            yield from self._want_exactly(wanted, refused)
        subscriptions = session.subscriptions
        # WLD-10, SOT-9
        session.due.response = bool(subscriptions.wildcards) or (spec.full_state and bool(request.wanted))
        if spec.full_state and not subscriptions.names and list(subscriptions.whole_table) == [None]:
            yield from self._spare(request.version)

    def _spare(self, version: str) -> Steps[None]:
        """Send nothing to a client that wants everything and names the current version: it has everything (SOT-12)."""
        session, table = self._session, self._table
        wild = session.subscriptions.whole_table[None]
        if not version or not (wild.is_denied or table.knowledge.lists(wild.params)):
            return
        yield from wild.listing.snapshotting(wild.params)
        snapshot = wild.listing.snapshot(wild.params)
        if version == version_of(snapshot.digest) and not session.ttl.concerns(snapshot.variants):
            wild.started, session.due.response = True, False
            session.verdicts.suppressed(len(snapshot.variants))

    def _refuse_once(self, refused: Mapping[Key, Refusal]) -> None:
        """Answer refused keys once, although every further list repeats them (ERR-3).

        The session keeps only hashes of them (DYN-46).
        """
        mark, admission = _mark(refused), self._session.admission
        if mark == self._refused_mark:
            return
        if admission.refusals is not None:
            admission.refusals.keep(refused)
        told = self._told_refused
        self._refused_mark = mark
        self._told_refused = frozenset(islice(map(hash, refused), self._session.context.settings.limits.unresolved))
        admission.refuse({key: refusal for key, refusal in refused.items() if hash(key) not in told})

    def _want_exactly(self, wanted: tuple[Key, ...], refused: Mapping[Key, Refusal]) -> Steps[None]:
        """Make the subscriptions equal to this list, in steps: drop what it lacks, and begin what is new."""
        session = self._session
        subscriptions, lifecycle = session.subscriptions, session.lifecycle
        self._refuse_once(refused)
        self._list = wanted
        tags = {tag for name, tag in wanted if name == WILDCARD}
        keys = dict.fromkeys(wanted) if len(wanted) <= EVERY else (yield from in_order(wanted))
        for tag in tags:
            keys.pop(Key(WILDCARD, tag), None)
        for piece in pieces([*subscriptions.all_names()]):
            for want in piece:
                if want.key not in keys:
                    lifecycle.end(want)  # SOT-10: needs no response
            if len(piece) == EVERY:
                yield
        if any(tag not in subscriptions.whole_table for tag in tags):
            session.due.response = True
        for tag in tags:
            lifecycle.begin_wildcard(Key(WILDCARD, tag))
        for named in pieces(keys):
            if len(named) < EVERY:
                new = [lifecycle.begin(key) for key in named if subscriptions.find(key) is None]
            else:
                new = yield from lifecycle.beginning(named)
                yield
            session.due.add(new)
        for wild in [wild for tag, wild in subscriptions.whole_table.items() if tag not in tags]:
            # WLD-3, WLD-5: a list that names anything, or none any more, is taken literally
            lifecycle.end_wildcard(wild)


def _mark(refused: Mapping[Key, Refusal]) -> int | None:
    """Return a hash that tells one set of refused keys from another, however long their names are."""
    return hash(frozenset(refused)) if refused else None
