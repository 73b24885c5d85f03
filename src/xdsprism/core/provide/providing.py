"""Contents that are made when somebody asks for them: which provider to ask, for whom, and what is known (DESIGN 5).

Sessions want names with params; a provider is a function of a name and params. Between them are findings, as in a relay
(relaying.py): what was made, or that there is nothing, each with constraints that say whom it is for. Here they are
exactly what the provider looked at (recorded.py). Clients that agree on the keys that it declared are of one class, and
for one class of one name it is asked once, however many wait.

- A finding stays until it is invalidated, or its time is over. Those who have it keep it until the next one is there.
- That a provider failed says nothing of what there is. It is told as an error (TP3), and it is asked again, as long as
  somebody wants to know.
- What nobody wants is kept too, up to a limit; what was not used for longest goes first.
- What is in the store by a transaction or from files comes first: the provider is not asked for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count

from ...errors import UsageError
from ..model.backoff import Backoff
from ..model.cached import CachedSet, Finding, Form, UpstreamProblem
from ..model.constraints import Constraint, failing, matches, unpadded
from ..model.expr import show
from ..model.facts import Ambiguous, Consulted, Fact, Outcome
from ..model.hosts import AskedHosts
from ..model.store import Applied, Store
from ..model.table import Table
from ..model.types import NO_PARAMS, ROUTE, VIRTUAL_HOST, Change, Params, TypeSpec, TypeUrl, Variant
from ..model.variants import Explanation, VariantSet, pins
from ..model.views import alike
from ..model.xdstp import is_wild, spelled
from .recorded import Record

UNAVAILABLE = 14
IDLE = 10_000  # results that nobody wants, and that are kept
TIMEOUT = 5.0  # seconds; Envoy holds a request for an unknown host back for 15
AT_ONCE = 64  # calls of one provider
CEILING = 30.0  # seconds between two attempts of what fails

Subject = tuple[TypeUrl, str]


@dataclass(frozen=True, slots=True)
class Provider:
    """Who makes the resources of a type."""

    type_url: TypeUrl
    call: Callable[[str, Params], Awaitable[object]]
    keys: tuple[str, ...] = ()  # of params that it may look at
    label: str = "provider"
    timeout: float = TIMEOUT
    ttl: float | None = None  # seconds for which what it says is good
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        if not all(isinstance(key, str) and key for key in self.keys) or len(set(self.keys)) != len(self.keys):
            raise UsageError(f"{self.label}: keys are names of parameters, each once; not {list(self.keys)!r}")
        if self.timeout <= 0 or (self.ttl is not None and self.ttl <= 0):
            raise UsageError(f"{self.label}: timeout and ttl are seconds, and more than none")
        if self.at_once < 1:
            raise UsageError(f"{self.label}: at_once is how many calls there may be at one time, at least 1")


@dataclass(frozen=True, slots=True)
class Provided:
    """What a provider returns where a message alone does not say enough. `ttl`: for how long it is good, in seconds."""

    message: object  # None: there is nothing
    ttl: float | timedelta | None = None


@dataclass(eq=False, slots=True)
class Job:
    """One call of a provider, for all of one class."""

    provider: Provider
    name: str
    category: Params
    started: float = 0.0
    generation: int = 0  # of the topic

    @property
    def subject(self) -> Subject:
        return self.provider.type_url, self.name

    def record(self) -> Record:
        return Record(self.provider.label, self.provider.keys, self.category)


class MadeSet(CachedSet):
    """What was made for one name. It is there for those who ask for it by name: no wildcard lists it."""

    __slots__ = ()

    made = True

    def member(self, params: Mapping[str, str]) -> Variant | None:  # noqa: ARG002
        return None

    @property
    def is_listed(self) -> bool:
        return False

    @property
    def member_keys(self) -> frozenset[str]:
        return frozenset()

    def explain(self, params: Mapping[str, str]) -> Explanation:
        """What is out of date may be for the same clients as what came in its place."""
        others = (variant for variant in self.variants if not matches(variant.constraint, params))
        return Explanation(self.select(params), tuple((each, failing(each.constraint, params)) for each in others))


NOTHING = MadeSet(())


class _Topic:
    """One name that somebody asked for."""

    __slots__ = ("busy", "generation", "known", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[Params, int] = {}  # how many want it, by class
        self.known: MadeSet = NOTHING
        self.busy = 0  # jobs
        self.generation = 0  # how often it was invalidated


@dataclass(slots=True)
class _Failure:
    message: str = ""
    at: float = 0.0  # when it is tried again
    backoff: Backoff = field(default_factory=lambda: Backoff(ceiling=CEILING))


Key = tuple[Subject, Params]
Due = tuple[float, int, Subject, Finding | None]


class Providing:
    """Keeps a store filled with what its readers want and its providers make."""

    caches = False

    def __init__(self, store: Store) -> None:
        self.facts: list[Fact] = []
        self.idle = IDLE
        self.judge: Callable[[Variant], None] = lambda _: None  # raises XdsError for what is not to be given to anybody
        self.awake: list[Callable[[], None]] = []  # those who run jobs; told when there may be something to do
        self._store = store
        self._providers: dict[TypeUrl, Provider] = {}
        self._topics: dict[Subject, _Topic] = {}
        self._hosts = AskedHosts()  # of these, the virtual hosts
        self._touched: dict[Subject, None] = {}
        self._queues: dict[TypeUrl, deque[Job]] = {}
        self._running: dict[TypeUrl, int] = {}
        self._flying: dict[Key, Job] = {}  # queued or running
        self._failures: dict[Key, _Failure] = {}
        self._idle: dict[tuple[Subject, Form], None] = {}  # findings that nobody wants; those first that go first
        self._due: list[Due] = []  # a heap: when a finding is over, or something is to be tried again
        self._order = count()
        self._confused: set[TypeUrl] = set()  # providers that contradicted themselves

    # -- who makes what

    def add(self, provider: Provider) -> None:
        other = self._providers.get(provider.type_url)
        if other is not None:
            raise UsageError(f"{provider.label}: {other.label} makes resources of this type already, and one is enough")
        if self.awake:
            raise UsageError(f"{provider.label}: a provider has to be there before the server that asks it")
        if not self._providers:
            self._store.listeners.append(self._applied)
        self._providers[provider.type_url] = provider
        self._queues[provider.type_url] = deque()
        self._running[provider.type_url] = 0
        self._store.table(provider.type_url).authoritative = False

    def makes(self, type_url: TypeUrl) -> bool:
        return type_url in self._providers

    # -- what sessions want (interest.Demand)

    def want(self, type_url: TypeUrl, name: str, params: Params, stream: int = 0) -> None:  # noqa: ARG002 # of no use
        subject, category = self._place(type_url, name, params)
        if subject is None:
            return
        wanted = self._topic(subject).wanted
        wanted[category] = wanted.get(category, 0) + 1
        if wanted[category] == 1:
            self._touch(subject)

    def _topic(self, subject: Subject) -> _Topic:
        if subject not in self._topics:
            self._topics[subject] = _Topic()
            if subject[0] == VIRTUAL_HOST:
                self._hosts.add(subject[1])
        return self._topics[subject]

    def _forget(self, subject: Subject) -> None:
        del self._topics[subject]
        if subject[0] == VIRTUAL_HOST:
            self._hosts.remove(subject[1])

    def forgot(self, type_url: TypeUrl, name: str, params: Params) -> None:
        """Nothing to do: what is invalidated is made again for those who forgot it."""

    def unwant(self, type_url: TypeUrl, name: str, params: Params) -> None:
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
        provider = self._providers.get(type_url)
        if provider is None or is_wild(name):
            return None, NO_PARAMS
        return (type_url, self._store.table(type_url).question(name)), params.only(provider.keys)

    # -- what changes from outside

    def invalidate(self, type_url: TypeUrl, name: str | None = None) -> None:
        """What was made of this name, or of this type, does not count any more. Who has it keeps it until it is new."""
        if type_url not in self._providers:
            raise UsageError(f"nothing to invalidate: there is no provider of {type_url.rpartition('/')[2]}")
        subjects = [subject for subject in self._topics if subject[0] == type_url]
        if name is not None:
            subject = type_url, self._store.table(type_url).question(name)
            subjects = [subject] if subject in self._topics else []
        for subject in subjects:
            topic = self._topics[subject]
            topic.generation += 1
            self._doubt(subject, topic, topic.known.findings)
            for category in topic.wanted:
                self._failures.pop((subject, category), None)
            self._touch(subject)

    def _doubt(self, subject: Subject, topic: _Topic, findings: Iterable[Finding]) -> None:
        """That there is nothing is nothing that anybody could keep: it is only not known any more."""
        doubtful = {id(each) for each in findings}
        kept: list[Finding] = []
        for each in topic.known.findings:
            if id(each) not in doubtful or each.stale:
                kept.append(each)
            elif each.variant is not None:
                kept.append(replace(each, stale=True))
            else:
                self._idle.pop((subject, each.form), None)
        topic.known = MadeSet(kept, topic.known.troubles)

    def _applied(self, applied: Applied) -> None:
        """What is written down comes first; and where it is no longer, a provider may know something."""
        for change in applied.changes:
            if any(map(_is_given, (change.before, change.after))):
                for subject in self._concerned(change):
                    self._touch(subject)

    def _concerned(self, change: Change) -> list[Subject]:
        subjects = [(change.type_url, name) for name in change.names]
        if change.type_url == VIRTUAL_HOST:
            subjects += [(VIRTUAL_HOST, string) for string in self._hosts.concerned(change)]
        elif change.type_url == ROUTE:  # VHD-6: does the port of a host count?
            subjects += [(VIRTUAL_HOST, string) for string in self._hosts.under(change.name) if ":" in string]
        return [subject for subject in dict.fromkeys(subjects) if subject in self._topics]

    def _touch(self, subject: Subject) -> None:
        self._touched[subject] = None
        for wake in self.awake:
            wake()

    # -- the turn

    def deadline(self) -> float | None:
        return self._due[0][0] if self._due else None

    def turn(self, now: float) -> list[Job]:
        """Look once at each name that something happened to. Returns what is to be run now.

        Each job has to end by `made`, `failed` or `dropped`.
        """
        self._flush(now)
        jobs = [job for provider in self._providers.values() for job in self._take(provider, now)]
        if self._touched:  # by jobs that waited until nobody needed them
            self._flush(now)
        return jobs

    def _flush(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            self._over(heappop(self._due))
        news: dict[Subject, VariantSet | None] = {}
        while self._touched:
            for subject in self._touched:
                topic = self._topics.get(subject)
                if topic is not None:
                    self._plan(subject, topic, now)
                    news[subject] = topic.known if topic.known.findings or topic.known.troubles else None
                    if not topic.wanted and not topic.busy and news[subject] is None:
                        self._forget(subject)
            self._touched = {}
            self._evict()
        self._publish(news)

    def _over(self, due: Due) -> None:
        _, _, subject, finding = due
        topic = self._topics.get(subject)
        if topic is None:
            return
        if finding is not None:
            self._doubt(subject, topic, [finding])
        self._touched[subject] = None

    def _plan(self, subject: Subject, topic: _Topic, now: float) -> None:
        """Who has no answer that stands? One of each class asks. What is neither wanted nor new is let go."""
        provider = self._providers[subject[0]]
        if self._table(subject).given(subject[1]) is not None:
            self._rest(subject, topic.known.findings)
            topic.known = NOTHING
            return
        used: set[Form] = set()
        troubles: list[UpstreamProblem] = []
        for category in topic.wanted:
            finding = topic.known.find(category)
            if finding is not None:
                used.add(finding.form)
            if finding is None or finding.stale:
                self._ask(provider, subject, category, now)
                failure = self._failures.get((subject, category))
                troubles += [_trouble(provider, category, failure)] if failure is not None else []
        gone = [each for each in topic.known.findings if each.stale and each.form not in used]
        self._rest(subject, gone)
        kept = tuple(each for each in topic.known.findings if not each.stale or each.form in used)
        for each in kept:
            if each.form in used:
                self._idle.pop((subject, each.form), None)
            else:
                self._idle.setdefault((subject, each.form))
        if gone or topic.known.troubles != tuple(troubles):
            topic.known = MadeSet(kept, tuple(troubles))

    def _rest(self, subject: Subject, gone: Iterable[Finding]) -> None:
        for each in gone:
            self._idle.pop((subject, each.form), None)

    def _ask(self, provider: Provider, subject: Subject, category: Params, now: float) -> None:
        key = subject, category
        failure = self._failures.get(key)
        if key in self._flying or (failure is not None and failure.at > now):
            return
        self._flying[key] = job = Job(provider, subject[1], category)
        self._topics[subject].busy += 1
        self._queues[provider.type_url].append(job)

    def _evict(self) -> None:
        while len(self._idle) > self.idle:
            subject, form = next(iter(self._idle))
            del self._idle[subject, form]
            topic = self._topics[subject]
            topic.known = MadeSet((each for each in topic.known.findings if each.form != form), topic.known.troubles)
            self._touched[subject] = None

    def _publish(self, news: Mapping[Subject, VariantSet | None]) -> None:
        """Never over something that is written down."""
        free = {subject: known for subject, known in news.items() if not _is_given(self._store.named(*subject))}
        changed = {subject: known for subject, known in free.items() if known is not self._store.named(*subject)}
        if changed:
            self._store.publish(changed)

    def _table(self, subject: Subject) -> Table:
        return self._store.table(subject[0])

    # -- jobs

    def _take(self, provider: Provider, now: float) -> Iterator[Job]:
        queue = self._queues[provider.type_url]
        while queue and self._running[provider.type_url] < provider.at_once:
            job = queue.popleft()
            topic = self._topics[job.subject]
            if not self._is_needed(job, topic):
                self._land(job, topic)
                self._touched[job.subject] = None
                continue
            self._running[provider.type_url] += 1
            job.started, job.generation = now, topic.generation
            yield job

    def _is_needed(self, job: Job, topic: _Topic) -> bool:
        """It may have waited for so long that nobody does any more, or that somebody else's answer was for it too."""
        finding = topic.known.find(job.category)
        lacking = finding is None or finding.stale
        return lacking and job.category in topic.wanted and self._table(job.subject).given(job.name) is None

    def _land(self, job: Job, topic: _Topic) -> None:
        del self._flying[job.subject, job.category]
        topic.busy -= 1

    def _end(self, job: Job) -> _Topic:
        topic = self._topics[job.subject]
        self._running[job.provider.type_url] -= 1
        self._land(job, topic)
        self._touch(job.subject)
        return topic

    def name_for(self, job: Job, inner: str | None) -> str:
        """What something is called that calls itself `inner`; raises UsageError if it can't be what was asked for."""
        if inner is None or spelled(inner) == job.name:
            return job.name
        label = f"what is made for {job.name!r}"
        if not self._store.spec(job.provider.type_url).on_demand:
            raise UsageError(f"{label} has another name, {inner!r}")
        config, _, host = job.name.rpartition("/")
        if inner.rpartition("/")[0] != config or not host:  # VHD-4: any name in the same route configuration
            raise UsageError(f"{label} must have a name that begins with {config + '/'!r}, not {inner!r}")
        return inner

    def made(self, job: Job, whose: Constraint, variant: Variant | None, now: float, ttl: float | None = None) -> bool:
        """The provider answered. None: there is nothing, which is an answer like any other. True: it had failed."""
        topic = self._end(job)
        failure = self._failures.pop((job.subject, job.category), None)
        self._say(job, now, "found" if variant is not None else "none", news=failure is not None)
        outdated = job.generation != topic.generation
        if not outdated or (variant is not None and topic.known.find(job.category) is None):
            self._learn(job, topic, Finding(whose, variant, stale=outdated, since=now), ttl)
        return failure is not None

    def _learn(self, job: Job, topic: _Topic, finding: Finding, ttl: float | None) -> None:
        """What was invalidated meanwhile is stale, but better than nothing."""
        before = topic.known
        old = next((each for each in before.findings if each.form == finding.form), None)
        if old is not None and alike(old.variant, finding.variant):
            finding = replace(finding, variant=old.variant)  # the object that was sent
        topic.known = MadeSet((finding, *(each for each in before.findings if each is not old)), before.troubles)
        self._compare(job, before, topic)
        if ttl is not None and not finding.stale:
            heappush(self._due, (finding.since + ttl, next(self._order), job.subject, finding))

    def _compare(self, job: Job, before: MadeSet, topic: _Topic) -> None:
        """Paths of one function are disjoint. If it says another thing each time, the newest counts (DESIGN 6.10)."""
        for category in topic.wanted:
            old, new = before.find(category), topic.known.find(category)
            if old is not None and new is not None and not old.stale and old.form != new.form:
                first = job.provider.type_url not in self._confused
                self._confused.add(job.provider.type_url)
                kept, other = show(unpadded(new.constraint)), show(unpadded(old.constraint))
                self.facts.append(Ambiguous(job.provider.type_url, job.name, kept, other, first))

    def failed(self, job: Job, message: str, now: float, random: float) -> bool:
        """It raised, or took too long, or what it made is no good. True: that is news.

        `random`: from [0, 1), so that not all try again at one time.
        """
        topic = self._end(job)
        key = job.subject, job.category
        failure = self._failures.get(key) or _Failure()
        news = failure.message != message
        self._say(job, now, "failed", news=news, error=message)
        if job.category in topic.wanted and job.generation == topic.generation:
            failure.message, failure.at = message, now + failure.backoff.next(random)
            self._failures[key] = failure
            heappush(self._due, (failure.at, next(self._order), job.subject, None))
        return news

    def dropped(self, job: Job) -> None:
        """Whoever ran it is no more. Others may want to know."""
        self._end(job)

    def _say(self, job: Job, now: float, result: Outcome, *, news: bool, error: str = "") -> None:
        label, seconds = job.provider.label, max(0.0, now - job.started)
        self.facts.append(Consulted(job.provider.type_url, job.name, label, result, seconds, error, news))


class ProvidingStore(Store):
    """A store whose contents may be made on demand."""

    def __init__(self, types: Iterable[TypeSpec] = ()) -> None:
        super().__init__(types)
        self.providing = Providing(self)

    def _own_table(self, spec: TypeSpec) -> Table:
        table = super()._own_table(spec)
        table.authoritative = not self.providing.makes(spec.url)
        return table


def _is_given(known: VariantSet | None) -> bool:
    return known is not None and not known.made


def _trouble(provider: Provider, category: Params, failure: _Failure) -> UpstreamProblem:
    whose = pins({key: category.get(key) for key in provider.keys})
    return UpstreamProblem(whose, UNAVAILABLE, f"{provider.label} failed: {failure.message}", unresolved=True)
