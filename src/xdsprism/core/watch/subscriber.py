"""Drive all watches of one client: which servers it asks, and which entries a response, a timer or an error concerns.

Sans-I/O: time and randomness are arguments. The caller (client/line.py) opens a stream to each upstream that is
`wanted`, writes the requests that `poll` returns, passes responses to `receive`, and calls `tick` when `deadline` is
over. Watchers find their notices in their `Watch`.

    watch / unwatch ─▶ want / unwant on each active upstream ─▶ poll ─▶ requests
    responses ─▶ receive ─▶ FormDetection ─▶ Reading ─▶ take / fail ─▶ Entry ─▶ Watch
    opened / ended ─▶ fallback, quarantine, ambient errors

The parts:

    ResourceCache            all entries; what each of them holds, and its TTL
    Fallback                 which servers of an authority are asked
    UnansweredSubscriptions  quarantine, timers and doubts
    FormDetection            in which form a server is asked
    Reading                  one response while it is applied
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...errors import WatchError
from ..model.dialect import Dialect
from ..model.events import Key, Rejection
from ..model.facts import LacksDelta, Lost, Reached, Rejected, SubscriptionQuarantined
from ..model.responses import Response
from ..model.steps import Steps, finish, pieces
from ..model.types import TypeSpec, TypeUrl
from ..model.xdstp import is_wild
from .apply_response import Reading
from .authority import Authority, Fallback, resubscribe
from .entry import Collection, Entry, Recalled, Watch, members_of
from .equivalent_removals import in_held_words
from .form_detection import FormDetection
from .quarantine import RETRY
from .requests import PORTION, AckOrNack, Asked
from .resource_cache import ResourceCache
from .unanswered import UnansweredSubscriptions, answer_timeout
from .upstream import Upstream

INVALID_ARGUMENT = 3

# Decides how to answer a valid response: a NACK or None for an ACK, and how many seconds to wait for a better answer.
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
        self.cache = ResourceCache(types, verify_constraints=verify_constraints)
        self.facts = self.cache.facts
        self.listeners = self.cache.listeners  # called with an entry and its former variant
        self.leavers: list[Callable[[Entry], None]] = []  # called with an entry that has no watcher any more
        self.review: Review | None = None  # how to answer a valid response (PRX-18)
        self._fallback = Fallback(self.cache, recall)
        self._unanswered = UnansweredSubscriptions(self.cache)
        self._form_detection = FormDetection(self.cache.topics, self.facts)
        self.upstreams: list[Upstream] = []

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
        wake: Callable[[Upstream], None] = lambda _: None,
    ) -> Upstream:
        """Make the state for one server of the bootstrap.

        delta: prefer the delta protocol. dialect: what is known about the server's form of subscriptions.
        fail_on_data_errors: drop a cached resource that the server deletes or denies (A88). timer_is_transient: a
        timeout does not mean that the resource does not exist (A88). trusted: the server is a `trusted_xds_server`
        (BST-6). wake: called when there is something to send, or the server is wanted, or not wanted any more.
        """
        made = Upstream(
            label,
            self.cache,
            delta=delta,
            dialect=dialect,
            fail_on_data_errors=fail_on_data_errors,
            timer_is_transient=timer_is_transient,
            trusted=trusted,
            wake=wake,
        )
        self.upstreams.append(made)
        return made

    @property
    def is_idle(self) -> bool:
        """Whether nothing is watched."""
        return not self.cache.topics

    def entries(self) -> list[Entry]:
        """Return all entries, with the members of collections."""
        return self.cache.entries()

    # -- watchers

    def watch(self, watch: Watch, authority: Authority, type_url: TypeUrl, key: Key) -> None:
        """Add a watcher of a resource, a wildcard or a glob; subscribe if it is the first one."""
        entry = self.cache.find((type_url, key))
        if entry is not None:
            entry.watches.append(watch)
            entry.tell_newcomer(watch)
        else:
            name, _ = key
            entry = Entry(type_url, key, authority, [watch])
            entry.collection = Collection(entry) if is_wild(name) else None
            self._subscribe(entry)
        watch.entries.append(entry)

    def unwatch(self, watch: Watch) -> None:
        """Remove a watcher from all its entries; unsubscribe where it was the last one."""
        for entry in watch.entries:
            entry.watches.remove(watch)
            if not entry.watches:
                self._unsubscribe(entry)
        watch.entries.clear()

    def ask_again(self, entry: Entry) -> None:
        """Subscribe to an entry anew, because nothing that servers said about it counts any more."""
        resubscribe(entry, self.cache.spec(entry.type_url))

    def presume_gone(self, entry: Entry, now: float) -> bool:
        """Doubt an entry because the variant that it shared is gone (PRX-34); return whether the doubt is new."""
        return self._unanswered.presume_gone(entry, now)

    def _subscribe(self, entry: Entry) -> None:
        """Subscribe to a new entry on each active server, and share what other entries have cached of it."""
        authority = entry.authority
        self.cache.add(entry)
        authority.entries[entry] = None
        if not authority.active:
            self._fallback.activate(authority)
        else:
            for upstream in authority.active:
                upstream.want(entry.type_url, entry.key)
            # The new entry may need a fallback, or hear at once that all servers are down, or that it is in quarantine.
            self._fallback.fall_back_or_report(authority, [entry])
            self._unanswered.note_quarantine(entry)
        self.cache.share_answer(entry)

    def _unsubscribe(self, entry: Entry) -> None:
        """Remove an unwatched entry, and unsubscribe from it."""
        for leaver in self.leavers:
            leaver(entry)
        del entry.authority.entries[entry]
        self.cache.discard(entry)
        for upstream in entry.authority.active:
            upstream.unwant(entry.type_url, entry.key)
            upstream.abandon(entry, members_of(entry))

    # -- servers

    def seek(self, authority: Authority) -> None:
        """Find a server that can be reached, before anything is subscribed."""
        authority.seeking = True
        if not authority.active:
            self._fallback.activate(authority)

    def stop_seeking(self, authority: Authority) -> None:
        """Release all servers of an authority, because nothing will be subscribed."""
        authority.seeking = False
        self._fallback.release(authority, 0)

    # -- streams

    def opened(self, upstream: Upstream, now: float) -> None:
        """Handle a new stream to a server."""
        upstream.opened(now)
        self._unanswered.send_released(upstream, now)
        for authority in upstream.users:
            authority.seeking = False
        self.facts.append(Reached(upstream.label))

    def ended(self, upstream: Upstream, error: WatchError, now: float, random: float) -> None:
        """Handle the end of a stream, or a failure to open one: fallback, errors to watchers, and quarantine."""
        # The server may only dislike the method or the form. Then ask in the other one at once, and suspect no
        # subscription.
        at_once = upstream.is_to_be_asked_otherwise(error)
        found = None
        self._form_detection.ended(upstream, error.status, now)
        # Otherwise a subscription may be the reason (quarantine.py).
        if not at_once:
            found = self._unanswered.find_culprit(upstream, error, now)
        reached = upstream.connected
        failed = upstream.ended(error, now, random, at_once=at_once)
        # The lack of delta is no lost server: the next stream uses SotW. Operators hear of it once.
        if not upstream.dialect.lacks_delta or not upstream.delta:
            self.facts.append(Lost(upstream.label, str(error), failed, reached))
        elif upstream.dialect.is_news(None):
            self.facts.append(LacksDelta(upstream.label))  # PRX-33
        if failed:
            for authority in [*upstream.users]:
                self._fallback.fall_back_or_report(authority, authority.entries)
        if found is not None:
            type_url, (name, params) = found.question
            self._form_detection.note_culprit(upstream, params, now)
            self.facts.append(SubscriptionQuarantined(upstream.label, type_url, name, found.error, RETRY))
            entry = self.cache.find(found.question)
            if entry is not None:
                self._unanswered.note_quarantine(entry)

    def poll(self, upstream: Upstream, now: float) -> list[tuple[TypeUrl, Asked]]:
        """Return the requests to write now; the timers of new subscriptions start with them (CLI-11)."""
        return finish(self.polling(upstream, now))

    def polling(self, upstream: Upstream, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """Do what `poll` does, in steps. The caller must not pass in a response until the last step is done."""
        self._unanswered.deny_unaskable(upstream, now)
        asked = yield from upstream.polling(now)
        for type_url, request in asked:
            for keys in pieces(request.fresh, PORTION):
                for entry in self.cache.topic(type_url).asked(keys, upstream):
                    upstream.pending.note_asked(entry, now, answer_timeout(upstream))
                if len(keys) == PORTION:
                    yield
        return asked

    def receive(self, upstream: Upstream, response: Response, now: float) -> None:
        """Apply one response of a server."""
        finish(self.receiving(upstream, response, now))

    def receiving(self, upstream: Upstream, response: Response, now: float) -> Steps[None]:
        """Do what `receive` does, in steps."""
        # A type that this stream never subscribed to is neither ACKed nor NACKed.
        if not upstream.requests.asks(response.type_url):
            return  # NAK-22
        upstream.answered_at = now
        # The first response proves that the server works: end the fallback and the errors of the outage.
        if upstream.note_response(response.server):
            self._fallback.recovered(upstream)
        # None while the form of the server is unknown; several when responses have waited for that.
        for each in self._form_detection.readable(upstream, response, now):
            yield from self._read(upstream, each, now)

    def _read(self, upstream: Upstream, response: Response, now: float) -> Steps[None]:
        """Apply one response whose form is known, and queue the ACK or NACK."""
        # An empty topic stands in for a type without watchers: the response still gets its ACK (NAK-23).
        topic = self.cache.topic(response.type_url)
        reading = Reading(self.cache, topic, upstream, in_held_words(response, topic, upstream), now)
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
        answer = AckOrNack(response.nonce, response.version, error)
        upstream.requests.answer(response.type_url, answer, now, fruitful=reading.fruitful, wait=wait)
        self._unanswered.send_released(upstream, now)

    # -- time

    def deadline(self) -> float | None:
        """Return when to call `tick` next; None: not before something else happens."""
        timers = [upstream.due for upstream in self.upstreams]
        return min((due for due in (self.cache.due, *timers) if due is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due: form decisions, held answers, quarantine, timers and TTLs."""
        for upstream in self.upstreams:
            # Plain answers have waited long enough for one in the form of locators: apply them now.
            for response in self._form_detection.tick(upstream, now):
                finish(self._read(upstream, response, now))
            upstream.requests.release(now)
            self._unanswered.send_released(upstream, now)
            self._unanswered.tick(upstream, now)
        self.cache.expire(now)
