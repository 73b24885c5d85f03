"""Decide which upstream subscriptions a relay needs so that it can answer every client (DESIGN 7).

Downstream, sessions subscribe to names with params. Upstream, the relay subscribes to a server, each subscription by
one name and one set of params. Between the two are findings: variants and absences, each with constraints that prove
for which clients it holds. The relay subscribes upstream only where no finding matches a client. One upstream
subscription keeps a finding up to date, however many clients share it (PRX-5). So the number of upstream subscriptions
follows the number of variants, not the number of clients.

Events only mark names: `want`, `unwant` and `note_change` are cheap. `flush` counts the subscriptions that began and
ended (subscribers.py), and then examines each marked name once (planning.py):

1. What do the upstream subscriptions report? These are the findings (findings.py). A cached variant that no
   subscription reports any more was removed: it is stale, and clients keep it until the relay knows its replacement.
2. Which classes of clients have no current finding? One client of each class is subscribed for (params_choice.py).
3. Which upstream subscriptions are not needed? Of several that hold one finding the relay keeps one, and drops that one
   some time after the last client left (upstream_subscriptions.py).

Example: clients with env=prod and env=test want `foo`. Nothing is known, so the relay subscribes with the params of the
first client. The answer is a variant with the constraint env=prod. It covers all prod clients; the test clients form
another class now, and one of them is subscribed for. A thousand clients end up with two upstream subscriptions.

A wildcard is simpler: the resources that one set of params may see say nothing about another set, so each set of params
has its own upstream wildcard.

Long work runs in steps (model/steps.py). Where it has a short form too, that runs them at once, and the method named
`...ing` returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from math import inf

from ..model.cached import NOTHING, CachedSet
from ..model.facts import Fact
from ..model.limits import Limits, Scarce
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.store import Store
from ..model.types import Params, TypeUrl, Variant
from ..model.variants import VariantSet
from ..model.xdstp import is_wild, wildcards
from ..watch.entry import Entry
from ..watch.query_params import is_cut, is_wide
from .audience import Audiences
from .cached_answers import CachedAnswer, listing_answers
from .fairness import Competitors, Fairness, RoomTaken
from .findings import doubted
from .listings import Listings
from .names_to_examine import FailedNames, NamesToExamine
from .planning import LOOKS, Planner
from .subscribers import Subscribers
from .timers import Silence
from .upstream_feed import UpstreamFeed
from .upstream_subscription import Subject, UpstreamSubscription
from .upstream_subscriptions import SOME, UpstreamSubscriptions

LINGER = 30.0  # seconds that an upstream subscription outlives its last client (PRX-9)


def _raise(_subject: Subject, error: Exception) -> None:
    """Let an error through, where nobody reports it."""
    raise error


class Relaying:
    """Keeps a cache filled with the answers that its sessions want.

    listed: wakes the sessions that subscribe to a wildcard. linger: seconds that an unwanted upstream subscription
    stays. reaches: whether a server can be asked for a name with params now. silence: for how long no server could be
    asked about an entry. max_stale: the silence after which an answer is too old. limits: those of a locator, by name;
    None: servers are asked without params. competitors: the clients that share the room that servers have. forgot:
    called with a name that a session forgot (VHD-25). failed: called with a name that could not be examined, and why.
    """

    caches = True

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        store: Store,
        feed: UpstreamFeed,
        *,
        listed: Callable[[TypeUrl, str], None] = lambda _, __: None,
        linger: float = LINGER,
        reaches: Callable[[str, Params], bool] = lambda _, __: True,
        silence: Silence = lambda _, __: 0.0,
        max_stale: float = inf,
        limits: Callable[[str], Limits | None] = lambda _: None,
        competitors: Competitors | None = None,
        forgot: Callable[[TypeUrl, str, Params], None] = lambda *_: None,
        failed: Callable[[Subject, Exception], None] = _raise,
    ) -> None:
        self.facts: list[Fact] = []
        self.forgot = forgot
        self.is_planning = False  # a name is examined in steps: until it is done, no subscription is counted
        self._is_to_reword = False
        self._news: dict[Subject, VariantSet | None] = {}  # what was found out and is not published yet
        self._tell_failed = failed
        self._failed = FailedNames()
        self._store = store
        self._feed = feed
        self._fairness = Fairness(feed, competitors or Competitors(), self._give_way, self.facts)
        self._marked = NamesToExamine()
        self._audiences = Audiences()
        self._subscriptions = UpstreamSubscriptions(
            self._fairness,
            self._audiences,
            linger=linger,
            reaches=reaches,
            silence=silence,
            max_stale=max_stale,
            limits=limits,
            is_full=lambda type_url: self._store.table(type_url).spec.full_state,
            answered=self._marked.add_whole,
        )
        self._listings = Listings(store, feed.pin, listed, self._subscriptions.settling, self._failed)
        self._planner = Planner(store, feed, self._audiences, self._subscriptions, self._listings, self._marked)
        self._subscribers = Subscribers(
            store,
            self._audiences,
            self._subscriptions,
            self._fairness,
            self._marked,
            known=self._planner.known,
            reaches=reaches,
            facts=self.facts,
        )

    # -- what sessions want (model/demand.py)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Note that a session subscribes. The next flush acts on it."""
        self._subscribers.want(type_url, name, params, stream)

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Note that a session unsubscribes. The next flush acts on it."""
        self._subscribers.unwant(type_url, name, params)

    # -- what the server says

    def note_change(self, entry: Entry, _before: Variant | None = None) -> None:
        """Mark the names that an upstream answer concerns.

        The answer is a resource, an absence or an error. An answer to one subscription by name concerns its params
        only; any other concerns the whole name. A wildcard also concerns the names of its members: once it is answered,
        subscriptions by these names are not needed any more.
        """
        subject = entry.type_url, entry.name
        params = entry.key[1]
        asked = self._subscriptions.of(subject).get(params) if params is not None else None
        if params is not None and asked is not None and asked.entry is entry and not is_wild(entry.name):
            self._marked.add(subject, params)
        else:
            self._marked.add_whole(subject)
        if entry.collection is not None:  # subscriptions by its members' names may be needless now
            self._marked.add_all((entry.type_url, name) for name in entry.collection.members)
        if entry.member_of is not None:
            self._subscriptions.note_member(entry)  # `_plan` forgets it if nobody wants the name

    def _give_way(self, subscription: UpstreamSubscription, refused: Entry) -> None:
        """Replace what an evicted upstream subscription says by its refusal (PRX-35)."""
        self._planner.give_way(subscription, refused)

    # -- for operators, and for the relay's shell

    def mark_too_old(self, now: float) -> Steps[float | None]:
        """Mark, in steps, the names whose answers became too old, or current again (PRX-25).

        Returns when to look again.
        """
        times: list[float] = []
        marked: set[Entry] = set()  # several subscriptions may share one
        for piece in pieces([*self._subscriptions]):
            changed, due = self._subscriptions.staleness.check(piece, now)
            times += [due] if due is not None else []
            for each in changed:
                if each.entry not in marked:
                    marked.add(each.entry)
                    self._marked.add_all((each.subject, *each.members()))
            if len(piece) == EVERY:
                yield
        return min(times, default=None)

    def reword(self) -> None:
        """Make the next flush subscribe with other params where a server's limits changed (PRX-35).

        A server was found to take smaller locators than the relay sent, or larger ones again.
        """
        self._is_to_reword = True

    def _reword(self) -> Steps[None]:
        """End the subscriptions whose params are affected, in steps, so that this flush subscribes anew.

        These are the ones with params that some servers refuse, if they are pending or were sent with fewer params.
        """
        if not self._is_to_reword:
            return
        self._is_to_reword = False
        for piece in pieces([*self._subscriptions], LOOKS):
            for each in piece:
                if is_wide(each.params) and (each.is_pending or is_cut(each.entry, each.params)):
                    self._subscriptions.release(each)
                    self._marked.add_whole(each.subject)
            if len(piece) == LOOKS:
                yield

    def remembers(self, type_url: TypeUrl, name: str) -> bool:
        """Whether the relay has an answer or an upstream subscription for a name."""
        return (type_url, name) in self._planner.known or bool(self._subscriptions.of((type_url, name)))

    def forgetting(self, type_url: TypeUrl, name: str, now: float) -> Steps[None]:
        """Drop the cached answers of a name, and subscribe again (PRX-28), in steps.

        Clients that have the resource keep it until the new answer arrives: cached variants stay as stale findings.
        Wildcards that have the name as a member are asked again.
        """
        yield from self._subscribers.counting()
        subject = type_url, name
        known = self._planner.known.get(subject)
        for piece in pieces([*self._subscriptions.of(subject).values()], LOOKS):
            for each in piece:
                self._subscriptions.release(each)
            if len(piece) == LOOKS:
                yield
        for each in self._covering(type_url, name):
            if each.entry.collection is not None and name in each.entry.collection.members:
                self._subscriptions.ask_again(each)
        # Keep shared variants, as stale; drop absences and findings for single params.
        if known is not None:
            shared = [each for each in known.findings if each.variant is not None and each.only is None]
            left = CachedSet([doubted(each, now) for each in shared])
            self._planner.known[subject] = left
            self._news.pop(subject, None)
            self._store.publish({subject: left if left.findings else None}, "DELETE /api/resources")
        self._marked.add_whole(subject)

    def cached_answers(self, type_url: TypeUrl, name: str) -> list[CachedAnswer]:
        """Return the cached answers of a name, with their users and upstream subscriptions (PRX-28)."""
        return finish(self.listing_answers(type_url, name))

    def listing_answers(self, type_url: TypeUrl, name: str) -> Steps[list[CachedAnswer]]:
        """Do what `cached_answers` does, in steps. What changes meanwhile may be missing."""
        if not self.is_planning:
            self._subscribers.count()
        subject = type_url, name
        audiences = [self._audiences.of((type_url, each)) for each in (name, *wildcards(name))]
        known = self._planner.known.get(subject, NOTHING)
        return (yield from listing_answers(known, self._subscriptions.answers(subject), audiences, self._feed.pin))

    def room(self, kind: Scarce) -> RoomTaken:
        """Return how much of one scarce thing is in use (PRX-35)."""
        return self._fairness.room(kind)

    # -- the flush

    @property
    def is_due(self) -> bool:
        """Whether a flush has something to do now."""
        return bool(self._marked or self._subscribers or self._is_to_reword) or self._subscriptions.refreshes.is_due

    def deadline(self) -> float | None:
        """Return when the next timer ends; None: no timer runs."""
        waiting = (next(iter(each.values()), None) for each in self._subscriptions.timers())
        return min((due for due in (*waiting, self._failed.due) if due is not None), default=None)

    def flush(self, now: float) -> None:
        """Act on everything that happened since the last flush."""
        finish(self.flushing(now))

    def flushing(self, now: float) -> Steps[None]:
        """Do what `flush` does, in steps.

        The store publishes all news together at the end, so that sessions never see half of a response. If an error
        ends the flush before, the next one publishes them.
        """
        yield from self._subscribers.counting()
        yield from self._reword()
        yield from self._touch_due(now)
        self._marked.add_all(self._subscriptions.refreshes.answered())
        # To examine a name may mark others, and may make room for a refused subscription: repeat until none is marked.
        while self._marked or (yield from self._retry_refused()):
            left = LOOKS
            while self._marked and left > 0:
                subject, some = self._marked.take(self._planner.is_divisible)
                left -= len(some) if some else 1
                yield from self._examine(subject, some, now)
            if self._marked:
                yield
                yield from self._subscribers.counting()  # the news must reach sessions that came meanwhile
        self._fairness.end_turn()
        if self._news:
            yield from self._store.publishing(self._news, "upstream server")
            self._news = {}
        self._listings.mark(now)

    def _examine(self, subject: Subject, some: Iterable[Params] | None, now: float) -> Steps[None]:
        """Examine one name, in steps. If that fails, the cache keeps what it has of the name until the next try.

        OPS-10: all other names are examined, and published. To no client may the failed one look deleted.
        """
        type_url, name = subject
        self.is_planning = True
        try:
            yield from self._planner.look_at(subject, some, self._news, now)
        except Exception as error:  # noqa: BLE001 # OPS-10: it ends this work and no other
            self._subscriptions.indexes.pop(subject, None)  # it may have half of a change: examine all params next
            self._failed.note(subject, now)
            for wildcard in self._covering(type_url, name):
                self._listings.doubt(wildcard)
            self._tell_failed(subject, error)
        else:
            if self._failed.forget(subject):
                self._marked.add_all((type_url, wild) for wild in wildcards(name))  # they may be complete now
        finally:
            self.is_planning = False

    def _covering(self, type_url: TypeUrl, name: str) -> Iterator[UpstreamSubscription]:
        """Yield the upstream wildcards and globs that a name is under."""
        for wild in wildcards(name):
            yield from self._subscriptions.of((type_url, wild)).values()

    def _touch_due(self, now: float) -> Steps[None]:
        """Mark every upstream subscription whose timer ended, and every failed name to try again, in steps."""
        self._marked.add_all(self._failed.take_due(now))
        for waiting in self._subscriptions.timers():
            due = [subscription for subscription, _ in takewhile(lambda each: each[1] <= now, waiting.items())]
            for piece in pieces(due, 4 * EVERY):
                for each in piece:
                    self._marked.add(each.subject, each.params)
                if len(piece) == 4 * EVERY:
                    yield

    def _retry_refused(self) -> Steps[bool]:
        """Release refused subscriptions that may have room now, in steps, so that they are made again (PRX-35).

        Returns whether a name is marked.
        """
        while again := self._fairness.again(SOME):
            for each in again:
                if each in self._subscriptions:
                    self._subscriptions.release(each)
                    self._marked.add_whole(each.subject)
            if len(again) == SOME:
                yield
        return bool(self._marked)
