"""The quiet period of a changed file."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from xdsprism.sources.quiet_period import MAX_WAIT, QUIET, QUIET_IF_SMALLER, QuietPeriod
from xdsprism.sources.scan import Inode, Stamp

KNOWN: Stamp = (1, 10, 100, 5, 5)  # device, inode, size, mtime, ctime


def wait(
    quiet_period: QuietPeriod,
    stamp: Stamp | None,
    now: float,
    *,
    touched: Collection[Inode] = (),
    placed: Collection[Inode] = (),
) -> float:
    return quiet_period.remaining({"a": stamp}, {"a": KNOWN}, now, touched, placed)


# OPS-13
@pytest.mark.parametrize(
    ("stamp", "quiet"),
    [
        ((1, 10, 100, 6, 6), QUIET),  # written where it stands
        ((1, 10, 300, 6, 6), QUIET),
        ((1, 10, 99, 6, 6), QUIET_IF_SMALLER),  # smaller than it was: perhaps only the beginning is written
        ((1, 10, 0, 6, 6), QUIET_IF_SMALLER),
        (None, QUIET_IF_SMALLER),  # gone: perhaps for a moment
        ((1, 11, 100, 6, 6), QUIET),  # made anew in its place, and written there
        ((1, 11, 99, 6, 7), 0.0),  # renamed into its place
        ((1, 10, 100, 6, 7), QUIET),  # the same file: a rename that came of nothing, or a chmod
    ],
)
def test_a_file_written_in_place_has_a_quiet_period_and_a_renamed_one_has_none(stamp: Stamp | None, quiet: float):
    quiet_period = QuietPeriod()
    assert wait(quiet_period, stamp, 10.0) == pytest.approx(quiet)
    assert wait(quiet_period, stamp, 10.0 + quiet) == pytest.approx(0.0)


# OPS-13
def test_a_new_file_is_waited_for_unless_it_was_renamed_into_its_place():
    assert QuietPeriod().remaining({"a": (1, 10, 100, 6, 6)}, {}, 10.0, placed={(1, 10)}) == pytest.approx(QUIET)
    assert QuietPeriod().remaining({"a": (1, 10, 100, 6, 7)}, {}, 10.0) == 0.0


# OPS-13
def test_a_file_that_took_the_place_of_another_was_renamed_also_where_its_stamp_does_not_tell():
    renamed: Stamp = (1, 11, 99, 6, 6)
    assert wait(QuietPeriod(), renamed, 10.0, placed={(1, 11)}) == 0.0


# OPS-13
@pytest.mark.parametrize("first", [None, (1, 11, 20, 6, 6)])
def test_a_file_that_was_removed_and_made_anew_was_not_renamed(first: Stamp | None):
    quiet_period = QuietPeriod()
    wait(quiet_period, first, 10.0)
    assert wait(quiet_period, (1, 11, 99, 6, 6), 10.1, placed={(1, 11)}) == pytest.approx(QUIET_IF_SMALLER)


# OPS-13
def test_each_further_write_begins_the_wait_anew_also_where_the_stamp_does_not_tell():
    quiet_period = QuietPeriod()
    wait(quiet_period, (1, 10, 200, 6, 6), 10.0)
    assert wait(quiet_period, (1, 10, 300, 7, 7), 10.1) == pytest.approx(QUIET)
    assert wait(quiet_period, (1, 10, 300, 7, 7), 10.2, touched={(1, 10)}) == pytest.approx(QUIET)
    assert wait(quiet_period, (1, 10, 300, 7, 7), 10.3) == pytest.approx(QUIET - 0.1)


# OPS-13
def test_a_file_that_never_comes_to_rest_is_read_in_the_end():
    quiet_period, now, size = QuietPeriod(), 10.0, 100
    while wait(quiet_period, (1, 10, size, size, size), now) > 0:
        now, size = now + 0.1, size + 1
    assert now == pytest.approx(10.0 + MAX_WAIT, abs=0.15)
    assert quiet_period.is_overdue(now)
    quiet_period.clear()
    assert wait(quiet_period, (1, 10, size, size, size), now) > 0  # it begins anew


# OPS-13
def test_all_wait_for_the_last_that_is_in_motion():
    quiet_period = QuietPeriod()
    renamed: Stamp = (1, 11, 100, 6, 7)
    assert quiet_period.remaining({"a": renamed, "b": (1, 12, 9, 6, 6)}, {"a": KNOWN}, 10.0) == pytest.approx(QUIET)


def test_nothing_changed_is_no_reason_to_wait():
    assert QuietPeriod().remaining({}, {"a": KNOWN}, 10.0) == 0.0
