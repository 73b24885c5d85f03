"""Decide when a removal may go out: make before break, between the types of one stream.

Requirements ORD-2, ORD-4 and ORD-12. A removal waits as long as one of these holds:

1. A resource that the client holds refers to it, even one whose own removal waits (references.py).
2. A response of a type that may refer to it is in flight. Until the client ACKs it, the client uses what it had before.
3. A resource that the client holds refers to one that it does not hold yet. Say a listener moves to another route
   configuration: the client asks for the new one after it has received the listener, and serves by the old listener,
   with all that this leads to, until the new route configuration has arrived. A gRPC client, which asks for clusters by
   name, goes on with what it has until the last of the new clusters has its endpoints, and then unsubscribes from the
   old ones by itself.
4. The client accepted listeners less than `drain_time` ago. Envoy serves a connection that it accepted before by the
   old listener, and a request on that connection goes where the old listener leads.

A removal does not wait without end. It goes `ack_timeout` after it came up, or after the last step that the client took
(it ACKed a response, or asked for a resource that it lacked), and after STEPS times that in any case. There are two
exceptions. If the client NACKs a response that the removal waits for, the client goes on with what it had, so the
removal waits until that is overcome (ORD-4). And the configuration of a filter stays as long as something refers to it
(ORD-12).

Removals of one type that come up together form a hold, `WaitingRemovals`. Each poll of the stream calls `due` for each
type:

    fresh keys of `leaving` -> _begin -> hold -> _reviewed (something changed? begin anew) -> _is_over -> keys to remove

References are looked at only if something leaves. The store counts how many resources refer to each name, so that the
usual answer, none, needs no walk through what the client holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from ..model.events import Key
from ..model.settings import Settings
from ..model.types import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SCOPED_ROUTE, Reference, TypeUrl
from ..session.session import Session

STEPS = 8  # of a client: listener, scopes, route configuration, cluster, endpoints; it asks for most, then ACKs

# The types that a listener needs before Envoy uses it.
_NEEDED_BY_LISTENERS = frozenset({SCOPED_ROUTE, ROUTE, EXTENSION_CONFIG})
# The types that must be there when a request arrives.
_USED_BY_REQUESTS = frozenset({CLUSTER, EXTENSION_CONFIG})


@dataclass(slots=True)
class WaitingRemovals:
    """Removals of one type that came up together: until when they wait, and for what."""

    keys: list[Key]
    until: float | None  # None: that time is over
    limit: float  # the removals go then, even if the client still makes progress
    awaited: dict[Session, tuple[int, int]]  # per type: the first and the last response that must be answered
    missing: dict[Reference, None]  # resources that the client needs and does not have
    patient: bool = False  # the client has these from an earlier stream: types that refer to them may come later
    stepwise: bool = False  # the client had to ask for something
    behind: bool = False  # removals that must go before these wait themselves
    referred: bool = False  # a resource refers to each of these
    rejected: bool = False  # the client NACKed one of the awaited responses
    arrived: set[Reference] = field(default_factory=set)  # resources that were missing
    answered: int = 0  # how many of the awaited responses were answered
    drained: float | None = None  # once nothing else is awaited: when the old listeners are out of use


class Removals:
    """The removals of one stream that wait."""

    __slots__ = ("_aggregated", "_holds", "_settings", "sessions")

    def __init__(self, settings: Settings, *, aggregated: bool) -> None:
        self.sessions: Mapping[TypeUrl, Session] = {}
        self._settings = settings
        self._aggregated = aggregated  # ORD-10: removals don't wait for types on other streams
        self._holds: dict[TypeUrl, list[WaitingRemovals]] | None = None  # None where none waits, as on most streams

    def __bool__(self) -> bool:
        return bool(self._holds)

    def deadlines(self) -> Iterator[float | None]:
        """Yield the times at which a waiting removal may become due."""
        held = chain.from_iterable(self._holds.values() if self._holds is not None else ())
        return chain.from_iterable([(hold.until, hold.drained) for hold in held])

    def clear(self) -> None:
        """Forget everything: the stream is closed."""
        self.sessions = {}
        self._holds = None

    def referrers(self, session: Session) -> list[Session]:
        """Return the sessions of the types whose resources may refer to this session's type."""
        found = (self.sessions.get(type_url) for type_url in session.table.spec.referrers)
        own = [session] if session.table.is_nested else []
        return own + [referrer for referrer in found if referrer is not None]

    def due(self, type_url: TypeUrl, session: Session, now: float) -> list[Key]:
        """Return the keys of this session's leaving variants that may be removed now."""
        # Everything came back, or was removed or unsubscribed.
        if not session.leaving:
            if self._holds is not None:
                self._holds.pop(type_url, None)
            return []
        holds = self._holds.pop(type_url, []) if self._holds is not None else []
        known = {key for hold in holds for key in hold.keys}
        fresh = [key for key in session.leaving if key not in known]
        if fresh:
            holds += self._begin(session, fresh, now)
        free: list[Key] = []
        for hold in list(chain.from_iterable(self._reviewed(session, each, now) for each in holds)):
            if self._is_over(session, hold, now):
                free += hold.keys
            elif hold.keys:
                self._holds = self._holds if self._holds is not None else {}
                self._holds.setdefault(type_url, []).append(hold)
        return free

    def _reviewed(self, session: Session, hold: WaitingRemovals, now: float) -> list[WaitingRemovals]:
        """Review a hold, and return its new state. If the resources that it waited for have changed, it waits anew."""
        hold.keys = [key for key in hold.keys if key in session.leaving]  # the others came back, or were unsubscribed
        if hold.until is not None and now >= hold.until:
            hold.until = None
        # The client recovered from the NACK, so find out what it needs now.
        if _is_overcome(hold):
            return self._again(session, hold, now, now + STEPS * self._settings.ack_timeout)
        # The types that refer to these had their time to show up on the new stream. Now wait as for any removal.
        if hold.patient and hold.until is None:
            return self._again(session, hold, now, now + STEPS * self._settings.ack_timeout)
        # Nothing needs a missing resource any more, so the client will not ask for it.
        overtaken = hold.until is not None and not all(map(self._is_needed, hold.missing))
        if overtaken or (hold.behind and not self._is_behind(session)):
            return self._again(session, hold, now, hold.limit)
        if not hold.referred:
            return [hold]
        # Variants that nothing refers to any more no longer share the fate of the others.
        moved = [key for key in hold.keys if not self._is_referred(session, key)]
        hold.keys = [key for key in hold.keys if key not in set(moved)]
        return [hold, self._hold(session, moved, now)] if moved else [hold]

    # -- what a removal waits for

    def _begin(self, session: Session, keys: list[Key], now: float) -> list[WaitingRemovals]:
        """Return holds for these removals: one for those that something refers to, and one for the others."""
        referred = [key for key in keys if self._is_referred(session, key)]
        others = [key for key in keys if key not in set(referred)] if referred else keys
        holds = [self._hold(session, others, now)] if others else []
        if referred:
            holds.append(self._hold(session, referred, now))
            holds[-1].referred = True
        return holds

    def _again(self, session: Session, hold: WaitingRemovals, now: float, limit: float) -> list[WaitingRemovals]:
        """Return new holds for the same removals, with what they have to wait for by now."""
        holds = self._begin(session, hold.keys, now)
        for each in holds:
            each.patient = hold.patient and hold.until is not None
            each.stepwise = each.stepwise or hold.stepwise
            each.limit = limit
            each.until = min(now + self._settings.ack_timeout, limit) if now < limit else None
        return holds

    def _hold(self, session: Session, keys: list[Key], now: float) -> WaitingRemovals:
        """Return a hold for these removals, with the responses and resources that they wait for."""
        timeout = self._settings.ack_timeout
        missing = self._lacking(session)
        hold = WaitingRemovals(keys, now + timeout, now + STEPS * timeout, self._unanswered(session), missing)
        hold.patient = self._is_ordered(session) and any(session.leaving[key].is_remnant for key in keys)
        hold.stepwise = bool(missing)
        hold.behind = self._is_behind(session)
        return hold

    def _is_referred(self, session: Session, key: Key) -> bool:
        """Whether a resource that the client holds refers to this leaving variant, by its name or an alias."""
        held = session.leaving[key]
        names = (held.name, *held.aliases)
        referrers = self.referrers(session)
        return any(each.view.refers_to((held.type_url, name)) for each in referrers for name in names)

    def _is_behind(self, session: Session) -> bool:
        """Whether removals of a referring type wait: listeners go before routes, and these before clusters."""
        return any(each.leaving for each in self.referrers(session) if each is not session)

    def _is_over(self, session: Session, hold: WaitingRemovals, now: float) -> bool:
        """Whether these removals may go out now."""
        self._follow(session, hold, now)
        hold.rejected = _is_rejected(hold)
        if hold.rejected:
            return False  # ORD-4
        # ORD-12: some types stay while something refers to them, even after the timeout.
        if hold.referred and (hold.until is not None or session.table.spec.stays_while_referred):
            return False
        # The client came back with these resources. Collect what they wait for while its other types subscribe.
        if hold.patient and hold.until is not None:
            hold.awaited = {**self._unanswered(session), **hold.awaited}  # of the types that are there by now
            hold.missing.update(self._lacking(session))
            return False
        if hold.until is not None and (hold.behind or hold.missing or self._lingers(session, hold)):
            return False
        if hold.until is None:
            return True
        if _is_answered(hold):
            hold.missing.update(self._lacking(session))  # the client may have unsubscribed from what it had
            hold.stepwise |= bool(hold.missing)
            return not hold.missing and not self._drains(session, hold, now)
        return False

    def _lingers(self, session: Session, hold: WaitingRemovals) -> bool:
        """Whether the client will unsubscribe by itself, as gRPC does when no call uses the cluster any more."""
        return hold.stepwise and self._is_by_name(session)

    def _drains(self, session: Session, hold: WaitingRemovals, now: float) -> bool:
        """Whether requests may still arrive on connections that the client accepted for the old listeners.

        Envoy serves those by the old listener, with its routes and filters, while that one drains.
        """
        if hold.drained is None:
            accepted = [self._accepted_at(type_url) for type_url in {LISTENER, *(each for each, _ in hold.arrived)}]
            served = self._is_ordered(session) and session.table.spec.url in _USED_BY_REQUESTS
            hold.drained = max(accepted) + self._settings.drain_time if served else now
        return now < hold.drained and not self._is_by_name(session)

    def _accepted_at(self, type_url: TypeUrl) -> float:
        """Return when the client last ACKed a response of this type."""
        session = self.sessions.get(type_url)
        accepted = session.progress.acked_at if session is not None else None
        return accepted if accepted is not None else -inf

    # -- responses that are not answered

    def _unanswered(self, session: Session) -> dict[Session, tuple[int, int]]:
        """Return the responses of referring types that the client must still ACK, as first and last number.

        A NACKed response counts as unanswered from the last ACK on.
        """
        found: dict[Session, tuple[int, int]] = {}
        for referrer in self.referrers(session):
            state = referrer.progress
            answered = state.acked if state.nack is not None else _answered(referrer)
            first = min([answered + 1, *_rejected(referrer)])
            if state.sent >= first:
                found[referrer] = first, state.sent
        return found

    # -- resources that the client does not have yet

    def _is_ordered(self, session: Session) -> bool:
        """Whether removals of this type wait for other types at all: on ADS, if types may refer to it."""
        return self._aggregated and bool(session.table.spec.referrers)

    def _lacking(self, session: Session) -> dict[Reference, None]:
        """Return the resources that the client needs before it moves off what is being removed."""
        return dict.fromkeys(self._missing(session)) if self._is_ordered(session) else {}

    def _missing(self, session: Session) -> Iterator[Reference]:
        """Yield the resources that the client's listeners and scopes refer to and that it does not have yet.

        For clusters of a client that asks for them by name, references of routes and clusters count, too.
        """
        by_name = self._is_by_name(session)
        for type_url in (LISTENER, SCOPED_ROUTE, ROUTE, CLUSTER) if by_name else (LISTENER, SCOPED_ROUTE):
            referrer = self.sessions.get(type_url)
            if referrer is not None:
                for each in referrer.view.references():
                    if self._lacks(each, by_name=by_name):
                        yield each

    def _is_needed(self, reference: Reference) -> bool:
        """Whether something still refers to a missing resource. If not, the client will not ask for it."""
        found = [self.sessions.get(type_url) for type_url in (LISTENER, SCOPED_ROUTE, ROUTE, CLUSTER)]
        return any(session.view.needs(reference) for session in found if session is not None)

    def _is_by_name(self, session: Session) -> bool:
        """Whether these are clusters of a client that subscribes to each by name, as gRPC does for its routes."""
        return session.table.spec.url == CLUSTER and not session.subscriptions.wildcards

    def _lacks(self, reference: Reference, *, by_name: bool) -> bool:
        """Whether the client does not have the resource of this reference, and has to wait for it."""
        type_url, name = reference
        session = self.sessions.get(type_url)
        if session is None:
            return type_url in _NEEDED_BY_LISTENERS  # the client has not asked for this type yet
        if type_url not in _NEEDED_BY_LISTENERS and not (by_name and type_url in (CLUSTER, ENDPOINT)):
            return False
        return not session.view.provides(name)

    def _follow(self, session: Session, hold: WaitingRemovals, now: float) -> None:
        """Note the missing resources that have arrived, and the further ones that these refer to.

        Each step that the client takes prolongs the time that the removals wait.
        """
        by_name = self._is_by_name(session)
        steps = len(hold.arrived) + hold.answered
        for reference in [each for each in hold.missing if not self._lacks(each, by_name=by_name)]:
            del hold.missing[reference]
            hold.arrived.add(reference)
            sender = self.sessions[reference[0]]
            self._await(sender, hold)
            for further in sender.view.references_from(reference[1]):
                if further not in hold.arrived and self._lacks(further, by_name=by_name):
                    hold.missing[further] = None
        hold.answered = sum(max(0, _answered(each) - first + 1) for each, (first, _) in hold.awaited.items())
        if hold.until is not None and not hold.patient and len(hold.arrived) + hold.answered > steps:
            hold.until = min(now + self._settings.ack_timeout, hold.limit)

    def _await(self, session: Session, hold: WaitingRemovals) -> None:
        """Wait for the ACK of the responses that brought a missing resource."""
        state = session.progress
        if state.sent > state.acked:
            first, _ = hold.awaited.get(session, (_answered(session) + 1, 0))
            hold.awaited[session] = first, state.sent


