"""The client's machine: who watches what, which server is asked, and what a response means to whom.

Time and chance are arguments. Whoever drives it opens a stream to each upstream that is `wanted`, writes what `poll`
gives, hands in what was read, and calls `tick` when `deadline` is over. Watchers find their notices in their `Watch`.

Servers (gRFC A71): an authority asks the first server of its list. If that one can't be reached, and something that is
watched is neither cached nor known to be missing, it asks the next as well, and so on. The first server to answer makes
all that come after it in the list superfluous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

from ..errors import WatchError
from .asking import Answer, Asked
from .constraints import canonical
from .events import WILDCARD, Key, Rejection, ResourceError
from .expr import show
from .facts import Ambiguous, Fact, Lost, Reached, Rejected
from .responses import Arrival, Flaw, Identity, Response, judge
from .topic import Topic
from .types import TYPES, TypeSpec, TypeUrl, Variant
from .upstream import Held, Upstream
from .watching import Collection, Entry, State, Watch
from .xdstp import is_glob

INVALID_ARGUMENT = 3
NOT_FOUND, PERMISSION_DENIED = 5, 7

_STATUS = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


class Authority:
    """Whose names these are: the servers that know them, best first, and how many of those are in use."""

    def __init__(self, name: str, servers: Sequence[Upstream]) -> None:
        self.name = name
        self.servers = tuple(servers)
        self.active: tuple[Upstream, ...] = ()
        self.entries: dict[Entry, None] = {}

    @property
    def failing(self) -> WatchError | None:
        """Why nobody can be asked: the last server's reason, if all that are in use have failed."""
        failures = [upstream.failing for upstream in self.active]
        return failures[-1] if failures and all(failures) else None

    @property
    def lacks(self) -> bool:
        return any(entry.lacking for entry in self.entries)


