"""What it costs a server that somebody watches it: the watchers watch, and the figures are paired."""

from __future__ import annotations

import pytest

from bench.measuring import Pace
from bench.operate import ALL, NOBODY, WATCHERS, reading, told, watched
from bench.programs import OWN_GENERATOR
from bench.rounds import NotDelivered, Round
from bench.scenarios import H2, Entry, Scenario

SMALL = Scenario("small", "two streams", (Entry(H2, H2),), connections=2, streams=1)


def test_each_server_is_watched_while_it_delivers():
    found = watched(OWN_GENERATOR, Pace(2, 1.2), [SMALL])
    (rounds,) = found.values()
    assert list(rounds) == [NOBODY, *WATCHERS]
    assert all(each.messages >= 4 for turns in rounds.values() for each in turns)
    cells = [cell.strip() for cell in told(found).splitlines()[-1].split("|")[1:-1]]
    assert cells[0] == "two streams, µs/message"
    assert float(cells[1]) > 0


def test_a_watcher_that_gets_no_answer_gives_no_figures(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bench.operate.PATIENCE", 0.01)
    with pytest.raises(NotDelivered, match="it gave no answer"), reading("it", lambda _: None):
        pass


def test_a_watcher_that_is_cut_off_gives_no_figures():
    with pytest.raises(NotDelivered, match="it stopped to answer"), reading("it", lambda reader: reader.counted()):
        pass


def test_what_watching_takes_is_compared_by_pairs():
    plain = [Round(1.0, 2.0, 100, 100), Round(2.0, 2.0, 100, 100), Round(9.0, 2.0, 100, 100)]
    dearer = [Round(1.1, 2.0, 100, 100), Round(2.1, 2.0, 100, 100), Round(4.6, 2.0, 50, 50)]
    text = told({"a thing, µs/message": {NOBODY: plain, **dict.fromkeys(WATCHERS, dearer)}})
    assert [cell.strip() for cell in text.splitlines()[-1].split("|")[3:-1]] == ["5.0 %"] * 4
    assert ALL in text.splitlines()[0]
