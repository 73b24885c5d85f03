"""Measure how long a server has left an upstream subscription unanswered.

A full-state response (SOT-4: listeners and clusters in SotW) must not leave out a resource whose state is unknown: a
client that has the resource would take it for deleted. But a server may have no way to say that a resource does not
exist, and stay silent. Then a client that asks for one such name would never get the others. So the wait is bounded:

    client                       waits for an unknown name until
    ---------------------------  -------------------------------------------------------------
    new, has nothing to lose     A_MOMENT: 2 seconds of silence
    returns with known versions  TOO_LONG: the entry times out, as for any client (CLI-11)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from ..model.types import Params, TypeUrl
from ..watch.entry import Entry, State
from ..watch.pending_answers import MOMENT
from .findings import is_pending

Question = tuple[tuple[TypeUrl, str], Params]


class Late(IntEnum):
    """How long a server has been silent about a name that clients wait for."""

    NOT = 0
    A_MOMENT = 1
    TOO_LONG = 2


class OverdueQueries:
    """Records when each unanswered upstream subscription becomes late.

    Time counts only while a server can be reached (PRX-11): without one, nobody could have answered.
    """

    def __init__(self, reaches: Callable[[str, Params], bool]) -> None:
        self.due: dict[Question, float] = {}  # in order of time, since all wait equally long
        self._late: set[Question] = set()
        self._reaches = reaches

    def __bool__(self) -> bool:
        return bool(self.due or self._late)

    def of(self, subject: tuple[TypeUrl, str], asked: Mapping[Params, Entry], now: float) -> Mapping[Params, Late]:
        """Return how late each upstream subscription of a name is; an empty mapping if none is late."""
        judged = {params: self.judge((subject, params), entry, now) for params, entry in asked.items()}
        return judged if any(judged.values()) else {}

    def drop(self, question: Question) -> None:
        """Stop timing an upstream subscription."""
        self.due.pop(question, None)
        self._late.discard(question)

    def judge(self, question: Question, entry: Entry, now: float) -> Late:
        """Return how late one upstream subscription is. The first call starts its timer."""
        if not is_pending(entry) or entry.state is State.TIMEOUT:
            # It was answered, or the client of the server gave up waiting: no timer is needed.
            self.drop(question)
            return Late.TOO_LONG if is_pending(entry) else Late.NOT
        if question in self._late:
            return Late.A_MOMENT
        if self.due.setdefault(question, now + MOMENT) > now:
            return Late.NOT
        del self.due[question]
        (_, name), params = question
        if not self._reaches(name, params):
            # PRX-11: no server could have answered, so the moment begins again.
            self.due[question] = now + MOMENT
            return Late.NOT
        self._late.add(question)
        return Late.A_MOMENT
