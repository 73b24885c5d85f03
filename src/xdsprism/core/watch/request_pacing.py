"""Decide how soon to ACK or NACK a response: at once, unless client and server only repeat themselves.

Some servers answer a NACK by sending the rejected resource again, at once and without end; some answer an ACK with a
response that has nothing new. Every response must be ACKed or NACKed once (NAK-23), but no rule says how soon. So after
PATIENCE fruitless rounds the answers slow down, with exponential backoff.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.backoff import Backoff
from ..model.events import Rejection
from ..model.types import TypeUrl
from .requests import AckOrNack

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


class HeldAnswers:
    """The ACKs and NACKs of one stream that wait for their time; answers of one type stay in order.

    An answer waits if the exchange is fruitless (`Pace`), or because a relay reviews it (PRX-18).
    """

    def __init__(self) -> None:
        self._paces: dict[TypeUrl, Pace] = {}
        self._waiting: list[tuple[float, TypeUrl, AckOrNack]] = []  # with the time at which each goes out

    @property
    def due(self) -> float | None:
        """When the next answer goes out."""
        return min((due for due, _, _ in self._waiting), default=None)

    def add(
        self, type_url: TypeUrl, answer: AckOrNack, now: float, *, fruitful: bool, wait: float
    ) -> list[tuple[TypeUrl, AckOrNack]]:
        """Add an answer; return those that go out now. `wait`: seconds for which it is reviewed."""
        # The later of both: the review, and the pace of a fruitless exchange.
        due = max(now + wait, self._paces.setdefault(type_url, Pace()).answer_at(now, fruitful=fruitful))
        self._waiting.append((due, type_url, replace(answer, is_reviewed=True) if wait else answer))
        return self._let_out({type_url}) if due <= now else []

    def reviewed(self, type_url: TypeUrl) -> list[AckOrNack]:
        """Return the answers of a type that are under review."""
        return [answer for _, each, answer in self._waiting if each == type_url and answer.is_reviewed]

    def decide(
        self, type_url: TypeUrl, nonce: str, error: Rejection | None, *, alone: bool
    ) -> list[tuple[TypeUrl, AckOrNack]]:
        """Return the answer with this nonce, as an ACK or NACK; unless `alone`, after the earlier ones of its type."""
        held = [waiting for waiting in self._waiting if waiting[1] == type_url]
        position = next((at for at, (_, _, answer) in enumerate(held) if answer.nonce == nonce), None)
        if position is None:
            return []  # it went out when its time was over, or its stream has ended
        ready = held[position : position + 1] if alone else held[: position + 1]
        self._waiting = [waiting for waiting in self._waiting if waiting not in ready]
        answers = (answer for _, _, answer in ready)
        return [(type_url, replace(each, error=error) if each.nonce == nonce else each) for each in answers]

    def release(self, now: float) -> list[tuple[TypeUrl, AckOrNack]]:
        """Return the answers whose time has come, with all others of their types."""
        due = {type_url for when, type_url, _ in self._waiting if when <= now}
        return self._let_out(due) if due else []

    def _let_out(self, types: set[TypeUrl]) -> list[tuple[TypeUrl, AckOrNack]]:
        """Remove and return the answers of these types."""
        ready = [(type_url, answer) for _, type_url, answer in self._waiting if type_url in types]
        self._waiting = [waiting for waiting in self._waiting if waiting[1] not in types]
        return ready
