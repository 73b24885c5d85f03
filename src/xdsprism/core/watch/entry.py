"""One watched resource: what is held of it, in which state, and what its watchers are told (gRFC A88).

A watcher hears of three things: a resource, an error (there is none to use), or an ambient error (what it has stays
good, but something is wrong with getting newer).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import WatchError
from ..model.constraints import TRUE, Constraint, canonical
from ..model.events import Key
from ..model.responses import Arrival
from ..model.types import TypeUrl, Variant

if TYPE_CHECKING:
    from .authority import Authority
    from .host_holders import Holders
    from .upstream import Upstream


class State(Enum):
    """As CSDS calls them (A40, A88)."""

    REQUESTED = 2
    DOES_NOT_EXIST = 3
    ACKED = 4
    NACKED = 5
    RECEIVED_ERROR = 6
    TIMEOUT = 7


@dataclass(slots=True, eq=False)  # not frozen, which takes its time: there may be a hundred thousand of them at once
class Notice:
    """One thing to tell a watcher. With a variant and no error: the resource."""

    type_url: TypeUrl
    name: str
    variant: Variant | None
    error: WatchError | None = None
    ambient: bool = False
    trusted: bool = False  # BST-6: the variant came from a `trusted_xds_server`


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong in the state that an entry is in, for CSDS; `version` is the one that was refused, if any was."""

    version: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """What an earlier run knew of an entry last."""

    since: float  # wall time: until then it was known to be so
    variants: tuple[Variant, ...] = ()  # one, or those of a collection
    whole: bool = False  # of a collection: these are all
    absent: bool = False  # there is none; for these, where the server said that
    absence: Constraint | None = None


class Watch:
    """Somebody who watches: takes notices out one by one. Of one resource only the newest waits to be taken."""

    __slots__ = ("_pending", "entries", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.entries: list[Entry] = []
        self.wake = wake
        # From the front of a plain dict things can't be taken fast: it looks past all that are gone, each time.
        self._pending: OrderedDict[tuple[Entry | str, bool], Notice] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending)

    def take(self) -> Notice | None:
        return self._pending.popitem(last=False)[1] if self._pending else None

    def tell(self, entry: Entry, notice: Notice) -> None:
        pending = self._pending
        first = not pending
        pending.pop((entry, notice.ambient), None)
        if not notice.ambient:
            pending.pop((entry, True), None)  # an ambient error is about the value before
        pending[entry, notice.ambient] = notice
        if first:  # else it is awake
            self.wake()

    def complain(self, type_url: TypeUrl, name: str, error: WatchError) -> None:
        """Tell of something that can't even be asked for."""
        self._pending[(name, False)] = Notice(type_url, name, None, error=error)
        self.wake()


