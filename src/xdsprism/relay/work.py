"""What changes a relay's cache, one thing after the other: responses of servers, and what follows from them.

Whatever is short is done at once. The rest of what is long is done in slices (server/slicing.py), between which clients
are served; whatever else would change the cache meanwhile waits for its turn. So nobody is told of half a response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.model.steps import Steps, finish
from ..observe.logs import log
from ..server.slicing import Slices

T = TypeVar("T")

AT_ONCE = 2  # steps that are done before others are served; each is a few milliseconds


class Task:
    """One thing, until it is done."""

    __slots__ = ("done", "is_begun", "steps")

    def __init__(self, steps: Steps[Any], done: Callable[[Any, Exception | None], None]) -> None:
        self.steps = steps
        self.done = done
        self.is_begun = False


class Work:
    """The long work of one relay, in the order in which it came."""

    def __init__(self, slices: Callable[[], Slices | None]) -> None:
        self._slices = slices  # None: everything is done at once
        self._tasks: deque[Task] = deque()  # the first is under way
        self._is_sliced = False  # there is a job that goes on with it

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, steps: Steps[None]) -> None:
        """Do this at once if that is short and nothing is under way; else in slices, when its turn comes."""
        self._add(Task(steps, self._failed))

    async def do(self, steps: Steps[T]) -> T:
        """The same, for whoever waits for the result. If they are cancelled, what was begun is done to its end."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T, error: Exception | None) -> None:
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        task = Task(steps, done)
        self._add(task)
        if outcome.done():
            return outcome.result()
        try:
            return await outcome
        except asyncio.CancelledError:
            self._leave(task)
            raise

    def finish(self) -> None:
        """Do everything now that is under way or waits."""
        while self._tasks:
            self._finish_first()

    def _add(self, task: Task) -> None:
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self._begin()

    def _begin(self) -> None:
        """Do what is short; have the rest sliced."""
        while self._tasks and not self._is_sliced:
            task = self._tasks[0]
            for _ in range(AT_ONCE):
                if not self._step(task):
                    break
            else:
                slices = self._slices()
                if slices is None:
                    self._finish_first()
                    continue
                self._is_sliced = True
                slices.begin(self._going_on(), _log_slip)

    def _going_on(self) -> Steps[None]:
        """All there is, in slices."""
        try:
            while self._tasks:
                yield
                if self._tasks:  # nobody has finished it meanwhile
                    self._step(self._tasks[0])
        finally:
            self._is_sliced = False

    def _step(self, task: Task) -> bool:
        """One step of the first task; false if that was its end."""
        task.is_begun = True
        try:
            next(task.steps)
        except StopIteration as over:
            self._end(task, over.value, None)
        except Exception as error:  # noqa: BLE001 # OPS-10: it concerns whoever waits for it
            self._end(task, None, error)
        else:
            return True
        return False

    def _finish_first(self) -> None:
        task = self._tasks[0]
        task.is_begun = True
        try:
            result = finish(task.steps)
        except Exception as error:  # noqa: BLE001 # OPS-10
            self._end(task, None, error)
        else:
            self._end(task, result, None)

    def _end(self, task: Task, result: Any, error: Exception | None) -> None:
        self._tasks.popleft()
        task.done(result, error)

    def _failed(self, _result: None, error: Exception | None) -> None:
        """Nobody waits for it: the loop is told, or the log where there are others to go on with."""
        if error is not None and not self._is_sliced:
            raise error
        if error is not None:
            log.error("the relay could not take in what its servers said", exc_info=error)

    def _leave(self, task: Task) -> None:
        """Nobody waits for it any more."""
        if task not in self._tasks:
            return
        if task.is_begun:
            self._finish_first()
        else:
            self._tasks.remove(task)
            task.steps.close()


def _log_slip(error: Exception) -> None:
    log.error("the relay's long work ended", exc_info=error)
