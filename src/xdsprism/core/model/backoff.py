"""Decide how long to wait before the next attempt."""

from __future__ import annotations


class Backoff:
    """Exponential backoff with jitter, up to a ceiling; the defaults are those of gRPC's connection backoff.

    The caller passes the random number, so a test can state exactly what a client does after its tenth failure.
    """

    def __init__(self, first: float = 1.0, factor: float = 1.6, ceiling: float = 120.0, jitter: float = 0.2) -> None:
        self._first = first
        self._factor = factor
        self._ceiling = ceiling
        self._jitter = jitter
        self._step = min(first, ceiling)

    def next(self, random: float) -> float:
        """Return the seconds to wait now, given a random number from [0, 1). The next wait is longer.

        Jitter is applied after the ceiling, as in gRPC: clients that all reached the ceiling must not retry in step.
        """
        wait = self._step * (1 + self._jitter * (2 * random - 1))
        self._step = min(self._step * self._factor, self._ceiling)
        return wait

    def reset(self) -> None:
        """Start over with the first wait: the other end answered."""
        self._step = min(self._first, self._ceiling)
