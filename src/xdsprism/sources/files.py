"""Publishes the resources in YAML and JSON files, and every change of those files. The catalog makes the decisions.

An edit takes these steps:

1. The operating system reports an event for a path (file_watch.py).
2. `scan` lists all files. A file is changed if its stamp differs, or if an event named it.
3. Changed files are read once their writer seems to be done (quiet_period.py).
4. The catalog parses the new documents and says which names changed (catalog.py).
5. The guard holds back a change that looks like an accident, such as the loss of most resources
   (core/model/removal_guard.py).
6. Otherwise the change is published, all of it or nothing.

A file that can't be read is tried again after a while. No event says when it becomes readable: the process may have
been out of file descriptors, or a network file system away.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from watchfiles import Change

from ..core.model.removal_guard import Guard, HeldBack, Loss
from ..core.model.types import Changeset
from ..errors import ConfigError, Problem, XdsError
from ..file_reading import MiB, open_file, read_from
from ..file_watch import FileChange, FileWatch, WatchPlan, make_watch_plan
from ..messages.validation import Validate
from .base import Prepare, Publish
from .catalog import Catalog
from .quiet_period import QUIET, QuietPeriod
from .scan import Inode, Scan, Stamp, scan, stamp_of

log = logging.getLogger("xdsprism")

RETRY = 1.0  # s until a file that can't be read is tried again
MAX_RETRY = 60.0  # s, the longest back-off after a scan that raised an unexpected exception
MAX_BYTES = 256 * MiB  # of one file
LOAD, RELOAD, CONFIRM = "file load", "SIGHUP", "confirm"
NO_TEXTS: Mapping[str, bytes] = {}
EMPTY = "has no resources; to start with none, give --allow-empty"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How the last load went. If it has errors or is held back, the server still serves the configuration before it."""

    at: float  # seconds since the epoch
    files: int
    resources: int  # names
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    held: HeldBack | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the server serves what was loaded."""
        return not self.errors and self.held is None

    @property
    def outcome(self) -> Literal["ok", "refused", "held_back"]:
        """How it went, in a word."""
        return "ok" if self.is_accepted else "refused" if self.errors else "held_back"


@dataclass(frozen=True, slots=True)
class Loaded:
    """All resources of a configuration, and the report about loading them."""

    changeset: Changeset
    report: LoadReport


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load has come, or all loads since the start."""

    files: int  # that were read
    found: int  # files that there are
    documents: int  # that were parsed and checked

    def __str__(self) -> str:
        return f"loading: {self.files:,} of {self.found:,} files read, {self.documents:,} documents checked"


@dataclass(frozen=True, slots=True)
class _Refreshed:
    """The result of a scan, and of reading the changed files into the catalog."""

    has_changes: bool = False
    is_being_written: bool = False  # a file is, and the whole configuration waits for it
    retry_after: float = 0.0  # s until the next scan; 0: scan when an event comes


class NotConfirmedError(XdsError):
    """No change is held back, or another one than the caller confirmed; `held` is the change that is held back now."""

    def __init__(self, message: str, held: HeldBack | None = None) -> None:
        self.held = held
        super().__init__(message)


