"""An event loop that never waits: when nothing is left to do, its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TimelessLoop(asyncio.SelectorEventLoop):
    """A loop whose clock starts at 0 and stands still while there is work. For tests without a network."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.DefaultSelector):
    """A selector that moves the loop's clock forward instead of waiting."""

    def __init__(self, loop: TimelessLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0 if timeout is not None else 1.0)
        if not ready and timeout is not None and timeout > 0:
            self._loop.now += timeout
        return ready


def run_timeless(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as asyncio.run does, in a TimelessLoop."""
    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        return runner.run(main)
