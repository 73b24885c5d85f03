"""How `get` and `watch` report events of their streams."""

from __future__ import annotations

import pytest

from xdsprism import CLUSTER, WatchError
from xdsprism.cli.asking import LASTING, StreamOutcomes, describe_error
from xdsprism.core.model.facts import Fact, Lost, Reached

GONE = WatchError("UNAVAILABLE", "one:1: gone")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _is_first(*events: tuple[float, Fact]) -> bool:
    clock = Clock()
    outcomes = StreamOutcomes(clock)
    for clock.now, fact in events:
        outcomes([fact])
    assert outcomes.is_outage(GONE)
    return outcomes.is_first(GONE)


FAILED = Lost("one:1", str(GONE), failed=True)


def test_a_server_is_there_to_begin_with_if_it_answered_or_kept_a_stream_open():
    assert _is_first((0, FAILED))
    assert _is_first((0, Reached("one:1")), (LASTING / 2, FAILED))  # it refused
    assert not _is_first((0, Reached("one:1")), (LASTING * 2, FAILED))  # it had nothing to say
    assert not _is_first((0, Reached("one:1")), (0, Lost("one:1", "bye", failed=False)), (0, FAILED))
    assert _is_first((0, Reached("two:1")), (0, Lost("two:1", "bye", failed=False)), (0, FAILED))


def test_an_error_about_a_resource_is_no_outage():
    outcomes = StreamOutcomes(Clock())
    outcomes([FAILED])
    assert not outcomes.is_outage(WatchError("UNAVAILABLE", "not now"))
    assert not outcomes.is_outage(None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (WatchError("NOT_FOUND", "'a' does not exist on one:1"), "cds/a does not exist"),
        (WatchError("NOT_FOUND", "ask again on Monday"), "cds/a does not exist: ask again on Monday"),
        (WatchError("PERMISSION_DENIED", "not for you"), "cds/a: not for you"),
    ],
)
def test_why_there_is_none(error: WatchError, told: str):
    assert describe_error(CLUSTER, "a", error) == told
