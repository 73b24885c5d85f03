"""When to ask whether a peer is still there, when to let it go, and how.

A connection that is to end is drained (RFC 9113, section 6.8): a first GOAWAY that refuses nothing, and a PING; once
that is answered, all that the peer sent before it knew has come, and a second GOAWAY names the last stream. Then the
streams that are left may end, until the grace is over.

Keepalive is lazy: what comes in is only noted, and the timer finds out when it fires.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from .codes import Code
from .connection import Connection
from .faults import Fault
from .limits import Limit, Times

_ALIVE = b"alive?\0\0"
_LEAVING = b"leaving\0"


class Stage(Enum):
    SERVING = auto()
    ANNOUNCED = auto()  # the first GOAWAY is sent
    REFUSING = auto()  # the second is


class Lifetime:
    """Tell it the time; it tells the connection."""

    __slots__ = (
        "_announced",
        "_asked",
        "_connection",
        "_ends",
        "_preface_by",
        "_times",
        "due",
        "grace_ends",
        "over",
        "stage",
    )

    def __init__(self, connection: Connection, times: Times, now: float, age: float = inf) -> None:
        """`age`: of this connection, with its share of chance, so that not all come back at once."""
        self.stage = Stage.SERVING
        self.over = False  # hang up, once all is written
        self._connection = connection
        self._times = times
        self._preface_by = now + times.preface
        self._ends = now + age
        self._asked: float | None = None  # when we asked whether it is there
        self._announced = 0.0
        self.grace_ends = inf  # once it drains: when that is to be over
        self.due = self._next()  # when to call `tick`: never later than something is to be done

    @property
    def draining(self) -> bool:
        return self.stage is not Stage.SERVING

    def ponged(self, payload: bytes) -> None:
        if payload == _LEAVING and self.stage is Stage.ANNOUNCED:
            self._refuse()

    def drain(self, now: float, grace: float) -> None:
        """End it in good order; may be said again, with less grace."""
        if self._connection.failed is not None:
            self.over = self._connection.stirred = True
            return
        self.grace_ends = min(self.grace_ends, now + grace)
        self._connection.stirred = True
        if self.stage is Stage.SERVING:
            self.stage = Stage.ANNOUNCED
            self._announced = now
            self._connection.announce_end()
            self._connection.ping(_LEAVING)
        self.due = min(self.due, self._next())

    def tick(self, now: float) -> None:
        """Whatever is due."""
        connection = self._connection
        if connection.failed is not None:
            self.over = now >= connection.failed_at + self._times.linger
        elif not connection.greeted and now >= self._preface_by:
            connection.fail(Fault(Code.PROTOCOL_ERROR, "no preface in time", Limit.PREFACE))
        elif now >= self.grace_ends:
            self._give_up()
        else:
            self._keep_alive(now)
            if self.stage is Stage.SERVING and now >= self._ends:
                self.drain(now, self._times.age_grace)
            elif self.stage is Stage.ANNOUNCED and now >= self._announced + self._times.notice:
                self._refuse()
        self.due = self._next()

    def _keep_alive(self, now: float) -> None:
        # Any word will do. Clocks may tick slowly, and what was heard before we asked is older than that.
        if self._asked is not None and self._connection.heard >= self._asked:
            self._asked = None
        if self._asked is not None:
            if now >= self._asked + self._times.keepalive_timeout:
                self._connection.fail(Fault(Code.NO_ERROR, "no answer to a PING", Limit.KEEPALIVE))
        elif self._connection.greeted and now >= self._connection.heard + self._times.keepalive:
            self._asked = now
            self._connection.ping(_ALIVE)

    def _refuse(self) -> None:
        self.stage = Stage.REFUSING
        self._connection.refuse_more()
        self.due = self._next()

    def _give_up(self) -> None:
        """The grace is over, and so are the streams that did not end in it."""
        if self.stage is Stage.ANNOUNCED:
            self._refuse()
        for stream in list(self._connection.streams.values()):
            self._connection.abandon(stream, Code.CANCEL, "the connection was to end, and the stream did not")
        self.over = True

    def _next(self) -> float:
        keepalive = self._connection.heard + self._times.keepalive
        if self._asked is not None:
            keepalive = self._asked + self._times.keepalive_timeout
        preface = inf if self._connection.greeted else self._preface_by
        ends = self._ends if self.stage is Stage.SERVING else inf
        notice = self._announced + self._times.notice if self.stage is Stage.ANNOUNCED else inf
        return min(keepalive, preface, ends, notice, self.grace_ends)
