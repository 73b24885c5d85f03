"""A short form of `python -m bench chaos`: see there. Nothing is said about speed, and deadlines are long."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos import measure

pytestmark = pytest.mark.timeout(900)


# PRX-10, PRX-12, VHD-26
def test_kills_edits_and_attacks_at_once_are_not_noticed_by_anybody_else(tmp_path: Path):
    report = measure(["--seconds", "25", "--size", "0.1", "--seed", "7", "--folder", str(tmp_path / "chaos")])
    print(report)
    assert report.troubles == {"failed requests": [], "false removals": [], "stale clients": []}
    assert {kind for kind, count in report.tally.requests.items() if count} == {"HTTP", "HTTP, a new host", "gRPC"}
    assert report.kills
    assert report.attacks
    assert report.edits
