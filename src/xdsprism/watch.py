"""Wakes somebody when something changes below some directories.

watchfiles reports what happens inside a directory for as long as that directory lives. What it can't see is added:
a root that is renamed away and made anew (its parent is watched too), files reached by symlink (so is the directory
that they are really in), and a watch that can't be had, in place of which there is a look every second.
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
POLL = 1.0  # s

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
        if root.is_dir():
            trees.add(_identified(root))
        names.add(root.name)
        above = root.parent
        while not above.is_dir():  # to be there when it appears
            names.add(above.name)
            above = above.parent
        flat.add(_identified(above))
    covered = [tree.resolve() for tree, _, _ in trees]
    for target in targets:
        if not any(target.is_relative_to(tree) for tree in covered):
            flat.add(_identified(target.parent))
            names.add(target.name)
    return Plan(frozenset(trees), frozenset(flat), frozenset(names))


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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, paths: list[Path], *, recursive: bool) -> None:
        try:
            async for changes in awatch(*paths, recursive=recursive, step=STEP, debounce=DEBOUNCE, watch_filter=None):
                if recursive or any(self.plan.concerns(path) for _, path in changes):
                    self._wake(changes)
        except (OSError, RuntimeError) as error:
            _log.warning("can't watch %s (%s): looking every %g s", ", ".join(map(str, paths)), error, POLL)
            while True:
                await asyncio.sleep(POLL)
                self._wake(set())
