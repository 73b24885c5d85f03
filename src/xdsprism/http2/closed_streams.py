"""Remembers which streams closed lately, and which side closed them.

RFC 9113, section 5.1, answers a late frame differently: on a stream that we closed it may have been in flight already,
and is ignored; on a stream that the peer closed it is an error.
"""

from __future__ import annotations

MEMORY = 512  # streams; older ones are forgotten


class ClosedStreams:
    """The streams of one connection that closed last, each with the side that closed it first."""

    def __init__(self) -> None:
        self._streams: dict[int, bool] = {}  # by number, oldest first: whether we closed it

    def add(self, number: int, *, ours: bool) -> None:
        """Remember that a stream closed. The first side that closed it counts."""
        self._streams.setdefault(number, ours)
        if len(self._streams) > MEMORY:
            del self._streams[next(iter(self._streams))]

    def __contains__(self, number: int) -> bool:
        return number in self._streams

    def was_closed_by_us(self, number: int) -> bool:
        """Return whether we closed the stream, so that frames of the peer may still be in flight."""
        return self._streams.get(number, False)
