"""What a diagram over params costs: many operations on it have a budget of steps."""

from __future__ import annotations

from xdsprism.core.model.decisions import Decisions

COUNT = 300


def test_finding_where_each_end_is_the_result_costs_what_the_diagram_has_and_no_more() -> None:
    decisions = Decisions(("a", "b"), budget=6 * COUNT)
    values = {f"v{number}": f"end {number}" for number in range(COUNT)}
    absent = decisions.branch("b", {f"w{number}": f"other end {number}" for number in range(COUNT)}, None, None)
    found = decisions.indicators(decisions.branch("a", values, None, absent))
    assert len(found) == 2 * COUNT
