"""Things on disk that are no files, and a limit for whoever reads them all the same."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("a named pipe", "a device", "a socket", "a directory")


@contextmanager
def odd_file(path: Path, kind: str) -> Iterator[Path]:
    """Make a thing of this kind, for as long as the block runs."""
    with socket.socket(socket.AF_UNIX) as bound:
        match kind:
            case "a named pipe":
                os.mkfifo(path)
            case "a device":
                path.symlink_to("/dev/null")  # a link, as nobody but root may make a device
            case "a socket":
                bound.bind(str(path))
            case _:
                path.mkdir()
        yield path


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Have what waits in here for longer raise TimeoutError, so that a test fails and does not hang."""

    def end(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
