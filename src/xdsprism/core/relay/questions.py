"""The questions that a relay has put to servers: subscriptions, each by one name and one set of params.

How long each is kept when nobody wants it any more, how late an answer is, and what is too old, goes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from ..model.cached import CachedSet, Form, UpstreamProblem
from ..model.limits import Limits, Refusal
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry
from ..watch.query_params import is_crowded, question_params, refused_entry
from .ages import Silence, StalenessTracker
from .audience import Audience, Needs
from .budgets import Question
from .fairness import Fairness
from .findings import is_awaited, is_pending
from .inquiry import choose
from .lateness import Late, OverdueQueries
from .lingering import ON_DEMAND, SubscriptionGrace
from .renewal import NoCacheRefresh
from .standing import Standing
from .supply import Supply

Subject = tuple[TypeUrl, str]

SOME = 32  # questions that are put, or dropped, in one step: each takes the client of the server some time


class Questions:
    """Which there are, by name and params."""

    def __init__(  # noqa: PLR0913 # what a relay knows of its servers and clients
        self,
        supply: Supply,
        fairness: Fairness,
        *,
        linger: float,
        reaches: Callable[[str, Params], bool],
        silence: Silence,
        max_stale: float,
        limits: Callable[[str], Limits | None],
        audience: Callable[[Subject], Audience],
        is_full: Callable[[TypeUrl], bool],
        answered: Callable[[Subject], None],
    ) -> None:
        self.asked: dict[Subject, dict[Params, Entry]] = {}
        self.unwanted = SubscriptionGrace(linger)
        self.lent: set[tuple[Subject, Params]] = set()  # of these, what others use meanwhile
        self.standing: dict[Subject, Standing] = {}  # of names that nothing is unusual about
        self.renewals = NoCacheRefresh()
        self.lateness = OverdueQueries(reaches)
        self.ages = StalenessTracker(silence, max_stale)
        self._supply = supply
        self._fairness = fairness
        self._limits = limits  # of params that a server is asked with for a name; None: it is asked without
        self._audience = audience  # who wants a name
        self._is_full = is_full  # of a type: whether a full state can leave out nothing (SOT-4)
        self._answered = answered  # what was asked is known already

    def ask(self, subject: Subject, params: Params, mentioned: tuple[str, ...] = ()) -> None:
        """mentioned: the keys that the variants that are known depend on."""
        limits = self._limits(subject[1])
        asked = question_params(params, mentioned, limits) if limits is not None else params
        if isinstance(asked, Refusal):
            why = f"the node's metadata can't be sent to a server: {asked}; name the keys that matter by --node-params"
            entry = refused_entry(*subject, params, why)
        else:
            entry = self._fairness.ask((subject, params), asked)
        self.asked.setdefault(subject, {})[params] = entry
        if entry.key[1] != params:
            self.standing.pop(subject, None)  # one subscription may be that of several
        elif subject in self.standing:
            self.standing[subject].asked(params)
        if not is_awaited(entry):
            self._answered(subject)  # somebody else has asked the same already

    def inquire(  # all that is known of a name
        self,
        subject: Subject,
        known: CachedSet,
        needs: Needs,
        wrong: tuple[UpstreamProblem, ...],
        now: float,
        pending: Iterable[Params],
    ) -> Steps[set[Params]]:
        """Ask for those who wait. Returns which questions keep somebody else waiting."""
        asked = self.asked.setdefault(subject, {})
        inquiry = choose(
            needs, known, asked, wrong, lambda each: self.is_late((subject, each), asked[each], now), pending
        )
        for piece in pieces(inquiry.chosen, SOME):
            for params in piece:
                self.ask(subject, params, known.keys)
            if len(piece) == SOME:
                yield
        for params in inquiry.timed:
            self.is_late((subject, params), asked[params], now)
        if not asked:
            del self.asked[subject]
        return inquiry.timed

    def tidy_pending(
        self,
        subject: Subject,
        known: CachedSet,
        questions: Iterable[Params],
        is_held: Callable[[Form], bool],  # by a subscription that somebody wants
        now: float,
    ) -> Steps[None]:
        """A question that another one answered need not be asked, unless it is to take over from that."""
        audience, asked = self._audience(subject), self.asked.get(subject, {})
        for piece in pieces([params for params in questions if is_pending(asked[params])], SOME):
            for params in piece:
                if params not in audience:
                    yield from self.let_go(subject, [params], now, at_once=is_crowded(asked[params]))
                    continue
                finding = known.find(params)
                if finding is not None and not finding.stale and is_held(finding.form):
                    self.release(subject, params)
            if len(piece) == SOME:
                yield

    def hold_on(  # a finding, and who has to do with it
        self, subject: Subject, known: CachedSet, form: Form, holders: list[Params], user: Params, now: float
    ) -> Steps[None]:
        """Of several that stand for one finding, one is enough. If nobody wants its own, another takes over (PRX-5).

        But not before it has lingered: of a crowd that leaves one by one, each would have to be followed at once.
        """
        audience, asked = self._audience(subject), self.asked[subject]
        wanted = [params for params in holders if params in audience]
        kept = (wanted or holders)[0]
        for piece in pieces([params for params in holders if params != kept], SOME):
            for params in piece:
                self.release(subject, params)
            if len(piece) == SOME:
                yield
        if wanted:
            self.unwanted.end((subject, kept))
            return
        self.lent.add((subject, kept))
        if not self.unwanted.lasts((subject, kept), now):
            self.unwanted.end((subject, kept))
            pending = (params for params, entry in asked.items() if params in audience and is_pending(entry))
            if not any((finding := known.find(params)) is not None and finding.form == form for params in pending):
                self.ask(subject, user, known.keys)

    def let_go(self, subject: Subject, holders: list[Params], now: float, *, at_once: bool = False) -> Steps[None]:
        """PRX-9."""
        for piece in pieces(holders, SOME):
            for params in piece:
                if (subject, params) in self.lent:  # it lingers from now on
                    self.lent.discard((subject, params))
                    self.unwanted.end((subject, params))
                brief = subject[0] in ON_DEMAND and self.asked[subject][params].variant is None  # PRX-27
                if at_once or not self.unwanted.lasts((subject, params), now, brief=brief):
                    self.release(subject, params)
            if len(piece) == SOME:
                yield

    def release(self, subject: Subject, params: Params) -> None:
        self._end((subject, params), self.asked[subject].pop(params))
        if subject in self.standing:
            self.standing[subject].drop(params)
        if not self.asked[subject]:
            del self.asked[subject]
            self.standing.pop(subject, None)

    def give_way(self, question: Question, refused: Entry) -> Entry:
        """PRX-35: there is no room for it any more, and this stands in its place; returns what stood there."""
        subject, params = question
        entry, self.asked[subject][params] = self.asked[subject][params], refused
        self.standing.pop(subject, None)
        self._end(question, entry, gives_way=True)
        return entry

    def _end(self, question: Question, entry: Entry, *, gives_way: bool = False) -> None:
        self.renewals.drop(entry)
        self.lateness.drop(question)
        self.ages.drop(entry)
        self.lent.discard(question)
        self._fairness.drop(question, entry, gives_way=gives_way)
        self.unwanted.end(question)

    def presume(self, subject: Subject, known: CachedSet) -> Steps[None]:
        """PRX-34: a variant that is gone is gone for all who shared it; each was asked for what there is instead."""
        for piece in pieces(self.asked.get(subject, {}).items()):
            for params, entry in piece:
                finding = known.find(params) if is_pending(entry) else None
                if finding is not None and finding.withdrawn:
                    self._supply.presume_gone(entry)
            if len(piece) == EVERY:
                yield

    # -- how long they take

    def is_late(self, question: tuple[Subject, Params], entry: Entry, now: float) -> bool:
        return self.lateness.judge(question, entry, now) is not Late.NOT

    def late(self, subject: Subject, timed: Container[Params], now: float) -> Mapping[Params, Late]:
        """Where nothing else waits for an answer, it does not matter how long it takes."""
        asked = self.asked.get(subject, {})
        if self._is_full(subject[0]):
            return self.lateness.of(subject, asked, now)
        for params in asked if self.lateness else ():
            if params not in timed:
                self.lateness.drop((subject, params))
        return {}

    def is_any_late(self, subject: Subject, some: Iterable[Params], timed: Container[Params], now: float) -> bool:
        """Whether one of these questions keeps somebody waiting for too long."""
        asked = self.asked.get(subject, {})
        is_full = self._is_full(subject[0])
        for params in [each for each in some if each in asked]:
            if is_full and self.is_late((subject, params), asked[params], now):
                return True
            if not is_full and params not in timed:
                self.lateness.drop((subject, params))
        return False
