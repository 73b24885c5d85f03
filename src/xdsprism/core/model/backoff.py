"""How long to wait before the next attempt."""

from __future__ import annotations


class Backoff:
    """Exponential, with jitter, up to a ceiling; the numbers are those of gRPC's connection backoff.

    Chance is an argument, so what a client does after its tenth failure can be written down in a test.
    """

    def __init__(self, first: float = 1.0, factor: float = 1.6, ceiling: float = 120.0, jitter: float = 0.2) -> None:
        self._first = first
        self._factor = factor
        self._ceiling = ceiling
        self._jitter = jitter
        self._step = min(first, ceiling)

    def next(self, random: float) -> float:
        """The seconds to wait now, given a number from [0, 1). The wait after it is longer.

        Jitter comes after the ceiling, as in gRPC: clients that have all reached it must not come in step.
        """
        wait = self._step * (1 + self._jitter * (2 * random - 1))
        self._step = min(self._step * self._factor, self._ceiling)
        return wait

    def reset(self) -> None:
        """The other end answered: the next wait is the first again."""
        self._step = min(self._first, self._ceiling)
