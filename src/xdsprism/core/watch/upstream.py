"""Keep the client's state for one server: the stream, the subscriptions on it, the timers, and when to reconnect.

    opened ──▶ poll ... receive ... answer ──▶ ended ──▶ (retry_at) ──▶ opened ...

The wanted subscriptions outlive streams, and so does the SotW version of the last ACKed response of each type (CLI-5).
Everything else begins anew with each stream.

Timers. `timers` (CLI-11) fire if a server does not answer a subscription in 15 s; `doubts` fire if it says nothing new
about a resource that may be gone, in MOMENT seconds. Time during which the client does not read the stream does not
count (CLI-20): `_deaf` sums it up, and every timer is stored without it.

How the client reconnects after a stream has ended:

    stream                                            next attempt            failure (watchers may hear of it)
    ------------------------------------------------  ----------------------  ---------------------------------
    got a response                                    at once                 no (CLI-16)
    got a response, twice in a row for under HASTY s  after a backoff         no
    got none, and the form or method is to blame      at once, in another one no
    got none, or could not be opened                  after a backoff         yes (CLI-17)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...errors import WatchError
from ..model.backoff import Backoff
from ..model.constraints import Constraint
from ..model.dialect import PATIENCE, Dialect, RequestForm, without_plain
from ..model.events import WILDCARD, Key, Rejection
from ..model.responses import Response
from ..model.settings import RELAY, SERVER
from ..model.steps import Steps, finish
from ..model.types import TypeSpec, TypeUrl
from .quarantine import Quarantine
from .request_keys import RequestKeys, worded
from .request_pacing import Pace
from .requests import Answer, Asked, DeltaRequestBuilder, RequestBuilder, SotwRequestBuilder

if TYPE_CHECKING:
    from .authority import Authority
    from .entry import Entry

Thing = TypeVar("Thing")

# Seconds: a stream that lasted as long without a response resets the backoff, as a server without news is silent.
LASTING = 60.0
UNIMPLEMENTED, UNAVAILABLE = "UNIMPLEMENTED", "UNAVAILABLE"
HASTY = 1.0  # seconds: after two streams in a row that lasted less, the next one waits for a backoff
ON_THEIR_WAY = 64  # dropped subscriptions to remember: only for the last few can a response still be in flight
MOMENT = 2.0  # seconds: a server that says nothing for longer confirms a doubt


@dataclass(frozen=True, slots=True)
class Held:
    """The cached resources of one type from one server: versions by name, and whether nothing subscribed is missing."""

    versions: Mapping[str, str]
    complete: bool


class Holdings(Protocol):
    """What an upstream needs to know about types and cached resources, from whichever server they came."""

    def spec(self, type_url: TypeUrl) -> TypeSpec: ...

    def held(self, upstream: Upstream, type_url: TypeUrl) -> Held: ...

    def find_held(self, upstream: Upstream, type_url: TypeUrl) -> Steps[Held]:
        """Do what `held` does, in steps."""

    def is_listed(self, type_url: TypeUrl, name: str) -> bool:
        """Whether the wildcard has a member of this name."""


class Upstream:
    """One server; authorities with an equal server entry share it (XTP-13)."""

    def __init__(
        self,
        label: str,
        holdings: Holdings,
        *,
        delta: bool,
        dialect: Dialect | None = None,
        fail_on_data_errors: bool = False,
        timer_is_transient: bool = False,
        trusted: bool = False,
    ) -> None:
        self.label = label
        self.delta = delta  # whether the current stream, or else the next one, uses delta
        self.dialect = dialect if dialect is not None else Dialect()
        self.fail_on_data_errors = fail_on_data_errors
        self.timer_is_transient = timer_is_transient
        self.full_state_decides = False  # PRX-34: a subscription that timed out is gone if a full state lacks it
        self.trusted = trusted  # BST-6: the bootstrap calls it a `trusted_xds_server`
        self.users: set[Authority] = set()
        # The server is a relay: an absence may hold for fewer params than its constraints say (PRX-31).
        self.is_relay = False
        # An absence without constraints from this server holds for all params (DYN-11, PRX-31).
        self.pins_absence = False
        # When each entry's timer ends, without the time of `_deaf`. All timers of a kind have one length, so both are
        # in the order in which they end.
        self.timers: OrderedDict[Entry, float] = OrderedDict()
        self.doubts: OrderedDict[Entry, float] = OrderedDict()  # of entries with `Entry.doubted`
        self.awaited: set[Entry] = set()  # subscribed on this stream, and not answered yet
        self.passed_over: set[Entry] = set()  # of these, those that a later full state lacked
        # Locators that were unsubscribed before an answer: the answer may still be in flight.
        self.abandoned: dict[tuple[TypeUrl, str], None] = {}
        # Locators that were unsubscribed, answered or not: an update may be in flight.
        self.let_go: dict[tuple[TypeUrl, str], None] = {}
        # Variants from this stream that no entry with the same key holds any more: their removal may still be in
        # flight.
        self.outlived: dict[tuple[TypeUrl, str, Constraint], None] = {}
        self.failing: WatchError | None = None  # why the last stream got no response
        self.lost: tuple[float, WatchError] | None = None  # when and how the last stream ended
        self.parted: float | None = None  # when the last stream that was open ended
        self.connected = False
        self.is_spent = False  # this stream is to be closed and replaced by a new one
        self.streams = 0  # number of streams opened so far; identifies the current one
        self.retry_at = 0.0
        self.wake: Callable[[], None] = lambda: None
        self.quarantine = Quarantine()
        self.reported_nacks = 0  # PRX-18: NACKs of clients that were reported to this server
        self._unsaid: dict[TypeUrl, list[Key]] = {}  # wanted, and in no request on this stream yet
        self.waiting: list[Response] = []  # plain answers that wait until the form is known (PRX-32)
        self.waits_until = 0.0
        self.form = RequestForm.UNKNOWN  # of the requests on this stream
        self.was_by_names = False  # on some stream a plain answer was for all params (PRX-32)
        self.has_located = False  # a response on this stream was in the form of locators
        # Subscriptions with only a plain answer: until when to wait for another.
        self.owed: dict[tuple[TypeUrl, str], float] = {}
        self.unaskable: list[tuple[TypeUrl, Key]] = []  # wanted, but SotW can't subscribe to this type
        self._prefers_delta = delta
        self._holdings = holdings
        # These two outlive streams: the wanted subscriptions, and the SotW version of the last ACKed response (CLI-5).
        self._wants: dict[TypeUrl, dict[Key, None]] = {}
        self._versions: dict[TypeUrl, str] = {}
        # The rest belongs to the current stream, by type: request builder, keys on the wire, pace of the answers.
        self._asking: dict[TypeUrl, RequestBuilder] = {}
        self._wordings: dict[TypeUrl, RequestKeys] = {}
        self._paces: dict[TypeUrl, Pace] = {}
        # Answers held back, with the time at which each goes out.
        self._answers: list[tuple[float, TypeUrl, Answer]] = []
        self._backoff = Backoff()
        self._answered = False
        self._opened_at = 0.0
        self._was_hasty = False
        self._deaf_since: float | None = None
        self._deaf = 0.0  # seconds for which the client did not read, in total

    @property
    def wanted(self) -> bool:
        """Whether there should be a stream. A stream without subscriptions stays open, but is not opened again."""
        sought = any(user.seeking for user in self.users)
        return bool(self.users) and (self.connected or sought or any(self._wants.values()))

    @property
    def since(self) -> float | None:
        """When the current stream was opened; None: there is none."""
        return self._opened_at if self.connected else None

    @property
    def subscriptions(self) -> int:
        """The number of wanted subscriptions, of all types."""
        return sum(map(len, self._wants.values()))

    @property
    def patience(self) -> float:
        """Seconds until an unanswered subscription times out (CLI-11), or is a transient error (CLI-14)."""
        return 30.0 if self.timer_is_transient else 15.0

    @property
    def timer_due(self) -> float | None:
        """When the first timer ends; None while the client does not read, since the answer may be unread (CLI-20)."""
        if self._deaf_since is not None:
            return None
        first = min((next(iter(running.values())) for running in (self.timers, self.doubts) if running), default=None)
        return first + self._deaf if first is not None else None

    def over(self, running: OrderedDict[Entry, float], now: float) -> Iterator[Entry]:
        """Remove and yield the entries whose time is over."""
        while running and self._deaf_since is None and next(iter(running.values())) + self._deaf <= now:
            yield running.popitem(last=False)[0]

    def stop_reading(self, now: float) -> None:
        """Stop the clock of the timers, while watchers take a response."""
        self._deaf_since = now

    def read_on(self, now: float) -> None:
        """Start the clock of the timers again; the pause does not count."""
        if self._deaf_since is not None:
            self._deaf += now - self._deaf_since
        self._deaf_since = None

    def note_asked(self, entry: Entry, now: float) -> None:
        """Start the timer of an entry whose subscription goes out now."""
        self.awaited.add(entry)
        entry.unsettle()
        if entry.unanswered:
            self.timers[entry] = now - self._deaf + self.patience
        if entry.doubted is not None:
            self.doubt(entry, now)

    def note_answered(self, entry: Entry) -> None:
        """Stop the timers of an entry that the server answered, or that nobody wants any more."""
        self.awaited.discard(entry)
        self.passed_over.discard(entry)
        self.timers.pop(entry, None)
        self.doubts.pop(entry, None)

    def abandon(self, entry: Entry, members: Iterable[Entry] = ()) -> None:
        """Forget an entry that nobody wants any more, with the members of a collection.

        Remember its locator for a while: a response that was in flight must not be taken for the answer to another one.
        """
        if entry.key[1] is not None:
            _note_last(self.let_go, (entry.type_url, entry.name))
            if entry in self.awaited:
                _note_last(self.abandoned, (entry.type_url, entry.name))
        self.outlive(entry)
        for each in (entry, *members):
            self.note_answered(each)

    def outlive(self, entry: Entry) -> None:
        """Remember the variant that an entry is about to lose: the server may still send its removal."""
        if self.delta and entry.variant is not None and entry.came_from(self) and entry.key[1] is not None:
            _note_last(self.outlived, (entry.type_url, *entry.variant.identity))

    def doubt(self, entry: Entry, now: float) -> None:
        """Start the short timer of a doubted entry, if the server has its subscription."""
        if entry in self.awaited:
            self.doubts.setdefault(entry, now - self._deaf + MOMENT)

    def want(self, type_url: TypeUrl, key: Key) -> None:
        """Subscribe to a key, now and on every later stream."""
        self._wants.setdefault(type_url, {})[key] = None
        if self.connected and self.quarantine.admits((type_url, key)):
            self._ask(type_url, key)
        self.wake()

    def ask_kept(self, type_url: TypeUrl, key: Key) -> None:
        """Send a subscription that the quarantine kept back, if it is still wanted."""
        if key in self._wants.get(type_url, {}):
            self._ask(type_url, key)
            self.wake()

    def _ask(self, type_url: TypeUrl, key: Key) -> None:
        """Pass a subscription to the request builder of its type."""
        asking = self._asking.get(type_url)
        if self._lacks(type_url):
            self.unaskable.append((type_url, key))
        elif asking is None:
            self._begin(type_url)
        else:
            self._unsaid.setdefault(type_url, []).append(key)
            for each in self._wordings[type_url].want(key):
                asking.want(each)
            # CLI-4: a server may ignore a request without its newest nonce, so release held ACKs first.
            if not self.delta:
                for _, _, answer in [each for each in self._answers if each[1] == type_url and each[2].is_reviewed]:
                    self.decide_answer(type_url, answer.nonce, None)

    def unwant(self, type_url: TypeUrl, key: Key) -> None:
        """Unsubscribe from a key."""
        self._wants.get(type_url, {}).pop(key, None)
        self.quarantine.drop((type_url, key))
        if self.connected and type_url in self._asking:
            for each in self._wordings[type_url].unwant(key):
                self._asking[type_url].unwant(each)
            self.wake()

    def keeps(self, entry: Entry) -> bool:
        """Whether the quarantine keeps the subscription of a wanted entry from the server (PRX-35)."""
        asked = entry.collection or entry
        return bool(self.quarantine) and self.quarantine.keeps((asked.type_url, asked.key))

    # -- what the server understands

    @property
    def by_names(self) -> bool:
        """Whether the server is asked by plain names, so that an answer is for all params."""
        return self.form is RequestForm.NAMES

    def says_names(self, type_url: TypeUrl) -> bool:
        """Whether this stream subscribes to anything of the type by a plain name."""
        return type_url in self._asking and self._asking[type_url].says_names

    def decide(self, form: RequestForm) -> bool:
        """Set the form that the server understands, and drop the subscriptions that only probed for it (PRX-32).

        Return whether operators have not been told of this form yet.
        """
        news = self.dialect.decide(form)
        self.form = form
        self.was_by_names |= self.by_names
        for type_url, wording in self._wordings.items():
            if self._asking[type_url].decide(form, wording.decide(form)):
                wording.never_asked_for_all()
        self.wake()
        return news

    def without_probes(self, response: Response, now: float) -> Response:
        """Remove the answers to probes from a response.

        If no answer to the locator of such a name comes in PATIENCE seconds, `FormDetection.tick` asks for it again.
        """
        wording = self._wordings.get(response.type_url)
        if wording is None or not wording.has_probed:
            return response
        left, names = without_plain(response, wording.is_probed)
        for name in filter(None, names):
            self.owed.setdefault((response.type_url, name), now + PATIENCE)
        return left

    @property
    def form_due(self) -> float | None:
        """When `FormDetection.tick` has to decide what a plain answer means."""
        return min([*self.owed.values(), *([self.waits_until] if self.waiting else [])], default=None)

    def wait(self, response: Response, now: float) -> None:
        """Hold back a plain answer, since one in the form of locators may follow."""
        if not self.waiting:
            self.waits_until = now + PATIENCE
        self.waiting.append(response)

    # -- the life of a stream

    def prepare(self) -> None:
        """Choose delta or SotW for the next stream: SotW if the server lacks the delta method (PRX-33)."""
        self.delta = self._prefers_delta and not self.dialect.lacks_delta

    def opened(self, now: float) -> None:
        """Begin a new stream: every type with subscriptions gets a new request builder."""
        self.connected, self.is_spent = True, False
        self.has_located = False
        self.form = self.dialect.form
        self.was_by_names |= self.by_names
        self.streams += 1
        self._answered = False
        self._opened_at = now
        self._asking.clear()
        self._wordings.clear()
        self.quarantine.opened()
        for type_url, keys in self._wants.items():
            if self._lacks(type_url):
                self.unaskable += [(type_url, key) for key in keys]
            elif keys:
                self._begin(type_url)
        self._note_asked(now)

    def poll(self, now: float) -> list[tuple[TypeUrl, Asked]]:
        """Return the requests to write now, with their types."""
        return finish(self.polling(now))

    def polling(self, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """Do what `poll` does, in steps. A subscription that is added meanwhile may go into a later request."""
        if not self.connected or self.is_spent:
            return []
        # A wildcard that only the first request of a stream can ask for (WLD-5).
        if any(asking.needs_stream for asking in self._asking.values()):
            self.renew()
            return []
        self._note_asked(now)
        found: list[tuple[TypeUrl, Asked]] = []
        for type_url, asking in [*self._asking.items()]:
            found += [(type_url, asked) for asked in (yield from asking.polling())]
        return found

    @property
    def is_behind(self) -> bool:
        """Whether to poll again, once the requests are written."""
        return any(asking.is_behind for asking in self._asking.values())

    def _note_asked(self, now: float) -> None:
        """Tell the quarantine which subscriptions go out now."""
        unsaid, self._unsaid = self._unsaid, {}
        for type_url, keys in unsaid.items():
            self.quarantine.asked(type_url, keys, now)

    def asks(self, type_url: TypeUrl) -> bool:
        """Whether this stream ever subscribed to the type (NAK-22)."""
        return type_url in self._asking

    def heard(self, server: str) -> bool:
        """Note a response and what the server calls itself; return whether it is the first response of the stream."""
        # Relays and servers of this project say so in `control_plane.identifier`.
        self.is_relay = server == RELAY
        self.pins_absence = server == SERVER or server.startswith((f"{SERVER}/", f"{SERVER} "))
        self._backoff.reset()
        self.quarantine.heard()
        first, self._answered = not self._answered, True
        return first

    def answer(
        self, type_url: TypeUrl, answer: Answer, now: float, *, fruitful: bool = True, wait: float = 0.0
    ) -> None:
        """Queue an ACK or NACK: for now, or for later if the exchange is fruitless (`Pace`) or `wait` says so."""
        if not self.connected:
            return
        # The later of both: the review, and the pace of a fruitless exchange.
        due = max(now + wait, self._paces.setdefault(type_url, Pace()).answer_at(now, fruitful=fruitful))
        self._answers.append((due, type_url, replace(answer, is_reviewed=True) if wait else answer))
        if due <= now:
            self._let_out(lambda waiting: waiting == type_url)  # answers of one type stay in order

    def decide_answer(self, type_url: TypeUrl, nonce: str, error: Rejection | None) -> None:
        """Release the answer to a response that was held back for review, as an ACK or a NACK (PRX-18).

        In SotW an answer also lists the subscriptions, so answers to earlier responses of the type go out before it.
        """
        held = [waiting for waiting in self._answers if waiting[1] == type_url]
        position = next((at for at, (_, _, answer) in enumerate(held) if answer.nonce == nonce), None)
        if position is None:
            return  # it went out when its time was over, or its stream has ended
        # In delta each answer stands alone; in SotW the earlier ones go first.
        ready = held[position : position + 1] if self.delta else held[: position + 1]
        self._answers = [waiting for waiting in self._answers if waiting not in ready]
        for _, _, answer in ready:
            self._asking[type_url].answer(replace(answer, error=error) if answer.nonce == nonce else answer)
        self.wake()

    @property
    def answer_due(self) -> float | None:
        """When the next answer that was held back goes out."""
        return min((due for due, _, _ in self._answers), default=None)

    def release(self, now: float) -> None:
        """Send the answers whose time has come."""
        due = {type_url for when, type_url, _ in self._answers if when <= now}
        if due:
            self._let_out(due.__contains__)

    def _let_out(self, of_type: Callable[[TypeUrl], bool]) -> None:
        """Pass the held answers of these types to their request builders."""
        ready = [waiting for waiting in self._answers if of_type(waiting[1])]
        self._answers = [waiting for waiting in self._answers if not of_type(waiting[1])]
        for _, type_url, answer in ready:
            self._asking[type_url].answer(answer)
        self.wake()

    def is_to_be_asked_otherwise(self, error: WatchError) -> bool:
        """Whether the server may accept another form of subscriptions, or SotW in place of delta.

        It ended the stream before any response, with a status that fits this reason.
        """
        if self._answered:
            return False
        # PRX-33: the server has no delta method.
        if error.status == UNIMPLEMENTED and self.delta and not self.dialect.needs_delta:
            self.dialect.lacks_delta = True
            return True
        located = any(wording.has_locators for wording in self._wordings.values())
        return self.dialect.refused(error.status if located else "")

    def ended(self, error: WatchError, now: float, random: float, *, at_once: bool = False) -> bool:
        """Handle the end of a stream, or a failure to open one; return whether it is a failure (CLI-16, CLI-17).

        at_once: the next stream uses another form or method, so this end is no failure.
        """
        self._keep_versions()
        self._forget_stream()
        self.lost = now, error
        answered, self._answered = self._answered, False
        self.parted = now if self.connected else self.parted
        # The connection itself is lost, so the next one may reach a server of another release.
        if error.status == UNAVAILABLE or not self.connected:
            self.dialect.connect_anew(now, sotw=not self.delta)
        hasty = self.connected and now - self._opened_at < HASTY
        # The stream was fine; the server just had nothing to send.
        if self.connected and now - self._opened_at >= LASTING:
            self._backoff.reset()
        self.connected = False
        # CLI-16: a stream that had a response is followed by the next one at once.
        if answered and not (hasty and self._was_hasty):
            self.retry_at = now
        else:
            self.retry_at = now + self._backoff.next(random)
        self._was_hasty = answered and hasty
        if answered:
            return False
        if at_once:
            self.retry_at = now
            return False
        self.failing = error
        return True

    def renew(self) -> None:
        """Replace the stream by a new one, for subscriptions that can't be repeated on this one."""
        if self.connected:
            self.is_spent = True
            self.wake()

    def renewed(self) -> None:
        """Handle the end of a stream that `renew` closed: no failure."""
        self._keep_versions()
        self._forget_stream()
        self.connected = self.is_spent = self._answered = False

    def closed(self) -> None:
        """Forget the stream: nobody wants the server any more."""
        self._forget_stream()
        self._versions.clear()
        self.connected = self._answered = False
        self.failing = None
        self.retry_at = 0.0
        self._backoff.reset()

    def _keep_versions(self) -> None:
        """Keep the SotW versions for the next stream (CLI-5)."""
        for type_url, asking in self._asking.items():
            if isinstance(asking, SotwRequestBuilder):
                self._versions[type_url] = asking.version

    def _forget_stream(self) -> None:
        """Clear all state that belongs to the stream."""
        for running in (self.timers, self.doubts, self.awaited, self.passed_over):
            running.clear()  # CLI-12: no timer runs without a stream
        for last in (self.abandoned, self.let_go, self.outlived):
            last.clear()
        self._asking.clear()
        self._unsaid.clear()
        self.quarantine.closed()
        self._wordings.clear()
        self.unaskable.clear()
        self.waiting.clear()
        self.owed.clear()
        self._deaf_since = None
        self._paces.clear()
        self._answers.clear()

    def _find_versions(self, type_url: TypeUrl) -> Steps[Mapping[str, str]]:
        """Return the versions for `initial_resource_versions`, in steps."""
        return (yield from self._holdings.find_held(self, type_url)).versions

    def _lacks(self, type_url: TypeUrl) -> bool:
        """Whether the stream can't carry the type: virtual hosts exist in delta only (VHD-1)."""
        return not self.delta and self._holdings.spec(type_url).on_demand

    def _begin(self, type_url: TypeUrl) -> None:
        """Make the request builder of a type on this stream, with all subscriptions but those in quarantine."""
        wanted: Iterable[Key] = self._wants[type_url]
        if self.quarantine:
            wanted = [key for key in wanted if not self.quarantine.keeps((type_url, key))]
        if not wanted:
            return
        self._unsaid[type_url] = [*wanted]
        spec, form = self._holdings.spec(type_url), self.form
        wording = self._wordings[type_url] = RequestKeys(form, probes=self.dialect.probes)
        keys = worded(wording, wanted)
        if self.delta:
            self._asking[type_url] = DeltaRequestBuilder(
                spec,
                keys,
                lambda: self._find_versions(type_url),
                form,
                is_listed=lambda name: self._holdings.is_listed(type_url, name),
            )
            return
        # In SotW, version_info stands for all resources of the type. If one of them is missing here, a server that
        # trusts the version would not send it, so the first request has none then (CLI-5). A relay trusts it for a
        # wildcard only; otherwise a version tells a relay just that the client holds something, perhaps newer than the
        # relay's disk cache (PRX-25).
        believed = not self.is_relay or [*keys] == [(WILDCARD, None)]
        honest = not believed or self._holdings.held(self, type_url).complete
        version = self._versions.get(type_url, "") if honest else ""
        self._asking[type_url] = SotwRequestBuilder(spec, keys, version, form, is_believed=not self.is_relay)


def _note_last(known: dict[Thing, None], thing: Thing) -> None:
    """Remember one more thing, and forget the oldest if there are too many."""
    known[thing] = None
    if len(known) > ON_THEIR_WAY:
        del known[next(iter(known))]
