"""Find out what a SotW client has of a type whose responses are full states, which are not kept (SOT-4).

The version of a response is the sum of the digests of all that the client holds (SRV-12). So what the client ACKed last
is found by going back through the history of the store, from what it was sent last, until the sum is that of the
version that it ACKed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..model.constraints import matches
from ..model.history import History, ResourceChange, VariantChange
from ..model.steps import EVERY, Steps
from ..model.types import Params
from .resource_status import ResourceStatus, mentions
from .session import Session
from .sotw_responses import version_of
from .sync_state import SyncState

_Accepted = dict[str, tuple[str, str]]  # by name: the version before the changes, and the one that replaced it; or ""


def comparing(session: Session, statuses: list[ResourceStatus], history: History) -> Steps[list[ResourceStatus]]:
    """Return the statuses with what the client has of each resource, as far as the history tells; in steps.

    A resource that did not change since the last ACK is SYNCED, unless the message of a NACK mentions it.
    """
    is_open = any(not status.confirmed for status in statuses)
    if not is_open or not session.context.full_state or not session.progress.acked:
        return statuses
    if any(status.key.is_locator for status in statuses):
        return statuses
    accepted = yield from _accepting(session, statuses, history)
    return statuses if accepted is None else [_known(status, accepted) for status in statuses]


def _known(status: ResourceStatus, accepted: _Accepted) -> ResourceStatus:
    if status.confirmed or status.sent is None:
        return status
    before, successor = accepted.get(status.sent.name, (status.sent.version, ""))
    if before != status.sent.version:
        return status._replace(is_first=not before, successor=successor)
    if status.error is not None and mentions(status.error.message, status.sent.name):
        return status._replace(confirmed=True)
    return status._replace(state=SyncState.SYNCED, confirmed=True, since=None, error=None)


def _accepting(session: Session, statuses: Collection[ResourceStatus], history: History) -> Steps[_Accepted | None]:
    """Return what changed since the client's last ACK; None: that is not known."""
    wanted = session.progress.acked_version
    had = {status.sent.name: status.sent.version for status in statuses if status.sent is not None}
    total = sum([_digest(version) for version in had.values()])
    found: _Accepted = {}
    looked_at = 0
    for revision in [*history.newest_first()]:
        if version_of(total) == wanted:
            return found
        if revision.is_forgotten or revision.more:
            return None
        for change in revision.changes:
            looked_at += 1
            if looked_at % EVERY == 0:
                yield
            if change.type_url != session.context.type_url or not _concerns(session, change.name):
                continue
            now = had.get(change.name, "")
            before = _before(change, now, session.context.plain_params(change.name))
            if before != now:
                total += _digest(before) - _digest(now)
                had[change.name] = before
                found[change.name] = before, now
    return found if version_of(total) == wanted else None


def _concerns(session: Session, name: str) -> bool:
    """Whether the client asked for this name, and may have it."""
    return session.view.is_subscribed(name, located=False) and session.context.shows(name)


def _digest(version: str) -> int:
    """Return the digest of a variant, which its version is written from."""
    return int(version, 16) if version else 0


def _before(change: ResourceChange, now: str, params: Params) -> str:
    """Return the version that a client had before a change, if it has the version `now` after it; empty: none."""
    came = next((each for each in change.variants if each.new == now), None) if now else None
    if came is not None and came.old:
        return came.old
    if came is None and now:
        return now  # the change was of other variants
    gone = next((each for each in change.variants if _went(each, params)), None)
    return gone.old if gone is not None else ""


def _went(each: VariantChange, params: Mapping[str, str]) -> bool:
    return bool(each.old) and not each.new and matches(each.constraint, params)
