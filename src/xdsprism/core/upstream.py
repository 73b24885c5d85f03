"""One server, as a client sees it: the stream to it, what is asked of it, when to try again.

    opened ──▶ poll ... receive ... answer ──▶ ended ──▶ (retry_at) ──▶ opened ...

Which resources are wanted outlives streams, and so does the version of what was taken last (CLI-5). Everything else
begins anew with each stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import WatchError
from .asking import Answer, Asked, Asking, DeltaAsking, SotwAsking
from .backoff import Backoff
from .events import Key
from .pace import Pace
from .types import TypeSpec, TypeUrl

if TYPE_CHECKING:
    from .subscriber import Authority
    from .watching import Entry

LASTING = 60.0  # seconds: on a stream that lasted as long there was just nothing to say, as where nothing is newer
HASTY = 1.0  # seconds: a stream that lasts less, twice in a row, is not followed by another one at once


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one type from one server: versions by name, and whether that is all that is wanted."""

    versions: Mapping[str, str]
    complete: bool


class Upstream:
    """Shared by all authorities that have an equal entry for this server (XTP-13)."""

    def __init__(
        self,
        label: str,
        spec: Callable[[TypeUrl], TypeSpec],
        held: Callable[[Upstream, TypeUrl], Held],
        *,
        delta: bool,
        fail_on_data_errors: bool = False,
        timer_is_transient: bool = False,
        formless: bool = False,
    ) -> None:
        self.label = label
        self.delta = delta
        self.fail_on_data_errors = fail_on_data_errors
        self.timer_is_transient = timer_is_transient
        self.formless = formless  # VER-13: v2 has no locators, and so an answer is for all who asked for its name
        self.users: set[Authority] = set()
        self.timers: OrderedDict[Entry, float] = (
            OrderedDict()
        )  # in the order in which they end: they are all of one length
        self.failing: WatchError | None = None  # why there was no answer at the last try
        self.lost: tuple[float, WatchError] | None = None  # when and how the last stream ended
        self.parted: float | None = None  # when there was a stream last
        self.connected = False
        self.is_spent = False  # the stream has to be replaced by another
        self.streams = 0  # that were opened so far
        self.retry_at = 0.0
        self.wake: Callable[[], None] = lambda: None
        self._spec = spec
        self._held = held
        self._wants: dict[TypeUrl, dict[Key, None]] = {}
        self._versions: dict[TypeUrl, str] = {}
        self._asking: dict[TypeUrl, Asking] = {}
        self._paces: dict[TypeUrl, Pace] = {}
        self._answers: list[tuple[float, TypeUrl, Answer]] = []  # held back: when they go out
        self._backoff = Backoff()
        self._answered = False
        self._opened_at = 0.0
        self._was_hasty = False
        self._deaf_since: float | None = None

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
        return next(iter(self.timers.values())) if self.timers and self._deaf_since is None else None

    def stop_reading(self, now: float) -> None:
        self._deaf_since = now

    def read_on(self, now: float) -> None:
        """Time in which nothing was read does not count."""
        lost = now - self._deaf_since if self._deaf_since is not None else 0.0
        self._deaf_since = None
        if lost > 0:
            for entry, due in self.timers.items():
                self.timers[entry] = due + lost

    def want(self, type_url: TypeUrl, key: Key) -> None:
        self._wants.setdefault(type_url, {})[key] = None
        if self.connected:
            asking = self._asking.get(type_url)
            if asking is None:
                self._begin(type_url)
            else:
                asking.want(key)
        self.wake()

    def unwant(self, type_url: TypeUrl, key: Key) -> None:
        self._wants.get(type_url, {}).pop(key, None)
        if self.connected and type_url in self._asking:
            self._asking[type_url].unwant(key)
            self.wake()

    # -- the life of a stream

    def opened(self, now: float) -> None:
        """A new stream is connected. Each type begins anew."""
        self.connected, self.is_spent = True, False
        self.streams += 1
        self._answered = False
        self._opened_at = now
        self._asking.clear()
        for type_url, keys in self._wants.items():
            if keys:
                self._begin(type_url)

    def poll(self) -> list[tuple[TypeUrl, Asked]]:
        if not self.connected:
            return []
        return [(type_url, asked) for type_url, asking in self._asking.items() for asked in asking.poll()]

    def asks(self, type_url: TypeUrl) -> bool:
        """Whether this stream ever asked for the type (NAK-22)."""
        return type_url in self._asking

    def heard(self) -> bool:
        """A response came; true for the first one of a stream."""
        self._backoff.reset()
        first, self._answered = not self._answered, True
        return first

    def answer(self, type_url: TypeUrl, answer: Answer, now: float, *, fruitful: bool = True) -> None:
        if not self.connected:
            return
        due = self._paces.setdefault(type_url, Pace()).answer_at(now, fruitful=fruitful)
        self._answers.append((due, type_url, answer))
        if due <= now:
            self._let_out(lambda waiting: waiting == type_url)  # and what was held back before it

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

    def ended(self, error: WatchError, now: float, random: float) -> bool:
        """The stream is over, or could not be opened. True if that is a failure (CLI-16, CLI-17)."""
        self._keep_versions()
        self._forget_stream()
        self.lost = now, error
        self.timers.clear()  # CLI-12: no timer runs while there is no stream
        answered, self._answered = self._answered, False
        self.parted = now if self.connected else self.parted
        hasty = self.connected and now - self._opened_at < HASTY
        if self.connected and now - self._opened_at >= LASTING:
            self._backoff.reset()
        self.connected = False
        if answered and not (hasty and self._was_hasty):
            self.retry_at = now
        else:
            self.retry_at = now + self._backoff.next(random)
        self._was_hasty = answered and hasty
        if not answered:
            self.failing = error
        return not answered

    def renew(self) -> None:
        """Begin anew on another stream, since there are questions that can't be put twice on one."""
        if self.connected:
            self.is_spent = True
            self.wake()

    def renewed(self) -> None:
        """The stream that was to be replaced is no more. Nothing has failed."""
        self._keep_versions()
        self._forget_stream()
        self.timers.clear()
        self.connected = self.is_spent = self._answered = False

    def closed(self) -> None:
        """Nobody wants it any more, and its stream was let go of."""
        self._forget_stream()
        self._versions.clear()
        self.timers.clear()
        self.connected = self._answered = False
        self.failing = None
        self.retry_at = 0.0
        self._backoff.reset()

    def _keep_versions(self) -> None:
        for type_url, asking in self._asking.items():
            if isinstance(asking, SotwAsking):
                self._versions[type_url] = asking.version

    def _forget_stream(self) -> None:
        self._asking.clear()
        self._deaf_since = None
        self._paces.clear()
        self._answers.clear()

    def _begin(self, type_url: TypeUrl) -> None:
        keys = self._wants[type_url]
        spec = self._spec(type_url)
        if self.delta:
            self._asking[type_url] = DeltaAsking(spec, keys, lambda: self._held(self, type_url).versions)
            return
        # A version stands for everything of the type. It would be a lie where something is lacking, and a server that
        # believes it would not send that (CLI-5).
        complete = self._held(self, type_url).complete
        self._asking[type_url] = SotwAsking(spec, keys, self._versions.get(type_url, "") if complete else "")
