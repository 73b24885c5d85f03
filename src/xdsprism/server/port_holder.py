"""Finds which program has a port, for the error of one that can't have it. On Linux, for processes of the same user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"  # the state, in /proc/net/tcp
PROCESSES = 10_000  # that are looked at


def holder_of(port: int) -> str:
    """Return `NAME (process PID)` of another program that listens on this port; empty if that can't be found out."""
    sockets = {f"socket:[{inode}]" for inode in _listening_on(port)}
    if not sockets:
        return ""
    with suppress(OSError):
        for process in islice(PROC.iterdir(), PROCESSES):
            if process.name.isdecimal() and int(process.name) != os.getpid() and _has_one(process, sockets):
                with suppress(OSError):
                    return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _listening_on(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port, by the tables of the kernel."""
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for line in (PROC / table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    yield rest[5]


def _has_one(process: Path, sockets: set[str]) -> bool:
    """Whether a process has one of these sockets open. A process of another user does not say."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                if str(descriptor.readlink()) in sockets:
                    return True
    return False
