"""Shows on a terminal how far a load has come, if it takes longer than a second. A pipe or a file gets nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..sources.files import LoadProgress

PATIENCE = 1.0  # seconds before the first line
PACE = 0.2  # seconds between two
ERASE = "\r\x1b[K"


@contextmanager
def shown(progress: Callable[[], LoadProgress]) -> Iterator[None]:
    """Show the progress of what the block does, on one line of stderr that is gone afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    over = Event()
    thread = Thread(target=_show, args=(progress, over), name="xdsprism progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show(progress: Callable[[], LoadProgress], over: Event) -> None:
    """Write the line until it is over. The cursor stays at its beginning, so that a log line writes over it."""
    wait, has_written = PATIENCE, False
    with suppress(OSError, ValueError):  # the terminal is gone
        while not over.wait(wait):
            sys.stderr.write(f"{ERASE}{progress()}\r")
            sys.stderr.flush()
            wait, has_written = PACE, True
        if has_written:
            sys.stderr.write(ERASE)
            sys.stderr.flush()
