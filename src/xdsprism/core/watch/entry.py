"""Keep the state of one watched resource, and decide what its watchers hear (gRFC A88).

A watcher hears three things: the resource, an error (there is no resource to use), or an ambient error (the cached
resource stays in use, but the client could not get a newer one).

    event        happens when                               from                next state
    -----------  -----------------------------------------  ------------------  --------------
    (new)        somebody watches the resource                                  REQUESTED
    RECEIVED     a valid resource came                      any                 ACKED
    INVALID      an invalid resource came                   any                 NACKED
    REMOVED      the server removed or denied it, or its    any                 DOES_NOT_EXIST
                 TTL is over
    ERROR        the server sent a resource error, or ends  any                 RECEIVED_ERROR
                 its streams when asked for it
    TIMED_OUT    no answer in time: a transient error       REQUESTED, TIMEOUT  TIMEOUT
    UNANSWERED   no answer in time: it does not exist       REQUESTED, TIMEOUT  DOES_NOT_EXIST
    RESUBSCRIBE  the client asks anew, since nothing that   any                 REQUESTED
                 servers said counts any more
    RELEASED     the quarantine of the subscription ends    RECEIVED_ERROR      REQUESTED

`TRANSITIONS` is this table, and `Entry._on` alone applies it. An entry that shares the answer to another entry takes
its state with it (`Entry.adopt`).

On RECEIVED watchers hear the resource, if its contents differ from the cached ones. On INVALID, REMOVED, ERROR,
TIMED_OUT and UNANSWERED they hear an ambient error; an error, if nothing is cached. The cached resource is dropped only
if `drop` says so. The last two events change nothing for watchers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import WatchError
from ...native import mypyc_attr
from ..model.constraints import Constraint, canonical
from ..model.events import Key
from ..model.responses import Arrival
from ..model.types import TypeUrl, Variant

if TYPE_CHECKING:
    from .authority import Authority
    from .host_holders import Holders
    from .upstream import Upstream


class State(Enum):
    """The client status of a resource, with the numbers that CSDS uses (A40, A88)."""

    REQUESTED = 2
    DOES_NOT_EXIST = 3
    ACKED = 4
    NACKED = 5
    RECEIVED_ERROR = 6
    TIMEOUT = 7


class Event(Enum):
    """What changes the state of a resource; the module docstring says when each happens."""

    RECEIVED = 1
    INVALID = 2
    REMOVED = 3
    ERROR = 4
    TIMED_OUT = 5
    UNANSWERED = 6
    RESUBSCRIBE = 7
    RELEASED = 8


_OPEN = (State.REQUESTED, State.TIMEOUT)  # no server has answered

TRANSITIONS: dict[Event, dict[State, State]] = {
    Event.RECEIVED: dict.fromkeys(State, State.ACKED),
    Event.INVALID: dict.fromkeys(State, State.NACKED),
    Event.REMOVED: dict.fromkeys(State, State.DOES_NOT_EXIST),
    Event.ERROR: dict.fromkeys(State, State.RECEIVED_ERROR),
    Event.TIMED_OUT: dict.fromkeys(_OPEN, State.TIMEOUT),
    Event.UNANSWERED: dict.fromkeys(_OPEN, State.DOES_NOT_EXIST),
    Event.RESUBSCRIBE: dict.fromkeys(State, State.REQUESTED),
    Event.RELEASED: {State.RECEIVED_ERROR: State.REQUESTED},
}


@dataclass(slots=True, eq=False)  # not frozen, which takes its time: there may be a hundred thousand of them at once
class Notice:
    """One message to a watcher: the resource if `error` is None, else an error.

    An ambient error has the cached variant beside the error.
    """

    type_url: TypeUrl
    name: str
    variant: Variant | None
    error: WatchError | None = None
    ambient: bool = False
    trusted: bool = False  # BST-6: the variant came from a `trusted_xds_server`
    absence: Constraint | None = None  # for which clients it does not exist, if the server said so


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of an entry, for CSDS; `version` is the version that the client rejected, if it rejected one."""

    version: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """The last state of an entry that an earlier run of the process stored on disk."""

    since: float  # wall time at which a server last confirmed this
    variants: tuple[Variant, ...] = ()  # one, or those of a collection
    whole: bool = False  # of a collection: `variants` has all of its members
    absent: bool = False  # the resource did not exist, for clients that `absence` matches, where the server said so
    absence: Constraint | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Watch:
    """One watcher, which takes its notices one at a time.

    Latest value wins: for each resource, only the newest notice and the newest ambient error wait. So a slow watcher
    skips versions, and memory is bounded by the number of resources.
    """

    __slots__ = ("_pending", "entries", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.entries: list[Entry] = []
        self.wake = wake
        # An OrderedDict, because removing the first item of a plain dict scans past all the items removed before it.
        self._pending: OrderedDict[tuple[Entry | str, bool], Notice] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending)

    def take(self) -> Notice | None:
        """Remove and return the oldest notice, or None."""
        return self._pending.popitem(last=False)[1] if self._pending else None

    def tell(self, entry: Entry, notice: Notice) -> None:
        """Queue a notice, in place of an older one for the same entry, and wake the watcher if its queue was empty."""
        pending = self._pending
        first = not pending
        pending.pop((entry, notice.ambient), None)
        if not notice.ambient:
            pending.pop((entry, True), None)  # the older ambient error was about the previous resource
        pending[entry, notice.ambient] = notice
        if first:  # otherwise the earlier notice has woken the watcher
            self.wake()

    def report_unaskable(self, type_url: TypeUrl, name: str, error: WatchError) -> None:
        """Queue an error for a name that no server can be asked for."""
        self._pending[(name, False)] = Notice(type_url, name, None, error=error)
        self.wake()


