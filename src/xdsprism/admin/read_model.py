"""Builds what the admin port and the commands show: plain dicts, made from the store and the hub. Nothing here awaits.

A long list is an iterator of rows, so that the caller can give the event loop a turn between rows. Which rows there are
is fixed at the call; each row shows the state at the time when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any

from ..core.model.client_budget import ClientBudget
from ..core.model.constraints import TRUE, keys
from ..core.model.events import WILDCARD, Key, Node
from ..core.model.expr import show
from ..core.model.steps import EVERY, Steps, cut
from ..core.model.store import Store
from ..core.model.table import Table
from ..core.model.truncation import NAME_BYTES, bounded
from ..core.model.types import TypeUrl, Variant
from ..core.model.variants import Answer, VariantSet
from ..core.model.xdstp import is_wild, spelled
from ..core.session.in_flight import Progress
from ..core.session.interest import Interest
from ..core.session.session import Session
from ..core.session.sync_state import worst
from ..messages.redaction import REDACTED
from ..messages.sensitive import is_secret_metadata
from ..server.connection_limits import client_of
from ..server.xds_call import Connected
from ..similar import LOOKED_AT
from .bodies import redacted

Row = dict[str, Any]

LIMIT = 1000  # rows in a list, unless the caller says otherwise
SUBSCRIPTIONS = 100  # listed for each session
PARAMS = 100  # listed for each node, and for each subscription
REJECTED = 100  # listed for each session
ITEMS = 2_000  # subscriptions, params and rejected resources that are listed for all sessions of a stream together
VARIANTS = 10  # constraints that are listed for each session
EXAMINED = 50  # resources of a session whose constraints are looked at
WILDCARDS = 5  # of a session, likewise
EXCEEDED = 100  # clients that exceeded a limit on streams or fetches, the last ones
NAMES = 20  # listed of the resources that a change which is held back would remove
SORTED = 10_000  # resources; a type with more is listed unsorted


# Returns in steps what a relay has cached of a name, and the number of entries left out.
Cached = Callable[[TypeUrl, str], Steps[tuple[list[Row], int]]]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    head: Row  # fields beside the list
    name: str  # the field of the list
    rows: Iterator[Row | None]  # None: others may be served before the next row


# -- resources


def resources(
    store: Store,
    interest: Interest | None = None,
    *,
    type_url: TypeUrl | None = None,
    found: Found | None = None,
    offset: int = 0,
    limit: int | None = LIMIT,
    bodies: bool = False,
    variants: Cached | None = None,
) -> Page:
    """List resources with their variants: all of a type, or those that `find` or `search` found.

    A relay passes `variants`, as it can show more of them than the store.
    """
    tables = _tables(store, type_url)
    shown = found[offset:][:limit] if found is not None else [*_window(tables, offset, limit)]
    head = {
        "revision": store.revision,
        "types": [{"type": table.spec.label, "type_url": table.spec.url, "resources": len(table)} for table in tables],
        "total": len(found) if found is not None else sum(map(len, tables)),
        "offset": offset,
    }
    rows = (_resource(table, each, interest, bodies=bodies, variants=variants) for table, each in shown)
    return Page(head, "resources", chain.from_iterable(rows))


Named = tuple[str, VariantSet | Answer]
Found = list[tuple[Table, Named]]


def find(store: Store, type_url: TypeUrl | None, name: str) -> Found:
    """Find the resources of this name or alias, of one type or of all."""
    return [(table, each) for table in _tables(store, type_url) for each in _find(table, name)]


def search(store: Store, type_url: TypeUrl | None, text: str) -> Steps[Found]:
    """Find the resources whose names contain this text, in upper or lower case, in steps; sorted by type and name."""
    text = text.lower()
    found: Found = []
    for table in _tables(store, type_url):
        names: list[str] = []
        for piece in cut(table.names(), 16 * EVERY):
            names += [name for name in piece if text in name.lower()]
            yield
        for piece in cut(sorted(names), 16 * EVERY):
            known = ((name, table.named(name)) for name in piece)  # one may be gone by now
            found += [(table, (name, variants)) for name, variants in known if variants is not None]
            yield
    return found


def _tables(store: Store, type_url: TypeUrl | None) -> list[Table]:
    """Return the tables that have resources: of one type, or all."""
    return [table for table in store.tables() if len(table) and type_url in (None, table.spec.url)]


def _window(tables: Iterable[Table], offset: int, limit: int | None) -> Iterator[tuple[Table, Named]]:
    """Yield a part of the list, sorted by name unless a type has too many resources to sort in one turn."""
    end = None if limit is None else offset + limit
    for table in tables:
        size = len(table)
        if offset < size and end != 0:
            known = table if limit is not None and size > SORTED else sorted(table, key=lambda item: item[0])
            yield from ((table, each) for each in islice(known, offset, end))
        offset = max(0, offset - size)
        end = None if end is None else max(0, end - size)


def _find(table: Table, name: str) -> list[Named]:
    """Find a resource by its name or by an alias."""
    known = table.get(spelled(name))
    return [(known.variants[0].name if known.variants else name, known)] if known is not None else []


def _resource(
    table: Table,
    named: Named,
    interest: Interest | None,
    *,
    bodies: bool,
    variants: Cached | None,
) -> Iterator[Row | None]:
    """DYN-47: describe a resource with one entry per variant, and the variant's constraints; after pauses."""
    name, known = named
    row: Row = {"type": table.spec.label, "type_url": table.spec.url, "name": name}
    if known.aliases:
        row["aliases"] = sorted(known.aliases)
    if interest is not None:
        row["subscribers"] = interest.subscribers(table.spec.url, name)
    row["params"] = list(known.keys)
    if variants is not None:
        row["variants"], left_out = yield from variants(table.spec.url, name)
        if left_out:
            row["variants_left_out"] = left_out
    else:
        row["variants"] = [variant_row(variant, body=bodies) for variant in known.variants]
    yield row


