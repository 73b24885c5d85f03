"""Work on a relay's cache runs one task after the other, at once or in slices."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.rig import timeless
from xdsprism.core.model.steps import Steps
from xdsprism.relay.work import AT_ONCE, Work
from xdsprism.server.slicing import Slices


def task(log: list[str], name: str, steps: int) -> Steps[str]:
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    log.append(f"{name} is done")
    return name


def work() -> Work:
    slices = Slices(asyncio.get_running_loop().call_soon, iter(range(10_000)).__next__)  # one step in each turn
    return Work(lambda: slices)


def nothing(log: list[str], name: str, steps: int) -> Steps[None]:
    yield from task(log, name, steps)


@timeless
async def test_short_work_is_done_at_once() -> None:
    log: list[str] = []
    made = work()
    made.begin(nothing(log, "a", 1))
    assert log == ["a0", "a is done"]
    assert await made.do(task(log, "b", 1)) == "b"
    assert not made.is_busy


@timeless
async def test_long_work_is_done_in_slices_and_later_work_waits_for_it() -> None:
    log: list[str] = []
    made = work()
    made.begin(nothing(log, "a", AT_ONCE + 1))
    assert log == ["a0", "a1"]
    asyncio.get_running_loop().call_soon(log.append, "another client")
    assert await made.do(task(log, "b", 0)) == "b"
    assert log == ["a0", "a1", "another client", "a2", "a is done", "b is done"]
    assert not made.is_busy


@timeless
async def test_cancelled_work_that_was_begun_is_done_to_its_end() -> None:
    log: list[str] = []
    made = work()
    first = asyncio.ensure_future(made.do(task(log, "a", 5)))
    second = asyncio.ensure_future(made.do(task(log, "b", 5)))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert log == ["a0", "a1", "a2", "a3", "a4", "a is done"]
    assert not made.is_busy


@timeless
async def test_a_failure_is_raised_to_the_caller_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    # OPS-10
    def failing(steps: int) -> Steps[None]:
        for _ in range(steps):
            yield
        raise ValueError("no")

    made = work()
    with pytest.raises(ValueError, match="no"):
        await made.do(failing(5))
    with pytest.raises(ValueError, match="no"):
        made.begin(failing(0))
    made.begin(failing(5))
    assert await made.do(task([], "a", 1)) == "a"
    assert "failed to process a response of an upstream server" in caplog.text


@timeless
async def test_all_of_it_can_be_finished_now() -> None:
    log: list[str] = []
    made = work()
    for name in "ab":
        made.begin(nothing(log, name, 4))
    made.finish()
    assert log[-1] == "b is done"
    assert not made.is_busy
    made.begin(nothing(log, "c", 0))
    await asyncio.sleep(1)
    assert log[-1] == "c is done"
    made.begin(nothing(log, "d", 0))
    assert log[-1] == "d is done", "at once, as nothing is under way"


@timeless
async def test_a_failure_leaves_nothing_undone_that_waits_behind_it() -> None:
    # OPS-10
    log: list[str] = []
    made = work()

    def failing() -> Steps[None]:
        made.begin(nothing(log, "b", 0))
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made.begin(failing())
    assert log == ["b is done"]
    assert not made.is_busy
