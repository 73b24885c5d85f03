"""Run everything that changes a relay's cache, one task after the other.

The tasks are responses from servers, and the flushes that follow from them. A short task runs at once. A long one runs
in slices (server/slicing.py), between which the relay serves its clients; other tasks wait until it is done. So no
client ever sees half of a response.

    queue is empty, task is short     runs before `begin` or `do` returns
    queue is empty, task is long      runs AT_ONCE steps, then a job in the slices continues it
    another task is under way         waits, and runs in the same slices
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.model.steps import Steps, finish
from ..observe.lines import log
from ..server.slicing import Slices

T = TypeVar("T")

AT_ONCE = 2  # steps that run before other streams are served; each takes a few milliseconds


class Task:
    """One piece of work in steps, and the callback for its result or error."""

    __slots__ = ("done", "is_begun", "steps")

    def __init__(self, steps: Steps[Any], done: Callable[[Any, Exception | None], None]) -> None:
        self.steps = steps
        self.done = done
        self.is_begun = False


class Work:
    """The queue of long work of one relay, in the order in which it came.

    The first task in the queue is under way. `_is_sliced` says that a job in the slices continues it.
    """

    def __init__(self, slices: Callable[[], Slices | None]) -> None:
        self._slices = slices  # returns None where everything runs at once
        self._tasks: deque[Task] = deque()  # the first one is under way
        self._is_sliced = False  # a job in the slices continues the first task
        self._error: Exception | None = None  # of a task that nobody waits for, to be raised

    @property
    def is_busy(self) -> bool:
        """Whether a task is under way or waits."""
        return bool(self._tasks)

    def begin(self, steps: Steps[None]) -> None:
        """Run a task whose result nobody waits for: at once if it is short and the queue is empty, else in slices."""
        self._add(Task(steps, self._failed))
        self._raise()

    async def do(self, steps: Steps[T]) -> T:
        """Run a task, and return its result.

        If the caller is cancelled, a task that was begun still runs to its end, because the cache must not keep half of
        its changes. A task that was not begun is dropped.
        """
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T, error: Exception | None) -> None:
            """Hand the result to the caller, unless it was cancelled."""
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        task = Task(steps, done)
        self._add(task)
        if outcome.done():  # it was short: no turn of the event loop is needed
            return outcome.result()
        try:
            return await outcome
        except asyncio.CancelledError:
            self._leave(task)
            raise

    def finish(self) -> None:
        """Run all tasks to their end now."""
        while self._tasks:
            self._finish_first()
        self._raise()

    def _add(self, task: Task) -> None:
        """Queue a task, and start it if it is the only one."""
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self._begin()

    def _begin(self) -> None:
        """Run short tasks at once, and hand the first long one to the slices."""
        while self._tasks and not self._is_sliced:
            task = self._tasks[0]
            # A short task ends within AT_ONCE steps. The `else` branch is for a long one.
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
        """Run all queued tasks, one step per slice."""
        try:
            while self._tasks:
                yield
                if self._tasks:  # else `finish` or `_leave` did it meanwhile
                    self._step(self._tasks[0])
        finally:
            self._is_sliced = False

    def _step(self, task: Task) -> bool:
        """Run one step of the first task. Return False if that was the last one."""
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
        """Run the first task to its end."""
        task = self._tasks[0]
        task.is_begun = True
        try:
            result = finish(task.steps)
        except Exception as error:  # noqa: BLE001 # OPS-10
            self._end(task, None, error)
        else:
            self._end(task, result, None)

    def _end(self, task: Task, result: Any, error: Exception | None) -> None:
        """Take a task off the queue, and report its outcome."""
        self._tasks.popleft()
        task.done(result, error)

    def _failed(self, _result: None, error: Exception | None) -> None:
        """Report an error of a task that nobody waits for.

        Where the task ran at once, whoever began it gets the error, after all other tasks. In slices it is logged.
        """
        if error is not None and not self._is_sliced:
            self._error = error
        elif error is not None:
            log.error("the relay failed to process a response of an upstream server", exc_info=error)

    def _raise(self) -> None:
        """Raise the error of a task that ran at once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _leave(self, task: Task) -> None:
        """Finish a task whose caller was cancelled if it was begun, else drop it."""
        if task not in self._tasks:
            return
        if task.is_begun:
            self._finish_first()
        else:
            self._tasks.remove(task)
            task.steps.close()


def _log_slip(error: Exception) -> None:
    """Log an error that escaped from the slices."""
    log.error("long work of the relay failed", exc_info=error)
