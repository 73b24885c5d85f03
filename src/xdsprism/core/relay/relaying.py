"""The relay's machine: which questions have to be put to a server, so that everybody here can be answered (DESIGN 7).

At one end are sessions that want names with params; at the other, subscriptions to a server, each by one name and one
set of params. Between them are findings: variants and negative answers, each with constraints that prove whom it is
for. A subscription is needed only where no finding matches; one subscription is enough to keep a finding up to date,
however many share it (PRX-5). So the number of subscriptions follows the number of variants, not that of clients.

After anything that happened, `flush` looks once at each name that it concerns:

1. what do the subscriptions say now? Those are the findings. One that no subscription stands for any more is stale:
   it was withdrawn, and those who have it keep it until it is known what comes in its place.
2. who has no answer that stands? One of each class asks.
3. which subscriptions are not needed? Of several that stand for one finding one is kept, if somebody wants it.
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
from .ages import Silence
from .audience import Audience, Needs
from .budgets import Question
from .fairness import Fairness, RoomTaken
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

LOOKS = 32  # names that are looked at in one step: each may put or drop a question
LINGER = 30.0  # seconds for which a subscription outlives the last who wanted it (PRX-9)

Arrival = tuple[TypeUrl, str, Params, int | None]  # who wants it is on this stream; None: one wants it no more

_NOBODY = Audience()


class Relaying:
    """Keeps a store filled with what its readers want."""

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
        fairness: Fairness | None = None,
    ) -> None:
        self.facts: list[Fact] = []
        self.forgot: Callable[[TypeUrl, str, Params], None] = lambda *_: None  # VHD-25
        self._store = store
        self._supply = supply
        self._fairness = fairness or Fairness(supply)
        self._fairness.give_way, self._fairness.facts = self._give_way, self.facts
        self._listings = Listings(store, supply.pin, listed)
        self._reaches = reaches  # whether a server can be asked for a name now
        self._arrivals: deque[Arrival] = deque()
        self._wanted: dict[Subject, Audience] = {}
        self._known: dict[Subject, CachedSet] = {}
        # Names to look at; of some, only certain params. From the front of an OrderedDict things are taken one by one.
        self._touched: OrderedDict[Subject, dict[Params, None] | None] = OrderedDict()
        self._is_to_reword = False
        self.is_planning = False  # a name is being looked at: until that is done, nobody is counted
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
        self._arrivals.append((type_url, name, params, stream))
        if is_wild(name):
            self._renew_all((type_url, name), params)  # before it is answered with what must not be cached

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        self._arrivals.append((type_url, name, params, None))

    def _count(self) -> None:
        finish(self._counting())

    def _counting(self) -> Steps[None]:
        """Who came and went since the last look. Mostly it is one more of a crowd, and then that is all."""
        arrivals = self._arrivals
        while arrivals:
            self._count_some([arrivals.popleft() for _ in range(min(4 * EVERY, len(arrivals)))])
            if arrivals:
                yield

    def _count_some(self, arrivals: Iterable[Arrival]) -> None:
        looked: list[tuple[TypeUrl, Lookup, bool]] = []  # what each found, and whether that is all there is to it
        ways: dict[int, tuple[TypeUrl, Lookup, bool]] = {}  # the same for all who share a finding
        subject: Subject = ("", "")
        for type_url, name, params, stream in arrivals:
            if name != subject[1] or type_url != subject[0]:  # mostly many come for the same
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
            if not audience.add(params, same):
                self._touch(subject, params)
            if not way[2]:
                self._come(subject, params, finding)
                self._fairness.come((subject, params), stream)
        self.facts += [Looked(*way[:2], count) for way, count in Counter(looked).items()]

    def _is_plain(self, finding: Finding | None) -> bool:
        """Whether who comes for it only has to be counted."""
        stands = finding is not None and finding.stands and not finding.do_not_cache
        return stands and not self._unwanted and not self._fairness.is_scarce

    def _come(self, subject: Subject, params: Params, finding: Finding | None) -> None:
        if self._unwanted.end((subject, params)) or finding is None or not finding.stands:
            self._touch(subject, params)
        if finding is not None and finding.do_not_cache:
            self._renew(subject, finding)

    def _leave(self, subject: Subject, params: Params, finding: Finding | None) -> None:
        audience = self._wanted[subject]
        audience.remove(params)
        if not audience:
            del self._wanted[subject]
        served = audience.has_like(params) and finding is not None and finding.stands
        if params in self._asked.get(subject, {}):
            self._fairness.part((subject, params))
            self._touch(subject, params)
        elif not served:
            self._touch(subject, params)

    def _touch(self, subject: Subject, params: Params) -> None:
        """Look at what concerns these params of a name."""
        some = self._touched.setdefault(subject, {})
        if some is not None:
            some[params] = None

    def _look(self, subject: Subject, params: Params, finding: Finding | None) -> Lookup:
        """OPS-11: what the cache has for somebody who comes now."""
        type_url, name = subject
        known, fresh = finding is not None and not finding.withdrawn, finding is not None and not finding.stale
        if is_wild(name):
            known, fresh = self._store.table(type_url).lists(params, name), True
        if not known:
            return "miss"
        return "hit" if fresh and self._reaches(name, params) else "stale"

    def _renew_all(self, subject: Subject, params: Params) -> None:
        """PRX-17: what is known but must not be cached is asked for again."""
        table, name = self._store.table(subject[0]), subject[1]
        entry = self._asked.get(subject, {}).get(params)
        do_not_cache = any(each.do_not_cache for each in table.listing(name).snapshot(params).variants)
        if entry is not None and do_not_cache and isinstance(table, CacheTable):
            table.listed.discard((name, params))
            self._ask_again(entry, subject)

    def _renew(self, subject: Subject, finding: Finding) -> None:
        type_url, name = subject
        for voice in self._voices(subject):
            if voice.entry.variant is not None and matches(finding.constraint, voice.params):
                wildcard = voice.entry.collection
                asked = self._asked[type_url, name if wildcard is None else wildcard.name]
                self._ask_again(asked[voice.params], subject)
                return

    def _ask_again(self, entry: Entry, subject: Subject) -> None:
        if self._renewals.add(entry, subject):
            self._supply.ask_again(entry)

    # -- what the server says

    def heard(self, entry: Entry, _before: Variant | None = None) -> None:
        """Something is said of an entry: contents, that there are none, or what is wrong."""
        subject = entry.type_url, entry.name
        if entry.collection is not None:
            self._departed.note(entry.collection, entry)  # it is forgotten if nobody wants it
        params = entry.key[1]
        if params is not None and self._asked.get(subject, {}).get(params) is entry and not is_wild(entry.name):
            self._touch(subject, params)
        else:
            self._touched[subject] = None
        if isinstance(entry, Collection):  # it may have been answered: those who asked by name need not any more
            self._touched.update(dict.fromkeys((entry.type_url, name) for name in entry.members))

    # -- for those who look after it

    def age(self, now: float) -> float | None:
        """PRX-25: see what is too old, and what is not any more; when to look again."""
        return finish(self.aging(now))

    def aging(self, now: float) -> Steps[float | None]:
        """What `age` does, in steps."""
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
        """PRX-35: a server takes less than it was asked with, or more again. So it is asked with less, or with all."""
        self._is_to_reword = True

    def _reword(self) -> Steps[None]:
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
        """PRX-28: drop what is known of a name, and ask again. Who has it keeps it until the answer is there."""
        known = self.remembers(type_url, name)
        if known:
            finish(self.forgetting(type_url, name, now))
        return known

    def remembers(self, type_url: TypeUrl, name: str) -> bool:
        """Whether there is anything to forget of a name."""
        return (type_url, name) in self._known or bool(self._asked.get((type_url, name)))

    def forgetting(self, type_url: TypeUrl, name: str, now: float) -> Steps[None]:
        """What `forget` does, in steps."""
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
        if known is not None:
            shared = (each for each in known.findings if each.variant is not None and each.only is None)
            left = CachedSet(doubted(each, now) for each in shared)
            self._known[subject] = left
            self._store.publish({subject: left if left.findings else None})
        self._touched[subject] = None

    def holdings(self, type_url: TypeUrl, name: str) -> list[Holding]:
        """PRX-28: all that is known of a name, with who uses it and where it is from."""
        if not self.is_planning:
            self._count()
        subject = type_url, name
        audiences = [self._audience((type_url, each)) for each in (name, *wildcards(name))]
        return holdings(self._known.get(subject, NOTHING), self._voices(subject), audiences, self._supply.pin)

    def room(self, kind: Scarce) -> RoomTaken:
        """PRX-35: how much of what servers can be asked for is in use."""
        return self._fairness.room(kind)

    # -- the turn

    @property
    def is_due(self) -> bool:
        return bool(self._touched or self._arrivals or self._is_to_reword) or self._renewals.is_due

    def deadline(self) -> float | None:
        waiting = (next(iter(each.values()), None) for each in self._timers)
        return min((due for due in waiting if due is not None), default=None)

    @property
    def _timers(self) -> tuple[dict[tuple[Subject, Params], float], ...]:
        return *self._unwanted.timers, self._listings.due, self._lateness.due

    def flush(self, now: float) -> None:
        finish(self.flushing(now))

    def flushing(self, now: float) -> Steps[None]:
        """The same in steps. Everybody hears of all that is new at once, at the end of them."""
        yield from self._counting()
        yield from self._reword()
        yield from self._touch_due(now)
        self._touched.update(dict.fromkeys(self._renewals.answered()))
        news: dict[Subject, VariantSet | None] = {}
        while self._touched or self._ask_refused():
            left = LOOKS
            while self._touched and left > 0:
                subject, some = self._next_touched()
                left -= len(some) if some else 1
                self.is_planning = True
                yield from self._look_at(subject, some, news, now)
                self.is_planning = False
            if self._touched:
                yield
                yield from self._counting()  # so that at the end everybody who is there is known
        self._fairness.rest()
        if news:
            yield from self._store.publishing(news)

    def _touch_due(self, now: float) -> Steps[None]:
        """Look at every question whose time is over."""
        for waiting in self._timers:
            due = [question for question, _ in takewhile(lambda each: each[1] <= now, waiting.items())]
            for piece in pieces(due, 4 * EVERY):
                for subject, params in piece:
                    self._touch(subject, params)
                if len(piece) == 4 * EVERY:
                    yield

    def _next_touched(self) -> tuple[Subject, dict[Params, None] | None]:
        """What to look at next: a name, or of many params of one as many as are looked at in one step."""
        subject, some = self._touched.popitem(last=False)
        if some is not None and len(some) > EVERY and subject in self._standing:
            first, *others = pieces(some)
            self._touched[subject] = dict.fromkeys(params for piece in others for params in piece)
            self._touched.move_to_end(subject, last=False)
            return subject, dict.fromkeys(first)
        return subject, some

    def _look_at(
        self,
        subject: Subject,
        some: Iterable[Params] | None,
        news: dict[Subject, VariantSet | None],
        now: float,
    ) -> Steps[None]:
        if is_wild(subject[1]):
            yield from self._plan_wild(subject, now)
            return
        before = self._known.get(subject, NOTHING)
        known = (yield from self._plan_some(subject, before, some, now)) if some is not None else None
        if known is None:
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
        """PRX-35: what there was no room for is asked once more, where there may be; whether there is such."""
        for subject, params in self._fairness.again():
            if params in self._asked.get(subject, {}):
                self._questions.release(subject, params)
                self._touched[subject] = None
        return bool(self._touched)

    def _audience(self, subject: Subject) -> Audience:
        return self._wanted.get(subject, _NOBODY)

    # -- one name

    def _voices(self, subject: Subject) -> Iterator[UpstreamAnswer]:
        """Every subscription that speaks of a name: its own, and the wildcards that have it."""
        type_url, name = subject
        audience = self._audience(subject)
        for params, entry in self._asked.get(subject, {}).items():
            yield UpstreamAnswer(params, entry, wild=False, wanted=params in audience, aged=entry in self._ages)
        for wild in ((type_url, each) for each in wildcards(name)):
            audience = self._audience(wild)
            for params, entry in self._asked.get(wild, {}).items():
                member = self._departed.member(subject, entry)
                if member is not None:
                    # What a wildcard has of those who asked by name is not the server's answer to it yet (PRX-5).
                    wanted = params in audience and is_answered(entry)
                    yield UpstreamAnswer(params, member, wild=True, wanted=wanted, aged=entry in self._ages)

    def _plan(self, subject: Subject, before: CachedSet, now: float) -> Steps[CachedSet]:
        """All of a name, in steps.

        Between two of them nobody is counted who comes or goes, and no question is put or dropped. What a server says
        meanwhile, or a timer does, touches the name once more.
        """
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
        needs = yield from self._needs(subject, known)
        audience, asked = self._audience(subject), self._asked.get(subject, {})
        is_held = lambda form: form in said.lasting or _is_any_in(said.holders.get(form), audience)  # noqa: E731
        yield from self._questions.tidy_pending(subject, known, [*asked], is_held, now)
        own = (voice for voice in self._voices(subject) if not voice.wild)
        wrong = yield from find_troubles(own, known, self._supply.pin)
        timed = yield from self._questions.inquire(subject, known, needs, wrong, now, [*asked])
        yield from self._questions.presume(subject, known)
        for forms in pieces(said.holders.items(), LOOKS):
            for form, holders in forms:
                if form not in needs.users or form in said.lasting:
                    yield from self._questions.let_go(subject, holders, now, at_once=form in needs.users)
                else:
                    yield from self._questions.hold_on(subject, known, form, holders, needs.users[form], now)
            if len(forms) == LOOKS:
                yield
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
        """The same where nothing is unusual, and only what concerns some of the params; None: it has to be all."""
        type_url, name = subject
        standing, asked, audience = self._standing.get(subject), self._asked.get(subject, {}), self._audience(subject)
        if standing is None or any((type_url, each) in self._asked for each in wildcards(name)):
            return None
        part = standing.look(some, asked, before, self._supply.pin)
        if part is None:
            return None
        classes = audience.classes(before.keys)
        concerned = dict.fromkeys(category(params, before.keys) for params in some)
        for form, finding in part.said.findings.items():
            if form not in standing.findings:
                concerned.update(dict.fromkeys(audience.concerned(finding.constraint)))
        had = {of: before.shared(next(iter(classes[of]))) for of in concerned if of in classes}
        left = [before.shared(params) for params in some if category(params, before.keys) not in classes]
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
            self._touched[subject] = None  # that concerns others too
        return known

    def _keep_one(self, subject: Subject, known: CachedSet, form: Form, standing: Standing, now: float) -> Steps[None]:
        """Of those who stand for a finding, as long as somebody uses it."""
        audience, holders = self._audience(subject), [*standing.holders.get(form, ())]
        classes = audience.classes(known.keys)
        ones = (next(iter(classes[of])) for of in audience.concerned(form[0]))
        user = next((one for one in ones if _form(known.shared(one)) == form), None)
        if user is None:
            yield from self._questions.let_go(subject, holders, now)
        elif holders:
            yield from self._questions.hold_on(subject, known, form, holders, user, now)

    def _needs(self, subject: Subject, known: CachedSet) -> Steps[Needs]:
        """Who uses what, and who has nothing: class by class, however many are of one."""
        needs = Needs()
        audience = self._audience(subject)
        for piece in pieces(audience.classes(known.keys).items()):
            for of, alike in piece:
                finding = known.shared(next(iter(alike)))
                one = next((params for params in alike if params not in known.own), None)
                if one is None:
                    continue
                if finding is not None and not finding.stale:
                    needs.users[finding.form] = one
                    continue
                needs.waiting[of] = alike
                needs.clinging.update([finding.form] if finding is not None else [])
            if len(piece) == EVERY:
                yield
        needs.users.update((each.form, params) for params, each in known.own.items() if params in audience)
        return needs

    def _give_way(self, question: Question, refused: Entry) -> None:
        """PRX-35: there is no room for this question any more. Who else needs its answer asks by itself."""
        subject = question[0]
        entry = self._questions.give_way(question, refused)
        self._touched[subject] = None
        if is_wild(subject[1]):
            self._listings.leave(question)
            self._forget_members(subject[0], entry)

    def _still(self, subject: Subject, known: CachedSet, said: UpstreamAnswers, needs: Needs) -> CachedSet:
        """What no subscription stands for is not known: it may have changed. Some have nothing else meanwhile."""
        asked = self._asked.get(subject, {})
        standing = {form for form, holders in said.holders.items() if any(params in asked for params in holders)}
        standing |= said.listed
        kept = [each for each in known.findings if each.form in (needs.clinging if each.stale else standing)]
        return known if len(kept) == len(known.findings) else CachedSet(kept)

    # -- wildcards

    def _plan_wild(self, subject: Subject, now: float) -> Steps[None]:
        """What one set of params sees says nothing of what another does: each has a subscription of its own."""
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
        """Those who are only served because a wildcard has what they want need something else in time."""
        type_url = subject[0]
        shared = sum(other is entry for other in self._asked[subject].values()) > 1  # by others of the group
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
        if isinstance(wildcard, Collection):
            self._touched.update(dict.fromkeys((type_url, name) for name in wildcard.members))
            self._touched.update(dict.fromkeys(self._departed.leave(wildcard)))

    def _take_over(self, subject: Subject, wildcard: Entry) -> Steps[None]:
        """PRX-5: whoever is served by a wildcard alone asks before that goes, and may go on with what it has."""
        if subject not in self._wanted:
            return
        known = self._known.get(subject, NOTHING)
        others = (voice for voice in self._voices(subject) if voice.entry.collection is not wildcard)
        standing = listen(others, known, self._supply.pin).findings
        for form, user in (yield from self._needs(subject, known)).users.items():
            if form not in standing and user not in self._asked.get(subject, {}):
                self._questions.ask(subject, user, known.keys)


def _form(finding: Finding | None) -> Form | None:
    return finding.form if finding is not None else None


def _is_any_in(some: Iterable[Params] | None, audience: Audience) -> bool:
    return any(params in audience for params in some or ())
