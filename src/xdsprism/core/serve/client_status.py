"""Decide what a question about clients is answered with (CSDS): which clients, and how far each is with what.

Who asks is a `Viewer` (core/policy/oversight.py), which says what it may be shown. All that is left out for it is left
out before anything is counted. How far a client is with a resource is decided in core/session/resource_status.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ..model.events import Key, Node
from ..model.steps import EVERY, Steps
from ..model.types import TypeUrl, Variant
from ..policy.oversight import Viewer
from ..session.resource_status import ResourceStatus, listing_statuses
from ..session.session import Session
from ..session.sync_state import SyncState
from .node_matchers import Hidden, NodeMatch, matching_any
from .stream import Stream

FEW = 16  # clients that are compared with matchers in one step
ROWS = 50_000  # resources of one stream that are looked at: more have no room in an answer


@dataclass(frozen=True, slots=True)
class StatusQuestion:
    """One request about clients."""

    matchers: tuple[NodeMatch, ...] = ()  # which clients; without any, all
    node: Node | None = None  # the client that asks; None: it does not say, or said so before
    contents: bool = True  # whether to answer with the contents of resources (CSD-2)


class Candidate(NamedTuple):
    """A live stream, and the client that it belongs to."""

    client: Hashable
    stream: Stream


class StatusRow(NamedTuple):
    """How far a client is with one resource of one type."""

    type_url: TypeUrl
    status: ResourceStatus
    at: float | None  # when the client ACKed or NACKed it, or was sent it, as far as that is known


class ChosenClient(NamedTuple):
    """A client that the answer is about."""

    node: Node
    streams: list[Stream]


def choosing(
    candidates: Iterable[Candidate], question: StatusQuestion, viewer: Viewer, hidden: Hidden
) -> Steps[list[ChosenClient]]:
    """Return the clients that the question is about and that the viewer may see; those with a NACK come first."""
    found: dict[Hashable, ChosenClient] = {}
    at_once = FEW if question.matchers else EVERY
    for number, (client, stream) in enumerate(candidates):
        if number % at_once == 0:
            yield
        node = stream.node
        if node is None or not viewer.sees(stream.context.grant):
            continue
        if (yield from matching_any(question.matchers, node, hidden)):
            found.setdefault(client, ChosenClient(node, [])).streams.append(stream)
    ranks: dict[bool, list[ChosenClient]] = {True: [], False: []}
    for number, chosen in enumerate(found.values()):
        if number % EVERY == 0:
            yield
        ranks[_has_nack(chosen.streams)].append(chosen)
    return ranks[True] + ranks[False]


def _has_nack(streams: Iterable[Stream]) -> bool:
    return any(session.progress.nack is not None for stream in streams for session in stream.sessions.values())


def listing_rows(stream: Stream, viewer: Viewer) -> Steps[tuple[list[StatusRow], bool]]:
    """Return how far a client is with each resource of a stream, and whether some were not looked at.

    What was rejected comes first.
    """
    rejected: list[StatusRow] = []
    others: list[StatusRow] = []
    is_partial = False
    for type_url, session in [*stream.sessions.items()]:
        statuses, left_out = yield from listing_statuses(session, ROWS - len(others))
        is_partial = is_partial or left_out > 0
        if session.rejections:
            statuses += _unlisted_rejections(session, statuses, is_partial=left_out > 0)
        rejected_at = _rejected_at(session)
        for number, status in enumerate(statuses):
            if number % EVERY == EVERY - 1:
                yield
            if viewer.sees_resource(type_url, _name(status)):
                row = StatusRow(type_url, status, _time_of(session, status, rejected_at))
                (rejected if status.state is SyncState.NACKED else others).append(row)
    return rejected + others, is_partial


def _unlisted_rejections(
    session: Session, statuses: Iterable[ResourceStatus], *, is_partial: bool
) -> list[ResourceStatus]:
    """Return the statuses of what was rejected and is not among those that were looked at, and of rejected removals."""
    listed = {status.sent for status in statuses}
    found: list[ResourceStatus] = []
    for each in islice(session.rejections.by_label.values(), ROWS):
        variant = each.part.variant
        if variant is None or (is_partial and variant not in listed):
            key = Key(each.part.name)
            found.append(ResourceStatus(key, SyncState.NACKED, variant, None, False, False, None, each.error))  # noqa: FBT003
    return found


def _name(status: ResourceStatus) -> str:
    """Return the name to show: of the resource, where the client subscribed by an alias or as a host."""
    return status.sent.name if status.sent is not None else status.key.name


def _rejected_at(session: Session) -> dict[Variant, float]:
    """Return when each variant was rejected, as far as the NACK was of that one alone."""
    rejected = session.rejections.by_label.values()
    return {each.part.variant: each.at for each in rejected if each.part.variant is not None}


def _time_of(session: Session, status: ResourceStatus, rejected_at: Mapping[Variant, float]) -> float | None:
    """Return when the state of a resource began. Of what the client accepted, its type's last ACK is known."""
    progress = session.progress
    if status.state is SyncState.NACKED:
        last = progress.nack[0] if progress.nack is not None else None
        return rejected_at.get(status.sent, last) if status.sent is not None else last
    if status.state is SyncState.STALE:
        return status.since if status.since is not None else progress.sent_at
    return progress.acked_at if status.sent is not None else None
