"""The bench gives figures only if every due message came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.rounds import (
    Due,
    NotDelivered,
    Report,
    Round,
    cheapest,
    check,
    cost,
    cost_ratio,
    fastest,
    rate,
    rate_ratio,
    rotated,
)

BEFORE = Report(
    streams=4, messages=4, resources=4, removed=0, backwards=0, oldest=1, by_class=(2, 2), sizes=(2, 2)
)  # each has its first resource
AFTER = replace(BEFORE, messages=16, resources=16, oldest=4, by_class=(8, 8))
DUE = Due.of(streams=4, turns=3, burst=1, each=1, version=4)


def test_every_due_message_came():
    assert check(BEFORE, AFTER, DUE) == 12


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"messages": 15}, "11 messages came, and due were 12"),
        ({"messages": 17}, "13 messages came, and due were 12"),
        ({"resources": 15}, "11 resources came of 12"),
        ({"removed": 1}, "1 resources were removed, and none was"),
        ({"backwards": 2}, "2 messages had nothing new"),
        ({"oldest": 3}, "a stream is left at version 3, and 4 was due"),
    ],
)
def test_anything_else_is_an_error(change: dict[str, int], reason: str):
    with pytest.raises(NotDelivered, match=reason):
        check(BEFORE, replace(AFTER, **change), DUE)


def test_a_burst_may_come_in_fewer_messages_than_changes_but_not_in_more():
    due = Due.of(streams=4, turns=1, burst=10, each=1, version=11)
    for messages in (4, 17, 40):
        after = replace(BEFORE, messages=4 + messages, resources=4 + messages, oldest=11)
        assert check(BEFORE, after, due) == messages
    for messages in (3, 41):
        after = replace(BEFORE, messages=4 + messages, resources=4 + messages, oldest=11)
        with pytest.raises(NotDelivered, match="due were 4 to 40"):
            check(BEFORE, after, due)


def test_a_class_alone_gets_what_concerns_it():
    due = Due.of(streams=2, turns=3, burst=1, each=1, version=4)
    after = replace(BEFORE, messages=10, resources=10, by_class=(8, 2))  # the others stay at their version
    assert check(BEFORE, after, due, 0) == 6
    with pytest.raises(NotDelivered, match="1 messages came to class 1, whom nothing concerned"):
        check(BEFORE, replace(after, by_class=(7, 3)), due, 0)


def test_a_report_is_read_from_what_a_generator_says():
    said = {"streams": 1, "messages": 2, "resources": 3, "removed": 0, "backwards": 0, "oldest": 5}
    assert Report.of({**said, "by_class": [2], "sizes": [1]}) == Report(1, 2, 3, 0, 0, 5, (2,), (1,))


def rounds(*costs: float, wall: float = 1.0) -> list[Round]:
    return [Round(each, wall, 1, 1) for each in costs]


def test_figures_are_medians_and_ratios_are_paired():
    ours, theirs = rounds(1, 20, 3), rounds(2, 10, 12)  # a neighbour was busy in the second round, for both
    assert (cost(ours), cost(theirs)) == (3, 10)
    assert cost_ratio(ours, theirs) == 0.5
    assert rate_ratio(rounds(1, 1, wall=0.5), rounds(1, 1)) == 2
    assert rate(rounds(1, wall=0.25)) == 4
    with pytest.raises(ValueError, match="shorter"):
        cost_ratio(ours, theirs[:2])


def test_the_best_of_those_that_took_part():
    of = {"a": rounds(3, wall=1), "b": rounds(2, wall=2), "ours": rounds(1, wall=0.1)}
    assert cheapest(of, ["a", "b", "absent"]) == "b"
    assert fastest(of, ["a", "b", "absent"]) == "a"


def test_no_engine_is_always_measured_first():
    assert [rotated(["a", "b", "c"], number) for number in (0, 1, 5)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
    ]
