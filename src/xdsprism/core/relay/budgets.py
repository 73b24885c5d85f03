"""What a relay asks its servers for by one budget: subscriptions, types or groups (PRX-35).

A subscription is one question's own. A type, or a group, is shared by all questions that need it: it is taken with the
first of them, is free again after the last, and gives way with all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from ..model.limits import Client, Scarce
from ..model.types import Params, TypeUrl
from ..model.xdstp import is_wild
from .shares import Shares

Question = tuple[tuple[TypeUrl, str], Params]
Wanting = Callable[[Question], Iterable[Client]]
Thing = TypeVar("Thing", bound=Hashable)


class Budget(ABC, Generic[Thing]):
    """The questions that have room in it, and those that do not."""

    def __init__(self, kind: Scarce, wanting: Wanting) -> None:
        self.kind = kind
        self._wanting = wanting
        self._shares: Shares[Thing] = Shares(self._wanting_thing, self._is_last)
        self._refused: dict[Thing, dict[Question, None]] = {}  # the oldest first

    def __bool__(self) -> bool:
        return bool(self._shares or self._refused)

    @property
    def taken(self) -> int:
        return len(self._shares)

    @property
    def refused(self) -> int:
        return len(self._refused)

    def refuse(self, question: Question) -> None:
        self._refused.setdefault(self.thing(question), {})[question] = None

    def forgive(self, question: Question) -> None:
        """It is not refused any more."""
        thing = self.thing(question)
        self._refused[thing].pop(question)
        if not self._refused[thing]:
            del self._refused[thing]

    def refused_oldest(self) -> list[Question]:
        """What to ask once more when there is room for one thing."""
        return [*next(iter(self._refused.values()), ())]

    def gives_way(self, newcomer: Question) -> tuple[list[Question], Client | None] | None:
        """The questions that have to go so that there is room for this one, and whom they count for.

        None: all who want this one have their share.
        """
        thing = self._shares.gives_way(self.thing(newcomer))
        return (self._questions(thing), self._shares.owner(thing)) if thing is not None else None

    def modest(self, question: Question) -> Client | None:
        """Who has least, of those who want it, or what it shares."""
        return self._shares.modest(self.thing(question))

    @abstractmethod
    def thing(self, question: Question) -> Thing:
        """What it needs of this budget."""

    @abstractmethod
    def take(self, question: Question, client: Client | None) -> list[Question]:
        """It has room. Returns which refused questions have room with it."""

    @abstractmethod
    def leave(self, question: Question) -> bool:
        """It has no room any more. Returns whether there is room for something else."""

    @abstractmethod
    def part(self, question: Question) -> None:
        """One who wanted it does not any more."""

    @abstractmethod
    def _questions(self, thing: Thing) -> list[Question]:
        """Those that have room by it."""

    @abstractmethod
    def _wanting_thing(self, thing: Thing) -> Iterable[Client]:
        """Who wants it, be it refused."""

    def _is_last(self, _: Thing) -> bool:
        """Whether a client gives up everything else before it."""
        return False


class Subscriptions(Budget[Question]):
    """Those on the streams of one group."""

    def __contains__(self, question: Question) -> bool:
        return question in self._shares

    def thing(self, question: Question) -> Question:
        return question

    def take(self, question: Question, client: Client | None) -> list[Question]:
        self._shares.take(question, client)
        return []

    def leave(self, question: Question) -> bool:
        self._shares.leave(question)
        return True

    def part(self, question: Question) -> None:
        self._shares.part(question)

    def _questions(self, thing: Question) -> list[Question]:
        return [thing]

    def _wanting_thing(self, thing: Question) -> Iterable[Client]:
        return self._wanting(thing)

    def _is_last(self, thing: Question) -> bool:
        """A wildcard's clients lose all that it lists, where those of a name keep what they have."""
        return is_wild(thing[0][1])


class Common(Budget[Hashable]):
    """Types, or groups.

    shared: which of them a question needs.
    """

    def __init__(self, kind: Scarce, wanting: Wanting, shared: Callable[[Question], Hashable]) -> None:
        super().__init__(kind, wanting)
        self._shared = shared
        self._holding: dict[Hashable, dict[Question, None]] = {}
        self._parted: dict[Hashable, set[Question]] = {}  # of these, what somebody does not want any more

    def thing(self, question: Question) -> Hashable:
        return self._shared(question)

    def take(self, question: Question, client: Client | None) -> list[Question]:
        thing = self.thing(question)
        if thing not in self._holding:
            self._shares.take(thing, client)
        self._holding.setdefault(thing, {})[question] = None
        return [*self._refused.get(thing, ())]

    def leave(self, question: Question) -> bool:
        thing = self.thing(question)
        del self._holding[thing][question]
        self._parted.get(thing, set()).discard(question)
        if self._holding[thing]:
            return False
        del self._holding[thing]
        self._parted.pop(thing, None)
        self._shares.leave(thing)
        return True

    def part(self, question: Question) -> None:
        """Only when that may have been the last who wants any of its questions: to find out means to look at all."""
        thing = self.thing(question)
        parted = self._parted.setdefault(thing, set())
        parted.add(question)
        if len(parted) >= len(self._holding.get(thing, ())):
            del self._parted[thing]
            self._shares.part(thing)

    def _questions(self, thing: Hashable) -> list[Question]:
        return [*self._holding[thing]]

    def _wanting_thing(self, thing: Hashable) -> Iterator[Client]:
        seen: set[Client] = set()
        for question in (*self._holding.get(thing, ()), *self._refused.get(thing, ())):
            for client in self._wanting(question):
                if client not in seen:
                    seen.add(client)
                    yield client
