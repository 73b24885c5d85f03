"""What happened to connections. Metrics and logs read these, as they do those of the core."""

from __future__ import annotations

from dataclasses import dataclass

from .codes import Code
from .limits import Limit


@dataclass(frozen=True, slots=True)
class Connected:
    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    peer: str
    seconds: float  # that it lasted
    code: Code
    reason: str  # empty: the peer left, or was asked to


@dataclass(frozen=True, slots=True)
class Limited:
    """A peer met a limit, and one stream or the connection ended of it."""

    peer: str
    limit: Limit
    code: Code
    connection: bool  # all of it, not one stream


Fact = Connected | Disconnected | Limited
