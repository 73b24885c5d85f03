"""Define the states in which status pages, commands, CSDS and metrics show a client, a type or a resource.

The words are those of `istioctl proxy-status`. `Progress.state` (in_flight.py) decides the state of one type on one
stream, and resource_status.py that of each resource. A client is in the worst state of its types.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class SyncState(StrEnum):
    """How far a client is, in the order in which an operator wants to know: the worst first."""

    NACKED = "NACKED"  # it rejected the newest that it was sent
    STALE = "STALE"  # it has not answered the newest that it was sent, or has not been sent the newest
    NOT_SENT = "NOT SENT"  # it asked, and has not been sent anything
    SYNCED = "SYNCED"  # it has accepted the newest


ORDER = {state: rank for rank, state in enumerate(SyncState)}


def worst(states: Iterable[SyncState]) -> SyncState:
    """Return the worst of these states; of a client that asked for nothing yet, that it was sent nothing."""
    return min(states, key=ORDER.__getitem__, default=SyncState.NOT_SENT)
