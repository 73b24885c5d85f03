"""What `python -m bench chaos` says of what it counted. The chaos itself is in tests/interop/test_chaos.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import chaos
from bench.attacks import ATTACKS
from bench.chaos import Report


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
def test_any_trouble_is_told_and_is_the_exit_status(
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


def test_what_is_left_out_is_an_attack_that_there_is():
    assert ATTACKS.keys() >= chaos.NOT_YET