def variant_row(variant: Variant, *, body: bool = False) -> Row:
    """Describe a variant."""
    row: Row = {
        "constraint": show(variant.shown),
        "version": bounded(variant.version, NAME_BYTES),
        "origin": str(variant.origin) if variant.origin is not None else None,
        "bytes": len(variant.body),
    }
    if body:
        row["body"] = redacted(variant.type_url, variant.body)
    return row


# -- explanations


def explain(table: Table, name: str, params: Mapping[str, str]) -> Row | None:
    """Explain which variant these params get and why not the others; None if there is no resource of that name."""
    known = table.get(spelled(name))
    if known is None:
        return None
    explanation = known.explain(params)
    chosen = explanation.chosen
    return {
        "type": table.spec.label,
        "type_url": table.spec.url,
        "name": known.variants[0].name if known.variants else name,
        "params": dict(params),
        "keys": list(known.keys),
        "variant": variant_row(chosen) if chosen is not None else None,
        "others": [
            variant_row(variant)
            | {"fails": show(clause), "has": {key: params.get(key) for key in sorted(keys(clause))}}
            for variant, clause in explanation.refused
        ],
        # DESIGN 6.4: the constraint of the absence, which the client gets and may cache
        "absent": show(known.negative(params)) if chosen is None else None,
    }


def names_to_compare(table: Table) -> list[str]:
    """Return as many names of the table as are worth comparing with one that does not exist."""
    return [name for name, _ in islice(table, LOOKED_AT)]


# -- clients


def clients(
    connected: Iterable[Connected],
    now: float,
    wall: float,
    *,
    offset: int = 0,
    limit: int = LIMIT,
    budget: ClientBudget | None = None,
    only_type: TypeUrl | None = None,
    brief: bool = False,
) -> Page:
    """List the connected clients. `now` and `wall` are the same moment on the hub's clock and on the wall clock.

    `budget`: also say which clients exceeded a limit on streams or fetches, whether they have a stream now or not.
    `only_type`: of each client only the state of this type. `brief`: without subscriptions and rejected resources.
    """
    streams = list(connected)
    shown = streams[offset : offset + limit]
    last = [*budget.all_exceeded().items()][-EXCEEDED:] if budget is not None else []
    exceeded = {bounded(client, NAME_BYTES): dict(sorted(counts.items())) for client, counts in reversed(last)}
    head = {"total": len(streams), "offset": offset, "limited": exceeded}
    rows = (client_row(each, now, wall, budget, only_type=only_type, brief=brief) for each in shown)
    return Page(head, "clients", rows)


