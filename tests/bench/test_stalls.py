"""From rows to the tables of stalls, before and after, and into PERFORMANCE.md."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from bench import stalls as bench_stalls
from bench.stalls import (
    BEFORE,
    COMPILED,
    DOCUMENT,
    INTERPRETED,
    MARKS,
    Rows,
    Version,
    better,
    growth_table,
    growths,
    measured,
    run,
    stall_table,
    stalls,
    versions,
)
from bench.stalls_relay import measure_steps
from bench.tables import placed

SERVER = [("100,000 names", 90.0, 2.0, 80.0, 50.0), ("a bomb", 90.0, 5.0, 80.0, 100.0)]
RELAY = [("names", 500, 0.1, 0.44, 4.4, 0.02), ("hosts", 100, 0.1, 1.6, 16.0, 0.5)]


def cells(text: str) -> list[list[str]]:
    """The table's rows, without head and rule."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_a_stall_is_told_in_ms_and_against_the_bound_of_its_case():
    assert cells(stall_table({INTERPRETED: stalls(SERVER)})) == [
        ["100,000 names", "90.0", "80.0", "2.00", "50", "no"],
        ["a bomb", "90.0", "80.0", "5.00", "100", "yes"],
    ]


def test_the_ratio_of_4n_to_n_is_told_against_its_bound_and_the_longest_turn_in_ms():
    assert cells(growth_table({INTERPRETED: growths(RELAY)})) == [
        ["names", "500", "0.10", "0.44", "4.40", "20.0", "yes"],
        ["hosts", "100", "0.10", "1.60", "16.0", "500", "no"],
    ]


def test_the_version_before_stands_beside_each_figure_and_has_a_dash_where_it_could_not_finish():
    assert cells(stall_table({BEFORE: stalls(SERVER[:1]), INTERPRETED: stalls(SERVER)})) == [
        ["100,000 names", "90.0", "90.0", "80.0", "80.0", "2.00", "2.00", "50", "no"],
        ["a bomb", "-", "90.0", "-", "80.0", "-", "5.00", "100", "yes"],
    ]
    table = growth_table({BEFORE: growths(RELAY), INTERPRETED: growths(RELAY[:1])})
    assert cells(table) == [["names", "500", "0.10", "0.10", "0.44", "0.44", "4.40", "4.40", "20.0", "20.0", "yes"]]
    assert "seconds with N: before" in table.splitlines()[0]


def test_the_builds_stand_beside_each_other_and_each_has_to_reach_the_limit():
    faster = [("100,000 names", 40.0, 1.0, 30.0, 50.0), ("a bomb", 110.0, 1.0, 30.0, 100.0)]
    text = stall_table({INTERPRETED: stalls(SERVER), COMPILED: stalls(faster)})
    assert text.splitlines()[0].split("|")[2:4] == [" longest stall, ms: interpreted ", " compiled "]
    assert cells(text) == [
        ["100,000 names", "90.0", "40.0", "80.0", "30.0", "2.00", "1.00", "50", "no"],
        ["a bomb", "90.0", "110", "80.0", "30.0", "5.00", "1.00", "100", "no"],
    ]
    assert [row[-1] for row in cells(stall_table({INTERPRETED: {}, COMPILED: stalls(faster[:1])}))] == ["no"]
    assert [row[-1] for row in cells(stall_table({BEFORE: {}, COMPILED: stalls(faster[:1])}))] == ["yes"]


def test_the_compiled_build_is_measured_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    python = tmp_path / "python"
    monkeypatch.setattr(bench_stalls, "COMPILED_PYTHON", python)
    assert [each.name for each in versions(tmp_path)] == [BEFORE, INTERPRETED]
    assert "`make compiled` makes it" in capsys.readouterr().err
    python.write_text("#!/bin/sh\n" + """[ "$PYTHONPATH" = "$PWD" ] && echo '["a bomb", 1, 2, 3, 100]'""")
    python.chmod(0o700)
    assert [each.name for each in versions(None)] == [INTERPRETED, COMPILED]
    (compiled,) = versions(None, COMPILED)
    assert measured("server", "a bomb", compiled) == stalls([("a bomb", 1, 2, 3, 100)])
    assert capsys.readouterr().err == ""


