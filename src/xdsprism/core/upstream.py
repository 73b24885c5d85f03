"""One server, as a client sees it: the stream to it, what is asked of it, when to try again.

    opened ──▶ poll ... receive ... answer ──▶ ended ──▶ (retry_at) ──▶ opened ...

Which resources are wanted outlives streams, and so does the version of what was taken last (CLI-5). Everything else
begins anew with each stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import WatchError
from .asking import Answer, Asked, Asking, DeltaAsking, SotwAsking
from .backoff import Backoff
from .events import Key
from .types import TypeSpec, TypeUrl

if TYPE_CHECKING:
    from .subscriber import Authority
    from .watching import Entry

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
    ) -> None:
        self.label = label
        self.delta = delta
        self.fail_on_data_errors = fail_on_data_errors
        self.timer_is_transient = timer_is_transient
        self.users: set[Authority] = set()
        self.timers: dict[Entry, float] = {}  # in the order in which they end: they are all of one length
        self.failing: WatchError | None = None  # why there was no answer at the last try
        self.connected = False
        self.retry_at = 0.0
        self.wake: Callable[[], None] = lambda: None
        self._spec = spec
        self._held = held
        self._wants: dict[TypeUrl, dict[Key, None]] = {}
        self._versions: dict[TypeUrl, str] = {}
        self._asking: dict[TypeUrl, Asking] = {}
        self._backoff = Backoff()
        self._answered = False
        self._opened_at = 0.0
        self._was_hasty = False

    @property
    def wanted(self) -> bool:
        """Whether there ought to be a stream."""
        return bool(self.users)

    @property
    def patience(self) -> float:
        """How long to wait for a resource. CLI-11; CLI-14 where the server says that silence means nothing."""
        return 30.0 if self.timer_is_transient else 15.0

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
        self.connected = True
        self._answered = False
        self._opened_at = now
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

    def answer(self, type_url: TypeUrl, answer: Answer) -> None:
        if self.connected:
            self._asking[type_url].answer(answer)
            self.wake()

    def ended(self, error: WatchError, now: float, random: float) -> bool:
        """The stream is over, or could not be opened. True if that is a failure (CLI-16, CLI-17)."""
        for type_url, asking in self._asking.items():
            if isinstance(asking, SotwAsking):
                self._versions[type_url] = asking.version
        self._asking.clear()
        self.timers.clear()  # CLI-12: no timer runs while there is no stream
        answered, self._answered = self._answered, False
        hasty = self.connected and now - self._opened_at < HASTY
        self.connected = False
        if answered and not (hasty and self._was_hasty):
            self.retry_at = now
        else:
            self.retry_at = now + self._backoff.next(random)
        self._was_hasty = answered and hasty
        if not answered:
            self.failing = error
        return not answered

    def closed(self) -> None:
        """Nobody wants it any more, and its stream was let go of."""
        self._asking.clear()
        self.timers.clear()
        self.connected = self._answered = False
        self.failing = None
        self.retry_at = 0.0
        self._backoff.reset()

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
