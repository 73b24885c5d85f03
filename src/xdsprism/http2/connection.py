"""Puts together what a server's HTTP/2 connection decides; it has no socket.

    events = connection.receive(data, now)    bytes from the peer become events (events.py)
    connection.out.send(stream, payload)      answers go to the sending half (outbound.py)
    connection.send_queued()                  DATA that waited for a window is framed
    connection.out.take_output()              bytes for the socket

Its parts, each of which knows those below it:

    FrameReader      what each frame of the peer does, and which may arrive when
    Pings            when a PING is answered
    Streams          which streams are open, and how one begins and ends
    ReceiveWindows   how much the peer may send
    Outbound         the sending half
    EventQueue       what the layer above has yet to take

A fault of the peer never raises out of a connection: a stream error resets the stream; a connection error sends GOAWAY,
after which `failed` is set and all further bytes are ignored.
"""

from __future__ import annotations

from . import frames
from .codes import (
    DEFAULT_WINDOW,
    INITIAL_WINDOW_SIZE,
    LAST_STREAM,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    Code,
)
from .events import Event, EventQueue
from .facts import Fact
from .faults import ConnectionFault
from .frame_reader import FrameReader
from .limits import Limit, Limits
from .outbound import Outbound
from .receive_windows import ReceiveWindows
from .stream import Stream
from .streams import Streams


class Connection:
    """One connection of a client, as the layer above uses it; the sending half is `out`."""

    __slots__ = (
        "_limits",
        "_reader",
        "_streams",
        "_windows",
        "events",
        "failed",
        "failed_at",
        "last_received",
        "out",
        "streams",
    )

    def __init__(self, limits: Limits, now: float, peer: str = "") -> None:
        self.out = Outbound(limits, now)
        self.events = EventQueue(peer)
        self.failed: ConnectionFault | None = None
        self.failed_at = 0.0
        self.last_received = now  # when the last byte came
        self._limits = limits
        self._streams = Streams(limits, self.out, self.events, now)
        self.streams = self._streams.open  # the open ones, by number
        self._windows = ReceiveWindows(limits, self.out)
        self._reader = FrameReader(limits, self.out, self._streams, self._windows, self.events, now)
        self._send_preface()

    def _send_preface(self) -> None:
        """Send our SETTINGS, and raise the connection's receive window above its default (section 3.4)."""
        limits = self._limits
        values = (
            (MAX_CONCURRENT_STREAMS, limits.streams),
            (INITIAL_WINDOW_SIZE, limits.stream_window),
            (MAX_HEADER_LIST_SIZE, limits.header_bytes),
        )
        self.out.control(frames.settings(values))
        self.out.control(frames.window_update(0, limits.connection_window - DEFAULT_WINDOW))

    @property
    def last_opened(self) -> int:
        """The number of the newest stream that the peer opened; 0: none yet."""
        return self._streams.last_opened

    @property
    def is_established(self) -> bool:
        """Whether the preface and the first SETTINGS came."""
        return self._reader.is_established

    @property
    def facts(self) -> list[Fact]:
        """What happened, for metrics and logs."""
        return self.events.facts

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Process bytes from the peer, cut anywhere, and return what they mean to the layer above."""
        if self.failed is not None:
            return []
        self.last_received = self.out.now = now
        try:
            self._reader.parse(data)
        except ConnectionFault as fault:
            self.fail(fault)
        else:
            if self.out.unread_bytes > self._limits.unread_bytes:
                self.fail(
                    ConnectionFault(Code.ENHANCE_YOUR_CALM, "the client does not read acknowledgements", Limit.UNREAD)
                )
        return self.events.take_events()

    def send_queued(self) -> list[Event]:
        """Frame the DATA that windows now allow, and close the streams that have sent their end."""
        try:
            self.out.send_queued()
        except ConnectionFault as fault:
            self.fail(fault)
        if self.out.finished:
            over, self.out.finished = self.out.finished, []
            for stream in over:
                if stream.can_receive and not stream.is_closed:  # section 8.1: we don't need the rest of the request
                    self.out.control(frames.reset(stream.number, Code.NO_ERROR))
                self._streams.close(stream, ours=stream.can_receive)
        return self.events.take_events()

    def reset(self, stream: Stream, code: Code) -> None:
        """Reset a stream on behalf of the layer above, which gets no event for it."""
        self._streams.reset(stream, code)

    def abandon(self, stream: Stream, code: Code, why: str) -> None:
        """Reset a stream and tell the layer above why, with an `Aborted` event."""
        self._streams.abandon(stream, code, why)

    def report_limit(self, limit: Limit, code: Code, *, connection: bool) -> None:
        """Report to metrics that the peer exceeded a limit."""
        self.events.report_limit(limit, code, connection=connection)

    def charge_limit(self, limit: Limit) -> None:
        """Report a limit that ends one call with a status, and charge it as a reset.

        Each such call costs us work. Without the charge a peer could repeat it on one connection without end.
        """
        self.report_limit(limit, Code.NO_ERROR, connection=False)
        if self.failed is None and not self._streams.resets.spend(self.out.now):
            self.fail(
                ConnectionFault(
                    Code.ENHANCE_YOUR_CALM, f"limit exceeded again and again: {limit.replace('_', ' ')}", Limit.RESETS
                )
            )

    def ping(self, payload: bytes) -> None:
        self.out.control(frames.ping(payload))

    def send_first_goaway(self) -> None:
        """Announce the end of the connection, and still accept every stream: none in flight is lost (section 6.8)."""
        self.out.control(frames.goaway(LAST_STREAM, Code.NO_ERROR))

    def send_final_goaway(self) -> None:
        """Send the GOAWAY that names the last stream: the server ignores streams with higher numbers."""
        self.events.has_changed = True
        self._streams.refuse_further()
        self.out.control(frames.goaway(self._streams.last_opened, Code.NO_ERROR))

    def fail(self, fault: ConnectionFault) -> None:
        """Send GOAWAY with the reason, abort every stream, and ignore all further input."""
        # Keep one that was never raised: otherwise its traceback refers to this connection, which only the garbage
        # collector could free then.
        self.failed = ConnectionFault(fault.code, fault.why, fault.limit)
        self.events.has_changed = True
        self.failed_at = self.out.now
        if fault.limit is not None:
            self.report_limit(fault.limit, fault.code, connection=True)
        self.out.pause()
        self.out.control(frames.goaway(self._streams.last_opened, fault.code, fault.why))
        self._streams.abort_all(fault.why)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        return self.events.take_events()

    def hold_back(self, stream: Stream, *, waits: bool) -> bool:
        """Stop (`waits`) or resume restoring a stream's receive window. Return whether a WINDOW_UPDATE was due."""
        return self._windows.hold_back(stream, waits=waits)
