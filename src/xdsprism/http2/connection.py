"""Decides what a server's HTTP/2 connection does with each frame; it has no socket.

    events = connection.receive(data, now)    bytes from the peer become events (events.py)
    connection.out.send(stream, payload)      answers go to the sending half (outbound.py)
    connection.send_queued()                  DATA that waited for a window is framed
    connection.out.take_output()              bytes for the socket

Every rule of RFC 9113 about which frame may arrive when is in this file. A fault of the peer never raises out of it:
a stream error resets the stream; a connection error sends GOAWAY, after which `failed` is set and all further bytes
are ignored.

Receive windows: a peer may use half of its window before we send a WINDOW_UPDATE that restores it, and the other half
while that frame travels. `credit` is what is left of the first half. A frame is smaller than the second half, so a peer
whose window we keep restoring can't overdraw it; only a stream that is held back needs a check (`_data`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from . import frames
from .blocks import Block, HeaderBlocks, depends_on
from .closed_streams import ClosedStreams
from .codes import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_STREAM,
    FRAME_HEADER,
    INITIAL_WINDOW_SIZE,
    LARGEST_WINDOW,
    LAST_STREAM,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    PADDED,
    PING,
    PREFACE,
    SETTINGS,
    SMALLEST_MAX_FRAME,
    WINDOW_UPDATE,
    Code,
)
from .events import Aborted, Event, PingAcked, Requested
from .facts import Fact, HandshakeFailed, Limited
from .faults import ConnectionFault, StreamFault
from .limits import Limit, Limits, TokenBucket
from .outbound import Outbound
from .requests import Field, check_trailers
from .sniffing import detect_protocol
from .stream import Stream

EARLY_RESET = 1.0  # seconds: resetting a stream that is younger counts as abuse (rapid reset)
ACK_DELAY = 0.2  # seconds that the answer to a PING may wait for the next write; TCP delays its own as long
TOO_MANY_PINGS = "too_many_pings"  # gRPC clients recognise this text, and send PINGs less often


class Connection:
    """The receiving half of a connection, and the state of all streams; the sending half is `out`."""

    __slots__ = (
        "_blocks",
        "_closed",
        "_credit",
        "_empty_frames",
        "_events",
        "_last_accepted",
        "_last_opened",
        "_limits",
        "_measured_at",
        "_noise",
        "_partial_frame",
        "_pings",
        "_preface_seen",
        "_resets",
        "_settings",
        "facts",
        "failed",
        "failed_at",
        "has_changed",
        "is_established",
        "last_received",
        "out",
        "peer",
        "streams",
    )

    def __init__(self, limits: Limits, now: float, peer: str = "") -> None:
        self.out = Outbound(limits, now)
        self.streams: dict[int, Stream] = {}
        self.facts: list[Fact] = []
        self.failed: ConnectionFault | None = None
        self.failed_at = 0.0
        self.last_received = now  # when the last byte came
        # Something other than messages happened: a stream opened or closed, a fault, a fact. The engine then looks at
        # timers, facts and the end of the connection, and sets it to false.
        self.has_changed = True
        self.is_established = False  # the preface and the first SETTINGS came
        self._limits = limits
        self.peer = peer
        self._events: list[Event] = []
        self._partial_frame = b""  # received bytes of a frame that is not complete
        self._preface_seen = False
        self._blocks = HeaderBlocks(limits)
        self._last_opened = 0  # the highest stream number that the peer used
        self._last_accepted = LAST_STREAM  # the highest that our last GOAWAY accepts
        self._credit = limits.connection_window >> 1
        self._closed = ClosedStreams()
        self._empty_frames = TokenBucket(limits.empty_frames, now)
        self._resets = TokenBucket(limits.resets, now)
        self._settings = TokenBucket(limits.settings, now)
        self._pings = TokenBucket(limits.pings, now)
        self._measured_at = -inf  # when the last PING came that followed frames of ours
        self._noise = TokenBucket(limits.noise, now)
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

    # -- called by the layer above

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Process bytes from the peer, cut anywhere, and return what they mean to the layer above."""
        if self.failed is not None:
            return []
        self.last_received = self.out.now = now
        try:
            self._parse(data)
        except ConnectionFault as fault:
            self.fail(fault)
        else:
            if self.out.unread_bytes > self._limits.unread_bytes:
                self.fail(
                    ConnectionFault(Code.ENHANCE_YOUR_CALM, "the client does not read acknowledgements", Limit.UNREAD)
                )
        return self.take_events()

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
                self._close_stream(stream, ours=stream.can_receive)
        return self.take_events()

    def reset(self, stream: Stream, code: Code) -> None:
        """Reset a stream on behalf of the layer above, which gets no event for it."""
        self.out.control(frames.reset(stream.number, code))
        self._close_stream(stream, ours=True)

    def abandon(self, stream: Stream, code: Code, why: str) -> None:
        """Reset a stream and tell the layer above why, with an `Aborted` event."""
        self.out.control(frames.reset(stream.number, code))
        self._closed.add(stream.number, ours=True)
        self._abort(stream, why)

    def report_limit(self, limit: Limit, code: Code, *, connection: bool) -> None:
        """Report to metrics that the peer exceeded a limit."""
        self.has_changed = True
        self.facts.append(Limited(self.peer, limit, code, connection))

    def charge_limit(self, limit: Limit) -> None:
        """Report a limit that ends one call with a status, and charge it as a reset.

        Each such call costs us work. Without the charge a peer could repeat it on one connection without end.
        """
        self.report_limit(limit, Code.NO_ERROR, connection=False)
        if self.failed is None and not self._resets.spend(self.out.now):
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
        self.has_changed = True
        self._last_accepted = self._last_opened
        self.out.control(frames.goaway(self._last_opened, Code.NO_ERROR))

    def fail(self, fault: ConnectionFault) -> None:
        """Send GOAWAY with the reason, abort every stream, and ignore all further input."""
        # Keep one that was never raised: otherwise its traceback refers to this connection, which only the garbage
        # collector could free then.
        self.failed = ConnectionFault(fault.code, fault.why, fault.limit)
        self.has_changed = True
        self.failed_at = self.out.now
        if fault.limit is not None:
            self.report_limit(fault.limit, fault.code, connection=True)
        self.out.pause()
        self.out.control(frames.goaway(self._last_opened, fault.code, fault.why))
        for stream in list(self.streams.values()):
            self._abort(stream, fault.why)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    # -- frames

    def _parse(self, data: bytes) -> None:
        """Split received bytes into frames, and keep an incomplete one for the next call."""
        buffer = self._partial_frame + data if self._partial_frame else data
        at, end = 0, len(buffer)
        if not self._preface_seen:
            at = self._preface(buffer)
            if not at:
                self._partial_frame = buffer
                return
        streams, out, add_event = self.streams, self.out, self._events.append
        while end - at >= FRAME_HEADER:
            high, low, kind, flags, number = frames.HEADER.unpack_from(buffer, at)
            size = high << 8 | low
            if size > SMALLEST_MAX_FRAME:  # section 4.2; we never allow more
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a frame of more than 16,384 bytes")
            begin = at + FRAME_HEADER
            if end - begin < size:
                break
            at = begin + size
            # Fast path for the three commonest frames; `_frame` does the same with every check.
            if not flags and self.is_established and self._blocks.in_progress is None:
                if kind == DATA and size:
                    stream = streams.get(number)
                    if (
                        stream is not None
                        and stream.can_receive
                        and stream.expected_bytes is None
                        and size <= stream.credit
                    ):
                        stream.credit -= size
                        self._credit -= size
                        if self._credit < 0:
                            self._renew_window()
                        add_event((stream, buffer[begin:at], False))
                        continue
                elif kind == WINDOW_UPDATE and size == 4 and not number:
                    out.grow_window(frames.UINT32.unpack_from(buffer, begin)[0] & LARGEST_WINDOW)
                    continue
                elif kind == PING and size == 8 and not number:
                    self._answer_ping(buffer[begin:at])
                    continue
            self._frame(kind, flags, number & LAST_STREAM, buffer[begin:at])
        self._partial_frame = buffer[at:]

    def _preface(self, buffer: bytes) -> int:
        """Check the client's preface. Return its length, or 0 while it is incomplete."""
        start = buffer[: len(PREFACE)]
        if not PREFACE.startswith(start):
            self.facts.append(HandshakeFailed(self.peer, *detect_protocol(start)))
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        if len(start) < len(PREFACE):
            return 0
        self._preface_seen = True
        return len(PREFACE)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Process one frame with every check. A stream error resets its stream; a connection error is raised."""
        block = self._blocks.in_progress
        if block is not None and (kind != CONTINUATION or number != block.number):  # section 6.10
            raise ConnectionFault(Code.PROTOCOL_ERROR, "another frame inside of a header block")
        if not self.is_established:  # section 3.4
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self.is_established = True
        if kind >= len(READERS):  # section 5.5: unknown ones are ignored
            self._charge(self._noise, Limit.NOISE)
            return
        try:
            READERS[kind](self, flags, number, payload)
        except StreamFault as fault:
            self._reset_faulty(number, fault)

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        """Take DATA: account for both windows, check content-length and END_STREAM (section 6.1)."""
        self._credit -= len(payload)  # DATA counts against the connection even if its stream is closed (section 6.9)
        if self._credit < 0:
            self._renew_window()
        stream = self.streams.get(number)
        if stream is None or not stream.can_receive:
            self._check_stray(number, stream, "DATA")
            return
        stream.credit -= len(payload)
        if flags & PADDED:
            payload = frames.strip_padding(payload)
        last = bool(flags & END_STREAM)
        if not payload and not last:
            self._charge(self._empty_frames, Limit.EMPTY_FRAMES)
        if stream.expected_bytes is not None:
            self._count_body(stream, len(payload))
        if last:
            self._end_input(stream)
        elif stream.credit < 0 and not stream.is_held_back:
            self._renew_stream_window(stream)
        elif stream.credit < -(self._limits.stream_window >> 1):
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more DATA than the stream's window allows")
        if payload or last:
            self._events.append((stream, payload, last))

    def _renew_window(self) -> None:
        """Restore the connection's receive window with a WINDOW_UPDATE."""
        half = self._limits.connection_window >> 1
        self.out.control(frames.window_update(0, half - self._credit))
        self._credit = half

    def hold_back(self, stream: Stream, *, waits: bool) -> bool:
        """Stop (`waits`) or resume restoring a stream's receive window. Return whether a WINDOW_UPDATE was due."""
        stream.is_held_back = waits
        if is_owed := not waits and stream.credit < 0 and stream.can_receive:
            self._renew_stream_window(stream)
        return is_owed

    def _renew_stream_window(self, stream: Stream) -> None:
        half = self._limits.stream_window >> 1
        self.out.control(frames.window_update(stream.number, half - stream.credit))
        stream.credit = half

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        block = self._blocks.begin(flags, number, payload)
        if block is not None:
            self._header_block(block)

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        block = self._blocks.continue_block(flags, number, payload)
        if block is not None:
            self._header_block(block)

    def _header_block(self, block: Block) -> None:
        # Decode even if the stream is refused: later blocks depend on the state of the HPACK table (section 4.3).
        fields = self._blocks.decode(block)
        self._header_list(block.number, fields, last=block.last)
        if block.depends_on == block.number:  # section 5.3.1 of RFC 7540
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _header_list(self, number: int, fields: Sequence[Field], *, last: bool) -> None:
        """Decide what a header list is: trailers, a new request, or an error."""
        stream = self.streams.get(number)
        if stream is not None and stream.can_receive:
            self._trailers(stream, fields, last=last)
        elif stream is None and number > self._last_opened:
            self._open(number, fields, last=last)
        elif stream is None and number not in self._closed:  # section 5.1.1: skipped numbers are never used
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream number that is not above the last")
        else:
            self._check_stray(number, stream, "HEADERS")

    def _open(self, number: int, fields: Sequence[Field], *, last: bool) -> None:
        """Open a stream, or refuse it. Streams above the last accepted one are ignored (section 6.8)."""
        if number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "clients must use odd stream numbers")
        self._last_opened = number
        if number > self._last_accepted:
            return
        if len(self.streams) >= self._limits.streams:  # section 5.1.2
            raise StreamFault(Code.REFUSED_STREAM, "too many streams at once", Limit.STREAMS)
        request = self._blocks.request(fields)
        stream = Stream(number, self.out.now, self.out.initial_window, self._limits.stream_window >> 1)
        stream.expected_bytes = request.length
        self.streams[number] = stream
        self.has_changed = True
        if last:
            self._end_input(stream)
        self._events.append(Requested(stream, request, last))

    def _trailers(self, stream: Stream, fields: Sequence[Field], *, last: bool) -> None:
        """Take the trailers of a request, which end it (section 8.1)."""
        if not last:
            raise StreamFault(Code.PROTOCOL_ERROR, "headers in the middle of a message")
        check_trailers(fields)
        self._end_input(stream)
        self._events.append((stream, b"", True))

    def _priority(self, _flags: int, number: int, payload: bytes) -> None:
        """Check a PRIORITY frame and ignore it, on a stream in any state: the scheme is deprecated (section 5.3.2)."""
        if number == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "PRIORITY has five bytes")
        self._charge(self._noise, Limit.NOISE)
        if depends_on(payload) == number:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _rst_stream(self, _flags: int, number: int, payload: bytes) -> None:
        """Take the peer's reset of a stream, and charge it if the stream is young (CVE-2023-44487)."""
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM has four bytes")
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "RST_STREAM")
            self._charge(self._noise, Limit.NOISE)
            return
        if self.out.now - stream.opened_at < EARLY_RESET:
            self._charge(self._resets, Limit.RESETS)
        self._closed.add(number, ours=False)
        self._abort(stream, "")

    def _read_settings(self, flags: int, number: int, payload: bytes) -> None:
        """Apply the peer's SETTINGS and acknowledge them, or take its acknowledgement of ours (section 6.5)."""
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & ACK:
            self._charge(self._noise, Limit.NOISE)
            return
        self._charge(self._settings, Limit.SETTINGS)
        self.out.apply_settings(frames.parse_settings(payload), self.streams.values())
        self.out.control(frames.SETTINGS_ACK)

    def _push_promise(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "clients can't push")  # section 8.4

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING has eight bytes")
        if flags & ACK:
            self._charge(self._noise, Limit.NOISE)
            self._events.append(PingAcked(payload))
            return
        self._answer_ping(payload)

    def _answer_ping(self, payload: bytes) -> None:
        """Acknowledge a PING, or fail the connection if PINGs come too often.

        gRPC clients send a PING after data to measure bandwidth and delay, so each frame that we send refills the
        allowance. From the answer they learn how large their windows should be, which matters while DATA waits for a
        window. Otherwise the answer goes with the next write, if we write so often that it comes soon: a write for it
        alone would be every second one. It goes to the end of that write, whose DATA causes no PING then, since clients
        await the answer to one before they send another. A keepalive PING comes after silence and never waits.
        """
        out = self.out
        answer = frames.PING_ACK + payload
        out.send_delayed()  # answers keep the order of the PINGs
        if out.has_sent:
            writes = 2 if out.delay_paid_off else 1  # since the last PING
            comes_soon = out.now < self._measured_at + writes * ACK_DELAY
            waits = comes_soon and not out.has_queued and not out.is_paused
            self._measured_at = out.now
            out.has_sent = out.has_queued = False
            self._pings.refill()
            if waits:
                out.delay(answer, out.now + ACK_DELAY)
                return
            out.delay_paid_off = False
        elif not self._pings.spend(out.now):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, TOO_MANY_PINGS, Limit.PINGS)
        out.control(answer)

    def _goaway(self, _flags: int, number: int, payload: bytes) -> None:
        """Check a GOAWAY: the peer will open no more streams, and the open ones go on (section 6.8)."""
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY has at least eight bytes")
        self._charge(self._noise, Limit.NOISE)

    def _window_update(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        size = frames.UINT32.unpack(payload)[0] & LARGEST_WINDOW
        if number == 0:
            self.out.grow_window(size)
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "WINDOW_UPDATE")
            self._charge(self._noise, Limit.NOISE)
            return
        self.out.grow_stream_window(stream, size)

    # -- streams

    def _end_input(self, stream: Stream) -> None:
        """Take END_STREAM from the peer."""
        if stream.expected_bytes:  # section 8.1.1
            raise StreamFault(Code.PROTOCOL_ERROR, "the body is shorter than its content-length")
        stream.can_receive = False

    def _count_body(self, stream: Stream, size: int) -> None:
        """Compare the bytes of the body so far with the content-length (section 8.1.1)."""
        stream.expected_bytes = (stream.expected_bytes or 0) - size
        if stream.expected_bytes < 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "the body is longer than its content-length")

    def _check_stray(self, number: int, stream: Stream | None, what: str) -> None:
        """Judge DATA or HEADERS on a stream that takes no more input (section 5.1). Returns if they are ignored."""
        if stream is None:
            self._check_not_idle(number, what)
            self._charge(self._noise, Limit.NOISE)
            if number > self._last_accepted or self._closed.was_closed_by_us(number):  # sent before our frame arrived
                return
            if number in self._closed and what == "HEADERS":
                raise ConnectionFault(Code.STREAM_CLOSED, "HEADERS on a closed stream")
        raise StreamFault(Code.STREAM_CLOSED, f"{what} on a closed stream")

    def _check_not_idle(self, number: int, what: str) -> None:
        """Raise a connection error for a frame on an idle stream (section 5.1)."""
        if number == 0 or number > self._last_opened or number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{what} on a stream that was never opened")

    def _reset_faulty(self, number: int, fault: StreamFault) -> None:
        """Reset a stream for the peer's error, and charge it as a reset by the peer.

        Without the charge a peer could make us reset its streams and so evade the limit on resets.
        """
        if fault.limit is not None:
            self.report_limit(fault.limit, fault.code, connection=False)
        self._charge(self._resets, Limit.RESETS)
        self.out.control(frames.reset(number, fault.code))
        stream = self.streams.get(number)
        self._closed.add(number, ours=True)
        if stream is not None:
            self._abort(stream, fault.why)

    def _abort(self, stream: Stream, why: str) -> None:
        """Drop a stream, and tell the layer above with an `Aborted` event."""
        stream.is_closed = self.has_changed = True
        self.streams.pop(stream.number, None)
        self.out.discard(stream)
        self._events.append(Aborted(stream, why))

    def _close_stream(self, stream: Stream, *, ours: bool) -> None:
        """Drop a stream that the layer above has ended; it gets no event."""
        stream.is_closed = self.has_changed = True
        if self.streams.pop(stream.number, None) is not None:
            self._closed.add(stream.number, ours=ours)
        self.out.discard(stream)
        stream.owner = None  # the layer above has ended the call: it gets no further events

    def _charge(self, allowance: TokenBucket, limit: Limit) -> None:
        """Take a token, or fail the connection with ENHANCE_YOUR_CALM."""
        if not allowance.spend(self.out.now):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"too many {limit.replace('_', ' ')}", limit)

    @classmethod
    def readers(cls) -> tuple[Callable[[Connection, int, int, bytes], None], ...]:
        """Return what reads a frame, by its type (section 6)."""
        return (
            cls._data,
            cls._headers,
            cls._priority,
            cls._rst_stream,
            cls._read_settings,
            cls._push_promise,
            cls._ping,
            cls._goaway,
            cls._window_update,
            cls._continuation,
        )


READERS = Connection.readers()  # a constant of the module, because mypyc can't set one of the class
