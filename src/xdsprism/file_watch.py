"""Watches directories and files for changes, and calls a function for each burst of changes.

watchfiles reports changes inside a directory while that directory exists. This module adds what watchfiles misses:

    a root that is renamed and created again    its parent directory is watched too
    files behind symlinks                       the directory of each target is watched too
    a watch that can't start, or breaks         files are polled every second until the watch works again; watchfiles
                                                breaks at a file name that is not UTF-8, for example
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change, awatch

STEP = 10  # ms without an event that end a burst; watchfiles' default of 50 would be most of the delay of an edit
DEBOUNCE = 100  # ms after which even an endless burst is reported
POLL = 1.0  # seconds between two polls while there is no watch
MAX_LINKS = 40  # symlinks in one path, as in Linux
RETRY_AT_MOST = 60.0  # seconds until a broken watch is tried again; the first time POLL, then twice as long each time

FileChange = tuple[Change, str]
Directory = tuple[Path, int, int]  # with device and inode, to notice another directory of the same name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What to watch. Two plans are equal if a running watch of the one serves the other."""

    trees: frozenset[Directory]  # watched with all that is below
    flat: frozenset[Directory]  # watched without subdirectories, for the entries in `names`
    names: frozenset[str]

    def concerns(self, path: str) -> bool:
        """Return whether a change in a flat directory matters; other programs may write there too."""
        name = Path(path).name
        return name in self.names or name.startswith("..")  # Kubernetes swaps the symlink `..data` of a ConfigMap


def make_watch_plan(roots: Iterable[str], targets: Iterable[Path]) -> WatchPlan:
    """Decide what to watch for these roots and for `targets`, the files that their symlinks lead to."""
    trees: set[Directory] = set()
    flat: set[Directory] = set()
    names: set[str] = set()
    for root in (Path(root).absolute() for root in roots):
        if _is_directory(root):
            trees.add(_identified(root))
        names.add(root.name)
        above = root.parent
        while not _is_directory(above) and above != above.parent:  # wait for it in the lowest directory that exists
            names.add(above.name)
            above = above.parent
        flat.add(_identified(above))
    covered = [tree.resolve() for tree, _, _ in trees]
    for target in targets:
        if not any(target.is_relative_to(tree) for tree in covered):
            flat.add(_identified(target.parent))
            names.add(target.name)
    return WatchPlan(frozenset(trees), frozenset(flat), frozenset(names))


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a parent directory is not accessible, for example
        return False


def _identified(directory: Path) -> Directory:
    try:
        known = directory.stat()
    except OSError:
        return directory, 0, 0
    return directory, known.st_dev, known.st_ino


class FileWatch:
    """Watches one plan. `wake` gets the changes, or an empty set if it is unknown what changed."""

    def __init__(self, plan: WatchPlan, wake: Callable[[set[FileChange]], None]) -> None:
        self.plan = plan
        self._wake = wake
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._broken: dict[str, str] = {}  # paths that are polled for now, and why

    @property
    def polling_reason(self) -> str:
        """Why files are polled; empty while every watch works."""
        return "; ".join(f"can't watch {what}: {why}" for what, why in self._broken.items())

    async def start(self) -> None:
        """Begin to watch. No change after this returns is missed."""
        trees = [path for path, _, _ in self.plan.trees]
        flat = [path for path, _, _ in self.plan.flat]
        if trees:
            self._tasks.append(asyncio.create_task(self._follow(trees, recursive=True)))
        self._tasks.append(asyncio.create_task(self._follow(flat, recursive=False)))
        await asyncio.sleep(0)  # let each task run until awatch has its watches and waits for events

    async def stop(self) -> None:
        """Stop watching, and wait for the tasks to end."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, paths: list[Path], *, recursive: bool) -> None:
        """Wake at every change until cancelled. A watch that breaks is logged, and replaced by polling for a while."""
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
            except BaseException as error:  # noqa: BLE001 # a panic in watchfiles' Rust code is no Exception
                why = _reason(error)
            if self._stopping:
                return
            if loop.time() - began > RETRY_AT_MOST:
                pause = POLL
            if what not in self._broken:
                _log.warning("can't watch %s (%s): polling every %g s until the watch works again", what, why, POLL)
            self._broken[what] = why
            await self._poll(loop.time() + pause)
            pause = min(pause * 2, RETRY_AT_MOST)

    async def _listen(self, paths: list[Path], what: str, *, recursive: bool) -> None:
        """Wake at changes until the watch breaks.

        A watch that replaces a broken one also wakes once at its start, for changes that happened before.
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
        """Wake at once, since the broken watch may have lost events, and then every POLL seconds."""
        loop = asyncio.get_running_loop()
        self._wake(set())
        while loop.time() < until:
            await asyncio.sleep(POLL)
            self._wake(set())


def _reason(error: BaseException) -> str:
    """Describe the error; awatch wraps what its thread raises in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def follow_files(
    paths: Iterable[str],
    wake: asyncio.Event,
    look: Callable[[], Awaitable[None]],
    wait: Callable[[], Awaitable[None]],
) -> None:
    """Call `look` now and after each change of one of these files, until cancelled.

    wake   set at each change; whoever wants a look without a change may set it, too
    wait   awaits `wake`, or gives up earlier to look again
    """
    watch: FileWatch | None = None
    try:
        while True:
            wake.clear()
            plan = make_watch_plan(paths, symlink_steps(paths))
            if watch is None or watch.plan != plan:
                if watch is not None:
                    await watch.stop()
                watch = FileWatch(plan, lambda _: wake.set())
                await watch.start()
            await look()
            if make_watch_plan(paths, symlink_steps(paths)) == plan:
                await wait()
    finally:
        if watch is not None:
            await watch.stop()


def symlink_steps(paths: Iterable[str]) -> set[Path]:
    """Return every symlink on the paths to these files, and the files: a change of any of them changes a file."""
    return {step for path in paths for step in _steps_of(Path(path).absolute())}


def _steps_of(path: Path) -> Iterator[Path]:
    """Follow the symlinks of one path, and yield each of them and the file at the end."""
    for _ in range(MAX_LINKS):
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            yield path
            return
        yield link
        path = (link.parent / link.readlink() / path.relative_to(link)).absolute()