class Entry:
    """One watched resource, wildcard or glob, by the name and params of its subscription; or a member of one.

    Three fields hold errors. `error` is what watchers heard last. `own_error` is what is wrong with the resource
    itself, and survives the loss and the return of a server. `last_error` is what CSDS shows.
    """

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
        "last_error",
        "member_of",
        "name",
        "own_error",
        "params",
        "sent_by",
        "state",
        "stream",
        "suited",
        "trusted",
        "type_url",
        "updated",
        "variant",
        "watches",
    )

    def __init__(self, type_url: TypeUrl, key: Key, authority: Authority, watches: list[Watch]) -> None:
        self.type_url = type_url
        self.key = key
        self.name, self.params = key
        self.authority = authority
        self.watches = watches
        self.variant: Variant | None = None
        self.state = State.REQUESTED
        self.error: WatchError | None = None  # the error that watchers heard last; None: the resource
        self.last_error: LastError | None = None  # for CSDS
        # Params for which there is no resource, where the server said so (DESIGN 6.4).
        self.absence: Constraint | None = None
        self.own_error: WatchError | None = None  # what is wrong with the resource itself, as opposed to the connection
        self.sent_by: Upstream | None = None  # the server that sent the variant
        self.stream = 0  # `Upstream.streams` when the variant came
        self.suited = False  # whether the variant came in the form of the subscription, locator or plain (DESIGN 6.1)
        self.trusted = False  # BST-6: whether `sent_by` is a `trusted_xds_server`; False for a variant from disk
        self.updated = 0.0  # when `sent_by` sent the variant last
        self.expires: float | None = None
        self.kept_at: float | None = None  # wall time of contents from disk that no server has confirmed yet
        self.for_all = False  # the answer came from a server without params, so it is for any params (PRX-32)
        # The resource may be gone, and the server was asked again. Watchers hear this error if the server stays silent.
        self.doubted: WatchError | None = None
        self.holders: Holders | None = None  # of the variant, where its name is not that of the subscription
        self.collection: Collection | None = None  # the members, if the subscription is a wildcard or a glob
        self.member_of: Collection | None = None  # what brought this entry, if it has no subscription of its own

    @property
    def usable(self) -> bool:
        """Whether there is a resource to use; of a wildcard or glob, a member."""
        return self.variant is not None or (self.collection is not None and bool(self.collection.members))

    @property
    def lacking(self) -> bool:
        """Whether nothing is cached, and no server has answered, which starts fallback (FBK-1)."""
        if self.collection is not None:
            return not self.collection.members and self.state is State.REQUESTED
        return self.variant is None and self.state in _OPEN

    @property
    def has_unclear_error(self) -> bool:
        """Whether the server reported an error that does not say whether the resource exists (ERR-9)."""
        negative = self.own_error is not None and self.own_error.status in ("NOT_FOUND", "PERMISSION_DENIED")
        return self.state is State.RECEIVED_ERROR and not negative

    @property
    def unknown(self) -> bool:
        """Whether nothing is cached and no server denied the resource: the server has yet to send it."""
        return self.lacking or (self.variant is None and (self.has_unclear_error or self.state is State.NACKED))

    @property
    def unanswered(self) -> bool:
        """Whether no server has said anything about the resource, so that the timer of CLI-11 applies.

        That includes a variant from disk: only a server can say whether it still exists.
        """
        return self.sent_by is None and self.state in _OPEN

    def _on(self, event: Event) -> None:
        """Change the state; no other method does, except `adopt`."""
        self.state = TRANSITIONS[event][self.state]
        self.offer_again()

    def offer_again(self) -> None:
        """Have the next copy of the variant offered to this entry again, since its state changed (host_holders.py)."""
        if self.holders is not None:
            self.holders.offer_again(self)

    def renew(self) -> None:
        """Forget what servers said, before the resource is asked for again; the cached variant stays."""
        self._on(Event.RESUBSCRIBE)
        self.sent_by = self.own_error = None

    def release(self) -> None:
        """Forget the error of the quarantine, which was no answer of a server, before the subscription is sent."""
        if self.state is State.RECEIVED_ERROR:
            self._on(Event.RELEASED)

    def accept(self, arrival: Arrival, upstream: Upstream, now: float) -> bool:
        """Take a valid resource; return whether watchers were told, which unchanged contents are not (CLI-19)."""
        before, self.variant = self.variant, arrival.variant
        was_trusted, self.trusted = self.trusted, upstream.trusted
        is_same = before is not None and self.error is None and _same(before, arrival.variant)
        # BST-6: the same contents mean something else where another server vouches for them (A81).
        news = not is_same or was_trusted != self.trusted
        if is_same and before is not None:
            arrival.variant.body = before.body  # one copy of the contents, not two
            self.variant = before if _is_labelled(before, arrival.variant) else arrival.variant
        self._on(Event.RECEIVED)
        self.sent_by, self.stream, self.updated = upstream, upstream.streams, now
        self.suited = arrival.located == (self.params is not None)
        self.error = self.own_error = self.last_error = self.kept_at = self.doubted = None
        if news:
            self._tell(self.watches)
        return news

    def accept_collection(self, *, for_all: bool) -> None:
        """Note that a server has answered a wildcard or glob, and wake watchers, since it may have no members."""
        self._on(Event.RECEIVED)
        self.for_all = for_all
        self.error = self.own_error = None
        for watch in self.watches:
            watch.wake()

    def relabel(self, variant: Variant) -> None:
        """Take the same contents in the same version, perhaps with more aliases; watchers do not hear of that."""
        if self.variant is not None:
            variant.body = self.variant.body  # one copy of the contents, not two
        self.variant = variant

    def recall(self, variant: Variant, since: float) -> None:
        """Use the variant that an earlier run stored on disk, since no server can be reached."""
        self.variant, self.kept_at, self.trusted = variant, since, False
        self._tell(self.watches)

    def recall_absence(self, absence: Constraint | None, since: float) -> None:
        """Use what an earlier run stored on disk: the resource did not exist."""
        self._on(Event.REMOVED)
        self.absence, self.kept_at = absence, since
        self.own_error = WatchError("NOT_FOUND", f"{self.name!r} did not exist when a server was last connected")

    def adopt(self, other: Entry) -> None:
        """Copy the state of an entry that holds the same resource under another key, and tell the watchers."""
        self.variant, self.sent_by, self.stream, self.suited = other.variant, other.sent_by, other.stream, other.suited
        self.state, self.error, self.own_error, self.last_error = (
            other.state,
            other.error,
            other.own_error,
            other.last_error,
        )
        self.updated, self.expires, self.kept_at = other.updated, other.expires, other.kept_at
        self.trusted, self.absence, self.for_all = other.trusted, other.absence, other.for_all
        self.doubted = other.doubted
        self.offer_again()
        for watch in self.watches:
            self.tell_newcomer(watch)

    def reject(self, error: WatchError, version: str, now: float) -> bool:
        """Record that the new resource is invalid; the last valid one stays (NAK-15).

        Return whether watchers were told.
        """
        self.last_error = LastError(version, error.message, now)
        self._on(Event.INVALID)
        self.own_error = error
        return self.report_error(error)

    def fail(self, error: WatchError, event: Event, now: float, *, drop: bool) -> bool:
        """Record a negative event: REMOVED, ERROR, TIMED_OUT or UNANSWERED; `drop`: forget the cached resource.

        Return whether watchers were told.
        """
        self._on(event)
        self.doubted = None
        self.kept_at = None if drop else self.kept_at
        self.last_error = LastError("", str(error), now)  # A88: the most recent error
        self.own_error = error
        if drop and self.variant is not None:
            self.variant = self.error = None
        return self.report_error(error)

    def report_error(self, error: WatchError) -> bool:
        """Tell watchers an error, unless it is the one that they heard last; return whether they were told.

        The error is ambient if a resource is cached.
        """
        known, self.error = self.error, error
        self.offer_again()
        news = known is None or str(known) != str(error)
        if news:
            self._tell(self.watches, error)
        return news

    def recover(self) -> None:
        """Clear the error of a lost server, and tell watchers again what is wrong with the resource itself (ERR-11)."""
        self.error = None
        if self.own_error is not None:
            self.report_error(self.own_error)

    def doubt(self, error: WatchError) -> None:
        """Note that the resource may be gone, until the server answers or `PendingAnswers.doubts` runs out."""
        self.doubted = error
        self.offer_again()

    def holds(self, name: str, version: str | None = None) -> bool:
        """Whether the cached resource has that name, which may differ from the name of the subscription (VHD-3)."""
        held = self.variant
        return held is not None and held.name == name and version in (None, held.version)

    def came_from(self, upstream: Upstream) -> bool:
        """Whether the variant came on the current stream of that server."""
        return self.variant is not None and self.sent_by is upstream and self.stream == upstream.streams

    def tell_newcomer(self, watch: Watch) -> None:
        """Tell a new watcher the cached resource at once, the current error, if any, and all members (CLI-18)."""
        if self.variant is not None:
            self._tell((watch,))
        if self.error is not None:
            self._tell((watch,), self.error)
        for member in members_of(self):
            member.tell_newcomer(watch)

    def _tell(self, watches: Sequence[Watch], error: WatchError | None = None) -> None:
        """Tell watchers the resource, or an error, which is ambient if a resource is cached."""
        ambient = error is not None and self.usable
        notice = Notice(self.type_url, self.name, self.variant, error, ambient, self.trusted, self.absence)
        for watch in watches:
            watch.tell(self, notice)


