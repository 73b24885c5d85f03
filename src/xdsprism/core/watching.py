"""One watched resource: what is held of it, in which state, and what its watchers are told (gRFC A88).

A watcher hears of three things: a resource, an error (there is none to use), or an ambient error (what it has stays
good, but something is wrong with getting newer).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import WatchError
from .events import Key
from .responses import Arrival
from .types import TypeUrl, Variant

if TYPE_CHECKING:
    from .subscriber import Authority
    from .upstream import Upstream


class State(Enum):
    """As CSDS calls them (A40, A88)."""

    REQUESTED = 2
    DOES_NOT_EXIST = 3
    ACKED = 4
    NACKED = 5
    RECEIVED_ERROR = 6
    TIMEOUT = 7


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell a watcher. With a variant and no error: the resource."""

    type_url: TypeUrl
    name: str
    variant: Variant | None
    message: object = None  # the resource, decoded, where that has been done already
    error: WatchError | None = None
    ambient: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last version that was refused, for CSDS."""

    version: str
    message: str
    at: float


class Watch:
    """Somebody who watches: takes notices out one by one. Of one resource only the newest waits to be taken."""

    __slots__ = ("_pending", "entries", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.entries: list[Entry] = []
        self.wake = wake
        self._pending: dict[tuple[Entry | str, bool], Notice] = {}

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending)

    def take(self) -> Notice | None:
        if not self._pending:
            return None
        return self._pending.pop(next(iter(self._pending)))

    def tell(self, entry: Entry, notice: Notice) -> None:
        pending = self._pending
        pending.pop((entry, notice.ambient), None)
        if not notice.ambient:
            pending.pop((entry, True), None)  # an ambient error is about the value before
        pending[entry, notice.ambient] = notice
        self.wake()

    def complain(self, type_url: TypeUrl, name: str, error: WatchError) -> None:
        """Tell of something that can't even be asked for."""
        self._pending[(name, False)] = Notice(type_url, name, None, error=error)
        self.wake()


class Entry:
    """One resource that is watched, under the name and params by which it was asked for."""

    __slots__ = (
        "authority",
        "error",
        "expires",
        "key",
        "refusal",
        "source",
        "state",
        "type_url",
        "updated",
        "variant",
        "watches",
    )

    def __init__(self, type_url: TypeUrl, key: Key, authority: Authority, watches: list[Watch]) -> None:
        self.type_url = type_url
        self.key = key
        self.authority = authority
        self.watches = watches
        self.variant: Variant | None = None
        self.state = State.REQUESTED
        self.error: WatchError | None = None  # what watchers were told last, if it was not the resource
        self.refusal: Refusal | None = None
        self.source: Upstream | None = None  # the server that the variant is from
        self.updated = 0.0
        self.expires: float | None = None

    @property
    def name(self) -> str:
        return self.key[0]

    @property
    def usable(self) -> bool:
        """There is something to go on with."""
        return self.variant is not None

    @property
    def lacking(self) -> bool:
        """Neither cached nor known to be missing (FBK-1); such an entry has a timer."""
        return self.variant is None and self.state in (State.REQUESTED, State.TIMEOUT)

    def accept(self, arrival: Arrival, source: Upstream, now: float) -> bool:
        """A good resource came. False if nobody needs to hear of it (CLI-19)."""
        before, self.variant = self.variant, arrival.variant
        news = before is None or self.error is not None or not _same(before, arrival.variant)
        if not news and before is not None:
            before.version = arrival.variant.version
            self.variant = before  # one copy of the contents, not two
        self.source, self.state, self.error, self.refusal, self.updated = source, State.ACKED, None, None, now
        if news:
            self._tell(Notice(self.type_url, self.name, self.variant, arrival.message))
        return news

    def recall(self, variant: Variant) -> None:
        """What an earlier run was given last, since nobody can be asked now."""
        self.variant = variant
        self._tell(Notice(self.type_url, self.name, variant))

    def refuse(self, error: WatchError, version: str, now: float) -> None:
        """What came was no good. NAK-15: the last good one stays."""
        self.refusal = Refusal(version, error.message, now)
        self.state = State.NACKED
        self.ail(error)

    def fail(self, error: WatchError, state: State, now: float, *, drop: bool) -> None:
        """The server says that there is none, or may as well have said so."""
        self.state = state
        self.updated = now
        if drop and self.variant is not None:
            self.variant = self.error = None
        self.ail(error)

    def ail(self, error: WatchError) -> None:
        """Tell of an error: an ambient one where there is something to go on with. Never the same twice."""
        known, self.error = self.error, error
        if known is None or str(known) != str(error):
            self._tell(Notice(self.type_url, self.name, self.variant, error=error, ambient=self.usable))

    def greet(self, watch: Watch) -> None:
        """CLI-18: one more watcher gets what there is, at once; an ambient error after it."""
        if self.variant is not None:
            watch.tell(self, Notice(self.type_url, self.name, self.variant))
        if self.error is not None:
            watch.tell(self, Notice(self.type_url, self.name, self.variant, error=self.error, ambient=self.usable))

    def _tell(self, notice: Notice) -> None:
        for watch in self.watches:
            watch.tell(self, notice)


class Collection(Entry):
    """A wildcard or a glob: whatever belongs to it, each with a state of its own."""

    __slots__ = ("members",)

    def __init__(self, type_url: TypeUrl, key: Key, authority: Authority, watches: list[Watch]) -> None:
        super().__init__(type_url, key, authority, watches)
        self.members: dict[str, Entry] = {}

    @property
    def usable(self) -> bool:
        return bool(self.members)

    @property
    def lacking(self) -> bool:
        return not self.members and self.state is State.REQUESTED

    def member(self, name: str) -> Entry:
        found = self.members.get(name)
        if found is None:
            found = self.members[name] = Entry(self.type_url, (name, self.key[1]), self.authority, self.watches)
        return found

    def greet(self, watch: Watch) -> None:
        super().greet(watch)
        for member in self.members.values():
            member.greet(watch)


def _same(one: Variant, other: Variant) -> bool:
    return one.body == other.body and one.constraint == other.constraint and one.extras == other.extras
