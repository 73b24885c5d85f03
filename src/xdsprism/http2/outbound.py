"""What goes out: windows, queues, and frames joined into few writes.

Three things hold DATA back: the window of the stream, that of the connection, and `room`, which is what may be written
before the transport is asked again. What fits goes straight into the next write, as pieces that many streams share;
what does not waits in the stream's queue, as views on the message, never copies. Streams that wait and could go on
take turns, a frame each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import frames
from .codes import (
    ENABLE_PUSH,
    FIRST_WINDOW,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    LARGEST_MAX_FRAME,
    LARGEST_WINDOW,
    MAX_FRAME_SIZE,
    SMALLEST_MAX_FRAME,
    Code,
)
from .faults import Fault, StreamFault
from .limits import Allowance, Limit, Limits
from .stream import Stream

ROOM = 128 * 1024  # bytes of DATA in one write
LARGEST_FRAME = 64 * 1024  # even if the peer takes larger ones: others wait behind it
TINY = 256  # bytes

_TABLE_EMPTIED = b"\x20"  # RFC 7541, section 6.3: the dynamic table has no room from here on


class Parcel(NamedTuple):
    """Bytes for DATA frames, cut once for all streams that send them."""

    size: int
    head: bytes  # of a DATA frame that takes all; empty if none does
    first: bytes
    rest: memoryview | None = None


def parcel(prefix: bytes, body: bytes) -> Parcel:
    size = len(prefix) + len(body)
    if size <= SMALLEST_MAX_FRAME:
        return Parcel(size, frames.data_head(size), prefix + body)
    cut = SMALLEST_MAX_FRAME - len(prefix)
    return Parcel(size, b"", prefix + body[:cut], memoryview(body)[cut:])


class Outbound:
    """The sending half of a connection."""

    __slots__ = (
        "_due_updates",
        "_frame_size",
        "_table_emptied",
        "_table_size",
        "_tiny",
        "_updates",
        "drained",
        "first_window",
        "now",
        "over",
        "paused",
        "pieces",
        "ready",
        "room",
        "spoke",
        "unread",
        "window",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self.window = FIRST_WINDOW
        self.room = ROOM
        self.drained: list[Stream] = []  # streams whose queue became empty
        self.over: list[Stream] = []  # streams that we ended
        self.first_window = FIRST_WINDOW  # of new streams
        self.now = now
        self.unread = 0  # bytes of all but DATA, since the transport took no more
        self.paused = False
        self.pieces: list[bytes | memoryview] = []
        self.ready: list[Stream] = []  # what waits, and could go on
        self._frame_size = SMALLEST_MAX_FRAME
        self._table_size = 4_096  # RFC 7541: as if we used one
        self._table_emptied = False
        self._tiny = Allowance(limits.tiny_frames, now)
        self._updates = Allowance(limits.window_updates, now)
        self._due_updates = 0  # that follow from what we sent
        self.spoke = False  # any of these, since somebody looked

    # -- what to send

    def control(self, frame: bytes) -> None:
        """No window holds these back, so what a peer makes us say and does not read is counted."""
        self.pieces.append(frame)
        if self.paused:
            self.unread += len(frame)

    def headers(self, stream: Stream, block: bytes) -> None:
        stream.answered = True
        self._headers(stream, block, last=False)

    def send(self, stream: Stream, body: Parcel) -> None:
        """Shared bytes, if the windows allow it. `stream.queue` says whether they did."""
        size = body.size
        if body.head and size <= stream.window and size <= self.window and size <= self.room and not stream.queue:
            stream.window -= size
            self.window -= size
            self.room -= size
            self._due_updates += 4
            self.spoke = True
            self.pieces += (body.head, stream.number_bytes, body.first)
            return
        stream.queue.append(memoryview(body.first))
        if body.rest is not None:
            stream.queue.append(body.rest)
        self._line_up(stream)

    def finish(self, stream: Stream, block: bytes = b"") -> None:
        """End the stream after what is queued: with trailers, or with the last byte."""
        stream.ending = block
        if not stream.queue:
            self._end(stream)

    # -- how much the peer takes

    def grow(self, size: int) -> None:
        """WINDOW_UPDATE of the connection. Sections 6.9 and 6.9.1."""
        self._count_update()
        if size == 0:
            raise Fault(Code.PROTOCOL_ERROR, "a window update of nothing")
        self.window += size
        if self.window > LARGEST_WINDOW:
            raise Fault(Code.FLOW_CONTROL_ERROR, "the connection's window is too large", Limit.WINDOW_OVERFLOW)

    def grow_stream(self, stream: Stream, size: int) -> None:
        self._count_update()
        if size == 0:
            raise StreamFault(Code.PROTOCOL_ERROR, "a window update of nothing")
        stream.window += size
        if stream.window > LARGEST_WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "a stream's window is too large", Limit.WINDOW_OVERFLOW)
        self._line_up(stream)

    def follow(self, settings: Iterable[tuple[int, int]], streams: Iterable[Stream]) -> None:
        """Section 6.5.2. Unknown ones are ignored; how many streams and headers it takes is not our concern."""
        window = self.first_window
        for key, value in settings:
            if key == HEADER_TABLE_SIZE:
                self._set_table_size(value)
            elif key == ENABLE_PUSH and value > 1:
                raise Fault(Code.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
            elif key == INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise Fault(Code.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
                window = value
            elif key == MAX_FRAME_SIZE:
                if not SMALLEST_MAX_FRAME <= value <= LARGEST_MAX_FRAME:
                    raise Fault(Code.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")
                self._frame_size = min(value, LARGEST_FRAME)
        self._resize(window, streams)  # once, however often it is in there

    def _resize(self, first_window: int, streams: Iterable[Stream]) -> None:
        """Section 6.9.2: a new first window counts for open streams too, and may make theirs negative."""
        change = first_window - self.first_window
        self.first_window = first_window
        if change:
            for stream in streams:
                stream.window += change
                if stream.window > LARGEST_WINDOW:
                    raise Fault(Code.FLOW_CONTROL_ERROR, "a stream's window is too large", Limit.WINDOW_OVERFLOW)
                self._line_up(stream)

    def _set_table_size(self, size: int) -> None:
        """RFC 7541, section 4.2: a smaller table is acknowledged in the next header block. Ours is never used."""
        if size < self._table_size:
            self._table_emptied = True
        self._table_size = size

    # -- the transport

    def pause(self) -> None:
        self.paused = True
        self.room = 0

    def resume(self) -> None:
        self.paused = False
        self.unread = 0
        self.room = ROOM

    def pump(self) -> None:
        """Send of what waits as much as may be. Each stream that ran empty is in `drained`."""
        ready = self.ready
        while ready and self.window > 0 and self.room > 0:
            self._advance(ready.pop(0))

    def take(self) -> bytes:
        """All that is to be written now, as one."""
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces = []
        if not self.paused:
            self.room = ROOM
        return b"".join(pieces)

    @property
    def waits(self) -> bool:
        """There is something for `pump` to do, or to tell."""
        return bool(self.ready or self.drained or self.over)

    @property
    def more(self) -> bool:
        """Another write would take more of what waits."""
        return self.window > 0 and bool(self.ready)

    def forget(self, stream: Stream) -> None:
        """It is over, and what it had to say goes with it; also its turn, or a closed window would keep it for ever."""
        if stream.queued:
            self.ready.remove(stream)
            stream.queued = False
        stream.queue.clear()
        stream.ending = None

    def _line_up(self, stream: Stream) -> None:
        if stream.queue and not stream.queued and stream.window > 0:
            stream.queued = True
            self.ready.append(stream)

    def _advance(self, stream: Stream) -> None:
        stream.queued = False
        queue = stream.queue
        if not queue or stream.window <= 0:  # it was reset, or a setting took its window, while it waited
            return
        piece = queue[0]
        size = min(len(piece), stream.window, self.window, self._frame_size, self.room)
        if size < TINY and size < len(piece) and size < self.room and not self._tiny.spend(self.now):
            raise Fault(Code.ENHANCE_YOUR_CALM, "windows of a few bytes", Limit.TINY_WINDOWS)
        if size == len(piece):
            queue.pop(0)
        else:
            queue[0] = piece[size:]
        self._write(stream, piece[:size], last=not queue and stream.ending == b"")
        if queue:
            self._line_up(stream)
        elif stream.ending is None:
            self.drained.append(stream)
        elif not stream.ended:
            self._end(stream)

    def _write(self, stream: Stream, piece: memoryview, *, last: bool) -> None:
        size = len(piece)
        stream.window -= size
        stream.stuck_since = None
        stream.ended = last
        self.window -= size
        self.room -= size
        self._due_updates += 4
        self.spoke = True
        self.pieces += (frames.data_header(size, stream.number, last=last), piece)
        if last:
            self.over.append(stream)

    def _end(self, stream: Stream) -> None:
        block = stream.ending
        if block:
            self._headers(stream, block, last=True)
        else:
            self.control(frames.data_header(0, stream.number, last=True))
        stream.ended = True
        self.over.append(stream)

    def _headers(self, stream: Stream, block: bytes, *, last: bool) -> None:
        if self._table_emptied:
            self._table_emptied = False
            block = _TABLE_EMPTIED + block
        self._due_updates += 4
        self.spoke = True
        self.control(frames.headers(stream.number, block, last=last))

    def _count_update(self) -> None:
        """A peer that reads gives back what we sent: four updates for a frame are plenty."""
        if self._due_updates:
            self._due_updates -= 1
        elif not self._updates.spend(self.now):
            raise Fault(Code.ENHANCE_YOUR_CALM, "window updates without end", Limit.WINDOW_UPDATES)
