"""Decides when changed files may be read: once they have not changed for a moment. No I/O, no clock.

A program that writes a file in place may pause between two documents; until it goes on, the file looks like a shorter
but complete one. So the source scans again after a quiet period, and reads a file if nothing happened to it meanwhile.
The whole configuration waits for the file that changed last, as edits of several files belong together. A file that
was written elsewhere and renamed into place is complete, and needs no quiet period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .scan import Inode, Stamp

QUIET = 0.15  # s without a change, after which a file counts as complete
QUIET_IF_SMALLER = 1.0  # the same for a file that shrank or is gone: its writer may be about to write it again
MAX_WAIT = 5.0  # s after which a file is read even if it changes all the time


class QuietPeriod:
    """The files that changed and have not been read yet."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Stamp | None, float]] = {}  # the last stamp, and when the file may be read
        self._began = 0.0  # when the first of them changed

    def remaining(
        self,
        changed: Mapping[str, Stamp | None],
        known: Mapping[str, Stamp],
        now: float,
        touched: Collection[Inode] = (),
        placed: Collection[Inode] = (),
    ) -> float:
        """Return for how many seconds to wait before the changed files may be read.

        changed   the stamp of each file that differs from what was read; None: the file is gone
        known     the stamps of the files when they were read
        touched   inodes that events named since the last call
        placed    those of them that were added at a path without a removal there, as a rename does
        """
        if not self._seen:
            self._began = now
        before, self._seen = self._seen, {}
        due = now
        for file, stamp in changed.items():
            seen = before.get(file)
            if seen is None or seen[0] != stamp or (stamp is not None and stamp[:2] in touched):
                is_placed = stamp is not None and stamp[:2] in placed and seen is None
                seen = stamp, now + _quiet(stamp, known.get(file), is_placed=is_placed)
            self._seen[file] = seen
            due = max(due, seen[1])
        return max(min(due, self._began + MAX_WAIT) - now, 0.0)

    def is_overdue(self, now: float) -> bool:
        """Whether the changed files have waited for the longest time allowed."""
        return now >= self._began + MAX_WAIT

    def clear(self) -> None:
        """Note that all changed files were read."""
        self._seen.clear()


def _quiet(stamp: Stamp | None, known: Stamp | None, *, is_placed: bool) -> float:
    """Return the quiet period that one file needs."""
    if stamp is None:
        return QUIET_IF_SMALLER
    _device, _inode, size, mtime, ctime = stamp
    # Two signs show that another file was renamed to this path: it replaced a file that nobody had removed, or its
    # inode changed (ctime) after its contents did (mtime). A file that is written in place shows neither.
    is_other = known is None or known[:2] != stamp[:2]
    if is_other and (ctime > mtime or (is_placed and known is not None)):
        return 0.0
    return QUIET_IF_SMALLER if known is not None and size < known[2] else QUIET
