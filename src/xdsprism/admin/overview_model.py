"""Builds what the dashboard shows first: how many clients, in which states, what is sent, and what is wrong.

Open dashboards ask for it every other second. So it has numbers and a short list, no page of rows; it is computed in
steps, and `Recent` keeps it for a second, so that many dashboards cost as much as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..builds import running
from ..core.model.steps import EVERY, Steps, cut
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.session.session import Session
from ..core.session.sync_state import ORDER, SyncState, worst
from ..observe.metrics import Metrics
from ..release import __version__
from ..server.hub import Hub
from ..server.xds_call import Connected
from . import config_model, read_model
from .cache_model import ClockReading, RelayView
from .config_model import ConfigLoads
from .read_model import Row

SECONDS = 1.0  # that an overview is kept
TROUBLED = 20  # clients that are listed because they rejected something, or are behind
TYPES = 50  # that are listed, those with most resources


class Recent:
    """Keeps an answer for a moment, and has everybody who asks meanwhile wait for the same one."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        self._answer: asyncio.Future[bytes] | None = None

    async def get(self, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return what `make` returned not longer ago than these seconds. An error is not kept."""
        now, last = self._clock(), self._answer
        if last is None or (last.done() and (now >= self._until or last.exception() is not None)):
            self._until = now + self._seconds
            self._answer = last = asyncio.ensure_future(make())
        return await asyncio.shield(last)


@dataclass(frozen=True, slots=True)
class Daemon:
    """What an overview is about."""

    hub: Hub
    metrics: Metrics
    loads: ConfigLoads | None
    unready: str | None
    relay: RelayView | None


def overview(daemon: Daemon, moment: ClockReading) -> Steps[Row]:
    """Sum up the state of a server or relay, in steps."""
    hub = daemon.hub
    clients = yield from _clients(hub.connected(), moment)
    tables = sorted((table for table in hub.store.tables() if len(table)), key=lambda table: -len(table))
    return {
        "daemon": "serve" if daemon.relay is None else "relay",
        "version": __version__,
        "build": running(),
        "time": read_model.time_of_day(moment.wall),
        "unready": daemon.unready,
        "revision": hub.store.revision,
        "resources": {
            "total": sum(map(len, tables)),
            "variants": sum(table.variants for table in tables),
            "types": [
                {
                    "type": table.spec.label,
                    "type_url": table.spec.url,
                    "resources": len(table),
                    "variants": table.variants,
                }
                for table in tables[:TYPES]
            ],
        },
        **clients,
        "totals": daemon.metrics.totals(),
        "config": _config(daemon.loads) if daemon.loads is not None else None,
        "cache": _cache(daemon.relay, daemon.metrics) if daemon.relay is not None else None,
    }


def _clients(connected: Iterable[Connected], moment: ClockReading) -> Steps[Row]:
    """Count clients by state, and list those in trouble, in steps. Each stream counts as a client."""
    streams = [*connected]
    states = dict.fromkeys(SyncState, 0)
    troubled: list[tuple[int, float, Connected, Session]] = []
    delta = 0
    for piece in cut(streams, EVERY):
        for each in piece:
            delta += each.stream.delta
            sessions = each.stream.sessions.values()
            state = worst(session.progress.state for session in sessions)
            states[state] += 1
            if state in (SyncState.NACKED, SyncState.STALE):
                session = next(session for session in sessions if session.progress.state == state)
                troubled.append((ORDER[state], _since(session), each, session))
        troubled = sorted(troubled, key=lambda found: found[:2])[:TROUBLED]
        yield
    return {
        "clients": {"total": len(streams), "states": {state.value: count for state, count in states.items()}},
        "streams": {"total": len(streams), "delta": delta, "sotw": len(streams) - delta},
        "troubled": [_troubled(each, session, moment) for _, _, each, session in troubled],
    }


def _since(session: Session) -> float:
    """Return when a session was rejected, or since when it is behind."""
    nack = session.progress.nack
    if nack is not None:
        return nack[0]
    stale = session.in_flight.stale_since
    return stale if stale is not None else session.progress.sent_at or 0.0


def _troubled(each: Connected, session: Session, moment: ClockReading) -> Row:
    """Describe a client that rejected something, or is behind: by the type that this is about."""
    node, nack = each.stream.node, session.progress.nack
    return {
        "stream": each.stream.number,
        "node": bounded(node.id, NAME_BYTES) if node is not None else "",
        "state": session.progress.state.value,
        "type": session.table.spec.label,
        "message": bounded(nack[3].message, TEXT_BYTES) if nack is not None else "",
        "seconds": round(moment.now - _since(session), 1),
    }


def _config(loads: ConfigLoads) -> Row:
    """Say when the configuration was loaded, and whether that went well."""

    def load(report: Any) -> Row | None:
        if report is None:
            return None
        return {
            "time": read_model.time_of_day(report.at),
            "ok": report.is_accepted,
            "errors": len(report.errors),
            "warnings": len(report.warnings),
            "first_error": str(report.errors[0]) if report.errors else None,
        }

    held = loads.held
    return {
        "from": list(loads.paths),
        "last_load": load(loads.last),
        "last_good_load": load(loads.good),
        "held_back": config_model.held_back(held) if held is not None else None,
    }


def _cache(relay: RelayView, metrics: Metrics) -> Row:
    """Count the servers of a relay, and how often its cache had an answer."""
    servers = [each for _, each in relay.upstreams()]
    return {
        "upstreams": len(servers),
        "connected": sum(each.connected for each in servers),
        "stale": sum(each.subscriptions for each in servers if not each.connected),
        "lookups": metrics.sums("xdsprism_cache_lookups_total", "result"),
    }
