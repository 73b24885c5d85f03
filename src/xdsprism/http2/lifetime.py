"""Decides when to send keepalive PINGs, and when and how to end a connection.

A connection that is to end is drained (RFC 9113, section 6.8):

    SERVING     drain()
    ANNOUNCED   a first GOAWAY accepts every stream, and a PING follows it. Once the client acknowledges the PING, all
                streams that it opened before it read the GOAWAY have arrived. At most `times.notice` seconds.
    REFUSING    a second GOAWAY names the last stream. The open streams may end until `grace_ends`; then they are reset.

Keepalive is lazy: received bytes only update `Connection.last_received`, and `tick` compares it when the timer fires.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from .codes import Code
from .connection import Connection
from .faults import ConnectionFault
from .limits import Limit, Times

_ALIVE = b"alive?\0\0"
_LEAVING = b"leaving\0"


class Stage(Enum):
    """How far a connection is drained; see above."""

    SERVING = auto()
    ANNOUNCED = auto()  # the first GOAWAY is sent
    REFUSING = auto()  # the second GOAWAY is sent


class Lifetime:
    """The timers of one connection: the caller passes the time to `tick`, at the latest at `due`."""

    __slots__ = (
        "_announced_at",
        "_connection",
        "_drain_at",
        "_pinged_at",
        "_preface_by",
        "_times",
        "_used_at",
        "_used_to",
        "due",
        "grace_ends",
        "is_over",
        "stage",
    )

    def __init__(self, connection: Connection, times: Times, now: float, age: float = inf) -> None:
        """`age`: seconds until it is drained, with jitter, so that not all clients reconnect at once."""
        self.stage = Stage.SERVING
        self.is_over = False  # close the socket once everything is written
        self._connection = connection
        self._times = times
        self._preface_by = now + times.preface
        self._drain_at = now + age
        self._pinged_at: float | None = None  # when we sent a keepalive PING that is not answered
        self._announced_at = 0.0
        self._used_at = now  # when `tick` last found a stream
        self._used_to = 0  # the newest stream that it found
        self.grace_ends = inf  # once it drains: when the remaining streams are reset
        self.due = self._next_due()  # when to call `tick`; it may be early, and is never late

    @property
    def is_draining(self) -> bool:
        return self.stage is not Stage.SERVING

    def ping_acked(self, payload: bytes) -> None:
        """Send the second GOAWAY if this acknowledges the PING that followed the first."""
        if payload == _LEAVING and self.stage is Stage.ANNOUNCED:
            self._send_final_goaway()

    def drain(self, now: float, grace: float) -> None:
        """Begin to drain the connection; a later call can shorten the grace."""
        if self._connection.failed is not None:
            self.is_over = self._connection.events.has_changed = True
            return
        self.grace_ends = min(self.grace_ends, now + grace)
        self._connection.events.has_changed = True
        if self.stage is Stage.SERVING:
            self.stage = Stage.ANNOUNCED
            self._announced_at = now
            self._connection.send_first_goaway()
            self._connection.ping(_LEAVING)
        self.due = min(self.due, self._next_due())

    def tick(self, now: float) -> None:
        """Do whatever is due at `now`."""
        connection = self._connection
        if connection.failed is not None:
            self.is_over = now >= connection.failed_at + self._times.linger
        elif not connection.is_established and now >= self._preface_by:
            connection.fail(ConnectionFault(Code.PROTOCOL_ERROR, "no preface in time", Limit.PREFACE))
        elif now >= self.grace_ends:
            self._end_grace()
        else:
            self._keep_alive(now)
            if self.stage is Stage.SERVING and (now >= self._drain_at or self._is_unused(now)):
                self.drain(now, self._times.age_grace)
            elif self.stage is Stage.ANNOUNCED and now >= self._announced_at + self._times.notice:
                self._send_final_goaway()
        self.due = self._next_due()

    def _is_unused(self, now: float) -> bool:
        """Whether the connection has had no stream for too long, as far as `tick` saw; then report that."""
        connection = self._connection
        if connection.streams or connection.last_opened != self._used_to:
            self._used_at, self._used_to = now, connection.last_opened
        if now < self._used_at + self._times.idle_connection or not connection.is_established:
            return False
        connection.report_limit(Limit.IDLE_CONNECTION, Code.NO_ERROR, connection=True)
        return True

    def _keep_alive(self, now: float) -> None:
        """Send a PING after silence, and fail the connection if the client does not answer in time."""
        # Any received byte answers the PING. `>=`: with a coarse clock it may carry the time of the PING itself.
        if self._pinged_at is not None and self._connection.last_received >= self._pinged_at:
            self._pinged_at = None
        if self._pinged_at is not None:
            if now >= self._pinged_at + self._times.keepalive_timeout:
                self._connection.fail(ConnectionFault(Code.NO_ERROR, "no answer to a PING", Limit.KEEPALIVE))
        elif self._connection.is_established and now >= self._connection.last_received + self._times.keepalive:
            self._pinged_at = now
            self._connection.ping(_ALIVE)

    def _send_final_goaway(self) -> None:
        self.stage = Stage.REFUSING
        self._connection.send_final_goaway()
        self.due = self._next_due()

    def _end_grace(self) -> None:
        """Reset the streams that did not end within the grace."""
        if self.stage is Stage.ANNOUNCED:
            self._send_final_goaway()
        for stream in list(self._connection.streams.values()):
            self._connection.abandon(stream, Code.CANCEL, "the stream did not end before its connection had to")
        self.is_over = True

    def _next_due(self) -> float:
        """Return the earliest time at which `tick` may have to act."""
        keepalive = self._connection.last_received + self._times.keepalive
        if self._pinged_at is not None:
            keepalive = self._pinged_at + self._times.keepalive_timeout
        preface = inf if self._connection.is_established else self._preface_by
        ends = self._drain_at if self.stage is Stage.SERVING else inf
        notice = self._announced_at + self._times.notice if self.stage is Stage.ANNOUNCED else inf
        serves = self.stage is Stage.SERVING and not self._connection.streams
        unused = self._used_at + self._times.idle_connection if serves else inf
        return min(keepalive, preface, ends, notice, unused, self.grace_ends)
