"""Examine one marked name: read what its upstream subscriptions say, and decide which of them it needs.

Events only mark names (names_to_examine.py); each marked name is examined once, at the next flush (relaying.py).
`Planner.look_at` is the way in. A name is examined as a whole (`_plan`), or, where it is in the usual state
(finding_index.py) and only some of its params are marked, for these alone (`_plan_some`). Both take the same five
steps, which `_plan` lists. A wildcard has a plan of its own (`plan_wildcard`): each set of params has its own upstream
wildcard.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.cached import NOTHING, CachedSet, Finding, FindingId
from ..model.steps import EVERY, Steps, pieces
from ..model.store import Store
from ..model.types import Params, category
from ..model.variants import VariantSet
from ..model.xdstp import is_wild, wildcards
from ..watch.entry import Entry
from ..watch.query_params import is_crowded
from .audience import Audience, Audiences, Needs
from .finding_index import FindingIndex
from .findings import UpstreamAnswers, find_problems, listen, listening, refresh
from .listings import Listings
from .names_to_examine import NamesToExamine
from .upstream_feed import UpstreamFeed
from .upstream_subscription import Subject, UpstreamSubscription
from .upstream_subscriptions import UpstreamSubscriptions

LOOKS = 32  # names examined in one step: each may make or drop an upstream subscription


class Planner:
    """Examines names, one after the other, and keeps the cached answers of each.

    known: the cached answers of each name that has some.
    """

    def __init__(
        self,
        store: Store,
        feed: UpstreamFeed,
        audiences: Audiences,
        subscriptions: UpstreamSubscriptions,
        listings: Listings,
        marked: NamesToExamine,
    ) -> None:
        self.known: dict[Subject, CachedSet] = {}
        self._store = store
        self._feed = feed
        self._audiences = audiences
        self._subscriptions = subscriptions
        self._listings = listings
        self._marked = marked

    def is_divisible(self, subject: Subject) -> bool:
        """Whether some params of a name can be examined without the others."""
        return subject in self._subscriptions.indexes

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
            yield from self.plan_wildcard(subject, now)
            return
        before = self.known.get(subject, NOTHING)
        known = (yield from self._plan_some(subject, before, some, now)) if some is not None else None
        if known is None:  # the short way does not apply
            self._subscriptions.indexes.pop(subject, None)
            known = yield from self._plan(subject, before, now)
        said_something = bool(known.findings or known.problems or known.late)
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
        3. End pending subscriptions that were answered otherwise; subscribe for the classes that wait.
        4. Keep one subscription for each finding in use; let the others linger or end them.
        5. Drop findings that no subscription holds; add errors and lateness.

        Between two steps no downstream subscription is counted, and nothing but this method makes or ends an upstream
        one. An answer or a timer in the meantime marks the name once more.
        """
        # Step 1: the findings.
        if subject not in self._audiences:
            self._subscriptions.forget_lost(subject)
        said = yield from listening(self._subscriptions.answers(subject), before, self._feed.pin)
        fresh = yield from refresh(before, said, now)
        known = self._subscriptions.refreshes.stamp(fresh, before, subject, self._store.revision + 1)
        for piece in pieces(said.doubtful, LOOKS):
            for each in piece:
                self._subscriptions.ask_again(each)
            if len(piece) == LOOKS:
                yield
        # Steps 2 and 3: the clients, and the upstream subscriptions that they need.
        needs = yield from self.find_needs(subject, known)
        audience, asked = self._audiences.of(subject), self._subscriptions.of(subject)
        is_held = lambda each: each in said.wanted_by_wildcard or _is_any_in(said.holders.get(each), audience)  # noqa: E731
        yield from self._subscriptions.tidy_pending(subject, known, [*asked], is_held, now)
        wrong = yield from find_problems(self._subscriptions.named_answers(subject), known, self._feed.pin)
        pending = [*self._subscriptions.of(subject)]
        timed = yield from self._subscriptions.subscribe_for(subject, known, needs, wrong, now, pending)
        yield from self._subscriptions.presume_gone(subject, known)
        # Step 4: those that are not needed. A finding that a wanted wildcard reports needs none by name.
        for some in pieces(said.holders.items(), LOOKS):
            for finding_id, holders in some:
                if finding_id not in needs.users or finding_id in said.wanted_by_wildcard:
                    yield from self._subscriptions.let_go(holders, now, at_once=finding_id in needs.users)
                else:
                    yield from self._subscriptions.keep_one(
                        subject, known, finding_id, holders, needs.users[finding_id], now
                    )
            if len(some) == LOOKS:
                yield
        # Step 5: the result.
        known = self._still(known, said, needs)
        late = self._subscriptions.late(subject, timed, now)
        known = known if (known.problems, known.late) == (wrong, late) else CachedSet(known.findings, wrong, late)
        left = self._subscriptions.of(subject)
        index = (yield from FindingIndex.of(known, said, left)) if left else None
        if index is not None:
            self._subscriptions.indexes[subject] = index
        return known

    def _plan_some(
        self, subject: Subject, before: CachedSet, some: Iterable[Params], now: float
    ) -> Steps[CachedSet | None]:
        """Examine some params of a name that is in the usual state (finding_index.py), in steps; None: use `_plan`.

        Only these classes are looked at: those of the marked params, and those that a new finding may match. The steps
        are the same as in `_plan`. If every class that had a finding still has one with the same constraint, the new
        set says so (`is_clear`), and sessions then act on the variants that moved, without a search.
        """
        type_url, name = subject
        index, asked = self._subscriptions.indexes.get(subject), self._subscriptions.of(subject)
        audience = self._audiences.of(subject)
        if index is None or any(self._subscriptions.of((type_url, each)) for each in wildcards(name)):
            return None
        part = index.answers_for(some, asked, before, self._feed.pin)
        if part is None:
            return None
        # The classes that may get another finding, and what each had before.
        classes = audience.classes(before.keys)
        concerned = dict.fromkeys(category(params, before.keys) for params in some)
        for finding_id, finding in part.said.findings.items():
            if finding_id not in index.findings:
                concerned.update(dict.fromkeys(audience.concerned(finding.constraint)))
        had = {of: before.shared(next(iter(classes[of]))) for of in concerned if of in classes}
        left = [before.shared(params) for params in some if category(params, before.keys) not in classes]
        # What each has now. Any finding that a class has, had or left may have one subscription too many, or too few.
        index.apply(part, now)
        known = index.derived(before, part)
        has = {of: known.shared(next(iter(classes[of]))) for of in had}
        is_clear = all(old is None or old.id == _id_of(has[of]) for of, old in had.items())
        others = (each.id for each in (*had.values(), *has.values(), *left) if each is not None)
        finding_ids = dict.fromkeys((*part.said.findings, *others))
        needs = Needs(waiting={of: classes[of] for of, finding in has.items() if finding is None})
        pending = index.waiting(some, [classes[of] for of in had])
        yield from self._subscriptions.tidy_pending(
            subject, known, pending, lambda finding_id: _is_any_in(index.holders.get(finding_id), audience), now
        )
        asked = self._subscriptions.of(subject)
        still = [each for each in pending if each in asked]
        timed = yield from self._subscriptions.subscribe_for(subject, known, needs, (), now, still)
        for finding_id in finding_ids:
            yield from self._keep_one(subject, known, finding_id, index, now)
        if index.tidy(finding_ids, part):
            known = index.derived(before, part)
        if known is not before:
            known.is_clear = is_clear
        if self._subscriptions.is_any_late(subject, {*some, *index.waiting((), needs.waiting.values())}, timed, now):
            self._marked.add_whole(subject)  # lateness concerns other params too: examine the whole name
        return known

    def _keep_one(
        self, subject: Subject, known: CachedSet, finding_id: FindingId, index: FindingIndex, now: float
    ) -> Steps[None]:
        """Keep one subscription for a finding as long as a class uses it, else let its holders go, in steps."""
        audience, holders = self._audiences.of(subject), [*index.holders.get(finding_id, ())]
        classes = audience.classes(known.keys)
        user = None
        for of in audience.concerned(finding_id[0]):
            one = next(iter(classes[of]))
            if _id_of(known.shared(one)) == finding_id:
                user = one
                break
        if user is None:
            yield from self._subscriptions.let_go(holders, now)
        elif holders:
            yield from self._subscriptions.keep_one(subject, known, finding_id, holders, user, now)

    def find_needs(self, subject: Subject, known: CachedSet) -> Steps[Needs]:
        """Find which findings are in use, and which classes have no current one, in steps.

        One look per class is enough, however many clients it has. Params with a finding of their own (`only`) count
        separately.
        """
        needs = Needs()
        audience = self._audiences.of(subject)
        for piece in pieces(audience.classes(known.keys).items()):
            for of, alike in piece:
                finding = known.shared(next(iter(alike)))
                one = next((params for params in alike if params not in known.own), None)
                if one is None:  # all of the class have findings of their own
                    continue
                if finding is not None and not finding.stale:
                    needs.users[finding.id] = one
                    continue
                # No finding, or a stale one, which these clients keep until there is a new one.
                needs.waiting[of] = alike
                needs.kept_stale.update([finding.id] if finding is not None else [])
            if len(piece) == EVERY:
                yield
        needs.users.update((each.id, params) for params, each in known.own.items() if params in audience)
        return needs

    def _still(self, known: CachedSet, said: UpstreamAnswers, needs: Needs) -> CachedSet:
        """Drop the findings that no upstream subscription holds, since nothing would keep them up to date.

        A stale finding stays as long as a class has nothing else.
        """
        held = {
            finding_id
            for finding_id, holders in said.holders.items()
            if any(map(self._subscriptions.__contains__, holders))
        }
        held |= said.listed
        kept = [each for each in known.findings if each.id in (needs.kept_stale if each.stale else held)]
        return known if len(kept) == len(known.findings) else CachedSet(kept)

    def give_way(self, subscription: UpstreamSubscription, refused: Entry) -> None:
        """Replace what an evicted upstream subscription says by its refusal (PRX-35).

        The name is marked, so that other clients that need the answer are subscribed for. A wildcard loses its listing
        and its members.
        """
        subject = subscription.subject
        self._marked.add_whole(subject)
        if is_wild(subject[1]):
            self._listings.leave(subscription)
            self._marked.add_all((*subscription.members(), *subscription.lost_members()))
        self._subscriptions.give_way(subscription, refused)

    # -- wildcards

    def plan_wildcard(self, subject: Subject, now: float) -> Steps[None]:
        """Subscribe to a wildcard with each set of params that wants it, and drop the unwanted ones, in steps.

        Each set of params has its own upstream wildcard, because what one set sees says nothing about another.
        """
        audience, asked = self._audiences.of(subject), self._subscriptions.of(subject)
        for piece in pieces([params for params in audience if params not in asked], LOOKS):
            for params in piece:
                yield from self._subscriptions.subscribe(subject, params)
            if len(piece) == LOOKS:
                yield
        for some in pieces([*self._subscriptions.of(subject).values()]):
            for each in some:
                self._listings.update(each)
                if each.params not in audience:
                    yield from self._leave_wildcard(each, now)
            if len(some) == EVERY:
                yield

    def _leave_wildcard(self, wildcard: UpstreamSubscription, now: float) -> Steps[None]:
        """End an unwanted wildcard after the linger time, in steps.

        Clients that subscribe by name may have been served from its members. They get upstream subscriptions of their
        own before it ends.
        """
        if not is_crowded(wildcard.entry) and self._subscriptions.grace.lasts(wildcard, now):
            return
        is_shared = len(self._subscriptions.sharing(wildcard.entry)) > 1  # with other params of the group
        for piece in pieces(wildcard.members() if not is_shared else [], LOOKS):
            for subject in piece:
                yield from self._take_over(subject, wildcard)
            if len(piece) == LOOKS:
                yield
        if not is_shared:  # it does not list them any more
            self._marked.add_all((*wildcard.members(), *wildcard.lost_members()))
        self._subscriptions.release(wildcard)
        self._listings.leave(wildcard)

    def _take_over(self, subject: Subject, wildcard: UpstreamSubscription) -> Steps[None]:
        """Subscribe by name for clients that only a wildcard serves, before it ends (PRX-5), in steps.

        These clients keep their resource meanwhile.
        """
        if subject not in self._audiences:
            return
        known = self.known.get(subject, NOTHING)
        # The findings that would be left without the wildcard.
        others = [each for each in self._subscriptions.answers(subject) if each.subscription is not wildcard]
        left = listen(others, known, self._feed.pin).findings
        for finding_id, user in (yield from self.find_needs(subject, known)).users.items():
            if finding_id not in left and user not in self._subscriptions.of(subject):
                yield from self._subscriptions.subscribe(subject, user, known.keys)


def _id_of(finding: Finding | None) -> FindingId | None:
    """Return what identifies a finding; None for none."""
    return finding.id if finding is not None else None


def _is_any_in(some: Iterable[UpstreamSubscription] | None, audience: Audience) -> bool:
    """Whether a client wants one of these with exactly its params."""
    return any(each.params in audience for each in some or ())
