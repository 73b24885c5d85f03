"""Share out the upstream subscriptions of a relay fairly between its clients when a server takes no more (PRX-35).

Three things are scarce, and each has a budget (budgets.py): subscriptions on the streams of one group, custom types
that clients may make up, and groups. An upstream subscription needs room in each budget that it concerns.

`Fairness.subscribe` walks this way:

1. The feed subscribes, or says which thing has no room. Subscriptions that no client needs now end first
   (`Competitors.spare`).
2. The budget of that thing names the client with the largest share. If that client has at least two more than a client
   that wants the newcomer, what it got last gives way (shares.py), and the feed tries again.
3. Otherwise the newcomer is refused: its clients are told INVALID_ARGUMENT with a text from NO_ROOM, and keep what they
   have. The relay tries a refused subscription again when there is room, or when another client comes for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..model.facts import Fact, ShareExceeded
from ..model.limits import Client, Scarce
from ..model.steps import Steps, pieces
from ..model.types import Params
from ..watch.entry import Entry
from ..watch.query_params import crowded_entry
from .budgets import Budget, SharedBudget, SubscriptionBudget, clients_of
from .spread import is_custom
from .upstream_feed import Carried, UpstreamFeed
from .upstream_subscription import Subject, UpstreamSubscription

EVICTED = 32  # upstream subscriptions that give way in one step: each costs the upstream client some time

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


def _nothing() -> Steps[bool]:
    """Let go of nothing."""
    yield from ()
    return False


@dataclass(frozen=True, slots=True)
class Competitors:
    """Says who competes for the room that servers have.

    client: returns the client that a stream belongs to. wanting: returns the clients that want an upstream subscription
    now. pool: returns the group of the params; the upstream subscriptions of one pool compete for the same streams.
    None: there are no groups. spare: lets go, in steps, of what takes room though no client needs it now, and returns
    whether there was anything.
    """

    client: Callable[[int], Client | None] = lambda _: None
    wanting: Callable[[UpstreamSubscription], Iterable[Client]] = lambda _: ()
    pool: Callable[[Params], Hashable] = lambda _: None
    spare: Callable[[], Steps[bool]] = _nothing


class Fairness:
    """Subscribes through the feed, and decides who gives way where the feed has no room.

    give_way: called with an upstream subscription that is evicted and the entry that stands in for it. facts: where
    exceeded shares are reported.
    """

    def __init__(
        self,
        feed: UpstreamFeed,
        competitors: Competitors,
        give_way: Callable[[UpstreamSubscription, Entry], None],
        facts: list[Fact],
    ) -> None:
        wanting, pool = competitors.wanting, competitors.pool
        self._give_way = give_way
        self._facts = facts
        self._gave_way: Counter[Scarce] = Counter()  # since the start
        self._exceeded: Counter[tuple[Scarce, Client, bool]] = Counter()  # since the last turn
        self._feed = feed
        self._competitors = competitors
        self._subscriptions: dict[Hashable, SubscriptionBudget] = {}  # by pool
        self._types = SharedBudget(Scarce.TYPES, wanting, lambda each: each.subject[0])
        self._groups = SharedBudget(Scarce.GROUPS, wanting, lambda each: pool(each.params))
        self._came: dict[tuple[Subject, Params], int] = {}  # the stream that came for each since the last turn
        self._refused = 0  # how many upstream subscriptions have `refused_by`
        # Of those that were refused: there may be room now, each list from its end; to try again; to try in the next
        # turn; and what was tried again since the last turn.
        self._woken: deque[list[UpstreamSubscription]] = deque()
        self._again: OrderedDict[UpstreamSubscription, None] = OrderedDict()
        self._next_turn: dict[UpstreamSubscription, None] = {}
        self._retried: set[tuple[Subject, Params]] = set()

    @property
    def is_scarce(self) -> bool:
        """Whether an upstream subscription is refused at present."""
        return bool(self._refused or self._again or self._next_turn)

    def room(self, kind: Scarce) -> RoomTaken:
        """Return how much of one kind is in use."""
        budgets: list[Budget] = [*self._subscriptions.values(), self._types, self._groups]
        of_kind = [budget for budget in budgets if budget.kind is kind]
        taken, refused = sum(budget.taken for budget in of_kind), sum(budget.refused for budget in of_kind)
        return RoomTaken(taken, refused, self._gave_way[kind])

    def note_wanted(
        self, subject: Subject, params: Params, stream: int, subscription: UpstreamSubscription | None
    ) -> None:
        """Note that a stream came for a name. Its upstream subscription gets another try if it was refused."""
        self._came[subject, params] = stream
        if subscription is not None and self._drop_refused(subscription):
            self._try_again(subscription)

    def note_unwanted(self, subscription: UpstreamSubscription) -> None:
        """Note that one client no longer wants an upstream subscription."""
        if subscription.has_room:
            for budget in self._budgets(subscription):
                budget.note_unwanted(subscription)

    def again(self, most: int) -> list[UpstreamSubscription]:
        """Take refused upstream subscriptions to try again: there is room, or another client came for them.

        Each is returned once in a turn: one that gives way in one budget leaves room in others, which could go on in
        circles.
        """
        while self._woken and len(self._again) < most:
            woken = self._woken[0]
            if self._drop_refused(each := woken.pop()):
                self._try_again(each)
            if not woken:
                self._woken.popleft()
        again = [self._again.popitem(last=False)[0] for _ in range(min(most, len(self._again)))]
        self._retried.update((each.subject, each.params) for each in again)
        return again

    def end_turn(self) -> None:
        """End the turn: report whose shares were exceeded, and forget which streams came."""
        self._facts += [ShareExceeded(*what, count) for what, count in self._exceeded.items()]
        self._exceeded.clear()
        self._came.clear()
        self._retried.clear()
        self._again.update(self._next_turn)
        self._next_turn.clear()

    def subscribe(self, subscription: UpstreamSubscription, asked: Params) -> Steps[None]:
        """Subscribe, in steps if others have to give way. A refused subscription gets an entry that says so.

        asked: the params that the server is sent, which may be fewer than those of the client.
        """
        found = self._feed.subscribe(*subscription.subject, asked)
        makers: dict[Scarce, Client | None] = {}  # the clients for which something gave way
        carried = found if not isinstance(found, Scarce) else None
        if isinstance(found, Scarce):
            carried = yield from self._make_room(subscription, asked, found, makers)
        if carried is None:
            return
        subscription.entry, subscription.carrier = carried.entry, carried
        if carried.entry.authority.servers:  # else no server knows the name, and it takes no room
            self._take(subscription, makers)

    def _make_room(
        self, newcomer: UpstreamSubscription, asked: Params, kind: Scarce, makers: dict[Scarce, Client | None]
    ) -> Steps[Carried | None]:
        """Have others give way and subscribe, in steps. None: the newcomer is refused."""
        carried: Carried | Scarce = kind
        if (yield from self._competitors.spare()):
            carried = self._feed.subscribe(*newcomer.subject, asked)
        gone: list[UpstreamSubscription] = []
        clients = yield from clients_of([newcomer], self._competitors.wanting)
        # Once per kind: if the feed still has no room after one thing gave way, give up.
        while isinstance(carried, Scarce) and carried not in makers:
            budget = self._budget(carried, newcomer)
            found = yield from budget.gives_way(clients)
            if found is None:
                break
            makers[carried] = budget.with_least(clients)
            yield from self._evict(budget, *found)
            gone += found[0]
            carried = self._feed.subscribe(*newcomer.subject, asked)
        if isinstance(carried, Scarce):
            self._turn_away(newcomer, carried, clients, gone)
            return None
        return carried

    def leave(self, subscription: UpstreamSubscription) -> None:
        """Note that an upstream subscription ended or gave way, and let refused ones use its room.

        One that gave way is refused by now, and the room in that budget is for the newcomer.
        """
        self._again.pop(subscription, None)
        self._next_turn.pop(subscription, None)
        if not subscription.has_room:
            self._drop_refused(subscription)
            return
        for budget in [*self._budgets(subscription)]:
            if budget.leave(subscription) and budget is not subscription.refused_by:
                self._wake(budget.take_refused())
            self._tidy(budget, subscription)

    def _take(self, subscription: UpstreamSubscription, makers: dict[Scarce, Client | None]) -> None:
        """Count a new upstream subscription in each budget, for the client that it was made for."""
        stream = self._came.get((subscription.subject, subscription.params)) if self._came else None
        client = self._competitors.client(stream) if stream is not None else None
        for budget in self._budgets(subscription):
            self._wake(budget.take(subscription, makers.get(budget.kind, client)))

    def _turn_away(
        self,
        newcomer: UpstreamSubscription,
        kind: Scarce,
        clients: Collection[Client],
        gone: list[UpstreamSubscription],
    ) -> None:
        """Refuse an upstream subscription. The subscriptions that gave way for it are tried again."""
        self._wake(gone)
        budget = self._budget(kind, newcomer)
        self._refuse(newcomer, budget)
        self._note(kind, budget.with_least(clients), gave_way=False)
        newcomer.entry = self._refusal(newcomer, kind)

    def _evict(self, budget: Budget, losers: list[UpstreamSubscription], owner: Client | None) -> Steps[None]:
        """Drop the upstream subscriptions that give way, in steps, and mark them as refused."""
        self._note(budget.kind, owner, gave_way=True)
        for piece in pieces(losers, EVICTED):
            for loser in piece:
                self._refuse(loser, budget)
                self._give_way(loser, self._refusal(loser, budget.kind))
            if len(piece) == EVICTED:
                yield

    def _note(self, kind: Scarce, client: Client | None, *, gave_way: bool) -> None:
        """Count that a client exceeded its share. A subscription that no client wants counts for nobody."""
        if client is not None:
            self._gave_way[kind] += gave_way
            self._exceeded[kind, client, gave_way] += 1

    def _wake(self, refused: Collection[UpstreamSubscription]) -> None:
        """Queue these refused upstream subscriptions for another try."""
        if refused:
            self._woken.append([*refused][::-1])

    def _try_again(self, subscription: UpstreamSubscription) -> None:
        """Queue an upstream subscription that was refused until now for this turn, or for the next one."""
        retried = (subscription.subject, subscription.params) in self._retried
        (self._next_turn if retried else self._again)[subscription] = None

    # -- budgets

    def _budgets(self, subscription: UpstreamSubscription) -> Iterator[Budget]:
        """Yield each budget in which an upstream subscription needs room."""
        yield self._budget(Scarce.SUBSCRIPTIONS, subscription)
        if is_custom(subscription.subject[0]):
            yield self._types
        if self._competitors.pool(subscription.params) is not None:
            yield self._groups

    def _budget(self, kind: Scarce, subscription: UpstreamSubscription) -> Budget:
        """Return the budget of one kind that an upstream subscription belongs to."""
        if kind is not Scarce.SUBSCRIPTIONS:
            return self._types if kind is Scarce.TYPES else self._groups
        pool = self._competitors.pool(subscription.params)
        if pool not in self._subscriptions:
            self._subscriptions[pool] = SubscriptionBudget(self._competitors.wanting)
        return self._subscriptions[pool]

    def _tidy(self, budget: Budget, subscription: UpstreamSubscription) -> None:
        """Delete the subscription budget of a pool that is empty, so that past groups take no memory."""
        pool = self._competitors.pool(subscription.params)
        if budget is self._subscriptions.get(pool) and not budget.taken and not budget.refused:
            del self._subscriptions[pool]

    def _refuse(self, subscription: UpstreamSubscription, budget: Budget) -> None:
        """Mark an upstream subscription as refused by one budget."""
        self._refused += 1
        subscription.refused_by = budget
        budget.refuse(subscription)

    def _drop_refused(self, subscription: UpstreamSubscription) -> bool:
        """Take an upstream subscription off the refused ones. Return whether it was one."""
        budget = subscription.refused_by
        if budget is None:
            return False
        self._refused -= 1
        subscription.refused_by = None
        budget.drop_refused(subscription)
        self._tidy(budget, subscription)
        return True

    def _refusal(self, subscription: UpstreamSubscription, kind: Scarce) -> Entry:
        """Make the entry that stands in for a refused upstream subscription, and tells clients why."""
        return crowded_entry(*subscription.subject, subscription.params, NO_ROOM[kind])
