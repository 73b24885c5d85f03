"""Fast path: send one changed variant to sessions that have nothing else pending, and take the ACK.

A session is at rest when no response, removal, heartbeat or refusal is due and the client rejected nothing
(`is_at_rest` lists the conditions). A change then means that one variant replaces another, and all clients that hold
the one and see the other are sent the same response, which the first of their sessions makes (`table.shared`).

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

This runs for each message to each client. So the code saves calls, and repeats some lines of `Verdicts.sent` and
`InFlight`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.events import WILDCARD, DeltaRequest, Send, SotwRequest
from ..model.types import Variant
from ..model.views import alike
from .in_flight import MOST, InFlightResponse
from .subscription import NameSubscription, WildcardSubscription

if TYPE_CHECKING:
    from .session import Session

News = tuple[Variant, ...]
Replaced = tuple[NameSubscription, Variant]  # a subscription, and the variant that its client holds from now on

_NOTHING: list[Send] = []


def is_at_rest(session: Session) -> bool:
    """Whether only a change or a request can make a response due."""
    return not (
        not session.rules.has_fast_path
        or session.due
        or session.holdings.leaving
        or session.admission.refusals
        or session.ttl
        or session.progress.nack
        or session.rejections
        or session.subscriptions.is_behind
        or not session.responses.is_settled
    )


def greet(session: Session, now: float) -> list[Send] | None:
    """Return the first response to a client that subscribes to `*` alone; None: take the general path.

    The caller knows that this session has sent nothing yet.
    """
    # One wildcard, `*`, in plain form, and no names. The client brought no versions from an earlier stream.
    subscriptions, due, table = session.subscriptions, session.due, session.table
    wildcards = subscriptions.wildcards
    wild = wildcards.get(WILDCARD, {}).get(None) if len(wildcards) == 1 and not subscriptions.names else None
    if wild is None or wild.started or wild.initial or wild.again or wild.problem is not None:
        return None
    odd = not session.rules.has_fast_path or session.holdings.leaving or due.owed or due.dirty or session.ttl
    if (
        odd
        or session.admission.refusals
        or len(wildcards[WILDCARD]) > 1
        or not session.availability.lists(wild)
        or session.availability.problem(wild) is not None
    ):
        return None
    # Resources with a TTL need timers, and a second response at this revision needs a nonce of its own.
    snapshot = wild.listing.snapshot(wild.params)
    if not snapshot.is_plain or session.in_flight.revision == table.shown_revision:
        return None
    send = session.responses.shared_wildcard(wild, snapshot.variants)
    if send is None:
        return None
    # Nothing above changed the session. From here on the response goes out.
    wild.started, due.response = True, False
    wild.cursor = wild.listing.advance(wild.cursor)
    return [_pushed_out(session, send, now)]


def push(session: Session, now: float) -> list[Send] | None:
    """Return the responses to a change for a session that was at rest; None: take the general path."""
    if session.in_flight.revision == session.table.shown_revision:
        return None  # a response went out at this revision already, so this one needs its own nonce
    subscriptions = session.subscriptions
    wildcards = subscriptions.wildcards
    if not wildcards:
        dirty = session.due.dirty
        if len(dirty) != 1:
            return _push_names(session, now)
        (want,) = dirty  # nearly always there is one
        after = _successor(session, want)
        send = session.responses.shared_name(want, after) if after is not None else None
        if send is None or after is None:
            return _push_names(session, now)
        dirty.clear()
        session.holdings.hold(want, after)
        return [_pushed_out(session, send, now)]
    # With wildcards: a single `*`, and nothing else.
    wilds = wildcards.get(WILDCARD)
    if wilds is None or subscriptions.names or len(wildcards) > 1 or len(wilds) != 1:
        return None
    (wild,) = wilds.values()
    return _push_wildcard(session, wild, now)


def _push_names(session: Session, now: float) -> list[Send] | None:
    """Push to name subscriptions, if each dirty one has a simple successor."""
    dirty = session.due.dirty
    moved: list[Replaced] = []
    for want in dirty:
        after = _successor(session, want)
        if after is None:
            return None
        if after is not want.held:
            moved.append((want, after))
    # A variant that was deleted and put back unchanged is another object, but the client need not be sent it.
    replaced = [each for each in moved if not alike(each[0].held, each[1])]
    send = session.responses.shared(replaced) if replaced else None
    if replaced and send is None:
        return None
    dirty.clear()
    for want, after in moved:
        session.holdings.hold(want, after)
    return [_pushed_out(session, send, now)] if send is not None else _NOTHING


def _successor(session: Session, want: NameSubscription) -> Variant | None:
    """Return the variant that replaces what the client holds; None if that needs more than a new version."""
    table, held, name = session.table, want.held, want.name
    known = table.named(name)
    if known is None or held is None or not want.answered or held.ttl is not None:
        return None
    after = known.sole or known.select(want.params)
    if after is None or after.ttl is not None or after.name != held.name:
        return None
    if want.located and after.constraint != held.constraint:
        return None  # other constraints: the old variant must be withdrawn (DYN-24)
    # A relay may have an error to send, or one to end, with the resource (TP3).
    if not table.authoritative and (want.problem is not None or table.knowledge.problem(name, want.params) is not None):
        return None
    return after


def _push_wildcard(session: Session, wild: WildcardSubscription, now: float) -> list[Send] | None:
    """Push what changed for a single `*` subscription, if nothing went away."""
    listing, table = wild.listing, session.table
    if not wild.started or wild.again or wild.initial or wild.problem is not None or session.due.dirty:
        return None
    if not table.authoritative and table.knowledge.problem(wild.name, wild.params) is not None:
        return None
    # `news` is None if a member went or has a TTL. A located member may withdraw another variant (DYN-24).
    news = listing.difference(wild.cursor, wild.params).news
    if news is None or (wild.tag is not None and news):
        return None
    send = session.responses.shared_wildcard(wild, news) if news else None
    if news and send is None:
        return None
    wild.cursor = listing.advance(wild.cursor)
    if send is None:
        return _NOTHING
    _pushed_out(session, send, now)
    session.news = news  # a full state has more in it than what is new
    return [send]


def _pushed_out(session: Session, send: Send, now: float) -> Send:
    """Count a response and wait for its ACK: `Verdicts.sent` without TTLs."""
    in_flight, context = session.in_flight, session.context
    in_flight.use_shared_nonce(context.table.shown_revision)
    session.news = send.plain or send.located
    progress, responses, version = in_flight.progress, in_flight.responses, send.version
    number = progress.sent = progress.sent + 1
    progress.sent_version, progress.sent_at = version, now
    # A NACK of a full state resends nothing, so that is not kept.
    kept = None if context.full_state else send
    responses[send.nonce] = InFlightResponse(number, now, version, kept)
    in_flight.newest = send.nonce
    if len(responses) > MOST:
        in_flight.forget_oldest()
    facts = context.facts
    routine = facts.routines.get(send.type_url) or facts.routine(send.type_url)
    routine.pushes += 1
    routine.resources += len(send.plain) + len(send.located)
    return send


def acknowledged(session: Session, request: SotwRequest | DeltaRequest, now: float) -> bool:
    """Take the ACK of a response in flight. Return False, and do nothing, if the general path must look at it.

    It must if the response had TTLs, or if a NACK is not overcome, which this ACK may end.
    """
    nonce = request.nonce
    responses, progress = session.in_flight.responses, session.progress
    found = responses.get(nonce)
    if found is None:
        return False
    if found.timed or progress.nack is not None or session.rejections:
        return False
    del responses[nonce]
    progress.acked = max(progress.acked, found.number)
    progress.acked_version, progress.acked_at = found.version, now
    url, facts = session.table.spec.url, session.context.facts
    (facts.routines.get(url) or facts.routine(url)).waits.append(now - found.sent_at)
    return True
