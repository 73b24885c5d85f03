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
from .constraints import Constraint, canonical
from .events import WILDCARD, Key, Rejection
from .expr import show
from .facts import Ambiguous, Fact, Lost, Reached, Rejected
from .reading import Reading
from .responses import Arrival, Response
from .topic import Topic
from .types import TYPES, TypeSpec, TypeUrl, Variant
from .upstream import Held, Upstream
from .watching import Collection, Entry, Recalled, State, Watch
from .xdstp import is_glob

INVALID_ARGUMENT = 3


class Authority:
    """Whose names these are: the servers that know them, best first, and how many of those are in use."""

    def __init__(self, name: str, servers: Sequence[Upstream]) -> None:
        self.name = name
        self.servers = tuple(dict.fromkeys(servers))
        self.active: tuple[Upstream, ...] = ()
        self.seeking = False  # a server is to be found, whether anything is asked or not
        self.entries: dict[Entry, None] = {}

    @property
    def failing(self) -> WatchError | None:
        """Why nobody can be asked: the last server's reason, if all that are in use have failed.

        One that is connected again can be asked, answered or not: where nothing is newer, a server has nothing to say.
        """
        failures = [None if upstream.connected else upstream.failing for upstream in self.active]
        return failures[-1] if failures and all(failures) else None

    @property
    def lacks(self) -> bool:
        return self.seeking or any(entry.lacking for entry in self.entries)


