"""The report of `python -m bench chaos`. The chaos itself is in tests/interop/test_chaos.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import chaos
from bench.attacks import ATTACKS
from bench.chaos import Report, flip_bit


def report() -> Report:
    made = Report()
    made.tally.request("HTTP", None)
    made.attacks["long-hosts"] += 1
    return made


TROUBLES: dict[str, Callable[[Report], None]] = {
    "failed requests": lambda made: made.tally.request("HTTP", "envoy: HTTP 503"),
    "false removals": lambda made: made.tally.removal("envoy has lost listener web"),
    "stale clients": lambda made: made.tally.stale.append("envoy: old, not new"),
}


def test_requests_that_all_succeed_are_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(chaos, "measure", lambda _words: report())
    chaos.run([])
    assert "| requests, HTTP     | 1        |" in capsys.readouterr().out


@pytest.mark.parametrize("trouble", TROUBLES)
def test_any_failure_is_reported_and_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: str
):
    made = report()
    TROUBLES[trouble](made)
    monkeypatch.setattr(chaos, "measure", lambda _words: made)
    with pytest.raises(SystemExit, match="1"):
        chaos.run([])
    told = capsys.readouterr().out
    assert f"\n{trouble}:\n" in told
    assert {what: len(found) for what, found in made.troubles.items()} == dict.fromkeys(TROUBLES, 0) | {trouble: 1}


def test_a_run_without_requests_shows_nothing_and_is_not_clean():
    assert not Report().is_clean


def test_the_attacks_left_out_exist():
    assert ATTACKS.keys() >= chaos.NOT_YET


def test_one_bit_of_the_disk_cache_is_flipped_in_the_file_or_in_its_log(tmp_path: Path):
    cache, log = tmp_path / "relay.db", tmp_path / "relay.db-wal"
    chance = random.Random(1)
    assert not flip_bit(cache, chance)
    seen = set()
    for _ in range(20):
        cache.write_bytes(bytes(50))
        log.write_bytes(bytes(50))
        assert flip_bit(cache, chance)
        ones = {file.name: int.from_bytes(file.read_bytes()).bit_count() for file in (cache, log)}
        assert sorted(ones.values()) == [0, 1]
        seen |= {name for name, count in ones.items() if count}
    assert seen == {cache.name, log.name}
