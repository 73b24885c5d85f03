"""A server's HTTP/2 connection without its socket: `receive` bytes, act on events, send through `out`, `take` bytes.

Every rule of RFC 9113 about what may come when is in this file. A fault of the peer never raises out of it: that of a
stream resets the stream, that of the connection is said in a GOAWAY, after which nothing is heard (`failed`).
"""

from __future__ import annotations

from . import frames
from .blocks import Block, HeaderBlocks, depends_on
from .closed import Closed
from .codes import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    FIRST_WINDOW,
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
from .events import Aborted, Event, Ponged, Requested
from .facts import Fact, HandshakeFailed, Limited
from .faults import Fault, StreamFault
from .greeting import what_is_spoken
from .limits import Allowance, Limit, Limits
from .outbound import Outbound
from .requests import Field, check_trailers
from .stream import Stream

HASTY = 1.0  # seconds: a stream that is reset sooner was not meant
TOO_MANY_PINGS = "too_many_pings"  # gRPC clients know these words, and ask less often then


class Connection:
    """The receiving half, with all state of streams; the sending half is `out`."""

    __slots__ = (
        "_blocks",
        "_closed",
        "_empties",
        "_events",
        "_final",
        "_last",
        "_limits",
        "_noise",
        "_pings",
        "_preface_seen",
        "_resets",
        "_rest",
        "_settings",
        "_slack",
        "facts",
        "failed",
        "failed_at",
        "greeted",
        "heard",
        "out",
        "peer",
        "stirred",
        "streams",
    )

    def __init__(self, limits: Limits, now: float, peer: str = "") -> None:
        self.out = Outbound(limits, now)
        self.streams: dict[int, Stream] = {}
        self.facts: list[Fact] = []
        self.failed: Fault | None = None
        self.failed_at = 0.0
        self.heard = now  # when the last byte came
        self.stirred = True  # more happened than messages: streams, faults, facts; whoever looks makes it false
        self.greeted = False  # preface and first SETTINGS came
        self._limits = limits
        self.peer = peer
        self._events: list[Event] = []
        self._rest = b""  # the beginning of a frame
        self._preface_seen = False
        self._blocks = HeaderBlocks(limits)
        self._last = 0  # the highest stream that the peer opened
        self._final = LAST_STREAM  # the highest that a GOAWAY of ours lets it open
        # Windows of the peer: half of one may come before it is made whole again, the other half while that is on
        # its way. `slack` is what is left of the first half. Since a frame is smaller than the second half, nobody can
        # send more than a window, and there is nothing to check.
        self._slack = limits.connection_window >> 1
        self._closed = Closed()
        self._empties = Allowance(limits.empty_frames, now)
        self._resets = Allowance(limits.resets, now)
        self._settings = Allowance(limits.settings, now)
        self._pings = Allowance(limits.pings, now)
        self._noise = Allowance(limits.noise, now)
        self._greet()

    def _greet(self) -> None:
        limits = self._limits
        values = (
            (MAX_CONCURRENT_STREAMS, limits.streams),
            (INITIAL_WINDOW_SIZE, limits.stream_window),
            (MAX_HEADER_LIST_SIZE, limits.header_bytes),
        )
        self.out.control(frames.settings(values))
        self.out.control(frames.window_update(0, limits.connection_window - FIRST_WINDOW))

    # -- what the layer above says

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Bytes from the peer, cut anywhere."""
        if self.failed is not None:
            return []
        self.heard = self.out.now = now
        try:
            self._parse(data)
        except Fault as fault:
            self.fail(fault)
        else:
            if self.out.unread > self._limits.unread_bytes:
                self.fail(Fault(Code.ENHANCE_YOUR_CALM, "answers to control frames are not read", Limit.UNREAD))
        return self.told()

    def pump(self) -> list[Event]:
        """Send what can be sent of what waits, and close the streams that are done."""
        try:
            self.out.pump()
        except Fault as fault:
            self.fail(fault)
        if self.out.over:
            over, self.out.over = self.out.over, []
            for stream in over:
                if stream.hearing and not stream.gone:  # section 8.1: we need not hear the rest
                    self.out.control(frames.reset(stream.number, Code.NO_ERROR))
                self._forget(stream, ours=stream.hearing)
        return self.told()

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream at once; the layer above knows why."""
        self.out.control(frames.reset(stream.number, code))
        self._forget(stream, ours=True)

    def abandon(self, stream: Stream, code: Code, why: str) -> None:
        """As `reset`, and the layer above is told why."""
        self.out.control(frames.reset(stream.number, code))
        self._closed.add(stream.number, ours=True)
        self._abort(stream, why)

    def limited(self, limit: Limit, code: Code, *, connection: bool) -> None:
        self.stirred = True
        self.facts.append(Limited(self.peer, limit, code, connection))

    def tire(self, limit: Limit) -> None:
        """A limit was met that ends one call, with a status. It cost us: as much as a reset, so that it can't go on."""
        self.limited(limit, Code.NO_ERROR, connection=False)
        if self.failed is None and not self._resets.spend(self.out.now):
            self.fail(Fault(Code.ENHANCE_YOUR_CALM, f"met again and again: {limit.replace('_', ' ')}", Limit.RESETS))

    def ping(self, payload: bytes) -> None:
        self.out.control(frames.ping(payload))

    def announce_end(self) -> None:
        """Section 6.8: the first GOAWAY takes nothing back, so that no stream under way is lost."""
        self.out.control(frames.goaway(LAST_STREAM, Code.NO_ERROR))

    def refuse_more(self) -> None:
        """The second GOAWAY: streams after this one are not even heard."""
        self.stirred = True
        self._final = self._last
        self.out.control(frames.goaway(self._last, Code.NO_ERROR))

    def fail(self, fault: Fault) -> None:
        """Say why, and hear nothing more. All streams are over."""
        self.failed = fault
        self.stirred = True
        self.failed_at = self.out.now
        if fault.limit is not None:
            self.limited(fault.limit, fault.code, connection=True)
        self.out.pause()
        self.out.control(frames.goaway(self._last, fault.code, fault.why))
        for stream in list(self.streams.values()):
            self._abort(stream, fault.why)

    def told(self) -> list[Event]:
        """What happened since the last look."""
        events, self._events = self._events, []
        return events

    # -- frames

    def _parse(self, data: bytes) -> None:
        buffer = self._rest + data if self._rest else data
        at, end = 0, len(buffer)
        if not self._preface_seen:
            at = self._preface(buffer)
            if not at:
                self._rest = buffer
                return
        streams, out, tell = self.streams, self.out, self._events.append
        while end - at >= FRAME_HEADER:
            high, low, kind, flags, number = frames.HEADER.unpack_from(buffer, at)
            size = high << 8 | low
            if size > SMALLEST_MAX_FRAME:  # section 4.2; we never allow more
                raise Fault(Code.FRAME_SIZE_ERROR, "a frame of more than 16,384 bytes")
            begin = at + FRAME_HEADER
            if end - begin < size:
                break
            at = begin + size
            if not flags and self.greeted and self._blocks.under_way is None:  # as nearly always
                if kind == DATA and size:
                    stream = streams.get(number)
                    if stream is not None and stream.hearing and stream.expected is None and size <= stream.slack:
                        stream.slack -= size
                        self._slack -= size
                        if self._slack < 0:
                            self._renew()
                        tell((stream, buffer[begin:at], False))
                        continue
                elif kind == WINDOW_UPDATE and size == 4 and not number:
                    out.grow(frames.UINT32.unpack_from(buffer, begin)[0] & LARGEST_WINDOW)
                    continue
                elif kind == PING and size == 8 and not number:
                    self._answer(buffer[begin:at])
                    continue
            self._frame(kind, flags, number & LAST_STREAM, buffer[begin:at])
        self._rest = buffer[at:]

    def _preface(self, buffer: bytes) -> int:
        start = buffer[: len(PREFACE)]
        if not PREFACE.startswith(start):
            self.facts.append(HandshakeFailed(self.peer, *what_is_spoken(start)))
            raise Fault(Code.PROTOCOL_ERROR, "this is no HTTP/2")
        if len(start) < len(PREFACE):
            return 0
        self._preface_seen = True
        return len(PREFACE)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        block = self._blocks.under_way
        if block is not None and (kind != CONTINUATION or number != block.number):  # section 6.10
            raise Fault(Code.PROTOCOL_ERROR, "another frame inside of a header block")
        if not self.greeted:  # section 3.4
            if kind != SETTINGS or flags & ACK:
                raise Fault(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self.greeted = True
        if kind >= len(self.READERS):  # section 5.5: unknown ones are ignored
            self._spend(self._noise, Limit.NOISE)
            return
        try:
            self.READERS[kind](self, flags, number, payload)
        except StreamFault as fault:
            self._refuse(number, fault)

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        self._slack -= len(payload)  # also if the stream is over (section 6.9)
        if self._slack < 0:
            self._renew()
        stream = self.streams.get(number)
        if stream is None or not stream.hearing:
            self._stray(number, stream, "DATA")
            return
        stream.slack -= len(payload)
        if flags & PADDED:
            payload = frames.unpadded(payload)
        last = bool(flags & END_STREAM)
        if not payload and not last:
            self._spend(self._empties, Limit.EMPTY_FRAMES)
        if stream.expected is not None:
            self._count(stream, len(payload))
        if last:
            self._hear_out(stream)
        elif stream.slack < 0 and not stream.held:
            self._renew_stream(stream)
        elif stream.slack < -(self._limits.stream_window >> 1):
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the window of the stream takes")
        if payload or last:
            self._events.append((stream, payload, last))

    def _renew(self) -> None:
        """What came is consumed: make the window whole again."""
        half = self._limits.connection_window >> 1
        self.out.control(frames.window_update(0, half - self._slack))
        self._slack = half

    def hold_back(self, stream: Stream, *, waits: bool) -> bool:
        """Leave the window of a stream as it is while what came on it waits; whether it was made whole again."""
        stream.held = waits
        if is_owed := not waits and stream.slack < 0 and stream.hearing:
            self._renew_stream(stream)
        return is_owed

    def _renew_stream(self, stream: Stream) -> None:
        half = self._limits.stream_window >> 1
        self.out.control(frames.window_update(stream.number, half - stream.slack))
        stream.slack = half

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        block = self._blocks.begin(flags, number, payload)
        if block is not None:
            self._header_block(block)

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        block = self._blocks.go_on(flags, number, payload)
        if block is not None:
            self._header_block(block)

    def _header_block(self, block: Block) -> None:
        fields = self._blocks.decode(block)  # even if nobody will read it: the table goes on from here (section 4.3)
        self._header_list(block.number, fields, last=block.last)
        if block.depends_on == block.number:  # section 5.3.1 of RFC 7540
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _header_list(self, number: int, fields: list[Field], *, last: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None and stream.hearing:
            self._trailers(stream, fields, last=last)
        elif stream is None and number > self._last:
            self._open(number, fields, last=last)
        elif stream is None and number not in self._closed:  # section 5.1.1: skipped numbers are never used
            raise Fault(Code.PROTOCOL_ERROR, "a stream number that is not above the last")
        else:
            self._stray(number, stream, "HEADERS")

    def _open(self, number: int, fields: list[Field], *, last: bool) -> None:
        if number % 2 == 0:
            raise Fault(Code.PROTOCOL_ERROR, "clients open odd streams")
        self._last = number
        if number > self._final:
            return
        if len(self.streams) >= self._limits.streams:  # section 5.1.2
            raise StreamFault(Code.REFUSED_STREAM, "too many streams at once", Limit.STREAMS)
        request = self._blocks.request(fields)
        stream = Stream(number, self.out.now, self.out.first_window, self._limits.stream_window >> 1)
        stream.expected = request.length
        self.streams[number] = stream
        self.stirred = True
        if last:
            self._hear_out(stream)
        self._events.append(Requested(stream, request, last))

    def _trailers(self, stream: Stream, fields: list[Field], *, last: bool) -> None:
        if not last:
            raise StreamFault(Code.PROTOCOL_ERROR, "headers in the middle of a message")
        check_trailers(fields)
        self._hear_out(stream)
        self._events.append((stream, b"", True))

    def _priority(self, _flags: int, number: int, payload: bytes) -> None:
        """Section 5.3.2: the scheme is deprecated. The frame is checked, and ignored, on a stream in any state."""
        if number == 0:
            raise Fault(Code.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "PRIORITY has five bytes")
        self._spend(self._noise, Limit.NOISE)
        if depends_on(payload) == number:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _rst_stream(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(Code.FRAME_SIZE_ERROR, "RST_STREAM has four bytes")
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "RST_STREAM")
            self._spend(self._noise, Limit.NOISE)
            return
        if self.out.now - stream.opened < HASTY:
            self._spend(self._resets, Limit.RESETS)
        self._closed.add(number, ours=False)
        self._abort(stream, "")

    def _read_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number != 0:
            raise Fault(Code.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise Fault(Code.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & ACK:
            self._spend(self._noise, Limit.NOISE)
            return
        self._spend(self._settings, Limit.SETTINGS)
        self.out.follow(frames.settings_in(payload), self.streams.values())
        self.out.control(frames.SETTINGS_ACK)

    def _push_promise(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise Fault(Code.PROTOCOL_ERROR, "clients can't push")  # section 8.4

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number != 0:
            raise Fault(Code.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise Fault(Code.FRAME_SIZE_ERROR, "PING has eight bytes")
        if flags & ACK:
            self._spend(self._noise, Limit.NOISE)
            self._events.append(Ponged(payload))
            return
        self._answer(payload)

    def _answer(self, payload: bytes) -> None:
        """Who asks after what we said asks for a good reason: gRPC clients measure the line that way."""
        out = self.out
        if out.spoke:
            out.spoke = False
            self._pings.refill()
        elif not self._pings.spend(out.now):
            raise Fault(Code.ENHANCE_YOUR_CALM, TOO_MANY_PINGS, Limit.PINGS)
        out.control(frames.PONG + payload)

    def _goaway(self, _flags: int, number: int, payload: bytes) -> None:
        """The peer will open no more streams; those that are open go on (section 6.8)."""
        if number != 0:
            raise Fault(Code.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise Fault(Code.FRAME_SIZE_ERROR, "GOAWAY has at least eight bytes")
        self._spend(self._noise, Limit.NOISE)

    def _window_update(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Fault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        size = frames.UINT32.unpack(payload)[0] & LARGEST_WINDOW
        if number == 0:
            self.out.grow(size)
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "WINDOW_UPDATE")
            self._spend(self._noise, Limit.NOISE)
            return
        self.out.grow_stream(stream, size)

    # -- streams

    def _hear_out(self, stream: Stream) -> None:
        if stream.expected:  # section 8.1.1
            raise StreamFault(Code.PROTOCOL_ERROR, "less than content-length says")
        stream.hearing = False

    def _count(self, stream: Stream, size: int) -> None:
        stream.expected = (stream.expected or 0) - size
        if stream.expected < 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "more than content-length says")

    def _stray(self, number: int, stream: Stream | None, what: str) -> None:
        """DATA or HEADERS where the peer has no more to say (section 5.1)."""
        if stream is None:
            self._check_not_idle(number, what)
            self._spend(self._noise, Limit.NOISE)
            if number > self._final or self._closed.by_us(number):  # it may not know that yet
                return
            if number in self._closed and what == "HEADERS":
                raise Fault(Code.STREAM_CLOSED, "HEADERS on a stream that is over")
        raise StreamFault(Code.STREAM_CLOSED, f"{what} on a stream that is over")

    def _check_not_idle(self, number: int, what: str) -> None:
        if number == 0 or number > self._last or number % 2 == 0:
            raise Fault(Code.PROTOCOL_ERROR, f"{what} on a stream that was never opened")

    def _refuse(self, number: int, fault: StreamFault) -> None:
        """Reset what the peer made wrong. This costs it as much as a reset of its own, or it would be a way round."""
        if fault.limit is not None:
            self.limited(fault.limit, fault.code, connection=False)
        self._spend(self._resets, Limit.RESETS)
        self.out.control(frames.reset(number, fault.code))
        stream = self.streams.get(number)
        self._closed.add(number, ours=True)
        if stream is not None:
            self._abort(stream, fault.why)

    def _abort(self, stream: Stream, why: str) -> None:
        stream.gone = self.stirred = True
        self.streams.pop(stream.number, None)
        self.out.forget(stream)
        self._events.append(Aborted(stream, why))

    def _forget(self, stream: Stream, *, ours: bool) -> None:
        stream.gone = self.stirred = True
        if self.streams.pop(stream.number, None) is not None:
            self._closed.add(stream.number, ours=ours)
        self.out.forget(stream)
        stream.owner = None  # it knows, and has no part in what may still come

    def _spend(self, allowance: Allowance, limit: Limit) -> None:
        if not allowance.spend(self.out.now):
            raise Fault(Code.ENHANCE_YOUR_CALM, f"too many {limit.replace('_', ' ')}", limit)

    # By the number of their kind (section 6).
    READERS = (
        _data,
        _headers,
        _priority,
        _rst_stream,
        _read_settings,
        _push_promise,
        _ping,
        _goaway,
        _window_update,
        _continuation,
    )
