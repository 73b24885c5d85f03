"""Builds what the admin port and `status` show of the clients: which are in trouble, and one of them in full.

What a client has of a resource is what its session was told (core/session/resource_status.py). Nothing is kept for a
client: what it had before a variant that it did not accept is looked up in the history of the store, as long as that
remembers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ..core.model.client_budget import ClientBudget
from ..core.model.events import Key, Node
from ..core.model.expr import show
from ..core.model.history import Former, History, Wanted, finding_formers
from ..core.model.steps import EVERY, Steps
from ..core.model.store import Store
from ..core.model.table import Table
from ..core.model.truncation import NAME_BYTES, bounded
from ..core.model.types import Params, TypeUrl, Variant
from ..core.model.xdstp import spelled
from ..core.policy.globs import Glob
from ..core.session.accepted_state import comparing
from ..core.session.resource_status import ResourceStatus, listing_statuses
from ..core.session.session import Session
from ..core.session.sync_state import ORDER, SyncState, worst
from ..server.xds_call import Connected
from .bodies import redacted
from .cache_model import ClockReading
from .read_model import LIMIT, PARAMS, Page, Row, client_row, params_row, sessions_of, variant_row

BODIES = 20  # resources whose contents are shown in one answer, where the client has others than it should
LARGEST = 64 * 1024  # bytes of contents that are shown: to write them as JSON is one piece of work


def choosing(
    connected: Iterable[Connected],
    *,
    node: str | None = None,
    only_type: TypeUrl | None = None,
    state: SyncState | None = None,
) -> Steps[tuple[list[Connected], dict[str, int]]]:
    """Return the clients that a filter lets through, and the number of those in each state, in steps.

    `node`: a glob over node ids. `only_type`: those that asked for this type, whose state is that of the type then.
    """
    glob = Glob(node) if node is not None else None
    found: list[Connected] = []
    counts: Counter[SyncState] = Counter()
    for number, each in enumerate(connected):
        if number % EVERY == EVERY - 1:
            yield
        if glob is not None and not glob.matches(_node_id(each)):
            continue
        sessions = sessions_of(each, only_type)
        if only_type is not None and not sessions:
            continue
        seen = worst(session.progress.state for session in sessions)
        if state in (None, seen):
            found.append(each)
            counts[seen] += 1
    return found, {each.value: counts[each] for each in SyncState}


def _node_id(each: Connected) -> str:
    return each.stream.node.id if each.stream.node is not None else ""


def named(connected: Iterable[Connected], node: str) -> list[Connected]:
    """Return the streams of the client with this node id."""
    return [each for each in connected if each.stream.node is not None and each.stream.node.id == node]


# -- one client, resource by resource


class OfClient(NamedTuple):
    """A resource of one client, with the stream and the session that it is on."""

    connected: Connected
    session: Session
    status: ResourceStatus


@dataclass(frozen=True, slots=True)
class Found:
    """A part of the resources of a client, those in trouble first."""

    shown: list[OfClient]
    formers: Mapping[Wanted, Former]  # what the client has in place of what it did not accept
    offset: int
    total: int
    left_out: int  # that were not looked at


def finding_resources(  # the filters of a page
    streams: Iterable[Connected],
    history: History,
    *,
    only_type: TypeUrl | None = None,
    state: SyncState | None = None,
    offset: int = 0,
    limit: int = LIMIT,
) -> Steps[Found]:
    """Find the resources on these streams, in steps."""
    by_state: dict[SyncState, list[OfClient]] = {known: [] for known in ORDER}
    left_out = 0
    for each in streams:
        for session in sessions_of(each, only_type):
            statuses, more = yield from listing_statuses(session)
            if not more:
                statuses = yield from comparing(session, statuses, history)
            left_out += more
            for number, status in enumerate(statuses):
                by_state[status.state].append(OfClient(each, session, status))
                if number % EVERY == EVERY - 1:
                    yield
    found = [*chain.from_iterable(by_state[known] for known in (by_state if state is None else [state]))]
    shown = found[offset : offset + limit]
    wanted = {_disputed(each): _params_of(each) for each in shown if not _is_known(each.status)}
    formers = yield from finding_formers(history, wanted)
    return Found(shown, formers, offset, len(found), left_out)


def _is_known(status: ResourceStatus) -> bool:
    """Whether the session itself knows what the client has."""
    return status.confirmed or status.is_first or status.sent is None


def _disputed(each: OfClient) -> Wanted:
    """Return the variant that a client was sent first of those that it did not accept."""
    variant = each.status.unanswered or each.status.sent
    assert variant is not None  # noqa: S101 # as `_is_known` says
    return Wanted(variant.type_url, variant.name, each.status.successor or variant.version)


def _params_of(each: OfClient) -> Params:
    """Return the params that choose the variant of a resource for its client."""
    want = each.session.subscriptions.find(each.status.key)
    return want.params if want is not None else each.session.context.plain_params(each.status.key.name)


def client(
    streams: list[Connected], found: Found, moment: ClockReading, budget: ClientBudget, *, bodies: bool = False
) -> Page:
    """Describe one client in full, which may have several streams.

    `bodies`: with the contents of what it has and of what it should have, where these differ.
    """
    rows = [client_row(each, moment.now, moment.wall, budget, brief=True) for each in streams]
    head = {"clients": rows, "total": found.total, "offset": found.offset}
    if found.left_out:
        head["left_out"] = found.left_out
    return Page(head, "resources", _rows(found, moment, bodies=bodies))


def _rows(found: Found, moment: ClockReading, *, bodies: bool) -> Iterator[Row | None]:
    left = BODIES if bodies else 0
    for each in found.shown:
        differs = each.status.state in (SyncState.NACKED, SyncState.STALE)
        yield from _resource(each, found.formers, moment, bodies=differs and left > 0)
        left -= differs


def _resource(
    each: OfClient, formers: Mapping[Wanted, Former], moment: ClockReading, *, bodies: bool
) -> Iterator[Row | None]:
    """Describe a resource; after pauses."""
    session, status = each.session, each.status
    key, unanswered = status.key, status.unanswered
    row: Row = {
        "stream": each.connected.stream.number,
        "type": session.table.spec.label,
        "type_url": session.table.spec.url,
        "name": bounded(key.name, NAME_BYTES),
        "params": params_row(key.tag) if key.tag is not None else None,
        "state": status.state.value,
        "stale_seconds": round(moment.now - status.since, 3) if status.since is not None else None,
        "has": _has(each, formers, bodies=bodies),
        "sent": _variant(status.sent),
        "error": {"code": status.error.code, "message": status.error.message} if status.error is not None else None,
    }
    if bodies:
        yield None
    row["unanswered"] = _variant(unanswered, bodies=bodies and unanswered is not status.current)
    if bodies:
        yield None
    row["current"] = _variant(status.current, bodies=bodies)
    denial = _denial(session, key)
    yield row | ({"denied": denial} if denial is not None else {})


def _has(each: OfClient, formers: Mapping[Wanted, Former], *, bodies: bool) -> Row | None:
    """Say what the client has. None: nothing; without a version: a former variant that is no longer known."""
    status = each.status
    if status.confirmed:
        return _variant(status.sent, bodies=bodies)
    if _is_known(status):
        return None
    former = formers.get(_disputed(each))
    oldest = status.revision if status.successor is None else None
    if former is None or (oldest is not None and former.revision < oldest):
        return {"version": None, "constraint": None}
    row: Row = {"version": former.version, "constraint": show(former.constraint)}
    if bodies and former.body is not None:
        row |= _contents(each.session.table.spec.url, former.body)
    return row


def _variant(variant: Variant | None, *, bodies: bool = False) -> Row | None:
    if variant is None:
        return None
    return variant_row(variant) | (_contents(variant.type_url, variant.body) if bodies else {})


def _contents(type_url: TypeUrl, body: bytes) -> Row:
    """Show the contents of a variant, or say that they are too large."""
    return {"body": redacted(type_url, body)} if len(body) <= LARGEST else {"too_large": len(body)}


def _denial(session: Session, key: Key) -> str | None:
    """Return why the policy denies this resource to the client."""
    want = session.subscriptions.find(key)
    denial = session.availability.denial(want) if want is not None else None
    return denial.message if denial is not None else None


# -- what a client would get


class Asked(NamedTuple):
    """What a client would be answered with for one name: by which table and params, or why it is denied."""

    connected: Connected
    table: Table
    params: Mapping[str, str]  # that choose the variant
    denial: str | None
    given: Mapping[str, str]  # that the client has, or that the caller gave


def asking(
    store: Store, streams: list[Connected], type_url: TypeUrl, name: str, locator: Mapping[str, str]
) -> Steps[Asked]:
    """Find out with which params a connected client would get a resource, in steps.

    These are those of its subscription to the name if it has one, and else of its node. `locator`: those of a locator
    that it may send instead.
    """
    each = next((one for one in streams if type_url in one.stream.sessions), streams[0])
    context, session = each.stream.context, each.stream.sessions.get(type_url)
    key = Key(name, Params(locator) if locator else _subscribed(session, name))
    grant = context.grant
    names = grant.visible(type_url) if grant is not None else None
    yield from store.allowing(type_url, names)
    table = store.allowed(type_url, names)
    plain = each.stream.plain_params(name)
    given = key.tag if key.tag is not None else (context.settings.params_of(each.stream.node or Node()))
    if grant is None:
        return Asked(each, table, key.tag if key.tag is not None else plain, None, given)
    denial = grant.denies(type_url, name)
    claim = grant.claim_locator(key.tag) if key.tag else context.claim
    params = claim.params if claim is not None and key.tag else plain
    denial = denial or (claim.denial if claim is not None else None)
    known = table.get(spelled(name))
    if denial is None and claim is not None and claim.unlisted is not None and known is not None:
        denial = grant.unlisted_denial(claim.unlisted, known.mentioned(params))
    return Asked(each, table, params, denial.message if denial is not None else None, given)


def _subscribed(session: Session | None, name: str) -> Params | None:
    """Return the params of the locator that the client subscribed to this name with; None: it did by name, or not."""
    if session is None:
        return None
    tags = [key.tag for key in session.subscriptions.names.get(spelled(name), {})]
    return None if None in tags else next(iter(tags), None)


def nothing_row(asked: Asked, name: str) -> Row:
    """Describe, as an explanation, that the client may not have the resource."""
    spec = asked.table.spec
    row: Row = {"type": spec.label, "type_url": spec.url, "name": name, "params": params_row(asked.given)}
    return row | {"keys": [], "others": [], "variant": None, "absent": None}


def asked_row(asked: Asked) -> Row:
    """Describe who would be answered, and what the policy decided; `policy` as `explain --policy` has it."""
    each = asked.connected
    row: Row = {"client": {"node": _node_id(each), "stream": each.stream.number, "peer": each.peer.address}}
    grant = each.stream.context.grant
    if grant is None:
        return row
    return row | {
        "policy": {
            "identity": ", ".join(map(str, each.peer.proved)) or "anonymous",
            "node": _node_id(each),
            "rule": grant.rule,
            "denied": asked.denial,
            "params": params_row(asked.params),
            "ignored": sorted(key for key in asked.given if key not in asked.params)[:PARAMS],
        }
    }
