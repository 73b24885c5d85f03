"""Bound how often something may happen, by a token bucket: so often at once, and so often in each second after that.

The core, the transport, the server and the logs use it. Time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket's size, and how many tokens come back each second."""

    burst: int
    per_second: float


class TokenBucket:
    """What is left of a rate: `burst` tokens, refilled at `per_second`."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at = now

    def spend(self, now: float) -> bool:
        """Take one token. False if there is none."""
        self._left = min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def owe(self, now: float) -> float:
        """Take one token, whether there is one or not. Return the seconds until there is none to pay back any more."""
        self._left = min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second) - 1
        self._at = now
        return -self._left / self._rate.per_second if self._left < 0 else 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until there is a token; 0 if there is one now."""
        left = self._left + (now - self._at) * self._rate.per_second
        return (1 - left) / self._rate.per_second if left < 1 else 0.0

    def refill(self) -> None:
        self._left = float(self._rate.burst)
