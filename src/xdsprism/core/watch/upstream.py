"""Keep the client's state for one server: its subscriptions, its stream, and its dialect.

    prepare ──▶ opened ──▶ polling ... note_response ... ──▶ ended ──▶ (retry_at) ──▶ prepare ...

The wanted subscriptions outlive streams, and so do the SotW version of the last ACKed response of each type (CLI-5) and
the quarantine. `StreamLifecycle` has the states of the stream. `StreamRequests`, `PendingAnswers` and `UnreadAnswers`
belong to one stream, and begin anew with each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...errors import WatchError
from ..model.dialect import PATIENCE, Dialect, RequestForm
from ..model.events import Key
from ..model.responses import Response
from ..model.settings import RELAY, SERVER
from ..model.steps import Steps
from ..model.types import TypeSpec, TypeUrl
from .entry import Entry, subscribed
from .pending_answers import PendingAnswers
from .quarantine import Quarantine
from .requests import Asked
from .stream_lifecycle import StreamLifecycle
from .stream_requests import StreamRequests

if TYPE_CHECKING:
    from .authority import Authority

UNIMPLEMENTED, UNAVAILABLE = "UNIMPLEMENTED", "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Held:
    """The cached resources of one type from one server: versions by name, and whether nothing subscribed is missing."""

    versions: Mapping[str, str]
    complete: bool


class HeldResources(Protocol):
    """What an upstream needs to know about types and cached resources, from whichever server they came."""

    def spec(self, type_url: TypeUrl) -> TypeSpec: ...

    def held(self, upstream: Upstream, type_url: TypeUrl) -> Held: ...

    def find_held(self, upstream: Upstream, type_url: TypeUrl) -> Steps[Held]:
        """Do what `held` does, in steps."""

    def is_listed(self, type_url: TypeUrl, name: str) -> bool:
        """Whether the wildcard has a member of this name."""


class UnreadAnswers:
    """The plain answers on one stream that may be followed by an answer in the form of locators (PRX-32)."""

    def __init__(self) -> None:
        self.waiting: list[Response] = []  # responses that wait until the form is known
        self.until = 0.0
        # Subscriptions with only a plain answer: until when to wait for another.
        self.owed: dict[tuple[TypeUrl, str], float] = {}

    @property
    def due(self) -> float | None:
        """When `FormDetection.tick` has to decide what a plain answer means."""
        return min([*self.owed.values(), *([self.until] if self.waiting else [])], default=None)

    def wait(self, response: Response, now: float) -> None:
        """Hold back a plain answer, since one in the form of locators may follow."""
        if not self.waiting:
            self.until = now + PATIENCE
        self.waiting.append(response)

    def owe(self, type_url: TypeUrl, names: Iterable[str], now: float) -> None:
        """Note names whose plain answer was removed: an answer to the locator has to follow."""
        for name in names:
            self.owed.setdefault((type_url, name), now + PATIENCE)


class Upstream:
    """One server; authorities with an equal server entry share it (XTP-13).

    wake: called when there is something to send, or the server is wanted, or not wanted any more.
    """

    def __init__(
        self,
        label: str,
        holdings: HeldResources,
        *,
        delta: bool,
        dialect: Dialect | None = None,
        fail_on_data_errors: bool = False,
        timer_is_transient: bool = False,
        trusted: bool = False,
        wake: Callable[[Upstream], None] = lambda _: None,
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
        self.answered_at: float | None = None  # when the server last sent a response, on any stream
        self.reported_nacks = 0  # PRX-18: NACKs of clients that were reported to this server
        # A78: valid and invalid resources that the server sent, unchanged ones included.
        self.valid: Counter[TypeUrl] = Counter()
        self.invalid: Counter[TypeUrl] = Counter()
        self.quarantine = Quarantine()
        self.was_by_names = False  # on some stream a plain answer was for all params (PRX-32)
        self._prefers_delta = delta
        self._holdings = holdings
        self._wake = wake
        # These two outlive streams: the wanted subscriptions, and the SotW version of the last ACKed response (CLI-5).
        self._wants: dict[TypeUrl, dict[Key, None]] = {}
        self._versions: dict[TypeUrl, str] = {}
        self.lifecycle = StreamLifecycle()
        # The rest belongs to the current stream.
        self.streams = 0  # number of streams opened so far; identifies the current one
        self.is_spent = False  # this stream is to be closed and replaced by a new one
        self.form = RequestForm.UNKNOWN  # of the requests on this stream
        self.has_located = False  # a response on this stream was in the form of locators
        self.requests = StreamRequests(self, holdings)
        self.pending = PendingAnswers()
        self.unread = UnreadAnswers()

    def wake(self) -> None:
        """Have the caller of `polling` look at this server again."""
        self._wake(self)

    @property
    def connected(self) -> bool:
        """Whether a stream is open."""
        return self.lifecycle.connected

    @property
    def wanted(self) -> bool:
        """Whether there should be a stream. A stream without subscriptions stays open, but is not opened again."""
        sought = any(user.seeking for user in self.users)
        return bool(self.users) and (self.connected or sought or any(self._wants.values()))

    @property
    def subscriptions(self) -> int:
        """The number of wanted subscriptions, of all types."""
        return sum(map(len, self._wants.values()))

    @property
    def due(self) -> float | None:
        """When to call `Subscriber.tick` for this server."""
        times = (self.pending.due, self.requests.answer_due, self.quarantine.due, self.unread.due)
        return min((due for due in times if due is not None), default=None)

    # -- subscriptions

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
        """Pass a subscription to the requests of this stream."""
        if not self.requests.want(type_url, key):
            self.requests.begin(type_url, self._wants[type_url], self._versions.get(type_url, ""))

    def unwant(self, type_url: TypeUrl, key: Key) -> None:
        """Unsubscribe from a key."""
        self._wants.get(type_url, {}).pop(key, None)
        self.quarantine.drop((type_url, key))
        if self.connected and self.requests.unwant(type_url, key):
            self.wake()

    def keeps(self, entry: Entry) -> bool:
        """Whether the quarantine keeps the subscription of a wanted entry from the server (PRX-35)."""
        asked = subscribed(entry)
        return bool(self.quarantine) and self.quarantine.keeps((asked.type_url, asked.key))

    def abandon(self, entry: Entry, members: Iterable[Entry] = ()) -> None:
        """Forget an unwatched entry, with the members of a collection.

        Remember its locator for a while: a response that was in flight must not count as the answer to another one.
        """
        if entry.params is not None:
            self.pending.let_locator_go(entry)
        self.expect_removal(entry)
        for each in (entry, *members):
            self.pending.note_answered(each)

    def expect_removal(self, entry: Entry) -> None:
        """Remember the variant that an entry is about to lose: the server may still send its removal."""
        if self.delta and entry.variant is not None and entry.came_from(self) and entry.params is not None:
            self.pending.expect_removal(entry.type_url, entry.variant.identity)

    # -- what the server understands

    @property
    def by_names(self) -> bool:
        """Whether the server is asked by plain names, so that an answer is for all params."""
        return self.form is RequestForm.NAMES

    def decide(self, form: RequestForm) -> bool:
        """Set the form that the server understands, and drop the subscriptions that only probed for it (PRX-32).

        Return whether operators have not been told of this form yet.
        """
        news = self.dialect.decide(form)
        self.form = form
        self.was_by_names |= self.by_names
        self.requests.decide(form)
        self.wake()
        return news

    def is_to_be_asked_otherwise(self, error: WatchError) -> bool:
        """Whether the server may accept another form of subscriptions, or SotW in place of delta.

        It ended the stream before any response, with a status that fits this reason.
        """
        if self.lifecycle.is_answered:
            return False
        # PRX-33: the server has no delta method.
        if error.status == UNIMPLEMENTED and self.delta and not self.dialect.needs_delta:
            self.dialect.lacks_delta = True
            return True
        return self.dialect.refused(error.status if self.requests.has_locators else "")

    # -- the life of a stream

    def prepare(self) -> None:
        """Choose delta or SotW for the next stream: SotW if the server lacks the delta method (PRX-33)."""
        self.lifecycle.connect()
        self.delta = self._prefers_delta and not self.dialect.lacks_delta

    def opened(self, now: float) -> None:
        """Begin a new stream: every type with subscriptions gets a new request builder."""
        self.lifecycle.opened(now)
        self.streams += 1
        self.is_spent = self.has_located = False
        self.form = self.dialect.form
        self.was_by_names |= self.by_names
        self.quarantine.opened()
        for type_url, keys in self._wants.items():
            if keys:
                self.requests.begin(type_url, keys, self._versions.get(type_url, ""))
        self.requests.note_sent(now)

    def polling(self, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """Return the requests to write now, with their types, in steps."""
        if not self.connected or self.is_spent:
            return []
        if self.requests.needs_stream:
            self.renew()
            return []
        return (yield from self.requests.polling(now))

    def note_response(self, server: str) -> bool:
        """Note a response and what the server calls itself; return whether it is the first response of the stream."""
        # Relays and servers of this project say so in `control_plane.identifier`.
        self.is_relay = server == RELAY
        self.pins_absence = server == SERVER or server.startswith((f"{SERVER}/", f"{SERVER} "))
        self.quarantine.note_response()
        return self.lifecycle.note_response()

    def ended(self, error: WatchError, now: float, random: float, *, at_once: bool = False) -> bool:
        """Handle the end of a stream, or a failure to open one; return whether it is a failure (CLI-16, CLI-17).

        at_once: the next stream uses another form or method, so this end is no failure.
        """
        # The connection itself is lost, so the next one may reach a server of another release.
        if error.status == UNAVAILABLE or not self.connected:
            self.dialect.connect_anew(now, sotw=not self.delta)
        self._forget_stream()
        return self.lifecycle.ended(error, now, random, at_once=at_once)

    def renew(self) -> None:
        """Replace the stream by a new one, for subscriptions that can't be repeated on this one."""
        if self.connected:
            self.is_spent = True
            self.wake()

    def renewed(self) -> None:
        """Handle the end of a stream that `renew` closed: no failure."""
        self._forget_stream()
        self.is_spent = False
        self.lifecycle.replaced()

    def closed(self) -> None:
        """Forget the stream: the server is not needed any more."""
        self._forget_stream()
        self._versions.clear()
        self.lifecycle.released()

    def _forget_stream(self) -> None:
        """Drop all state that belongs to the stream, but keep its SotW versions for the next one (CLI-5)."""
        self._versions |= self.requests.versions
        self.quarantine.closed()
        self.requests = StreamRequests(self, self._holdings)
        self.pending = PendingAnswers()  # CLI-12: no timer runs without a stream
        self.unread = UnreadAnswers()