def test_the_best_figure_of_all_rounds_counts_for_the_ratio_too():
    other = [("names", 500, 0.2, 0.4, 2.0, 0.01)]
    found = better(growths(RELAY), growths(other))["names"]
    assert (found.once, found.fourfold, found.longest) == (0.1, 0.4, 10.0)
    assert found.ratio == pytest.approx(4.0)
    assert list(better({}, stalls(SERVER))) == [row[0] for row in SERVER]


def test_a_row_that_took_too_long_says_so():
    over = growths([("names", 500, 0.1, inf, inf, inf), ("hosts", 100, inf, inf, inf, inf)])
    assert cells(growth_table({INTERPRETED: over}, cap=60)) == [
        ["names", "500", "0.10", "over 60 s", "-", "-", "no"],
        ["hosts", "100", "over 60 s", "over 60 s", "-", "-", "no"],
    ]
    assert cells(stall_table({COMPILED: stalls([("a bomb", inf, inf, inf, 50.0)])}, cap=1.5)) == [
        ["a bomb", "-", "-", "over 1.5 s", "50", "no"]
    ]


def test_sources_that_give_no_figures_give_no_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "xdsprism.py").write_text("raise SystemExit(3)")
    assert measured("relay", "names", Version(BEFORE, sources=tmp_path)) == {}
    assert "gave no figures (status 3)" in capfd.readouterr().err


def test_sources_with_which_nothing_begins_give_no_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "xdsprism.py").write_text("import time; time.sleep(600)")
    assert measured("server", "100,000 names, delta", Version(BEFORE, sources=tmp_path), cap=0.2) == {}
    assert "gave no figures (status -9)" in capfd.readouterr().err


def test_before_the_first_figure_there_is_a_row_that_is_over():
    steps = measure_steps("names")
    (row,) = growths([next(steps)]).values()
    assert (row.case, row.is_over) == ("names", True)


STARTS_ANOTHER = """
import subprocess, sys, time
child = "import fcntl, time; f = open({lock!r}, 'w'); fcntl.flock(f, 2); print('held', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE).stdout.readline()
print('["names", 1000, 0.1, Infinity, Infinity, Infinity]', flush=True)
time.sleep(600)
"""


def test_a_case_that_is_ended_keeps_what_it_said_and_leaves_no_process_behind(tmp_path: Path):
    lock = tmp_path / "lock"
    (tmp_path / "xdsprism.py").write_text(STARTS_ANOTHER.format(lock=str(lock)))
    row = measured("relay", "names", Version(BEFORE, sources=tmp_path), cap=10)["names"]
    assert (row.n, row.once, row.is_over) == (1000, 0.1, True)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for as long as the other process is there


def test_performance_md_has_one_place_for_the_tables():
    text = placed(DOCUMENT.read_text(), "here", MARKS)
    assert f"{MARKS[0]}\n\nhere\n\n{MARKS[1]}" in text


def test_help_names_the_options():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "stalls", "--help"], capture_output=True, text=True, check=True
    )
    assert all(option in done.stdout for option in ("--before", "--build", "--part", "--rounds", "--cap", "--write"))


def test_the_steps_of_a_case_are_printed_for_the_process_that_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        "bench.stalls_server.measure_steps", lambda case: [(case, inf, inf, inf, 50.0), (case, 4.0, 5.0, 3.0, 50.0)]
    )
    run(["--rows", "server", "--case", "a bomb"])
    told = capsys.readouterr().out
    assert told == '["a bomb", Infinity, Infinity, Infinity, 50.0]\n["a bomb", 4.0, 5.0, 3.0, 50.0]\n'


def test_versions_have_their_turns_case_by_case_and_what_took_too_long_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    asked = []

    def fake(_part: str, case: str, version: Version, _cap: float) -> Rows:
        asked.append((case, version.name))
        return stalls([(case, 90.0, inf if version.name == BEFORE and case == "b" else 2.0, 80.0, 50.0)])

    monkeypatch.setattr("bench.stalls.measured", fake)
    monkeypatch.setattr("bench.stalls.cases", lambda _part: ("a", "b"))
    run(["--part", "server", "--rounds", "2", "--build", INTERPRETED, "--before", str(tmp_path)])
    first = [(case, name) for case in "ab" for name in (BEFORE, INTERPRETED)]
    assert asked == [*first, *[each for each in first if each != ("b", BEFORE)]]
    assert "over 60 s" in capsys.readouterr().out
