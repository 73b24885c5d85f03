"""Reads the frames of a client: which may arrive when, and what each does (RFC 9113, sections 4 to 6 and 8).

A stream error resets its stream (`Streams.reset_faulty`); a connection error is raised as a `ConnectionFault`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..token_bucket import TokenBucket
from . import frames
from .blocks import Block, HeaderBlocks, depends_on
from .codes import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    FRAME_HEADER,
    LARGEST_WINDOW,
    LAST_STREAM,
    PADDED,
    PING,
    PREFACE,
    SETTINGS,
    SMALLEST_MAX_FRAME,
    WINDOW_UPDATE,
    Code,
)
from .events import EventQueue, PingAcked, Requested
from .facts import HandshakeFailed
from .faults import ConnectionFault, StreamFault, charge
from .limits import Limit, Limits
from .outbound import Outbound
from .pings import Pings
from .receive_windows import ReceiveWindows
from .requests import Field, check_trailers
from .sniffing import detect_protocol
from .stream import Stream
from .streams import Streams


class FrameReader:
    """Reads the frames of one connection, cut anywhere, and puts what they mean into its `EventQueue`."""

    __slots__ = (
        "_blocks",
        "_empty_frames",
        "_events",
        "_is_between_blocks",
        "_open_streams",
        "_out",
        "_partial_frame",
        "_pings",
        "_preface_seen",
        "_settings",
        "_streams",
        "_windows",
        "is_established",
    )

    def __init__(
        self,
        limits: Limits,
        out: Outbound,
        streams: Streams,
        windows: ReceiveWindows,
        events: EventQueue,
        now: float,
    ) -> None:
        self.is_established = False  # the preface and the first SETTINGS came
        self._out = out
        self._streams = streams
        self._open_streams = streams.open
        self._windows = windows
        self._events = events
        self._partial_frame = b""  # received bytes of a frame that is not complete
        self._preface_seen = False
        self._blocks = HeaderBlocks(limits)
        self._is_between_blocks = False  # SETTINGS came, and no header block is in progress: any frame may come
        self._pings = Pings(limits, out, now)
        self._empty_frames = TokenBucket(limits.empty_frames, now)
        self._settings = TokenBucket(limits.settings, now)

    def parse(self, data: bytes) -> None:
        """Split received bytes into frames, and keep an incomplete one for the next call."""
        buffer = self._partial_frame + data if self._partial_frame else data
        at, end = 0, len(buffer)
        if not self._preface_seen:
            at = self._preface(buffer)
            if not at:
                self._partial_frame = buffer
                return
        streams, windows, events = self._open_streams, self._windows, self._events.waiting
        while end - at >= FRAME_HEADER:
            # Compiled, this takes a tenth of what `struct` does.
            size = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            kind, flags = buffer[at + 3], buffer[at + 4]
            number = buffer[at + 5] << 24 | buffer[at + 6] << 16 | buffer[at + 7] << 8 | buffer[at + 8]
            if size > SMALLEST_MAX_FRAME:  # section 4.2; we never allow more
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a frame of more than 16,384 bytes")
            begin = at + FRAME_HEADER
            if end - begin < size:
                break
            at = begin + size
            # Fast path for the three commonest frames; `_frame` does the same with every check.
            if not flags and self._is_between_blocks:
                if kind == DATA and size:
                    stream = streams.get(number)
                    if (
                        stream is not None
                        and stream.can_receive
                        and stream.expected_bytes is None
                        and size <= stream.credit
                    ):
                        stream.credit -= size
                        windows.credit -= size
                        if windows.credit < 0:
                            windows.renew()
                        events.append((stream, buffer[begin:at], False))
                        continue
                elif kind == WINDOW_UPDATE and size == 4 and not number:
                    self._out.grow_window(frames.uint32(buffer, begin) & LARGEST_WINDOW)
                    continue
                elif kind == PING and size == 8 and not number:
                    self._pings.answer(buffer[begin:at])
                    continue
            self._frame(kind, flags, number & LAST_STREAM, buffer[begin:at])
            self._is_between_blocks = self._blocks.in_progress is None
        self._partial_frame = buffer[at:]

    def _preface(self, buffer: bytes) -> int:
        """Check the client's preface. Return its length, or 0 while it is incomplete."""
        start = buffer[: len(PREFACE)]
        if not PREFACE.startswith(start):
            self._events.facts.append(HandshakeFailed(self._events.peer, *detect_protocol(start)))
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
            self._charge_noise()
            return
        try:
            READERS[kind](self, flags, number, payload)
        except StreamFault as fault:
            self._streams.reset_faulty(number, fault)

    # -- by type

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        """Take DATA: account for both windows, check content-length and END_STREAM (section 6.1)."""
        windows = self._windows
        windows.credit -= len(payload)  # DATA counts against the connection even if its stream is closed (section 6.9)
        if windows.credit < 0:
            windows.renew()
        stream = self._open_streams.get(number)
        if stream is None or not stream.can_receive:
            self._streams.check_stray(number, stream, "DATA")
            return
        stream.credit -= len(payload)
        if flags & PADDED:
            payload = frames.strip_padding(payload)
        last = bool(flags & END_STREAM)
        if not payload and not last:
            charge(self._empty_frames, Limit.EMPTY_FRAMES, self._out.now)
        if stream.expected_bytes is not None:  # section 8.1.1
            stream.expected_bytes -= len(payload)
            if stream.expected_bytes < 0:
                raise StreamFault(Code.PROTOCOL_ERROR, "the body is longer than its content-length")
        if last:
            self._streams.end_input(stream)
        else:
            windows.check(stream)
        if payload or last:
            self._events.waiting.append((stream, payload, last))

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
        stream = self._open_streams.get(number)
        if stream is not None and stream.can_receive:
            self._trailers(stream, fields, last=last)
        elif self._streams.is_new(number):
            self._open(number, fields, last=last)
        else:
            self._streams.check_stray(number, stream, "HEADERS")

    def _open(self, number: int, fields: Sequence[Field], *, last: bool) -> None:
        """Open a stream, or refuse it."""
        if not self._streams.admit(number):
            return
        request = self._blocks.request(fields)
        stream = self._streams.add(number, self._windows.stream_credit, request.length)
        if last:
            self._streams.end_input(stream)
        self._events.waiting.append(Requested(stream, request, last))

    def _trailers(self, stream: Stream, fields: Sequence[Field], *, last: bool) -> None:
        """Take the trailers of a request, which end it (section 8.1)."""
        if not last:
            raise StreamFault(Code.PROTOCOL_ERROR, "headers in the middle of a message")
        check_trailers(fields)
        self._streams.end_input(stream)
        self._events.waiting.append((stream, b"", True))

    def _priority(self, _flags: int, number: int, payload: bytes) -> None:
        """Check a PRIORITY frame and ignore it, on a stream in any state: the scheme is deprecated (section 5.3.2)."""
        if number == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "PRIORITY has five bytes")
        self._charge_noise()
        if depends_on(payload) == number:
            raise StreamFault(Code.PROTOCOL_ERROR, "a stream that depends on itself")

    def _rst_stream(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM has four bytes")
        stream = self._open_streams.get(number)
        if stream is not None:
            self._streams.reset_by_peer(stream)
        else:
            self._streams.charge_stray(number, "RST_STREAM")

    def _read_settings(self, flags: int, number: int, payload: bytes) -> None:
        """Apply the peer's SETTINGS and acknowledge them, or take its acknowledgement of ours (section 6.5)."""
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & ACK:
            self._charge_noise()
            return
        charge(self._settings, Limit.SETTINGS, self._out.now)
        self._out.apply_settings(frames.parse_settings(payload), self._open_streams.values())
        self._out.control(frames.SETTINGS_ACK)

    def _push_promise(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "clients can't push")  # section 8.4

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING has eight bytes")
        if flags & ACK:
            self._charge_noise()
            self._events.waiting.append(PingAcked(payload))
            return
        self._pings.answer(payload)

    def _goaway(self, _flags: int, number: int, payload: bytes) -> None:
        """Check a GOAWAY: the peer will open no more streams, and the open ones go on (section 6.8)."""
        if number != 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY has at least eight bytes")
        self._charge_noise()

    def _window_update(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        size = frames.uint32(payload, 0) & LARGEST_WINDOW
        if number == 0:
            self._out.grow_window(size)
            return
        stream = self._open_streams.get(number)
        if stream is not None:
            self._out.grow_stream_window(stream, size)
        else:
            self._streams.charge_stray(number, "WINDOW_UPDATE")

    def _charge_noise(self) -> None:
        """Charge a frame that means nothing to us."""
        charge(self._streams.noise, Limit.NOISE, self._out.now)

    @classmethod
    def readers(cls) -> tuple[Callable[[FrameReader, int, int, bytes], None], ...]:
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


READERS = FrameReader.readers()  # a constant of the module, because mypyc can't set one of the class
