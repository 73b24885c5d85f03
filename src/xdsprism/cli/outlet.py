"""The standard output. A command that can't write to it ends with one line, and no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

import click


class _Outlet:
    """Passes writes to a stream. A failed write ends the command; a closed pipe ends it without an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._given_up(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._given_up(error) from error

    def _given_up(self, error: OSError) -> Exception:
        self.failed = True
        if error.errno == errno.EPIPE:  # click then ends quietly: the reader, such as `head`, has left
            return BrokenPipeError(errno.EPIPE, error.strerror)
        return click.ClickException(f"can't write to the standard output: {error.strerror or error}")

    def forget(self) -> None:
        """Drop unwritten output: otherwise Python writes it again at exit, and prints another error."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def checked_output() -> Iterator[None]:
    """Put the outlet in place of sys.stdout while a command runs."""
    stdout: TextIO | None = sys.stdout
    if stdout is None:  # closed before the command began
        yield
        return
    outlet = _Outlet(stdout)
    sys.stdout = cast("TextIO", outlet)
    try:
        yield
    finally:
        sys.stdout = stdout
        if outlet.failed:
            outlet.forget()
