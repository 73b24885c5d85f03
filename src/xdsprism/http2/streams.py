"""Keeps which streams of a connection are open, which were, and which numbers come next (RFC 9113, section 5.1).

A stream begins with `admit` and `add`. Its input ends with `end_input`; what ends it as a whole is one of these:

    who decides                           method           the layer above gets
    ------------------------------------  ---------------  --------------------
    the layer above, or both sides ended  reset, close     no event
    a limit or the end of the connection  abandon          `Aborted`, with the reason
    the peer                              reset_by_peer    `Aborted`, without a reason
    a stream error of the peer            reset_faulty     `Aborted`, with the reason
    a connection error                    abort_all        `Aborted`, with the reason
"""

from __future__ import annotations

from ..token_bucket import TokenBucket
from . import frames
from .closed_streams import ClosedStreams
from .codes import LAST_STREAM, Code
from .events import Aborted, EventQueue
from .faults import ConnectionFault, StreamFault, charge
from .limits import Limit, Limits
from .outbound import Outbound
from .stream import Stream

EARLY_RESET = 1.0  # seconds: resetting a stream that is younger counts as abuse (rapid reset)


class Streams:
    """The streams of one connection."""

    __slots__ = ("_closed", "_events", "_last_accepted", "_most", "_out", "last_opened", "noise", "open", "resets")

    def __init__(self, limits: Limits, out: Outbound, events: EventQueue, now: float) -> None:
        self.open: dict[int, Stream] = {}  # by number
        self.last_opened = 0  # the highest stream number that the peer used
        self.resets = TokenBucket(limits.resets, now)
        self.noise = TokenBucket(limits.noise, now)
        self._most = limits.streams
        self._out = out
        self._events = events
        self._last_accepted = LAST_STREAM  # the highest that our last GOAWAY accepts
        self._closed = ClosedStreams()

    # -- how a stream begins

    def is_new(self, number: int) -> bool:
        """Whether HEADERS with this number ask for a new stream; raise ConnectionFault if the number was skipped."""
        if number > self.last_opened:
            return True
        if number not in self.open and number not in self._closed:  # section 5.1.1: skipped numbers are never used
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream number that is not above the last")
        return False

    def admit(self, number: int) -> bool:
        """Take the number of a new stream. False: ignore the stream, it is above the last accepted (section 6.8)."""
        if number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "clients must use odd stream numbers")
        self.last_opened = number
        if number > self._last_accepted:
            return False
        if len(self.open) >= self._most:  # section 5.1.2
            raise StreamFault(Code.REFUSED_STREAM, "too many streams at once", Limit.STREAMS)
        return True

    def add(self, number: int, credit: int, expected_bytes: int | None) -> Stream:
        """Open an admitted stream; `credit` and `expected_bytes` as in `Stream`."""
        stream = Stream(number, self._out.now, self._out.initial_window, credit)
        stream.expected_bytes = expected_bytes
        self.open[number] = stream
        self._events.has_changed = True
        return stream

    def refuse_further(self) -> None:
        """Accept no stream with a number above the last that was opened."""
        self._last_accepted = self.last_opened

    # -- frames on streams

    def end_input(self, stream: Stream) -> None:
        """Take END_STREAM from the peer."""
        if stream.expected_bytes:  # section 8.1.1
            raise StreamFault(Code.PROTOCOL_ERROR, "the body is shorter than its content-length")
        stream.can_receive = False

    def check_stray(self, number: int, stream: Stream | None, what: str) -> None:
        """Judge DATA or HEADERS on a stream that takes no more input (section 5.1). Returns if they are ignored."""
        if stream is None:
            self.charge_stray(number, what)
            if number > self._last_accepted or self._closed.was_closed_by_us(number):  # sent before our frame arrived
                return
            if number in self._closed and what == "HEADERS":
                raise ConnectionFault(Code.STREAM_CLOSED, "HEADERS on a closed stream")
        raise StreamFault(Code.STREAM_CLOSED, f"{what} on a closed stream")

    def charge_stray(self, number: int, what: str) -> None:
        """Charge a frame on a stream that is over; on an idle one it is a connection error (section 5.1)."""
        if number == 0 or number > self.last_opened or number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{what} on a stream that was never opened")
        charge(self.noise, Limit.NOISE, self._out.now)

    # -- how a stream ends

    def reset(self, stream: Stream, code: Code) -> None:
        """Reset a stream on behalf of the layer above."""
        self._out.control(frames.reset(stream.number, code))
        self.close(stream, ours=True)

    def abandon(self, stream: Stream, code: Code, why: str) -> None:
        """Reset a stream that the layer above does not know to be over."""
        self._out.control(frames.reset(stream.number, code))
        self._closed.add(stream.number, ours=True)
        self._abort(stream, why)

    def reset_by_peer(self, stream: Stream) -> None:
        """Take the peer's reset of a stream, and charge it if the stream is young (CVE-2023-44487)."""
        if self._out.now - stream.opened_at < EARLY_RESET:
            charge(self.resets, Limit.RESETS, self._out.now)
        self._closed.add(stream.number, ours=False)
        self._abort(stream, "")

    def reset_faulty(self, number: int, fault: StreamFault) -> None:
        """Reset a stream for the peer's error, and charge it as a reset by the peer.

        Without the charge a peer could make us reset its streams and so evade the limit on resets.
        """
        if fault.limit is not None:
            self._events.report_limit(fault.limit, fault.code, connection=False)
        charge(self.resets, Limit.RESETS, self._out.now)
        self._out.control(frames.reset(number, fault.code))
        stream = self.open.get(number)
        self._closed.add(number, ours=True)
        if stream is not None:
            self._abort(stream, fault.why)

    def abort_all(self, why: str) -> None:
        """Drop every stream, because the connection has failed."""
        for stream in list(self.open.values()):
            self._abort(stream, why)

    def _abort(self, stream: Stream, why: str) -> None:
        """Drop a stream, and tell the layer above with an `Aborted` event."""
        stream.is_closed = self._events.has_changed = True
        self.open.pop(stream.number, None)
        self._out.discard(stream)
        self._events.waiting.append(Aborted(stream, why))

    def close(self, stream: Stream, *, ours: bool) -> None:
        """Drop a stream that the layer above has ended; it gets no event."""
        stream.is_closed = self._events.has_changed = True
        if self.open.pop(stream.number, None) is not None:
            self._closed.add(stream.number, ours=ours)
        self._out.discard(stream)
        stream.owner = None  # the layer above has ended the call: it gets no further events
