"""Says in words what a revision, an event or a difference is about, from what the admin port answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

NAMED = 5  # resources of a kind in one line
COLOURS = {"added": "green", "changed": "yellow", "removed": "red"}

Row = dict[str, Any]


def variant_text(row: Row, variant: Row) -> str:
    """Name a variant of a resource: `rds/main [env=prod]`."""
    constraint = variant["constraint"]
    return f"{row['type']}/{row['name']}" + (f" [{constraint}]" if constraint != "true" else "")


def resource_text(row: Row) -> str:
    """Name a resource that changed, and the variants of it."""
    variants = row["variants"]
    if len(variants) == 1 and not row.get("more_variants"):
        return variant_text(row, variants[0])
    count = len(variants) + row.get("more_variants", 0)
    return f"{row['type']}/{row['name']}" + (f" ({count:,} variants)" if count else "")


def summary(revision: Row) -> str:
    """Say what a revision changed: `removed cds/a, cds/b and 3 more`."""
    groups: dict[str, list[str]] = {}
    for change in revision["changes"]:
        groups.setdefault(change["change"], []).append(resource_text(change))
    parts = [f"{kind} {listed(names)}" for kind, names in groups.items()]
    if revision["more"]:
        parts.append(f"{revision['more']:,} {'not listed' if parts else 'resources'}")
    return ", ".join(parts) or "no resource"


def listed(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def event_text(kind: str, data: Row) -> str:
    """Say in a line what an event is."""
    say = _TEXTS.get(kind)
    return say(data) if say is not None else str(data)


def _revision(data: Row) -> str:
    return f"revision {data['revision']} by {data['by']}: {summary(data)}"


def _nack(data: Row) -> str:
    resources = [_rejected(data, each) for each in data["resources"]]
    what = listed(resources) + (f" and {data['more']:,} more" if data["more"] else "") or data["type"]
    return f"{_who(data)} NACKed {what}: {data['message']}"


def _recovered(data: Row) -> str:
    names = [f"{data['type']}/{name}" for name in data["names"]]
    return f"{_who(data)} accepts {listed(names) or data['type']} again, after {data['seconds']:.1f} s"


def _drain(data: Row) -> str:
    if data["event"] == "started":
        return f"the server shuts down: {data['streams']} streams are open"
    return f"all streams have ended, after {data['seconds']:.1f} s"


def _gap(data: Row) -> str:
    missed = f" ({data['missed']:,} of them)" if "missed" in data else ""
    return f"events were missed{missed}: {data['why']}"


def _who(data: Row) -> str:
    return data["node"] or f"stream {data['stream']}"


def _client(data: Row) -> str:
    match data["event"]:
        case "connected":
            identity = f" as {data['identity']}" if data["identity"] else ""
            return f"stream {data['stream']} opened from {data['peer']}{identity} ({data['method']})"
        case "joined":
            return f"{_who(data)} joined on stream {data['stream']} from {data['peer']} ({data['user_agent'] or '?'})"
        case _:
            return f"{_who(data)} left stream {data['stream']}" + (f": {data['reason']}" if data["reason"] else "")


def _rejected(data: Row, resource: Row) -> str:
    origin = f" ({resource['origin']})" if resource["origin"] else ""
    return variant_text({"type": data["type"], "name": resource["name"]}, resource) + origin


def _load(data: Row) -> str:
    match data["result"]:
        case "ok":
            return f"configuration loaded: {data['resources']} resources in {data['files']} files"
        case "confirmed":
            return f"configuration that was held back ({data['id']}) is confirmed: {_problems(data['problems'])}"
        case "held_back":
            return f"configuration held back ({data['id']}): {_problems(data['problems'])}"
        case _:
            more = f"; and {data['more']} more" if data["more"] else ""
            return f"configuration refused: {_problems(data['problems'])}{more}"


def _problems(problems: Iterable[str]) -> str:
    return "; ".join(problems)


_TEXTS: dict[str, Callable[[Row], str]] = {
    "revision": _revision,
    "client": _client,
    "nack": _nack,
    "recovered": _recovered,
    "load": _load,
    "drain": _drain,
    "gap": _gap,
}


def colour_of(kind: str, data: Row) -> str | None:
    """Return the colour of an event on a terminal."""
    if kind in ("nack", "gap") or data.get("result") in ("refused", "held_back"):
        return "red"
    return {"revision": "green", "recovered": "green", "drain": "yellow", "client": "cyan"}.get(kind)
