"""Hold back reading until watchers have taken the last response (CLI-20)."""

from __future__ import annotations

import asyncio

from ..core.watch.entry import Watch


class Backpressure:
    """Which watchers have updates that they have not taken yet."""

    def __init__(self) -> None:
        self._unread: set[Watch] = set()  # watches with updates that their watchers have not taken yet
        self._awaiting_first: set[asyncio.Event] = set()  # of watchers that wait for their first update
        self._progress = asyncio.Event()  # set when one of these two sets may have changed

    def note_update(self, watch: Watch) -> None:
        """Note that a watch was woken, perhaps with updates to take."""
        if watch:
            self._unread.add(watch)

    def note_taken(self, watch: Watch) -> None:
        """Note that a watcher has taken an update."""
        if not watch:
            self._unread.discard(watch)
            self._progress.set()

    def forget(self, watch: Watch) -> None:
        """Wait no longer for a watch that ended."""
        self._unread.discard(watch)
        self._progress.set()

    async def wait_for_news(self, news: asyncio.Event, *, first: bool) -> None:
        """Wait for an update; `first`: the watcher has had none yet."""
        if first:
            self._awaiting_first.add(news)
        self._progress.set()
        try:
            await news.wait()
        finally:
            self._awaiting_first.discard(news)

    async def all_taken(self) -> None:
        """CLI-20: wait until the watchers have taken all updates, or one of them waits for its first."""
        while self._unread and all(news.is_set() for news in self._awaiting_first):
            self._progress.clear()
            await self._progress.wait()
