"""The clients of a server as `status` shows them: a row for each, those in trouble first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from ..core.model.types import TYPES
from ..core.session.sync_state import ORDER, SyncState, worst
from ..printable import printable
from . import output as out

COLOURS = {SyncState.NACKED: "red", SyncState.STALE: "yellow", SyncState.NOT_SENT: "cyan", SyncState.SYNCED: "green"}
UNUSUAL = 4  # columns for types that are not built in; the types beyond these share a column
OTHER = "OTHER"

_USUAL = [spec.label for spec in sorted(TYPES, key=lambda spec: spec.rank)]


@dataclass(slots=True)
class FleetClient:
    """A client: the streams of one node that share a connection."""

    node: str
    peer: str
    rows: list[dict[str, Any]]  # of its streams, as /api/clients has them

    @property
    def state(self) -> SyncState:
        return worst(SyncState(row["state"]) for row in self.rows)

    @property
    def age(self) -> float:
        return max(float(row["age_seconds"]) for row in self.rows)

    @property
    def types(self) -> dict[str, dict[str, Any]]:
        """Return the types by their labels; of one that is on several streams, the worst."""
        found: dict[str, dict[str, Any]] = {}
        for each in (each for row in self.rows for each in row["types"]):
            other = found.get(each["type"])
            if other is None or ORDER[SyncState(each["state"])] < ORDER[SyncState(other["state"])]:
                found[each["type"]] = each
        return found

    @property
    def stale_seconds(self) -> float:
        """Return for how long it has been STALE, by the type that has been so the longest; 0: it is not."""
        return max((each["stale_seconds"] or 0.0 for row in self.rows for each in row["types"]), default=0.0)

    @property
    def variants(self) -> list[str]:
        """Return the constraints of the variants that it gets."""
        texts = (text for row in self.rows for each in row["types"] for text in each.get("variants", ()))
        return [*dict.fromkeys(texts)]

    @property
    def errors(self) -> dict[str, str]:
        """Return the message of the last NACK of each type that is NACKED."""
        return {label: each["nack"]["message"] for label, each in self.types.items() if each["nack"] is not None}

    def is_in_trouble(self, stale: float) -> bool:
        """Whether it is NACKED, or has been STALE for longer than this."""
        return self.state is SyncState.NACKED or self.stale_seconds > stale


def fleet_of(rows: Iterable[dict[str, Any]]) -> list[FleetClient]:
    """Join the streams of each client, and sort the clients by trouble, then by age."""
    found: dict[tuple[str, str], FleetClient] = {}
    for row in rows:
        node = row["node"]["id"] if row["node"] is not None else ""
        found.setdefault((node, row["peer"]), FleetClient(node, row["peer"], [])).rows.append(row)
    return sorted(found.values(), key=lambda client: (ORDER[client.state], -client.age))


def print_fleet(clients: list[FleetClient], *, wide: bool, most: int | None = None) -> None:
    """Print a row for each client, and a column for each type."""
    labels, others = _columns(clients)
    headers = ["NODE", *map(str.upper, labels), *([OTHER] if others else []), "AGE"]
    headers += ["PEER", "VARIANT", "LAST ERROR"] if wide else []
    shown = clients[:most]
    rows = [_cells(client, labels, others, wide=wide) for client in shown]
    out.table(headers, rows, paint)
    if len(clients) > len(shown):
        out.say(f"and {len(clients) - len(shown):,} more")


def paint(cell: str) -> str:
    """Colour a cell by the state that it begins with."""
    for state, colour in COLOURS.items():
        if cell.startswith(state):
            return click.style(cell, fg=colour)
    return cell


def _columns(clients: list[FleetClient]) -> tuple[list[str], list[str]]:
    """Return the types that have a column, and those that share one: a client may ask for any number of types."""
    used = {label for client in clients for label in client.types}
    unusual = sorted(used.difference(_USUAL))
    return [*[label for label in _USUAL if label in used], *unusual[:UNUSUAL]], unusual[UNUSUAL:]


def _cells(client: FleetClient, labels: list[str], others: list[str], *, wide: bool) -> list[str]:
    types = client.types
    cells = [client.node or "-", *[_cell(types.get(label)) for label in labels]]
    if others:
        cells.append(worst(SyncState(types[label]["state"]) for label in others if label in types).value)
    cells.append(duration(client.age))
    if wide:
        errors = "; ".join(f"{label}: {message}" for label, message in client.errors.items())
        cells += [client.peer, ", ".join(client.variants) or "-", errors or "-"]
    return cells


def _cell(each: Mapping[str, Any] | None) -> str:
    if each is None:
        return "-"
    stale = each["stale_seconds"]
    return f"{each['state']} {duration(stale)}" if stale is not None else str(each["state"])


def duration(seconds: float) -> str:
    """Write a time as kubectl does: `42s`, `3m12s`, `5h7m`, `3d4h`."""
    whole = max(0, int(seconds))
    for unit, size, lesser, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f"{rest}{lesser}" if rest else "")
    return f"{whole}s"


# -- what changed between two looks

_Seen = dict[tuple[str, str], dict[str, tuple[str, str]]]  # by node and peer, the state and the error of each type


class FleetChanges:
    """Tells what changed since the last look."""

    def __init__(self) -> None:
        self._seen: _Seen = {}

    def update(self, clients: Iterable[FleetClient]) -> Iterator[dict[str, str | None]]:
        """Yield the changes: clients that came and went, and types in another state."""
        seen: _Seen = {}
        for client in clients:
            own = {label: (each["state"], client.errors.get(label, "")) for label, each in client.types.items()}
            seen[client.node, client.peer] = own
            if (client.node, client.peer) not in self._seen:
                yield _change(client.node, client.peer, "connected")
            before = self._seen.get((client.node, client.peer), {})
            for label, (state, error) in own.items():
                if before.get(label) != (state, error):
                    was = before[label][0] if label in before else None
                    yield _change(client.node, client.peer, "state", label, was, state, error or None)
        for node, peer in self._seen.keys() - seen.keys():
            yield _change(node, peer, "gone")
        self._seen = seen


def _change(  # what changed, of which client
    node: str,
    peer: str,
    change: str,
    label: str | None = None,
    was: str | None = None,
    state: str | None = None,
    error: str | None = None,
) -> dict[str, str | None]:
    return {"node": node, "peer": peer, "change": change, "type": label, "was": was, "state": state, "error": error}


def change_text(change: Mapping[str, str | None]) -> str:
    """Write a change as one line."""
    who = printable(change["node"] or str(change["peer"]))
    if change["change"] != "state":
        return f"{who} {change['change']}"
    was = f"{change['was']} -> " if change["was"] is not None else ""
    state = str(change["state"])
    error = f": {printable(change['error'])}" if change["error"] is not None else ""
    return f"{who} {printable(str(change['type']))} {was}{click.style(state, fg=COLOURS[SyncState(state)])}{error}"
