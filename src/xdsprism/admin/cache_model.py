"""Builds what only a relay's admin port shows: its cache, and its upstream servers (PRX-28).

Times are readings of the hub's clock; ClockReading converts them to the time of day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.model.cached import CachedSet
from ..core.model.constraints import failing, keys, matches, unpadded
from ..core.model.expr import show
from ..core.model.limits import Scarce
from ..core.model.steps import EVERY, Steps
from ..core.model.table import Table
from ..core.model.types import Params, TypeUrl, Variant
from ..core.relay.cached_answers import CachedAnswer
from ..core.relay.relaying import Relaying
from ..core.watch.entry import Entry
from ..core.watch.quarantine import Quarantined
from ..core.watch.upstream import Upstream
from .read_model import Row, time_of_day, variant_row

VARIANTS = 1_000  # variants that are listed of one name
MAX_QUARANTINED = 100  # quarantined subscriptions that are listed for each server

Upstreams = Iterable[tuple[Params | None, Upstream]]  # each with the group of clients that it is connected for


@dataclass(frozen=True, slots=True)
class RelayView:
    """The parts of a relay that the admin port shows, and that a plain server does not have."""

    relaying: Relaying
    upstreams: Callable[[], Upstreams]
    forget: Callable[[TypeUrl, str], bool]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The same moment on the hub's clock and on the wall clock."""

    now: float
    wall: float

    def time_of_day(self, at: float) -> str:
        """Convert a time of the hub's clock."""
        return time_of_day(self.wall - (self.now - at))


def cached_rows(
    relaying: Relaying, type_url: TypeUrl, name: str, moment: ClockReading, *, bodies: bool = False
) -> Steps[tuple[list[Row], int]]:
    """List what the cache has for a name: variants, and constraints for which the resource does not exist; in steps.

    Clients may subscribe with any number of params, so at most VARIANTS are listed. The number counts the others.
    """
    found = yield from relaying.listing_answers(type_url, name)
    rows: list[Row] = []
    for answer in found[:VARIANTS]:
        rows.append(_cached_row(answer, moment, bodies=bodies))
        if len(rows) % EVERY == 0:
            yield
    return rows, len(found) - len(rows)


def _cached_row(answer: CachedAnswer, moment: ClockReading, *, bodies: bool = False) -> Row:
    """Describe a variant, or the absence of the resource, for params that match the constraint."""
    finding = answer.finding
    row: Row = {"constraint": show(unpadded(finding.constraint)), "exists": finding.variant is not None}
    if finding.variant is not None:
        row |= _contents(finding.variant, body=bodies)
    source = _source(answer.entry)
    stale, since = _stale(answer, source, moment)
    return row | {
        "subscribers": answer.users,
        "upstream": source.label if source is not None else None,
        "age_seconds": round(_age(answer, moment), 3),
        "stale": stale,
        "stale_since": since,
    }


def _contents(variant: Variant, *, body: bool) -> Row:
    row = variant_row(variant, body=body)
    del row["origin"]  # only resources from files have one
    return row


def _source(entry: Entry | None) -> Upstream | None:
    """Return the server that an entry is from; None if it is from an earlier run, or was removed."""
    if entry is None or entry.kept_at is not None:
        return None
    if entry.sent_by is not None or entry.variant is not None:
        return entry.sent_by
    # An absence does not record its server. It must be one that is active for the authority.
    active = entry.authority.active
    return next((upstream for upstream in active if upstream.connected), active[-1] if active else None)


def _age(answer: CachedAnswer, moment: ClockReading) -> float:
    """Return the seconds since a server sent the entry, perhaps in an earlier run."""
    kept_at = answer.entry.kept_at if answer.entry is not None else None
    return moment.wall - kept_at if kept_at is not None else moment.now - answer.finding.since


def _stale(answer: CachedAnswer, source: Upstream | None, moment: ClockReading) -> tuple[bool, str | None]:
    """Return whether an entry is stale, and since when.

    PRX-5: the server removed it. PRX-10: the server is not connected. PRX-25: it is from an earlier run.
    """
    if answer.finding.stale:
        at = answer.finding.stale_since
        return True, moment.time_of_day(at) if at is not None else None
    if answer.entry is not None and answer.entry.kept_at is not None:
        return True, time_of_day(answer.entry.kept_at)
    if source is None or source.connected:
        return False, None
    return True, moment.time_of_day(source.lifecycle.parted) if source.lifecycle.parted is not None else None


