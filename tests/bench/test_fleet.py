"""The fleet: a few clients of it, and what it refuses to count."""

from __future__ import annotations

import pytest

from bench import fleet
from bench.fleet import Outcome, Phase, measure, run, told
from bench.programs import OWN_GENERATOR
from bench.rounds import NotDelivered


def test_every_client_has_every_change_and_the_stall_and_the_memory_are_told(capsys: pytest.CaptureFixture[str]):
    run(["--connections", "20", "--seconds", "1", "--own-load"])
    said = capsys.readouterr().out
    assert "Every client had every change: 20 messages to 20 clients." in said
    assert [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| ")][2:] == [
        "20 clients connect and get a resource",
        "1 changes, one a second",
        "all of them leave",
    ]


def test_what_was_not_delivered_gives_no_figures(monkeypatch: pytest.MonkeyPatch):
    changes = fleet._changes  # noqa: SLF001 # a message that is never sent, which the server gives no way to ask for
    monkeypatch.setattr(fleet, "_changes", lambda *given: [*changes(*given), 0.1])  # one more than there was
    with pytest.raises(NotDelivered, match="5 messages came, and due were 10"):
        measure(5, 1, "h2", OWN_GENERATOR)


def test_more_connections_than_descriptors_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fleet.resource, "getrlimit", lambda _: (1_024, 4_096))
    with pytest.raises(SystemExit, match=r"10,000 connections take 15,500 descriptors, and ulimit -Hn says 4,096"):
        run([])


def test_the_table_has_a_row_for_each_phase():
    phase = Phase("60 changes, one a second", 60.0, 12.3, 11.2, 20.0, 345.6)
    text = told(Outcome((phase,), (0.3, 0.4, 0.5), 600_000), 10_000, "A machine.")
    assert (
        "| 60 changes, one a second | 60.0    | 12.3              | 11.2                 | 20.0         | 346" in text
    )
    assert "600,000 messages to 10,000 clients. A change was with all of them after 400 ms (median), 500 ms" in text
