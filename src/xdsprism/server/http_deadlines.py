"""Decides how long an HTTP/1 connection may take, and which idle connection to evict. No I/O, no clock.

A client that sends nothing, or half a header, or does not read its response would keep a descriptor for ever. An idle
connection, which waits for the client's next request, can be closed at any time: the client connects again.

| state of a connection   | due after                                      | then                                      |
|-------------------------|------------------------------------------------|-------------------------------------------|
| idle, new               | `header`                                       | closed, reason `silent`                   |
| idle, between requests  | `idle`                                         | closed, not counted                       |
| within a request header | `header` from its first byte                   | status 408, reason `header`               |
| responding              | `unread` without progress, `answer` in total   | closed, reason `unread`                   |
| responding without end  | `unread` without progress, `answer` since the  | closed, reason `unread`                   |
|                         | client last had read everything                |                                           |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..http2.facts import HttpRefusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpTimes:
    """Timeouts of an HTTP/1 connection, in seconds."""

    header: float = 10.0  # from connecting, or from the first byte of a later request, to the end of its header
    idle: float = 75.0  # between two requests: a client that polls each minute finds its connection open
    unread: float = 30.0  # in which the client reads no byte of a response
    answer: float = 600.0  # for one request and its response, however slowly the client reads
    linger: float = 1.0  # for the client to read why it is refused


class HttpDeadlines:
    """The state of one connection, and when its client has taken too long."""

    __slots__ = (
        "_answer_by",
        "_has_requested",
        "_is_endless",
        "_is_written",
        "_times",
        "_unsent",
        "due",
        "is_idle",
        "is_within_header",
    )

    def __init__(self, times: HttpTimes, now: float) -> None:
        self._times = times
        self._has_requested = False  # at least one whole request header came
        self._is_written = False  # the application is done; the client may not have read the response
        self._is_endless = False  # the response is a stream, such as that of events
        self._answer_by = 0.0  # when the request in progress must be over
        self._unsent = 0  # bytes that were unsent at the last look
        self.due = now + times.header  # when to call `is_over`
        self.is_idle = True  # no request is in progress
        self.is_within_header = False  # a part of a request header came

    def note_bytes(self, now: float) -> None:
        """Note that bytes came. Only the first byte of a header sets its deadline; later ones don't extend it."""
        if self.is_idle and not self.is_within_header:
            self.is_within_header = True
            self.due = min(self.due, now + self._times.header)

    def begin(self, now: float) -> None:
        """Note that a whole request header came, and the application begins its response."""
        self.is_idle = self.is_within_header = False
        self._has_requested = True
        self._is_written = self._is_endless = False
        self._unsent = 0
        self._answer_by = now + self._times.answer
        self.due = now + self._times.unread

    def never_end(self) -> None:
        """Note that the response in progress is a stream: it may last, as long as its client reads all of it."""
        self._is_endless = True

    def end(self, now: float, unsent: int) -> None:
        """Note that the application wrote the whole response. `unsent`: bytes that the client has not taken yet."""
        if unsent:
            self._is_written = True
            self.due = min(now + self._times.unread, self._answer_by)
        else:
            self.is_idle = True
            self.due = now + self._times.idle

    def is_over(self, now: float, unsent: int) -> bool:
        """Return whether the client has taken too long. If not, `due` says when to ask again."""
        if now < self.due:
            return False
        if self._is_written and not unsent and not self.is_idle:
            self.end(now, 0)
            return False
        if self._is_endless and not unsent:
            self._answer_by = now + self._times.answer
        if self.is_idle or now >= self._answer_by or (unsent and unsent == self._unsent):
            return True
        self._unsent = unsent
        self.due = min(now + self._times.unread, self._answer_by)
        return False

    @property
    def fault(self) -> HttpRefusal | None:
        """Why the connection is ended, if it is over now; None for an idle connection that had its response."""
        if self.is_within_header:
            return HttpRefusal.HEADER
        if not self.is_idle:
            return HttpRefusal.UNREAD
        return None if self._has_requested else HttpRefusal.SILENT


class IdleConnections(Generic[T]):
    """The idle connections of a port, by address, those that have been idle longest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[T, None]] = {}

    def add(self, address: str, connection: T) -> None:
        self._by_address.setdefault(address, {})[connection] = None

    def discard(self, address: str, connection: T) -> None:
        found = self._by_address.get(address, {})
        found.pop(connection, None)
        if not found:
            self._by_address.pop(address, None)

    def oldest_of(self, address: str) -> T | None:
        """Return the connection of this address that has been idle longest."""
        return next(iter(self._by_address.get(address, ())), None)

    def oldest_of_largest(self) -> T | None:
        """Return the connection that has been idle longest, of the address with most idle connections."""
        return next(iter(max(self._by_address.values(), key=len, default=())), None)