def explain(
    relaying: Relaying, table: Table, name: str, params: Mapping[str, str], moment: ClockReading
) -> Steps[Row | None]:
    """Explain which cached variant these params get, and from which server, in steps; None: the name is not cached."""
    known = table.get(name)
    if not isinstance(known, CachedSet):
        return None
    owner = known.variants[0].name if known.variants else name
    answers = yield from relaying.listing_answers(table.spec.url, owner)
    found = known.find(params)
    others = [each for each in answers if each.finding != found]
    shown: list[Row] = []
    for each in others[:VARIANTS]:
        shown.append(_cached_row(each, moment) | _why_not(each, params))
        if len(shown) % EVERY == 0:
            yield
    chosen = next((_cached_row(each, moment) for each in answers if each.finding == found), None)
    row: Row = {
        "type": table.spec.label,
        "type_url": table.spec.url,
        "name": owner,
        "params": dict(params),
        "keys": list(known.keys),
        "variant": chosen if chosen is not None and chosen["exists"] else None,
        "others": shown,
        "absent": chosen["constraint"] if chosen is not None and not chosen["exists"] else None,
        "cached": chosen is not None,  # false: the relay has to request it
    }
    left_out = len(others) - len(shown)
    return row | ({"others_left_out": left_out} if left_out else {})


def _why_not(answer: CachedAnswer, params: Mapping[str, str]) -> Row:
    """Return the clause that these params fail, and the values that they have for its keys."""
    constraint = answer.finding.constraint
    if matches(constraint, params):  # DESIGN 6.10: the one received last wins
        return {"fails": None, "has": {}}
    clause = failing(constraint, params)
    return {"fails": show(clause), "has": {key: params.get(key) for key in sorted(keys(clause))}}


def upstreams(known: Upstreams, moment: ClockReading) -> Row:
    """List the upstream servers."""
    return {"upstreams": [_upstream(group, each, moment) for group, each in known]}


def room(relaying: Relaying) -> Row:
    """PRX-35: show how much of the room on the streams to the servers is used."""
    return {"room": {kind.value: relaying.room(kind)._asdict() for kind in Scarce}}


def _upstream(group: Params | None, each: Upstream, moment: ClockReading) -> Row:
    parted = moment.now if each.connected else each.lifecycle.parted
    lost: dict[str, Any] | None = None
    if each.lifecycle.lost is not None:
        at, error = each.lifecycle.lost
        lost = {"time": moment.time_of_day(at), "error": str(error)}
    return {
        "server": each.label,
        "group": dict(sorted(group.items())) if group is not None else None,
        "delta": each.delta,
        "protocol": "delta" if each.delta else "sotw",  # PRX-33: as the relay found out
        "form": each.dialect.form.value,  # PRX-32
        "connected": each.connected,
        "since": moment.time_of_day(each.lifecycle.since) if each.lifecycle.since is not None else None,
        "last_connected": moment.time_of_day(parted) if parted is not None else None,  # null: it was never connected
        "streams": each.streams,
        "subscriptions": each.subscriptions,
        "last_error": lost,
        "reported_nacks": each.reported_nacks,
        "quarantined": [_quarantined(found, moment) for found in each.quarantine.held[:MAX_QUARANTINED]],
    }


def _quarantined(found: Quarantined, moment: ClockReading) -> Row:
    """PRX-35: describe a subscription that the relay withholds, as the server ended the stream because of it."""
    type_url, (name, params) = found.question
    return {
        "type_url": type_url,
        "name": name,
        "params": dict(sorted(params.items())) if params is not None else None,
        "until": moment.time_of_day(found.until),
        "error": found.error,
    }


def last_answers(known: Upstreams, moment: ClockReading) -> dict[str, float]:
    """Return when each server last sent a response, in seconds since the epoch; without those that never did."""
    found: dict[str, float] = {}
    for _, each in known:
        if each.answered_at is not None:
            at = moment.wall - (moment.now - each.answered_at)
            found[each.label] = max(at, found.get(each.label, at))
    return found


def streams(known: Upstreams) -> dict[str, int]:
    """Count the open streams to each server."""
    numbers: dict[str, int] = {}
    for _, each in known:
        numbers[each.label] = numbers.get(each.label, 0) + each.connected
    return numbers