def _is_rejected(hold: WaitingRemovals) -> bool:
    """Whether the client NACKed an awaited response, and has accepted nothing better since."""
    for session, (first, _) in hold.awaited.items():
        progress = session.progress
        if any(number >= first for number in _rejected(session)):
            return True
        # A NACK of several resources names none of them, so it counts by its number.
        rejected = session.rejections.by_label.values()
        named = any(each.number == progress.nacked for each in rejected)
        newest = progress.nack is not None and progress.nacked > progress.acked
        if newest and progress.nacked >= first and not named:
            return True
    return False


def _rejected(session: Session) -> list[int]:
    """Return the numbers of the responses whose resources the client still rejects.

    A rejected resource that is leaving will not be replaced by a better one, so it holds up nothing.
    """
    going = {(name, tag is not None) for name, tag in session.leaving}
    rejected = session.rejections.by_label.values()
    return [each.number for each in rejected if (each.part.name, each.part.located) not in going]


def _is_overcome(hold: WaitingRemovals) -> bool:
    """Whether a NACK of an awaited response has become irrelevant, so that the client's needs must be found anew."""
    progress = [(session.progress, last) for session, (_, last) in hold.awaited.items()]
    nacked = any(each.acked < last <= each.nacked for each, last in progress)
    return (hold.rejected or nacked) and not _is_rejected(hold)


def _is_answered(hold: WaitingRemovals) -> bool:
    """Whether each awaited response was ACKed, or NACKed by a NACK that is irrelevant by now."""
    return all(_answered(session) >= last for session, (_, last) in hold.awaited.items())


def _answered(session: Session) -> int:
    """Return the number of the newest response that the client ACKed or NACKed."""
    return session.progress.answered
