"""When what goes away may go: make before break, between the types of one stream (ORD-2, ORD-4, ORD-12).

A removal waits until none of this is so any more:

1. Something that the client has, or has not yet been told to drop, refers to it (references.py).
2. A response of a type that may refer to it has not been answered. The client uses what it had before until then.
3. Something that the client has refers to something that it does not have yet. A listener which moves to another route
   configuration is in use only when that has arrived, and until then the old one is, with all that it leads to; the
   client asks for the new one after it has the listener. A gRPC client, which asks for clusters by name, goes on with
   what it has until the last of the new clusters has its endpoints, and then unsubscribes from the old ones by itself.
4. The client accepted listeners less than `drain_time` ago. Envoy serves a connection that it accepted before by the
   old listener, and a request that comes on it goes where that leads to.

Not for ever: a removal goes `ack_timeout` after it came up, or after the last step that the client took (it accepted
something, or asked for what it lacked), and after STEPS times that in any case. But a NACK of what is waited for leaves
the client with what it had, so the removal waits for better news (ORD-4); and the configuration of a filter stays as
long as something refers to it (ORD-12).

References are looked at only when something leaves. Whether anything at all in the store refers to it is counted there,
so that the usual answer, nothing, takes no walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from ..model.events import Key
from ..model.settings import Settings
from ..model.types import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SCOPED_ROUTE, Reference, TypeUrl
from .delta import DeltaSession
from .sotw import SotwSession

AnySession = SotwSession | DeltaSession

STEPS = 8  # of a client: listener, scopes, route configuration, cluster, endpoints; most it asks for and then accepts

# Whatever a listener needs before Envoy uses it.
_NEEDED_BY_LISTENERS = frozenset({SCOPED_ROUTE, ROUTE, EXTENSION_CONFIG})
# Whatever must be there when a request comes.
_USED_BY_REQUESTS = frozenset({CLUSTER, EXTENSION_CONFIG})


@dataclass(slots=True)
class WaitingRemovals:
    """Removals of one type that came up together and wait: until when, and for what."""

    keys: list[Key]
    until: float | None  # None: it is past
    limit: float  # whatever the client still does
    awaited: dict[AnySession, tuple[int, int]]  # the first and the last of the responses that have to be answered
    missing: dict[Reference, None]  # what the client needs and does not have
    patient: bool = False  # what the client has from an earlier stream: who refers to it may not have been heard of yet
    stepwise: bool = False  # the client had to ask for something
    behind: bool = False  # removals that must be said before are waiting themselves
    referred: bool = False  # something refers to each of these
    rejected: bool = False  # one of the responses that are awaited was NACKed
    arrived: set[Reference] = field(default_factory=set)  # what was missing
    answered: int = 0  # of the responses that are awaited
    drained: float | None = None  # once all that is awaited has come: when what the client had before is out of use


class Removals:
    """The removals of one stream that wait."""

    __slots__ = ("_aggregated", "_holds", "_settings", "sessions")

    def __init__(self, settings: Settings, *, aggregated: bool) -> None:
        self.sessions: Mapping[TypeUrl, AnySession] = {}
        self._settings = settings
        self._aggregated = aggregated  # ORD-10: what is on other streams is not waited for
        self._holds: dict[TypeUrl, list[WaitingRemovals]] = {}

    def __bool__(self) -> bool:
        return bool(self._holds)

    def deadlines(self) -> Iterator[float | None]:
        held = chain.from_iterable(self._holds.values())
        return chain.from_iterable((hold.until, hold.drained) for hold in held)

    def clear(self) -> None:
        self.sessions = {}
        self._holds = {}

    def referrers(self, session: AnySession) -> list[AnySession]:
        """The sessions of all that may refer to what this one is about."""
        found = (self.sessions.get(type_url) for type_url in session.table.spec.referrers)
        own = [session] if session.table.is_nested else []
        return own + [referrer for referrer in found if referrer is not None]

    def due(self, type_url: TypeUrl, session: AnySession, now: float) -> list[Key]:
        """Of what is leaving: what need not wait any more."""
        if not session.leaving:
            self._holds.pop(type_url, None)
            return []
        holds = self._holds.pop(type_url, [])
        known = {key for hold in holds for key in hold.keys}
        fresh = [key for key in session.leaving if key not in known]
        if fresh:
            holds += self._begin(session, fresh, now)
        free: list[Key] = []
        for hold in list(chain.from_iterable(self._reviewed(session, each, now) for each in holds)):
            if self._is_over(session, hold, now):
                free += hold.keys
            elif hold.keys:
                self._holds.setdefault(type_url, []).append(hold)
        return free

    def _reviewed(self, session: AnySession, hold: WaitingRemovals, now: float) -> list[WaitingRemovals]:
        """What has become of a hold: where what it waited for has changed, what is left of it waits anew."""
        hold.keys = [key for key in hold.keys if key in session.leaving]  # the others came back, or went unwanted
        if hold.until is not None and now >= hold.until:
            hold.until = None
        if _is_overcome(hold):
            return self._again(session, hold, now, now + STEPS * self._settings.ack_timeout)
        if hold.patient and hold.until is None:
            return self._again(session, hold, now, now + STEPS * self._settings.ack_timeout)
        overtaken = hold.until is not None and not all(map(self._is_needed, hold.missing))
        if overtaken or (hold.behind and not self._is_behind(session)):
            return self._again(session, hold, now, hold.limit)
        if not hold.referred:
            return [hold]
        moved = [key for key in hold.keys if not self._is_referred(session, key)]
        hold.keys = [key for key in hold.keys if key not in set(moved)]
        return [hold, self._hold(session, moved, now)] if moved else [hold]

    # -- what a removal waits for

    def _begin(self, session: AnySession, keys: list[Key], now: float) -> list[WaitingRemovals]:
        referred = [key for key in keys if self._is_referred(session, key)]
        others = [key for key in keys if key not in set(referred)] if referred else keys
        holds = [self._hold(session, others, now)] if others else []
        if referred:
            holds.append(self._hold(session, referred, now))
            holds[-1].referred = True
        return holds

    def _again(self, session: AnySession, hold: WaitingRemovals, now: float, limit: float) -> list[WaitingRemovals]:
        """The same removals, with what they have to wait for by now."""
        holds = self._begin(session, hold.keys, now)
        for each in holds:
            each.patient = hold.patient and hold.until is not None
            each.stepwise = each.stepwise or hold.stepwise
            each.limit = limit
            each.until = min(now + self._settings.ack_timeout, limit) if now < limit else None
        return holds

    def _hold(self, session: AnySession, keys: list[Key], now: float) -> WaitingRemovals:
        timeout = self._settings.ack_timeout
        missing = self._lacking(session)
        hold = WaitingRemovals(keys, now + timeout, now + STEPS * timeout, self._unanswered(session), missing)
        hold.patient = self._is_ordered(session) and any(session.leaving[key].is_remnant for key in keys)
        hold.stepwise = bool(missing)
        hold.behind = self._is_behind(session)
        return hold

    def _is_referred(self, session: AnySession, key: Key) -> bool:
        held = session.leaving[key]
        names = (held.name, *held.aliases)
        referrers = self.referrers(session)
        return any(each.refers_to((held.type_url, name)) for each in referrers for name in names)

    def _is_behind(self, session: AnySession) -> bool:
        """Listeners go before route configurations, and these before clusters."""
        return any(each.leaving for each in self.referrers(session) if each is not session)

    def _is_over(self, session: AnySession, hold: WaitingRemovals, now: float) -> bool:
        self._follow(session, hold, now)
        hold.rejected = _is_rejected(hold)
        if hold.rejected:
            return False  # ORD-4
        if hold.referred and (hold.until is not None or session.table.spec.stays_while_referred):
            return False
        if hold.patient and hold.until is not None:
            hold.awaited = {**self._unanswered(session), **hold.awaited}  # of those that are there by now
            hold.missing.update(self._lacking(session))
            return False
        if hold.until is not None and (hold.behind or hold.missing or self._lingers(session, hold)):
            return False
        if hold.until is None:
            return True
        if _is_answered(hold):
            hold.missing.update(self._lacking(session))  # the client may have unsubscribed from what it had
            hold.stepwise = hold.stepwise or bool(hold.missing)
            return not hold.missing and not self._drains(session, hold, now)
        return False

    def _lingers(self, session: AnySession, hold: WaitingRemovals) -> bool:
        """Whether the client will unsubscribe from it by itself, as gRPC does when no call uses it any more."""
        return hold.stepwise and self._is_by_name(session)

    def _drains(self, session: AnySession, hold: WaitingRemovals, now: float) -> bool:
        """Whether requests may still come on connections that the client accepted for listeners as they were before.

        Envoy serves those by the old listener, with its routes and filters, while it drains that.
        """
        if hold.drained is None:
            accepted = [self._accepted_at(type_url) for type_url in {LISTENER, *(each for each, _ in hold.arrived)}]
            served = self._is_ordered(session) and session.table.spec.url in _USED_BY_REQUESTS
            hold.drained = max(accepted) + self._settings.drain_time if served else now
        return now < hold.drained and not self._is_by_name(session)

    def _accepted_at(self, type_url: TypeUrl) -> float:
        session = self.sessions.get(type_url)
        accepted = session.progress.acked_at if session is not None else None
        return accepted if accepted is not None else -inf

    # -- responses that are not answered

    def _unanswered(self, session: AnySession) -> dict[AnySession, tuple[int, int]]:
        found: dict[AnySession, tuple[int, int]] = {}
        for referrer in self.referrers(session):
            state = referrer.progress
            answered = state.acked if state.nack is not None else _answered(referrer)
            first = min([answered + 1, *_rejected(referrer)])
            if state.sent >= first:
                found[referrer] = first, state.sent
        return found

    # -- resources that the client does not have yet

    def _is_ordered(self, session: AnySession) -> bool:
        return self._aggregated and bool(session.table.spec.referrers)

    def _lacking(self, session: AnySession) -> dict[Reference, None]:
        return dict.fromkeys(self._missing(session)) if self._is_ordered(session) else {}

    def _missing(self, session: AnySession) -> Iterator[Reference]:
        """What the client needs for what it has, and does not have yet."""
        by_name = self._is_by_name(session)
        for type_url in (LISTENER, SCOPED_ROUTE, ROUTE, CLUSTER) if by_name else (LISTENER, SCOPED_ROUTE):
            referrer = self.sessions.get(type_url)
            if referrer is not None:
                yield from (each for each in referrer.references() if self._lacks(each, by_name=by_name))

    def _is_needed(self, reference: Reference) -> bool:
        """Whether that which was missing is still referred to: a client asks for it no more where it is not."""
        found = (self.sessions.get(type_url) for type_url in (LISTENER, SCOPED_ROUTE, ROUTE, CLUSTER))
        return any(session.needs(reference) for session in found if session is not None)

    def _is_by_name(self, session: AnySession) -> bool:
        """Whether these are clusters of a client that asks for each, when it has a route to it."""
        return session.table.spec.url == CLUSTER and not session.has_wildcards

    def _lacks(self, reference: Reference, *, by_name: bool) -> bool:
        type_url, name = reference
        session = self.sessions.get(type_url)
        if session is None:
            return type_url in _NEEDED_BY_LISTENERS  # it has to ask for it first
        if type_url not in _NEEDED_BY_LISTENERS and not (by_name and type_url in (CLUSTER, ENDPOINT)):
            return False
        return not session.provides(name)

    def _follow(self, session: AnySession, hold: WaitingRemovals, now: float) -> None:
        """Some of what was missing may have been sent by now, and lead further."""
        by_name = self._is_by_name(session)
        steps = len(hold.arrived) + hold.answered
        for reference in [each for each in hold.missing if not self._lacks(each, by_name=by_name)]:
            del hold.missing[reference]
            hold.arrived.add(reference)
            sender = self.sessions[reference[0]]
            self._await(sender, hold)
            for further in sender.references_from(reference[1]):
                if further not in hold.arrived and self._lacks(further, by_name=by_name):
                    hold.missing[further] = None
        hold.answered = sum(max(0, _answered(each) - first + 1) for each, (first, _) in hold.awaited.items())
        if hold.until is not None and not hold.patient and len(hold.arrived) + hold.answered > steps:
            hold.until = min(now + self._settings.ack_timeout, hold.limit)

    def _await(self, session: AnySession, hold: WaitingRemovals) -> None:
        """What has arrived counts when the client has accepted it."""
        state = session.progress
        if state.sent > state.acked:
            first, _ = hold.awaited.get(session, (_answered(session) + 1, 0))
            hold.awaited[session] = first, state.sent


def _is_rejected(hold: WaitingRemovals) -> bool:
    """Whether the client has NACKed something that is awaited, and nothing better has come since."""
    for session, (first, _) in hold.awaited.items():
        progress = session.progress
        if any(number >= first for number in _rejected(session)):
            return True
        rejected = session.rejections.by_label.values()
        named = any(each.number == progress.nacked for each in rejected)
        newest = progress.nack is not None and progress.nacked > progress.acked
        if newest and progress.nacked >= first and not named:
            return True
    return False


def _rejected(session: AnySession) -> list[int]:
    """The numbers of responses that the client has not got over. What is leaving will not get better: it goes."""
    going = {(name, tag is not None) for name, tag in session.leaving}
    rejected = session.rejections.by_label.values()
    return [each.number for each in rejected if (each.part.name, each.part.located) not in going]


def _is_overcome(hold: WaitingRemovals) -> bool:
    """Whether a NACK of something that was awaited matters no more; what the client has now is another question."""
    progress = [(session.progress, last) for session, (_, last) in hold.awaited.items()]
    nacked = any(each.acked < last <= each.nacked for each, last in progress)
    return (hold.rejected or nacked) and not _is_rejected(hold)


def _is_answered(hold: WaitingRemovals) -> bool:
    """By ACKs, or by NACKs that no longer matter."""
    return all(_answered(session) >= last for session, (_, last) in hold.awaited.items())


def _answered(session: AnySession) -> int:
    return session.progress.answered
