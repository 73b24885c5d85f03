"""Questions to a server, of which there is room for so many: no client takes that from the others (PRX-35).

Three things are scarce, each with a budget: subscriptions on the streams of one group, types that clients may make up,
and groups. A question needs room in each budget that it concerns. Where one has none, its greediest client gives way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from ..model.facts import Fact, ShareExceeded
from ..model.limits import Client, Scarce
from ..model.types import Params
from ..watch.entry import Entry
from ..watch.query_params import crowded_entry
from .budgets import Budget, Common, Question, Subscriptions
from .spread import is_custom
from .supply import Supply

NO_ROOM = {
    Scarce.SUBSCRIPTIONS: "the relay's streams to its server carry as many subscriptions as they can, and this client"
    " has its share of them; the relay subscribes to this resource when there is room; ask for fewer, or spread"
    " clients over more relays",
    Scarce.TYPES: "the relay asks its server for as many types that neither Envoy nor gRPC knows as it can, and this"
    " client has its share of them; the relay subscribes to this resource when there is room; ask for fewer types",
    Scarce.GROUPS: "the relay has as many groups of clients as it can, and this client has its share of them; the relay"
    " subscribes to this resource when there is room; ask with fewer values of the parameters that make groups",
}


class RoomTaken(NamedTuple):
    """How much of one kind is asked for, how much is refused at present, and how much gave way so far."""

    taken: int
    refused: int
    gave_way: int


class Fairness:
    """Asks a supply. Where that has no room, the share of the greediest client gives way, or the question is refused.

    client: who a stream belongs to. wanting: which clients want the answer to a question now.
    pool: questions with equal ones take room for subscriptions from each other: the group of the params; None: there
    are no groups.
    """

    def __init__(
        self,
        supply: Supply,
        *,
        client: Callable[[int], Client | None] = lambda _: None,
        wanting: Callable[[Question], Iterable[Client]] = lambda _: (),
        pool: Callable[[Params], Hashable] = lambda _: None,
    ) -> None:
        self.give_way: Callable[[Question, Entry], None] = lambda _, __: None  # what becomes of such a question
        self.facts: list[Fact] = []
        self._gave_way: Counter[Scarce] = Counter()  # so far
        self._exceeded: Counter[tuple[Scarce, Client, bool]] = Counter()  # since the last turn
        self._supply = supply
        self._client = client
        self._wanting = wanting
        self._pool = pool
        self._subscriptions: dict[Hashable, Subscriptions] = {}  # by pool
        self._types = Common(Scarce.TYPES, wanting, lambda question: question[0][0])
        self._groups = Common(Scarce.GROUPS, wanting, lambda question: pool(question[1]))
        self._came: dict[Question, int] = {}  # the streams that came for something since the last turn
        self._refused: dict[Question, Budget[Any]] = {}  # with the one that had no room
        self._again: dict[Question, None] = {}  # what was refused, and there may be room for
        self._retried: set[Question] = set()  # since the last turn
        self._leaving: Budget[Any] | None = None  # the one whose room is for a newcomer at present

    @property
    def is_scarce(self) -> bool:
        """Whether something is refused."""
        return bool(self._refused or self._again)

    def room(self, kind: Scarce) -> RoomTaken:
        budgets: list[Budget[Any]] = [*self._subscriptions.values(), self._types, self._groups]
        of_kind = [budget for budget in budgets if budget.kind is kind]
        taken, refused = sum(budget.taken for budget in of_kind), sum(budget.refused for budget in of_kind)
        return RoomTaken(taken, refused, self._gave_way[kind])

    def come(self, question: Question, stream: int) -> None:
        self._came[question] = stream
        if self._forgive(question):
            self._again[question] = None

    def part(self, question: Question) -> None:
        """One who wanted it does not any more."""
        if self._is_held(question):
            for budget in self._budgets(question):
                budget.part(question)

    def again(self) -> list[Question]:
        """What was refused, and is to be asked once more: there is room, or another client came for it.

        Each once in a turn: what gives way in one budget leaves room in others, and so it could go round and round.
        """
        again = [question for question in self._again if question not in self._retried]
        self._again = dict.fromkeys(question for question in self._again if question in self._retried)
        self._retried.update(again)
        return again

    def rest(self) -> None:
        """The turn is over."""
        self.facts += [ShareExceeded(*what, count) for what, count in self._exceeded.items()]
        self._exceeded.clear()
        self._came.clear()
        self._retried.clear()

    def ask(self, question: Question, asked: Params) -> Entry:
        """asked: the params that the server is sent."""
        entry = self._supply.ask(*question[0], asked)
        claims: dict[Scarce, Client | None] = {}  # for whom something gave way
        gone: list[Question] = []
        while isinstance(entry, Scarce) and entry not in claims:
            budget = self._budget(entry, question)
            self._refuse(question, budget)
            found = budget.gives_way(question)
            if found is None:
                break
            claims[entry] = budget.modest(question)
            self._forgive(question)
            self._evict(budget, *found)
            gone += found[0]
            entry = self._supply.ask(*question[0], asked)
        if isinstance(entry, Scarce):
            return self._turn_away(question, entry, gone)
        if entry.authority.servers:  # else it takes no room
            self._take(question, claims)
        return entry

    def drop(self, question: Question, entry: Entry, *, gives_way: bool = False) -> None:
        """gives_way: the room is for another one."""
        if self._is_held(question):
            for budget in [*self._budgets(question)]:
                if budget.leave(question) and budget is not self._leaving:
                    self._ask_later(budget.refused_oldest())
                self._tidy(budget, question)
        elif not gives_way:
            self._forgive(question)
        self._supply.drop(entry)

    def _take(self, question: Question, claims: dict[Scarce, Client | None]) -> None:
        stream = self._came.get(question)
        client = self._client(stream) if stream is not None else None
        for budget in self._budgets(question):
            self._ask_later(budget.take(question, claims.get(budget.kind, client)))

    def _turn_away(self, question: Question, kind: Scarce, gone: list[Question]) -> Entry:
        """Refuse it. What gave way for it, and in vain, may have its room back."""
        self._ask_later(gone)
        budget = self._budget(kind, question)
        self._refuse(question, budget)
        self._note(kind, budget.modest(question), gave_way=False)
        return self._refusal(question, kind)

    def _evict(self, budget: Budget[Any], losers: list[Question], owner: Client | None) -> None:
        self._note(budget.kind, owner, gave_way=True)
        self._leaving = budget
        for loser in losers:
            self._refuse(loser, budget)
            self.give_way(loser, self._refusal(loser, budget.kind))
        self._leaving = None

    def _note(self, kind: Scarce, client: Client | None, *, gave_way: bool) -> None:
        """What nobody wants any more exceeds nobody's share."""
        if client is not None:
            self._gave_way[kind] += gave_way
            self._exceeded[kind, client, gave_way] += 1

    def _ask_later(self, questions: Iterable[Question]) -> None:
        for question in questions:
            self._forgive(question)
            self._again[question] = None

    # -- budgets

    def _is_held(self, question: Question) -> bool:
        subscriptions = self._subscriptions.get(self._pool(question[1]))
        return subscriptions is not None and question in subscriptions

    def _budgets(self, question: Question) -> Iterator[Budget[Any]]:
        """Each in which it needs room."""
        pool = self._pool(question[1])
        yield self._budget(Scarce.SUBSCRIPTIONS, question)
        if is_custom(question[0][0]):
            yield self._types
        if pool is not None:
            yield self._groups

    def _budget(self, kind: Scarce, question: Question) -> Budget[Any]:
        if kind is not Scarce.SUBSCRIPTIONS:
            return self._types if kind is Scarce.TYPES else self._groups
        pool = self._pool(question[1])
        if pool not in self._subscriptions:
            self._subscriptions[pool] = Subscriptions(kind, self._wanting)
        return self._subscriptions[pool]

    def _tidy(self, budget: Budget[Any], question: Question) -> None:
        if budget.kind is Scarce.SUBSCRIPTIONS and not budget:
            del self._subscriptions[self._pool(question[1])]

    def _refuse(self, question: Question, budget: Budget[Any]) -> None:
        self._refused[question] = budget
        budget.refuse(question)

    def _forgive(self, question: Question) -> bool:
        budget = self._refused.pop(question, None)
        if budget is None:
            return False
        budget.forgive(question)
        self._tidy(budget, question)
        return True

    def _refusal(self, question: Question, kind: Scarce) -> Entry:
        return crowded_entry(*question[0], question[1], NO_ROOM[kind])
