"""Count what each client has of a scarce thing, and decide which client gives way when all of it is used.

A thing is an upstream subscription, a type or a group. Each thing counts for one of the clients that want it. When a
newcomer finds no room, the client with the most things gives up the one that it got last, if a client that wants the
newcomer has at least two things less. This ends: a client that wants no more than the total divided by the number of
clients gets all of it, in whatever order the clients come. A thing that another client wants too is not given up; it
counts for that client from then on.

One address may run many clients. So addresses are compared first, then the clients at the address with the
most: opening a thousand streams gains no larger share than opening one.

Each thing knows whether it has room and for whom it counts (`Thing`). `Shares` alone changes both, and keeps indexes
by client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from ..model.limits import Client
from ..model.steps import EVERY, Steps


class Thing(Protocol):
    """A scarce thing: whether it has room, and the client that it counts for; None: not known."""

    has_room: bool
    owner: Client | None


T = TypeVar("T")
ThingT = TypeVar("ThingT", bound=Thing)


class Ranking(Generic[T]):
    """Numbers that change by one at a time, with constant-time access to the greatest.

    `_levels` groups the things by number. Since a step is 1, the next greatest level is always adjacent.
    """

    __slots__ = ("_levels", "_most", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._levels: dict[int, dict[T, None]] = {}
        self._most = 0

    def __getitem__(self, thing: T) -> int:
        return self._numbers.get(thing, 0)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def top(self) -> T | None:
        """The thing with the greatest number; among equals, the one that has had it longest."""
        return next(iter(self._levels[self._most])) if self._numbers else None

    def step(self, thing: T, by: int) -> None:
        """Add 1 or -1 to the number of a thing. A thing at 0 is forgotten."""
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


class Shares(Generic[ThingT]):
    """The things of one kind that have room, by the client that each counts for.

    wanting: finds the clients that want a thing now, in steps; this is slow, and done only where there is no room.
    is_last: whether a client gives up everything else before this thing.
    """

    def __init__(
        self,
        wanting: Callable[[ThingT], Steps[Collection[Client]]],
        is_last: Callable[[ThingT], bool] = lambda _: False,
    ) -> None:
        self._wanting = wanting
        self._is_last = is_last
        self._taken = 0
        self._held: dict[Client, dict[ThingT, None]] = {}  # newest last
        self._last: dict[Client, dict[ThingT, None]] = {}  # things that a client gives up after all of `_held`
        self._addresses: Ranking[str] = Ranking()
        self._clients: dict[str, Ranking[Client]] = {}  # by address
        self._unowned: dict[ThingT, None] = {}  # things whose clients, if any, are not known

    def __len__(self) -> int:
        return self._taken

    def take(self, thing: ThingT, client: Client | None) -> None:
        """Count a thing that has room. client: the one that it was asked for, if known."""
        thing.has_room = True
        self._taken += 1
        if client is None:
            self._unowned[thing] = None
        else:
            self._set_owner(thing, client)

    def leave(self, thing: ThingT) -> None:
        """Stop counting a thing that ended."""
        thing.has_room = False
        self._taken -= 1
        self._unowned.pop(thing, None)
        self._clear_owner(thing)

    def note_unwanted(self, thing: ThingT) -> None:
        """Note that one client no longer wants a thing.

        The thing has no owner until room is short. If no client wants it then, it is the first to give way.
        """
        if self._clear_owner(thing):
            self._unowned[thing] = None

    def gives_way(self, newcomers: Collection[Client]) -> Steps[ThingT | None]:
        """Return the thing to drop so that these clients have room for one more, in steps.

        None: each of them has its share. Things without an owner come first: one that no client wants gives way at
        once, and every other gets an owner. Then the last thing of the client with the largest share gives way, unless
        it should count for another client that wants it: one with at least two things less, or any if the owner left.
        Then it counts for that client, and the search goes on.
        """
        looked = 0
        while self._unowned:
            thing = next(iter(self._unowned))
            owner = self.with_least((yield from self._wanting(thing)))
            if owner is None:
                return thing
            del self._unowned[thing]
            self._set_owner(thing, owner)
            looked += 1
            if looked % EVERY == 0:
                yield
        client = self.with_least(newcomers)
        while (victim := self._one_to_give_way(client)) is not None:
            thing = next(reversed(self._held.get(victim) or self._last[victim]))
            wanting = yield from self._wanting(thing)
            least = self.with_least(wanting)
            if least is None or (victim in wanting and not self._has_clearly_more(victim, least)):
                return thing
            self._clear_owner(thing)
            self._set_owner(thing, least)
            looked += 1
            if looked % EVERY == 0:
                yield
        return None

    def with_least(self, clients: Collection[Client]) -> Client | None:
        """Return the client with the smallest share of these."""
        return min(clients, key=self._share_of, default=None)

    def _share_of(self, client: Client) -> tuple[int, int]:
        """Return the share of the address, then that of the client itself."""
        address = client[0]
        return self._addresses[address], self._clients[address][client] if address in self._clients else 0

    def _has_clearly_more(self, one: Client, other: Client) -> bool:
        """Whether one client has at least two things more than another.

        With a smaller difference, giving one thing away would only reverse the two. Compares addresses, or clients if
        both are at one address.
        """
        level = one[0] == other[0]
        return self._share_of(one)[level] > self._share_of(other)[level] + 1

    def _one_to_give_way(self, client: Client | None) -> Client | None:
        """Return the client that must give way to this one, at the address with the most, or else at its own."""
        if client is None:
            return None
        for address in (self._addresses.top, client[0]):
            victim = self._clients[address].top if address in self._clients else None
            if victim is not None and self._has_clearly_more(victim, client):
                return victim
        return None

    def _set_owner(self, thing: ThingT, client: Client) -> None:
        """Count a thing for a client."""
        thing.owner = client
        self._holdings(thing).setdefault(client, {})[thing] = None
        self._addresses.step(client[0], 1)
        self._clients.setdefault(client[0], Ranking()).step(client, 1)

    def _clear_owner(self, thing: ThingT) -> bool:
        """Stop counting a thing for its owner. Return whether it had one."""
        client = thing.owner
        if client is None:
            return False
        thing.owner = None
        held, clients = self._holdings(thing), self._clients[client[0]]
        del held[client][thing]
        if not held[client]:
            del held[client]
        self._addresses.step(client[0], -1)
        clients.step(client, -1)
        if not clients:
            del self._clients[client[0]]
        return True

    def _holdings(self, thing: ThingT) -> dict[Client, dict[ThingT, None]]:
        """Return the table in which a thing is kept: those given up last are apart."""
        return self._last if self._is_last(thing) else self._held
