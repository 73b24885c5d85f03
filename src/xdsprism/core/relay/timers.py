"""Keep time for upstream subscriptions: how long each lingers, when it is late, when its answer is too old.

    class              times                                              ends with
    -----------------  -------------------------------------------------  ------------------------------------------
    SubscriptionGrace  how long a subscription outlives its last client   a client that returns, or the subscription
    OverdueQueries     how long a server leaves a subscription            an answer, or the subscription
                       unanswered
    StalenessTracker   for how long no server could correct an answer     a server that is back, or the subscription
    NoCacheRefresh     whether the server was asked again for a           the new answer, or the subscription
                       `do_not_cache` resource

**Lingering** (PRX-9). A client that reconnects soon finds its resources still cached and current. An upstream
subscription without a client lingers for `--linger` seconds. An on-demand host or cluster that does not exist lingers
for UNRESOLVED seconds only (PRX-27), and at most MOST of these linger at a time.

**Lateness.** A full-state response (SOT-4: listeners and clusters in SotW) must not leave out a resource whose state is
unknown: a client that has the resource would take it for deleted. But a server may have no way to say that a resource
does not exist, and stay silent. Then a client that asks for one such name would never get the others. So the wait is
bounded:

    client                       waits for an unknown name until
    ---------------------------  -------------------------------------------------------------
    new, has nothing to lose     A_MOMENT: 2 seconds of silence
    returns with known versions  TOO_LONG: the entry times out, as for any client (CLI-11)

**Age** (PRX-25). A cached answer counts as current while the relay has a stream to a server that could correct it. Once
every such server is gone, the answer ages. After `max_stale` seconds the relay no longer gives it to new subscribers;
clients that have the resource keep it. When a server is back, the answer counts as current again.

**Refresh** (PRX-17). The relay passes a `do_not_cache` resource on to the clients that wanted it when it arrived, and
keeps it up to date for them. A client that comes later must not get the cached copy: the relay subscribes once more and
holds the new client back until the answer is there. The finding then carries the store's revision, and only clients
that came before that revision are served from it.

A timer table has the upstream subscriptions that wait, each with the time at which it is due. All timers in a table run
equally long, so the table is in order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum

from ..model.cached import CachedSet
from ..model.types import CLUSTER, VIRTUAL_HOST, Params
from ..watch.entry import Entry, State
from ..watch.pending_answers import MOMENT
from .upstream_subscription import Subject, UpstreamSubscription

ON_DEMAND = frozenset({VIRTUAL_HOST, CLUSTER})  # Envoy asks for these by names from the requests that it serves
UNRESOLVED = 5.0  # seconds that one of these lingers if it does not exist (PRX-27)
MOST = 10_000  # nonexistent ones that linger at a time: any request can make Envoy ask for one more (VHD-25)

TimerTable = dict[UpstreamSubscription, float]
Silence = Callable[[Entry, float], float]  # seconds since a server could be asked last; 0: one can be asked now


class SubscriptionGrace:
    """Decides until when each upstream subscription is kept whose own client left.

    A subscription is in one of three states, and only the methods here change it:

        state    who uses its finding             becomes
        -------  -------------------------------  ----------------------------------------------------------------
        wanted   the client that it was made for  lent (`lend`) or unused (`lasts`) when the last such client left
        lent     other clients                    unused (`lasts`) when they left too: the linger time starts anew
        unused   nobody                           lent (`lend`) if others use it now: the linger time goes on

    `end` makes it wanted again, or stops its timer because it ended. Each of the two linger times has a timer table.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._long: TimerTable = {}
        self._brief: TimerTable = {}

    def __bool__(self) -> bool:
        return bool(self._long or self._brief)

    @property
    def timers(self) -> tuple[TimerTable, ...]:
        """The timer tables, each in order of expiry."""
        return self._long, self._brief

    def lend(self, subscription: UpstreamSubscription, now: float) -> bool:
        """Note that only other clients use a subscription. Return whether it is still kept for them."""
        subscription.is_lent = True
        return self._runs(subscription, now)

    def lasts(self, subscription: UpstreamSubscription, now: float, *, brief: bool = False) -> bool:
        """Note that a subscription is unused. Return whether it is still kept.

        brief: it is for an on-demand resource that does not exist. A timer that runs already is not shortened by this.
        """
        if subscription.is_lent:
            self.end(subscription)
        if subscription in self._long or not brief:
            return self._runs(subscription, now)
        # The table is full: drop this subscription at once.
        if len(self._brief) >= MOST and subscription not in self._brief:
            return False
        return self._brief.setdefault(subscription, now + min(self._seconds, UNRESOLVED)) > now

    def _runs(self, subscription: UpstreamSubscription, now: float) -> bool:
        """Whether the long timer of a subscription runs. The first call starts it."""
        return self._long.setdefault(subscription, now + self._seconds) > now

    def end(self, subscription: UpstreamSubscription) -> bool:
        """Stop the timer, since a client wants the subscription again or it ended. Return whether one ran."""
        subscription.is_lent = False
        return self._long.pop(subscription, None) is not None or self._brief.pop(subscription, None) is not None


