"""Run long work of many streams in slices of time, so that the event loop still serves everybody else.

Each turn of the loop runs long work for `BUDGET` seconds at most, and each stream for `SHARE` seconds in turn: the
addresses have turns, and then the streams of each. The loop reads and writes sockets between two slices. The core
decides where work may be interrupted (core/model/steps.py), and this file decides when.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from ..core.model.steps import Steps
from .turns import Turns

log = logging.getLogger("xdsprism.server")

# A request that arrives during a slice waits for three slices at most: asyncio runs what is ready before what it then
# finds in sockets, and the engine handles a request in the turn after the one that read it.
BUDGET: Final = 0.008  # seconds of work in one turn of the loop
SHARE: Final = 0.004  # seconds of these for one stream, before it is another's turn

LONG_BYTES: Final = 8 * 1024  # a larger request is decoded in slices
LONG_COUNT: Final = 1_000  # subscriptions or resources: more are collected, encoded or dropped in slices


Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class Job:
    """Work in progress: the steps that are left, and whom to tell if they raise."""

    __slots__ = ("failed", "owner", "steps")

    def __init__(self, steps: Steps[None], failed: Callable[[Exception], None], owner: str) -> None:
        self.owner = owner
        self.steps: Steps[None] | None = steps
        self.failed = failed

    def abandon(self) -> None:
        """Stop the work where it is."""
        steps, self.steps = self.steps, None
        if steps is not None:
            steps.close()


class Slices:
    """The long work of one event loop."""

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = perf_counter,
        later: Later | None = None,
    ) -> None:
        """Make a scheduler without work.

        `schedule` runs a function once in the loop's next turn. `clock` must advance within a turn. `later` runs a
        function at a time of the loop's clock, as `call_at` of a loop does; without it, no work can wait for a time.
        """
        self.later = later
        self._schedule = schedule
        self._clock = clock
        self._jobs: Turns[Job] = Turns()
        self._first: deque[Job] = deque()  # jobs that all others wait for
        self._due = False

    def begin(
        self, steps: Steps[None], failed: Callable[[Exception], None], *, owner: str = "", first: bool = False
    ) -> Job:
        """Run `steps` in slices, from the loop's next turn on. `failed` is called with what they raise.

        `owner`: the address that the work is for; addresses have turns, and then the jobs of each. `first`: no other
        job runs, old or new, before this one is done.
        """
        job = Job(steps, failed, owner)
        if first:
            self._first.append(job)
        else:
            self._jobs.add(owner, job)
        self._soon()
        return job

    def _soon(self) -> None:
        """Schedule `_run` for the next turn of the loop, once."""
        if not self._due:
            self._due = True
            self._schedule(self._run)

    def _run(self) -> None:
        """Run jobs in turn until the budget of this turn is used up."""
        self._due = False
        now = self._clock()
        ends = now + BUDGET
        while (self._first or self._jobs) and now < ends:
            is_first = bool(self._first)
            job = self._first.popleft() if is_first else self._jobs.take()
            now = self._slice(job, min(now + SHARE, ends))
            if job.steps is None:
                continue
            if is_first:
                self._first.append(job)
            else:
                self._jobs.add(job.owner, job)
        if self._first or self._jobs:
            self._soon()

    def _slice(self, job: Job, until: float) -> float:
        """Run one job until that time, or until it is done. Return the time."""
        now = until
        try:
            while job.steps is not None:
                next(job.steps)
                now = self._clock()
                if now >= until:
                    return now
        except StopIteration:
            job.steps = None
        except Exception as error:  # noqa: BLE001 # OPS-10: whatever it is, it ends this work and no other
            job.steps = None
            job.failed(error)
        return self._clock()
