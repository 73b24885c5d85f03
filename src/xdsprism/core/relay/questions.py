"""Keep the upstream subscriptions of a relay: make them, share them, and drop them in time.

A question is one upstream subscription, by one name and one set of params. Its life:

    state      meaning                                               ends when
    ---------  ----------------------------------------------------  -----------------------------------------------
    pending    the server has not answered                           an answer arrives, here or to another question
    held       it keeps a finding up to date that clients use        another question holds the same finding
    lent       its own client left; others use its finding           the linger time is over: one of them asks
    unused     nobody uses its finding                               the linger time is over, or a client returns
    refused    the servers have no room for it (fairness.py)         there is room, or its last client leaves

`Questions` also owns the timers that go with them (timers.py): `SubscriptionGrace` moves a question between held, lent
and unused. planning.py decides what each name needs, and calls this module to carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from ..model.cached import CachedSet, Form, UpstreamProblem
from ..model.limits import Limits, Refusal
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry
from ..watch.query_params import is_crowded, question_params, refused_entry
from .audience import Audience, Needs
from .budgets import Question
from .fairness import Fairness
from .findings import is_awaited, is_pending
from .inquiry import choose
from .standing import Standing
from .supply import Supply
from .timers import ON_DEMAND, Late, NoCacheRefresh, OverdueQueries, Silence, StalenessTracker, SubscriptionGrace

Subject = tuple[TypeUrl, str]

SOME = 32  # questions made or dropped in one step: each costs the upstream client some time


class Questions:
    """The upstream subscriptions of a relay, by name and params."""

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
        self.standing: dict[Subject, Standing] = {}  # names that qualify for the short way (standing.py)
        self.renewals = NoCacheRefresh()
        self.lateness = OverdueQueries(reaches)
        self.ages = StalenessTracker(silence, max_stale)
        self._supply = supply
        self._fairness = fairness
        self._limits = limits  # of a locator, by name; None: the server is asked without params
        self._audience = audience  # the subscribers of a name
        self._is_full = is_full  # whether a response of the type must be complete (SOT-4)
        self._answered = answered  # called when the answer is there at once

    def ask(self, subject: Subject, params: Params, mentioned: tuple[str, ...] = ()) -> None:
        """Subscribe upstream to a name with a client's params.

        mentioned: the keys that the known variants of the name depend on. If the params exceed the limits of a locator,
        these keys are sent (watch/query_params.py). Params that still do not fit are refused here, and the server never
        sees them.
        """
        limits = self._limits(subject[1])
        asked = question_params(params, mentioned, limits) if limits is not None else params
        if isinstance(asked, Refusal):
            why = f"the node's metadata can't be sent to a server: {asked}; name the keys that matter by --node-params"
            entry = refused_entry(*subject, params, why)
        else:
            entry = self._fairness.ask((subject, params), asked)
        self.asked.setdefault(subject, {})[params] = entry
        if entry.key[1] != params:
            self.standing.pop(subject, None)  # several sets of params may share this subscription
        elif subject in self.standing:
            self.standing[subject].asked(params)
        if not is_awaited(entry):
            self._answered(subject)  # an equal subscription exists, and has its answer

    def inquire(  # everything known of a name
        self,
        subject: Subject,
        known: CachedSet,
        needs: Needs,
        wrong: tuple[UpstreamProblem, ...],
        now: float,
        pending: Iterable[Params],
    ) -> Steps[set[Params]]:
        """Subscribe for the classes that wait, in steps, and return the questions that keep other clients waiting.

        inquiry.py chooses whose params are sent. The timers of the returned questions start.
        """
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
        is_held: Callable[[Form], bool],  # whether a wanted subscription holds it
        now: float,
    ) -> Steps[None]:
        """Drop pending questions that no client wants, or that another question has answered meanwhile, in steps.

        A pending question stays if the finding that answers it is not held by a wanted subscription: this question is
        to take over from that one.
        """
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

    def hold_on(  # a finding, its holders and a user
        self, subject: Subject, known: CachedSet, form: Form, holders: list[Params], user: Params, now: float
    ) -> Steps[None]:
        """Keep one of the questions that hold a finding, and drop the others, in steps.

        The one that stays is one that a client wants with exactly its params, if there is one. Otherwise it is lent: it
        lingers, and then a current user of the finding subscribes with its own params and takes over (PRX-5). Not
        earlier, because when a crowd leaves one by one, each departure would cause another subscription.
        """
        audience, asked = self._audience(subject), self.asked[subject]
        # Prefer a question whose own client is still there: it need not be replaced when the linger time is over.
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
        if not self.unwanted.lend((subject, kept), now):
            self.unwanted.end((subject, kept))
            # A pending question that the finding answers takes over; only without one, a user asks.
            pending = (params for params, entry in asked.items() if params in audience and is_pending(entry))
            if not any((finding := known.find(params)) is not None and finding.form == form for params in pending):
                self.ask(subject, user, known.keys)

    def let_go(self, subject: Subject, holders: list[Params], now: float, *, at_once: bool = False) -> Steps[None]:
        """Drop questions that nobody uses after they lingered, in steps (PRX-9).

        at_once: do not wait, since something else holds the finding or the question was refused.
        """
        for piece in pieces(holders, SOME):
            for params in piece:
                brief = subject[0] in ON_DEMAND and self.asked[subject][params].variant is None  # PRX-27
                if at_once or not self.unwanted.lasts((subject, params), now, brief=brief):
                    self.release(subject, params)
            if len(piece) == SOME:
                yield

    def release(self, subject: Subject, params: Params) -> None:
        """Unsubscribe one question, and drop its timers."""
        self._end((subject, params), self.asked[subject].pop(params))
        if subject in self.standing:
            self.standing[subject].drop(params)
        if not self.asked[subject]:
            del self.asked[subject]
            self.standing.pop(subject, None)

    def give_way(self, question: Question, refused: Entry) -> Entry:
        """Put a refusal in the place of a question that was evicted (PRX-35), and return its former entry."""
        subject, params = question
        entry, self.asked[subject][params] = self.asked[subject][params], refused
        self.standing.pop(subject, None)
        self._end(question, entry, gives_way=True)
        return entry

    def _end(self, question: Question, entry: Entry, *, gives_way: bool = False) -> None:
        """Drop everything that goes with a question, and unsubscribe."""
        self.renewals.drop(entry)
        self.lateness.drop(question)
        self.ages.drop(entry)
        self._fairness.drop(question, entry, gives_way=gives_way)
        self.unwanted.end(question)

    def presume(self, subject: Subject, known: CachedSet) -> Steps[None]:
        """Let silence mean "does not exist" for pending questions whose finding was withdrawn, in steps (PRX-34).

        A withdrawn variant is gone for all clients that shared it. Each class then asks what replaces it, and some
        servers that have no replacement stay silent.
        """
        for piece in pieces(self.asked.get(subject, {}).items()):
            for params, entry in piece:
                finding = known.find(params) if is_pending(entry) else None
                if finding is not None and finding.withdrawn:
                    self._supply.presume_gone(entry)
            if len(piece) == EVERY:
                yield

    # -- how long they take

    def is_late(self, question: tuple[Subject, Params], entry: Entry, now: float) -> bool:
        """Whether a question has been unanswered for a moment or longer. The first call starts its timer."""
        return self.lateness.judge(question, entry, now) is not Late.NOT

    def late(self, subject: Subject, timed: Container[Params], now: float) -> Mapping[Params, Late]:
        """Return how late the questions of a name are, for a type with full state; otherwise nothing.

        For other types an unanswered name holds nothing back, so only the timed questions keep a timer.
        """
        asked = self.asked.get(subject, {})
        if self._is_full(subject[0]):
            return self.lateness.of(subject, asked, now)
        for params in asked if self.lateness else ():
            if params not in timed:
                self.lateness.drop((subject, params))
        return {}

    def is_any_late(self, subject: Subject, some: Iterable[Params], timed: Container[Params], now: float) -> bool:
        """Whether one of these questions is late and holds a full state back. Drops timers that have no use."""
        asked = self.asked.get(subject, {})
        is_full = self._is_full(subject[0])
        for params in [each for each in some if each in asked]:
            if is_full and self.is_late((subject, params), asked[params], now):
                return True
            if not is_full and params not in timed:
                self.lateness.drop((subject, params))
        return False
