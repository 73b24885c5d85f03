"""Share out the upstream subscriptions of a relay fairly between its clients when a server takes no more (PRX-35).

Three things are scarce, and each has a budget (budgets.py): subscriptions on the streams of one group, custom types
that clients may make up, and groups. An upstream subscription needs room in each budget that it concerns.

`Fairness.ask` walks this way:

1. The supply subscribes, or says which thing has no room.
2. The budget of that thing names the client with the largest share. If that client has at least two more than a client
   that wants the newcomer, what it got last gives way (shares.py), and the supply tries again.
3. Otherwise the newcomer is refused: its clients are told INVALID_ARGUMENT with a text from NO_ROOM, and keep what they
   have. The relay tries a refused subscription again when there is room, or when another client comes for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
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
    """Says how many things of one kind are taken, are refused at present, and gave way so far."""

    taken: int
    refused: int
    gave_way: int


@dataclass(frozen=True, slots=True)
class Competitors:
    """Says who competes for the room that servers have.

    client: returns the client that a stream belongs to. wanting: returns the clients that want an upstream subscription
    now. pool: returns the group of the params; the upstream subscriptions of one pool compete for the same streams.
    None: there are no groups.
    """

    client: Callable[[int], Client | None] = lambda _: None
    wanting: Callable[[Question], Iterable[Client]] = lambda _: ()
    pool: Callable[[Params], Hashable] = lambda _: None


class Fairness:
    """Subscribes through a supply, and decides who gives way where the supply has no room.

    give_way: called with an upstream subscription that is evicted and the entry that stands in for it. facts: where
    exceeded shares are reported.
    """

    def __init__(
        self,
        supply: Supply,
        competitors: Competitors,
        give_way: Callable[[Question, Entry], None],
        facts: list[Fact],
    ) -> None:
        wanting, pool = competitors.wanting, competitors.pool
        self._give_way = give_way
        self._facts = facts
        self._gave_way: Counter[Scarce] = Counter()  # since the start
        self._exceeded: Counter[tuple[Scarce, Client, bool]] = Counter()  # since the last turn
        self._supply = supply
        self._client = competitors.client
        self._wanting = wanting
        self._pool = pool
        self._subscriptions: dict[Hashable, Subscriptions] = {}  # by pool
        self._types = Common(Scarce.TYPES, wanting, lambda question: question[0][0])
        self._groups = Common(Scarce.GROUPS, wanting, lambda question: pool(question[1]))
        self._came: dict[Question, int] = {}  # the stream that came for each since the last turn
        self._refused: dict[Question, Budget[Any]] = {}  # with the budget that had no room
        self._again: dict[Question, None] = {}  # refused before, to try again
        self._retried: set[Question] = set()  # since the last turn
        self._leaving: Budget[Any] | None = None  # the budget whose room is reserved for a newcomer at present

    @property
    def is_scarce(self) -> bool:
        """Whether an upstream subscription is refused at present."""
        return bool(self._refused or self._again)

    def room(self, kind: Scarce) -> RoomTaken:
        """Return how much of one kind is in use."""
        budgets: list[Budget[Any]] = [*self._subscriptions.values(), self._types, self._groups]
        of_kind = [budget for budget in budgets if budget.kind is kind]
        taken, refused = sum(budget.taken for budget in of_kind), sum(budget.refused for budget in of_kind)
        return RoomTaken(taken, refused, self._gave_way[kind])

    def come(self, question: Question, stream: int) -> None:
        """Note that a stream came for an upstream subscription. A refused one gets another try."""
        self._came[question] = stream
        if self._forgive(question):
            self._again[question] = None

    def part(self, question: Question) -> None:
        """Note that one client no longer wants an upstream subscription."""
        if self._is_held(question):
            for budget in self._budgets(question):
                budget.part(question)

    def again(self) -> list[Question]:
        """Return the refused upstream subscriptions to try again: there is room, or another client came for them.

        Each is returned once in a turn: one that gives way in one budget leaves room in others, which could go on in
        circles.
        """
        again = [question for question in self._again if question not in self._retried]
        self._again = dict.fromkeys(question for question in self._again if question in self._retried)
        self._retried.update(again)
        return again

    def rest(self) -> None:
        """End the turn: report whose shares were exceeded, and forget which streams came."""
        self._facts += [ShareExceeded(*what, count) for what, count in self._exceeded.items()]
        self._exceeded.clear()
        self._came.clear()
        self._retried.clear()

    def ask(self, question: Question, asked: Params) -> Entry:
        """Subscribe, and return the entry; for a refused subscription an entry that says so.

        asked: the params that the server is sent, which may be fewer than those of the client.
        """
        entry = self._supply.ask(*question[0], asked)
        claims: dict[Scarce, Client | None] = {}  # the clients for which something gave way
        gone: list[Question] = []
        # Once per kind: if the supply still has no room after one thing gave way, give up.
        while isinstance(entry, Scarce) and entry not in claims:
            budget = self._budget(entry, question)
            self._refuse(question, budget)
            # The newcomer counts as refused while the budget looks for a victim, so that its clients are known.
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
        if entry.authority.servers:  # else no server knows the name, and it takes no room
            self._take(question, claims)
        return entry

    def drop(self, question: Question, entry: Entry, *, gives_way: bool = False) -> None:
        """Unsubscribe, and let refused subscriptions use the room.

        gives_way: the subscription was evicted, so it stays refused and its room is for the newcomer.
        """
        if self._is_held(question):
            for budget in [*self._budgets(question)]:
                # Room that an eviction makes is for the newcomer, not for the refused ones.
                if budget.leave(question) and budget is not self._leaving:
                    self._ask_later(budget.refused_oldest())
                self._tidy(budget, question)
        elif not gives_way:
            self._forgive(question)
        self._supply.drop(entry)

    def _take(self, question: Question, claims: dict[Scarce, Client | None]) -> None:
        """Count a new upstream subscription in each budget, for the client that it was made for."""
        stream = self._came.get(question)
        client = self._client(stream) if stream is not None else None
        for budget in self._budgets(question):
            self._ask_later(budget.take(question, claims.get(budget.kind, client)))

    def _turn_away(self, question: Question, kind: Scarce, gone: list[Question]) -> Entry:
        """Refuse an upstream subscription. Those that gave way for it in vain are tried again."""
        self._ask_later(gone)
        budget = self._budget(kind, question)
        self._refuse(question, budget)
        self._note(kind, budget.modest(question), gave_way=False)
        return self._refusal(question, kind)

    def _evict(self, budget: Budget[Any], losers: list[Question], owner: Client | None) -> None:
        """Drop the upstream subscriptions that give way, and mark them as refused."""
        self._note(budget.kind, owner, gave_way=True)
        self._leaving = budget
        for loser in losers:
            self._refuse(loser, budget)
            self._give_way(loser, self._refusal(loser, budget.kind))
        self._leaving = None

    def _note(self, kind: Scarce, client: Client | None, *, gave_way: bool) -> None:
        """Count that a client exceeded its share. A subscription that no client wants counts for nobody."""
        if client is not None:
            self._gave_way[kind] += gave_way
            self._exceeded[kind, client, gave_way] += 1

    def _ask_later(self, questions: Iterable[Question]) -> None:
        """Queue these refused upstream subscriptions for another try."""
        for question in questions:
            self._forgive(question)
            self._again[question] = None

    # -- budgets

    def _is_held(self, question: Question) -> bool:
        """Whether an upstream subscription has room: every one takes a place among the subscriptions of its pool."""
        subscriptions = self._subscriptions.get(self._pool(question[1]))
        return subscriptions is not None and question in subscriptions

    def _budgets(self, question: Question) -> Iterator[Budget[Any]]:
        """Yield each budget in which an upstream subscription needs room."""
        pool = self._pool(question[1])
        yield self._budget(Scarce.SUBSCRIPTIONS, question)
        if is_custom(question[0][0]):
            yield self._types
        if pool is not None:
            yield self._groups

    def _budget(self, kind: Scarce, question: Question) -> Budget[Any]:
        """Return the budget of one kind that an upstream subscription belongs to."""
        if kind is not Scarce.SUBSCRIPTIONS:
            return self._types if kind is Scarce.TYPES else self._groups
        pool = self._pool(question[1])
        if pool not in self._subscriptions:
            self._subscriptions[pool] = Subscriptions(kind, self._wanting)
        return self._subscriptions[pool]

    def _tidy(self, budget: Budget[Any], question: Question) -> None:
        """Delete the subscription budget of a pool that is empty, so that past groups take no memory."""
        if budget.kind is Scarce.SUBSCRIPTIONS and not budget:
            del self._subscriptions[self._pool(question[1])]

    def _refuse(self, question: Question, budget: Budget[Any]) -> None:
        """Mark an upstream subscription as refused by one budget."""
        self._refused[question] = budget
        budget.refuse(question)

    def _forgive(self, question: Question) -> bool:
        """Take an upstream subscription off the refused ones. Return whether it was one."""
        budget = self._refused.pop(question, None)
        if budget is None:
            return False
        budget.forgive(question)
        self._tidy(budget, question)
        return True

    def _refusal(self, question: Question, kind: Scarce) -> Entry:
        """Make the entry that stands in for a refused upstream subscription, and tells clients why."""
        return crowded_entry(*question[0], question[1], NO_ROOM[kind])
