"""Examine one marked name: read what its upstream subscriptions say, and decide which of them it needs.

`Planner.look_at` is the way in. A name is examined as a whole (`_plan`), or, where it is in the usual state
(standing.py) and only some of its params are marked, for these alone (`_plan_some`). Both take the same five steps,
which `_plan` lists. A wildcard has a plan of its own (`_plan_wild`): each set of params has its own upstream wildcard.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.cached import NOTHING, CachedSet, Finding, Form
from ..model.steps import EVERY, Steps, pieces
from ..model.store import Store
from ..model.types import Params, TypeUrl, category
from ..model.variants import VariantSet
from ..model.xdstp import is_wild, wildcards
from ..watch.entry import Collection, Entry
from ..watch.query_params import is_crowded
from .audience import Audience, Needs
from .budgets import Question
from .findings import UpstreamAnswers, find_troubles, listen, listening, refresh
from .listings import Listings
from .marks import Marks
from .questions import Questions, Subject
from .standing import Standing
from .supply import Supply
from .voices import Voices

LOOKS = 32  # names examined in one step: each may make or drop an upstream subscription


class Planner:
    """Examines names, one after the other, and keeps the cached answers of each.

    known: the cached answers of each name that has some.
    """

    def __init__(
        self, store: Store, supply: Supply, questions: Questions, listings: Listings, marks: Marks, voices: Voices
    ) -> None:
        self.known: dict[Subject, CachedSet] = {}
        self._store = store
        self._supply = supply
        self._questions = questions
        self._listings = listings
        self._marks = marks
        self._voices = voices
        self._asked, self._standing, self._unwanted = questions.asked, questions.standing, questions.unwanted
        self._renewals, self._ages = questions.renewals, questions.ages

    def is_divisible(self, subject: Subject) -> bool:
        """Whether some params of a name can be examined without the others."""
        return subject in self._standing

    def look_at(
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
        before = self.known.get(subject, NOTHING)
        known = (yield from self._plan_some(subject, before, some, now)) if some is not None else None
        if known is None:  # the short way does not apply
            self._standing.pop(subject, None)
            known = yield from self._plan(subject, before, now)
        said_something = bool(known.findings or known.troubles or known.late)
        if said_something:
            self.known[subject] = known
        else:
            self.known.pop(subject, None)
        if known is not before:
            news[subject] = known if said_something else None

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
        if subject not in self._voices.wanted:
            self._voices.departed.forget(subject)
        said = yield from listening(self._voices.of(subject), before, self._supply.pin)
        fresh = yield from refresh(before, said, now)
        known = self._renewals.stamp(fresh, before, subject, self._store.revision + 1)
        for piece in pieces(said.doubtful, LOOKS):
            for entry in piece:
                self._supply.ask_again(entry)
            if len(piece) == LOOKS:
                yield
        # Steps 2 and 3: the clients, and the questions that they need.
        needs = yield from self._needs(subject, known)
        audience, asked = self._voices.audience(subject), self._asked.get(subject, {})
        is_held = lambda form: form in said.lasting or _is_any_in(said.holders.get(form), audience)  # noqa: E731
        yield from self._questions.tidy_pending(subject, known, [*asked], is_held, now)
        own = (voice for voice in self._voices.of(subject) if not voice.wild)
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
        standing, asked = self._standing.get(subject), self._asked.get(subject, {})
        audience = self._voices.audience(subject)
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
            self._marks.add_whole(subject)  # lateness concerns other params too: examine the whole name
        return known

    def _keep_one(self, subject: Subject, known: CachedSet, form: Form, standing: Standing, now: float) -> Steps[None]:
        """Keep one question for a finding as long as a class uses it, else let its questions go, in steps."""
        audience, holders = self._voices.audience(subject), [*standing.holders.get(form, ())]
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
        audience = self._voices.audience(subject)
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

    def _still(self, subject: Subject, known: CachedSet, said: UpstreamAnswers, needs: Needs) -> CachedSet:
        """Drop the findings that no question holds, since nothing would keep them up to date.

        A stale finding stays as long as a class has nothing else.
        """
        asked = self._asked.get(subject, {})
        standing = {form for form, holders in said.holders.items() if any(params in asked for params in holders)}
        standing |= said.listed
        kept = [each for each in known.findings if each.form in (needs.clinging if each.stale else standing)]
        return known if len(kept) == len(known.findings) else CachedSet(kept)

    def give_way(self, question: Question, refused: Entry) -> None:
        """Replace a question that was evicted by its refusal (PRX-35).

        The name is marked, so that other clients that need the answer are subscribed for. A wildcard loses its listing
        and its members.
        """
        subject = question[0]
        entry = self._questions.give_way(question, refused)
        self._marks.add_whole(subject)
        if is_wild(subject[1]):
            self._listings.leave(question)
            self._forget_members(subject[0], entry)

    # -- wildcards

    def _plan_wild(self, subject: Subject, now: float) -> Steps[None]:
        """Subscribe to a wildcard with each set of params that wants it, and drop those that nobody wants, in steps.

        Each set of params has its own upstream wildcard, because what one set sees says nothing about another.
        """
        audience, asked = self._voices.audience(subject), self._asked.get(subject, {})
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
            self._marks.add_all((type_url, name) for name in wildcard.members)
            self._marks.add_all(self._voices.departed.leave(wildcard))

    def _take_over(self, subject: Subject, wildcard: Entry) -> Steps[None]:
        """Subscribe by name for clients that only a wildcard serves, before it ends (PRX-5), in steps.

        These clients keep their resource meanwhile.
        """
        if subject not in self._voices.wanted:
            return
        known = self.known.get(subject, NOTHING)
        # The findings that would be left without the wildcard.
        others = (voice for voice in self._voices.of(subject) if voice.entry.collection is not wildcard)
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
