"""Reads files that an operator, a bootstrap or an author of configuration named. It never waits, and always ends.

A path may lead to a named pipe, which blocks until somebody writes; to a device such as /dev/zero, which never ends; or
to a file that is larger than memory. So only regular files are read, and no more of them than the caller allows. What
is refused is an OSError like any other that opening a file raises, and its `strerror` says what is wrong.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

MiB = 1024 * 1024

MOST = 16 * MiB  # bytes of a file that has no limit of its own: certificates, keys, tokens, bootstraps

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def odd_kind(mode: int) -> str | None:
    """Return what a path leads to if that is no regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a file")


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file, and wait for nobody. Raises OSError, or ValueError for a path with a NUL in it."""
    # Without O_NONBLOCK, opening a named pipe waits for a writer. Regular files are read as usual with it.
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket can't be opened
            raise _refusal("a socket", path) from None
        raise
    kind = odd_kind(os.fstat(number).st_mode)
    if kind is not None:
        os.close(number)
        raise _refusal(kind, path)
    return os.fdopen(number, "rb")


def _refusal(kind: str, path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, f"it is {kind}, and only regular files are read", os.fspath(path))


def read_from(opened: BinaryIO, most: int) -> bytes:
    """Return what is in an open file. Raises OSError if that is more than `most` bytes."""
    if os.fstat(opened.fileno()).st_size <= most:
        data = opened.read(most + 1)  # some files say that they have no bytes, and have very many
        if len(data) <= most:
            return data
    raise OSError(errno.EFBIG, f"it has more than {most:,} bytes, the most that is read of such a file", opened.name)


def read_file(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """Return what is in a regular file of at most `most` bytes. Raises OSError or ValueError."""
    with open_file(path) as opened:
        return read_from(opened, most)
