"""Looks for configuration files on disk. Whatever odd thing stands there is a problem with a name, never a crash."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SUFFIXES = (".yaml", ".yml", ".json")

Inode = tuple[int, int]  # with the device
Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime, ctime


@dataclass(slots=True)
class Scan:
    """What was found."""

    files: dict[str, Stamp] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)  # those of the problems that may be over without an event
    missing: dict[str, str] = field(default_factory=dict)  # those of the problems that are roots which are not there
    targets: set[Path] = field(default_factory=set)  # where the files really are that were reached by symlink
    seen: set[Inode] = field(default_factory=set)  # what is reached by two ways is taken once

    def first_time(self, known: os.stat_result) -> bool:
        """Tell whether this inode was not met before."""
        inode = known.st_dev, known.st_ino
        if inode in self.seen:
            return False
        self.seen.add(inode)
        return True


def stamp_of(known: os.stat_result) -> Stamp:
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def scan(roots: Iterable[str]) -> Scan:
    """Find the files below directories, and single files."""
    found = Scan()
    for root in roots:
        if not os.path.lexists(root):
            found.problems[root] = "does not exist"
        elif os.path.isdir(root) and not root.endswith(SUFFIXES):  # noqa: PTH112 # Path's raises where it may not look
            _walk(root, found)
        else:
            _add(root, Path(root), found)
        if root in found.problems and not os.path.exists(root):  # noqa: PTH110 # the same
            found.missing[root] = found.problems[root]
    return found


def _walk(directory: str, found: Scan) -> None:
    """Take what looks like a configuration file.

    Hidden entries are skipped: a mounted ConfigMap keeps its files in `..2024_11_15_...`, which `..data` points at,
    and shows each by a symlink through it. The visible names are followed.
    """
    for entry in _entries(directory, found):
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(SUFFIXES):
            _add(entry.path, entry, found)
        elif _is_directory(entry):
            _walk(entry.path, found)


def _entries(directory: str, found: Scan) -> Iterator[os.DirEntry[str]]:
    try:
        if not found.first_time(Path(directory).stat()):  # a symlink back up, or a root inside of another
            return
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        _note(directory, error, found)
        return
    yield from entries


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symlink to itself, say
        return False


def _add(path: str, entry: os.DirEntry[str] | Path, found: Scan) -> None:
    try:
        known = entry.stat()
    except OSError as error:
        _note(path, error, found)
        return
    if not stat.S_ISREG(known.st_mode):
        kind = "a directory" if stat.S_ISDIR(known.st_mode) else "no regular file"
        found.problems[path] = f"is {kind}, but its name is that of a configuration file"
    elif found.first_time(known):
        found.files[path] = stamp_of(known)
        if entry.is_symlink():
            found.targets.add(Path(path).resolve())


def _note(path: str, error: OSError, found: Scan) -> None:
    if not isinstance(error, FileNotFoundError):
        found.problems[path] = f"can't be read: {error.strerror}"
        found.unreadable.add(path)
    elif os.path.islink(path):  # noqa: PTH114 # the same
        found.problems[path] = f"is a symlink to {Path(path).readlink()}, which does not exist"
    # else it went away between being listed and being looked at, and there will be an event that says so