class _Items:
    """Limits the items that are listed of one stream, as its client may have any number of types and subscriptions."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.is_brief = not most

    def reserve(self, count: int = 1) -> bool:
        """Reserve room for some items. False: there is not enough left."""
        has_room = self.left > 0
        self.left -= count
        return has_room


def client_row(  # what each of the pages of clients shows
    each: Connected,
    now: float,
    wall: float,
    budget: ClientBudget | None = None,
    *,
    only_type: TypeUrl | None = None,
    brief: bool = False,
) -> Row:
    """Describe a client and the state of each of its types."""
    stream, items = each.stream, _Items(0 if brief else ITEMS)
    sessions = sessions_of(each, only_type)
    return {
        "stream": stream.number,
        "node": _node(stream.node) if stream.node is not None else None,
        "params": params_row(stream.plain_params(WILDCARD)),
        "peer": each.peer.address,
        "identities": list(each.peer.identities),
        "method": each.method,
        "delta": stream.delta,
        "since": time_of_day(wall - (now - each.since)),
        "age_seconds": round(now - each.since, 3),
        "state": worst(session.progress.state for session in sessions).value,
        "refused": dict(sorted((stream.context.budget.refused or {}).items())),
        "limited": _limited(each, budget),
        "policy": _policy(each),
        "types": [_session(session, now, wall, items) for session in sessions],
    }


def sessions_of(each: Connected, only_type: TypeUrl | None) -> list[Session]:
    """Return the sessions of a client, or the one of this type."""
    sessions = each.stream.sessions
    return [*sessions.values()] if only_type is None else [sessions[only_type]] if only_type in sessions else []


def _limited(each: Connected, budget: ClientBudget | None) -> Row:
    """Say how often a client exceeded which limit: with this stream, or by streams and fetches that were refused."""
    refused = budget.exceeded(client_of(each.peer)) if budget is not None else {}
    return dict(sorted({**refused, **(each.stream.context.budget.limited or {})}.items()))


def _policy(each: Connected) -> Row | None:
    """Say which rule of the policy is for a client, as what, and what was denied; None: there is no policy."""
    grant = each.stream.context.grant
    if grant is None:
        return None
    return {
        "identities": [str(identity) for identity in each.peer.proved] or ["anonymous"],
        "rule": grant.rule,
        "denied": dict(sorted((each.stream.context.budget.denied or {}).items())),
    }


def _node(node: Node) -> Row:
    return {
        "id": node.id,
        "cluster": node.cluster,
        "user_agent": node.user_agent,
        "metadata": params_row(node.metadata),
        "features": sorted(node.features),
    }


def params_row(params: Mapping[str, str]) -> dict[str, str]:
    """Sort params, and cut their number and lengths, as clients choose them. OPS-14: no value of a secret is shown."""
    shown = {bounded(key, NAME_BYTES): _shown(key, bounded(params[key], NAME_BYTES)) for key in sorted(params)[:PARAMS]}
    return shown | ({"…": f"{len(params) - PARAMS:,} more"} if len(params) > PARAMS else {})


def _shown(key: str, value: str) -> str:
    return REDACTED if is_secret_metadata(key, value) else value


def _session(session: Session, now: float, wall: float, items: _Items) -> Row:
    """Describe the state of one type on one stream."""
    progress, stale = session.progress, session.in_flight.stale_since
    rejected = session.rejections.by_label
    shown = [name for name in islice(rejected, REJECTED) if items.reserve()]
    row: Row = {
        "type": session.table.spec.label,
        "type_url": session.table.spec.url,
        "state": progress.state.value,
        "stale_seconds": round(now - stale, 3) if stale is not None else None,
        "subscriptions": {
            "total": session.count,
            "first": [
                _subscription(session, key)
                for key in islice(session.subscriptions, SUBSCRIPTIONS)
                if items.reserve(1 + min(len(key[1] or ()), PARAMS))
            ],
        },
        "sent": _step(progress.sent, progress.sent_version, progress.sent_at, now),
        "acked": _step(progress.acked, progress.acked_version, progress.acked_at, now),
        "nack": _nack(progress, now, wall),
        "rejected": {
            name: {"code": rejected[name].error.code, "message": rejected[name].error.message} for name in shown
        },
    }
    if not items.is_brief:
        row["variants"] = _variants(session)
    left_out = len(rejected) - len(shown)
    return row | ({"rejected_left_out": left_out} if left_out else {})


def _variants(session: Session) -> list[str]:
    """Return the constraints of what the client gets, of its first resources; those without one are left out."""
    found: dict[str, None] = {}
    for want in islice(session.subscriptions.all_names(), EXAMINED):
        if want.held is not None and want.held.shown is not TRUE:
            found[show(want.held.shown)] = None
    for wild in islice(session.subscriptions.all_wildcards(), WILDCARDS):
        for name in islice(wild.listing.names, EXAMINED):
            member = wild.listing.member(name, wild.params)
            if member is not None and member.shown is not TRUE:
                found[show(member.shown)] = None
    return [bounded(text, NAME_BYTES) for text in islice(found, VARIANTS)]


def _subscription(session: Session, key: Key) -> Row:
    """Describe a subscription with the variant selected for it now; `state` says whether the client has it yet."""
    name, own = key
    row: Row = {"name": name, "params": params_row(own) if own is not None else None}
    if not is_wild(name):
        want = session.subscriptions.find(key)
        denial = session.availability.denial(want) if want is not None else None
        params = want.params if want is not None else own or session.context.plain_params(name)  # DYN-13
        variant = session.table.select(name, params) if denial is None else None
        if denial is not None:
            row["denied"] = denial.message
        row["variant"] = show(variant.shown) if variant is not None else None
        row["version"] = bounded(variant.version, NAME_BYTES) if variant is not None else None
    return row


def _step(number: int, version: str, at: float | None, now: float) -> Row | None:
    return {"responses": number, "version": version, "seconds_ago": round(now - at, 3)} if at is not None else None


def _nack(progress: Progress, now: float, wall: float) -> Row | None:
    """NAK-12: describe the last NACK of a session."""
    if progress.nack is None:
        return None
    at, version, nonce, error = progress.nack
    return {
        "time": time_of_day(wall - (now - at)),
        "version": version,
        "nonce": nonce,
        "code": error.code,
        "message": error.message,
    }


def time_of_day(seconds: float) -> str:
    """Format seconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