class FileSource:
    """Publishes the resources in files and directories, and keeps up with changes of them.

    validate      how to report what Envoy would refuse
    clock         seconds since the epoch, for reports
    ticks         a monotonic clock, for the quiet period
    observe       called with the report of every load
    guard         decides which changes to hold back
    allow_empty   whether the first load may define no resource at all
    texts         further contents that are in no file, by the names that problems in them get
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        validate: Validate = "envoy",
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        observe: Callable[[LoadReport], None] = lambda _: None,
        guard: Guard | None = None,
        allow_empty: bool = False,
        texts: Mapping[str, bytes] = NO_TEXTS,
    ) -> None:
        self.catalog = Catalog(validate)
        self._texts = texts
        self._files_read = 0
        self._files_found = 0
        self.report: LoadReport | None = None
        self._roots = [os.fspath(path) for path in paths]
        self._clock = clock
        self._ticks = ticks
        self._observe = observe
        self._guard = guard or Guard()
        self._allow_empty = allow_empty
        self.cause = LOAD  # what made it publish
        self._is_reloading = False  # SIGHUP asked for a load that is not done yet
        self._has_started = False  # a configuration was accepted, perhaps an empty one
        self._tolerated: set[str] = set()  # roots that were missing in an accepted configuration, while they are
        self._scan = Scan()
        self._stamps: dict[str, Stamp] = {}  # of each file as it was last read
        self._unreadable: dict[str, str] = {}  # files that exist and can't be read, with the reason
        self._quiet_period = QuietPeriod()
        self._wake = asyncio.Event()
        self._watch: FileWatch | None = None
        self._failures = 0  # turns in a row that raised an unexpected exception
        self._touched: set[FileChange] = set()  # events since the last turn
        self._touched_files: set[str] = set()  # files to read because an event named them, even if the stamp is equal
        self._read_all = False
        self._confirming: list[asyncio.Future[LoadReport]] = []

    @property
    def polling(self) -> str:
        """Why the files are polled instead of watched; empty if they are watched."""
        return self._watch.polling_reason if self._watch is not None else ""

    @property
    def progress(self) -> LoadProgress:
        """How far the load has come. May be asked for from any thread."""
        return LoadProgress(self._files_read, self._files_found, self.catalog.parsed)

    def load(self, publish: Publish = lambda _: None) -> Loaded:
        """Read every file and publish all resources, or raise ConfigError with every problem and publish nothing."""
        self._read_changed(scan(self._roots), read_all=True)
        for name, text in self._texts.items():
            self.catalog.read(name, text)
        changeset = self.catalog.pending()
        errors = self._errors(self._contents())
        if self._can_publish(errors):
            try:
                self._publish(partial(publish, changeset))
            except ConfigError as error:
                errors = error.problems
            else:
                self.catalog.mark_published()
        report = self._make_report(errors)
        if report.errors:
            raise ConfigError(report.errors)
        return Loaded(changeset, report)

    def reload(self) -> None:
        """Have `run` read every file again, even if its stamp is unchanged (SIGHUP)."""
        self._read_all = self._is_reloading = True
        self._wake.set()

    async def confirm(self, change: str | None = None) -> HeldBack:
        """Publish the change that is held back, if its id is `change` and a new scan of the files finds it again.

        Raises NotConfirmedError otherwise: the operator confirms the change that was shown, not a later one.
        """
        held = self._guard.held
        if held is None:
            raise NotConfirmedError("nothing is held back")
        if change not in (None, held.id):
            raise NotConfirmedError(f"another change is held back now: {held.id}, not {change}", held)
        self._guard.confirm(held.id)
        reported: asyncio.Future[LoadReport] = asyncio.get_running_loop().create_future()
        self._confirming.append(reported)
        self._wake.set()
        report = await reported
        if report.held is not None and report.held.id != held.id:
            message = f"the files have changed, and another change is held back now: {report.held.id}"
            raise NotConfirmedError(message, report.held)
        if report.errors:
            raise NotConfirmedError(f"the configuration is refused: {'; '.join(map(str, report.errors))}", report.held)
        return held

    async def run(self, publish: Publish, prepare: Prepare | None = None) -> None:
        """Publish all current resources, then every change, until cancelled. Errors go into the report.

        `prepare` is the first of two steps that together do what `publish` does. It is called in a thread, so that the
        streams are served meanwhile.
        """
        try:
            while True:
                self._wake.clear()
                try:
                    plan = await self._update_watch()
                    wait = await self._turn(publish, prepare)
                    self._failures = 0
                    if self._plan() != plan:
                        continue
                except Exception as error:  # noqa: BLE001 # the server goes on with what it has, and the source retries
                    wait = self._report_failure(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait or None)
        finally:
            for each in self._confirming:
                each.cancel()
            if self._watch is not None:
                await self._watch.stop()

    def _plan(self) -> WatchPlan:
        return make_watch_plan(self._roots, self._scan.targets)

    async def _update_watch(self) -> WatchPlan:
        """Watch the paths that the roots and their symlinks lead to now."""
        plan = self._plan()
        if self._watch is None or self._watch.plan != plan:
            if self._watch is not None:
                await self._watch.stop()
            self._watch = FileWatch(plan, self._on_events)
            await self._watch.start()
        return plan

    def _report_failure(self, error: Exception) -> float:
        """Report an unexpected exception once, and return after how many seconds to read all files again."""
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}, see the log"
        wait = min(RETRY * (1 << min(self._failures, 10)), MAX_RETRY)
        if not self._failures:
            log.error("can't scan the configuration files, retrying", exc_info=error)
            self._make_report(tuple(Problem(f"can't be scanned: {why}", root) for root in self._roots))
        self._failures += 1
        self._read_all = True
        return wait

    async def _turn(self, publish: Publish, prepare: Prepare | None = None) -> float:
        """Read and publish what changed. Return the seconds until the next scan; 0: scan when an event comes."""
        touched, self._touched = self._touched, set()
        read_all, self._read_all = self._read_all, False
        # In a thread: a large file takes seconds to parse, and the streams must be served meanwhile.
        refreshed = await asyncio.to_thread(self._refresh, touched, read_all=read_all)
        if refreshed.is_being_written:
            self._read_all |= read_all
        elif refreshed.has_changes or self._confirming:
            self.cause = CONFIRM if self._confirming else RELOAD if self._is_reloading else LOAD
            self._is_reloading = False
            report = await self._publish_pending(prepare or partial(partial, publish))
            confirming, self._confirming = self._confirming, []
            for each in confirming:
                if not each.done():
                    each.set_result(report)
        return refreshed.retry_after

    def _on_events(self, changes: set[FileChange]) -> None:
        self._touched |= changes
        self._wake.set()

    def _refresh(self, touched: set[FileChange], *, read_all: bool) -> _Refreshed:
        """Bring the catalog up to date with the disk, unless a file is still being written."""
        found = scan(self._roots)
        # An event outweighs an equal stamp: two writes within one tick of the file system's clock leave equal stamps.
        inodes = _inodes(path for _, path in touched)
        self._touched_files |= {file for file, stamp in found.files.items() if stamp[:2] in inodes}
        if self.report is not None:
            changed: dict[str, Stamp | None] = dict(self._changed(found))
            changed |= dict.fromkeys(file for file in self._scan.files if file not in found.files)
            placed = _inodes(
                path for kind, path in touched if kind is Change.added and (Change.deleted, path) not in touched
            )
            wait = self._quiet_period.remaining(changed, self._stamps, self._ticks(), inodes, placed)
            if wait:
                return _Refreshed(is_being_written=True, retry_after=wait)
        return self._read_changed(found, read_all=read_all)

    def _changed(self, found: Scan) -> list[tuple[str, Stamp]]:
        """Return the files to read: those with another stamp, and those that an event named."""
        return [
            (file, stamp)
            for file, stamp in found.files.items()
            if file in self._touched_files or self._stamps.get(file) != stamp
        ]

    def _read_changed(self, found: Scan, *, read_all: bool) -> _Refreshed:
        """Give the catalog every changed file, or all files, and remove those that are gone from it."""
        changed = self._changed(found)
        before, self._scan = self._scan, found
        self._files_found = len(found.files)
        gone = [file for file in {**before.files, **before.problems} if file not in found.files]
        for file in gone:
            self.catalog.forget(file)
            self._stamps.pop(file, None)
        for file, message in found.problems.items():
            if file not in found.missing:
                self.catalog.fail(file, message)
        self._tolerated &= found.missing.keys()
        unreadable, self._unreadable = self._unreadable, {}
        if not all(self._read(file, stamp) for file, stamp in (found.files.items() if read_all else changed)):
            return _Refreshed(is_being_written=True, retry_after=QUIET)
        self._touched_files.clear()
        self._quiet_period.clear()
        is_changed = any(file not in self._unreadable for file, _ in changed) or unreadable != self._unreadable
        has_changes = gone or is_changed or before.problems != found.problems
        retry_after = RETRY if self._unreadable or found.unreadable else 0.0
        # The first load counts as a change even if the directory is empty.
        return _Refreshed(bool(has_changes or read_all or self.report is None), retry_after=retry_after)

    def _read(self, file: str, stamp: Stamp) -> bool:
        """Give a file to the catalog, unless it changed since the scan. Return whether the catalog got it."""
        try:
            with open_file(file) as opened:
                raw = read_from(opened, MAX_BYTES)
                is_being_written = stamp_of(os.fstat(opened.fileno())) != stamp
        except OSError as error:
            self._stamps.pop(file, None)
            self._unreadable[file] = message = f"can't be read: {error.strerror}"
            self.catalog.fail(file, message)
            return True
        if is_being_written and self.report is not None and not self._quiet_period.is_overdue(self._ticks()):
            return False
        self._stamps[file] = stamp
        self.catalog.read(file, raw)
        self._files_read += 1
        return True

    async def _publish_pending(self, prepare: Prepare) -> LoadReport:
        """Publish what is pending, if there is no error (DESIGN 3: all or nothing) and it is not held back (OPS-13).

        The slow parts run in a thread; the decision and the last step of publishing run in the event loop.
        """
        errors = self._errors(await asyncio.to_thread(self._contents))
        if self._can_publish(errors):
            try:
                self._publish(await asyncio.to_thread(lambda: prepare(self.catalog.pending())))
            except ConfigError as error:
                errors = error.problems
            else:
                await asyncio.to_thread(self.catalog.mark_published)
        return self._make_report(errors)

    def _contents(self) -> tuple[tuple[Problem, ...], tuple[Loss, ...]]:
        """Return the errors in the files, and the resources that publishing them would remove."""
        return self.catalog.problems(), self.catalog.losses()

    def _errors(self, contents: tuple[tuple[Problem, ...], tuple[Loss, ...]]) -> tuple[Problem, ...]:
        """Return the errors that forbid publishing. If there are none, have the guard decide whether to hold back."""
        errors, losses = contents
        missing = self._missing()
        if not self._has_started:
            return self._start_errors(errors, missing)
        if errors:
            self._guard.suspend()
        elif self._guard.judge(losses, self.catalog.resources, self._clock(), missing) is not None:
            errors += self._missing_problems(missing)
        return errors

    def _can_publish(self, errors: tuple[Problem, ...]) -> bool:
        return not errors and self._guard.held is None

    def _publish(self, publish: Callable[[], object]) -> None:
        if self.catalog.has_pending:
            publish()
        self._has_started = True
        self._tolerated |= set(self._missing())

    def _missing(self) -> list[str]:
        """Return the roots that are missing, except those that were missing in an accepted configuration."""
        return [root for root in self._scan.missing if root not in self._tolerated]

    def _make_report(self, errors: tuple[Problem, ...]) -> LoadReport:
        """Make the report of a load, and pass it to the observer."""
        files, resources = len(self._scan.files) + len(self._texts), self.catalog.resources
        warnings, held = self.catalog.warnings(), self._guard.held
        self.report = LoadReport(self._clock(), files, resources, errors, warnings, held)
        self._observe(self.report)
        return self.report

    def _start_errors(self, errors: tuple[Problem, ...], missing: list[str]) -> tuple[Problem, ...]:
        """OPS-13: refuse to start empty. A volume that is not mounted yet is likelier than an empty configuration."""
        if self._allow_empty:
            return errors
        errors += self._missing_problems(missing)
        is_empty = not errors and not self.catalog.resources
        return tuple(Problem(EMPTY, root) for root in self._roots) if is_empty else errors

    def _missing_problems(self, missing: list[str]) -> tuple[Problem, ...]:
        return tuple(Problem(self._scan.missing[root], root) for root in missing)


def _inodes(paths: Iterable[str]) -> set[Inode]:
    """Return the inodes of those paths that exist."""
    found: set[Inode] = set()
    for path in paths:
        try:
            known = Path(path).stat()
        except OSError:
            continue
        found.add((known.st_dev, known.st_ino))
    return found
