"""Questions that a server takes long to answer.

A full state (SOT-4) can't leave out what is not known: to a client that has it, it would look deleted. But a server may
have no word for that something does not exist, and say nothing at all; and then nobody who asks for that too would ever
hear of anything else. So there are bounds: a client that has nothing yet loses nothing if something is left out, and is
made to wait for a moment only; one that comes back waits for as long as any client would, until the server's patience
is over (CLI-11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from ..model.types import Params, TypeUrl
from ..watch.entry import Entry, State
from ..watch.upstream import MOMENT
from .findings import is_pending

Question = tuple[tuple[TypeUrl, str], Params]


class Late(IntEnum):
    """How long somebody has been waiting for what is not known of a name."""

    NOT = 0
    A_MOMENT = 1
    TOO_LONG = 2


class OverdueQueries:
    """When each open question is late. Time counts only while there is somebody to ask (PRX-11)."""

    def __init__(self, reaches: Callable[[str, Params], bool]) -> None:
        self.due: dict[Question, float] = {}  # first those that are due first, as all wait equally
        self._late: set[Question] = set()
        self._reaches = reaches

    def __bool__(self) -> bool:
        return bool(self.due or self._late)

    def of(self, subject: tuple[TypeUrl, str], asked: Mapping[Params, Entry], now: float) -> Mapping[Params, Late]:
        """How late each question about a name is; nothing, where none is."""
        judged = {params: self.judge((subject, params), entry, now) for params, entry in asked.items()}
        return judged if any(judged.values()) else {}

    def drop(self, question: Question) -> None:
        self.due.pop(question, None)
        self._late.discard(question)

    def judge(self, question: Question, entry: Entry, now: float) -> Late:
        """How late one question is. The first time that this is asked, it begins to count."""
        if not is_pending(entry) or entry.state is State.TIMEOUT:
            self.drop(question)
            return Late.TOO_LONG if is_pending(entry) else Late.NOT
        if question in self._late:
            return Late.A_MOMENT
        if self.due.setdefault(question, now + MOMENT) > now:
            return Late.NOT
        del self.due[question]
        (_, name), params = question
        if not self._reaches(name, params):
            self.due[question] = now + MOMENT
            return Late.NOT
        self._late.add(question)
        return Late.A_MOMENT
