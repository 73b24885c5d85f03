"""Keep the upstream subscriptions of a relay: make them, share them, and end them in time.

The life of an upstream subscription (upstream_subscription.py):

    state      meaning                                               ends when
    ---------  ----------------------------------------------------  -----------------------------------------------
    pending    the server has not answered                           an answer arrives, here or to another one
    held       it keeps a finding up to date that clients use        another one holds the same finding
    lent       its own client left; others use its finding           the linger time is over: one of them asks
    unused     nobody uses its finding                               the linger time is over, or a client returns
    refused    the servers have no room for it (fairness.py)         there is room, or its last client leaves

`UpstreamSubscriptions` is the registry of them all. planning.py decides what each name needs, and calls this module to
carry it out. `release` is the only way in which one leaves the registry. It stops its timers (timers.py, and those of
wildcards in listings.py), frees its room and unsubscribes; so does `give_way`, which leaves a refusal in its place.

Two indexes are derived from the registry. `indexes` has the names in the usual state (finding_index.py). `_sharing` has
the subscriptions that share an entry, since the server was sent other params than theirs. The methods that add and end
a subscription keep both up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from ..model.cached import CachedSet, FindingId, UpstreamProblem
from ..model.limits import Limits, Refusal
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params, TypeUrl
from ..model.xdstp import wildcards
from ..watch.entry import Entry, subscribed
from ..watch.query_params import is_crowded, question_params, refused_entry
from .audience import Audiences, Needs
from .fairness import Fairness
from .finding_index import FindingIndex
from .params_choice import choose_params
from .timers import (
    ON_DEMAND,
    Late,
    NoCacheRefresh,
    OverdueQueries,
    Silence,
    StalenessTracker,
    SubscriptionGrace,
    TimerTable,
)
from .upstream_subscription import Subject, UpstreamAnswer, UpstreamSubscription, is_answered, is_missing

SOME = 32  # subscriptions made or ended in one step: each costs the upstream client some time

_NONE: Mapping[Params, UpstreamSubscription] = {}  # of a name that has none


class UpstreamSubscriptions:
    """The upstream subscriptions of a relay, by name and params."""

    def __init__(  # noqa: PLR0913 # what a relay knows of its servers and clients
        self,
        fairness: Fairness,
        audiences: Audiences,
        *,
        linger: float,
        reaches: Callable[[str, Params], bool],
        silence: Silence,
        max_stale: float,
        limits: Callable[[str], Limits | None],
        is_full: Callable[[TypeUrl], bool],
        answered: Callable[[Subject], None],
    ) -> None:
        self.grace = SubscriptionGrace(linger)
        self.refreshes = NoCacheRefresh()
        self.overdue = OverdueQueries(reaches)
        self.staleness = StalenessTracker(silence, max_stale)
        self.settling: TimerTable = {}  # wildcards that may be incomplete, and until when (listings.py)
        self.indexes: dict[Subject, FindingIndex] = {}
        self._by_name: dict[Subject, dict[Params, UpstreamSubscription]] = {}
        self._sharing: dict[Entry, dict[UpstreamSubscription, None]] = {}
        self._fairness = fairness
        self._audiences = audiences
        self._limits = limits  # of a locator, by name; None: the server is asked without params
        self._is_full = is_full  # whether a response of the type must be complete (SOT-4)
        self._answered = answered  # called when the answer is there at once

    # -- which there are

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __iter__(self) -> Iterator[UpstreamSubscription]:
        for of_name in self._by_name.values():
            yield from of_name.values()

    def __contains__(self, subscription: UpstreamSubscription) -> bool:
        return self.of(subscription.subject).get(subscription.params) is subscription

    def of(self, subject: Subject) -> Mapping[Params, UpstreamSubscription]:
        """Return the subscriptions to a name, or to a wildcard, by params."""
        return self._by_name.get(subject, _NONE)

    def named_answers(self, subject: Subject) -> Iterator[UpstreamAnswer]:
        """Yield what the upstream subscriptions to a name say of it."""
        audience = self._audiences.of(subject)
        for params, each in self.of(subject).items():
            yield UpstreamAnswer(each, each.entry, wild=False, wanted=params in audience)

    def answers(self, subject: Subject) -> Iterator[UpstreamAnswer]:
        """Yield what each upstream subscription says of a name: those by name, and the wildcards that have it."""
        yield from self.named_answers(subject)
        type_url, name = subject
        for string in wildcards(name):
            wild = type_url, string
            audience = self._audiences.of(wild)
            for params, each in self.of(wild).items():
                member = each.member(name)
                if member is not None:
                    # Before the server answers a wildcard, its members come from subscriptions by name. They must not
                    # replace these yet (PRX-5).
                    yield UpstreamAnswer(each, member, wild=True, wanted=params in audience and is_answered(each.entry))

    def sharing(self, entry: Entry) -> list[UpstreamSubscription]:
        """Return the subscriptions that have this entry."""
        own = self.of((entry.type_url, entry.name)).get(entry.params) if entry.params is not None else None
        return [*([own] if own is not None and own.entry is entry else ()), *self._sharing.get(entry, ())]

    def timers(self) -> tuple[TimerTable, ...]:
        """Return all timers of upstream subscriptions, each table in order of time."""
        return *self.grace.timers, self.settling, self.overdue.due

    # -- how they begin

    def subscribe(self, subject: Subject, params: Params, mentioned: tuple[str, ...] = ()) -> Steps[None]:
        """Subscribe upstream to a name with a client's params, in steps if others have to give way for it.

        mentioned: the keys that the known variants of the name depend on. If the params exceed the limits of a locator,
        these keys are sent (watch/query_params.py). Params that still do not fit are refused here, and the server never
        sees them.
        """
        limits = self._limits(subject[1])
        asked = question_params(params, mentioned, limits) if limits is not None else params
        subscription = UpstreamSubscription(subject, params)
        if isinstance(asked, Refusal):
            why = f"the node's metadata can't be sent upstream: {asked}; name the keys that matter by --node-params"
            subscription.entry = refused_entry(*subject, params, why)
        else:
            yield from self._fairness.subscribe(subscription, asked)
        self._add(subscription)
        if not subscription.is_awaited:
            self._answered(subject)  # an equal subscription exists, and has its answer

    def _add(self, subscription: UpstreamSubscription) -> None:
        """Register a new subscription."""
        subject, params, entry = subscription.subject, subscription.params, subscription.entry
        twin = next(iter(self.sharing(entry)), None) if entry.key[1] != params or self._sharing else None
        if entry.collection is not None:
            subscription.lost = twin.lost if twin is not None else {}
        subscription.is_too_old = twin is not None and twin.is_too_old
        self._by_name.setdefault(subject, {})[params] = subscription
        if entry.key[1] != params:
            self._sharing.setdefault(entry, {})[subscription] = None
            self.indexes.pop(subject, None)
        elif subject in self.indexes:
            self.indexes[subject].add(subscription)

    def subscribe_for(  # everything known of a name
        self,
        subject: Subject,
        known: CachedSet,
        needs: Needs,
        wrong: tuple[UpstreamProblem, ...],
        now: float,
        pending: Iterable[Params],
    ) -> Steps[set[Params]]:
        """Subscribe for the classes that wait, in steps, and return the params that keep other clients waiting.

        params_choice.py chooses whose params are sent. The timers of the returned subscriptions start.
        """
        asked = self.of(subject)
        choice = choose_params(needs, known, asked, wrong, lambda each: self._is_late(asked[each], now), pending)
        for piece in pieces(choice.chosen, SOME):
            for params in piece:
                yield from self.subscribe(subject, params, known.keys)
            if len(piece) == SOME:
                yield
        asked = self.of(subject)
        for params in choice.timed:
            self._is_late(asked[params], now)
        return choice.timed

    def note_member(self, member: Entry) -> None:
        """Note that a wildcard lost a member, or has it again.

        Some servers report a deletion to the wildcard only, and send nothing to a subscription by name: they have no
        way to say it. So the relay uses the wildcard's deletion as an answer for the name.
        """
        whole = subscribed(member)
        wildcard = next(iter(self.sharing(whole)), None) if whole is not member else None
        if wildcard is None or wildcard.lost is None:
            return
        if is_missing(member):
            wildcard.lost[member.name] = member
        else:
            wildcard.lost.pop(member.name, None)

    def forget_lost(self, subject: Subject) -> None:
        """Forget which wildcards lost a name, since no client wants it any more."""
        type_url, name = subject
        for wild in wildcards(name):
            for each in self.of((type_url, wild)).values():
                if each.lost:
                    each.lost.pop(name, None)

    def ask_again(self, subscription: UpstreamSubscription) -> None:
        """Ask the server again, since its answer is in doubt."""
        if subscription.carrier is not None:
            subscription.carrier.ask_again()

    def refresh(self, subscription: UpstreamSubscription, subject: Subject) -> None:
        """Ask the server again for a client that wants a `do_not_cache` resource (PRX-17).

        Once for all clients that wait for it, by whichever of the subscriptions that share the entry.
        """
        is_asked = any(each.refreshed_for is not None for each in self.sharing(subscription.entry))
        self.refreshes.add(subscription, subject)
        if not is_asked:
            self.ask_again(subscription)

    # -- how they end

    def tidy_pending(
        self,
        subject: Subject,
        known: CachedSet,
        some: Iterable[Params],
        is_held: Callable[[FindingId], bool],  # whether a wanted subscription holds it
        now: float,
    ) -> Steps[None]:
        """End pending subscriptions that no client wants, or that another one has answered meanwhile, in steps.

        A pending one stays if the finding that answers it is not held by a wanted subscription: the pending one is to
        take over from that one.
        """
        audience, asked = self._audiences.of(subject), self.of(subject)
        for piece in pieces([asked[params] for params in some if asked[params].is_pending], SOME):
            for each in piece:
                if each.params not in audience:
                    yield from self.let_go([each], now, at_once=is_crowded(each.entry))
                    continue
                finding = known.find(each.params)
                if finding is not None and not finding.stale and is_held(finding.id):
                    self.release(each)
            if len(piece) == SOME:
                yield

    def keep_one(  # a finding, its holders and a user
        self,
        subject: Subject,
        known: CachedSet,
        finding_id: FindingId,
        holders: list[UpstreamSubscription],
        user: Params,
        now: float,
    ) -> Steps[None]:
        """Keep one of the subscriptions that hold a finding, and end the others, in steps.

        The one that stays is one that a client wants with exactly its params, if there is one. Otherwise it is lent: it
        lingers, and then a current user of the finding subscribes with its own params and takes over (PRX-5). Not
        earlier, because when a crowd leaves one by one, each departure would cause another subscription.
        """
        audience = self._audiences.of(subject)
        # Prefer one whose own client is still there: it need not be replaced when the linger time is over.
        wanted = [each for each in holders if each.params in audience]
        kept = (wanted or holders)[0]
        for piece in pieces([each for each in holders if each is not kept], SOME):
            for each in piece:
                self.release(each)
            if len(piece) == SOME:
                yield
        if wanted:
            self.grace.end(kept)
            return
        if not self.grace.lend(kept, now):
            self.grace.end(kept)
            # A pending subscription that the finding answers takes over; only without one, a user asks.
            if not any(
                (finding := known.find(params)) is not None and finding.id == finding_id
                for params, each in self.of(subject).items()
                if params in audience and each.is_pending
            ):
                yield from self.subscribe(subject, user, known.keys)

    def let_go(self, holders: list[UpstreamSubscription], now: float, *, at_once: bool = False) -> Steps[None]:
        """End unused subscriptions after the linger time, in steps (PRX-9).

        at_once: do not wait, since something else holds the finding or the subscription was refused.
        """
        for piece in pieces(holders, SOME):
            for each in piece:
                brief = each.subject[0] in ON_DEMAND and each.entry.variant is None  # PRX-27
                if at_once or not self.grace.lasts(each, now, brief=brief):
                    self.release(each)
            if len(piece) == SOME:
                yield

    def release(self, subscription: UpstreamSubscription) -> None:
        """Unsubscribe, and drop all that goes with a subscription."""
        subject = subscription.subject
        of_name = self._by_name[subject]
        del of_name[subscription.params]
        if subject in self.indexes:
            self.indexes[subject].drop(subscription)
        if not of_name:
            del self._by_name[subject]
            self.indexes.pop(subject, None)
        self._end(subscription)

    def give_way(self, subscription: UpstreamSubscription, refused: Entry) -> None:
        """Unsubscribe for want of room, and replace the servers' answer by a refusal (PRX-35)."""
        self.indexes.pop(subscription.subject, None)
        self._end(subscription)
        subscription.entry, subscription.carrier, subscription.lost = refused, None, None

    def _end(self, subscription: UpstreamSubscription) -> None:
        """Stop the timers of a subscription, free its room, and unsubscribe."""
        self.refreshes.drop(subscription)
        self.overdue.drop(subscription)
        self.grace.end(subscription)
        self.settling.pop(subscription, None)
        subscription.is_too_old = False
        sharing = self._sharing.get(subscription.entry)
        if sharing is not None:
            sharing.pop(subscription, None)
            if not sharing:
                del self._sharing[subscription.entry]
        self._fairness.leave(subscription)
        if subscription.carrier is not None:
            subscription.carrier.end()

    def presume_gone(self, subject: Subject, known: CachedSet) -> Steps[None]:
        """Let silence mean "does not exist" for pending ones whose finding was removed, in steps (PRX-34).

        A removed variant is gone for all clients that shared it. Each class then asks what replaces it, and some
        servers that have no replacement stay silent.
        """
        for piece in pieces(self.of(subject).values()):
            for each in piece:
                finding = known.find(each.params) if each.is_pending else None
                if finding is not None and finding.removed and each.carrier is not None:
                    each.carrier.presume_gone()
            if len(piece) == EVERY:
                yield

    # -- how long they take

    def _is_late(self, subscription: UpstreamSubscription, now: float) -> bool:
        """Whether one has been unanswered for a moment or longer. The first call starts its timer."""
        return self.overdue.judge(subscription, now) is not Late.NOT

    def late(self, subject: Subject, timed: Container[Params], now: float) -> Mapping[Params, Late]:
        """Return how late the subscriptions to a name are, for a type with full state; otherwise nothing.

        For other types an unanswered name holds nothing back, so only the timed subscriptions keep a timer.
        """
        asked = self.of(subject)
        if self._is_full(subject[0]):
            return self.overdue.of(asked, now)
        for params, each in asked.items():
            if params not in timed:
                self.overdue.drop(each)
        return {}

    def is_any_late(self, subject: Subject, some: Iterable[Params], timed: Container[Params], now: float) -> bool:
        """Whether one of these is late and holds a full state back. Drops timers that have no use."""
        asked = self.of(subject)
        is_full = self._is_full(subject[0])
        for each in [asked[params] for params in some if params in asked]:
            if is_full and self._is_late(each, now):
                return True
            if not is_full and each.params not in timed:
                self.overdue.drop(each)
        return False
