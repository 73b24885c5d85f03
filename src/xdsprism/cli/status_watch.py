"""`xdsprism status --watch`: redraws a terminal, or prints what changed, until it is stopped."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from shutil import get_terminal_size

import click

from ..errors import XdsError
from . import output as out
from .fleet import FleetChanges, FleetClient, change_text

CLEAR = "\x1b[H\x1b[2J"  # the cursor to the top, and nothing on the screen


def follow(
    draw: Callable[[], object], look: Callable[[], list[FleetClient]], output: str | None, interval: float
) -> None:
    """Show the clients until a signal ends it. Raises XdsError if the first look fails; a later one is tried again."""
    redraws = output != "json" and sys.stdout.isatty()
    step = partial(_redraw, draw) if redraws else partial(_tell, FleetChanges(), look, output)
    with _stopped_by_signals():
        step()
        is_away = False
        while True:
            time.sleep(interval)
            try:
                step()
                is_away = False
            except XdsError as error:
                if not is_away:
                    out.note(f"{error} (trying again)")
                is_away = True


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """End the block without an error when Ctrl-C or SIGTERM asks for it."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        pass  # being stopped is its normal end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _redraw(draw: Callable[[], object]) -> None:
    """Draw everything anew, as far as it fits the terminal."""
    click.get_current_context().color = True  # what is drawn goes to a buffer first, and then to a terminal
    picture = StringIO()
    with redirect_stdout(picture), redirect_stderr(picture):
        draw()
    lines = picture.getvalue().splitlines()
    room = max(1, get_terminal_size().lines - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1:,} more lines"]
    click.echo(CLEAR + "\n".join(lines))


def _tell(changes: FleetChanges, look: Callable[[], list[FleetClient]], output: str | None) -> None:
    """Print what changed since the last time."""
    for change in changes.update(look()):
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if output == "json":
            out.json_line({"time": at, **change})
        else:
            click.echo(f"{at} {change_text(change)}")
