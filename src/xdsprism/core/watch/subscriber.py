"""Drive all watches of one client: which servers it asks, and which entries a response, a timer or an error concerns.

Sans-I/O: time and randomness are arguments. The caller (client/line.py) opens a stream to each upstream that is
`wanted`, writes the requests that `poll` returns, passes responses to `receive`, and calls `tick` when `deadline` is
over. Watchers find their notices in their `Watch`.

    watch / unwatch ─▶ want / unwant on each active upstream ─▶ poll ─▶ requests
    responses ─▶ receive ─▶ FormDetection ─▶ Reading ─▶ take / fail ─▶ Entry ─▶ Watch
    opened / ended ─▶ fallback, quarantine, ambient errors

Fallback (gRFC A71): an authority asks the first server of its list. If that server can't be reached, and a watched
resource is neither cached nor known to be missing, the authority asks the next server as well, and so on. An authority
may be set to fall back whenever a server can't be reached, whatever is cached (gRFC A95). Once a server answers, the
servers behind it in the list are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ...errors import WatchError
from ...timer_heap import TimerHeap
from ..model.constraints import Constraint
from ..model.dialect import Dialect
from ..model.events import Key, Rejection
from ..model.facts import Fact, LacksDelta, Lost, Reached, Rejected, SubscriptionQuarantined
from ..model.responses import Arrival, Response
from ..model.steps import Steps, finish, pieces
from ..model.types import TYPES, TypeSpec, TypeUrl, Variant
from ..model.xdstp import is_wild
from .ambiguity import Ambiguities
from .apply_response import Reading
from .authority import Authority
from .entry import Collection, Entry, Recalled, State, Watch, members_of
from .equivalent_removals import in_held_words
from .form_detection import FormDetection
from .quarantine import RETRY, Question
from .requests import PORTION, Answer, Asked
from .upstream import Held, Upstream
from .watched_type import WatchedType

INVALID_ARGUMENT = 3

# Decides how to answer a valid response: a NACK or None for an ACK, and how many seconds to wait for a better verdict.
Review = Callable[[Upstream, Response, float], tuple[Rejection | None, float]]


class Subscriber:
    """Everything that a client watches, and the servers that it asks.

    types: resource types beyond the known ones, or in place of them. verify_constraints: reject a variant that does not
    match the params that were sent (DYN-56). recall: returns what an earlier run stored on disk about an entry, for
    when no server can be reached.

    `facts` collects what happened, for metrics and logs.
    """

    def __init__(
        self,
        types: Iterable[TypeSpec] = (),
        *,
        verify_constraints: bool = False,
        recall: Callable[[Entry], Recalled | None] = lambda _: None,
    ) -> None:
        self.facts: list[Fact] = []
        # Called with an entry and its former variant.
        self.listeners: list[Callable[[Entry, Variant | None], None]] = []
        self.leavers: list[Callable[[Entry], None]] = []  # called with an entry that nobody watches any more
        self.review: Review | None = None  # how to answer a valid response (PRX-18)
        self._specs = {spec.url: spec for spec in (*TYPES, *types)}
        self.strict = verify_constraints  # DYN-56
        self._recall = recall
        self._topics: dict[TypeUrl, WatchedType] = {}
        self._recognition = FormDetection(self._topics, self.facts)
        # Timers of TTLs. One whose time is not `entry.expires` is obsolete and ignored.
        self._expiries: TimerHeap[Entry] = TimerHeap()
        self._upstreams: list[Upstream] = []
        self.ambiguities = Ambiguities(self.facts)

    # -- setting up

    def upstream(
        self,
        label: str,
        *,
        delta: bool,
        dialect: Dialect | None = None,
        fail_on_data_errors: bool = False,
        timer_is_transient: bool = False,
        trusted: bool = False,
    ) -> Upstream:
        """Make the state for one server of the bootstrap.

        delta: prefer the delta protocol. dialect: what is known about the server's form of subscriptions.
        fail_on_data_errors: drop a cached resource that the server deletes or denies (A88). timer_is_transient: a
        timeout does not mean that the resource does not exist (A88). trusted: the server is a `trusted_xds_server`
        (BST-6).
        """
        made = Upstream(
            label,
            self,
            delta=delta,
            dialect=dialect,
            fail_on_data_errors=fail_on_data_errors,
            timer_is_transient=timer_is_transient,
            trusted=trusted,
        )
        self._upstreams.append(made)
        return made

    def spec(self, type_url: TypeUrl) -> TypeSpec:
        """Return what is known about a type; defaults for a type that is not known."""
        return self._specs.get(type_url) or TypeSpec(type_url)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is watched."""
        return not self._topics

    def entries(self) -> list[Entry]:
        """Return all entries, with the members of collections."""
        return [entry for topic in self._topics.values() for entry in topic]

    # -- watchers

    def watch(self, watch: Watch, authority: Authority, type_url: TypeUrl, key: Key) -> None:
        """Add a watcher of a resource, a wildcard or a glob; subscribe if it is the first one."""
        topic = self._topics.get(type_url)
        if topic is None:
            topic = self._topics[type_url] = WatchedType(self.spec(type_url))
        entry = topic.find(key)
        if entry is not None:
            entry.watches.append(watch)
            entry.greet(watch)
        else:
            entry = self._enter(topic, Collection if is_wild(key[0]) else Entry, authority, key, watch)
        watch.entries.append(entry)

    def unwatch(self, watch: Watch) -> None:
        """Remove a watcher from all its entries; unsubscribe where it was the last one."""
        for entry in watch.entries:
            entry.watches.remove(watch)
            if not entry.watches:
                self._leave(entry)
        watch.entries.clear()

    def ask_again(self, entry: Entry) -> None:
        """Subscribe to an entry anew, because nothing that servers said about it counts any more.

        Unsubscribing and subscribing makes a server send the resource again; where that could lose something, a new
        stream does.
        """
        members = members_of(entry)
        renewing = [upstream for upstream in entry.authority.active if self._needs_new_stream(entry, members, upstream)]
        entry.renew()
        for member in members:
            member.source = None  # so that a new stream does not claim their versions
        for upstream in entry.authority.active:
            if upstream in renewing:
                upstream.renew()
                continue
            upstream.note_answered(entry)  # not awaited until its new subscription goes out
            upstream.unwant(entry.type_url, entry.key)
            upstream.want(entry.type_url, entry.key)

    def _needs_new_stream(self, entry: Entry, members: Iterable[Entry], upstream: Upstream) -> bool:
        """Whether unsubscribing and subscribing again on the same stream could lose something."""
        if not upstream.delta:
            return self.spec(entry.type_url).full_state  # a full state in between would lack it, as if it were deleted
        # DLT-14: the stream began with the versions of the wildcard's members. A server that has yet to remove some of
        # them forgets them with the subscription, and hears of them only at the beginning of a stream (DLT-16).
        return any(member.variant is not None and not member.came_from(upstream) for member in members)

    def _enter(self, topic: WatchedType, kind: type[Entry], authority: Authority, key: Key, watch: Watch) -> Entry:
        """Make the entry of a new subscription, subscribe, and share what other entries have cached of it."""
        entry = kind(topic.spec.url, key, authority, [watch])
        topic.add(entry)
        authority.entries[entry] = None
        if not authority.active:
            self._activate(authority)
        else:
            for upstream in authority.active:
                upstream.want(entry.type_url, key)
            # The new entry may need a fallback, or hear at once that all servers are down, or that it is in quarantine.
            self._cope(authority, [entry])
            self._note_quarantine(entry)
        # A server may regard the resource as sent already and stay silent, so take it from an entry that has it.
        twin = topic.answered_for_all(entry)
        if twin is not None:
            self._share_all(entry, twin)
        elif isinstance(entry, Collection):
            for name, held in topic.held_by_name(entry).items():
                self._share(entry.member(name), held)
        elif (member := topic.held_by_collection(entry)) is not None:
            self._share(entry, member)
        return entry

    def _share(self, entry: Entry, held: Entry) -> None:
        """Give an entry the resource that another entry has (CLI-18).

        Servers in the field do not send it once more for the second subscription (WLD-10).
        """
        entry.adopt(held)
        if entry.expires is not None:
            self._expiries.set(entry, entry.expires)
        self._changed(entry, None)

    def _share_all(self, entry: Entry, twin: Entry) -> None:
        """Give an entry the answer that a server without params sent for other params (PRX-32)."""
        if isinstance(entry, Collection) and isinstance(twin, Collection):
            for name, held in twin.members.items():
                self._share(entry.member(name), held)
        self._share(entry, twin)

    def _leave(self, entry: Entry) -> None:
        """Remove an entry that nobody watches any more, and unsubscribe from it."""
        for leaver in self.leavers:
            leaver(entry)
        del entry.authority.entries[entry]
        for one in (entry, *members_of(entry)):
            one.expires = None
        topic = self._topics[entry.type_url]
        topic.discard(entry)
        if not topic:
            del self._topics[entry.type_url]
        for upstream in entry.authority.active:
            upstream.unwant(entry.type_url, entry.key)
            upstream.abandon(entry, members_of(entry))

    # -- servers

    def seek(self, authority: Authority) -> None:
        """Find a server that can be reached, before anything is subscribed."""
        authority.seeking = True
        if not authority.active:
            self._activate(authority)

    def rest(self, authority: Authority) -> None:
        """Release all servers of an authority, because nothing will be subscribed."""
        authority.seeking = False
        self._release(authority, 0)

    def _activate(self, authority: Authority) -> None:
        """Subscribe to everything that is watched on the next server of the authority (FBK-3), or on the first one."""
        upstream = authority.servers[len(authority.active)]
        authority.active = (*authority.active, upstream)
        upstream.users.add(authority)
        for entry in authority.entries:
            upstream.want(entry.type_url, entry.key)
        upstream.wake()
        if upstream.failing is not None:  # another authority uses this server, and found that it can't be reached
            self._cope(authority, authority.entries)

    def _release(self, authority: Authority, kept: int) -> None:
        """Unsubscribe on the servers behind the first `kept` ones (FBK-4)."""
        for upstream in authority.active[kept:]:
            upstream.users.discard(authority)
            for entry in authority.entries:
                upstream.unwant(entry.type_url, entry.key)
                upstream.abandon(entry, members_of(entry))
            upstream.wake()
        authority.active = authority.active[:kept]

    def _cope(self, authority: Authority, entries: Iterable[Entry]) -> None:
        """If all active servers have failed, fall back to the next one, or tell the watchers of these entries."""
        error = authority.failing
        if error is None:
            return
        # The next server may have what is missing, so watchers do not hear of the failure yet (FBK-5).
        if authority.wants_next_server:
            self._activate(authority)
            return
        for entry in [*entries]:  # FBK-2, FBK-5, CLI-17
            self._fall_back_on_disk(entry)
            entry.ail(error)

    def _fall_back_on_disk(self, entry: Entry) -> None:
        """Use the state that an earlier run stored, if the entry has nothing and no server can be reached."""
        recalled = self._recall(entry) if entry.lacking and entry.kept_at is None else None
        if recalled is None:
            return
        # Members of a collection, or the one variant of a name.
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
        """Handle a new stream to a server."""
        upstream.opened(now)
        self._ask_kept(upstream, now)
        for authority in upstream.users:
            authority.seeking = False
        self.facts.append(Reached(upstream.label))

    def _deny_unaskable(self, upstream: Upstream, now: float) -> None:
        """Treat resources that a server without delta can't serve as missing there (PRX-33, VHD-1)."""
        unaskable, upstream.unaskable[:] = upstream.unaskable[:], []
        for type_url, key in unaskable:
            topic = self._topics.get(type_url)
            entry = topic.find(key) if topic is not None else None
            if entry is not None and entry.lacking:
                what = f"{entry.name!r} is served incrementally only, and {upstream.label} has no delta method"
                self.fail(entry, WatchError("NOT_FOUND", what), State.DOES_NOT_EXIST, now, drop=False)

    def ended(self, upstream: Upstream, error: WatchError, now: float, random: float) -> None:
        """Handle the end of a stream, or a failure to open one: fallback, errors to watchers, and quarantine."""
        # The server may only dislike the method or the form. Then ask in the other one at once, and suspect no
        # subscription.
        at_once = upstream.is_to_be_asked_otherwise(error)
        found = None
        self._recognition.ended(upstream, error.status, now)
        # Otherwise a subscription may be the reason (quarantine.py).
        if not at_once:
            found = upstream.quarantine.ended(error.status, str(error), now, partial(self._is_open, upstream))
        reached = upstream.connected
        failed = upstream.ended(error, now, random, at_once=at_once)
        # The lack of delta is no lost server: the next stream uses SotW. Operators hear of it once.
        if not upstream.dialect.lacks_delta or not upstream.delta:
            self.facts.append(Lost(upstream.label, str(error), failed, reached))
        elif upstream.dialect.is_news(None):
            self.facts.append(LacksDelta(upstream.label))  # PRX-33
        if failed:
            for authority in [*upstream.users]:
                self._cope(authority, authority.entries)
        if found is not None:
            type_url, key = found.question
            self._recognition.blamed(upstream, key[1], now)
            self.facts.append(SubscriptionQuarantined(upstream.label, type_url, key[0], found.error, RETRY))
            entry = self._find(found.question)
            if entry is not None:
                self._note_quarantine(entry)

    # -- PRX-35: subscriptions for which a server ends the stream

    def _find(self, question: Question) -> Entry | None:
        """Return the entry of a subscription, if it is still watched."""
        topic = self._topics.get(question[0])
        return topic.find(question[1]) if topic is not None else None

    def _is_open(self, upstream: Upstream, question: Question) -> bool:
        """Whether a subscription is watched, and the server has said nothing about it on the current stream."""
        entry = self._find(question)
        if entry is None or entry.came_from(upstream):
            return False
        return entry.lacking or entry.usable

    def _ask_kept(self, upstream: Upstream, now: float) -> None:
        """Send the subscriptions that the quarantine releases now."""
        for question in upstream.quarantine.release(now, partial(self._is_open, upstream)):
            entry = self._find(question)
            if entry is not None and entry.state is State.RECEIVED_ERROR:
                entry.state = State.REQUESTED  # the quarantine's error was no answer of a server
            upstream.ask_kept(*question)

    def _note_quarantine(self, entry: Entry) -> None:
        """Tell watchers if every active server has the subscription in quarantine, and why."""
        held = [each.quarantine.find((entry.type_url, entry.key)) for each in entry.authority.active]
        if held and (last := held[-1]) is not None and all(held):
            what = f"{entry.name!r} is not asked for: {entry.authority.active[-1].label} ended the stream when it was"
            error = WatchError("UNAVAILABLE", f"{what} ({last.error})")
            self.fail(entry, error, State.RECEIVED_ERROR, last.until - RETRY, drop=False)

    def poll(self, upstream: Upstream, now: float) -> list[tuple[TypeUrl, Asked]]:
        """Return the requests to write now; the timers of new subscriptions start with them (CLI-11)."""
        return finish(self.polling(upstream, now))

    def polling(self, upstream: Upstream, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """Do what `poll` does, in steps. The caller must not pass in a response until the last step is done."""
        self._deny_unaskable(upstream, now)
        asked = yield from upstream.polling(now)
        for type_url, request in asked:
            for keys in pieces(request.fresh, PORTION):
                topic = self._topics.get(type_url)
                for entry in topic.asked(keys, upstream) if topic is not None else ():
                    upstream.note_asked(entry, now)
                if len(keys) == PORTION:
                    yield
        return asked

    def receive(self, upstream: Upstream, response: Response, now: float) -> None:
        """Apply one response of a server."""
        finish(self.receiving(upstream, response, now))

    def receiving(self, upstream: Upstream, response: Response, now: float) -> Steps[None]:
        """Do what `receive` does, in steps."""
        # A type that this stream never subscribed to is neither ACKed nor NACKed.
        if not upstream.asks(response.type_url):
            return  # NAK-22
        # The first response proves that the server works: end the fallback and the errors of the outage.
        if upstream.heard(response.server):
            self._recovered(upstream)
        # None while the form of the server is unknown; several when responses have waited for that.
        for each in self._recognition.readable(upstream, response, now):
            yield from self._read(upstream, each, now)

    def _read(self, upstream: Upstream, response: Response, now: float) -> Steps[None]:
        """Apply one response whose form is known, and queue the ACK or NACK."""
        # An empty topic stands in for a type that nobody watches any more: the response still gets its ACK (NAK-23).
        topic = self._topics.get(response.type_url) or WatchedType(self.spec(response.type_url))
        reading = Reading(self, topic, upstream, in_held_words(response, topic, upstream), now)
        flaws = yield from reading.read()
        error = None
        if flaws:
            message = "; ".join(map(str, flaws))
            error = Rejection(INVALID_ARGUMENT, f"{len(flaws)} resource(s) invalid: {message}")  # NAK-17
            nameless = tuple(flaw.reason for flaw in flaws if not flaw.name)
            self.facts.append(Rejected(upstream.label, response.type_url, response.version, message, nameless))
        wait = 0.0
        # A relay may hold back its ACK for a while, to report a NACK of its own clients (PRX-18).
        if error is None and self.review is not None:
            error, wait = self.review(upstream, response, now)
        answer = Answer(response.nonce, response.version, error)
        upstream.answer(response.type_url, answer, now, fruitful=reading.fruitful, wait=wait)
        self._ask_kept(upstream, now)

    def _recovered(self, upstream: Upstream) -> None:
        """Handle the first response of a stream: release lower servers, and clear the errors of the outage."""
        was_failing = upstream.failing is not None
        for authority in [*upstream.users]:
            # Only an error of the outage is over now. An error about the resource itself stays.
            failures = {each.failing for each in authority.active} - {None}  # watchers heard one of these
            self._release(authority, authority.active.index(upstream) + 1)
            for entry in authority.entries if was_failing else ():
                if entry.error in failures:
                    entry.recover()
        upstream.failing = None

    def held(self, upstream: Upstream, type_url: TypeUrl) -> Held:
        """Return the versions that the client holds of a type from this server."""
        return finish(self.find_held(upstream, type_url))

    def find_held(self, upstream: Upstream, type_url: TypeUrl) -> Steps[Held]:
        """Do what `held` does, in steps."""
        topic = self._topics.get(type_url)
        return (yield from topic.find_held(upstream)) if topic is not None else Held({}, complete=True)

    def is_listed(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a wildcard of the type has a member of this name."""
        topic = self._topics.get(type_url)
        return topic is not None and topic.is_listed(name)

    # -- time

    def deadline(self) -> float | None:
        """Return when to call `tick` next; None: not before something else happens."""
        timers = [upstream.timer_due for upstream in self._upstreams if upstream.timer_due is not None]
        # Drop obsolete items first, so that they wake nobody.
        while (first := self._expiries.first) is not None and first[1].expires != first[0]:
            self._expiries.cancel(first[1])  # the entry has no TTL any more
        expiries = [first[0]] if first is not None else []
        answers = [upstream.answer_due for upstream in self._upstreams if upstream.answer_due is not None]
        kept = [upstream.quarantine.due for upstream in self._upstreams if upstream.quarantine.due is not None]
        forms = [upstream.form_due for upstream in self._upstreams if upstream.form_due is not None]
        return min([*timers, *expiries, *answers, *kept, *forms], default=None)

    def tick(self, now: float) -> None:
        """Do what is due: form decisions, held answers, quarantine, timers and TTLs."""
        for upstream in self._upstreams:
            # Plain answers have waited long enough for one in the form of locators: apply them now.
            for response in self._recognition.tick(upstream, now):
                finish(self._read(upstream, response, now))
            upstream.release(now)
            self._ask_kept(upstream, now)
            # Before the timers: they began at the same time, and are shorter.
            for entry in upstream.over(upstream.doubts, now):
                if entry.doubted is not None:
                    self._confirm(entry, entry.doubted, upstream, now)
            for entry in upstream.over(upstream.timers, now):
                if entry.unanswered:  # not if another server has answered meanwhile
                    self._time_out(entry, upstream, now)
        while (first := self._expiries.first) is not None and first[0] <= now:
            due, entry = first
            self._expiries.cancel(entry)
            if entry.expires == due:
                self._expire(entry, now)

    def _time_out(self, entry: Entry, upstream: Upstream, now: float) -> None:
        """Handle an unanswered subscription: the resource does not exist (CLI-11), or may come later (CLI-14)."""
        what = f"{entry.name!r}: {upstream.label} has not answered in {upstream.patience:g} s"
        if upstream.timer_is_transient and entry not in upstream.passed_over:  # CLI-14
            entry.fail(WatchError("UNAVAILABLE", what), State.TIMEOUT, now, drop=False)
        else:
            error = WatchError("NOT_FOUND", f"{what}, so it does not exist")
            self.fail(entry, error, State.DOES_NOT_EXIST, now, drop=upstream.fail_on_data_errors)

    def doubt(self, entry: Entry, error: WatchError, now: float) -> None:
        """Note that the resource may be gone; each active server has MOMENT seconds to send it."""
        entry.doubt(error)
        for upstream in entry.authority.active:
            upstream.doubt(entry, now)

    def presume_gone(self, entry: Entry, now: float) -> bool:
        """Doubt an entry that waits for an answer, because the variant that it shared is gone (PRX-34).

        The silence of the server then means that there is none; but not where a server always answers, nor in SotW for
        a type that is not full state (SOT-7). Return whether the doubt is new.
        """
        full_state = self.spec(entry.type_url).full_state
        telling = (full_state if not each.delta else not each.pins_absence for each in entry.authority.active)
        news = entry.doubted is None and any(telling)
        if news:
            self.doubt(entry, WatchError("NOT_FOUND", f"{entry.name!r} does not exist any more"), now)
        return news

    def _confirm(self, entry: Entry, error: WatchError, upstream: Upstream, now: float) -> None:
        """Report a doubted resource as missing, because the server stayed silent."""
        upstream.note_answered(entry)
        state = State.DOES_NOT_EXIST if error.status == "NOT_FOUND" else State.RECEIVED_ERROR
        self.fail(entry, error, state, now, drop=upstream.fail_on_data_errors)

    def _expire(self, entry: Entry, now: float) -> None:
        """Drop a resource whose TTL is over, and tell watchers (TTL-4).

        The server set the TTL so that no client uses the resource any longer.
        """
        entry.expires = None
        self.drop(entry, WatchError("NOT_FOUND", f"{entry.name!r}: its time to live is over"), now)

    def lives(self, entry: Entry, ttl: float | None, now: float) -> None:
        """Set or clear the TTL of an entry, from now on."""
        entry.expires = now + ttl if ttl is not None else None
        entry.unsettle()
        if entry.expires is not None:
            self._expiries.set(entry, entry.expires)

    # -- changes of an entry

    def drop(self, entry: Entry, error: WatchError, now: float) -> None:
        """Report a resource as missing, and drop the cached one."""
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
        """Report a resource as missing or as an error; `drop`: forget the cached one.

        `absence`: params for which it does not exist, if the server said so. Return whether watchers were told.
        """
        topic, before = self._topics[entry.type_url], entry.variant
        # A dropped resource has no name to be found by, and no TTL to run out.
        if drop:
            topic.forget_alias(entry)
            entry.expires = None
        entry.absence = absence
        news = entry.fail(error, state, now, drop=drop)
        if entry.variant is None:
            topic.left(entry)
        # Also if there was nothing before: listeners learn that the entry has its answer.
        if entry.variant is None or entry.variant is not before:
            self._changed(entry, before)
        return news

    def take(self, topic: WatchedType, entry: Entry, arrival: Arrival, upstream: Upstream, now: float) -> bool:
        """Give a valid resource to an entry; return whether watchers were told."""
        before, was_kept = entry.variant, entry.kept_at is not None
        topic.forget_alias(entry)
        upstream.note_answered(entry)
        # A server that knows no params answered for all params: entries with others may share it (PRX-32).
        entry.for_all = upstream.by_names
        news = entry.accept(arrival, upstream, now)
        if arrival.ttl is not None or entry.expires is not None:
            self.lives(entry, arrival.ttl, now)
        if was_kept or entry.variant is not before:
            self._changed(entry, before)
        topic.note_taken(entry)
        return news

    def answered(self, collection: Collection) -> None:
        """Note that a server has answered a collection, which may have been from disk until now."""
        collection.kept_at = None
        self._changed(collection, None)

    def _changed(self, entry: Entry, before: Variant | None) -> None:
        """Tell the listeners that an entry holds another variant."""
        for listener in self.listeners:
            listener(entry, before)
        if before is None or entry.holds(before.name):
            return
        other = self._topics[entry.type_url].another(before, entry)
        if other is not None:  # VHD-12: one string lost the virtual host, another still has it
            for listener in self.listeners:
                listener(other, other.variant)
