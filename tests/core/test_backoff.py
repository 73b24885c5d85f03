from __future__ import annotations

import pytest

from xdsprism.core.model.backoff import Backoff

EVEN = 0.5  # the chance that moves nothing


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next(EVEN) for _ in range(count)]


# PRX-13
def test_each_wait_is_longer_than_the_one_before() -> None:
    assert waits(Backoff(), 4) == pytest.approx([1.0, 1.6, 2.56, 4.096])


# PRX-13
def test_waits_stop_growing_at_the_ceiling() -> None:
    assert waits(Backoff(), 500)[-1] == 120.0
    assert waits(Backoff(first=5, ceiling=2), 2) == [2.0, 2.0]


# PRX-13
@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.8), (0.25, 0.9), (0.75, 1.1), (0.999999, 1.2)])
def test_chance_moves_a_wait_by_a_fifth_either_way_at_the_ceiling_too(chance: float, share: float) -> None:
    backoff = Backoff(first=10, ceiling=16)
    assert [backoff.next(chance) for _ in range(3)] == pytest.approx([10 * share, 16 * share, 16 * share], rel=1e-5)


# PRX-13
def test_chance_leaves_no_trace_in_later_waits() -> None:
    lucky, unlucky = Backoff(), Backoff()
    lucky.next(0.0)
    unlucky.next(0.99)
    assert lucky.next(EVEN) == unlucky.next(EVEN)


def test_after_a_reset_the_first_wait_comes_again() -> None:
    backoff = Backoff()
    waits(backoff, 7)
    backoff.reset()
    assert waits(backoff, 2) == pytest.approx([1.0, 1.6])
