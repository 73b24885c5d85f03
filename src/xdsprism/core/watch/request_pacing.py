"""How soon to answer. At once, unless a conversation leads nowhere.

Some servers answer a NACK with what was refused, at once and for ever, and some an ACK with nothing new. Every response
is owed one answer (NAK-23); nothing says that it is owed it right now.
"""

from __future__ import annotations

from ..model.backoff import Backoff

PATIENCE = 3  # fruitless rounds in a row before it gets slower
CALM = 1.0  # seconds: what comes later than this is no echo of the answer before


class Pace:
    """Of one type on one stream."""

    def __init__(self) -> None:
        self._rounds = 0
        self._answered_at: float | None = None
        self._backoff = Backoff()

    def answer_at(self, now: float, *, fruitful: bool) -> float:
        """When to answer a response that came now, and brought something or not."""
        echo = self._answered_at is not None and now - self._answered_at < CALM
        if fruitful or not echo:
            self._rounds = 0
            self._backoff.reset()
        else:
            self._rounds += 1
        wait = self._backoff.next(0.5) if self._rounds >= PATIENCE else 0.0
        self._answered_at = now + wait
        return self._answered_at
