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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum

from ..model.cached import CachedSet
from ..model.types import CLUSTER, VIRTUAL_HOST, Params, TypeUrl
from ..watch.entry import Entry, State
from ..watch.pending_answers import MOMENT
from .findings import is_pending

ON_DEMAND = frozenset({VIRTUAL_HOST, CLUSTER})  # Envoy asks for these by names from the requests that it serves
UNRESOLVED = 5.0  # seconds that one of these lingers if it does not exist (PRX-27)
MOST = 10_000  # nonexistent ones that linger at a time: any request can make Envoy ask for one more (VHD-25)


Subject = tuple[TypeUrl, str]
Question = tuple[Subject, Params]
Silence = Callable[[Entry, float], float]  # seconds since a server could be asked last; 0: one can be asked now


class SubscriptionGrace:
    """Records until when each upstream subscription is kept whose own client left.

    A subscription is in one of three states, and only the methods here change it:

        state    who uses its finding             becomes
        -------  -------------------------------  ----------------------------------------------------------------
        wanted   the client that it was made for  lent (`lend`) or unused (`lasts`) when the last such client left
        lent     other clients                    unused (`lasts`) when they left too: the linger time starts anew
        unused   nobody                           lent (`lend`) if others use it now: the linger time goes on

    `end` makes it wanted again, or forgets it because it ended. There is one timer table for each of the two linger
    times. All timers in a table run equally long, so the table is in order of expiry.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._long: dict[Question, float] = {}
        self._brief: dict[Question, float] = {}
        self._lent: set[Question] = set()  # those with a timer that others use

    def __bool__(self) -> bool:
        return bool(self._long or self._brief or self._lent)

    @property
    def timers(self) -> tuple[dict[Question, float], ...]:
        """The timer tables, each in order of expiry."""
        return self._long, self._brief

    def lend(self, key: Question, now: float) -> bool:
        """Note that only other clients use a subscription. Return whether it is still kept for them."""
        self._lent.add(key)
        return self._runs(key, now)

    def lasts(self, key: Question, now: float, *, brief: bool = False) -> bool:
        """Note that nobody uses a subscription. Return whether it is still kept.

        brief: it is for an on-demand resource that does not exist. A timer that runs already is not shortened by this.
        """
        if key in self._lent:
            self.end(key)
        if key in self._long or not brief:
            return self._runs(key, now)
        # The table is full: drop this subscription at once.
        if len(self._brief) >= MOST and key not in self._brief:
            return False
        return self._brief.setdefault(key, now + min(self._seconds, UNRESOLVED)) > now

    def _runs(self, key: Question, now: float) -> bool:
        """Whether the long timer of a subscription runs. The first call starts it."""
        return self._long.setdefault(key, now + self._seconds) > now

    def end(self, key: Question) -> bool:
        """Stop the timer, since a client wants the subscription again or it ended. Return whether one ran."""
        self._lent.discard(key)
        return self._long.pop(key, None) is not None or self._brief.pop(key, None) is not None


class Late(IntEnum):
    """How long a server has been silent about a name that clients wait for."""

    NOT = 0
    A_MOMENT = 1
    TOO_LONG = 2


class OverdueQueries:
    """Records when each unanswered upstream subscription becomes late.

    Time counts only while a server can be reached (PRX-11): without one, nobody could have answered.
    """

    def __init__(self, reaches: Callable[[str, Params], bool]) -> None:
        self.due: dict[Question, float] = {}  # in order of time, since all wait equally long
        self._late: set[Question] = set()
        self._reaches = reaches

    def __bool__(self) -> bool:
        return bool(self.due or self._late)

    def of(self, subject: Subject, asked: Mapping[Params, Entry], now: float) -> Mapping[Params, Late]:
        """Return how late each upstream subscription of a name is; an empty mapping if none is late."""
        judged = {params: self.judge((subject, params), entry, now) for params, entry in asked.items()}
        return judged if any(judged.values()) else {}

    def drop(self, question: Question) -> None:
        """Stop timing an upstream subscription."""
        self.due.pop(question, None)
        self._late.discard(question)

    def judge(self, question: Question, entry: Entry, now: float) -> Late:
        """Return how late one upstream subscription is. The first call starts its timer."""
        if not is_pending(entry) or entry.state is State.TIMEOUT:
            # It was answered, or the client of the server gave up waiting: no timer is needed.
            self.drop(question)
            return Late.TOO_LONG if is_pending(entry) else Late.NOT
        if question in self._late:
            return Late.A_MOMENT
        if self.due.setdefault(question, now + MOMENT) > now:
            return Late.NOT
        del self.due[question]
        (_, name), params = question
        if not self._reaches(name, params):
            # PRX-11: no server could have answered, so the moment begins again.
            self.due[question] = now + MOMENT
            return Late.NOT
        self._late.add(question)
        return Late.A_MOMENT


class StalenessTracker:
    """Remembers which upstream subscriptions are too old.

    No event marks the moment at which an answer becomes too old, so the owner calls `look` from time to time while a
    server is away.
    """

    def __init__(self, silence: Silence, limit: float) -> None:
        self._silence = silence
        self._limit = limit
        self._past: set[Entry] = set()

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._past

    def look(self, entries: Iterable[Entry], now: float) -> tuple[list[Entry], float | None]:
        """Return the entries that became too old or current again, and when the next one becomes too old.

        The time is None if no entry is ageing.
        """
        changed, due = [], None
        for entry in entries:
            left = self._limit - self._silence(entry, now)
            # Either the limit passed, or a server came back: the entry changes sides.
            if (left <= 0) != (entry in self._past):
                self._past ^= {entry}
                changed.append(entry)
            if 0 < left < self._limit:
                due = min(due if due is not None else now + left, now + left)
        return changed, due

    def drop(self, entry: Entry) -> None:
        """Forget an entry whose subscription ended."""
        self._past.discard(entry)


class NoCacheRefresh:
    """Records the subscriptions that were asked again, each with the names that clients wait for."""

    def __init__(self) -> None:
        self._waiting: dict[Entry, set[Subject]] = {}
        self._done: set[Subject] = set()

    @property
    def is_due(self) -> bool:
        """Whether a server answered one of them."""
        return any(entry.state is not State.REQUESTED for entry in self._waiting)

    def add(self, entry: Entry, subject: Subject) -> bool:
        """Note that a client waits for a name. Return False if the relay asked again already."""
        first = entry not in self._waiting
        self._waiting.setdefault(entry, set()).add(subject)
        return first

    def drop(self, entry: Entry) -> None:
        """Stop waiting for a subscription that was answered or ended.

        If it ended, the clients that waited for it get the cached answer, because another subscription keeps it up to
        date.
        """
        self._done |= self._waiting.pop(entry, set())

    def answered(self) -> Iterable[Subject]:
        """Return the names that have a new answer."""
        for entry in [entry for entry in self._waiting if entry.state is not State.REQUESTED]:
            self.drop(entry)
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
