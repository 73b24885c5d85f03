"""Commands of `xdsprism` that begin as forks of a process that has imported everything.

Imports are most of what a start costs, in processor time. Such a command has everything else of its own: signals,
files, environment, exit status. Tests about the start itself start an interpreter (`Daemon(..., fresh=True)`).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_STEP = 0.01
_LOCK = threading.RLock()  # tests stop programs in threads
_PRELOADED = ("xdsprism.cli.main", "xdsprism.app", "uvloop", "anyio._backends._asyncio")


class Forked:
    """What tests use of `subprocess.Popen`, for a command in a fork."""

    def __init__(self, args: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self.pid = int(_ask("start", list(args), str(log), dict(environment), str(Path.cwd())))

    def poll(self) -> int | None:
        with _LOCK:  # the process is told of an exit once
            if self.returncode is None:
                self.returncode = _ask("poll", self.pid)
            return self.returncode

    def wait(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_STEP)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # or the number may be that of another process by now
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _origin() -> subprocess.Popen[bytes]:
    """The process that the commands are forks of, one for all tests of this process."""
    path = os.pathsep.join(filter(None, sys.path))
    origin = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
    )
    assert origin.stdin is not None
    atexit.register(origin.wait)
    atexit.register(origin.stdin.close)
    return origin


def _ask(*question: object) -> Any:
    with _LOCK:
        origin = _origin()
        assert origin.stdin is not None
        assert origin.stdout is not None
        origin.stdin.write(json.dumps(question).encode() + b"\n")
        origin.stdin.flush()
        return json.loads(origin.stdout.readline())


def _answer() -> None:
    """Answer questions until there are no more; in a fork, return and be the command."""
    for line in iter(sys.stdin.buffer.readline, b""):
        what, *rest = json.loads(line)
        if what == "poll":
            pid, status = os.waitpid(rest[0], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                _become(*rest)
                return
        print(json.dumps(answer), flush=True)
    sys.exit()


def _become(args: list[str], log: str, environment: dict[str, str], folder: str) -> None:
    with Path(os.devnull).open("rb") as nothing, Path(log).open("wb") as sink:
        os.dup2(nothing.fileno(), 0)
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = args


if __name__ == "__main__":
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    _answer()
    importlib.import_module("xdsprism.cli.main").main(prog_name="xdsprism")
