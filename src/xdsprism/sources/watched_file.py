"""Watches one small file that is used as a whole, such as a policy: reads it at the start, and again when it changes.

A changed file is read once it has not changed for a moment, since its writer may not be done. One that can't be used
changes nothing: what was read last stays in use. The file may name others that are a part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ..errors import ConfigError, Problem
from ..file_reading import read_file
from ..file_watch import follow_files
from .quiet_period import QUIET

T = TypeVar("T")

RETRY = 60.0  # seconds until a file that can't be used is read again: a `chmod` causes no event


def bytes_of(path: str) -> bytes | None:
    """Return what is in a file; None if it can't be read."""
    try:
        return read_file(path)
    except OSError:
        return None


class WatchedFile(Generic[T]):
    """A file that is watched, and what `read` makes of it."""

    def __init__(
        self,
        path: str | Path,
        read: Callable[[str], T],
        glance: Callable[[str], object] = bytes_of,
        files: Callable[[str], list[str]] = lambda path: [path],
    ) -> None:
        """`read` raises ConfigError; `glance` returns what differs if a file has to be read again.

        `files` returns the file itself and those that it names now.
        """
        self.path = str(path)
        self._read = read
        self._glance = glance
        self._files = files
        self._paths = [self.path]  # those that there were when it was last looked at; `follow_files` watches them
        self._wake = asyncio.Event()
        self._seen: object = None  # as it was last looked at
        self._problems: tuple[Problem, ...] = ()  # for which it was last refused

    def load(self) -> T:
        """Read the file at the start. Raises ConfigError."""
        self._seen = self._look_at_all()  # first: a change in between is seen by `run`
        return self._read(self.path)

    def check_now(self) -> None:
        """Have `run` read the file now, without an event (SIGHUP)."""
        self._wake.set()

    async def run(self, take: Callable[[T], None], refuse: Callable[[ConfigError], None]) -> None:
        """Watch the file until cancelled: `take` what a changed file contains, or `refuse` one that has problems."""
        await follow_files(self._paths, self._wake, partial(self._look, take, refuse), self._wait)

    def _look_at_all(self) -> list[object]:
        """Return what differs if one of the files has to be read again, or if there are others."""
        self._paths[:] = self._files(self.path)
        return [(path, self._glance(path)) for path in self._paths]

    def _wait(self) -> Awaitable[None]:
        return self._wait_for(RETRY if self._problems else None)

    async def _wait_for(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _look(self, take: Callable[[T], None], refuse: Callable[[ConfigError], None]) -> None:
        """Read the file if it or another has changed, once they have not changed for a moment."""
        while (seen := await asyncio.to_thread(self._look_at_all)) != self._seen or self._problems:
            self._wake.clear()
            await self._wait_for(QUIET)
            if self._wake.is_set():
                continue
            changed, self._seen = seen != self._seen, seen
            try:
                found = await asyncio.to_thread(self._read, self.path)
            except ConfigError as error:
                if changed and error.problems != self._problems:
                    refuse(error)
                self._problems = error.problems
                return
            self._problems = ()
            if changed:
                take(found)
            return
