"""Builds what the admin port shows of the clients of one resource: who subscribes to it, who gets which variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core.model.expr import show
from ..core.model.limits import Client
from ..core.model.steps import EVERY, Steps, cut
from ..core.model.table import Table
from ..core.model.truncation import NAME_BYTES, bounded
from ..core.model.types import Params, Variant
from ..core.model.xdstp import spelled
from ..core.session.session import Session
from ..server.hub import Hub
from .read_model import Row, params_row

MOST_VARIANTS = 1_000  # that are counted


def holders(hub: Hub, table: Table, name: str, offset: int, limit: int) -> Steps[Row | None]:
    """List the subscriptions to a resource with the variant that each gets, and count them by variant; in steps.

    None: there is no such resource.
    """
    known = table.named(spelled(name)) or table.get(spelled(name))
    if known is None:
        return None
    name = known.variants[0].name if known.variants else name
    names = (name, *sorted(known.aliases))
    rows: list[Row] = []
    counts: dict[Variant | None, int] = {}
    total = 0
    sessions = dict.fromkeys(hub.interest.concerned(table.spec.url, names))
    for piece in cut(sessions, EVERY):
        for session in piece:
            if not isinstance(session, Session):
                continue
            for params in _params(session, names):
                variant = session.table.select(name, params)
                counts[variant] = counts.get(variant, 0) + 1
                if offset <= total < offset + limit:
                    rows.append(_row(session, hub.client(session.stream), params, variant))
                total += 1
        yield
    shown = sorted(counts, key=lambda each: -counts[each])[:MOST_VARIANTS]
    return {
        "type": table.spec.label,
        "type_url": table.spec.url,
        "name": name,
        "total": total,
        "offset": offset,
        "variants": [_identity(variant) | {"subscriptions": counts[variant]} for variant in shown],
        "holders": rows,
    }


def _params(session: Session, names: tuple[str, ...]) -> Iterator[Params]:
    """Yield the params of each subscription by which a session has the resource: by its names, or by a wildcard."""
    subscriptions = session.subscriptions
    for name in names:
        for want in subscriptions.names.get(name, {}).values():
            if not want.is_denied:
                yield want.params
    for wild in subscriptions.covering(names[0]):
        if not wild.is_denied:
            yield wild.params


def _row(session: Session, client: Client | None, params: Mapping[str, str], variant: Variant | None) -> Row:
    """Describe a subscription. `state`: of the session, as one response may have many resources."""
    return {
        "stream": session.stream,
        "node": bounded(client[1], NAME_BYTES) if client is not None else "",
        "params": params_row(params),
        **_identity(variant),
        "state": session.progress.state.value,
    }


def _identity(variant: Variant | None) -> Row:
    """Name a variant; None: the resource does not exist for these params."""
    if variant is None:
        return {"constraint": None, "version": None}
    return {"constraint": show(variant.shown), "version": bounded(variant.version, NAME_BYTES)}
