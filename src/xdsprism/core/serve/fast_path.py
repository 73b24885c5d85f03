"""Fast path: send one changed variant to sessions that have nothing else pending, and take the ACK.

A session is at rest when no response, removal, heartbeat or refusal is due and the client rejected nothing (`at_rest`
lists the conditions). A change then means that one variant replaces another, and all clients that hold the one and see
the other are sent the same response, which the first of their sessions makes (`table.shared`).

- `greet` makes the first response to a client with a single `*` subscription.
- `push` makes the response to a change.
- `acknowledged` takes an ACK.

Each of them returns None, or False, and changes nothing, if the case is not that simple. The caller then takes the
general path: `poll`, which collects from all subscriptions, or `receive`. These cases need the general path:

| case                                                     | because                                                  |
|----------------------------------------------------------|----------------------------------------------------------|
| the resource has, or had, a TTL                          | a heartbeat must be scheduled (TTL-2)                    |
| the variant went, or one with other constraints came     | a removal is due, in order or in one response (DYN-24)   |
| there are names and wildcards, or several wildcards      | a member must be sent by one of them only (WLD-7)        |
| a response went out at the same revision                 | its shared nonce is used up on this stream (SRV-8)       |
| a relay has an error about the resource                  | the error must be sent, or ended, with it (TP3)          |
| the variants are too large for one response              | they must be split (DLT-21)                              |

A response need not be answered before the next one goes out, so what is in flight does not matter here (DLT-23).

This runs for each message to each client. So the code saves calls, and repeats some lines of `AnsweredSession._sent`
and `InFlight`.
"""

from __future__ import annotations

from abc import abstractmethod

from ..model.events import WILDCARD, DeltaRequest, Send, SotwRequest
from ..model.types import Variant
from ..model.views import alike
from .answered_session import AnsweredSession
from .in_flight import MOST, InFlightResponse
from .subscriptions import NameSubscription, WildcardSubscription

News = tuple[Variant, ...]
Replaced = tuple[NameSubscription, Variant]  # a subscription, and the variant that its client holds from now on

_NOTHING: list[Send] = []


