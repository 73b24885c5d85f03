"""Which streams were closed lately, and by whom: section 5.1 wants to know, for a while."""

from __future__ import annotations

MEMORY = 512  # streams; of those before, nobody can tell


class Closed:
    """A frame on a stream that we closed may have been under way; on one that the peer closed it is an error."""

    def __init__(self) -> None:
        self._streams: dict[int, bool] = {}

    def add(self, number: int, *, ours: bool) -> None:
        self._streams.setdefault(number, ours)
        if len(self._streams) > MEMORY:
            del self._streams[next(iter(self._streams))]

    def __contains__(self, number: int) -> bool:
        return number in self._streams

    def by_us(self, number: int) -> bool:
        return self._streams.get(number, False)
