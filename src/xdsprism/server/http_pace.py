"""How long a connection of HTTP/1 may take, and which of those that ask for nothing makes room. No I/O, no clock.

A peer that says nothing, or half a header, or does not read its answer costs a descriptor for as long as it likes, if
nobody looks at the time. One that only waits, be it for its own next request, may be let go at any time: whoever wants
something connects again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..http2.facts import Dismissal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpTimes:
    """In seconds."""

    header: float = 10.0  # from the connection, or from the first byte of a later request, to the end of its header
    idle: float = 75.0  # between two requests: who polls each minute is to find the connection open
    unread: float = 30.0  # that no byte of an answer is taken by the peer
    answer: float = 600.0  # for one request and its answer, however slowly the peer reads
    linger: float = 1.0  # for the peer to hear why it is refused


class Pace:
    """What one connection is waited for, and until when."""

    __slots__ = ("_asked", "_is_written", "_longest", "_times", "_unsent", "due", "is_waiting", "is_within_header")

    def __init__(self, times: HttpTimes, now: float) -> None:
        self._times = times
        self._asked = False  # for anything, ever
        self._is_written = False  # all of the answer, which may not have been read yet
        self._longest = 0.0
        self._unsent = 0
        self.due = now + times.header
        self.is_waiting = True  # no request of it is being answered
        self.is_within_header = False  # something of a request came, and not all of its header

    def hear(self, now: float) -> None:
        """Note that bytes came. Those that follow the first ones of a header don't prolong it."""
        if self.is_waiting and not self.is_within_header:
            self.is_within_header = True
            self.due = min(self.due, now + self._times.header)

    def begin(self, now: float) -> None:
        """Note that a whole header came, and is being answered."""
        self.is_waiting = self.is_within_header = False
        self._asked = True
        self._is_written = False
        self._unsent = 0
        self._longest = now + self._times.answer
        self.due = now + self._times.unread

    def end(self, now: float, unsent: int) -> None:
        """Note that the answer is written. While some of it is unsent, it is still the peer's turn to read."""
        if unsent:
            self._is_written = True
            self.due = min(now + self._times.unread, self._longest)
        else:
            self.is_waiting = True
            self.due = now + self._times.idle

    def is_over(self, now: float, unsent: int) -> bool:
        """Tell whether the peer has taken too long; if not, `due` says when to look again."""
        if now < self.due:
            return False
        if self._is_written and not unsent and not self.is_waiting:
            self.end(now, 0)
            return False
        if self.is_waiting or now >= self._longest or (unsent and unsent == self._unsent):
            return True
        self._unsent = unsent
        self.due = min(now + self._times.unread, self._longest)
        return False

    @property
    def fault(self) -> Dismissal | None:
        """What the peer did wrong if it is over now; None: it asked, was answered, and has no further question."""
        if self.is_within_header:
            return Dismissal.HEADER
        if not self.is_waiting:
            return Dismissal.UNREAD
        return None if self._asked else Dismissal.SILENT


class Waiting(Generic[T]):
    """The connections that ask for nothing at the moment, of each address those that have waited longest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[T, None]] = {}

    def add(self, address: str, connection: T) -> None:
        self._by_address.setdefault(address, {})[connection] = None

    def discard(self, address: str, connection: T) -> None:
        found = self._by_address.get(address, {})
        found.pop(connection, None)
        if not found:
            self._by_address.pop(address, None)

    def of_address(self, address: str) -> T | None:
        """Say which one of that address may go."""
        return next(iter(self._by_address.get(address, ())), None)

    def of_most(self) -> T | None:
        """Say which one may go of the address that has most of them."""
        return next(iter(max(self._by_address.values(), key=len, default=())), None)
