"""Decide how soon to ACK or NACK a response: at once, unless client and server only repeat themselves.

Some servers answer a NACK by sending the rejected resource again, at once and for ever; some answer an ACK with a
response that has nothing new. Every response must be ACKed or NACKed once (NAK-23), but no rule says how soon. So after
PATIENCE fruitless rounds the answers slow down, with exponential backoff.
"""

from __future__ import annotations

from ..model.backoff import Backoff

PATIENCE = 3  # fruitless rounds in a row before answers slow down
CALM = 1.0  # seconds: a response that comes later than this was not caused by the previous answer


class Pace:
    """The pace of answers for one type on one stream."""

    def __init__(self) -> None:
        self._rounds = 0
        self._answered_at: float | None = None
        self._backoff = Backoff()

    def answer_at(self, now: float, *, fruitful: bool) -> float:
        """Return when to answer a response that came now; `fruitful`: it changed something for a watcher."""
        echo = self._answered_at is not None and now - self._answered_at < CALM
        if fruitful or not echo:
            self._rounds = 0
            self._backoff.reset()
        else:
            self._rounds += 1
        wait = self._backoff.next(0.5) if self._rounds >= PATIENCE else 0.0
        self._answered_at = now + wait
        return self._answered_at
