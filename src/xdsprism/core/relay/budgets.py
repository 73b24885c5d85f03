"""Account for one scarce thing that a relay asks its servers for: subscriptions, types or groups (PRX-35).

Each budget knows which upstream subscriptions have room in it, and which it refused. The budgets differ in what one
upstream subscription takes:

    budget              takes                                   shared by
    ------------------  --------------------------------------  ------------------------------------------------
    SubscriptionBudget  one place on the streams of its group   nobody: each upstream subscription has its own
    SharedBudget        one custom type URL, or one group of    all upstream subscriptions of that type or group
                        clients (--group-by)

A shared thing is taken with the first upstream subscription that needs it, becomes free with the last, and gives way
together with all of them. A budget has no limit of its own: the feed says when there is no room (upstream_feed.py), and
`Shares` says which client gives way (shares.py).

That an upstream subscription has room or was refused is a fact of its own (`has_room`, `refused_by`). The tables here
are indexes of these facts, by type or group; fairness.py keeps them up to date by `take`, `leave`, `refuse` and
`drop_refused`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable

from ..model.limits import Client, Scarce
from ..model.steps import EVERY, Steps, cut
from ..model.xdstp import is_wild
from .shares import Shares
from .upstream_subscription import UpstreamSubscription

Wanting = Callable[[UpstreamSubscription], Iterable[Client]]
Several = dict[UpstreamSubscription, None]


class Budget(ABC):
    """One scarce thing of which upstream subscriptions take room: an interface without state."""

    kind: Scarce

    @property
    @abstractmethod
    def taken(self) -> int:
        """How many things are taken."""

    @property
    @abstractmethod
    def refused(self) -> int:
        """How many things are refused at present."""

    @abstractmethod
    def take(self, subscription: UpstreamSubscription, client: Client | None) -> Several:
        """Note that an upstream subscription has room. Return the refused ones that now have room too.

        client: whose share it counts for; None: not known.
        """

    @abstractmethod
    def leave(self, subscription: UpstreamSubscription) -> bool:
        """Note that an upstream subscription ended. Return whether this made room for another thing."""

    @abstractmethod
    def note_unwanted(self, subscription: UpstreamSubscription) -> None:
        """Note that one client no longer wants an upstream subscription, which goes on for now."""

    @abstractmethod
    def refuse(self, subscription: UpstreamSubscription) -> None:
        """Note that there is no room for an upstream subscription."""

    @abstractmethod
    def drop_refused(self, subscription: UpstreamSubscription) -> None:
        """Strike an upstream subscription from the refused ones, if it is still among them."""

    @abstractmethod
    def take_refused(self) -> Several:
        """Take those off the refused ones that may have the next thing that becomes free: the first refused."""

    @abstractmethod
    def gives_way(
        self, newcomers: Collection[Client]
    ) -> Steps[tuple[list[UpstreamSubscription], Client | None] | None]:
        """Return the upstream subscriptions to drop so that these clients have room, and the client they count for.

        In steps. None: each of these clients has its share, so nothing gives way.
        """

    @abstractmethod
    def with_least(self, clients: Collection[Client]) -> Client | None:
        """Return the client with the smallest share of these."""


class SubscriptionBudget(Budget):
    """Budget of subscriptions on the streams of one group: each upstream subscription is a thing of its own."""

    def __init__(self, wanting: Wanting) -> None:
        self.kind = Scarce.SUBSCRIPTIONS
        self._shares: Shares[UpstreamSubscription] = Shares(lambda each: clients_of([each], wanting), _is_last)
        self._refused: Several = {}  # oldest first

    @property
    def taken(self) -> int:
        return len(self._shares)

    @property
    def refused(self) -> int:
        return len(self._refused)

    def take(self, subscription: UpstreamSubscription, client: Client | None) -> Several:
        self._shares.take(subscription, client)
        return {}

    def leave(self, subscription: UpstreamSubscription) -> bool:
        self._shares.leave(subscription)
        return True

    def note_unwanted(self, subscription: UpstreamSubscription) -> None:
        self._shares.note_unwanted(subscription)

    def refuse(self, subscription: UpstreamSubscription) -> None:
        self._refused[subscription] = None

    def drop_refused(self, subscription: UpstreamSubscription) -> None:
        self._refused.pop(subscription, None)

    def take_refused(self) -> Several:
        oldest = next(iter(self._refused), None)
        if oldest is None:
            return {}
        del self._refused[oldest]
        return {oldest: None}

    def gives_way(
        self, newcomers: Collection[Client]
    ) -> Steps[tuple[list[UpstreamSubscription], Client | None] | None]:
        found = yield from self._shares.gives_way(newcomers)
        return ([found], found.owner) if found is not None else None

    def with_least(self, clients: Collection[Client]) -> Client | None:
        return self._shares.with_least(clients)


def _is_last(subscription: UpstreamSubscription) -> bool:
    """Whether the subscription is a wildcard or glob: a client gives these up last.

    A client that loses a wildcard loses all that it lists, while a client that loses a name keeps the resource it has.
    """
    return is_wild(subscription.subject[1])


class SharedThing:
    """One type or group, with the upstream subscriptions that have room in it."""

    __slots__ = ("has_room", "holding", "owner", "parted")

    def __init__(self) -> None:
        self.has_room = False
        self.owner: Client | None = None
        self.holding: Several = {}
        self.parted: Several = {}  # of these, the ones that a client left since the last check


class SharedBudget(Budget):
    """Budget of types or groups, each of which many upstream subscriptions share.

    shared: returns the type or group that an upstream subscription needs.
    """

    def __init__(self, kind: Scarce, wanting: Wanting, shared: Callable[[UpstreamSubscription], Hashable]) -> None:
        self.kind = kind
        self._shared = shared
        self._shares: Shares[SharedThing] = Shares(lambda thing: clients_of([*thing.holding], wanting))
        self._things: dict[Hashable, SharedThing] = {}  # those with room
        self._refused: dict[Hashable, Several] = {}  # by type or group, oldest first

    @property
    def taken(self) -> int:
        return len(self._shares)

    @property
    def refused(self) -> int:
        return len(self._refused)

    def take(self, subscription: UpstreamSubscription, client: Client | None) -> Several:
        """Note that an upstream subscription has room, and take the type or group with the first one."""
        shared = self._shared(subscription)
        thing = self._things.get(shared)
        if thing is None:
            thing = self._things[shared] = SharedThing()
            self._shares.take(thing, client)
        thing.holding[subscription] = None
        return self._refused.pop(shared, {})

    def leave(self, subscription: UpstreamSubscription) -> bool:
        """Note that an upstream subscription ended, and free the type or group with the last one."""
        shared = self._shared(subscription)
        thing = self._things[shared]
        del thing.holding[subscription]
        thing.parted.pop(subscription, None)
        if thing.holding:
            return False
        del self._things[shared]
        self._shares.leave(thing)
        return True

    def note_unwanted(self, subscription: UpstreamSubscription) -> None:
        """Note that one client left, and look for a new owner only when nobody may be left.

        To find out who still wants a shared thing means to look at all of its upstream subscriptions. So the budget
        waits until each of them lost a client since the last time.
        """
        thing = self._things[self._shared(subscription)]
        thing.parted[subscription] = None
        if len(thing.parted) >= len(thing.holding):
            thing.parted = {}
            self._shares.note_unwanted(thing)

    def refuse(self, subscription: UpstreamSubscription) -> None:
        self._refused.setdefault(self._shared(subscription), {})[subscription] = None

    def drop_refused(self, subscription: UpstreamSubscription) -> None:
        shared = self._shared(subscription)
        refused = self._refused.get(shared, {})
        refused.pop(subscription, None)
        if not refused:
            self._refused.pop(shared, None)

    def take_refused(self) -> Several:
        oldest = next(iter(self._refused), None)
        return self._refused.pop(oldest) if oldest is not None else {}

    def gives_way(
        self, newcomers: Collection[Client]
    ) -> Steps[tuple[list[UpstreamSubscription], Client | None] | None]:
        found = yield from self._shares.gives_way(newcomers)
        return ([*found.holding], found.owner) if found is not None else None

    def with_least(self, clients: Collection[Client]) -> Client | None:
        return self._shares.with_least(clients)


def clients_of(subscriptions: Iterable[UpstreamSubscription], wanting: Wanting) -> Steps[dict[Client, None]]:
    """Return each client that wants one of these upstream subscriptions, in steps."""
    found: dict[Client, None] = {}
    looked = 0
    for each in subscriptions:
        for clients in cut(wanting(each)):
            found.update(dict.fromkeys(clients))
            looked += len(clients)
            if looked >= EVERY:
                looked = 0
                yield
        looked += 1
    return found
