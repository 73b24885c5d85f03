"""`xdsprism events --follow` in a process of its own; events are waited for as they come."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cli.rig import Daemon, command, environment
from tests.support.waiting import eventually


class Follow:
    """A running `events --follow -o json`."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self._errors = errors

    def next(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next event of this kind that has these fields."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["kind"] == kind and fields.items() <= event.items():
                return dict(event)
        raise AssertionError(self._errors.read_text())

    @property
    def notes(self) -> str:
        return self._errors.read_text()


Following = Callable[..., Follow]


def follows(stack: ExitStack, folder: Path) -> Following:
    """Starts `events --follow`, which ends with the stack, and waits until it has begun to listen."""
    errors = folder / "events.stderr"

    def start(daemon: Daemon, *args: object) -> Follow:
        argv = command("events", "--follow", "--admin", daemon.admin, "-o", "json", *args)
        sink = stack.enter_context(errors.open("wb"))
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=sink, text=True, env=environment())
        stack.enter_context(process)
        stack.callback(process.kill)
        eventually(lambda: "listening to" in errors.read_text())
        return Follow(process, errors)

    return start
