"""The fleet: a few clients of it, and what it refuses to count."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import fleet
from bench.fleet import Outcome, Phase, measure, run, told
from bench.programs import OWN_GENERATOR
from bench.rounds import NotDelivered
from bench.scenarios import COMPILED, GRPCIO, H2


def test_every_client_has_every_change_and_stall_and_memory_are_reported(capsys: pytest.CaptureFixture[str]):
    run(["--connections", "20", "--seconds", "1", "--own-load", "--build", "interpreted"])
    said = capsys.readouterr().out
    assert "Every client had every change (interpreted): 20 messages to 20 clients." in said
    lines = [line.split("|") for line in said.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in line[1:3]] for line in lines[2:]] == [
        ["interpreted", "20 clients connect and get a resource"],
        ["interpreted", "1 changes, one a second"],
        ["interpreted", "all of them leave"],
    ]


def test_an_undelivered_change_gives_no_figures(monkeypatch: pytest.MonkeyPatch):
    changes = fleet._changes  # noqa: SLF001 # a message that is never sent, which the server gives no way to ask for
    monkeypatch.setattr(fleet, "_changes", lambda *given: [*changes(*given), 0.1])  # one more than there was
    with pytest.raises(NotDelivered, match="5 messages came, and due were 10"):
        measure(5, 1, H2, OWN_GENERATOR)


def test_more_connections_than_descriptors_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fleet.resource, "getrlimit", lambda _: (1_024, 4_096))
    with pytest.raises(SystemExit, match=r"10,000 connections take 15,500 descriptors, and ulimit -Hn says 4,096"):
        run([])


def test_the_table_has_a_row_for_each_phase_of_each_build():
    phase = Phase("60 changes, one a second", 60.0, 12.3, 11.2, 20.0, 345.6)
    outcome = Outcome((phase,), (0.3, 0.4, 0.5), 600_000)
    text = told({"interpreted": outcome, "compiled": outcome}, 10_000, "A machine.")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == [
        [build, "60 changes, one a second", "60.0", "12.3", "11.2", "20.0", "346"]
        for build in ("interpreted", "compiled")
    ]
    assert (
        "(compiled): 600,000 messages to 10,000 clients. A change was with all of them after 400 ms (median), 500 ms"
        in text
    )


def test_both_builds_are_measured_where_the_compiled_one_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked: list[str] = []
    outcome = Outcome((), (0.1,), 0)
    monkeypatch.setattr(fleet, "measure", lambda _count, _seconds, server, _load: asked.append(server) or outcome)
    python = tmp_path / "python"
    monkeypatch.setattr(fleet, "COMPILED_PYTHON", python)
    few = ["--connections", "2", "--own-load"]
    run(few)
    assert "`make compiled` makes it" in capsys.readouterr().err
    python.touch()
    run(few)
    run([*few, "--build", "grpcio"])
    assert asked == [H2, H2, COMPILED, GRPCIO]