class Collection:
    """The members of a wildcard or glob; each has an entry, and so a state, of its own.

    entry: that of the subscription, which says whether a server has answered, and what was wrong.
    """

    __slots__ = ("entry", "members")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.members: dict[str, Entry] = {}

    def member(self, name: str) -> Entry:
        """Return the entry of a member, and make it if there is none yet."""
        found = self.members.get(name)
        if found is None:
            whole = self.entry
            found = self.members[name] = Entry(whole.type_url, Key(name, whole.params), whole.authority, whole.watches)
            found.member_of = self
        return found


def members_of(entry: Entry) -> list[Entry]:
    """Return the members of a wildcard or glob; nothing for an entry with a name."""
    return [*entry.collection.members.values()] if entry.collection is not None else []


def subscribed(entry: Entry) -> Entry:
    """Return the entry whose key the requests name: for a member, that of its wildcard or glob."""
    return entry.member_of.entry if entry.member_of is not None else entry


def _is_labelled(one: Variant, other: Variant) -> bool:
    """Whether two variants with equal contents also have equal version, aliases and TTL.

    If not, watchers need not know, but the relay passes the new labels on.
    """
    return (one.version, one.aliases, one.ttl) == (other.version, other.aliases, other.ttl)


def _same(one: Variant, other: Variant) -> bool:
    """Whether two variants have equal contents, and constraints that differ at most in form (DYN-30)."""
    same = one.name == other.name and one.body == other.body and one.extras == other.extras
    return same and (one.constraint == other.constraint or canonical(one.constraint) == canonical(other.constraint))
