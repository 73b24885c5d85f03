"""Subscriptions that nobody wants any more, and until when a relay keeps them (PRX-9)."""

from __future__ import annotations

from ..model.types import CLUSTER, VIRTUAL_HOST, Params, TypeUrl

ON_DEMAND = frozenset({VIRTUAL_HOST, CLUSTER})  # an Envoy asks for these by whatever a request says
UNRESOLVED = 5.0  # seconds; PRX-27: of one of these that is not there
MOST = 10_000  # that are not there linger at a time: any request can make an Envoy ask for one more (VHD-25)

Key = tuple[tuple[TypeUrl, str], Params]


class SubscriptionGrace:
    """Each kind lingers equally long, so that those that go first are first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._long: dict[Key, float] = {}
        self._brief: dict[Key, float] = {}

    def __bool__(self) -> bool:
        return bool(self._long or self._brief)

    @property
    def timers(self) -> tuple[dict[Key, float], ...]:
        return self._long, self._brief

    def lasts(self, key: Key, now: float, *, brief: bool = False) -> bool:
        """Whether it is kept still. The first time that this is asked, it begins to linger."""
        if key in self._long or not brief:
            return self._long.setdefault(key, now + self._seconds) > now
        if len(self._brief) >= MOST and key not in self._brief:
            return False
        return self._brief.setdefault(key, now + min(self._seconds, UNRESOLVED)) > now

    def end(self, key: Key) -> bool:
        """It is wanted again, or gone. Returns whether it lingered."""
        return self._long.pop(key, None) is not None or self._brief.pop(key, None) is not None
