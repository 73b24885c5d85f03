"""The soak's verdict, and a few seconds of it."""

from __future__ import annotations

import pytest

from bench.churn import WAYS
from bench.soak import BACK, Sample, judged, run, slope

START = Sample(0, 60.0, 20, 0, 1.0)
END = Sample(700, 80.0, 20, 0, 50.0)


def samples(growth: float = 0.0, descriptors: float = 0.0) -> list[Sample]:
    """Ten minutes, of which the first half fills caches; growth in megabytes and descriptors, a minute."""
    found = []
    for second in range(0, 600, 5):
        filled = min(second, 250) / 250 * 20
        fds = int(1_020 + descriptors * second / 60)
        found.append(Sample(second, 60 + filled + growth * second / 60, fds, 1_000, second / 10))
    return found


def test_memory_that_fills_caches_and_then_stays_counts_as_flat() -> None:
    assert judged(samples(), START, END).flat


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (samples(growth=1.0), END),
        (samples(descriptors=3), END),
        (samples(), Sample(700, 80.0, 40, 0, 50.0)),
        (samples(), Sample(700, 80.0, 20, 3, 50.0)),
    ],
    ids=["memory grows", "descriptors grow", "descriptors are left", "connections are left"],
)
def test_memory_that_grows_or_stays_behind_is_reported(found: list[Sample], end: Sample) -> None:
    assert not judged(found, START, end).flat


def test_a_slope() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(1, 1)]) == 0


def test_clients_leave_in_every_way_and_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--minutes", "0.05", "--connections", "30", "--life", "0.5", "--edit-every", "0.1", "--sample-every", "1"]
    verdict = run(words)
    told = capsys.readouterr().out
    assert verdict.connections == 0
    assert verdict.left <= BACK
    assert "Failed" not in told
    assert sum(way in told for way in WAYS) >= 4
