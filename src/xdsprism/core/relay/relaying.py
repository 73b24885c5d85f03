"""Decide which upstream subscriptions a relay needs so that it can answer every client (DESIGN 7).

Downstream, sessions subscribe to names with params. Upstream, the relay subscribes to a server, each subscription by
one name and one set of params. Between the two are findings: variants and absences, each with constraints that prove
for which clients it holds. The relay subscribes upstream only where no finding matches a client. One upstream
subscription keeps a finding up to date, however many clients share it (PRX-5). So the number of upstream subscriptions
follows the number of variants, not the number of clients.

Events only mark names: `want`, `unwant` and `heard` are cheap. `flush` counts who came and went (subscribers.py), and
then examines each marked name once (planning.py):

1. What do the upstream subscriptions report? These are the findings (findings.py). A cached variant that no
   subscription reports any more was withdrawn: it is stale, and clients keep it until the relay knows its replacement.
2. Which classes of clients have no current finding? One client of each class is subscribed for (inquiry.py).
3. Which upstream subscriptions are not needed? Of several that hold one finding the relay keeps one, and drops that one
   some time after the last client left (questions.py).

Example: clients with env=prod and env=test want `foo`. Nothing is known, so the relay subscribes with the params of the
first client. The answer is a variant with the constraint env=prod. It covers all prod clients; the test clients form
another class now, and one of them is subscribed for. A thousand clients end up with two upstream subscriptions.

A wildcard is simpler: the resources that one set of params may see say nothing about another set, so each set of params
has its own upstream wildcard.

Long work runs in steps (model/steps.py): a method named `...ing` returns them, and its short form runs them at once.
"""

from __future__ import annotations

from collections.abc import Callable
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
from ..watch.entry import Collection, Entry
from ..watch.query_params import is_cut, is_wide
from .audience import NOBODY, Audience
from .budgets import Question
from .fairness import Competitors, Fairness, RoomTaken
from .findings import doubted, is_pending
from .holdings import Holding, holdings
from .listings import Listings
from .marks import Marks
from .planning import LOOKS, Planner
from .questions import Questions, Subject
from .subscribers import Subscribers
from .supply import Supply
from .timers import Silence
from .voices import Voices

LINGER = 30.0  # seconds that an upstream subscription outlives its last client (PRX-9)


