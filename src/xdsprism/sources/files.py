"""Files and directories as a source: a thin loop around the catalog, which decides.

An edit is an event, an event is a scan, what has another stamp is read once it is at rest (settling.py), of that the
catalog says what to publish, and the guard whether it looks like an accident (core/holding.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change

from ..core.holding import Guard, HeldBack
from ..core.types import Changeset
from ..errors import ConfigError, Problem, XdsError
from ..messages.verdicts import Validate
from ..watch import FileChange, Watch, make_plan
from .base import Publish
from .catalog import Catalog
from .scan import Inode, Scan, Stamp, scan, stamp_of
from .settling import QUIET, Settling

EMPTY = "has no resources; to start with none, say --allow-empty"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How the last load went. With errors, or where it is held back, what was current before is still served."""

    at: float  # seconds since the epoch
    files: int
    resources: int  # names
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    held: HeldBack | None = None

    @property
    def is_taken(self) -> bool:
        return not self.errors and self.held is None


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a configuration says."""

    changeset: Changeset
    report: LoadReport


class NotConfirmedError(XdsError):
    """There is nothing to confirm, or it is not what was shown; `held` is what is held back instead."""

    def __init__(self, message: str, held: HeldBack | None = None) -> None:
        self.held = held
        super().__init__(message)


class FileSource:
    """Resources from YAML and JSON files, and whatever happens to those files."""

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
    ) -> None:
        self.catalog = Catalog(validate)
        self.report: LoadReport | None = None
        self._roots = [os.fspath(path) for path in paths]
        self._clock = clock
        self._ticks = ticks
        self._observe = observe
        self._guard = guard or Guard()
        self._allow_empty = allow_empty
        self._begun = False  # something was taken, perhaps nothing
        self._given_up: set[str] = set()  # roots that need not be there, until they are
        self._scan = Scan()
        self._stamps: dict[str, Stamp] = {}
        self._settling = Settling()
        self._wake = asyncio.Event()
        self._touched: set[FileChange] = set()
        self._renewed: set[str] = set()  # files that something happened to, whatever their stamps say
        self._everything = False
        self._confirming: list[asyncio.Future[LoadReport]] = []

    def load(self, publish: Publish = lambda _: None) -> Loaded:
        """Read everything, and publish it. Raises ConfigError with all that is wrong; then nothing is published."""
        self._refresh(scan(self._roots), everything=True)
        changeset = self.catalog.pending()
        report = self._offer(publish)
        if report.errors:
            raise ConfigError(report.errors)
        return Loaded(changeset, report)

    def reload(self) -> None:
        """Have `run` read every file again, whatever its stamp says (SIGHUP)."""
        self._everything = True
        self._wake.set()

    async def confirm(self, change: str | None = None) -> HeldBack:
        """Let through what is held back, if it is the change of that id, and still is after a look at the files.

        Raises NotConfirmedError otherwise: a confirmation is for what was shown, and never for what comes later.
        """
        held = self._guard.held
        if held is None:
            raise NotConfirmedError("nothing is held back")
        if change not in (None, held.id):
            raise NotConfirmedError(f"what is held back is another change by now: {held.id}, not {change}", held)
        self._guard.confirm(held.id)
        looked: asyncio.Future[LoadReport] = asyncio.get_running_loop().create_future()
        self._confirming.append(looked)
        self._wake.set()
        report = await looked
        if report.held is not None and report.held.id != held.id:
            message = f"the files have changed: what is held back is another change by now: {report.held.id}"
            raise NotConfirmedError(message, report.held)
        if report.errors:
            raise NotConfirmedError(f"the configuration is refused: {'; '.join(map(str, report.errors))}", report.held)
        return held

    async def run(self, publish: Publish) -> None:
        """Publish what is there, then what changes, until cancelled. What is wrong goes into the report."""
        watch: Watch | None = None
        try:
            while True:
                self._wake.clear()
                plan = make_plan(self._roots, self._scan.targets)
                if watch is None or watch.plan != plan:
                    if watch is not None:
                        await watch.stop()
                    watch = Watch(plan, self._notice)
                    await watch.start()
                wait = await self._turn(publish)
                if make_plan(self._roots, self._scan.targets) == plan:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), wait or None)
        finally:
            for each in self._confirming:
                each.cancel()
            if watch is not None:
                await watch.stop()

    async def _turn(self, publish: Publish) -> float:
        """Take what changed; tell after how many seconds to look again, 0 where only an event is a reason to."""
        touched, self._touched = self._touched, set()
        everything, self._everything = self._everything, False
        # In a thread: a large file takes seconds to parse, and the streams must go on meanwhile.
        news, wait = await asyncio.to_thread(self._look, touched, everything=everything)
        if wait:
            self._everything |= everything
        elif news or self._confirming:
            report = self._offer(publish)
            confirming, self._confirming = self._confirming, []
            for each in confirming:
                if not each.done():
                    each.set_result(report)
        return wait

    def _notice(self, changes: set[FileChange]) -> None:
        self._touched |= changes
        self._wake.set()

    def _look(self, touched: set[FileChange], *, everything: bool) -> tuple[bool, float]:
        """Bring the catalog up to date with the disk, or tell for how many seconds that has to wait."""
        found = scan(self._roots)
        # An event counts for more than a stamp: two writes within one tick of the clock have the same.
        inodes = _inodes(path for _, path in touched)
        self._renewed |= {file for file, stamp in found.files.items() if stamp[:2] in inodes}
        if self.report is not None:
            changed: dict[str, Stamp | None] = dict(self._changed(found))
            changed |= dict.fromkeys(file for file in self._scan.files if file not in found.files)
            placed = _inodes(
                path for kind, path in touched if kind is Change.added and (Change.deleted, path) not in touched
            )
            wait = self._settling.wait(changed, self._stamps, self._ticks(), inodes, placed)
            if wait:
                return False, wait
        return self._refresh(found, everything=everything)

    def _changed(self, found: Scan) -> list[tuple[str, Stamp]]:
        stamps = self._stamps
        return [
            (file, stamp) for file, stamp in found.files.items() if file in self._renewed or stamps.get(file) != stamp
        ]

    def _refresh(self, found: Scan, *, everything: bool) -> tuple[bool, float]:
        """Read what changed; tell whether there was anything to do, and when to look at what changed meanwhile."""
        changed = self._changed(found)
        before, self._scan = self._scan, found
        gone = [file for file in {**before.files, **before.problems} if file not in found.files]
        for file in gone:
            self.catalog.forget(file)
            self._stamps.pop(file, None)
        for file, message in found.problems.items():
            if file not in found.missing:
                self.catalog.fail(file, message)
        self._given_up &= found.missing.keys()
        if not all(self._read(file, stamp) for file, stamp in (found.files.items() if everything else changed)):
            return False, QUIET
        self._renewed.clear()
        self._settling.settle()
        news = gone or changed or before.problems != found.problems
        return bool(news or everything or self.report is None), 0.0  # an empty directory is loaded too

    def _read(self, file: str, stamp: Stamp) -> bool:
        """Give a file to the catalog, unless it is being written right now; tell whether it was given."""
        try:
            with Path(file).open("rb") as opened:
                raw = opened.read()
                is_torn = stamp_of(os.fstat(opened.fileno())) != stamp
        except OSError as error:
            self._stamps.pop(file, None)
            self.catalog.fail(file, f"can't be read: {error.strerror}")
            return True
        if is_torn and self.report is not None and not self._settling.is_overdue(self._ticks()):
            return False
        self._stamps[file] = stamp
        self.catalog.read(file, raw)
        return True

    def _offer(self, publish: Publish) -> LoadReport:
        """Publish what is pending, if nothing is wrong (DESIGN 3: all or nothing) and it is not held back (OPS-13)."""
        missing = [root for root in self._scan.missing if root not in self._given_up]
        errors = self.catalog.problems()
        if not self._begun:
            errors = self._unfit_to_start(errors, missing)
        elif errors:
            self._guard.suspend()
        elif self._guard.judge(self.catalog.losses(), self.catalog.resources, self._clock(), missing) is not None:
            errors += self._absent(missing)
        if not errors and self._guard.held is None:
            try:
                if pending := self.catalog.pending():
                    publish(pending)
            except ConfigError as error:
                errors = error.problems
            else:
                self.catalog.settle()
                self._begun = True
                self._given_up |= set(missing)
        files, resources = len(self._scan.files), self.catalog.resources
        warnings, held = self.catalog.warnings(), self._guard.held
        self.report = LoadReport(self._clock(), files, resources, errors, warnings, held)
        self._observe(self.report)
        return self.report

    def _unfit_to_start(self, errors: tuple[Problem, ...], missing: list[str]) -> tuple[Problem, ...]:
        """OPS-13: what is empty at the start is more likely not mounted, or not written yet, than meant."""
        if self._allow_empty:
            return errors
        errors += self._absent(missing)
        is_empty = not errors and not self.catalog.resources
        return tuple(Problem(EMPTY, root) for root in self._roots) if is_empty else errors

    def _absent(self, missing: list[str]) -> tuple[Problem, ...]:
        return tuple(Problem(self._scan.missing[root], root) for root in missing)


def _inodes(paths: Iterable[str]) -> set[Inode]:
    found: set[Inode] = set()
    for path in paths:
        try:
            known = Path(path).stat()
        except OSError:
            continue
        found.add((known.st_dev, known.st_ino))
    return found
