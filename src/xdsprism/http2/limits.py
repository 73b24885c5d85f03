"""How much a peer may ask of us.

Nothing here is part of HTTP/2: a peer can follow every rule of the RFC and still wear a server down. So whatever costs
us more than it costs the peer is counted. What comes in bursts from honest clients has an `Allowance`: a number at
once, and a rate at which it comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import UsageError
from .codes import FIRST_WINDOW

SHARE = 64 * 1024  # bytes of unfinished messages that any connection may have, whatever the others do
BEING_TOLD = 8  # connections at once that are told why they are refused, and half as many of one address


class Limit(StrEnum):
    """Which limit was met: a label of metrics, so there are few of these and they never change."""

    CONNECTIONS = "connections"
    ADDRESS = "address"
    STREAMS = "streams"
    HEADER_LIST = "header_list"
    CONTINUATIONS = "continuations"
    EMPTY_FRAMES = "empty_frames"
    RESETS = "resets"
    SETTINGS = "settings"
    PINGS = "pings"
    NOISE = "noise"
    WINDOW_UPDATES = "window_updates"
    TINY_WINDOWS = "tiny_windows"
    WINDOW_OVERFLOW = "window_overflow"
    UNREAD = "unread"
    STALLED = "stalled"
    PREFACE = "preface"
    KEEPALIVE = "keepalive"
    MESSAGE_SIZE = "message_size"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and so many more in each second."""

    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Generous to any real client, and small against what the machine can bear."""

    connections: int = 1 << 20  # at once; and never more than there are descriptors for
    streams: int = 1_024  # at once, on one connection
    header_bytes: int = 16_384  # of one header list, counted as RFC 9113, section 10.5.1 does; gRPC's own is 8 kB
    continuations: int = 64  # frames that one header block may come in
    message_bytes: int = 64 * 1024 * 1024
    # Of messages that have begun and are not complete, over all streams of a connection, beyond the largest one.
    unfinished_bytes: int = 4 * 1024 * 1024
    all_unfinished_bytes: int = 512 * 1024 * 1024  # the same over all connections, beyond a small share of each
    stream_window: int = 1024 * 1024  # what we take in is consumed at once, so windows are only about the pace
    connection_window: int = 64 * 1024 * 1024
    unread_bytes: int = 256 * 1024  # of answers to PING, SETTINGS and the like that the peer does not read
    empty_frames: Rate = Rate(100, 10)
    resets: Rate = Rate(200, 20)  # of streams that were hardly open, by the peer or because of it
    settings: Rate = Rate(50, 5)
    pings: Rate = Rate(100, 10)  # it is full again whenever we send, since clients measure the path with these
    noise: Rate = Rate(1_000, 100)  # PRIORITY, unknown frames, and words on streams that are over
    window_updates: Rate = Rate(2_000, 200)  # beyond those that follow from what we send
    tiny_frames: Rate = Rate(1_000, 20)  # of DATA, that the peer's window cuts to a few bytes

    def __post_init__(self) -> None:
        if min(self.stream_window, self.connection_window) < FIRST_WINDOW:  # a peer uses these before it knows ours
            raise UsageError(f"windows have at least {FIRST_WINDOW:,} bytes")


@dataclass(frozen=True, slots=True)
class Times:
    """In seconds."""

    preface: float = 10.0  # to say the preface and the first SETTINGS
    keepalive: float = 30.0  # of silence, until we ask whether the peer is there
    keepalive_timeout: float = 20.0  # to answer that
    stall: float = 600.0  # that a stream may leave what was sent to it unread, or a message of its own unfinished
    notice: float = 1.0  # between the two GOAWAYs, at most
    age: float = float("inf")  # of a connection, until it is drained
    age_grace: float = 30.0  # for its streams to end then
    linger: float = 1.0  # for the peer to hear why we hang up


class Crowd:
    """All connections together: how many there may be, and what they have in common.

    No address may have them all, for then it could keep everybody else out. Three quarters are plenty even where all
    clients come through one load balancer, and the last quarter is for the others.
    """

    __slots__ = ("_addresses", "_limits", "_told", "open", "told", "unfinished")

    def __init__(self, limits: Limits) -> None:
        self.open = 0  # without those that are refused: a flood of these must not keep others out
        self.told = 0  # those that are refused, and hear why
        self.unfinished = 0  # bytes of messages that have begun
        self._limits = limits
        self._addresses: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def join(self, address: str) -> Limit | None:
        """Count a connection, unless that meets a limit: then say which."""
        had = self._addresses.get(address, 0)
        if had >= max(self._limits.connections * 3 // 4, 1):
            return Limit.ADDRESS
        if self.open >= self._limits.connections:
            return Limit.CONNECTIONS
        self.open += 1
        self._addresses[address] = had + 1
        return None

    def leave(self, address: str) -> None:
        self.open -= 1
        _take_one(self._addresses, address)

    def begin_telling(self, address: str) -> bool:
        """Count a connection that is refused and hears why; false: too many do so already, and it is not counted."""
        had = self._told.get(address, 0)
        if self.told >= BEING_TOLD or had >= BEING_TOLD // 2:
            return False
        self.told += 1
        self._told[address] = had + 1
        return True

    def end_telling(self, address: str) -> None:
        self.told -= 1
        _take_one(self._told, address)

    def has_room(self, unfinished: int) -> bool:
        """For a connection with so many bytes of messages that have begun."""
        return unfinished <= SHARE or self.unfinished <= self._limits.all_unfinished_bytes


def _take_one(counts: dict[str, int], address: str) -> None:
    left = counts.pop(address) - 1
    if left:
        counts[address] = left


class Allowance:
    """What is left of a rate."""

    __slots__ = ("_at", "_burst", "_left", "_per_second")

    def __init__(self, rate: Rate, now: float) -> None:
        self._burst = rate.burst
        self._per_second = rate.per_second
        self._left = float(rate.burst)
        self._at = now

    def spend(self, now: float) -> bool:
        """Take one; false if there is none."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def refill(self) -> None:
        self._left = self._burst
