"""Keep an upstream subscription for a while after its last client left (PRX-9).

A client that reconnects soon finds its resources still cached and current. An upstream subscription without a client
lingers for `--linger` seconds. An on-demand host or cluster that does not exist lingers for UNRESOLVED seconds only
(PRX-27), and at most MOST of these linger at a time.
"""

from __future__ import annotations

from ..model.types import CLUSTER, VIRTUAL_HOST, Params, TypeUrl

ON_DEMAND = frozenset({VIRTUAL_HOST, CLUSTER})  # Envoy asks for these by names from the requests that it serves
UNRESOLVED = 5.0  # seconds that one of these lingers if it does not exist (PRX-27)
MOST = 10_000  # nonexistent ones that linger at a time: any request can make Envoy ask for one more (VHD-25)

Key = tuple[tuple[TypeUrl, str], Params]


class SubscriptionGrace:
    """Records until when each unwanted upstream subscription is kept.

    There is one timer table for each of the two linger times. All timers in a table run equally long, so the table is
    in order of expiry.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._long: dict[Key, float] = {}
        self._brief: dict[Key, float] = {}

    def __bool__(self) -> bool:
        return bool(self._long or self._brief)

    @property
    def timers(self) -> tuple[dict[Key, float], ...]:
        """The timer tables, each in order of expiry."""
        return self._long, self._brief

    def lasts(self, key: Key, now: float, *, brief: bool = False) -> bool:
        """Whether an unwanted upstream subscription is still kept. The first call starts its timer.

        brief: it is for an on-demand resource that does not exist. A timer that runs already is not shortened by this.
        """
        if key in self._long or not brief:
            return self._long.setdefault(key, now + self._seconds) > now
        # The table is full: drop this subscription at once.
        if len(self._brief) >= MOST and key not in self._brief:
            return False
        return self._brief.setdefault(key, now + min(self._seconds, UNRESOLVED)) > now

    def end(self, key: Key) -> bool:
        """Stop the timer, since a client wants the subscription again or it ended. Return whether one ran."""
        return self._long.pop(key, None) is not None or self._brief.pop(key, None) is not None
