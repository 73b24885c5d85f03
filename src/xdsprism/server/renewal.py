"""Keeps what a server is secured with in step with its files: a loop around `tls.py`, which decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError
from ..http2.facts import Fact, NotRenewed, Secured
from ..watch import Watch, make_plan
from .tls import Material, Tls, read_material, renewed, warnings

log = logging.getLogger("xdsprism.server")

SETTLE = 1.0  # seconds: a certificate and its key are often replaced one after the other
RETRY = 60.0  # seconds: what is no good today may be tomorrow, and of a `chmod` nobody is told
LINKS = 40  # that a path may lead through, as Linux has it


class Renewal:
    """The files of one server."""

    def __init__(
        self,
        tls: Tls,
        secure: Callable[[Material], None],
        tell: Callable[[Sequence[Fact]], None],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`secure` is called with what new connections are to get."""
        self._tls = tls
        self._secure = secure
        self._tell = tell
        self._wall = wall
        self.settle, self.retry = SETTLE, RETRY
        self._wake = asyncio.Event()
        self._told = ""  # what was wrong, the last time

    def load(self) -> Material:
        """What to begin with. Raises ConfigError."""
        self._current = read_material(self._tls)
        self._took()
        return self._current

    def look(self) -> None:
        """Have `run` read the files, though nothing is known to have happened to them (SIGHUP)."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        watch: Watch | None = None
        try:
            while True:
                self._wake.clear()
                plan = make_plan(self._tls.paths, links(self._tls.paths))
                if watch is None or watch.plan != plan:
                    if watch is not None:
                        await watch.stop()
                    watch = Watch(plan, lambda _: self._wake.set())
                    await watch.start()
                await self._turn()
                if make_plan(self._tls.paths, links(self._tls.paths)) == plan:
                    await self._news()
        finally:
            if watch is not None:
                await watch.stop()

    async def _news(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.retry if self._told else None):
                await self._wake.wait()

    async def _turn(self) -> None:
        """A fault is one if it is still there after a moment in which nothing happened."""
        try:
            await self._renew()
        except ConfigError:
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.settle)
                return  # something did
            try:
                await self._renew()
            except ConfigError as error:
                self._refused(str(error))

    async def _renew(self) -> None:
        """In a thread: a disk may be slow, and the streams must go on meanwhile."""
        found = await asyncio.to_thread(renewed, self._tls, self._current, self._wall())
        self._told = ""
        if found is not None:
            self._current = found
            self._secure(found)
            self._took()
            log.info("new certificates are in use, from %s", ", ".join(found.not_after))

    def _took(self) -> None:
        self._tell([Secured(self._current.not_after)])
        for text in warnings(self._tls, self._current, self._wall()):
            log.warning("%s", text)

    def _refused(self, why: str) -> None:
        if why != self._told:
            self._told = why
            self._tell([NotRenewed(why)])
            log.error("new certificates refused, the last good ones stay: %s", why)


def links(paths: Iterable[str]) -> set[Path]:
    """Every symlink on the way to these files, and where they end: a change of any is a change of the file."""
    return {step for path in paths for step in _way(Path(path).absolute())}


def _way(path: Path) -> Iterator[Path]:
    for _ in range(LINKS):
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            yield path
            return
        yield link
        path = (link.parent / link.readlink() / path.relative_to(link)).absolute()
