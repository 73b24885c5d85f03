"""Keep the connections that have something to do, and serve them in one turn of the event loop.

A call that wakes (`CallStream.wake`) joins the list of its connection, and the first one puts the connection into this
queue. First the loop reads all sockets, and each connection only stores its bytes. Then a turn processes the input of
all connections, and after that writes the output of all. Input wakes calls for the same turn.

Where a turn takes long, such as when a whole fleet reconnects, it does a part of the work and the next turn goes on,
so that others are served in between. The addresses have turns: a client waits for one connection of each other address,
and not for the thousand that one of them may have. Connections that are lost end in turns, too.

A connection may also have delayed output, which goes with its next write, or alone when it is due. Nearly always
another write comes first. So all connections share one timer, and none is stopped when its output was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from math import inf
from time import perf_counter
from typing import Protocol

from ..timer_heap import TimerHeap
from .slicing import BUDGET
from .turns import Turns

SHORTEST_WAIT = 0.01  # seconds between two looks at delayed output, which may be late by this
ENDING = BUDGET / 2  # seconds of a turn in which lost connections end
MOST_LOST = 16_384  # lost connections that may wait for a turn, with all that they hold


class Queued(Hashable, Protocol):
    """A connection, as the queue sees it."""

    owner: str  # its address, without the port
    is_scheduled: bool  # its output is written in the next turn, or is being written
    awaits_delayed: bool  # the queue looks at it when its delayed output is due

    @property
    def delayed_until(self) -> float:
        """When to write the delayed output; inf: there is none."""

    def process_input(self) -> None:
        """Process the input that was stored."""

    def flush(self) -> None:
        """Poll the calls that woke, and write what they have to send."""

    def flush_delayed(self, now: float) -> None:
        """Write the delayed output if it is due."""

    def end(self) -> None:
        """Close the calls: the connection is lost."""

    def fail(self, error: Exception) -> None:
        """Abort the connection after an unexpected error."""


class WakeQueue:
    """The connections of one engine that wait for a turn."""

    __slots__ = ("_delayed", "_is_due", "_is_timed", "_loop", "_lost", "_with_input", "_with_output")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._delayed: TimerHeap[Queued] = TimerHeap()
        self._is_timed = False  # the timer for delayed output runs
        self._with_input: Turns[Queued] = Turns()
        self._with_output: Turns[Queued] = Turns()
        self._lost: Turns[Queued] = Turns()
        self._is_due = False  # a turn is scheduled, and has not come to the output yet

    def add_input(self, connection: Queued) -> None:
        """Have this connection process its input in the next turn."""
        self._schedule_turn()
        self._with_input.add(connection.owner, connection)

    def add_output(self, connection: Queued) -> None:
        """Have this connection write its output at the end of the next turn, or of this one; once."""
        if not connection.is_scheduled:
            connection.is_scheduled = True
            self._schedule_turn()
            self._with_output.add(connection.owner, connection)

    def add_lost(self, connection: Queued) -> None:
        """Have this connection end in the next turn; at once if very many wait for that."""
        if len(self._lost) >= MOST_LOST:
            connection.end()
            return
        self._schedule_turn()
        self._lost.add(connection.owner, connection)

    def _schedule_turn(self) -> None:
        """Have one turn run after the loop has read the sockets that are ready."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def add_delayed(self, connection: Queued) -> None:
        """Have this connection write its delayed output when it is due; once."""
        if not connection.awaits_delayed:
            connection.awaits_delayed = True
            self._delayed.set(connection, connection.delayed_until)
            self._set_timer()

    def _set_timer(self) -> None:
        """Start the timer for delayed output, unless it runs or there is none."""
        due = self._delayed.next_due
        if not self._is_timed and due is not None:
            self._is_timed = True
            self._loop.call_at(max(due, self._loop.time() + SHORTEST_WAIT), self._write_delayed)

    def _write_delayed(self) -> None:
        """Write what is due. Most connections have written theirs; some have delayed something else since.

        After BUDGET seconds, leave the rest to the next look.
        """
        self._is_timed = False
        now = self._loop.time()
        ends = perf_counter() + BUDGET
        while (connection := self._delayed.take(now)) is not None:
            connection.awaits_delayed = False
            try:
                connection.flush_delayed(now)
                if connection.delayed_until < inf:
                    self.add_delayed(connection)
            except Exception as error:  # noqa: BLE001 # OPS-10
                connection.fail(error)
            if perf_counter() >= ends:
                break
        self._set_timer()

    def _turn(self) -> None:
        """Process all input, end what is lost, and write all output.

        After BUDGET seconds of input or output, or ENDING seconds of ends, leave the rest to the next turn.
        """
        ends = perf_counter() + BUDGET
        for _ in range(len(self._with_input)):  # those that join meanwhile have the next turn
            self._with_input.take().process_input()
            if perf_counter() >= ends:
                break
        if self._lost:
            self._end_lost()
        self._is_due = False
        ends = perf_counter() + BUDGET
        for _ in range(len(self._with_output)):
            connection = self._with_output.take()
            try:
                connection.flush()
            except Exception as error:  # noqa: BLE001 # OPS-10: other connections in this turn are served
                connection.fail(error)
            if perf_counter() >= ends:
                break
        if self._with_input or self._with_output or self._lost:
            self._schedule_turn()

    def _end_lost(self) -> None:
        ends = perf_counter() + ENDING
        for _ in range(len(self._lost)):
            connection = self._lost.take()
            try:
                connection.end()
            except Exception as error:  # noqa: BLE001 # OPS-10
                connection.fail(error)
            if perf_counter() >= ends:
                break
