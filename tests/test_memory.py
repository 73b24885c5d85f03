"""When memory is given back that clients have left behind."""

from __future__ import annotations

import asyncio

import pytest

from xdsprism.memory import MANY, Departures, find_trim, give_back


@pytest.mark.parametrize(
    ("counts", "due"),
    [
        ([0, 0, MANY - 1, 0], []),  # too few to be worth while
        ([MANY, 0, 0], [1]),
        ([5_000, 4_000, 3_000, 2_500, 2_400], [3]),  # half of them are gone
        ([5_000, 2_500, 2_400, 2_000, 1_200, 0], [1, 4, 5]),
        ([5_000, 0, 5_000, 0], [1, 3]),
        ([5_000, 4_600, 5_000, 4_600], []),  # clients that come and go are no reason
    ],
)
def test_memory_is_given_back_when_half_of_many_streams_have_ended(counts: list[int], due: list[int]) -> None:
    departures = Departures()
    assert [turn for turn, count in enumerate(counts) if departures.note(count)] == due


async def test_the_count_is_looked_at_again_and_again_and_only_then_is_memory_given_back() -> None:
    counts, loop = iter([1_000, 1_000, 0]), asyncio.get_running_loop()
    trimmed: asyncio.Future[int] = loop.create_future()

    def trim(pad: int) -> None:
        loop.call_soon_threadsafe(trimmed.set_result, pad)

    task = asyncio.create_task(give_back(lambda: next(counts, 0), trim, every=0.001))
    assert await asyncio.wait_for(trimmed, 10) == 0
    assert next(counts, None) is None
    task.cancel()


async def test_without_such_a_function_there_is_nothing_to_do() -> None:
    await give_back(lambda: 0, None, every=0.0)


def test_the_function_of_this_system_can_be_called() -> None:
    trim = find_trim()
    assert trim is None or trim(0) in (0, 1)