class Late(IntEnum):
    """How long a server has been silent about a name that clients wait for."""

    NOT = 0
    A_MOMENT = 1
    TOO_LONG = 2


class OverdueQueries:
    """Decides when each unanswered upstream subscription becomes late.

    Time counts only while a server can be reached (PRX-11): without one, no answer could have come.
    """

    def __init__(self, reaches: Callable[[str, Params], bool]) -> None:
        self.due: TimerTable = {}
        self._reaches = reaches

    def of(self, asked: Mapping[Params, UpstreamSubscription], now: float) -> Mapping[Params, Late]:
        """Return how late each upstream subscription of a name is; an empty mapping if none is late."""
        judged = {params: self.judge(subscription, now) for params, subscription in asked.items()}
        return judged if any(judged.values()) else {}

    def drop(self, subscription: UpstreamSubscription) -> None:
        """Stop timing an upstream subscription."""
        self.due.pop(subscription, None)
        subscription.is_late = False

    def judge(self, subscription: UpstreamSubscription, now: float) -> Late:
        """Return how late one upstream subscription is. The first call starts its timer."""
        is_pending = subscription.is_pending
        if not is_pending or subscription.entry.state is State.TIMEOUT:
            # It was answered, or the client of the server gave up waiting: no timer is needed.
            self.drop(subscription)
            return Late.TOO_LONG if is_pending else Late.NOT
        if subscription.is_late:
            return Late.A_MOMENT
        if self.due.setdefault(subscription, now + MOMENT) > now:
            return Late.NOT
        del self.due[subscription]
        if not self._reaches(subscription.subject[1], subscription.params):
            # PRX-11: no server could have answered, so the moment begins again.
            self.due[subscription] = now + MOMENT
            return Late.NOT
        subscription.is_late = True
        return Late.A_MOMENT


class StalenessTracker:
    """Decides which upstream subscriptions are too old.

    No event marks the moment at which an answer becomes too old, so the owner calls `check` from time to time while a
    server is away.
    """

    def __init__(self, silence: Silence, limit: float) -> None:
        self._silence = silence
        self._limit = limit

    def check(
        self, subscriptions: Iterable[UpstreamSubscription], now: float
    ) -> tuple[list[UpstreamSubscription], float | None]:
        """Return those that became too old or current again, and when the next one becomes too old.

        The time is None if none is ageing.
        """
        changed, due = [], None
        for each in subscriptions:
            left = self._limit - self._silence(each.entry, now)
            # Either the limit passed, or a server came back: the subscription changes sides.
            if (left <= 0) != each.is_too_old:
                each.is_too_old = not each.is_too_old
                changed.append(each)
            if 0 < left < self._limit:
                due = min(due if due is not None else now + left, now + left)
        return changed, due


class NoCacheRefresh:
    """Knows which subscriptions were asked again and not answered yet (`UpstreamSubscription.refreshed_for`)."""

    def __init__(self) -> None:
        self._waiting: dict[UpstreamSubscription, None] = {}  # those with `refreshed_for`
        self._done: set[Subject] = set()  # names with a new answer, until they are examined

    @property
    def is_due(self) -> bool:
        """Whether a server answered one of them."""
        return any(each.entry.state is not State.REQUESTED for each in self._waiting)

    def add(self, subscription: UpstreamSubscription, subject: Subject) -> None:
        """Note that a client waits for a name until a subscription has a new answer."""
        if subscription.refreshed_for is None:
            subscription.refreshed_for = {}
            self._waiting[subscription] = None
        subscription.refreshed_for[subject] = None

    def drop(self, subscription: UpstreamSubscription) -> None:
        """Stop waiting for a subscription that was answered or ended.

        If it ended, the clients that waited for it get the cached answer, because another subscription keeps it up to
        date.
        """
        if subscription.refreshed_for is not None:
            self._done.update(subscription.refreshed_for)
            subscription.refreshed_for = None
            del self._waiting[subscription]

    def answered(self) -> Iterable[Subject]:
        """Return the names that have a new answer."""
        for each in [each for each in self._waiting if each.entry.state is not State.REQUESTED]:
            self.drop(each)
        return tuple(self._done)

    def stamp(self, known: CachedSet, before: CachedSet, subject: Subject, revision: int) -> CachedSet:
        """Set the revision on each `do_not_cache` finding that is new, or that the server just confirmed."""
        again = subject in self._done
        self._done.discard(subject)
        if not any(variant.do_not_cache for variant in known.variants):
            return known
        # A finding that was there before keeps its revision, unless the server was asked again.
        old = set(map(id, before.findings)) if not again else set()
        stamped = [
            replace(each, revision=revision)
            if each.variant is not None and each.variant.do_not_cache and id(each) not in old
            else each
            for each in known.findings
        ]
        return known if stamped == [*known.findings] else CachedSet(stamped)
