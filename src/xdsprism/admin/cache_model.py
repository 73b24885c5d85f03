"""What the admin port of a relay shows beside what any server does: the cache, and the servers behind it (PRX-28).

Times are those of the hub's clock until they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.model.cached import CachedSet
from ..core.model.constraints import failing, keys, matches, unpadded
from ..core.model.expr import show
from ..core.model.limits import Scarce
from ..core.model.table import Table
from ..core.model.types import Params, TypeUrl, Variant
from ..core.relay.holdings import Holding
from ..core.relay.relaying import Relaying
from ..core.watch.entry import Entry
from ..core.watch.quarantine import Quarantined
from ..core.watch.upstream import Upstream
from .read_model import Row, time_of_day, variant_row

QUARANTINED = 100  # subscriptions to a server that are listed, at most

Upstreams = Iterable[tuple[Params | None, Upstream]]  # with the group of clients that asks it


@dataclass(frozen=True, slots=True)
class Behind:
    """What a relay has that a server has not."""

    relaying: Relaying
    upstreams: Callable[[], Upstreams]
    forget: Callable[[TypeUrl, str], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on two clocks."""

    now: float
    wall: float

    def shown(self, at: float) -> str:
        return time_of_day(self.wall - (self.now - at))


def findings(relaying: Relaying, type_url: TypeUrl, name: str, moment: Moment, *, bodies: bool = False) -> list[Row]:
    return [_finding(holding, moment, bodies=bodies) for holding in relaying.holdings(type_url, name)]


def _finding(holding: Holding, moment: Moment, *, bodies: bool = False) -> Row:
    """A variant, or that there is none: both are for whom the constraint says."""
    finding = holding.finding
    row: Row = {"constraint": show(unpadded(finding.constraint)), "exists": finding.variant is not None}
    if finding.variant is not None:
        row |= _contents(finding.variant, body=bodies)
    source = _source(holding.entry)
    stale, since = _stale(holding, source, moment)
    return row | {
        "subscribers": holding.users,
        "upstream": source.label if source is not None else None,
        "age_seconds": round(_age(holding, moment), 3),
        "stale": stale,
        "stale_since": since,
    }


def _contents(variant: Variant, *, body: bool) -> Row:
    row = variant_row(variant, body=body)
    del row["origin"]  # files have one
    return row


def _source(entry: Entry | None) -> Upstream | None:
    """The server that said it; None: it is from an earlier run, or was withdrawn."""
    if entry is None or entry.kept_at is not None:
        return None
    if entry.source is not None or entry.variant is not None:
        return entry.source
    asked = entry.authority.active  # an entry without contents does not say who said that there are none
    return next((upstream for upstream in asked if upstream.connected), asked[-1] if asked else None)


def _age(holding: Holding, moment: Moment) -> float:
    """Since a server said so, perhaps in an earlier run."""
    kept_at = holding.entry.kept_at if holding.entry is not None else None
    return moment.wall - kept_at if kept_at is not None else moment.now - holding.finding.since


def _stale(holding: Holding, source: Upstream | None, moment: Moment) -> tuple[bool, str | None]:
    """PRX-5: it was withdrawn; PRX-10: its server is gone; PRX-25: it is what an earlier run knew."""
    if holding.finding.stale:
        at = holding.finding.stale_since
        return True, moment.shown(at) if at is not None else None
    if holding.entry is not None and holding.entry.kept_at is not None:
        return True, time_of_day(holding.entry.kept_at)
    if source is None or source.connected:
        return False, None
    return True, moment.shown(source.parted) if source.parted is not None else None


def explain(relaying: Relaying, table: Table, name: str, params: Mapping[str, str], moment: Moment) -> Row | None:
    """What the cache has for these params, and from whom; None: nothing is known of the name."""
    known = table.get(name)
    if not isinstance(known, CachedSet):
        return None
    owner = known.variants[0].name if known.variants else name
    holdings = relaying.holdings(table.spec.url, owner)
    found = known.find(params)
    chosen = next((_finding(each, moment) for each in holdings if each.finding == found), None)
    return {
        "type": table.spec.label,
        "type_url": table.spec.url,
        "name": owner,
        "params": dict(params),
        "keys": list(known.keys),
        "variant": chosen if chosen is not None and chosen["exists"] else None,
        "others": [_finding(each, moment) | _why_not(each, params) for each in holdings if each.finding != found],
        "absent": chosen["constraint"] if chosen is not None and not chosen["exists"] else None,
        "cached": chosen is not None,  # else it has to be asked for
    }


def _why_not(holding: Holding, params: Mapping[str, str]) -> Row:
    constraint = holding.finding.constraint
    if matches(constraint, params):  # DESIGN 6.10: the one received last wins
        return {"fails": None, "has": {}}
    clause = failing(constraint, params)
    return {"fails": show(clause), "has": {key: params.get(key) for key in sorted(keys(clause))}}


def upstreams(known: Upstreams, moment: Moment) -> Row:
    return {"upstreams": [_upstream(group, each, moment) for group, each in known]}


def room(relaying: Relaying) -> Row:
    """PRX-35: what all clients together may ask servers for only so much of."""
    return {"room": {kind.value: relaying.room(kind)._asdict() for kind in Scarce}}


def _upstream(group: Params | None, each: Upstream, moment: Moment) -> Row:
    parted = moment.now if each.connected else each.parted
    lost: dict[str, Any] | None = None
    if each.lost is not None:
        at, error = each.lost
        lost = {"time": moment.shown(at), "error": str(error)}
    return {
        "server": each.label,
        "group": dict(sorted(group.items())) if group is not None else None,
        "delta": each.delta,
        "protocol": "delta" if each.delta else "sotw",  # PRX-33: as found out
        "form": each.dialect.form.value,  # PRX-32
        "connected": each.connected,
        "since": moment.shown(each.since) if each.since is not None else None,
        "last_connected": moment.shown(parted) if parted is not None else None,  # null: it was never reached
        "streams": each.streams,
        "subscriptions": each.subscriptions,
        "last_error": lost,
        "reported_nacks": each.reported_nacks,
        "quarantined": [_quarantined(found, moment) for found in each.quarantine.held[:QUARANTINED]],
    }


def _quarantined(found: Quarantined, moment: Moment) -> Row:
    """PRX-35: what is not asked, since the server ended the stream for it."""
    type_url, (name, params) = found.question
    return {
        "type_url": type_url,
        "name": name,
        "params": dict(sorted(params.items())) if params is not None else None,
        "until": moment.shown(found.until),
        "error": found.error,
    }


def streams(known: Upstreams) -> dict[str, int]:
    """How many there are to each server."""
    numbers: dict[str, int] = {}
    for _, each in known:
        numbers[each.label] = numbers.get(each.label, 0) + each.connected
    return numbers
