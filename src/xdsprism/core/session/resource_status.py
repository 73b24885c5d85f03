"""Say how far one client is with each resource: what it was sent, what is current, what it rejected and why.

This reads a session and changes nothing. `listing_statuses` looks at each resource in steps, since one client may have
a million of them; between the steps the session goes on.

| state    | the resource                                                                                |
|----------|---------------------------------------------------------------------------------------------|
| NACKED   | was rejected                                                                                |
| STALE    | is in a response that is not answered, or changed and was not sent yet                      |
| NOT SENT | was asked for, and nothing was sent                                                         |
| SYNCED   | is what the client accepted, or the client knows that it does not exist                     |

A SotW client NACKs a full state as a whole (SOT-4). It uses the valid resources all the same (A46), and its message
names the others. So the resources that the message mentions count as rejected; all of them, if it mentions none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ..model.constraints import Constraint, matches
from ..model.events import Key, Rejection
from ..model.steps import EVERY, Steps, cut
from ..model.types import Variant
from ..model.views import Transition, alike
from .in_flight import InFlightResponse
from .rejections import RejectedResource, parts_of
from .session import Session
from .subscription import NameSubscription, WildcardSubscription
from .sync_state import SyncState

LOOKED_AT = 100_000  # resources of one client and type; more are not listed

_Form = tuple[str, bool]  # the name of a resource, and whether it was asked for by a locator
_Part = tuple[str, Constraint | None]  # its name, and its constraint if it was asked for by a locator


class ResourceStatus(NamedTuple):
    """How far a client is with one resource."""

    key: Key
    state: SyncState
    sent: Variant | None  # what it was sent last, or has from an earlier stream
    current: Variant | None  # what it should have
    confirmed: bool  # it accepted `sent`
    is_first: bool  # nothing was accepted before `sent`
    since: float | None = None  # STALE: when the oldest response with it was sent that is not answered
    error: Rejection | None = None  # NACKED: why
    unanswered: Variant | None = None  # STALE: the oldest variant that was sent and is not answered
    # Of a full state, whose responses are not kept: the revision of the table when the oldest was sent that was not
    # accepted. What changed before that may have been accepted.
    revision: int | None = None
    successor: str | None = None  # the version that replaced what the client has, where accepted_state.py found it


class _Pending(NamedTuple):
    """What waits for an answer on one session, or was rejected."""

    unanswered: dict[_Form, list[tuple[InFlightResponse, Variant]]]  # the oldest response first
    removals: dict[_Form, InFlightResponse]
    full_state: InFlightResponse | None  # the oldest response that has every resource
    rejected: dict[_Part, RejectedResource]
    rejected_state: Rejection | None  # of a full state
    accepted_none: bool  # the client has accepted nothing of this type
    revision: int | None  # when the full state that is in flight or rejected was sent


def listing_statuses(session: Session, most: int | None = None) -> Steps[tuple[list[ResourceStatus], int]]:
    """Return the statuses of the resources of one client and type, and how many were left out; in steps.

    `most`: how many are looked at, if not LOOKED_AT.
    """
    most = most if most is not None else LOOKED_AT
    pending = yield from _pending_of(session)
    found: list[ResourceStatus] = []
    wants = [*islice(session.subscriptions.all_names(), most)]
    for named in cut(wants):
        found += [_named_status(session, want, pending) for want in named]
        yield
    left_out = max(0, session.count - most)
    for wild in [*session.subscriptions.all_wildcards()]:
        gone = [key.name for key in session.leaving if key.tag == wild.tag and key.name not in wild.listing.names]
        names = [*gone, *islice(wild.listing.names, max(0, most - len(found)))]
        left_out += len(gone) + len(wild.listing.names) - len(names)
        changes = wild.transitions() if wild.is_behind else {}
        yield
        for members in cut(names):
            statuses = [_member_status(session, wild, name, changes, pending) for name in members]
            found += [status for status in statuses if status is not None]
            yield
    return (yield from _naming_rejected(found, pending)), left_out


def _pending_of(session: Session) -> Steps[_Pending]:
    """Collect what waits for an answer, and what was rejected."""
    unanswered: dict[_Form, list[tuple[InFlightResponse, Variant]]] = {}
    removals: dict[_Form, InFlightResponse] = {}
    full_state: InFlightResponse | None = None
    looked_at = 0
    for response in [*session.in_flight.responses.values()]:
        if response.send is None:
            full_state = full_state or response
            continue
        for gone in response.send.withdrawn:  # parts_of leaves out the negative answers
            removals.setdefault((gone.name, True), response)
        for part in parts_of(response.send) if looked_at < LOOKED_AT else ():
            looked_at += 1
            if part.variant is None:
                removals.setdefault((part.name, part.located), response)
            else:
                unanswered.setdefault((part.name, part.located), []).append((response, part.variant))
            if looked_at % EVERY == 0:
                yield
    rejected = {
        _part(each.part.variant, located=each.part.located): each
        for each in session.rejections.by_label.values()
        if each.part.variant is not None
    }
    nack = session.progress.nack
    whole = nack[3] if nack is not None and session.context.full_state else None
    accepted_none = not session.progress.acked and not session.progress.spared
    revision = _revision(session, nack[2] if nack is not None else None)
    return _Pending(unanswered, removals, full_state, rejected, whole, accepted_none, revision)


def _revision(session: Session, rejected: str | None) -> int | None:
    """Return the revision at which the oldest full state was sent that the client did not accept.

    `rejected`: the nonce of the last NACK. A nonce begins with the revision of the table (`InFlight.next_nonce`).
    """
    if not session.context.full_state:
        return None
    nonces = [*([rejected] if rejected is not None else []), *islice(session.in_flight.responses, 1)]
    return min([int(nonce.partition(".")[0]) for nonce in nonces], default=None)


def _part(variant: Variant, *, located: bool) -> _Part:
    return variant.name, variant.constraint if located else None


def _named_status(session: Session, want: NameSubscription, pending: _Pending) -> ResourceStatus:
    """The status of a resource that the client subscribed to by name."""
    key, sent = want.key, session.leaving.get(want.key) or want.held
    current = session.availability.selected(want)
    if sent is None:
        removal = pending.removals.get((want.name, want.located))
        if not want.answered or current is not None:
            return ResourceStatus(key, SyncState.NOT_SENT, None, current, confirmed=False, is_first=True)
        if removal is not None:
            return ResourceStatus(key, SyncState.STALE, None, None, False, False, removal.sent_at)  # noqa: FBT003
        return ResourceStatus(key, SyncState.SYNCED, None, None, confirmed=True, is_first=False)
    is_behind = not want.answered or not alike(sent, current)
    return _status(key, sent, current, pending, is_behind=is_behind)


def _member_status(
    session: Session, wild: WildcardSubscription, name: str, changes: Mapping[str, Transition], pending: _Pending
) -> ResourceStatus | None:
    """The status of a resource that the client has by a wildcard; None: the client does not see it, or by its name."""
    key = wild.key_of(name)
    if session.subscriptions.find(key) is not None or not session.view.speaks_for(wild, name):
        return None
    current = wild.listing.member(name, wild.params)
    sent = None
    if wild.started:
        change = changes.get(name)
        sent = session.leaving.get(key) or (change.before if change is not None else current)
    if sent is None:
        if current is None:
            return None
        return ResourceStatus(key, SyncState.NOT_SENT, None, current, confirmed=False, is_first=True)
    return _status(key, sent, current, pending, is_behind=not alike(sent, current))


def _status(key: Key, sent: Variant, current: Variant | None, pending: _Pending, *, is_behind: bool) -> ResourceStatus:
    """The status of a resource that was sent."""
    part = _part(sent, located=key.tag is not None)
    bad = pending.rejected.get(part)
    if bad is not None and not is_behind:
        return ResourceStatus(key, SyncState.NACKED, sent, current, False, pending.accepted_none, None, bad.error)  # noqa: FBT003
    response, oldest = _oldest(key, pending)
    if response is not None or is_behind:
        since = response.sent_at if response is not None else None
        first = response is not None and pending.accepted_none
        return ResourceStatus(
            key, SyncState.STALE, sent, current, response is None, first, since, None, oldest, pending.revision
        )
    return ResourceStatus(key, SyncState.SYNCED, sent, current, confirmed=True, is_first=False)


def _oldest(key: Key, pending: _Pending) -> tuple[InFlightResponse | None, Variant | None]:
    """Return the oldest response with a resource that is not answered, and the variant that it has."""
    for response, variant in pending.unanswered.get((key.name, key.is_locator), ()):
        if key.tag is None or matches(variant.constraint, key.tag):
            return response, variant
    return pending.full_state, None


def _naming_rejected(found: list[ResourceStatus], pending: _Pending) -> Steps[list[ResourceStatus]]:
    """Mark the resources that the NACK of a full state mentions, or all of them; in steps."""
    error = pending.rejected_state
    if error is None:
        return found
    mentioned: set[Key] = set()
    for part in cut(found):
        mentioned.update(each.key for each in part if mentions(error.message, each.key.name))
        yield
    return [
        each._replace(
            state=SyncState.NACKED,
            confirmed=False,
            is_first=pending.accepted_none,
            error=error,
            revision=pending.revision,
        )
        if each.sent is not None and (not mentioned or each.key in mentioned)
        else each
        for each in found
    ]


def mentions(message: str, name: str) -> bool:
    """Whether an error message has this name in it, and not as a part of a longer word."""
    return bool(name) and any(
        not (message[at - 1 : at] if at else "").isalnum() and not message[end : end + 1].isalnum()
        for at, end in _places(message, name)
    )


def _places(message: str, name: str) -> Iterator[tuple[int, int]]:
    at = message.find(name)
    while at >= 0:
        yield at, at + len(name)
        at = message.find(name, at + 1)