class Relaying:
    """Keeps a cache filled with the answers that its sessions want.

    listed: wakes the sessions that subscribe to a wildcard. linger: seconds that an unwanted upstream subscription
    stays. reaches: whether a server can be asked for a name with params now. silence: for how long no server could be
    asked about an entry. max_stale: the silence after which an answer is too old. limits: those of a locator, by name;
    None: servers are asked without params. competitors: the clients that share the room that servers have. forgot:
    called with a name that a session forgot (VHD-25).
    """

    caches = True

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        store: Store,
        supply: Supply,
        *,
        listed: Callable[[TypeUrl, str], None] = lambda _, __: None,
        linger: float = LINGER,
        reaches: Callable[[str, Params], bool] = lambda _, __: True,
        silence: Silence = lambda _, __: 0.0,
        max_stale: float = inf,
        limits: Callable[[str], Limits | None] = lambda _: None,
        competitors: Competitors | None = None,
        forgot: Callable[[TypeUrl, str, Params], None] = lambda *_: None,
    ) -> None:
        self.facts: list[Fact] = []
        self.forgot = forgot
        self.is_planning = False  # a name is examined in steps: until it is done, no subscription is counted
        self._is_to_reword = False
        self._store = store
        self._supply = supply
        self._fairness = Fairness(supply, competitors or Competitors(), self._give_way, self.facts)
        self._marks = Marks()
        wanted: dict[Subject, Audience] = {}
        self._questions = Questions(
            supply,
            self._fairness,
            linger=linger,
            reaches=reaches,
            silence=silence,
            max_stale=max_stale,
            limits=limits,
            audience=lambda subject: wanted.get(subject, NOBODY),
            is_full=lambda type_url: self._store.table(type_url).spec.full_state,
            answered=self._marks.add_whole,
        )
        self._asked, self._ages = self._questions.asked, self._questions.ages
        self._voices = Voices(self._questions, wanted)
        self._listings = Listings(store, supply.pin, listed)
        self._planner = Planner(store, supply, self._questions, self._listings, self._marks, self._voices)
        self._subscribers = Subscribers(
            store,
            supply,
            self._questions,
            self._fairness,
            self._marks,
            self._voices,
            known=self._planner.known,
            reaches=reaches,
            facts=self.facts,
        )

    # -- what sessions want (interest.Demand)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Note that a session subscribes. The next flush acts on it."""
        self._subscribers.want(type_url, name, params, stream)

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Note that a session unsubscribes. The next flush acts on it."""
        self._subscribers.unwant(type_url, name, params)

    # -- what the server says

    def heard(self, entry: Entry, _before: Variant | None = None) -> None:
        """Mark the names that an upstream answer concerns.

        The answer is a resource, an absence or an error. An answer to one subscription by name concerns its params
        only; any other concerns the whole name. A wildcard also concerns the names of its members: once it is answered,
        subscriptions by these names are not needed any more.
        """
        subject = entry.type_url, entry.name
        if entry.collection is not None:
            self._voices.departed.note(entry.collection, entry)  # `_plan` forgets it if nobody wants the name
        params = entry.key[1]
        if params is not None and self._asked.get(subject, {}).get(params) is entry and not is_wild(entry.name):
            self._marks.add(subject, params)
        else:
            self._marks.add_whole(subject)
        if isinstance(entry, Collection):  # subscriptions by its members' names may be needless now
            self._marks.add_all((entry.type_url, name) for name in entry.members)

    def _give_way(self, question: Question, refused: Entry) -> None:
        """Replace a question that was evicted by its refusal (PRX-35)."""
        self._planner.give_way(question, refused)

    # -- for operators, and for the relay's shell

    def age(self, now: float) -> float | None:
        """Mark the names whose answers became too old, or current again, and return when to look again (PRX-25)."""
        return finish(self.aging(now))

    def aging(self, now: float) -> Steps[float | None]:
        """Do what `age` does, in steps."""
        asked = dict.fromkeys(entry for known in self._asked.values() for entry in known.values())
        times: list[float] = []
        for piece in pieces(asked):
            changed, due = self._ages.look(piece, now)
            times += [due] if due is not None else []
            for entry in changed:
                names = entry.members if isinstance(entry, Collection) else ()
                self._marks.add_all((entry.type_url, name) for name in (entry.name, *names))
            if len(piece) == EVERY:
                yield
        return min(times, default=None)

    def reword(self) -> None:
        """Make the next flush subscribe with other params where a server's limits changed (PRX-35).

        A server was found to take smaller locators than the relay sent, or larger ones again.
        """
        self._is_to_reword = True

    def _reword(self) -> Steps[None]:
        """Drop the questions whose params are affected, in steps, so that this flush asks them anew.

        These are the ones with params that some servers refuse, if they are pending or were sent with fewer params.
        """
        if not self._is_to_reword:
            return
        self._is_to_reword = False
        for piece in pieces([(subject, params) for subject, asked in self._asked.items() for params in asked], LOOKS):
            for subject, params in piece:
                entry = self._asked[subject][params]
                if is_wide(params) and (is_pending(entry) or is_cut(entry, params)):
                    self._questions.release(subject, params)
                    self._marks.add_whole(subject)
            if len(piece) == LOOKS:
                yield

    def forget(self, type_url: TypeUrl, name: str, now: float) -> bool:
        """Drop the cached answers of a name, and subscribe again (PRX-28). Return whether there were any.

        Clients that have the resource keep it until the new answer arrives.
        """
        known = self.remembers(type_url, name)
        if known:
            finish(self.forgetting(type_url, name, now))
        return known

    def remembers(self, type_url: TypeUrl, name: str) -> bool:
        """Whether the relay has an answer or an upstream subscription for a name."""
        return (type_url, name) in self._planner.known or bool(self._asked.get((type_url, name)))

    def forgetting(self, type_url: TypeUrl, name: str, now: float) -> Steps[None]:
        """Do what `forget` does, in steps.

        Cached variants stay as stale findings. Wildcards that have the name as a member are asked again.
        """
        yield from self._subscribers.counting()
        subject = type_url, name
        known = self._planner.known.get(subject)
        for piece in pieces([*self._asked.get(subject, {})], LOOKS):
            for params in piece:
                self._questions.release(subject, params)
            if len(piece) == LOOKS:
                yield
        for entry in (each for wild in wildcards(name) for each in self._asked.get((type_url, wild), {}).values()):
            if isinstance(entry, Collection) and name in entry.members:
                self._supply.ask_again(entry)
        # Keep shared variants, as stale; drop absences and findings for single params.
        if known is not None:
            shared = (each for each in known.findings if each.variant is not None and each.only is None)
            left = CachedSet(doubted(each, now) for each in shared)
            self._planner.known[subject] = left
            self._store.publish({subject: left if left.findings else None})
        self._marks.add_whole(subject)

    def holdings(self, type_url: TypeUrl, name: str) -> list[Holding]:
        """Return the cached answers of a name, with their users and upstream subscriptions (PRX-28)."""
        return finish(self.holding(type_url, name))

    def holding(self, type_url: TypeUrl, name: str) -> Steps[list[Holding]]:
        """Do what `holdings` does, in steps. What changes meanwhile may be missing."""
        if not self.is_planning:
            self._subscribers.count()
        subject = type_url, name
        audiences = [self._voices.audience((type_url, each)) for each in (name, *wildcards(name))]
        known = self._planner.known.get(subject, NOTHING)
        return (yield from holdings(known, self._voices.of(subject), audiences, self._supply.pin))

    def room(self, kind: Scarce) -> RoomTaken:
        """Return how much of one scarce thing is in use (PRX-35)."""
        return self._fairness.room(kind)

    # -- the flush

    @property
    def is_due(self) -> bool:
        """Whether a flush has something to do now."""
        return bool(self._marks or self._subscribers or self._is_to_reword) or self._questions.renewals.is_due

    def deadline(self) -> float | None:
        """Return when the next timer ends; None: no timer runs."""
        waiting = (next(iter(each.values()), None) for each in self._timers)
        return min((due for due in waiting if due is not None), default=None)

    @property
    def _timers(self) -> tuple[dict[tuple[Subject, Params], float], ...]:
        """All timers of questions, each table in order of time."""
        return *self._questions.unwanted.timers, self._listings.due, self._questions.lateness.due

    def flush(self, now: float) -> None:
        """Act on everything that happened since the last flush."""
        finish(self.flushing(now))

    def flushing(self, now: float) -> Steps[None]:
        """Do what `flush` does, in steps.

        The store publishes all news together at the end, so that sessions never see half of a response.
        """
        yield from self._subscribers.counting()
        yield from self._reword()
        yield from self._touch_due(now)
        self._marks.add_all(self._questions.renewals.answered())
        news: dict[Subject, VariantSet | None] = {}
        # To examine a name may mark others, and may make room for a refused question: repeat until nothing is marked.
        while self._marks or self._ask_refused():
            left = LOOKS
            while self._marks and left > 0:
                subject, some = self._marks.take(self._planner.is_divisible)
                left -= len(some) if some else 1
                self.is_planning = True
                try:
                    yield from self._planner.look_at(subject, some, news, now)
                finally:
                    self.is_planning = False
            if self._marks:
                yield
                yield from self._subscribers.counting()  # the news must reach sessions that came meanwhile
        self._fairness.rest()
        if news:
            yield from self._store.publishing(news)

    def _touch_due(self, now: float) -> Steps[None]:
        """Mark every question whose timer ended, in steps."""
        for waiting in self._timers:
            due = [question for question, _ in takewhile(lambda each: each[1] <= now, waiting.items())]
            for piece in pieces(due, 4 * EVERY):
                for subject, params in piece:
                    self._marks.add(subject, params)
                if len(piece) == 4 * EVERY:
                    yield

    def _ask_refused(self) -> bool:
        """Release refused questions that may have room now, so that they are asked again (PRX-35).

        Returns whether a name is marked.
        """
        for subject, params in self._fairness.again():
            if params in self._asked.get(subject, {}):
                self._questions.release(subject, params)
                self._marks.add_whole(subject)
        return bool(self._marks)