class Entry:
    """One resource that is watched, under the name and params by which it was asked for."""

    __slots__ = (
        "absence",
        "authority",
        "collection",
        "doubted",
        "error",
        "expires",
        "for_all",
        "holders",
        "kept_at",
        "key",
        "refusal",
        "source",
        "state",
        "stream",
        "suited",
        "trusted",
        "type_url",
        "updated",
        "variant",
        "verdict",
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
        self.absence: Constraint | None = None  # for whom there is nothing, where the server said so (DESIGN 6.4)
        self.verdict: WatchError | None = None  # what is wrong with the resource itself; that a server is gone is not
        self.source: Upstream | None = None  # the server that the variant is from
        self.stream = 0  # which of the streams to it
        self.suited = False  # whether it came in the form in which it was asked for (DESIGN 6.1)
        self.trusted = False  # BST-6: whether that server is a `trusted_xds_server`; never so of what came from disk
        self.updated = 0.0  # when the source gave the variant last
        self.expires: float | None = None
        self.kept_at: float | None = None  # it is what an earlier run knew at this wall time, and no server said so yet
        self.for_all = False  # it was answered by a server that does not know params: so it is for any (PRX-32)
        # Why there may be none: the server was asked, and if it says nothing for a moment, that is what watchers hear.
        self.doubted: WatchError | None = None
        self.holders: Holders | None = None  # of what it holds, where that is called otherwise than it was asked for
        self.collection: Collection | None = None  # it came for this one, not because its name was asked for

    @property
    def name(self) -> str:
        return self.key[0]

    @property
    def usable(self) -> bool:
        """There is something to go on with."""
        return self.variant is not None

    @property
    def lacking(self) -> bool:
        """Neither cached nor known to be missing (FBK-1)."""
        return self.variant is None and self.state in (State.REQUESTED, State.TIMEOUT)

    @property
    def ailing(self) -> bool:
        """ERR-9: the server said that something is wrong with it, and neither what it is nor that there is none."""
        negative = self.verdict is not None and self.verdict.status in ("NOT_FOUND", "PERMISSION_DENIED")
        return self.state is State.RECEIVED_ERROR and not negative

    @property
    def unknown(self) -> bool:
        """Nothing is held, and no server said that there is none: whatever it is has yet to be sent."""
        return self.lacking or (self.variant is None and (self.ailing or self.state is State.NACKED))

    @property
    def unanswered(self) -> bool:
        """No server has said anything about it, so it has a timer. One from disk has too: who knows if it still is."""
        return self.source is None and self.state in (State.REQUESTED, State.TIMEOUT)

    @property
    def is_settled(self) -> bool:
        """Whether what came last is good, and nothing has been wrong since."""
        return self.state is State.ACKED and self.error is None

    def unsettle(self) -> None:
        """Something befalls it: what it holds may be asked for again, or be of less use than it was."""
        if self.holders is not None:
            self.holders.unsettle(self)

    def renew(self) -> None:
        """Nothing that was said of it counts any more."""
        self.state, self.source, self.verdict = State.REQUESTED, None, None
        self.unsettle()

    def accept(self, arrival: Arrival, source: Upstream, now: float) -> bool:
        """A good resource came. False if nobody needs to hear of it (CLI-19)."""
        before, self.variant = self.variant, arrival.variant
        was_trusted, self.trusted = self.trusted, source.trusted
        is_same = before is not None and self.error is None and _same(before, arrival.variant)
        # BST-6: the same contents mean something else where another server vouches for them (A81).
        news = not is_same or was_trusted != self.trusted
        if is_same and before is not None:
            arrival.variant.body = before.body  # one copy of the contents, not two
            self.variant = before if _is_labelled(before, arrival.variant) else arrival.variant
        self.source, self.stream, self.state, self.updated = source, source.streams, State.ACKED, now
        self.suited = arrival.located == (self.key[1] is not None)
        self.error = self.verdict = self.refusal = self.kept_at = self.doubted = None
        if news:
            self._tell(self._notice())
        return news

    def relabel(self, variant: Variant) -> None:
        """The same contents came in the same version: there may be more aliases by now, which is no news to anybody."""
        if self.variant is not None:
            variant.body = self.variant.body  # one copy of the contents, not two
        self.variant = variant

    def recall(self, variant: Variant, since: float) -> None:
        """What an earlier run was given last, since nobody can be asked now."""
        self.variant, self.kept_at, self.trusted = variant, since, False
        self._tell(self._notice())

    def recall_absence(self, absence: Constraint | None, since: float) -> None:
        """An earlier run was told last that there is none."""
        self.state, self.absence, self.kept_at = State.DOES_NOT_EXIST, absence, since
        self.unsettle()
        self.verdict = WatchError("NOT_FOUND", f"{self.name!r} did not exist when a server was there last")

    def adopt(self, other: Entry) -> None:
        """The same resource is held under another key."""
        self.variant, self.source, self.stream, self.suited = other.variant, other.source, other.stream, other.suited
        self.state, self.error, self.verdict, self.refusal = other.state, other.error, other.verdict, other.refusal
        self.updated, self.expires, self.kept_at = other.updated, other.expires, other.kept_at
        self.trusted, self.absence, self.for_all = other.trusted, other.absence, other.for_all
        self.doubted = other.doubted
        self.unsettle()
        for watch in self.watches:
            self.greet(watch)

    def refuse(self, error: WatchError, version: str, now: float) -> bool:
        """What came was no good. NAK-15: the last good one stays. True if that is news, as in all of these."""
        self.refusal = Refusal(version, error.message, now)
        self.state = State.NACKED
        self.unsettle()
        self.verdict = error
        return self.ail(error)

    def fail(self, error: WatchError, state: State, now: float, *, drop: bool) -> bool:
        """The server says that there is none, or may as well have said so."""
        self.state, self.doubted = state, None
        self.unsettle()
        self.kept_at = None if drop else self.kept_at
        self.refusal = Refusal("", str(error), now)  # A88: the most recent error
        self.verdict = error
        if drop and self.variant is not None:
            self.variant = self.error = None
        return self.ail(error)

    def ail(self, error: WatchError) -> bool:
        """Tell of an error: an ambient one where there is something to go on with. Never the same twice."""
        known, self.error = self.error, error
        self.unsettle()
        news = known is None or str(known) != str(error)
        if news:
            self._tell(self._notice(error))
        return news

    def recover(self) -> None:
        """There is a server again. ERR-11: what was wrong with the resource before still is."""
        self.error = None
        if self.verdict is not None:
            self.ail(self.verdict)

    def doubt(self, error: WatchError) -> None:
        """There may be none; the server was asked, or will be."""
        self.doubted = error
        self.unsettle()

    def holds(self, name: str, version: str | None = None) -> bool:
        """Whether it has the resource of that name, which need not be the string that was asked for (VHD-3)."""
        held = self.variant
        return held is not None and held.name == name and version in (None, held.version)

    def came_from(self, upstream: Upstream) -> bool:
        """Whether the variant came on the present stream of that server."""
        return self.variant is not None and self.source is upstream and self.stream == upstream.streams

    def is_suited(self, upstream: Upstream) -> bool:
        return self.suited and self.came_from(upstream)

    def is_bound(self, upstream: Upstream) -> bool:
        """Whether what is held was asked for by a locator and has constraints."""
        bound = self.variant is not None and canonical(self.variant.constraint) != TRUE
        return bound and self.key[1] is not None and self.is_suited(upstream)

    def greet(self, watch: Watch) -> None:
        """CLI-18: one more watcher gets what there is, at once; an ambient error after it."""
        if self.variant is not None:
            watch.tell(self, self._notice())
        if self.error is not None:
            watch.tell(self, self._notice(self.error))

    def _notice(self, error: WatchError | None = None) -> Notice:
        """The resource, or an error: an ambient one where there is something to go on with."""
        ambient = error is not None and self.usable
        return Notice(self.type_url, self.name, self.variant, error, ambient, self.trusted)

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
            found.collection = self
        return found

    def greet(self, watch: Watch) -> None:
        super().greet(watch)
        for member in self.members.values():
            member.greet(watch)


def members_of(entry: Entry) -> list[Entry]:
    """What came for a collection; nothing, where the entry is a name."""
    return [*entry.members.values()] if isinstance(entry, Collection) else []


def _is_labelled(one: Variant, other: Variant) -> bool:
    """Whether the same contents are also called the same. If not, no watcher need know, but others may have the old."""
    return (one.version, one.aliases, one.ttl) == (other.version, other.aliases, other.ttl)


def _same(one: Variant, other: Variant) -> bool:
    """DYN-30: constraints that differ in form only are the same."""
    same = one.name == other.name and one.body == other.body and one.extras == other.extras
    return same and (one.constraint == other.constraint or canonical(one.constraint) == canonical(other.constraint))
