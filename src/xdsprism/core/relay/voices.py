"""Find the upstream subscriptions that speak of a name: those by name, and the wildcards that have it."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.xdstp import wildcards
from .audience import NOBODY, Audience
from .findings import Departed, UpstreamAnswer, is_answered
from .questions import Questions, Subject


class Voices:
    """The upstream subscriptions and the subscribers of each name.

    wanted: the subscribers of each name that has some. departed: the members that wildcards lost.
    """

    def __init__(self, questions: Questions, wanted: dict[Subject, Audience]) -> None:
        self.wanted = wanted
        self.departed = Departed()
        self._asked = questions.asked
        self._ages = questions.ages

    def audience(self, subject: Subject) -> Audience:
        """Return the subscribers of a name."""
        return self.wanted.get(subject, NOBODY)

    def of(self, subject: Subject) -> Iterator[UpstreamAnswer]:
        """Yield every upstream subscription that speaks of a name: those by name, and wildcards that have it."""
        type_url, name = subject
        audience = self.audience(subject)
        for params, entry in self._asked.get(subject, {}).items():
            yield UpstreamAnswer(params, entry, wild=False, wanted=params in audience, aged=entry in self._ages)
        for wild in ((type_url, each) for each in wildcards(name)):
            audience = self.audience(wild)
            for params, entry in self._asked.get(wild, {}).items():
                member = self.departed.member(subject, entry)
                if member is not None:
                    # Before the server answers a wildcard, its members come from subscriptions by name. They must not
                    # replace these yet (PRX-5).
                    wanted = params in audience and is_answered(entry)
                    yield UpstreamAnswer(params, member, wild=True, wanted=wanted, aged=entry in self._ages)
