"""Files and directories as a source: a thin loop around the catalog, which decides.

An edit is an event, an event is a scan, what has another stamp is read, and of that the catalog says what to publish.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..core.types import Changeset
from ..errors import ConfigError, Problem
from ..watch import Watch, make_plan
from .base import Publish
from .catalog import Catalog
from .scan import Inode, Scan, Stamp, scan


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How the last load went. With errors, what was current before is still served."""

    at: float  # seconds since the epoch
    files: int
    resources: int  # names
    errors: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a configuration says."""

    changeset: Changeset
    report: LoadReport


class FileSource:
    """Resources from YAML and JSON files, and whatever happens to those files."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        clock: Callable[[], float] = time.time,
        observe: Callable[[LoadReport], None] = lambda _: None,
    ) -> None:
        self.catalog = Catalog()
        self.report: LoadReport | None = None
        self._roots = [os.fspath(path) for path in paths]
        self._clock = clock
        self._observe = observe
        self._scan = Scan()
        self._stamps: dict[str, Stamp] = {}
        self._wake = asyncio.Event()
        self._touched: set[str] = set()
        self._everything = False

    def load(self, publish: Publish = lambda _: None) -> Loaded:
        """Read everything, and publish it. Raises ConfigError with all that is wrong; then nothing is published."""
        self._refresh(set(), everything=True)
        changeset = self.catalog.pending()
        report = self._offer(publish)
        if report.errors:
            raise ConfigError(report.errors)
        return Loaded(changeset, report)

    def reload(self) -> None:
        """Have `run` read every file again, whatever its stamp says (SIGHUP)."""
        self._everything = True
        self._wake.set()

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
                await self._turn(publish)
                if make_plan(self._roots, self._scan.targets) == plan:
                    await self._wake.wait()
        finally:
            if watch is not None:
                await watch.stop()

    async def _turn(self, publish: Publish) -> None:
        touched, self._touched = self._touched, set()
        everything, self._everything = self._everything, False
        # In a thread: a large file takes seconds to parse, and the streams must go on meanwhile.
        if await asyncio.to_thread(self._refresh, touched, everything=everything):
            self._offer(publish)

    def _notice(self, paths: set[str]) -> None:
        self._touched |= paths
        self._wake.set()

    def _refresh(self, touched: set[str], *, everything: bool) -> bool:
        """Bring the catalog up to date with the disk; tell whether there was anything to do."""
        before, self._scan = self._scan, scan(self._roots)
        gone = [file for file in {**before.files, **before.problems} if file not in self._scan.files]
        for file in gone:
            self.catalog.forget(file)
            self._stamps.pop(file, None)
        for file, message in self._scan.problems.items():
            self.catalog.fail(file, message)
        # An event counts for more than a stamp: two writes within one tick of the clock have the same.
        renewed = _inodes(touched)
        changed = [
            (file, stamp)
            for file, stamp in self._scan.files.items()
            if everything or stamp[:2] in renewed or self._stamps.get(file) != stamp
        ]
        for file, stamp in changed:
            self._read(file, stamp)
        news = gone or changed or before.problems != self._scan.problems
        return bool(news or everything or self.report is None)  # an empty directory is loaded too

    def _read(self, file: str, stamp: Stamp) -> None:
        try:
            raw = Path(file).read_bytes()
        except OSError as error:
            self._stamps.pop(file, None)
            self.catalog.fail(file, f"can't be read: {error.strerror}")
        else:
            self._stamps[file] = stamp
            self.catalog.read(file, raw)

    def _offer(self, publish: Publish) -> LoadReport:
        """Publish what is pending, if nothing is wrong (DESIGN 3: all or nothing)."""
        errors = self.catalog.problems()
        if not errors:
            try:
                if pending := self.catalog.pending():
                    publish(pending)
            except ConfigError as error:
                errors = error.problems
            else:
                self.catalog.settle()
        self.report = LoadReport(self._clock(), len(self._scan.files), self.catalog.resources, errors)
        self._observe(self.report)
        return self.report


def _inodes(paths: Iterable[str]) -> set[Inode]:
    found: set[Inode] = set()
    for path in paths:
        try:
            known = Path(path).stat()
        except OSError:
            continue
        found.add((known.st_dev, known.st_ino))
    return found
