"""When files that changed may be read: when nobody seems to be writing them any more. No I/O, no clock.

A program that writes a file where it stands may pause between two documents, and what is there by then looks like a
shorter file. So a change is looked at again after a moment, and counts when nothing more has happened to it. All of
the configuration waits for what is in motion, since edits of several files belong together. What was renamed into its
place was written before, and is not waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .scan import Inode, Stamp

QUIET = 0.15  # s without a change, after which a file is taken to be written
QUIET_LESS = 1.0  # the same for one that is smaller than it was, or gone: it may be about to be written anew
LONGEST = 5.0  # s after which even a file that never comes to rest is read


class Settling:
    """What changed and is not read yet."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Stamp | None, float]] = {}  # as it was last, and when it may be read if it stays
        self._began = 0.0

    def wait(
        self,
        changed: Mapping[str, Stamp | None],
        known: Mapping[str, Stamp],
        now: float,
        touched: Collection[Inode] = (),
        placed: Collection[Inode] = (),
    ) -> float:
        """Tell for how many seconds to wait before all that changed may be read.

        `changed` has the stamp of each file that differs from what was read, None where it is gone; `known` what they
        were when they were read. To `touched` something happened since the last look; `placed` are those of them that
        appeared where nothing was removed.
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
        return max(min(due, self._began + LONGEST) - now, 0.0)

    def is_overdue(self, now: float) -> bool:
        """Tell whether what changed was waited for as long as it may be."""
        return now >= self._began + LONGEST

    def settle(self) -> None:
        """Note that all of it was read."""
        self._seen.clear()


def _quiet(stamp: Stamp | None, known: Stamp | None, *, is_placed: bool) -> float:
    if stamp is None:
        return QUIET_LESS
    _device, _inode, size, mtime, ctime = stamp
    # A file that was written before it came here took the place of one that nobody had removed, or its inode changed
    # after its contents did. One that is made where it stands has done neither.
    is_other = known is None or known[:2] != stamp[:2]
    if is_other and (ctime > mtime or (is_placed and known is not None)):
        return 0.0
    return QUIET_LESS if known is not None and size < known[2] else QUIET
