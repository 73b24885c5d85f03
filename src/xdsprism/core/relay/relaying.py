"""Decide which upstream subscriptions a relay needs so that it can answer every client (DESIGN 7).

Downstream, sessions subscribe to names with params. Upstream, the relay subscribes to a server, each subscription by
one name and one set of params. Between the two are findings: variants and absences, each with constraints that prove
for which clients it holds. The relay subscribes upstream only where no finding matches a client. One upstream
subscription keeps a finding up to date, however many clients share it (PRX-5). So the number of upstream subscriptions
follows the number of variants, not the number of clients.

Events only mark names: `want`, `unwant` and `heard` are cheap. `flush` then examines each marked name once:

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

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from math import inf

from ..model.cached import NOTHING, CachedSet, CacheTable, Finding, Form
from ..model.constraints import matches
from ..model.facts import Fact, Looked, Lookup
from ..model.limits import Limits, Scarce
from ..model.steps import EVERY, Steps, finish, pieces
from ..model.store import Store
from ..model.types import Params, TypeUrl, Variant, category
from ..model.variants import VariantSet
from ..model.xdstp import is_wild, wildcards
from ..watch.entry import Collection, Entry
from ..watch.query_params import is_crowded, is_cut, is_wide
from .audience import Audience, Needs
from .budgets import Question
from .fairness import Competitors, Fairness, RoomTaken
from .findings import (
    Departed,
    UpstreamAnswer,
    UpstreamAnswers,
    doubted,
    find_troubles,
    is_answered,
    is_pending,
    listen,
    listening,
    refresh,
)
from .holdings import Holding, holdings
from .listings import Listings
from .questions import Questions, Subject
from .standing import Standing
from .supply import Supply
from .timers import Silence

LOOKS = 32  # names examined in one step: each may make or drop an upstream subscription
LINGER = 30.0  # seconds that an upstream subscription outlives its last client (PRX-9)

Arrival = tuple[TypeUrl, str, Params, int | None]  # the stream that subscribed; None: one unsubscribed

_NOBODY = Audience()


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
        self._store = store
        self._supply = supply
        self._fairness = Fairness(supply, competitors or Competitors(), self._give_way, self.facts)
        self._listings = Listings(store, supply.pin, listed)
        self._reaches = reaches  # whether a server can be asked for a name with params now
        self._arrivals: deque[Arrival] = deque()
        self._wanted: dict[Subject, Audience] = {}
        self._known: dict[Subject, CachedSet] = {}
        # The marked names, each with the marked params; None: all of them. An OrderedDict, because a plain dict takes
        # items from its front slowly.
        self._touched: OrderedDict[Subject, dict[Params, None] | None] = OrderedDict()
        self._is_to_reword = False
        self.is_planning = False  # a name is examined in steps: until it is done, no subscription is counted
        self._departed = Departed()
        self._questions = Questions(
            supply,
            self._fairness,
            linger=linger,
            reaches=reaches,
            silence=silence,
            max_stale=max_stale,
            limits=limits,
            audience=self._audience,
            is_full=lambda type_url: self._store.table(type_url).spec.full_state,
            answered=lambda subject: self._touched.update({subject: None}),
        )
        its = self._questions
        self._asked, self._standing, self._unwanted, self._lent = its.asked, its.standing, its.unwanted, its.lent
        self._renewals, self._lateness, self._ages = its.renewals, its.lateness, its.ages

    # -- what sessions want (interest.Demand)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:
        """Note that a session subscribes. The next flush acts on it.

        A wildcard that lists `do_not_cache` resources is asked again at once, before the session can answer it from the
        cache.
        """
        self._arrivals.append((type_url, name, params, stream))
        if is_wild(name):
            self._renew_all((type_url, name), params)  # before the session answers from the cache

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Note that a session unsubscribes. The next flush acts on it."""
        self._arrivals.append((type_url, name, params, None))

    def _count(self) -> None:
        """Count the subscriptions that came and went since the last flush, at once."""
        finish(self._counting())

    def _counting(self) -> Steps[None]:
        """Count the subscriptions that came and went since the last flush, in steps.

        Most of them join a class that is served already, and need nothing else.
        """
        arrivals = self._arrivals
        while arrivals:
            self._count_some([arrivals.popleft() for _ in range(min(4 * EVERY, len(arrivals)))])
            if arrivals:
                yield

    def _count_some(self, arrivals: Iterable[Arrival]) -> None:
        """Count some subscriptions, and mark the names that have to be examined because of them.

        Consecutive arrivals are mostly for one name, and share few findings, so both are looked up once.
        """
        looked: list[tuple[TypeUrl, Lookup, bool]] = []  # what each found, and if counting is enough
        ways: dict[int, tuple[TypeUrl, Lookup, bool]] = {}  # by finding: equal for all who share it
        subject: Subject = ("", "")
        for type_url, name, params, stream in arrivals:
            if name != subject[1] or type_url != subject[0]:  # mostly many come for one name
                subject = type_url, name
                known, audience = self._known.get(subject), self._wanted.get(subject)
            same, finding = known.classify(params) if known is not None else (None, None)
            if stream is None:
                self._leave(subject, params, finding)
                audience = self._wanted.get(subject)
                continue
            if audience is None:
                audience = self._wanted[subject] = Audience()
            way = ways.get(id(finding))
            if way is None or finding is None:
                lookup = self._look(subject, params, finding)
                way = ways[id(finding)] = type_url, lookup, self._is_plain(finding)
            looked.append(way)
            if not audience.add(params, same):  # the first of its class: a question for it may be needed
                self._touch(subject, params)
            if not way[2]:
                self._come(subject, params, finding)
                self._fairness.come((subject, params), stream)
        self.facts += [Looked(*way[:2], count) for way, count in Counter(looked).items()]

    def _is_plain(self, finding: Finding | None) -> bool:
        """Whether a subscriber that a finding answers only has to be counted."""
        stands = finding is not None and finding.stands and not finding.do_not_cache
        return stands and not self._unwanted and not self._fairness.is_scarce

    def _come(self, subject: Subject, params: Params, finding: Finding | None) -> None:
        """Mark a name for a new subscriber that has no current finding, or whose question lingers."""
        if self._unwanted.end((subject, params)) or finding is None or not finding.stands:
            self._touch(subject, params)
        if finding is not None and finding.do_not_cache:
            self._renew(subject, finding)

    def _leave(self, subject: Subject, params: Params, finding: Finding | None) -> None:
        """Count one subscription less, and mark the name if a question or a class may have lost its last client."""
        audience = self._wanted[subject]
        audience.remove(params)
        if not audience:
            del self._wanted[subject]
        # Others of its class still use the finding, so nothing changes unless the relay asked with these params.
        served = audience.has_like(params) and finding is not None and finding.stands
        if params in self._asked.get(subject, {}):
            self._fairness.part((subject, params))
            self._touch(subject, params)
        elif not served:
            self._touch(subject, params)

    def _touch(self, subject: Subject, params: Params) -> None:
        """Mark certain params of a name. A name that is marked as a whole stays so."""
        some = self._touched.setdefault(subject, {})
        if some is not None:
            some[params] = None

    def _look(self, subject: Subject, params: Params, finding: Finding | None) -> Lookup:
        """Return whether the cache has an answer for a new subscriber: hit, stale or miss (OPS-11)."""
        type_url, name = subject
        known, fresh = finding is not None and not finding.withdrawn, finding is not None and not finding.stale
        if is_wild(name):
            known, fresh = self._store.table(type_url).lists(params, name), True
        if not known:
            return "miss"
        return "hit" if fresh and self._reaches(name, params) else "stale"

    def _renew_all(self, subject: Subject, params: Params) -> None:
        """Ask a wildcard again whose listing contains `do_not_cache` resources (PRX-17)."""
        table, name = self._store.table(subject[0]), subject[1]
        entry = self._asked.get(subject, {}).get(params)
        do_not_cache = any(each.do_not_cache for each in table.listing(name).snapshot(params).variants)
        if entry is not None and do_not_cache and isinstance(table, CacheTable):
            # Until the new answer is there, the session must not take the wildcard for answered.
            table.listed.discard((name, params))
            self._ask_again(entry, subject)

    def _renew(self, subject: Subject, finding: Finding) -> None:
        """Ask the subscription again that a `do_not_cache` finding came from (PRX-17)."""
        type_url, name = subject
        for voice in self._voices(subject):
            if voice.entry.variant is not None and matches(finding.constraint, voice.params):
                wildcard = voice.entry.collection
                asked = self._asked[type_url, name if wildcard is None else wildcard.name]
                self._ask_again(asked[voice.params], subject)
                return

    def _ask_again(self, entry: Entry, subject: Subject) -> None:
        """Ask again, once for all clients that wait for the same subscription."""
        if self._renewals.add(entry, subject):
            self._supply.ask_again(entry)

    # -- what the server says

    def heard(self, entry: Entry, _before: Variant | None = None) -> None:
        """Mark the names that an upstream answer concerns.

        The answer is a resource, an absence or an error. An answer to one subscription by name concerns its params
        only; any other concerns the whole name. A wildcard also concerns the names of its members: once it is answered,
        subscriptions by these names are not needed any more.
        """
        subject = entry.type_url, entry.name
        if entry.collection is not None:
            self._departed.note(entry.collection, entry)  # `_plan` forgets it if nobody wants the name
        params = entry.key[1]
        if params is not None and self._asked.get(subject, {}).get(params) is entry and not is_wild(entry.name):
            self._touch(subject, params)
        else:
            self._touched[subject] = None
        if isinstance(entry, Collection):  # subscriptions by its members' names may be needless now
            self._touched.update(dict.fromkeys((entry.type_url, name) for name in entry.members))

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
                self._touched.update(dict.fromkeys((entry.type_url, name) for name in (entry.name, *names)))
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
                    self._touched[subject] = None
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
        return (type_url, name) in self._known or bool(self._asked.get((type_url, name)))

    def forgetting(self, type_url: TypeUrl, name: str, now: float) -> Steps[None]:
        """Do what `forget` does, in steps.

        Cached variants stay as stale findings. Wildcards that have the name as a member are asked again.
        """
        yield from self._counting()
        subject = type_url, name
        known = self._known.get(subject)
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
            self._known[subject] = left
            self._store.publish({subject: left if left.findings else None})
        self._touched[subject] = None

    def holdings(self, type_url: TypeUrl, name: str) -> list[Holding]:
        """Return the cached answers of a name, with their users and upstream subscriptions (PRX-28)."""
        if not self.is_planning:
            self._count()
        subject = type_url, name
        audiences = [self._audience((type_url, each)) for each in (name, *wildcards(name))]
        return holdings(self._known.get(subject, NOTHING), self._voices(subject), audiences, self._supply.pin)

    def room(self, kind: Scarce) -> RoomTaken:
        """Return how much of one scarce thing is in use (PRX-35)."""
        return self._fairness.room(kind)

    # -- the flush

    @property
    def is_due(self) -> bool:
        """Whether a flush has something to do now."""
        return bool(self._touched or self._arrivals or self._is_to_reword) or self._renewals.is_due

    def deadline(self) -> float | None:
        """Return when the next timer ends; None: no timer runs."""
        waiting = (next(iter(each.values()), None) for each in self._timers)
        return min((due for due in waiting if due is not None), default=None)

    @property
    def _timers(self) -> tuple[dict[tuple[Subject, Params], float], ...]:
        """All timers of questions, each table in order of time."""
        return *self._unwanted.timers, self._listings.due, self._lateness.due

    def flush(self, now: float) -> None:
        """Act on everything that happened since the last flush."""
        finish(self.flushing(now))

    def flushing(self, now: float) -> Steps[None]:
        """Do what `flush` does, in steps.

        The store publishes all news together at the end, so that sessions never see half of a response.
        """
        yield from self._counting()
        yield from self._reword()
        yield from self._touch_due(now)
        self._touched.update(dict.fromkeys(self._renewals.answered()))
        news: dict[Subject, VariantSet | None] = {}
        # To examine a name may mark others, and may make room for a refused question: repeat until nothing is marked.
        while self._touched or self._ask_refused():
            left = LOOKS
            while self._touched and left > 0:
                subject, some = self._next_touched()
                left -= len(some) if some else 1
                self.is_planning = True
                try:
                    yield from self._look_at(subject, some, news, now)
                finally:
                    self.is_planning = False
            if self._touched:
                yield
                yield from self._counting()  # the news must reach sessions that came meanwhile
        self._fairness.rest()
        if news:
            yield from self._store.publishing(news)

    def _touch_due(self, now: float) -> Steps[None]:
        """Mark every question whose timer ended, in steps."""
        for waiting in self._timers:
            due = [question for question, _ in takewhile(lambda each: each[1] <= now, waiting.items())]
            for piece in pieces(due, 4 * EVERY):
                for subject, params in piece:
                    self._touch(subject, params)
                if len(piece) == 4 * EVERY:
                    yield

    def _next_touched(self) -> tuple[Subject, dict[Params, None] | None]:
        """Return the next marked name; if many of its params are marked, as many as one step takes."""
        subject, some = self._touched.popitem(last=False)
        if some is not None and len(some) > EVERY and subject in self._standing:
            # Copied once, so that each step takes its part from the front and leaves the others alone.
            rest = some if isinstance(some, OrderedDict) else OrderedDict(some)
            self._touched[subject] = rest
            self._touched.move_to_end(subject, last=False)
            return subject, dict(rest.popitem(last=False) for _ in range(EVERY))
        return subject, some

    def _look_at(
        self,
        subject: Subject,
        some: Iterable[Params] | None,
        news: dict[Subject, VariantSet | None],
        now: float,
    ) -> Steps[None]:
        """Examine one marked name, in steps, and record its cached set in `news` if it changed.

        some: the marked params; None: all. The short way (`_plan_some`) is tried first where only some are marked.
        """
        if is_wild(subject[1]):
            yield from self._plan_wild(subject, now)
            return
        before = self._known.get(subject, NOTHING)
        known = (yield from self._plan_some(subject, before, some, now)) if some is not None else None
        if known is None:  # the short way does not apply
            self._standing.pop(subject, None)
            known = yield from self._plan(subject, before, now)
        said_something = bool(known.findings or known.troubles or known.late)
        if said_something:
            self._known[subject] = known
        else:
            self._known.pop(subject, None)
        if known is not before:
            news[subject] = known if said_something else None

    def _ask_refused(self) -> bool:
        """Release refused questions that may have room now, so that they are asked again (PRX-35).

        Returns whether a name is marked.
        """
        for subject, params in self._fairness.again():
            if params in self._asked.get(subject, {}):
                self._questions.release(subject, params)
                self._touched[subject] = None
        return bool(self._touched)

    def _audience(self, subject: Subject) -> Audience:
        """Return the subscribers of a name."""
        return self._wanted.get(subject, _NOBODY)

    # -- one name

    def _voices(self, subject: Subject) -> Iterator[UpstreamAnswer]:
        """Yield every upstream subscription that speaks of a name: those by name, and wildcards that have it."""
        type_url, name = subject
        audience = self._audience(subject)
        for params, entry in self._asked.get(subject, {}).items():
            yield UpstreamAnswer(params, entry, wild=False, wanted=params in audience, aged=entry in self._ages)
        for wild in ((type_url, each) for each in wildcards(name)):
            audience = self._audience(wild)
            for params, entry in self._asked.get(wild, {}).items():
                member = self._departed.member(subject, entry)
                if member is not None:
                    # Before the server answers a wildcard, its members come from subscriptions by name. They must not
                    # replace these yet (PRX-5).
                    wanted = params in audience and is_answered(entry)
                    yield UpstreamAnswer(params, member, wild=True, wanted=wanted, aged=entry in self._ages)

    def _plan(self, subject: Subject, before: CachedSet, now: float) -> Steps[CachedSet]:
        """Examine a whole name, in steps, and return its new cached set.

        1. Merge the answers into findings, and ask again where they are in doubt.
        2. Find the classes that use each finding, and those without a current one.
        3. Drop pending questions that were answered otherwise; subscribe for the classes that wait.
        4. Keep one question for each finding in use; let the others linger or drop them.
        5. Drop findings that no question holds; add errors and lateness.

        Between two steps no subscription is counted, and nothing but this method makes or drops a question. An answer
        or a timer in the meantime marks the name once more.
        """
        # Step 1: the findings.
        if subject not in self._wanted:
            self._departed.forget(subject)
        said = yield from listening(self._voices(subject), before, self._supply.pin)
        fresh = yield from refresh(before, said, now)
        known = self._renewals.stamp(fresh, before, subject, self._store.revision + 1)
        for piece in pieces(said.doubtful, LOOKS):
            for entry in piece:
                self._supply.ask_again(entry)
            if len(piece) == LOOKS:
                yield
        # Steps 2 and 3: the clients, and the questions that they need.
        needs = yield from self._needs(subject, known)
        audience, asked = self._audience(subject), self._asked.get(subject, {})
        is_held = lambda form: form in said.lasting or _is_any_in(said.holders.get(form), audience)  # noqa: E731
        yield from self._questions.tidy_pending(subject, known, [*asked], is_held, now)
        own = (voice for voice in self._voices(subject) if not voice.wild)
        wrong = yield from find_troubles(own, known, self._supply.pin)
        timed = yield from self._questions.inquire(subject, known, needs, wrong, now, [*asked])
        yield from self._questions.presume(subject, known)
        # Step 4: the questions that are not needed. A finding that a wanted wildcard reports needs none by name.
        for forms in pieces(said.holders.items(), LOOKS):
            for form, holders in forms:
                if form not in needs.users or form in said.lasting:
                    yield from self._questions.let_go(subject, holders, now, at_once=form in needs.users)
                else:
                    yield from self._questions.hold_on(subject, known, form, holders, needs.users[form], now)
            if len(forms) == LOOKS:
                yield
        # Step 5: the result.
        known = self._still(subject, known, said, needs)
        late = self._questions.late(subject, timed, now)
        known = known if (known.troubles, known.late) == (wrong, late) else CachedSet(known.findings, wrong, late)
        left = self._asked.get(subject)
        standing = (yield from Standing.of(known, said, left)) if left else None
        if standing is not None:
            self._standing[subject] = standing
        return known

    def _plan_some(
        self, subject: Subject, before: CachedSet, some: Iterable[Params], now: float
    ) -> Steps[CachedSet | None]:
        """Examine some params of a name that is in the usual state (standing.py), in steps; None: use `_plan`.

        Only these classes are looked at: those of the marked params, and those that a new finding may match. The steps
        are the same as in `_plan`. If every class that had a finding still has one with the same constraint, the new
        set says so (`is_clear`), and sessions then act on the variants that moved, without a search.
        """
        type_url, name = subject
        standing, asked, audience = self._standing.get(subject), self._asked.get(subject, {}), self._audience(subject)
        if standing is None or any((type_url, each) in self._asked for each in wildcards(name)):
            return None
        part = standing.look(some, asked, before, self._supply.pin)
        if part is None:
            return None
        # The classes that may get another finding, and what each had before.
        classes = audience.classes(before.keys)
        concerned = dict.fromkeys(category(params, before.keys) for params in some)
        for form, finding in part.said.findings.items():
            if form not in standing.findings:
                concerned.update(dict.fromkeys(audience.concerned(finding.constraint)))
        had = {of: before.shared(next(iter(classes[of]))) for of in concerned if of in classes}
        left = [before.shared(params) for params in some if category(params, before.keys) not in classes]
        # What each has now. Any finding that a class has, had or left may have one question too many, or too few.
        standing.take(part, now)
        known = standing.derived(before, part)
        has = {of: known.shared(next(iter(classes[of]))) for of in had}
        is_clear = all(old is None or old.form == _form(has[of]) for of, old in had.items())
        others = (each.form for each in (*had.values(), *has.values(), *left) if each is not None)
        forms = dict.fromkeys((*part.said.findings, *others))
        needs = Needs(waiting={of: classes[of] for of, finding in has.items() if finding is None})
        pending = standing.waiting(some, [classes[of] for of in had])
        yield from self._questions.tidy_pending(
            subject, known, pending, lambda form: _is_any_in(standing.holders.get(form), audience), now
        )
        still = [each for each in pending if each in asked]
        timed = yield from self._questions.inquire(subject, known, needs, (), now, still)
        for form in forms:
            yield from self._keep_one(subject, known, form, standing, now)
        if standing.tidy(forms, part):
            known = standing.derived(before, part)
        if known is not before:
            known.is_clear = is_clear
        if self._questions.is_any_late(subject, {*some, *standing.waiting((), needs.waiting.values())}, timed, now):
            self._touched[subject] = None  # lateness concerns other params too: examine the whole name
        return known

    def _keep_one(self, subject: Subject, known: CachedSet, form: Form, standing: Standing, now: float) -> Steps[None]:
        """Keep one question for a finding as long as a class uses it, else let its questions go, in steps."""
        audience, holders = self._audience(subject), [*standing.holders.get(form, ())]
        classes = audience.classes(known.keys)
        ones = (next(iter(classes[of])) for of in audience.concerned(form[0]))
        user = next((one for one in ones if _form(known.shared(one)) == form), None)
        if user is None:
            yield from self._questions.let_go(subject, holders, now)
        elif holders:
            yield from self._questions.hold_on(subject, known, form, holders, user, now)

    def _needs(self, subject: Subject, known: CachedSet) -> Steps[Needs]:
        """Find which findings are in use, and which classes have no current one, in steps.

        One look per class is enough, however many clients it has. Params with a finding of their own (`only`) count
        separately.
        """
        needs = Needs()
        audience = self._audience(subject)
        for piece in pieces(audience.classes(known.keys).items()):
            for of, alike in piece:
                finding = known.shared(next(iter(alike)))
                one = next((params for params in alike if params not in known.own), None)
                if one is None:  # all of the class have findings of their own
                    continue
                if finding is not None and not finding.stale:
                    needs.users[finding.form] = one
                    continue
                # No finding, or a stale one, which these clients keep until there is a new one.
                needs.waiting[of] = alike
                needs.clinging.update([finding.form] if finding is not None else [])
            if len(piece) == EVERY:
                yield
        needs.users.update((each.form, params) for params, each in known.own.items() if params in audience)
        return needs

    def _give_way(self, question: Question, refused: Entry) -> None:
        """Replace a question that was evicted by its refusal (PRX-35).

        The name is marked, so that other clients that need the answer are subscribed for. A wildcard loses its listing
        and its members.
        """
        subject = question[0]
        entry = self._questions.give_way(question, refused)
        self._touched[subject] = None
        if is_wild(subject[1]):
            self._listings.leave(question)
            self._forget_members(subject[0], entry)

    def _still(self, subject: Subject, known: CachedSet, said: UpstreamAnswers, needs: Needs) -> CachedSet:
        """Drop the findings that no question holds, since nothing would keep them up to date.

        A stale finding stays as long as a class has nothing else.
        """
        asked = self._asked.get(subject, {})
        standing = {form for form, holders in said.holders.items() if any(params in asked for params in holders)}
        standing |= said.listed
        kept = [each for each in known.findings if each.form in (needs.clinging if each.stale else standing)]
        return known if len(kept) == len(known.findings) else CachedSet(kept)

    # -- wildcards

    def _plan_wild(self, subject: Subject, now: float) -> Steps[None]:
        """Subscribe to a wildcard with each set of params that wants it, and drop those that nobody wants, in steps.

        Each set of params has its own upstream wildcard, because what one set sees says nothing about another.
        """
        audience, asked = self._audience(subject), self._asked.get(subject, {})
        for piece in pieces([params for params in audience if params not in asked], LOOKS):
            for params in piece:
                self._questions.ask(subject, params)
            if len(piece) == LOOKS:
                yield
        for some in pieces([*self._asked.get(subject, {}).items()]):
            for params, entry in some:
                self._listings.look((subject, params), entry, now, aged=entry in self._ages)
                if params not in audience:
                    yield from self._leave_wild(subject, params, entry, now)
            if len(some) == EVERY:
                yield

    def _leave_wild(self, subject: Subject, params: Params, entry: Entry, now: float) -> Steps[None]:
        """Drop a wildcard that nobody wants after it lingered, in steps.

        Clients that subscribe by name may have been served from its members. They get upstream subscriptions of their
        own before it ends.
        """
        type_url = subject[0]
        shared = sum(other is entry for other in self._asked[subject].values()) > 1  # with other params of the group
        if not is_crowded(entry) and self._unwanted.lasts((subject, params), now):
            return
        names = [*entry.members] if isinstance(entry, Collection) and not shared else []
        for piece in pieces(names, LOOKS):
            for name in piece:
                yield from self._take_over((type_url, name), entry)
            if len(piece) == LOOKS:
                yield
        self._questions.release(subject, params)
        self._listings.leave((subject, params))
        if not shared:
            self._forget_members(type_url, entry)

    def _forget_members(self, type_url: TypeUrl, wildcard: Entry) -> None:
        """Mark all names that a wildcard has or had, since it no longer speaks of them."""
        if isinstance(wildcard, Collection):
            self._touched.update(dict.fromkeys((type_url, name) for name in wildcard.members))
            self._touched.update(dict.fromkeys(self._departed.leave(wildcard)))

    def _take_over(self, subject: Subject, wildcard: Entry) -> Steps[None]:
        """Subscribe by name for clients that only a wildcard serves, before it ends (PRX-5), in steps.

        These clients keep their resource meanwhile.
        """
        if subject not in self._wanted:
            return
        known = self._known.get(subject, NOTHING)
        # The findings that would be left without the wildcard.
        others = (voice for voice in self._voices(subject) if voice.entry.collection is not wildcard)
        standing = listen(others, known, self._supply.pin).findings
        for form, user in (yield from self._needs(subject, known)).users.items():
            if form not in standing and user not in self._asked.get(subject, {}):
                self._questions.ask(subject, user, known.keys)


def _form(finding: Finding | None) -> Form | None:
    """Return what identifies a finding; None for none."""
    return finding.form if finding is not None else None


def _is_any_in(some: Iterable[Params] | None, audience: Audience) -> bool:
    """Whether a client wants one of these params."""
    return any(params in audience for params in some or ())