class Subscriber:
    """Everything that a client watches."""

    def __init__(
        self,
        types: Iterable[TypeSpec] = (),
        *,
        verify_constraints: bool = False,
        recall: Callable[[Entry], Recalled | None] = lambda _: None,
    ) -> None:
        self.facts: list[Fact] = []
        self.listeners: list[Callable[[Entry, Variant | None], None]] = []  # what an entry holds is another: was this
        self.leavers: list[Callable[[Entry], None]] = []  # nobody watches it any more
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        self.strict = verify_constraints  # DYN-56
        self._recall = recall
        self._topics: dict[TypeUrl, Topic] = {}
        self._expiries: list[tuple[float, int, Entry]] = []
        self._ticket = count()
        self._upstreams: list[Upstream] = []
        self._ambiguous: set[tuple[TypeUrl, str, frozenset[Constraint]]] = set()

    # -- setting up

    def upstream(
        self,
        label: str,
        *,
        delta: bool,
        fail_on_data_errors: bool = False,
        timer_is_transient: bool = False,
        formless: bool = False,
    ) -> Upstream:
        made = Upstream(
            label,
            self.spec,
            self._held,
            delta=delta,
            fail_on_data_errors=fail_on_data_errors,
            timer_is_transient=timer_is_transient,
            formless=formless,
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

    def ask_again(self, entry: Entry) -> None:
        """Nothing that was said of it counts any more."""
        entry.state, entry.source, entry.verdict = State.REQUESTED, None, None
        for member in entry.members.values() if isinstance(entry, Collection) else ():
            member.source = None  # or a new stream would begin with what need not be sent
        for upstream in entry.authority.active:
            if self.spec(entry.type_url).full_state and not upstream.delta:
                upstream.renew()  # what is not asked for in between would look as if it were gone
                continue
            upstream.unwant(entry.type_url, entry.key)
            upstream.want(entry.type_url, entry.key)

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
        if isinstance(entry, Collection):
            for name, held in topic.held_by_name(entry).items():
                self._share(entry.member(name), held)
        elif (member := topic.held_by_collection(entry)) is not None:
            self._share(entry, member)
        return entry

    def _share(self, entry: Entry, held: Entry) -> None:
        """CLI-18: what is held of it already. Servers in the field do not send that once more (WLD-10)."""
        entry.adopt(held)
        if entry.expires is not None:
            heappush(self._expiries, (entry.expires, next(self._ticket), entry))
        self._changed(entry, None)

    def _leave(self, entry: Entry) -> None:
        for leaver in self.leavers:
            leaver(entry)
        del entry.authority.entries[entry]
        members = entry.members.values() if isinstance(entry, Collection) else ()
        for one in (entry, *members):
            one.expires = None
        topic = self._topics[entry.type_url]
        topic.discard(entry)
        if not topic:
            del self._topics[entry.type_url]
        for upstream in entry.authority.active:
            upstream.unwant(entry.type_url, entry.key)
            upstream.timers.pop(entry, None)

    # -- servers

    def seek(self, authority: Authority) -> None:
        """Find a server that can be reached, before anything is asked of it."""
        authority.seeking = True
        if not authority.active:
            self._activate(authority)

    def rest(self, authority: Authority) -> None:
        """Nothing will be asked of it: its servers are let go of."""
        authority.seeking = False
        self._release(authority, 0)

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
        recalled = self._recall(entry) if entry.lacking and entry.kept_at is None else None
        if recalled is None:
            return
        for variant in recalled.variants:
            held = entry.member(variant.name) if isinstance(entry, Collection) else entry
            held.recall(variant, recalled.since)
            self._changed(held, None)
        if recalled.absent:
            entry.recall_absence(recalled.absence, recalled.since)
            self._changed(entry, None)
        if recalled.whole:
            entry.kept_at = recalled.since
            self._changed(entry, None)

    # -- streams

    def opened(self, upstream: Upstream, now: float) -> None:
        upstream.opened(now)
        for authority in upstream.users:
            authority.seeking = False
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
                if entry is not None and entry.unanswered and not isinstance(entry, Collection):
                    upstream.timers[entry] = now + upstream.patience
        return asked

    def receive(self, upstream: Upstream, response: Response, now: float) -> None:
        if not upstream.asks(response.type_url):
            return  # NAK-22
        if upstream.heard():
            self._recovered(upstream)
        topic = self._topics.get(response.type_url) or Topic(self.spec(response.type_url))
        reading = Reading(self, topic, upstream, response, now)
        flaws = reading.read()
        error = None
        if flaws:
            message = "; ".join(map(str, flaws))
            error = Rejection(INVALID_ARGUMENT, f"{len(flaws)} resource(s) invalid: {message}")  # NAK-17
            nameless = tuple(flaw.reason for flaw in flaws if not flaw.name)
            self.facts.append(Rejected(upstream.label, response.type_url, response.version, message, nameless))
        answer = Answer(response.nonce, response.version, error)
        upstream.answer(response.type_url, answer, now, fruitful=reading.fruitful)

    def _recovered(self, upstream: Upstream) -> None:
        was_failing = upstream.failing is not None
        for authority in [*upstream.users]:
            failures = {each.failing for each in authority.active} - {None}  # watchers were told one of these
            self._release(authority, authority.active.index(upstream) + 1)
            for entry in authority.entries if was_failing else ():
                if entry.error in failures:
                    entry.recover()
        upstream.failing = None

    def _held(self, upstream: Upstream, type_url: TypeUrl) -> Held:
        topic = self._topics.get(type_url)
        return topic.held(upstream) if topic is not None else Held({}, complete=True)

    # -- time

    def deadline(self) -> float | None:
        timers = [upstream.timer_due for upstream in self._upstreams if upstream.timer_due is not None]
        while self._expiries and self._expiries[0][2].expires != self._expiries[0][0]:
            heappop(self._expiries)  # it lives longer by now, or is gone
        expiries = [self._expiries[0][0]] if self._expiries else []
        answers = [upstream.answer_due for upstream in self._upstreams if upstream.answer_due is not None]
        return min([*timers, *expiries, *answers], default=None)

    def tick(self, now: float) -> None:
        for upstream in self._upstreams:
            upstream.release(now)
            while upstream.timer_due is not None and upstream.timer_due <= now:
                entry, _ = upstream.timers.popitem(last=False)
                if entry.unanswered:  # and another server has not given it meanwhile
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
            self.fail(entry, error, State.DOES_NOT_EXIST, now, drop=upstream.fail_on_data_errors)

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

    def fail(
        self,
        entry: Entry,
        error: WatchError,
        state: State,
        now: float,
        *,
        drop: bool,
        absence: Constraint | None = None,
    ) -> bool:
        """A resource is gone, or can't be had; `absence`: for whom, where the server said that."""
        topic, before = self._topics[entry.type_url], entry.variant
        if drop:
            topic.forget_alias(entry)
            entry.expires = None
        entry.absence = absence
        news = entry.fail(error, state, now, drop=drop)
        if entry.variant is None:
            topic.left(entry)
        if entry.variant is None or entry.variant is not before:
            self._changed(entry, before)
        return news

    def take(self, topic: Topic, entry: Entry, arrival: Arrival, upstream: Upstream, now: float) -> bool:
        before, was_kept = entry.variant, entry.kept_at is not None
        topic.forget_alias(entry)
        upstream.timers.pop(entry, None)
        news = entry.accept(arrival, upstream, now)
        if arrival.ttl is not None or entry.expires is not None:
            self.lives(entry, arrival.ttl, now)
        if was_kept or entry.variant is not before:
            self._changed(entry, before)
        topic.note_alias(entry)
        return news

    def answered(self, collection: Collection) -> None:
        """A server has begun to answer for it."""
        collection.kept_at = None
        self._changed(collection, None)

    def _changed(self, entry: Entry, before: Variant | None) -> None:
        for listener in self.listeners:
            listener(entry, before)
        if before is None or entry.holds(before.name):
            return
        other = self._topics[entry.type_url].another(before, entry)
        if other is not None:  # VHD-12: by this string it is gone, by that it is still there
            for listener in self.listeners:
                listener(other, other.variant)

    def note_ambiguity(self, entry: Entry, kept: Variant, other: Variant) -> None:
        """DYN-45: the one received last wins; both are told of, once."""
        pair = (entry.type_url, entry.name, frozenset(map(canonical, (kept.constraint, other.constraint))))
        if pair not in self._ambiguous and len(self._ambiguous) < 10_000:
            self._ambiguous.add(pair)
            both = show(kept.constraint), show(other.constraint)
            self.facts.append(Ambiguous(entry.type_url, entry.name, *both, first=True))
        else:
            self.facts.append(Ambiguous(entry.type_url, entry.name, "", "", first=False))


def _is_collection(key: Key) -> bool:
    return key[0] == WILDCARD or is_glob(key[0])