class Subscriber:
    """Everything that a client watches."""

    def __init__(
        self,
        types: Iterable[TypeSpec] = (),
        *,
        verify_constraints: bool = False,
        recall: Callable[[Entry], Iterable[Variant]] = lambda _: (),
    ) -> None:
        self.facts: list[Fact] = []
        self.listeners: list[Callable[[Entry, Variant | None], None]] = []  # what an entry holds is another: was this
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        self.strict = verify_constraints  # DYN-56
        self._recall = recall
        self._topics: dict[TypeUrl, Topic] = {}
        self._expiries: list[tuple[float, int, Entry]] = []
        self._ticket = count()
        self._upstreams: list[Upstream] = []
        self._ambiguous: set[tuple[TypeUrl, Identity]] = set()

    # -- setting up

    def upstream(
        self, label: str, *, delta: bool, fail_on_data_errors: bool = False, timer_is_transient: bool = False
    ) -> Upstream:
        made = Upstream(
            label,
            self.spec,
            self._held,
            delta=delta,
            fail_on_data_errors=fail_on_data_errors,
            timer_is_transient=timer_is_transient,
        )
        self._upstreams.append(made)
        return made

    def spec(self, type_url: TypeUrl) -> TypeSpec:
        return self._specs.get(type_url) or TypeSpec(type_url)

    def entries(self) -> list[Entry]:
        return [entry for topic in self._topics.values() for entry in topic]

    # -- watchers

    def watch(self, watch: Watch, authority: Authority, type_url: TypeUrl, key: Key) -> None:
        topic = self._topics.get(type_url)
        if topic is None:
            topic = self._topics[type_url] = Topic(self.spec(type_url))
        entry = topic.find(key)
        if entry is not None:
            entry.watches.append(watch)
            entry.greet(watch)
        else:
            entry = self._enter(topic, Entry if not _is_collection(key) else Collection, authority, key, watch)
        watch.entries.append(entry)

    def unwatch(self, watch: Watch) -> None:
        for entry in watch.entries:
            entry.watches.remove(watch)
            if not entry.watches:
                self._leave(entry)
        watch.entries.clear()

    def _enter(self, topic: Topic, kind: type[Entry], authority: Authority, key: Key, watch: Watch) -> Entry:
        entry = kind(topic.spec.url, key, authority, [watch])
        topic.add(entry)
        authority.entries[entry] = None
        if not authority.active:
            self._activate(authority)
        else:
            for upstream in authority.active:
                upstream.want(entry.type_url, key)
            self._cope(authority, [entry])
        return entry

    def _leave(self, entry: Entry) -> None:
        del entry.authority.entries[entry]
        topic = self._topics[entry.type_url]
        topic.discard(entry)
        if not topic:
            del self._topics[entry.type_url]
        for upstream in entry.authority.active:
            upstream.unwant(entry.type_url, entry.key)
            upstream.timers.pop(entry, None)

    # -- servers

    def _activate(self, authority: Authority) -> None:
        """FBK-3: the next server is asked for everything that is watched."""
        upstream = authority.servers[len(authority.active)]
        authority.active = (*authority.active, upstream)
        upstream.users.add(authority)
        for entry in authority.entries:
            upstream.want(entry.type_url, entry.key)
        upstream.wake()
        if upstream.failing is not None:  # another authority uses it too, and knows already
            self._cope(authority, authority.entries)

    def _release(self, authority: Authority, kept: int) -> None:
        """FBK-4: the servers after the one that answered are not needed."""
        for upstream in authority.active[kept:]:
            upstream.users.discard(authority)
            for entry in authority.entries:
                upstream.unwant(entry.type_url, entry.key)
                upstream.timers.pop(entry, None)
            upstream.wake()
        authority.active = authority.active[:kept]

    def _cope(self, authority: Authority, entries: Iterable[Entry]) -> None:
        """With the failure of every server in use, if that is how things are."""
        error = authority.failing
        if error is None:
            return
        if len(authority.active) < len(authority.servers) and authority.lacks:
            self._activate(authority)  # FBK-1
            return
        for entry in [*entries]:  # FBK-2, FBK-5, CLI-17
            self._fall_back_on_disk(entry)
            entry.ail(error)

    def _fall_back_on_disk(self, entry: Entry) -> None:
        if not entry.lacking:
            return
        for variant in self._recall(entry):
            (entry.member(variant.name) if isinstance(entry, Collection) else entry).recall(variant)

    # -- streams

    def opened(self, upstream: Upstream, now: float) -> None:
        upstream.opened(now)
        self.facts.append(Reached(upstream.label))

    def ended(self, upstream: Upstream, error: WatchError, now: float, random: float) -> None:
        failed = upstream.ended(error, now, random)
        self.facts.append(Lost(upstream.label, str(error), failed))
        if failed:
            for authority in [*upstream.users]:
                self._cope(authority, authority.entries)

    def poll(self, upstream: Upstream, now: float) -> list[tuple[TypeUrl, Asked]]:
        """What to write now. Timers start with the request that first has a name (CLI-11)."""
        asked = upstream.poll()
        for type_url, request in asked:
            topic = self._topics.get(type_url)
            for key in request.fresh if topic is not None else ():
                entry = topic.find(key) if topic is not None else None
                if entry is not None and entry.lacking and not isinstance(entry, Collection):
                    upstream.timers[entry] = now + upstream.patience
        return asked

    def receive(self, upstream: Upstream, response: Response, now: float) -> None:
        if not upstream.asks(response.type_url):
            return  # NAK-22
        if upstream.heard():
            self._recovered(upstream)
        topic = self._topics.get(response.type_url) or Topic(self.spec(response.type_url))
        flaws = _Reading(self, topic, upstream, response, now).read()
        error = None
        if flaws:
            message = "; ".join(map(str, flaws))
            error = Rejection(INVALID_ARGUMENT, f"{len(flaws)} resources are invalid: {message}")  # NAK-17
            self.facts.append(Rejected(upstream.label, response.type_url, response.version, message))
        upstream.answer(response.type_url, Answer(response.nonce, response.version, error))

    def _recovered(self, upstream: Upstream) -> None:
        error, upstream.failing = upstream.failing, None
        for authority in [*upstream.users]:
            self._release(authority, authority.active.index(upstream) + 1)
        for entry in self.entries() if error is not None else ():
            if entry.error is error:
                entry.error = None  # nothing is wrong any more; who watches finds out by what comes

    def _held(self, upstream: Upstream, type_url: TypeUrl) -> Held:
        topic = self._topics.get(type_url)
        return topic.held(upstream) if topic is not None else Held({}, complete=True)

    # -- time

    def deadline(self) -> float | None:
        timers = [next(iter(upstream.timers.values())) for upstream in self._upstreams if upstream.timers]
        expiries = [self._expiries[0][0]] if self._expiries else []
        return min([*timers, *expiries], default=None)

    def tick(self, now: float) -> None:
        for upstream in self._upstreams:
            while upstream.timers and next(iter(upstream.timers.values())) <= now:
                entry = next(iter(upstream.timers))
                del upstream.timers[entry]
                self._time_out(entry, upstream, now)
        while self._expiries and self._expiries[0][0] <= now:
            due, _, entry = heappop(self._expiries)
            if entry.expires == due:
                self._expire(entry, now)

    def _time_out(self, entry: Entry, upstream: Upstream, now: float) -> None:
        what = f"{entry.name!r}: {upstream.label} has not answered in {upstream.patience:g} s"
        if upstream.timer_is_transient:  # CLI-14
            entry.fail(WatchError("UNAVAILABLE", what), State.TIMEOUT, now, drop=False)
        else:
            error = WatchError("NOT_FOUND", f"{what}, so it does not exist")
            entry.fail(error, State.DOES_NOT_EXIST, now, drop=False)

    def _expire(self, entry: Entry, now: float) -> None:
        """TTL-4. Whoever gave it a time to live meant that nobody should use it afterwards."""
        entry.expires = None
        self.drop(entry, WatchError("NOT_FOUND", f"{entry.name!r}: its time to live is over"), now)

    def lives(self, entry: Entry, ttl: float | None, now: float) -> None:
        entry.expires = now + ttl if ttl is not None else None
        if entry.expires is not None:
            heappush(self._expiries, (entry.expires, next(self._ticket), entry))

    # -- what befalls an entry

    def drop(self, entry: Entry, error: WatchError, now: float) -> None:
        self.fail(entry, error, State.DOES_NOT_EXIST, now, drop=True)

    def fail(self, entry: Entry, error: WatchError, state: State, now: float, *, drop: bool) -> None:
        """A resource is gone, or can't be had."""
        topic, before = self._topics[entry.type_url], entry.variant
        if drop:
            topic.forget_alias(entry)
            entry.expires = None
        entry.fail(error, state, now, drop=drop)
        if entry.variant is None:
            topic.left(entry)
        if drop and before is not None:
            self._changed(entry, before)

    def take(self, topic: Topic, entry: Entry, arrival: Arrival, upstream: Upstream, now: float) -> None:
        before = entry.variant
        topic.forget_alias(entry)
        upstream.timers.pop(entry, None)
        if entry.accept(arrival, upstream, now):
            self._changed(entry, before)
        topic.note_alias(entry)
        if arrival.ttl is not None or entry.expires is not None:
            self.lives(entry, arrival.ttl, now)

    def _changed(self, entry: Entry, before: Variant | None) -> None:
        for listener in self.listeners:
            listener(entry, before)

    def note_ambiguity(self, entry: Entry, kept: Variant, other: Variant) -> None:
        """DYN-45: the one received last wins; both are told of, once."""
        identity = (entry.type_url, (entry.name, canonical(other.constraint)))
        if identity not in self._ambiguous and len(self._ambiguous) < 10_000:
            self._ambiguous.add(identity)
            both = show(kept.constraint), show(other.constraint)
            self.facts.append(Ambiguous(entry.type_url, entry.name, *both, first=True))
        else:
            self.facts.append(Ambiguous(entry.type_url, entry.name, "", "", first=False))


