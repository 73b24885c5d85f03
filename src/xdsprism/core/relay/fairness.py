"""Questions to a server, of which there is room for so many: no client takes that from the others (PRX-35)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from ..model.types import Params, TypeUrl
from ..watch.entry import Entry
from ..watch.query_params import refused_entry
from .shares import Client, Shares
from .supply import Supply

Question = tuple[tuple[TypeUrl, str], Params]

NO_ROOM = (
    "the relay's streams to its server carry as many subscriptions as they can, and this client has its share of them;"
    " the relay subscribes to this resource when there is room; ask for fewer, or spread clients over more relays"
)


class Fairness:
    """Asks a supply. Where that has no room, the share of the greediest client gives way, or the question is refused.

    client: who a stream belongs to. wanting: which clients want the answer to a question now.
    pool: questions with equal ones take room from each other.
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
        self._supply = supply
        self._client = client
        self._wanting = wanting
        self._pool = pool
        self._pools: dict[Hashable, Shares[Question]] = {}
        self._came: dict[Question, int] = {}  # the streams that came for something since the last turn
        self._refused: dict[Hashable, dict[Question, None]] = {}  # of each pool, the oldest first
        self._again: dict[Question, None] = {}  # of these, what there may be room for

    @property
    def is_scarce(self) -> bool:
        """Whether something is refused."""
        return bool(self._refused or self._again)

    def come(self, question: Question, stream: int) -> None:
        self._came[question] = stream
        if self._refused and self._forgive(question):
            self._again[question] = None

    def part(self, question: Question) -> None:
        """One who wanted it does not any more."""
        shares = self._pools.get(self._pool(question[1]))
        if shares is not None:
            shares.part(question)

    def again(self) -> list[Question]:
        """What was refused, and is to be asked once more: there is room, or another client came for it."""
        again, self._again = [*self._again], {}
        return again

    def rest(self) -> None:
        """The turn is over."""
        self._came.clear()

    def ask(self, question: Question, asked: Params) -> Entry:
        """asked: the params that the server is sent."""
        shares, stream = self._shares(question), self._came.get(question)
        client = self._client(stream) if stream is not None else None
        entry = self._supply.ask(*question[0], asked)
        if entry is None:
            loser = shares.gives_way(question)
            client = shares.modest(question)
            if loser is not None:
                self._refuse(loser)
                self.give_way(loser, self._refusal(loser))
                entry = self._supply.ask(*question[0], asked)
        if entry is None:
            self._refuse(question)
            return self._refusal(question)
        if entry.authority.servers:  # else it takes no room
            shares.take(question, client)
        return entry

    def drop(self, question: Question, entry: Entry, *, gives_way: bool = False) -> None:
        """gives_way: the room is for another one."""
        pool = self._pool(question[1])
        shares = self._pools.get(pool)
        if shares is not None and question in shares:
            shares.leave(question)
            if not shares:
                del self._pools[pool]
            refused = self._refused.get(pool)
            if refused and not gives_way:
                oldest = next(iter(refused))
                self._forgive(oldest)
                self._again[oldest] = None
        elif not gives_way:
            self._forgive(question)
        self._supply.drop(entry)

    def _shares(self, question: Question) -> Shares[Question]:
        pool = self._pool(question[1])
        if pool not in self._pools:
            self._pools[pool] = Shares(self._wanting)
        return self._pools[pool]

    def _refuse(self, question: Question) -> None:
        self._refused.setdefault(self._pool(question[1]), {})[question] = None

    def _forgive(self, question: Question) -> bool:
        pool = self._pool(question[1])
        refused = self._refused.get(pool, {})
        known = question in refused
        refused.pop(question, None)
        if not refused:
            self._refused.pop(pool, None)
        return known

    def _refusal(self, question: Question) -> Entry:
        return refused_entry(*question[0], question[1], NO_ROOM)
