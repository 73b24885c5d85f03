"""From rounds to the tables, and into PERFORMANCE.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measuring import Outcome
from bench.rounds import Round
from bench.scenarios import (
    COMPILED,
    DIDEROT,
    EVERYBODY,
    FLOOR,
    GRPCIO,
    H2,
    LINEAR,
    QUICK,
    SCENARIOS,
    SNAPSHOT,
    alone,
    among,
    chosen,
    fewer,
)
from bench.tables import BEGIN, END, everything, figures, number, placed, table

DOCUMENT = Path(__file__).parents[2] / "PERFORMANCE.md"


def outcome(**cpu: float) -> Outcome:
    """Of one message each, in a second."""
    rounds = {label: [Round(seconds, 1.0, 1, 1)] for label, seconds in cpu.items()}
    return Outcome(rounds, dict.fromkeys(rounds, 100.0))


def test_a_table_is_aligned():
    assert table(["a", "long"], [["wide one", "1"]]).splitlines() == [
        "| a        | long |",
        "| -------- | ---- |",
        "| wide one | 1    |",
    ]
    assert table(["a"], []) == ""


@pytest.mark.parametrize(
    ("value", "text"), [(0.4567, "0.46"), (9.99, "9.99"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_figures_have_three_digits(value: float, text: str):
    assert number(value) == text


def test_a_figure_is_against_the_best_peer_and_says_whether_it_is_reached():
    outcomes = {"S1": outcome(**{H2: 4e-6, SNAPSHOT: 40e-6, LINEAR: 10e-6})}
    cheap, fast = figures(outcomes)
    assert (cheap.value, cheap.against, cheap.reached) == (pytest.approx(0.4), LINEAR, True)
    assert cheap.row() == ["S1, processor time a message", LINEAR, "at most 0.47", "0.40", "yes"]
    assert (fast.value, fast.reached) == (1.0, False)
    assert fast.row()[2:] == ["at least 1.2", "1.00", "no"]


def test_the_compiled_build_is_to_reach_more_and_is_against_the_floor_too():
    outcomes = {"S1": outcome(**{COMPILED: 4e-6, SNAPSHOT: 40e-6, LINEAR: 10e-6, FLOOR: 8e-6})}
    cheap, floor, fast = figures(outcomes, COMPILED)
    assert cheap.row() == ["S1, processor time a message", LINEAR, "at most 0.28", "0.40", "no"]
    assert floor.row() == ["S1, processor time a message", FLOOR, "at most 0.6", "0.50", "yes"]
    assert fast.row()[2:] == ["at least 1.5", "1.00", "no"]


def test_without_peers_there_are_no_figures_against_them():
    assert figures({"S1": outcome(**{H2: 1.0, GRPCIO: 1.0}), "S2": outcome(**{H2: 1.0})}) == []


def test_figures_that_compare_the_server_with_itself():
    outcomes = {
        "S3": outcome(**{H2: 1.2, fewer(H2): 1.0}),
        "S5": outcome(**{H2: 1.05, alone(H2): 1.0}),
        "S6": outcome(**{among(H2, 2): 1.0, among(H2, 2_000): 2.0}),
    }
    assert [(each.what[:2], each.value, each.reached) for each in figures(outcomes)] == [
        ("S3", 1.2, True),
        ("S6", 2.0, False),
        ("S5", 1.05, True),
    ]


def test_memory_is_against_the_smaller_peer():
    found = outcome(**{H2: 1.0, SNAPSHOT: 1.0, LINEAR: 1.0})
    found.megabytes = {H2: 50.0, SNAPSHOT: 200.0, LINEAR: 110.0}
    last = figures({"S2": found})[-1]
    assert (last.value, last.against, last.reached) == (pytest.approx(50 / 110), LINEAR, True)


def test_an_absent_peer_has_no_column_and_a_present_one_counts():
    found = {H2: 1.0, SNAPSHOT: 4.0, LINEAR: 3.0}
    text = everything(SCENARIOS[:1], {"S1": outcome(**found)}, "a machine")
    assert DIDEROT not in text
    text = everything(SCENARIOS[:1], {"S1": outcome(**found, **{DIDEROT: 2.0})}, "a machine")
    assert f" {DIDEROT} " in text.partition("processor time of the server")[2].splitlines()[0]
    first = figures({"S1": outcome(**found, **{DIDEROT: 2.0})})[0]
    assert (first.against, first.value) == (DIDEROT, pytest.approx(0.5))


def test_the_text_has_a_place_for_each_scenario():
    outcomes = {each.key: outcome(**dict.fromkeys([entry.label for entry in each.entries], 1e-6)) for each in SCENARIOS}
    text = everything(SCENARIOS, outcomes, "a machine")
    assert text.startswith("a machine\n\n| engine")
    for scenario in SCENARIOS:
        assert scenario.key in text
    (line,) = [line for line in text.splitlines() if line.startswith("| S1: ")]
    assert line.count("1.00") == len(EVERYBODY)
    assert f"| {fewer(H2)} " in text  # what is not everybody's is a line by itself


def test_the_tables_replace_those_before():
    document = f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n"
    once = placed(document, "new")
    assert once == f"Before.\n\n{BEGIN}\n\nnew\n\n{END}\n\nAfter.\n"
    assert placed(once, "newer") == once.replace("new", "newer")


@pytest.mark.parametrize("document", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_document_without_the_place_is_refused(document: str):
    with pytest.raises(ValueError, match="there is no one"):
        placed(document, "new")


def test_the_real_document_has_the_place():
    assert "new" in placed(DOCUMENT.read_text(), "new")


def test_scenarios_by_key_and_by_family():
    assert [each.key for each in chosen(["S1="])] == ["S1"]
    assert {each.key.split("-")[0] for each in chosen(["S1"])} == {"S1"}
    assert len(chosen(["S1"])) == 6
    assert [each.key for each in chosen(["S1-tls"])] == ["S1-tls", "S1-tls-1000x1"]
    with pytest.raises(SystemExit, match="no such scenario: S9; there are S1, "):
        chosen(["S2", "S9"])


@pytest.mark.parametrize("scenario", [*SCENARIOS, *QUICK], ids=lambda each: each.key)
def test_the_labels_of_a_scenario_are_distinct(scenario):
    labels = [entry.label for entry in scenario.entries]
    assert len(set(labels)) == len(labels)
