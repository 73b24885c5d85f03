"""Bounds what a peer may cost the server: sizes, counts, rates, and times.

HTTP/2 asks for none of these: a peer can follow every rule of the RFC and still exhaust a server. So whatever costs us
more than it costs the peer is counted. Things that honest clients do in bursts have a `TokenBucket`: a burst, and a
rate at which tokens come back. docs/transport.md lists every limit and what exceeding it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import UsageError
from ..token_bucket import Rate
from .codes import DEFAULT_WINDOW

GUARANTEED_BYTES = 64 * 1024  # of incomplete messages that each connection may hold, whatever all others hold
MAX_REFUSALS = 8  # refused connections at once that get a reason before they are closed; half as many of one address


class Limit(StrEnum):
    """Which limit a peer exceeded: a label of metrics, so the values are few and never change."""

    CONNECTIONS = "connections"
    ADDRESS = "address_connections"
    HANDSHAKES = "handshakes"
    ADDRESS_HANDSHAKES = "address_handshakes"
    IDLE_CONNECTION = "idle_connection"
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
    FIRST_REQUEST = "first_request"
    KEEPALIVE = "keepalive"
    MESSAGE_SIZE = "message_size"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes, counts and rates: generous to any real client, and small compared with what a server can bear."""

    connections: int = 1 << 20  # at once; file descriptors limit them further (server/connection_limits.py)
    address_connections: int | None = None  # the same of one address; None: three quarters of all
    handshakes: int = 10_000  # connections that have not sent their preface and SETTINGS, over TLS where there is TLS
    address_handshakes: int | None = None  # the same of one address; None: three quarters of all
    streams: int = 1_024  # at once, on one connection
    header_bytes: int = 16_384  # of one header list, counted as RFC 9113, section 10.5.1 does; gRPC's own is 8 kB
    continuations: int = 64  # frames that one header block may come in
    message_bytes: int = 64 * 1024 * 1024
    # Bytes of incomplete messages over all streams of a connection, beyond one message of the largest size.
    unfinished_bytes: int = 4 * 1024 * 1024
    all_unfinished_bytes: int = 512 * 1024 * 1024  # the same over all connections, beyond GUARANTEED_BYTES for each
    stream_window: int = 1024 * 1024  # calls consume messages at once, so a window only limits the pace
    connection_window: int = 64 * 1024 * 1024
    unread_bytes: int = 256 * 1024  # of PING and SETTINGS acknowledgements and the like that the peer does not read
    empty_frames: Rate = Rate(100, 10)
    resets: Rate = Rate(200, 20)  # of streams younger than a second, by the peer or for its errors
    settings: Rate = Rate(50, 5)
    pings: Rate = Rate(100, 10)  # full again whenever we send data, since clients measure the network with PINGs then
    noise: Rate = Rate(1_000, 100)  # PRIORITY, unknown frames, and frames on closed streams
    window_updates: Rate = Rate(2_000, 200)  # beyond four for each frame that we send
    tiny_frames: Rate = Rate(1_000, 20)  # DATA frames that the peer's window cuts to a few bytes

    def __post_init__(self) -> None:
        # Peers use the default windows until they have read our SETTINGS.
        if min(self.stream_window, self.connection_window) < DEFAULT_WINDOW:
            raise UsageError(f"windows have at least {DEFAULT_WINDOW:,} bytes")


@dataclass(frozen=True, slots=True)
class Times:
    """Timeouts of a connection, in seconds."""

    preface: float = 10.0  # for the client to send its preface and first SETTINGS; also for a TLS handshake
    first_request: float = 60.0  # for the client to begin a message on a new stream
    idle_connection: float = 300.0  # without a stream, until it is drained
    keepalive: float = 30.0  # without input, until we send a PING
    keepalive_timeout: float = 20.0  # for the client to answer the PING
    stall: float = 600.0  # that a client may leave a message of ours unread, or one of its own unfinished
    notice: float = 1.0  # between the two GOAWAYs, at most
    age: float = float("inf")  # of a connection, until it is drained
    age_grace: float = 30.0  # for the streams of a drained connection to end
    linger: float = 1.0  # for the client to read why we close, before we close the socket


class ConnectionCount:
    """Counts all connections of a server, and the bytes of incomplete messages that they hold together.

    One address may have three quarters of the connections, so that it can't keep everybody else out. That is plenty
    even where all clients come through one load balancer.
    """

    __slots__ = ("_addresses", "_handshakes", "_limits", "_refusing", "handshakes", "open", "refusing", "unfinished")

    def __init__(self, limits: Limits) -> None:
        self.open = 0  # without refused connections, of which a flood must not keep others out
        self.refusing = 0  # refused connections that are being sent a reason
        self.handshakes = 0  # of `open`, those whose client has not sent its preface and SETTINGS
        self.unfinished = 0  # bytes of messages that are not complete
        self._limits = limits
        self._addresses: dict[str, int] = {}
        self._handshakes: dict[str, int] = {}
        self._refusing: dict[str, int] = {}

    def admit(self, address: str) -> Limit | None:
        """Count a connection, which begins with its handshake, or return the limit that refuses it."""
        limits, had, begun = self._limits, self._addresses.get(address, 0), self._handshakes.get(address, 0)
        if had >= _share(limits.address_connections, limits.connections):
            return Limit.ADDRESS
        if self.open >= limits.connections:
            return Limit.CONNECTIONS
        if begun >= _share(limits.address_handshakes, limits.handshakes):
            return Limit.ADDRESS_HANDSHAKES
        if self.handshakes >= limits.handshakes:
            return Limit.HANDSHAKES
        self.open += 1
        self._addresses[address] = had + 1
        self.handshakes += 1
        self._handshakes[address] = begun + 1
        return None

    def end_handshake(self, address: str) -> None:
        """Count a handshake of this address as over."""
        self.handshakes -= 1
        _decrement(self._handshakes, address)

    def release(self, address: str) -> None:
        """Count a connection of this address as closed. Its handshake is over."""
        self.open -= 1
        _decrement(self._addresses, address)

    def begin_refusal(self, address: str) -> bool:
        """Count a refused connection that gets a reason. False if too many do already: close this one silently."""
        had = self._refusing.get(address, 0)
        if self.refusing >= MAX_REFUSALS or had >= MAX_REFUSALS // 2:
            return False
        self.refusing += 1
        self._refusing[address] = had + 1
        return True

    def end_refusal(self, address: str) -> None:
        """Count a refused connection as closed."""
        self.refusing -= 1
        _decrement(self._refusing, address)

    def can_buffer(self, unfinished: int) -> bool:
        """Whether a connection may go on holding this many bytes of incomplete messages."""
        return unfinished <= GUARANTEED_BYTES or self.unfinished <= self._limits.all_unfinished_bytes


def _share(of_address: int | None, of_all: int) -> int:
    """Return how many one address may have: what is said, or three quarters of all."""
    return of_address if of_address is not None else max(of_all * 3 // 4, 1)


def _decrement(counts: dict[str, int], address: str) -> None:
    left = counts.pop(address) - 1
    if left:
        counts[address] = left
