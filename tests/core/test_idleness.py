"""When a stream that carries nothing ends (OPS-3)."""

from __future__ import annotations

from xdsprism.core.serve.idleness import Idleness


def test_a_stream_ends_once_it_has_carried_nothing_for_so_long() -> None:
    # OPS-3
    idleness = Idleness(10.0, 100.0)
    assert idleness.due == 110.0
    assert not idleness.is_over(109.9)
    assert idleness.is_over(110.0)


def test_what_it_carries_postpones_the_end_and_costs_no_timer() -> None:
    # OPS-3
    idleness = Idleness(10.0, 100.0)
    idleness.last = 107.0
    assert idleness.due == 110.0
    assert not idleness.is_over(110.0)
    assert idleness.due == 117.0
    assert idleness.is_over(117.0)
