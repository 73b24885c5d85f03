"""Files and directories as a source: a thin loop around the catalog, which decides.

An edit is an event, an event is a scan, what has another stamp is read once it is at rest (settling.py), of that the
catalog says what to publish, and the guard whether it looks like an accident (core/model/removal_guard.py). What can't
be read is tried again, as no event says when it can: descriptors may be gone for a moment, or a file server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from watchfiles import Change

from ..core.model.removal_guard import Guard, HeldBack, Loss
from ..core.model.types import Changeset
from ..errors import ConfigError, Problem, XdsError
from ..messages.verdicts import Validate
from ..watch import FileChange, Plan, Watch, make_plan
from .base import Prepare, Publish
from .catalog import Catalog
from .scan import Inode, Scan, Stamp, scan, stamp_of
from .settling import QUIET, Settling

log = logging.getLogger("xdsprism")

RETRY = 1.0  # s until what can't be read is tried again
RETRY_AT_MOST = 60.0  # s, where the look at the files fails for a reason that nobody foresaw
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


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at the disk came to."""

    news: bool = False
    in_motion: bool = False  # something is being written, and nothing is taken before it is
    again: float = 0.0  # s after which to look again; 0: only an event is a reason to


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
        self._unreadable: dict[str, str] = {}  # files that are there and can't be read, and why
        self._settling = Settling()
        self._wake = asyncio.Event()
        self._watch: Watch | None = None
        self._failures = 0  # looks in a row that failed for a reason that nobody foresaw
        self._touched: set[FileChange] = set()
        self._renewed: set[str] = set()  # files that something happened to, whatever their stamps say
        self._everything = False
        self._confirming: list[asyncio.Future[LoadReport]] = []

    @property
    def polling(self) -> str:
        """Why files are looked at every so often, where they can't be watched; empty where they are watched."""
        return self._watch.trouble if self._watch is not None else ""

    def load(self, publish: Publish = lambda _: None) -> Loaded:
        """Read everything, and publish it. Raises ConfigError with all that is wrong; then nothing is published."""
        self._refresh(scan(self._roots), everything=True)
        changeset = self.catalog.pending()
        errors = self._errors(self._contents())
        if self._is_fit(errors):
            try:
                self._publish(partial(publish, changeset))
            except ConfigError as error:
                errors = error.problems
            else:
                self.catalog.settle()
        report = self._tell(errors)
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

    async def run(self, publish: Publish, prepare: Prepare | None = None) -> None:
        """Publish what is there, then what changes, until cancelled. What is wrong goes into the report.

        `prepare`: the same as `publish` in two steps, of which it is the first. It is called in a thread, so that the
        streams go on meanwhile.
        """
        try:
            while True:
                self._wake.clear()
                try:
                    plan = await self._keep_watch()
                    wait = await self._turn(publish, prepare)
                    self._failures = 0
                    if self._plan() != plan:
                        continue
                except Exception as error:  # noqa: BLE001 # what is served stays, and the next look may succeed
                    wait = self._fail(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait or None)
        finally:
            for each in self._confirming:
                each.cancel()
            if self._watch is not None:
                await self._watch.stop()

    def _plan(self) -> Plan:
        return make_plan(self._roots, self._scan.targets)

    async def _keep_watch(self) -> Plan:
        """Watch what is to be watched by now."""
        plan = self._plan()
        if self._watch is None or self._watch.plan != plan:
            if self._watch is not None:
                await self._watch.stop()
            self._watch = Watch(plan, self._notice)
            await self._watch.start()
        return plan

    def _fail(self, error: Exception) -> float:
        """Report that the files could not be looked at; tell after how many seconds to read all of them again."""
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}, see the log"
        wait = min(RETRY * (1 << min(self._failures, 10)), RETRY_AT_MOST)
        if not self._failures:
            log.error("can't look at the configuration, trying again and again", exc_info=error)
            self._tell(tuple(Problem(f"can't be looked at: {why}", root) for root in self._roots))
        self._failures += 1
        self._everything = True
        return wait

    async def _turn(self, publish: Publish, prepare: Prepare | None = None) -> float:
        """Take what changed; tell after how many seconds to look again, 0 where only an event is a reason to."""
        touched, self._touched = self._touched, set()
        everything, self._everything = self._everything, False
        # In a thread: a large file takes seconds to parse, and the streams must go on meanwhile.
        found = await asyncio.to_thread(self._look, touched, everything=everything)
        if found.in_motion:
            self._everything |= everything
        elif found.news or self._confirming:
            report = await self._offer(prepare or partial(partial, publish))
            confirming, self._confirming = self._confirming, []
            for each in confirming:
                if not each.done():
                    each.set_result(report)
        return found.again

    def _notice(self, changes: set[FileChange]) -> None:
        self._touched |= changes
        self._wake.set()

    def _look(self, touched: set[FileChange], *, everything: bool) -> _Look:
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
                return _Look(in_motion=True, again=wait)
        return self._refresh(found, everything=everything)

    def _changed(self, found: Scan) -> list[tuple[str, Stamp]]:
        stamps = self._stamps
        return [
            (file, stamp) for file, stamp in found.files.items() if file in self._renewed or stamps.get(file) != stamp
        ]

    def _refresh(self, found: Scan, *, everything: bool) -> _Look:
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
        unreadable, self._unreadable = self._unreadable, {}
        if not all(self._read(file, stamp) for file, stamp in (found.files.items() if everything else changed)):
            return _Look(in_motion=True, again=QUIET)
        self._renewed.clear()
        self._settling.settle()
        is_changed = any(file not in self._unreadable for file, _ in changed) or unreadable != self._unreadable
        news = gone or is_changed or before.problems != found.problems
        again = RETRY if self._unreadable or found.unreadable else 0.0
        return _Look(bool(news or everything or self.report is None), again=again)  # an empty directory is loaded too

    def _read(self, file: str, stamp: Stamp) -> bool:
        """Give a file to the catalog, unless it is being written right now; tell whether it was given."""
        try:
            with Path(file).open("rb") as opened:
                raw = opened.read()
                is_torn = stamp_of(os.fstat(opened.fileno())) != stamp
        except OSError as error:
            self._stamps.pop(file, None)
            self._unreadable[file] = message = f"can't be read: {error.strerror}"
            self.catalog.fail(file, message)
            return True
        if is_torn and self.report is not None and not self._settling.is_overdue(self._ticks()):
            return False
        self._stamps[file] = stamp
        self.catalog.read(file, raw)
        return True

    async def _offer(self, prepare: Prepare) -> LoadReport:
        """Publish what is pending, if nothing is wrong (DESIGN 3: all or nothing) and it is not held back (OPS-13).

        In a thread, as `_look`: all but the decision about it, and the last step of publishing it.
        """
        errors = self._errors(await asyncio.to_thread(self._contents))
        if self._is_fit(errors):
            try:
                self._publish(await asyncio.to_thread(lambda: prepare(self.catalog.pending())))
            except ConfigError as error:
                errors = error.problems
            else:
                await asyncio.to_thread(self.catalog.settle)
        return self._tell(errors)

    def _contents(self) -> tuple[tuple[Problem, ...], tuple[Loss, ...]]:
        """What is wrong with what the files say, and what would be gone with it."""
        return self.catalog.problems(), self.catalog.losses()

    def _errors(self, contents: tuple[tuple[Problem, ...], tuple[Loss, ...]]) -> tuple[Problem, ...]:
        """Why it can't be published. Where there is no reason the guard may still hold it back."""
        errors, losses = contents
        missing = self._missing()
        if not self._begun:
            return self._unfit_to_start(errors, missing)
        if errors:
            self._guard.suspend()
        elif self._guard.judge(losses, self.catalog.resources, self._clock(), missing) is not None:
            errors += self._absent(missing)
        return errors

    def _is_fit(self, errors: tuple[Problem, ...]) -> bool:
        return not errors and self._guard.held is None

    def _publish(self, publish: Callable[[], object]) -> None:
        if self.catalog.has_pending:
            publish()
        self._begun = True
        self._given_up |= set(self._missing())

    def _missing(self) -> list[str]:
        return [root for root in self._scan.missing if root not in self._given_up]

    def _tell(self, errors: tuple[Problem, ...]) -> LoadReport:
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
