"""What holds whatever came: looked at from outside of the connection, after every step."""

from __future__ import annotations

from collections.abc import Sequence

from xdsprism.http2 import frames
from xdsprism.http2.blocks import OVERSIZE_FACTOR
from xdsprism.http2.closed_streams import MEMORY
from xdsprism.http2.codes import (
    DATA,
    FRAME_HEADER,
    GOAWAY,
    LARGEST_WINDOW,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    SMALLEST_MAX_FRAME,
    WINDOW_UPDATE,
)
from xdsprism.http2.facts import Limited
from xdsprism.http2.limits import Limits
from xdsprism.http2.outbound import LARGEST_FRAME
from xdsprism.http2.rpc import Called, Drained, Ended, HalfClosed, Message, Rpc, RpcConnection, RpcEvent
from xdsprism.timer_heap import STALE

# Of what we send, how long the payload is; of SETTINGS the parts.
SIZES = {RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
NEVER_SENT = (PUSH_PROMISE, 2, 9)


class Unsound(Exception):
    """Something that was to hold does not."""


def must(holds: object, what: str) -> None:
    if not holds:
        raise Unsound(what)


class Story:
    """The events of calls make sense: opened once, spoken on while open, ended once."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._kept: list[Rpc] = []  # so that an identity stays one

    def take(self, events: Sequence[RpcEvent], limits: Limits) -> list[Rpc]:
        """The calls that are new."""
        opened = []
        for event in events:
            key = id(event.rpc)
            if isinstance(event, Called):
                must(key not in self._open, "a call was opened twice")
                self._open[key] = "open"
                self._kept.append(event.rpc)
                opened.append(event.rpc)
                continue
            state = self._open.get(key)
            must(state in ("open", "heard"), f"{type(event).__name__} of a call that is {state}")
            if isinstance(event, Message):
                must(state == "open", "a message after the last")
                must(len(event.message) <= limits.message_bytes, "a message above the limit")
            elif isinstance(event, HalfClosed):
                must(state == "open", "the end twice")
                self._open[key] = "heard"
            elif isinstance(event, Ended):
                self._open[key] = "ended"
            else:
                must(isinstance(event, Drained), f"an unknown event {event}")
        return opened

    def ended(self, rpc: Rpc) -> None:
        """By us: the connection says nothing about it any more."""
        self._open[id(rpc)] = "ended"


def written(out: bytes) -> list[tuple[int, int, bytes]]:
    """All that is written is whole frames that a client may get."""
    found = []
    at = 0
    while at < len(out):
        must(len(out) - at >= FRAME_HEADER, "half a frame was written")
        high, low, kind, _, number = frames.HEADER.unpack_from(out, at)
        size = high << 8 | low
        payload = out[at + FRAME_HEADER : at + FRAME_HEADER + size]
        must(len(payload) == size, "half a frame was written")
        must(size <= (LARGEST_FRAME if kind == DATA else SMALLEST_MAX_FRAME), "a frame too large")
        must(kind not in NEVER_SENT and kind <= WINDOW_UPDATE, f"a frame of kind {kind}")
        must(SIZES.get(kind, size) == size, f"a frame of kind {kind} with {size} bytes")
        must(kind != SETTINGS or size % 6 == 0, "SETTINGS of a wrong size")
        must((number == 0) == (kind in (SETTINGS, PING, GOAWAY)) or kind == WINDOW_UPDATE, "a frame on a wrong stream")
        found.append((kind, number, payload))
        at += FRAME_HEADER + size
    return found


def connection(rpcs: RpcConnection, limits: Limits) -> None:
    """Windows, memory and facts."""
    _windows(rpcs, limits)
    _memory(rpcs, limits)
    _facts(rpcs)


def _windows(rpcs: RpcConnection, limits: Limits) -> None:
    found = rpcs.connection
    must(found.out.window >= 0, "more was sent than the connection's window")
    must(found.out.window <= LARGEST_WINDOW or found.failed, "a window beyond its bounds")
    must(0 <= found._windows.credit <= limits.connection_window >> 1, "the connection's credit is out of bounds")
    for stream in found.streams.values():
        must(-LARGEST_WINDOW <= stream.window <= LARGEST_WINDOW, "a stream's window is out of bounds")
        must(stream.credit <= limits.stream_window >> 1, "a stream's credit is out of bounds")
        must(stream.credit >= 0 or not stream.can_receive, "a stream's window was not made whole")
        must(stream.queue or not stream.is_scheduled or stream.is_closed, "a stream with nothing to send waits")


def _memory(rpcs: RpcConnection, limits: Limits) -> None:
    found = rpcs.connection
    must(len(found.streams) <= limits.streams, "too many streams")
    must(
        len(found._reader._partial_frame) < FRAME_HEADER + SMALLEST_MAX_FRAME or found.failed,
        "more than a frame is kept",
    )
    must(len(found._streams._closed._streams) <= MEMORY, "too many streams are remembered")
    must(len(found.out.ready) <= len(found.streams), "streams that are over wait to send")
    must(rpcs._deadlines.entries <= STALE + 2 * limits.streams + 1, "deadlines pile up")
    block = found._reader._blocks.in_progress
    must(
        block is None or len(block.octets) <= OVERSIZE_FACTOR * limits.header_bytes or found.failed,
        "too much of a block",
    )
    kept = [stream.owner.reader.unfinished for stream in found.streams.values() if stream.owner is not None]
    must(rpcs._unfinished == rpcs._count.unfinished == sum(kept), "unfinished messages are counted wrong")
    most = limits.message_bytes + limits.unfinished_bytes + SMALLEST_MAX_FRAME
    must(rpcs._unfinished <= most, "too much of unfinished messages")
    decoder = found._reader._blocks._decoder
    must(decoder is None or decoder.header_table._current_size <= 4_096, "the table of HPACK is too large")


def _facts(rpcs: RpcConnection) -> None:
    found = rpcs.connection
    fatal = [fact for fact in found.facts if isinstance(fact, Limited) and fact.connection]
    if found.failed is None:
        must(not fatal, "a limit ended a connection that goes on")
        return
    must(not found.streams, "streams of a connection that failed")
    expected = [found.failed.limit] if found.failed.limit is not None else []
    must([fact.limit for fact in fatal] == expected, "a limit that was met is not told, or told twice")
