"""Who has how much of what servers can be asked for, and who gives way when there is no more of it.

That is counted in things: subscriptions, types, groups of clients. Each thing counts for one of the clients that want
it. When there is no room for another one, the client that has the most gives way, with what it got last, to one that
has at least two less. So it comes to rest: whoever wants no more than all there is divided by the number of clients has
all of it, in whatever order they come. What others want too is never given up for the greediest: it counts for one of
them instead.

One address may have many clients. First the addresses are compared, and then the clients of the greediest: who opens a
thousand streams has no more for it than who opens one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from ..model.limits import Client

Thing = TypeVar("Thing", bound=Hashable)


class Ranking(Generic[Thing]):
    """Numbers that change by one at a time, and which is the greatest."""

    __slots__ = ("_levels", "_most", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[Thing, int] = {}
        self._levels: dict[int, dict[Thing, None]] = {}
        self._most = 0

    def __getitem__(self, thing: Thing) -> int:
        return self._numbers.get(thing, 0)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def top(self) -> Thing | None:
        """The one with the greatest number; of several, the one that has had it for longest."""
        return next(iter(self._levels[self._most])) if self._numbers else None

    def step(self, thing: Thing, by: int) -> None:
        """by: 1 or -1."""
        before = self[thing]
        after = before + by
        if before:
            level = self._levels[before]
            del level[thing]
            if not level:
                del self._levels[before]
        if after:
            self._numbers[thing] = after
            self._levels.setdefault(after, {})[thing] = None
        else:
            del self._numbers[thing]
        if after > self._most or self._most not in self._levels:
            self._most = after


class Shares(Generic[Thing]):
    """The things that have room, each with the client that it counts for.

    wanting: which clients want one now; it is asked only where there is no room.
    is_last: whether a client gives up everything else before it.
    """

    def __init__(
        self, wanting: Callable[[Thing], Iterable[Client]], is_last: Callable[[Thing], bool] = lambda _: False
    ) -> None:
        self._wanting = wanting
        self._is_last = is_last
        self._owners: dict[Thing, Client] = {}
        self._held: dict[Client, dict[Thing, None]] = {}  # the newest last
        self._last: dict[Client, dict[Thing, None]] = {}  # of each client, what it gives up after all of these
        self._addresses: Ranking[str] = Ranking()
        self._clients: dict[str, Ranking[Client]] = {}  # of each address
        self._unclaimed: dict[Thing, None] = {}  # it is not known who wants these, if anybody does

    def __contains__(self, thing: Thing) -> bool:
        return thing in self._owners or thing in self._unclaimed

    def __bool__(self) -> bool:
        return bool(self._owners or self._unclaimed)

    def __len__(self) -> int:
        return len(self._owners) + len(self._unclaimed)

    def owner(self, thing: Thing) -> Client | None:
        """Whom it counts for; None: nobody, as far as is known."""
        return self._owners.get(thing)

    def take(self, thing: Thing, client: Client | None) -> None:
        """It has room. client: for whom it was asked, if that is known."""
        if client is None:
            self._unclaimed[thing] = None
        else:
            self._charge(thing, client)

    def leave(self, thing: Thing) -> None:
        """It has no room any more."""
        self._unclaimed.pop(thing, None)
        self._discharge(thing)

    def part(self, thing: Thing) -> None:
        """One who wanted it does not any more. If nobody does, and there is no room, it is the first to give way."""
        if self._discharge(thing):
            self._unclaimed[thing] = None

    def gives_way(self, newcomer: Thing) -> Thing | None:
        """What has to go so that there is room for this one; None: all who want it have their share."""
        while self._unclaimed:
            thing = next(iter(self._unclaimed))
            owner = self.modest(thing)
            if owner is None:
                return thing
            del self._unclaimed[thing]
            self._charge(thing, owner)
        client = self.modest(newcomer)
        while (victim := self._greediest(client)) is not None:
            thing = next(reversed(self._held.get(victim) or self._last[victim]))
            wanting = {*self._wanting(thing)}
            modest = min(wanting, key=self._greed, default=None)
            if modest is None or (victim in wanting and not self._is_greedier(victim, modest)):
                return thing
            self._discharge(thing)
            self._charge(thing, modest)
        return None

    def modest(self, thing: Thing) -> Client | None:
        """Who has least, of those who want it."""
        return min(self._wanting(thing), key=self._greed, default=None)

    def _greed(self, client: Client) -> tuple[int, int]:
        address = client[0]
        return self._addresses[address], self._clients[address][client] if address in self._clients else 0

    def _is_greedier(self, one: Client, other: Client) -> bool:
        """Whether it stays so, or both are equal, when one gives the other something."""
        level = one[0] == other[0]
        return self._greed(one)[level] > self._greed(other)[level] + 1

    def _greediest(self, client: Client | None) -> Client | None:
        """Who has to give way to this client, if anybody: at the greediest address, or else at its own."""
        if client is None:
            return None
        for address in (self._addresses.top, client[0]):
            victim = self._clients[address].top if address in self._clients else None
            if victim is not None and self._is_greedier(victim, client):
                return victim
        return None

    def _charge(self, thing: Thing, client: Client) -> None:
        self._owners[thing] = client
        self._holdings(thing).setdefault(client, {})[thing] = None
        self._addresses.step(client[0], 1)
        self._clients.setdefault(client[0], Ranking()).step(client, 1)

    def _discharge(self, thing: Thing) -> bool:
        client = self._owners.pop(thing, None)
        if client is None:
            return False
        held, clients = self._holdings(thing), self._clients[client[0]]
        del held[client][thing]
        if not held[client]:
            del held[client]
        self._addresses.step(client[0], -1)
        clients.step(client, -1)
        if not clients:
            del self._clients[client[0]]
        return True

    def _holdings(self, thing: Thing) -> dict[Client, dict[Thing, None]]:
        return self._last if self._is_last(thing) else self._held
