"""Long work of many streams in slices of time, so that a loop which does it still answers everybody else.

Each turn of the loop runs the work that there is for `BUDGET` seconds at most, the streams in turn. What comes in
meanwhile is served between two slices. The core says where work may be interrupted
(core/model/steps.py), this file says when.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter

from ..core.model.steps import Steps

log = logging.getLogger("xdsprism.server")

# A request that comes during a slice waits for three of them at most: what is ready in a turn runs before what the turn
# finds in sockets, and the engine hears a request in the turn after the one that read it.
BUDGET = 0.008  # seconds of work in one turn of the loop
SHARE = 0.004  # of these, until it is another stream's turn

LONG_BYTES = 8 * 1024  # a request of more is read in slices
LONG_COUNT = 1_000  # subscriptions or resources: more are looked at, encoded or dropped in slices


class Job:
    """Some work that is under way."""

    __slots__ = ("failed", "steps")

    def __init__(self, steps: Steps[None], failed: Callable[[Exception], None]) -> None:
        self.steps: Steps[None] | None = steps
        self.failed = failed

    def abandon(self) -> None:
        """Don't go on with it."""
        steps, self.steps = self.steps, None
        if steps is not None:
            steps.close()


class Slices:
    """The long work of one event loop."""

    def __init__(
        self, schedule: Callable[[Callable[[], None]], object], clock: Callable[[], float] = perf_counter
    ) -> None:
        """`schedule`: run soon, once, in the loop's next turn. `clock` must not stand still within a turn."""
        self._schedule = schedule
        self._clock = clock
        self._jobs: deque[Job] = deque()
        self._first: deque[Job] = deque()  # what all others wait for
        self._due = False

    def begin(self, steps: Steps[None], failed: Callable[[Exception], None], *, first: bool = False) -> Job:
        """Run this in slices, from the loop's next turn on. `failed` is told what it raised.

        `first`: whatever else there is, and will be, does not go on before this is done.
        """
        job = Job(steps, failed)
        (self._first if first else self._jobs).append(job)
        self._soon()
        return job

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._schedule(self._run)

    def _run(self) -> None:
        self._due = False
        now = self._clock()
        ends = now + BUDGET
        while (jobs := self._first or self._jobs) and now < ends:
            job = jobs.popleft()
            now = self._slice(job, min(now + SHARE, ends))
            if job.steps is not None:
                jobs.append(job)
        if jobs:
            self._soon()

    def _slice(self, job: Job, until: float) -> float:
        """Run one job until then, or until it is done; what time it is."""
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
