"""Files in the store of a program: read once, or followed for as long as a block runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..core.model.removal_guard import MAX_REMOVALS, Guard, HeldBack
from ..core.model.store import Store
from ..errors import ConfigError, UsageError
from ..messages.validation import Validate, check_mode
from .files import FileSource, LoadReport

if TYPE_CHECKING:
    from .memory import Store as ProgramStore

log = logging.getLogger("xdsprism")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def paths_of(paths: Paths) -> list[str]:
    """Return one path, or several, as a list. Raises TypeError and UsageError."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else [*paths]
    if not listed:
        raise UsageError("give a file or a folder to load, or several")
    return [os.fspath(path) for path in listed]


def load_files(store: Store, paths: Paths, validate: Validate, *, allow_empty: bool) -> LoadReport:
    """Read files and apply all of their resources, or raise ConfigError with every problem and change nothing."""
    source = FileSource(paths_of(paths), validate=check_mode(validate), allow_empty=allow_empty)
    return source.load(store.apply).report


class Following:
    """Keeps the resources of files in a store, in a block; see `Store.follow`."""

    def __init__(  # each is one choice
        self,
        store: ProgramStore,
        paths: Paths,
        *,
        validate: Validate,
        max_removals: float = MAX_REMOVALS,
        allow_empty: bool = False,
        observe: Callable[[LoadReport], None] | None = None,
    ) -> None:
        self._store = store
        self.paths = tuple(paths_of(paths))
        self.observers = [observe] if observe is not None else []  # get the report of every load
        self._source = FileSource(
            self.paths,
            validate=check_mode(validate),
            observe=self._loaded,
            guard=Guard(max_removals),
            allow_empty=allow_empty,
        )
        self._first: asyncio.Future[LoadReport] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def report(self) -> LoadReport | None:
        """How the last load went; None before the first."""
        return self._source.report

    @property
    def polling(self) -> str:
        """Why the files are polled instead of watched; empty if they are watched."""
        return self._source.polling

    def reload(self) -> None:
        """Read every file again, also those that seem unchanged."""
        self._source.reload()

    async def confirm(self, change: str | None = None) -> HeldBack:
        """Let through what is held back since it removes too much (OPS-13); `change`: only if its id is this one.

        Raises an XdsError if nothing, or something else, is held back.
        """
        return await self._source.confirm(change)

    async def __aenter__(self) -> Self:
        """Load the files. Raises ConfigError with every problem; then nothing is followed."""
        if self._task is not None:
            raise UsageError("files are followed once: call follow again")
        loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._task = loop.create_task(self._source.run(self._store.apply, self._store.prepare), name="xdsprism files")
        try:
            report = await self._first
        except asyncio.CancelledError:
            await self._stop()
            raise
        if report.errors:
            await self._stop()
            raise ConfigError(report.errors)
        self._store.following = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._store.following is self:
            self._store.following = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _loaded(self, report: LoadReport) -> None:
        """Log a load and pass its report on. The first one that is refused raises its errors instead."""
        is_first = self._first is not None and not self._first.done()
        if self._first is not None and is_first:
            self._first.set_result(report)
        for problem in report.errors if not is_first else ():
            log.error("configuration refused, the last good one stays: %s", problem)
        if report.held is not None:
            log.warning("configuration held back: %s", "; ".join(report.held.reasons))
        if report.is_accepted:
            log.info("configuration loaded: %d resources in %d files", report.resources, report.files)
        for observe in [*self.observers]:
            observe(report)