class SteadySession(AnsweredSession):
    """A session that knows when a change needs nothing but one shared response."""

    __slots__ = ()

    @property
    def at_rest(self) -> bool:
        """Whether only a change or a request can make a response due."""
        progress = self.progress
        return not (
            self.table.spec.on_demand
            or self.leaving
            or self._owed
            or self._due
            or self._refused
            or self._dirty
            or self.ttl
            or progress.nack
            or self.rejections
            or self._behind
        )

    def greet(self, now: float) -> list[Send] | None:
        """Return the first response to a client that subscribes to `*` alone; None: take the general path."""
        # One wildcard, `*`, in plain form, and no names. The client brought no versions from an earlier stream.
        wild = self._wilds.get(WILDCARD, {}).get(None) if len(self._wilds) == 1 and not self._wants else None
        if wild is None or wild.started or wild.initial or wild.again or wild.trouble is not None:
            return None
        table = self.table
        odd = table.spec.on_demand or self.leaving or self._owed or self._dirty or self.ttl or self.progress.sent
        if (
            odd
            or self._refused
            or len(self._wilds[WILDCARD]) > 1
            or not self._lists(wild)
            or self._trouble(wild) is not None
        ):
            return None
        # Resources with a TTL need timers, and a second response at this revision needs a nonce of its own.
        snapshot = wild.listing.snapshot(wild.params)
        if not snapshot.is_plain or self.in_flight.revision == table.revision:
            return None
        send = self._shared_wild(wild, snapshot.variants)
        if send is None:
            return None
        # Nothing above changed the session. From here on the response goes out.
        wild.started, self._due = True, False
        wild.cursor = wild.listing.advance(wild.cursor)
        self.in_flight.use_shared_nonce(table.revision)
        self.news = snapshot.variants
        return [self._sent(send, now)]

    def push(self, now: float) -> list[Send] | None:
        """Return the responses to a change for a session that was at rest; None: take the general path."""
        if self.in_flight.revision == self.table.revision:
            return None  # a response went out at this revision already, so this one needs its own nonce
        if not self._wilds:
            if len(self._dirty) != 1:
                return self._push_names(now)
            (want,) = self._dirty  # nearly always there is one
            after = self._successor(want)
            send = self._shared_name(want, after) if after is not None else None
            if send is None or after is None:
                return self._push_names(now)
            self._dirty.clear()
            self._hold(want, after)
            return [self._pushed_out(send, now)]
        # With wildcards: a single `*`, and nothing else.
        wilds = self._wilds.get(WILDCARD, {})
        if self._wants or len(self._wilds) > 1 or len(wilds) != 1:
            return None
        return self._push_wild(next(iter(wilds.values())), now)

    def _push_names(self, now: float) -> list[Send] | None:
        """Push to name subscriptions, if each dirty one has a simple successor."""
        moved: list[Replaced] = []
        for want in self._dirty:
            after = self._successor(want)
            if after is None:
                return None
            if after is not want.held:
                moved.append((want, after))
        # A variant that was deleted and put back unchanged is another object, but the client need not be sent it.
        replaced = [each for each in moved if not alike(each[0].held, each[1])]
        send = self._shared(replaced) if replaced else None
        if replaced and send is None:
            return None
        self._dirty.clear()
        for want, after in moved:
            self._hold(want, after)
        return [self._pushed_out(send, now)] if send is not None else _NOTHING

    def _successor(self, want: NameSubscription) -> Variant | None:
        """Return the variant that replaces what the client holds; None if that needs more than a new version."""
        table, held, (name, tag) = self.table, want.held, want.key
        known = table.named(name)
        if known is None or held is None or not want.answered or held.ttl is not None:
            return None
        after = known.sole or known.select(want.params)
        if after is None or after.ttl is not None or after.name != held.name:
            return None
        if tag is not None and after.constraint != held.constraint:
            return None  # other constraints: the old variant must be withdrawn (DYN-24)
        # A relay may have an error to send, or one to end, with the resource (TP3).
        if not table.authoritative and (want.trouble is not None or table.trouble(name, want.params) is not None):
            return None
        return after

    def _push_wild(self, wild: WildcardSubscription, now: float) -> list[Send] | None:
        """Push what changed for a single `*` subscription, if nothing went away."""
        listing, located = wild.listing, wild.tag is not None
        if not wild.started or wild.again or wild.initial or wild.trouble is not None or self._dirty:
            return None
        if not self.table.authoritative and self.table.trouble(wild.name, wild.params) is not None:
            return None
        # `news` is None if a member went or has a TTL. A located member may withdraw another variant (DYN-24).
        news = listing.difference(wild.cursor, wild.params).news
        if news is None or (located and news):
            return None
        send = self._shared_wild(wild, news) if news else None
        if news and send is None:
            return None
        wild.cursor = listing.advance(wild.cursor)
        if send is None:
            return _NOTHING
        self._pushed_out(send, now)
        self.news = news  # a full state has more in it than what is new
        return [send]

    @abstractmethod
    def _shared(self, replaced: list[Replaced]) -> Send | None:
        """Return the response with these replacements, shared by all sessions that send it; None if there is none."""

    def _shared_name(self, want: NameSubscription, after: Variant) -> Send | None:
        """Return the shared response with one replacement; None: `_push_names` looks at it."""
        return self._shared([(want, after)]) if not alike(want.held, after) else None

    @abstractmethod
    def _shared_wild(self, wild: WildcardSubscription, news: News) -> Send | None:
        """Return the shared response with what a wildcard has new."""

    def _fits(self, news: News) -> bool:
        """Whether these variants fit into one response (DLT-21, DLT-22)."""
        return sum(variant.size for variant in news) <= self.settings.response_bytes

    def _pushed_out(self, send: Send, now: float) -> Send:
        """Count a response and wait for its ACK: `AnsweredSession._sent` without TTLs."""
        in_flight = self.in_flight
        in_flight.use_shared_nonce(self.table.revision)
        self.news = send.plain or send.located
        progress, responses, version = in_flight.progress, in_flight.responses, send.version
        number = progress.sent = progress.sent + 1
        progress.sent_version, progress.sent_at = version, now
        # A NACK of a full state resends nothing, so that is not kept.
        kept = send if self.delta or not self._full_state else None
        # `tuple.__new__` skips the constructor of the NamedTuple, which is written in Python.
        responses[send.nonce] = tuple.__new__(InFlightResponse, (number, now, version, kept, ()))
        if len(responses) > MOST:
            del responses[next(iter(responses))]
        routine = self._facts.routines.get(send.type_url) or self._facts.routine(send.type_url)
        routine.pushes += 1
        routine.resources += len(send.plain) + len(send.located)
        return send

    def acknowledged(self, request: SotwRequest | DeltaRequest, now: float) -> bool:
        """Take the ACK of a response in flight. Return False, and do nothing, if the general path must look at it.

        It must if the response had TTLs, or if a NACK is not overcome, which this ACK may end.
        """
        nonce = request.nonce
        responses, progress = self.in_flight.responses, self.progress
        found = responses.get(nonce)
        if found is None:
            return False
        number, sent_at, version, _, timed = found
        if timed or progress.nack is not None or self.rejections:
            return False
        del responses[nonce]
        progress.acked = max(progress.acked, number)
        progress.acked_version, progress.acked_at = version, now
        url = self.table.spec.url
        (self._facts.routines.get(url) or self._facts.routine(url)).waits.append(now - sent_at)
        return True
