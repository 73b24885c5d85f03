"""Sends frames within the peer's flow-control windows, joined into few writes.

Three things hold DATA back: the window of the stream, the window of the connection, and `write_budget`, the bytes that
may go into one write before the transport says whether it takes more. A message that fits goes straight into the next
write, as pieces of bytes that many streams share. A message that does not fit waits in its stream's queue as views,
never as copies. Streams that wait and have a window take turns (`ready`), one frame each.

    send, headers, finish, control    add frames, or queue DATA
    send_queued                       frame queued DATA, as far as windows and budget allow
    take_output                       return the bytes to write

One control frame may be delayed (`delay`): it goes to the end of the next write, and alone if there is none in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from ..token_bucket import TokenBucket
from . import frames
from .codes import (
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    LARGEST_MAX_FRAME,
    LARGEST_WINDOW,
    MAX_FRAME_SIZE,
    SMALLEST_MAX_FRAME,
    Code,
)
from .faults import ConnectionFault, StreamFault
from .limits import Limit, Limits
from .stream import Stream

WRITE_BYTES: Final = 128 * 1024  # bytes of DATA in one write
LARGEST_FRAME: Final = 64 * 1024  # bytes, even if the peer accepts larger frames: other streams wait behind it
TINY: Final = 256  # bytes: a window that cuts DATA to less than this is abuse, if it happens often

_TABLE_EMPTIED = b"\x20"  # RFC 7541, section 6.3: a dynamic table size update to 0


class DataPayload(NamedTuple):
    """A message cut for DATA frames, once for all streams that send it."""

    size: int
    head: bytes  # header of one DATA frame for all of it, without the stream; empty if it needs several frames
    first: bytes
    rest: memoryview | None = None  # what does not fit into the first frame


def make_payload(prefix: bytes, body: bytes) -> DataPayload:
    """Cut a prefix and a body for DATA frames. A small body is copied; a large one stays a view."""
    size = len(prefix) + len(body)
    if size <= SMALLEST_MAX_FRAME:
        return DataPayload(size, frames.data_header_prefix(size), prefix + body)
    cut = SMALLEST_MAX_FRAME - len(prefix)
    return DataPayload(size, b"", prefix + body[:cut], memoryview(body)[cut:])


class Outbound:
    """The sending half of a connection: the peer's windows and settings, and the frames to write."""

    __slots__ = (
        "_delayed",
        "_expected_updates",
        "_frame_size",
        "_table_emptied",
        "_table_size",
        "_tiny",
        "_updates",
        "delay_paid_off",
        "delayed_until",
        "drained",
        "finished",
        "has_queued",
        "has_sent",
        "initial_window",
        "is_paused",
        "now",
        "pieces",
        "ready",
        "unread_bytes",
        "waits",
        "window",
        "write_budget",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self.window = DEFAULT_WINDOW
        self.write_budget = WRITE_BYTES
        self.drained: list[Stream] = []  # streams whose queue became empty, for the layer above
        self.finished: list[Stream] = []  # streams whose END_STREAM we sent, for `Connection` to close
        self.initial_window = DEFAULT_WINDOW  # send window of new streams
        self.now = now
        self.unread_bytes = 0  # bytes of control frames since the transport paused
        self.is_paused = False
        self.pieces: list[bytes | memoryview] = []  # for the next write
        self.ready: list[Stream] = []  # streams with queued DATA and an open window, in turn
        self.waits = False  # `ready`, `drained` or `finished` may have streams: there is something to `send_queued`
        self._frame_size = SMALLEST_MAX_FRAME
        self._table_size = 4_096  # RFC 7541: the default; we never use the table
        self._table_emptied = False
        self._tiny = TokenBucket(limits.tiny_frames, now)
        self._updates = TokenBucket(limits.window_updates, now)
        self._expected_updates = 0  # WINDOW_UPDATEs that the frames we sent justify
        # Since the last PING (see `Pings.answer`): HEADERS or DATA were sent; DATA was queued.
        self.has_sent = False
        self.has_queued = False
        self._delayed = b""  # a control frame for the end of the next write
        self.delayed_until = inf  # when to send it without another write; inf: there is none
        self.delay_paid_off = False  # the last delayed frame went with another write

    # -- frames to send

    def control(self, frame: bytes) -> None:
        """Send a control frame. No window holds it back, so what the peer provokes and does not read is counted."""
        self.pieces.append(frame)
        if self.is_paused:
            self.unread_bytes += len(frame)

    def delay(self, frame: bytes, due: float) -> None:
        """Send a control frame with the next write, or at `due`: the caller then calls `send_delayed`."""
        self._delayed = frame
        self.delayed_until = due

    def send_delayed(self, now: float = inf) -> None:
        """Send the delayed frame, if there is one and it is due at `now`."""
        if self._delayed and now >= self.delayed_until:
            frame, self._delayed, self.delayed_until = self._delayed, b"", inf
            self.delay_paid_off = bool(self.pieces)
            self.control(frame)

    def headers(self, stream: Stream, block: bytes) -> None:
        """Send the response headers of a stream."""
        stream.has_sent_headers = True
        self._headers(stream, block, last=False)

    def send(self, stream: Stream, body: DataPayload) -> None:
        """Send a message, or queue it if a window or the budget is too small: then `stream.queue` is not empty."""
        size = body.size
        if (
            body.head
            and size <= stream.window
            and size <= self.window
            and size <= self.write_budget
            and not stream.queue
        ):
            stream.window -= size
            self.window -= size
            self.write_budget -= size
            self._expected_updates += 4
            self.has_sent = True
            self.pieces += (body.head, stream.number_bytes, body.first)
            return
        self.has_queued = True
        stream.queue.append(memoryview(body.first))
        if body.rest is not None:
            stream.queue.append(body.rest)
        self._schedule(stream)

    def finish(self, stream: Stream, block: bytes = b"") -> None:
        """End the stream after its queue: with trailers, or without a block by END_STREAM on the last DATA frame."""
        stream.end_block = block
        if not stream.queue:
            self._end(stream)

    # -- the peer's windows and settings

    def grow_window(self, size: int) -> None:
        """Apply a WINDOW_UPDATE of the connection (sections 6.9 and 6.9.1)."""
        self._count_update()
        if size == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a window update of zero bytes")
        self.window += size
        if self.window > LARGEST_WINDOW:
            raise ConnectionFault(
                Code.FLOW_CONTROL_ERROR, "the connection's window is too large", Limit.WINDOW_OVERFLOW
            )

    def grow_stream_window(self, stream: Stream, size: int) -> None:
        """Apply a WINDOW_UPDATE of one stream."""
        self._count_update()
        if size == 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "a window update of zero bytes")
        stream.window += size
        if stream.window > LARGEST_WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "a stream's window is too large", Limit.WINDOW_OVERFLOW)
        self._schedule(stream)

    def apply_settings(self, settings: Iterable[tuple[int, int]], streams: Iterable[Stream]) -> None:
        """Apply the peer's SETTINGS (section 6.5.2).

        Unknown settings are ignored. So are the limits on streams and header lists: we open no streams, and our headers
        are short.
        """
        window = self.initial_window
        for key, value in settings:
            if key == HEADER_TABLE_SIZE:
                self._set_table_size(value)
            elif key == ENABLE_PUSH and value > 1:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
            elif key == INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
                window = value
            elif key == MAX_FRAME_SIZE:
                if not SMALLEST_MAX_FRAME <= value <= LARGEST_MAX_FRAME:
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")
                self._frame_size = min(value, LARGEST_FRAME)
        self._change_initial_window(window, streams)  # once, though SETTINGS may repeat it

    def _change_initial_window(self, initial_window: int, streams: Iterable[Stream]) -> None:
        """Apply a new initial window to open streams too, which can make their windows negative (section 6.9.2)."""
        change = initial_window - self.initial_window
        self.initial_window = initial_window
        if change:
            for stream in streams:
                stream.window += change
                if stream.window > LARGEST_WINDOW:
                    raise ConnectionFault(
                        Code.FLOW_CONTROL_ERROR, "a stream's window is too large", Limit.WINDOW_OVERFLOW
                    )
                self._schedule(stream)

    def _set_table_size(self, size: int) -> None:
        """Note to acknowledge a smaller HPACK table in the next header block (RFC 7541, section 4.2)."""
        if size < self._table_size:
            self._table_emptied = True
        self._table_size = size

    # -- the transport

    def pause(self) -> None:
        """Hold DATA back: the transport's buffer is full."""
        self.is_paused = True
        self.write_budget = 0

    def resume(self) -> None:
        """Send DATA again: the peer has read what was buffered."""
        self.is_paused = False
        self.unread_bytes = 0
        self.write_budget = WRITE_BYTES

    def send_queued(self) -> None:
        """Frame queued DATA as far as windows and budget allow. Streams whose queue became empty are in `drained`."""
        ready = self.ready
        while ready and self.window > 0 and self.write_budget > 0:
            self._send_frame(ready.pop(0))

    def take_output(self) -> bytes:
        """Return all frames to write, joined, and begin a new write."""
        pieces = self.pieces
        if not pieces:
            return b""
        if self._delayed:
            self.send_delayed()
        self.pieces = []
        if not self.is_paused:
            self.write_budget = WRITE_BYTES
        return b"".join(pieces)

    @property
    def can_write_more(self) -> bool:
        """Whether another write could carry more of the queued DATA."""
        return self.window > 0 and bool(self.ready)

    def discard(self, stream: Stream) -> None:
        """Drop what a closed stream had queued, and its turn: behind a closed window `ready` would keep it for ever."""
        if stream.is_scheduled:
            self.ready.remove(stream)
            stream.is_scheduled = False
        stream.queue.clear()
        stream.framed_bytes = 0
        stream.end_block = None

    def _schedule(self, stream: Stream) -> None:
        """Put a stream in line if it has DATA and an open window."""
        if stream.queue and not stream.is_scheduled and stream.window > 0:
            stream.is_scheduled = self.waits = True
            self.ready.append(stream)

    def _send_frame(self, stream: Stream) -> None:
        """Send one DATA frame of a stream whose turn it is, and put it back in line if it has more."""
        stream.is_scheduled = False
        queue = stream.queue
        if not queue or stream.window <= 0:  # while it waited it was reset, or SETTINGS closed its window
            return
        piece, begin = queue[0], stream.framed_bytes
        left = len(piece) - begin
        size = min(left, self._frame_size)
        if size > stream.window or size > self.window or size > self.write_budget:
            size = min(stream.window, self.window, self.write_budget)
            if size < TINY and size < self.write_budget and not self._tiny.spend(self.now):
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "windows of a few bytes", Limit.TINY_WINDOWS)
        if size == left:
            queue.pop(0)
            stream.framed_bytes = 0
        else:
            stream.framed_bytes = begin + size
        self._write(stream, piece[begin : begin + size], size, last=not queue and stream.end_block == b"")
        if queue:
            self._schedule(stream)
        elif stream.end_block is None:
            self.drained.append(stream)
            self.waits = True
        elif not stream.has_ended:
            self._end(stream)

    def _write(self, stream: Stream, piece: memoryview, size: int, *, last: bool) -> None:
        """Send one DATA frame."""
        stream.window -= size
        stream.stalled_since = None
        stream.has_ended = last
        self.window -= size
        self.write_budget -= size
        self._expected_updates += 4
        self.has_sent = self.has_queued = True
        self.pieces += (frames.data_header(size, stream.number, last=last), piece)
        if last:
            self._finished(stream)

    def _end(self, stream: Stream) -> None:
        """Send what ends the stream: trailers, or an empty DATA frame with END_STREAM."""
        block = stream.end_block
        if block:
            self._headers(stream, block, last=True)
        else:
            self.control(frames.data_header(0, stream.number, last=True))
        stream.has_ended = True
        self._finished(stream)

    def _finished(self, stream: Stream) -> None:
        """Have `Connection` close a stream whose end was sent."""
        self.finished.append(stream)
        self.waits = True

    def _headers(self, stream: Stream, block: bytes, *, last: bool) -> None:
        if self._table_emptied:
            self._table_emptied = False
            block = _TABLE_EMPTIED + block
        self._expected_updates += 4
        self.has_sent = True
        self.control(frames.headers(stream.number, block, last=last))

    def _count_update(self) -> None:
        """Charge a WINDOW_UPDATE, unless our own frames justify it: four for each frame that we sent are plenty."""
        if self._expected_updates:
            self._expected_updates -= 1
        elif not self._updates.spend(self.now):
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many window updates", Limit.WINDOW_UPDATES)
