"""`xdsprism watch` in a process of its own; lines are waited for as they come."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.cli.elsewhere import Elsewhere
from tests.cli.rig import Daemon, command, environment
from tests.support.waiting import eventually


class Watch:
    """A running `watch`; lines are waited for as they come."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def notes(self, count: int) -> list[str]:
        """What it said on stderr, once there are so many lines."""
        return eventually(lambda: self._errors.read_text().splitlines(), lambda lines: len(lines) >= count)

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """The exit status, and what it said on stderr."""
        self._process.send_signal(number)
        rest, _ = self._process.communicate(timeout=20)
        assert rest == ""
        return self._process.returncode, self._errors.read_text()


Watching = Callable[..., Watch]


def watches(stack: ExitStack, folder: Path) -> Watching:
    """Starts a `watch`, which ends with the stack."""
    errors = folder / "watch.stderr"

    def start(server: Daemon | Elsewhere, *args: object) -> Watch:
        address = server.listen if isinstance(server, Daemon) else server.address
        argv = command("watch", *args, "--server", address)
        sink = stack.enter_context(errors.open("wb"))
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=sink, text=True, env=environment())
        stack.enter_context(process)
        stack.callback(process.kill)
        return Watch(process, errors)

    return start
