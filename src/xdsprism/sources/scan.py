"""Finds the configuration files below the roots. Anything unusual on disk becomes a problem of a path, not a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..file_reading import odd_kind

SUFFIXES = (".yaml", ".yml", ".json")

Inode = tuple[int, int]  # device, inode
Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime, ctime


@dataclass(slots=True)
class Scan:
    """The files that a scan found, and the paths that it could not read."""

    files: dict[str, Stamp] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # path: what is wrong with it
    unreadable: set[str] = field(default_factory=set)  # paths with a problem that may end without an event
    missing: dict[str, str] = field(default_factory=dict)  # roots that do not exist, with the same text as in problems
    targets: set[Path] = field(default_factory=set)  # the resolved paths of files that are symlinks
    seen: set[Inode] = field(default_factory=set)  # a file that two paths lead to is listed once

    def is_first_visit(self, known: os.stat_result) -> bool:
        """Mark an inode as seen; return whether it was not seen before."""
        inode = known.st_dev, known.st_ino
        if inode in self.seen:
            return False
        self.seen.add(inode)
        return True


def stamp_of(known: os.stat_result) -> Stamp:
    """Return what changes whenever a file is written, replaced or renamed."""
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def scan(roots: Iterable[str]) -> Scan:
    """Find the configuration files among the roots, and below those roots that are directories."""
    found = Scan()
    for root in roots:
        if not os.path.lexists(root):
            found.problems[root] = "does not exist"
        elif os.path.isdir(root) and not root.endswith(SUFFIXES):  # noqa: PTH112 # Path.is_dir raises PermissionError
            _walk(root, found)
        else:
            _add(root, Path(root), found)
        if root in found.problems and not os.path.exists(root):  # noqa: PTH110 # so does Path.exists
            found.missing[root] = found.problems[root]
    return found


def _walk(directory: str, found: Scan) -> None:
    """Add every file below a directory whose name has one of the suffixes.

    Hidden entries are skipped. A mounted ConfigMap keeps its files in a hidden directory `..2024_11_15_...`, to which
    the symlink `..data` points, and has a visible symlink for each file; the visible ones are followed.
    """
    open_directories = [_entries(directory, found)]  # no recursion: directories may be nested thousands deep
    while open_directories:
        for entry in open_directories[-1]:
            if entry.name.startswith("."):
                continue
            if entry.name.endswith(SUFFIXES):
                _add(entry.path, entry, found)
            elif _is_directory(entry):
                open_directories.append(_entries(entry.path, found))
                break
        else:
            open_directories.pop()


def _entries(directory: str, found: Scan) -> Iterator[os.DirEntry[str]]:
    try:
        if not found.is_first_visit(Path(directory).stat()):  # a symlink to a parent, or a root inside another root
            return
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        _add_problem(directory, error, found)
        return
    yield from entries


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a symlink to itself
        return False


def _add(path: str, entry: os.DirEntry[str] | Path, found: Scan) -> None:
    try:
        known = entry.stat()
    except OSError as error:
        _add_problem(path, error, found)
        return
    kind = odd_kind(known.st_mode)
    if kind is not None:
        found.problems[path] = f"is {kind}, although its name is that of a configuration file"
    elif found.is_first_visit(known):
        found.files[path] = stamp_of(known)
        if entry.is_symlink():
            found.targets.add(Path(path).resolve())


def _add_problem(path: str, error: OSError, found: Scan) -> None:
    if not isinstance(error, FileNotFoundError):
        found.problems[path] = f"can't be read: {error.strerror}"
        found.unreadable.add(path)
    elif os.path.islink(path):  # noqa: PTH114 # Path.is_symlink raises PermissionError
        found.problems[path] = f"is a symlink to {Path(path).readlink()}, which does not exist"
    # Otherwise the file was deleted after it was listed; the event of its deletion causes another scan.
