"""Account for one scarce thing that a relay asks its servers for: subscriptions, types or groups (PRX-35).

Each budget records which upstream subscriptions (`Question`: a name with params) have room in it, and which it refused.
The budgets differ in what one upstream subscription takes:

    budget          takes                                   shared by
    --------------  --------------------------------------  ------------------------------------------------
    Subscriptions   one place on the streams of its group   nobody: each upstream subscription has its own
    Common, types   one custom type URL                     all upstream subscriptions of that type
    Common, groups  one group of clients (--group-by)       all upstream subscriptions of that group

A shared thing is taken with the first upstream subscription that needs it, becomes free with the last, and gives way
together with all of them. A budget has no limit of its own: the supply says when there is no room (supply.py), and
`Shares` says which client gives way (shares.py).
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
    """Records the upstream subscriptions that have room in one budget, and those that were refused."""

    def __init__(self, kind: Scarce, wanting: Wanting) -> None:
        self.kind = kind
        self._wanting = wanting
        self._shares: Shares[Thing] = Shares(self._wanting_thing, self._is_last)
        self._refused: dict[Thing, dict[Question, None]] = {}  # by thing, oldest first

    def __bool__(self) -> bool:
        return bool(self._shares or self._refused)

    @property
    def taken(self) -> int:
        """How many things are taken."""
        return len(self._shares)

    @property
    def refused(self) -> int:
        """How many things are refused at present."""
        return len(self._refused)

    def refuse(self, question: Question) -> None:
        """Note that there is no room for an upstream subscription."""
        self._refused.setdefault(self.thing(question), {})[question] = None

    def forgive(self, question: Question) -> None:
        """Strike an upstream subscription from the refused ones."""
        thing = self.thing(question)
        self._refused[thing].pop(question)
        if not self._refused[thing]:
            del self._refused[thing]

    def refused_oldest(self) -> list[Question]:
        """Return the upstream subscriptions to try again when one thing becomes free: those refused first."""
        return [*next(iter(self._refused.values()), ())]

    def gives_way(self, newcomer: Question) -> tuple[list[Question], Client | None] | None:
        """Return the upstream subscriptions to drop so that the newcomer has room, and the client they count for.

        None: every client that wants the newcomer has its share, so nothing gives way.
        """
        thing = self._shares.gives_way(self.thing(newcomer))
        return (self._questions(thing), self._shares.owner(thing)) if thing is not None else None

    def modest(self, question: Question) -> Client | None:
        """Return the client with the smallest share among those that want this thing."""
        return self._shares.modest(self.thing(question))

    @abstractmethod
    def thing(self, question: Question) -> Thing:
        """Return what an upstream subscription takes of this budget."""

    @abstractmethod
    def take(self, question: Question, client: Client | None) -> list[Question]:
        """Note that an upstream subscription has room. Return the refused ones that now have room too.

        client: whose share it counts for; None: not known.
        """

    @abstractmethod
    def leave(self, question: Question) -> bool:
        """Note that an upstream subscription ended. Return whether this made room for another thing."""

    @abstractmethod
    def part(self, question: Question) -> None:
        """Note that one client no longer wants an upstream subscription, which goes on for now."""

    @abstractmethod
    def _questions(self, thing: Thing) -> list[Question]:
        """Return the upstream subscriptions that hold a thing."""

    @abstractmethod
    def _wanting_thing(self, thing: Thing) -> Iterable[Client]:
        """Return the clients that want a thing, whether it has room or was refused."""

    def _is_last(self, _: Thing) -> bool:
        """Whether a client gives up everything else before this thing."""
        return False


class Subscriptions(Budget[Question]):
    """Budget of subscriptions on the streams of one group: each upstream subscription is a thing of its own."""

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
        """Whether the subscription is a wildcard or glob: a client gives these up last.

        A client that loses a wildcard loses all that it lists, while a client that loses a name keeps the resource it
        has.
        """
        return is_wild(thing[0][1])


class Common(Budget[Hashable]):
    """Budget of types or groups, each of which many upstream subscriptions share.

    shared: returns the type or group that an upstream subscription needs.
    """

    def __init__(self, kind: Scarce, wanting: Wanting, shared: Callable[[Question], Hashable]) -> None:
        super().__init__(kind, wanting)
        self._shared = shared
        self._holding: dict[Hashable, dict[Question, None]] = {}
        self._parted: dict[Hashable, set[Question]] = {}  # of these, the ones that a client left since the last check

    def thing(self, question: Question) -> Hashable:
        return self._shared(question)

    def take(self, question: Question, client: Client | None) -> list[Question]:
        """Note that an upstream subscription has room, and take the type or group with the first one."""
        thing = self.thing(question)
        if thing not in self._holding:
            self._shares.take(thing, client)
        self._holding.setdefault(thing, {})[question] = None
        return [*self._refused.get(thing, ())]

    def leave(self, question: Question) -> bool:
        """Note that an upstream subscription ended, and free the type or group with the last one."""
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
        """Note that one client left, and look for a new owner only when nobody may be left.

        To find out who still wants a shared thing means to look at all of its upstream subscriptions. So the budget
        waits until each of them lost a client since the last time.
        """
        thing = self.thing(question)
        parted = self._parted.setdefault(thing, set())
        parted.add(question)
        if len(parted) >= len(self._holding.get(thing, ())):
            del self._parted[thing]
            self._shares.part(thing)

    def _questions(self, thing: Hashable) -> list[Question]:
        return [*self._holding[thing]]

    def _wanting_thing(self, thing: Hashable) -> Iterator[Client]:
        """Yield each client once that wants any upstream subscription of this type or group."""
        seen: set[Client] = set()
        for question in (*self._holding.get(thing, ()), *self._refused.get(thing, ())):
            for client in self._wanting(question):
                if client not in seen:
                    seen.add(client)
                    yield client
