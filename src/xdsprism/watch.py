"""Wakes somebody when something changes below some directories.

watchfiles reports what happens inside a directory for as long as that directory lives. What it can't see is added:
a root that is renamed away and made anew (its parent is watched too), files reached by symlink (so is the directory
that they are really in), and a watch that can't be had, or that breaks, in place of which there is a look every
second until the watch stands again. watchfiles breaks at a file name that is not UTF-8, for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change, awatch

STEP = 10  # ms of silence that end a burst of events; watchfiles' own 50 would be most of the delay of an edit
DEBOUNCE = 100  # ms after which even an endless burst is acted upon
POLL = 1.0  # s between two looks while there is no watch
RETRY_AT_MOST = 60.0  # s until a watch that broke is tried again; after the first time it is POLL, then twice as long

FileChange = tuple[Change, str]
Directory = tuple[Path, int, int]  # with device and inode: not only called the same, but the same one

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to watch."""

    trees: frozenset[Directory]
    flat: frozenset[Directory]
    names: frozenset[str]  # what matters in the flat ones

    def concerns(self, path: str) -> bool:
        """Tell whether a change in a flat directory is one of ours; others may write there too."""
        name = Path(path).name
        return name in self.names or name.startswith("..")  # `..data`: a mounted ConfigMap was replaced


def make_plan(roots: Iterable[str], targets: Iterable[Path]) -> Plan:
    """Decide what to watch for these roots, and for the places that their symlinks lead to."""
    trees: set[Directory] = set()
    flat: set[Directory] = set()
    names: set[str] = set()
    for root in (Path(root).absolute() for root in roots):
        if _is_directory(root):
            trees.add(_identified(root))
        names.add(root.name)
        above = root.parent
        while not _is_directory(above) and above != above.parent:  # to be there when it appears
            names.add(above.name)
            above = above.parent
        flat.add(_identified(above))
    covered = [tree.resolve() for tree, _, _ in trees]
    for target in targets:
        if not any(target.is_relative_to(tree) for tree in covered):
            flat.add(_identified(target.parent))
            names.add(target.name)
    return Plan(frozenset(trees), frozenset(flat), frozenset(names))


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # what is above it may not be entered, say
        return False


def _identified(directory: Path) -> Directory:
    try:
        known = directory.stat()
    except OSError:
        return directory, 0, 0
    return directory, known.st_dev, known.st_ino


class Watch:
    """Watches by one plan. `wake` gets the paths that changed and how, or none where it is not known which."""

    def __init__(self, plan: Plan, wake: Callable[[set[FileChange]], None]) -> None:
        self.plan = plan
        self._wake = wake
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._broken: dict[str, str] = {}  # what is looked at every POLL seconds for now, and why

    @property
    def trouble(self) -> str:
        """Why files are looked at by polling; empty while every watch stands."""
        return "; ".join(f"can't watch {what}: {why}" for what, why in self._broken.items())

    async def start(self) -> None:
        """Begin. What happens after this returns is not missed."""
        trees = [path for path, _, _ in self.plan.trees]
        flat = [path for path, _, _ in self.plan.flat]
        if trees:
            self._tasks.append(asyncio.create_task(self._follow(trees, recursive=True)))
        self._tasks.append(asyncio.create_task(self._follow(flat, recursive=False)))
        await asyncio.sleep(0)  # runs the tasks to where awatch has its watches and waits for events

    async def stop(self) -> None:
        """End, and wait until nothing is left of it."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, paths: list[Path], *, recursive: bool) -> None:
        """Wake at every change, for as long as the task lives: whatever breaks the watch, it is logged and replaced."""
        what = ", ".join(map(str, paths))
        loop = asyncio.get_running_loop()
        pause = POLL
        while True:
            began = loop.time()
            try:
                await self._listen(paths, what, recursive=recursive)
                why = "the watcher ended"
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 # a panic in watchfiles' Rust is no Exception
                why = _reason(error)
            if self._stopping:
                return
            if loop.time() - began > RETRY_AT_MOST:
                pause = POLL
            if what not in self._broken:
                _log.warning("can't watch %s (%s): looking every %g s, until it can be watched again", what, why, POLL)
            self._broken[what] = why
            await self._poll(loop.time() + pause)
            pause = min(pause * 2, RETRY_AT_MOST)

    async def _listen(self, paths: list[Path], what: str, *, recursive: bool) -> None:
        """Wake at changes until the watch breaks.

        A watch that replaces a broken one also wakes at its first turn, for what happened before it stood.
        """
        quiet = int(POLL * 1000) if what in self._broken else None
        events = awatch(
            *paths,
            recursive=recursive,
            step=STEP,
            debounce=DEBOUNCE,
            watch_filter=None,
            rust_timeout=quiet,
            yield_on_timeout=quiet is not None,
        )
        async for changes in events:
            if self._broken.pop(what, None) is not None:
                _log.warning("%s can be watched again", what)
                self._wake(changes)
            elif changes and (recursive or any(self.plan.concerns(path) for _, path in changes)):
                self._wake(changes)

    async def _poll(self, until: float) -> None:
        """Wake at once, since the broken watch may have lost events, and every POLL seconds after that."""
        loop = asyncio.get_running_loop()
        self._wake(set())
        while loop.time() < until:
            await asyncio.sleep(POLL)
            self._wake(set())


def _reason(error: BaseException) -> str:
    """Say what is wrong: awatch wraps what its thread raises in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
