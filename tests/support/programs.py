"""A child process whose output is kept for the failure message, and that does not outlive its test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_TAIL = 6000
_GRACE = 10.0


class ProgramDied(Exception):
    """A child ended although the test still needs it: no wait can succeed any more."""


class Program:
    """One child process in a process group of its own, with its output in a file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        pipe: bool = False,
        obeys: bool = False,
        cwd: Path | None = None,
    ) -> None:
        """Start it. With `pipe`, stdout is read by the caller and only stderr goes into the log; with `obeys`, stdin is
        written by the caller."""
        self.name = name
        self.log = log
        with log.open("ab") as sink:
            self._child = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.PIPE if obeys else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe else sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def stdout(self) -> IO[bytes]:
        assert self._child.stdout is not None, "only with pipe=True"
        return self._child.stdout

    @property
    def stdin(self) -> IO[bytes]:
        assert self._child.stdin is not None, "only with obeys=True"
        return self._child.stdin

    def wait(self) -> int:
        """Wait until it has ended by itself, and return its exit status."""
        return self._child.wait(_GRACE)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return self.text()[-_TAIL:]

    def require_alive(self) -> None:
        status = self._child.poll()
        if status is not None:
            message = f"{self.name} ended with status {status}:\n{self.tail()}"
            raise ProgramDied(message)

    def terminate(self) -> int:
        """Ask it to end, as an operator would, and return its exit status."""
        self._child.terminate()
        return self._child.wait(_GRACE)

    def kill(self) -> None:
        """End it and whatever it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(_GRACE)
