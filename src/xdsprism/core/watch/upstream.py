"""One server, as a client sees it: the stream to it, what is asked of it, when to try again.

    opened ──▶ poll ... receive ... answer ──▶ ended ──▶ (retry_at) ──▶ opened ...

Which resources are wanted outlives streams, and so does the version of what was taken last (CLI-5). Everything else
begins anew with each stream.
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

LASTING = 60.0  # seconds: on a stream that lasted as long there was just nothing to say, as where nothing is newer
UNIMPLEMENTED, UNAVAILABLE = "UNIMPLEMENTED", "UNAVAILABLE"
HASTY = 1.0  # seconds: a stream that lasts less, twice in a row, is not followed by another one at once
ON_THEIR_WAY = 64  # of what was let go of, only the last can still be spoken of by what the server sent before
MOMENT = 2.0  # seconds: how long the silence of a server means that it is slow


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one type from one server: versions by name, and whether that is all that is wanted."""

    versions: Mapping[str, str]
    complete: bool


class Holdings(Protocol):
    """What is known and held of resources, whichever server they are from."""

    def spec(self, type_url: TypeUrl) -> TypeSpec: ...

    def held(self, upstream: Upstream, type_url: TypeUrl) -> Held: ...

    def find_held(self, upstream: Upstream, type_url: TypeUrl) -> Steps[Held]:
        """What `held` does, in steps."""

    def is_listed(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a wildcard has a resource of this name."""


class Upstream:
    """Shared by all authorities that have an equal entry for this server (XTP-13)."""

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
        self.delta = delta  # the present stream, or the next one
        self.dialect = dialect if dialect is not None else Dialect()
        self.fail_on_data_errors = fail_on_data_errors
        self.timer_is_transient = timer_is_transient
        self.full_state_decides = False  # PRX-34: what timed out is gone, if such a state lacks it
        self.trusted = trusted  # BST-6: the bootstrap calls it a `trusted_xds_server`
        self.users: set[Authority] = set()
        self.is_relay = False  # it may know less of an absence than its constraints say (PRX-31)
        self.pins_absence = False  # it says "for nobody" where it names no constraints (DYN-11, PRX-31)
        # Both in the order in which they end, as all of one kind are of one length; without the time of `_deaf`.
        self.timers: OrderedDict[Entry, float] = OrderedDict()
        self.doubts: OrderedDict[Entry, float] = OrderedDict()  # of entries that are doubted (watching.Entry)
        self.awaited: set[Entry] = set()  # asked for on this stream, and the server has said nothing of them yet
        self.passed_over: set[Entry] = set()  # of these, those that a full state lacks which came since
        # Locators that were let go of before that: an answer may still be on its way.
        self.abandoned: dict[tuple[TypeUrl, str], None] = {}
        self.let_go: dict[tuple[TypeUrl, str], None] = {}  # ... or after it: the same holds for an update
        # Variants that were sent, and that nobody holds by the same key any more: a removal may still be on its way.
        self.outlived: dict[tuple[TypeUrl, str, Constraint], None] = {}
        self.failing: WatchError | None = None  # why there was no answer at the last try
        self.lost: tuple[float, WatchError] | None = None  # when and how the last stream ended
        self.parted: float | None = None  # when there was a stream last
        self.connected = False
        self.is_spent = False  # the stream has to be replaced by another
        self.streams = 0  # that were opened so far
        self.retry_at = 0.0
        self.wake: Callable[[], None] = lambda: None
        self.quarantine = Quarantine()
        self.reported_nacks = 0  # PRX-18: of clients, to which this server was told of them
        self._unsaid: dict[TypeUrl, list[Key]] = {}  # to be asked, and in no request yet
        self.waiting: list[Response] = []  # plain answers, until the form of the server is known (PRX-32)
        self.waits_until = 0.0
        self.form = RequestForm.UNKNOWN  # of what is asked on this stream
        self.was_by_names = False  # on some stream answers were for all who asked for a name (PRX-32)
        self.has_located = False  # something on this stream was in the form of locators
        self.owed: dict[tuple[TypeUrl, str], float] = {}  # only answered plainly so far: until when that is all right
        self.unaskable: list[tuple[TypeUrl, Key]] = []  # wanted, and the protocol of the stream has no word for it
        self._prefers_delta = delta
        self._holdings = holdings
        self._wants: dict[TypeUrl, dict[Key, None]] = {}
        self._versions: dict[TypeUrl, str] = {}
        self._asking: dict[TypeUrl, RequestBuilder] = {}
        self._wordings: dict[TypeUrl, RequestKeys] = {}
        self._paces: dict[TypeUrl, Pace] = {}
        self._answers: list[tuple[float, TypeUrl, Answer]] = []  # held back: when they go out
        self._backoff = Backoff()
        self._answered = False
        self._opened_at = 0.0
        self._was_hasty = False
        self._deaf_since: float | None = None
        self._deaf = 0.0  # seconds in all for which nothing was read

    @property
    def wanted(self) -> bool:
        """Whether there ought to be a stream. One on which nothing is asked any more is kept, but not replaced."""
        sought = any(user.seeking for user in self.users)
        return bool(self.users) and (self.connected or sought or any(self._wants.values()))

    @property
    def since(self) -> float | None:
        """When the stream was opened, if there is one."""
        return self._opened_at if self.connected else None

    @property
    def subscriptions(self) -> int:
        return sum(map(len, self._wants.values()))

    @property
    def patience(self) -> float:
        """How long to wait for a resource. CLI-11; CLI-14 where the server says that silence means nothing."""
        return 30.0 if self.timer_is_transient else 15.0

    @property
    def timer_due(self) -> float | None:
        """When the first timer ends. None does while nothing is read: what it waits for may have come (CLI-20)."""
        if self._deaf_since is not None:
            return None
        first = min((next(iter(running.values())) for running in (self.timers, self.doubts) if running), default=None)
        return first + self._deaf if first is not None else None

    def over(self, running: OrderedDict[Entry, float], now: float) -> Iterator[Entry]:
        """Take out, one by one, those whose time is over."""
        while running and self._deaf_since is None and next(iter(running.values())) + self._deaf <= now:
            yield running.popitem(last=False)[0]

    def stop_reading(self, now: float) -> None:
        self._deaf_since = now

    def read_on(self, now: float) -> None:
        """Time in which nothing was read does not count."""
        if self._deaf_since is not None:
            self._deaf += now - self._deaf_since
        self._deaf_since = None

    def note_asked(self, entry: Entry, now: float) -> None:
        """A request that has the entry goes out."""
        self.awaited.add(entry)
        entry.unsettle()
        if entry.unanswered:
            self.timers[entry] = now - self._deaf + self.patience
        if entry.doubted is not None:
            self.doubt(entry, now)

    def note_answered(self, entry: Entry) -> None:
        """The server has said something of it, or nobody wants it any more."""
        self.awaited.discard(entry)
        self.passed_over.discard(entry)
        self.timers.pop(entry, None)
        self.doubts.pop(entry, None)

    def abandon(self, entry: Entry, members: Iterable[Entry] = ()) -> None:
        """Nobody wants it any more, nor the members of a collection that came for it."""
        if entry.key[1] is not None:
            _note_last(self.let_go, (entry.type_url, entry.name))
            if entry in self.awaited:
                _note_last(self.abandoned, (entry.type_url, entry.name))
        self.outlive(entry)
        for each in (entry, *members):
            self.note_answered(each)

    def outlive(self, entry: Entry) -> None:
        """What it holds, it will not hold any more."""
        if self.delta and entry.variant is not None and entry.came_from(self) and entry.key[1] is not None:
            _note_last(self.outlived, (entry.type_url, *entry.variant.identity))

    def doubt(self, entry: Entry, now: float) -> None:
        """Wait for a moment at most, where the server was asked."""
        if entry in self.awaited:
            self.doubts.setdefault(entry, now - self._deaf + MOMENT)

    def want(self, type_url: TypeUrl, key: Key) -> None:
        self._wants.setdefault(type_url, {})[key] = None
        if self.connected and self.quarantine.admits((type_url, key)):
            self._ask(type_url, key)
        self.wake()

    def ask_kept(self, type_url: TypeUrl, key: Key) -> None:
        """Ask what the quarantine kept back, if it is still wanted."""
        if key in self._wants.get(type_url, {}):
            self._ask(type_url, key)
            self.wake()

    def _ask(self, type_url: TypeUrl, key: Key) -> None:
        asking = self._asking.get(type_url)
        if self._lacks(type_url):
            self.unaskable.append((type_url, key))
        elif asking is None:
            self._begin(type_url)
        else:
            self._unsaid.setdefault(type_url, []).append(key)
            for each in self._wordings[type_url].want(key):
                asking.want(each)
            if not self.delta:  # CLI-4: a server may ignore a request whose nonce is not its newest
                for _, _, answer in [each for each in self._answers if each[1] == type_url and each[2].is_reviewed]:
                    self.decide_answer(type_url, answer.nonce, None)

    def unwant(self, type_url: TypeUrl, key: Key) -> None:
        self._wants.get(type_url, {}).pop(key, None)
        self.quarantine.drop((type_url, key))
        if self.connected and type_url in self._asking:
            for each in self._wordings[type_url].unwant(key):
                self._asking[type_url].unwant(each)
            self.wake()

    def keeps(self, entry: Entry) -> bool:
        """PRX-35: whether it is wanted, and kept from the server all the same."""
        asked = entry.collection or entry
        return bool(self.quarantine) and self.quarantine.keeps((asked.type_url, asked.key))

    # -- what the server understands

    @property
    def by_names(self) -> bool:
        """An answer is for all who asked for its name, whatever their params."""
        return self.form is RequestForm.NAMES

    def says_names(self, type_url: TypeUrl) -> bool:
        return type_url in self._asking and self._asking[type_url].says_names

    def decide(self, form: RequestForm) -> bool:
        """PRX-32: the form is known, and what was asked only to find out is given up; whether that is news."""
        news = self.dialect.decide(form)
        self.form = form
        self.was_by_names |= self.by_names
        for type_url, wording in self._wordings.items():
            if self._asking[type_url].decide(form, wording.decide(form)):
                wording.never_asked_for_all()
        self.wake()
        return news

    def without_probes(self, response: Response, now: float) -> Response:
        """Leave out answers to what was asked only to find out the form. What has no other is asked for again."""
        wording = self._wordings.get(response.type_url)
        if wording is None or not wording.has_probed:
            return response
        left, names = without_plain(response, wording.is_probed)
        for name in filter(None, names):
            self.owed.setdefault((response.type_url, name), now + PATIENCE)
        return left

    @property
    def form_due(self) -> float | None:
        """When it is time to decide what a plain answer means."""
        return min([*self.owed.values(), *([self.waits_until] if self.waiting else [])], default=None)

    def wait(self, response: Response, now: float) -> None:
        """A plain answer came, and one in the form of locators may follow."""
        if not self.waiting:
            self.waits_until = now + PATIENCE
        self.waiting.append(response)

    # -- the life of a stream

    def prepare(self) -> None:
        """A stream is about to be opened. PRX-33: a server without the delta method is asked in SotW."""
        self.delta = self._prefers_delta and not self.dialect.lacks_delta

    def opened(self, now: float) -> None:
        """A new stream is connected. Each type begins anew."""
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
        return finish(self.polling(now))

    def polling(self, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """What `poll` does, in steps. What is wanted meanwhile may go into a later request."""
        if not self.connected or self.is_spent:
            return []
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
        """Whether there is more to ask, once what `poll` gave is written."""
        return any(asking.is_behind for asking in self._asking.values())

    def _note_asked(self, now: float) -> None:
        unsaid, self._unsaid = self._unsaid, {}
        for type_url, keys in unsaid.items():
            self.quarantine.asked(type_url, keys, now)

    def asks(self, type_url: TypeUrl) -> bool:
        """Whether this stream ever asked for the type (NAK-22)."""
        return type_url in self._asking

    def heard(self, server: str) -> bool:
        """A response came, from a server that calls itself so; true for the first one of a stream."""
        self.is_relay = server == RELAY
        self.pins_absence = server == SERVER or server.startswith((f"{SERVER}/", f"{SERVER} "))
        self._backoff.reset()
        self.quarantine.heard()
        first, self._answered = not self._answered, True
        return first

    def answer(
        self, type_url: TypeUrl, answer: Answer, now: float, *, fruitful: bool = True, wait: float = 0.0
    ) -> None:
        """Answer a response: now, or in a while where the conversation leads nowhere, or `wait` says so."""
        if not self.connected:
            return
        due = max(now + wait, self._paces.setdefault(type_url, Pace()).answer_at(now, fruitful=fruitful))
        self._answers.append((due, type_url, replace(answer, is_reviewed=True) if wait else answer))
        if due <= now:
            self._let_out(lambda waiting: waiting == type_url)  # and what was held back before it

    def decide_answer(self, type_url: TypeUrl, nonce: str, error: Rejection | None) -> None:
        """PRX-18: how to answer a response whose answer was held back.

        In SotW an answer says what is wanted too, so that those of earlier responses of the type can't come after it.
        """
        held = [waiting for waiting in self._answers if waiting[1] == type_url]
        position = next((at for at, (_, _, answer) in enumerate(held) if answer.nonce == nonce), None)
        if position is None:
            return  # it was held back for long enough, or its stream is over
        ready = held[position : position + 1] if self.delta else held[: position + 1]
        self._answers = [waiting for waiting in self._answers if waiting not in ready]
        for _, _, answer in ready:
            self._asking[type_url].answer(replace(answer, error=error) if answer.nonce == nonce else answer)
        self.wake()

    @property
    def answer_due(self) -> float | None:
        """When the next answer goes out that was held back."""
        return min((due for due, _, _ in self._answers), default=None)

    def release(self, now: float) -> None:
        due = {type_url for when, type_url, _ in self._answers if when <= now}
        if due:
            self._let_out(due.__contains__)

    def _let_out(self, of_type: Callable[[TypeUrl], bool]) -> None:
        ready = [waiting for waiting in self._answers if of_type(waiting[1])]
        self._answers = [waiting for waiting in self._answers if not of_type(waiting[1])]
        for _, type_url, answer in ready:
            self._asking[type_url].answer(answer)
        self.wake()

    def is_to_be_asked_otherwise(self, error: WatchError) -> bool:
        """Whether the server may well answer other words, or another method, than it just ended a stream on."""
        if self._answered:
            return False
        if error.status == UNIMPLEMENTED and self.delta and not self.dialect.needs_delta:
            self.dialect.lacks_delta = True
            return True
        located = any(wording.has_locators for wording in self._wordings.values())
        return self.dialect.refused(error.status if located else "")

    def ended(self, error: WatchError, now: float, random: float, *, at_once: bool = False) -> bool:
        """The stream is over, or could not be opened. True if that is a failure (CLI-16, CLI-17).

        at_once: it is asked otherwise, so this is none.
        """
        self._keep_versions()
        self._forget_stream()
        self.lost = now, error
        answered, self._answered = self._answered, False
        self.parted = now if self.connected else self.parted
        if error.status == UNAVAILABLE or not self.connected:
            self.dialect.connect_anew(now, sotw=not self.delta)
        hasty = self.connected and now - self._opened_at < HASTY
        if self.connected and now - self._opened_at >= LASTING:
            self._backoff.reset()
        self.connected = False
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
        """Begin anew on another stream, since there are questions that can't be put twice on one."""
        if self.connected:
            self.is_spent = True
            self.wake()

    def renewed(self) -> None:
        """The stream that was to be replaced is no more. Nothing has failed."""
        self._keep_versions()
        self._forget_stream()
        self.connected = self.is_spent = self._answered = False

    def closed(self) -> None:
        """Nobody wants it any more, and its stream was let go of."""
        self._forget_stream()
        self._versions.clear()
        self.connected = self._answered = False
        self.failing = None
        self.retry_at = 0.0
        self._backoff.reset()

    def _keep_versions(self) -> None:
        for type_url, asking in self._asking.items():
            if isinstance(asking, SotwRequestBuilder):
                self._versions[type_url] = asking.version

    def _forget_stream(self) -> None:
        for running in (self.timers, self.doubts, self.awaited, self.passed_over):
            running.clear()  # CLI-12: no timer runs while there is no stream
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
        return (yield from self._holdings.find_held(self, type_url)).versions

    def _lacks(self, type_url: TypeUrl) -> bool:
        """VHD-1: virtual hosts are served incrementally only."""
        return not self.delta and self._holdings.spec(type_url).on_demand

    def _begin(self, type_url: TypeUrl) -> None:
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
        # A version stands for everything of the type. It would be a lie where something is lacking, and a server that
        # believes it would not send that (CLI-5). A relay believes it of a wildcard alone. To it, a version says that
        # the client holds something, which may be newer than what the relay has on disk (PRX-25).
        believed = not self.is_relay or [*keys] == [(WILDCARD, None)]
        honest = not believed or self._holdings.held(self, type_url).complete
        version = self._versions.get(type_url, "") if honest else ""
        self._asking[type_url] = SotwRequestBuilder(spec, keys, version, form, is_believed=not self.is_relay)


def _note_last(known: dict[Thing, None], thing: Thing) -> None:
    known[thing] = None
    if len(known) > ON_THEIR_WAY:
        del known[next(iter(known))]
