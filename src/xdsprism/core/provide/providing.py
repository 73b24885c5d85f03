"""Decide which provider calls are needed so that every session gets the resources it wants (DESIGN 5).

A provider is a function from a name and params to a resource. Sessions subscribe to names with params. Between the two
are findings, as in a relay (relay/relaying.py): a resource or an absence, with the constraints of the clients that it
holds for. Here the constraints are exactly what the provider read of its params (recorded.py). Clients that agree on
all keys that a provider declared form one class. For one class and one name the provider is called once, however many
clients wait.

The way of one name:

1. A session wants it (`want`). Its class has no finding, so a job is queued.
2. `turn` returns the jobs that may run now; the shell calls the provider for each.
3. The shell reports `made`, `failed` or `dropped`. `made` adds a finding, which may answer other classes too.
4. The next `turn` publishes the findings, and the sessions send them.

Rules:

- A finding stays until it is invalidated or its TTL is over. Clients keep it until the next one is there.
- A failed call says nothing about the resource. Clients are told an error (TP3), and the call is repeated with back-off
  as long as a client wants the name.
- Findings without subscribers stay cached, up to `idle`; the one unused for longest goes first.
- Resources from a transaction or from files take precedence: the provider is not called for their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import UsageError
from ...timer_heap import TimerHeap
from ..model.backoff import Backoff
from ..model.cached import CachedSet, Finding, FindingId, UpstreamProblem
from ..model.constraints import Constraint, unpadded
from ..model.expr import show
from ..model.facts import Ambiguous, Consulted, Fact, Outcome
from ..model.store import Applied, Store
from ..model.types import NO_PARAMS, Params, TypeUrl, Variant
from ..model.variants import VariantSet, pins
from ..model.xdstp import is_wild, spelled
from .made import NOTHING, IdleFindings, Topic, Topics, is_given
from .provider import Provider, ProviderJob, ProviderJobQueues, Subject

UNAVAILABLE = 14
IDLE = 10_000  # findings that are kept without subscribers
CEILING = 30.0  # seconds between two attempts of a failing call, at most


@dataclass(slots=True)
class _Failure:
    """The last error of a provider for one name and class, with its back-off."""

    message: str = ""
    at: float = 0.0  # when the call is repeated
    backoff: Backoff = field(default_factory=lambda: Backoff(ceiling=CEILING))


# A name, and a class of clients that wait for it.
Waiting = tuple[Subject, Params]


@dataclass(frozen=True, slots=True, eq=False)
class _Timed:
    """What a timer is for: a finding that expires, or None: a failed call that may be repeated."""

    subject: Subject
    finding: Finding | None


class Providing:
    """Keeps a store filled with the resources that its sessions want and its providers make.

    Sans-I/O: it returns jobs and is told their results; server/providers.py runs them.
    """

    caches = False

    def __init__(self, store: Store) -> None:
        self.facts: list[Fact] = []
        self.idle = IDLE
        self.judge: Callable[[Variant], None] = lambda _: None  # raises XdsError for an invalid resource
        self.awake: list[Callable[[], None]] = []  # wakes the runner of jobs
        self._store = store
        store.demand = self
        self._providers: dict[TypeUrl, Provider] = {}
        self._topics = Topics()
        self._touched: dict[Subject, None] = {}
        self._jobs = ProviderJobQueues()
        self._failures: dict[Waiting, _Failure] = {}
        self._idle = IdleFindings()
        self._due: TimerHeap[_Timed] = TimerHeap()
        self._confused: set[TypeUrl] = set()  # types whose provider contradicted itself

    # -- who makes what

    def add(self, provider: Provider) -> None:
        """Register a provider. Raises UsageError if the type has one already, or a server is running."""
        other = self._providers.get(provider.type_url)
        if other is not None:
            raise UsageError(f"{provider.label}: {other.label} makes resources of this type; give each type one")
        if self.awake:
            raise UsageError(f"{provider.label}: register providers before the server is made")
        if not self._providers:
            self._store.listeners.append(self._applied)
        self._providers[provider.type_url] = provider
        self._jobs.add_provider(provider.type_url)
        self._store.rely_on_provider(provider.type_url)

    # -- what sessions want (model/demand.py)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:  # noqa: ARG002 # of no use
        """Count a subscription, and mark the name if it is the first of its class."""
        subject, category = self._place(type_url, name, params)
        if subject is None:
            return
        wanted = self._topics.ensure(subject).wanted
        wanted[category] = wanted.get(category, 0) + 1
        if wanted[category] == 1:
            self._touch(subject)

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Do nothing: an invalidated name is made again for sessions that forgot it."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Count one subscription less, and drop the back-off of its class with the last one."""
        subject, category = self._place(type_url, name, params)
        if subject is None:
            return
        wanted = self._topics[subject].wanted
        wanted[category] -= 1
        if not wanted[category]:
            del wanted[category]
            self._failures.pop((subject, category), None)
            self._touch(subject)

    def _place(self, type_url: TypeUrl, name: str, params: Params) -> tuple[Subject | None, Params]:
        """Return the name and class that a subscription counts for; None if no provider makes it."""
        provider = self._providers.get(type_url)
        if provider is None or is_wild(name):
            return None, NO_PARAMS
        return (type_url, self._store.table(type_url).lookup.question(name)), params.only(provider.keys)

    # -- what changes from outside

    def invalidate(self, type_url: TypeUrl, name: str | None = None) -> None:
        """Declare the findings of a name, or of a whole type, out of date.

        Clients keep their resources until the provider made new ones. Calls that are under way now give a result that
        is out of date as well, and failed calls are repeated without waiting.
        """
        if type_url not in self._providers:
            raise UsageError(f"nothing to invalidate: there is no provider of {type_url.rpartition('/')[2]}")
        subjects = self._topics.of_type(type_url)
        if name is not None:
            subject = type_url, self._store.table(type_url).lookup.question(name)
            subjects = [subject] if self._topics.find(subject) is not None else []
        for subject in subjects:
            topic = self._topics[subject]
            topic.generation += 1
            self._idle.drop(subject, topic.doubt(topic.known.findings))
            for category in topic.wanted:
                self._failures.pop((subject, category), None)
            self._touch(subject)

    def _applied(self, applied: Applied) -> None:
        """Mark the names that a transaction changed.

        A resource that was written takes precedence over a provider; where one was deleted, the provider may have a
        resource.
        """
        for change in applied.changes:
            if any(map(is_given, (change.before, change.after))):
                for subject in self._topics.concerned(change):
                    self._touch(subject)

    def _touch(self, subject: Subject) -> None:
        """Mark a name, and wake the runner of jobs."""
        self._touched[subject] = None
        for wake in self.awake:
            wake()

    # -- the turn

    def deadline(self) -> float | None:
        """Return when the next finding expires or the next failed call is due."""
        return self._due.next_due

    def turn(self, now: float) -> list[ProviderJob]:
        """Examine each marked name once, and return the jobs to run now.

        The caller must end each job by `made`, `failed` or `dropped`.
        """
        self._flush(now)
        jobs = [job for provider in self._providers.values() for job in self._take(provider, now)]
        if self._touched:  # jobs that were not needed any more were dropped
            self._flush(now)
        return jobs

    def _flush(self, now: float) -> None:
        """Expire what is due, examine the marked names, and publish their findings."""
        while (timed := self._due.take(now)) is not None:
            self._on_timer(timed)
        news: dict[Subject, VariantSet | None] = {}
        while self._touched:
            for subject in self._touched:
                topic = self._topics.find(subject)
                if topic is not None:
                    self._plan(subject, topic, now)
                    news[subject] = topic.known if topic.known.findings or topic.known.problems else None
                    if not topic.wanted and not self._jobs.is_busy(subject) and news[subject] is None:
                        self._topics.forget(subject)
            self._touched = {}
            for subject, finding_id in self._idle.excess(self.idle):
                topic = self._topics[subject]
                topic.keep([each for each in topic.known.findings if each.id != finding_id])
                self._touched[subject] = None
        self._publish(news)

    def _on_timer(self, timed: _Timed) -> None:
        """Handle a timer: a finding expired, or a failed call may be repeated."""
        subject, finding = timed.subject, timed.finding
        topic = self._topics.find(subject)
        if topic is None:
            return
        if finding is not None:
            self._idle.drop(subject, topic.doubt([finding]))
        self._touched[subject] = None

    def _plan(self, subject: Subject, topic: Topic, now: float) -> None:
        """Examine one name: queue the calls that it needs, and drop unused stale findings.

        Each class without a current finding needs a call. A finding that is current and not in use becomes idle. If the
        name has a written resource, all findings are dropped.
        """
        type_url, name = subject
        provider = self._providers[type_url]
        # A written resource takes precedence: nothing that a provider made is needed.
        if self._store.table(type_url).lookup.given(name) is not None:
            self._idle.drop(subject, topic.known.findings)
            topic.known = NOTHING
            return
        used: set[FindingId] = set()
        problems: list[UpstreamProblem] = []
        for category in topic.wanted:
            finding = topic.known.find(category)
            if finding is not None:
                used.add(finding.id)
            if finding is None or finding.stale:
                failure = self._failures.get((subject, category))
                # One call at a time for each class, and none before its back-off is over.
                if not self._jobs.has(subject, category) and (failure is None or failure.at <= now):
                    self._jobs.add(ProviderJob(provider, name, category))
                problems += [_problem(provider, category, failure)] if failure is not None else []
        gone = [each for each in topic.known.findings if each.stale and each.id not in used]
        self._idle.drop(subject, gone)
        kept = tuple(each for each in topic.known.findings if not each.stale or each.id in used)
        for each in kept:
            self._idle.note(subject, each, used=each.id in used)
        if gone or topic.known.problems != tuple(problems):
            topic.keep(kept, tuple(problems))

    def _publish(self, news: Mapping[Subject, VariantSet | None]) -> None:
        """Publish findings to the store, but never over a written resource."""
        free = {subject: known for subject, known in news.items() if not is_given(self._store.named(*subject))}
        changed = {subject: known for subject, known in free.items() if known is not self._store.named(*subject)}
        if changed:
            self._store.publish(changed, "provider")

    # -- jobs

    def _take(self, provider: Provider, now: float) -> Iterator[ProviderJob]:
        """Yield the queued jobs of a provider that may run now, and drop those that are not needed any more."""
        for job in self._jobs.startable(provider):
            topic = self._topics[job.subject]
            if not self._is_needed(job, topic):
                self._jobs.discard(job)
                self._touched[job.subject] = None
                continue
            self._jobs.start(job)
            job.started, job.generation = now, topic.generation
            yield job

    def _is_needed(self, job: ProviderJob, topic: Topic) -> bool:
        """Whether a queued job is still needed.

        While it waited, its clients may have left, another call may have answered its class, or a transaction may have
        written the resource.
        """
        finding = topic.known.find(job.category)
        lacking = finding is None or finding.stale
        return (
            lacking
            and job.category in topic.wanted
            and self._store.table(job.provider.type_url).lookup.given(job.name) is None
        )

    def _end(self, job: ProviderJob) -> Topic:
        """Note that a running job ended, and mark its name."""
        self._jobs.end(job)
        self._touch(job.subject)
        return self._topics[job.subject]

    def name_for(self, job: ProviderJob, inner: str | None) -> str:
        """Return the name under which to publish a message that calls itself `inner`.

        Raises UsageError if the message cannot be the resource that was asked for.
        """
        if inner is None or spelled(inner) == job.name:
            return job.name
        label = f"the resource for {job.name!r}"
        if not self._store.spec(job.provider.type_url).on_demand:
            raise UsageError(f"{label} must have this name, not {inner!r}")
        config, _, host = job.name.rpartition("/")
        if inner.rpartition("/")[0] != config or not host:  # VHD-4: any name in its route configuration
            raise UsageError(f"{label} must have a name that begins with {config + '/'!r}, not {inner!r}")
        return inner

    def made(
        self, job: ProviderJob, whose: Constraint, variant: Variant | None, now: float, ttl: float | None = None
    ) -> bool:
        """Take the result of a provider. Return whether the call before failed.

        variant: None if the resource does not exist, which is an answer like any other. whose: the constraints of the
        clients that it holds for.
        """
        topic = self._end(job)
        failure = self._failures.pop((job.subject, job.category), None)
        self.facts.append(_consulted(job, now, "found" if variant is not None else "none", news=failure is not None))
        # The name was invalidated during the call. Use the result only for a class that has nothing at all.
        outdated = job.generation != topic.generation
        if not outdated or (variant is not None and topic.known.find(job.category) is None):
            self._learn(job, topic, Finding(whose, variant, stale=outdated, since=now), ttl)
        return failure is not None

    def _learn(self, job: ProviderJob, topic: Topic, finding: Finding, ttl: float | None) -> None:
        """Add a finding, and set a timer for its end. One that was invalidated during the call is stale at once."""
        before = topic.known
        finding = topic.learn(finding)
        self._compare(job, before, topic)
        if ttl is not None and not finding.stale:
            self._due.set(_Timed(job.subject, finding), finding.since + ttl)

    def _compare(self, job: ProviderJob, before: CachedSet, topic: Topic) -> None:
        """Record as a fact that a provider contradicts itself, if a class now gets another finding than before.

        The runs of a deterministic function have disjoint constraints (recorded.py). A function that is not
        deterministic may give overlapping findings; then the newest counts (DESIGN 6.10).
        """
        for category in topic.wanted:
            old, new = before.find(category), topic.known.find(category)
            if old is not None and new is not None and not old.stale and old.id != new.id:
                first = job.provider.type_url not in self._confused
                self._confused.add(job.provider.type_url)
                kept, other = show(unpadded(new.constraint)), show(unpadded(old.constraint))
                self.facts.append(Ambiguous(job.provider.type_url, job.name, kept, other, first))

    def failed(self, job: ProviderJob, message: str, now: float, random: float) -> bool:
        """Note that a call raised, timed out, or made an invalid resource. Return whether the error is a new one.

        random: a number from [0, 1) that spreads the repetitions over time.
        """
        topic = self._end(job)
        key = job.subject, job.category
        failure = self._failures.get(key) or _Failure()
        news = failure.message != message
        self.facts.append(_consulted(job, now, "failed", news=news, error=message))
        # After an invalidation, the call is repeated at once instead of after the back-off.
        if job.category in topic.wanted and job.generation == topic.generation:
            failure.message, failure.at = message, now + failure.backoff.next(random)
            self._failures[key] = failure
            self._due.set(_Timed(job.subject, None), failure.at)
        return news

    def dropped(self, job: ProviderJob) -> None:
        """Note that the runner of a job stopped. The next turn queues the job again if a client wants the name."""
        self._end(job)


def _problem(provider: Provider, category: Params, failure: _Failure) -> UpstreamProblem:
    """Return the error that the clients of a class are told while the provider fails."""
    whose = pins({key: category.get(key) for key in provider.keys})
    return UpstreamProblem(whose, UNAVAILABLE, f"{provider.label} failed: {failure.message}", unresolved=True)


def _consulted(job: ProviderJob, now: float, result: Outcome, *, news: bool, error: str = "") -> Fact:
    """Return the fact that a call had this outcome."""
    label, seconds = job.provider.label, max(0.0, now - job.started)
    return Consulted(job.provider.type_url, job.name, label, result, seconds, error, news)
