"""Keep the connections whose calls have something to poll, and serve them in one turn of the event loop.

A call that wakes (`CallStream.wake`) joins the list of its connection, and the first one puts the connection into this
queue. First the loop reads all sockets, and each connection only stores its bytes. Then a turn processes the input of
all connections, and after that writes the output of all. Input wakes calls for the same turn.

Where that takes long, such as when a whole fleet reconnects, a turn does a part of it and the next turn goes on, so
that others are served in between.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from .slicing import BUDGET


class Queued(Protocol):
    """A connection, as the queue sees it."""

    is_scheduled: bool  # its output is written in the next turn, or is being written

    def process_input(self) -> None:
        """Process the input that was stored."""

    def flush(self) -> None:
        """Poll the calls that woke, and write what they have to send."""

    def fail(self, error: Exception) -> None:
        """Abort the connection after an unexpected error."""


class WakeQueue:
    """The connections of one engine that wait for a turn."""

    __slots__ = ("_is_due", "_schedule", "_with_input", "_with_output")

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        """`schedule` runs a function once, after the loop has read the sockets that are ready."""
        self._schedule = schedule
        self._with_input: list[Queued] = []
        self._with_output: list[Queued] = []
        self._is_due = False  # a turn is scheduled, and has not come to the output yet

    def add_input(self, connection: Queued) -> None:
        """Have this connection process its input in the next turn."""
        if not self._is_due:
            self._is_due = True
            self._schedule(self._turn)
        self._with_input.append(connection)

    def add_output(self, connection: Queued) -> None:
        """Have this connection write its output at the end of the next turn, or of this one; once."""
        if not connection.is_scheduled:
            connection.is_scheduled = True
            if not self._is_due:
                self._is_due = True
                self._schedule(self._turn)
            self._with_output.append(connection)

    def _turn(self) -> None:
        """Process all input, then write all output. After BUDGET seconds of either, leave the rest to the next turn."""
        pending, self._with_input = self._with_input, []
        ends = perf_counter() + BUDGET
        for done, connection in enumerate(pending, 1):
            connection.process_input()
            if perf_counter() >= ends:
                self._with_input = pending[done:] + self._with_input
                break
        self._is_due = False
        woken, self._with_output = self._with_output, []
        ends = perf_counter() + BUDGET
        for done, connection in enumerate(woken, 1):
            try:
                connection.flush()
            except Exception as error:  # noqa: BLE001 # OPS-10: other connections in this turn are served
                connection.fail(error)
            if perf_counter() >= ends:
                self._with_output = woken[done:] + self._with_output
                break
        if (self._with_input or self._with_output) and not self._is_due:
            self._is_due = True
            self._schedule(self._turn)