class _Reading:
    """One response being read."""

    def __init__(
        self, subscriber: Subscriber, topic: Topic, upstream: Upstream, response: Response, now: float
    ) -> None:
        self._subscriber = subscriber
        self._topic = topic
        self._upstream = upstream
        self._response = response
        self._now = now
        self._touched: dict[Entry, Variant | None] = {}  # and what it was given

    def read(self) -> list[Flaw]:
        """Every good resource is used, whatever else is in the response (A46); returns what is wrong with the rest."""
        arrivals, flaws = judge(self._response)
        for arrival in arrivals:
            self._arrive(arrival, flaws)
        for flaw in flaws:
            self._refuse(flaw)
        for heartbeat in self._response.heartbeats:
            for entry in self._topic.about(heartbeat.identity, self._upstream):
                self._touched[entry] = None
                if entry.variant is not None:
                    self._subscriber.lives(entry, heartbeat.ttl, self._now)
        for error in self._response.errors:
            self._err(error)
        if self._upstream.delta:
            self._remove()
        elif self._topic.spec.full_state and all(flaw.name for flaw in flaws):  # NAK-27
            self._miss()
        self._topic.answered(self._upstream)
        return flaws

    def _arrive(self, arrival: Arrival, flaws: list[Flaw]) -> None:
        entries = self._topic.wanting(arrival, self._upstream, strict=self._subscriber.strict)
        if not entries and self._subscriber.strict and arrival.located and self._is_ours(arrival):
            variant = arrival.variant
            reason = f"its constraints ({show(variant.constraint)}) do not match the params that were sent"
            flaws.append(Flaw(variant.name, variant.constraint, reason, variant.version))  # DYN-56
        for entry in entries:  # none: CLI-7
            self._compare(entry, arrival)
            self._touched[entry] = arrival.variant
            self._subscriber.take(self._topic, entry, arrival, self._upstream, self._now)

    def _is_ours(self, arrival: Arrival) -> bool:
        return self._topic.has_located(arrival.variant.name, self._upstream)

    def _compare(self, entry: Entry, arrival: Arrival) -> None:
        """Two variants for one subscription. In delta one that is still held should have been withdrawn."""
        other = self._touched.get(entry)
        if other is None and self._upstream.delta and entry.source is self._upstream:
            other = entry.variant
            if other is not None and self._is_withdrawn(other):
                return
        if other is None or not arrival.located or entry.key[1] is None or other.name != arrival.variant.name:
            return
        if canonical(other.constraint) != canonical(arrival.variant.constraint):
            self._subscriber.note_ambiguity(entry, arrival.variant, other)

    def _is_withdrawn(self, variant: Variant) -> bool:
        identity = variant.identity
        return any((gone.name, canonical(gone.constraint)) == identity for gone in self._response.withdrawn)

    def _refuse(self, flaw: Flaw) -> None:
        if not flaw.name:
            return
        error = WatchError("INVALID_ARGUMENT", f"{flaw.name!r} from {self._upstream.label} is invalid: {flaw.reason}")
        for entry in self._topic.flawed(flaw, self._upstream):
            self._upstream.timers.pop(entry, None)  # NAK-21
            self._touched[entry] = None
            entry.refuse(error, flaw.version or self._response.version, self._now)

    def _err(self, error: ResourceError) -> None:
        """TP3. ERR-10: where the server is trusted with data errors, what it denies is dropped."""
        status = _STATUS[error.code] if error.code < len(_STATUS) else "UNKNOWN"
        drop = error.code in (NOT_FOUND, PERMISSION_DENIED) and self._upstream.fail_on_data_errors
        told = WatchError(status, error.message or f"{error.about.name!r}: {self._upstream.label} has an error for it")
        for entry in self._topic.denied(error.about, self._upstream):
            self._upstream.timers.pop(entry, None)  # ERR-8
            self._touched[entry] = None
            self._subscriber.fail(entry, told, State.RECEIVED_ERROR, self._now, drop=drop)

    def _remove(self) -> None:
        response, topic = self._response, self._topic
        gone: list[tuple[Identity, str]] = [((name, None), name) for name in response.removed]
        gone += [((each.name, canonical(each.constraint)), each.name) for each in response.withdrawn]
        for identity, name in gone:
            for entry in topic.withdrawn(identity, self._upstream):
                if entry not in self._touched:  # DYN-58: what replaces it has just come
                    self._touched[entry] = None
                    self._delete(entry, f"{name!r} does not exist on {self._upstream.label}")

    def _miss(self) -> None:
        """CLI-8: what a full response lacks is gone. CLI-9: what never came is not judged by that."""
        for entry in [*self._topic]:
            if entry not in self._touched and entry.variant is not None and self._upstream in entry.authority.active:
                self._delete(entry, f"{self._upstream.label} has removed {entry.name!r}")

    def _delete(self, entry: Entry, why: str) -> None:
        """CLI-15: the value is kept, unless the server is trusted with deletions."""
        self._upstream.timers.pop(entry, None)
        error = WatchError("NOT_FOUND", why)
        drop = self._upstream.fail_on_data_errors
        self._subscriber.fail(entry, error, State.DOES_NOT_EXIST, self._now, drop=drop)


def _is_collection(key: Key) -> bool:
    return key[0] == WILDCARD or is_glob(key[0])
