"""How long a file that changed is waited for."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from xdsprism.sources.scan import Inode, Stamp
from xdsprism.sources.settling import LONGEST, QUIET, QUIET_LESS, Settling

KNOWN: Stamp = (1, 10, 100, 5, 5)  # device, inode, size, mtime, ctime


def wait(
    settling: Settling,
    stamp: Stamp | None,
    now: float,
    *,
    touched: Collection[Inode] = (),
    placed: Collection[Inode] = (),
) -> float:
    return settling.wait({"a": stamp}, {"a": KNOWN}, now, touched, placed)


# OPS-13
@pytest.mark.parametrize(
    ("stamp", "quiet"),
    [
        ((1, 10, 100, 6, 6), QUIET),  # written where it stands
        ((1, 10, 300, 6, 6), QUIET),
        ((1, 10, 99, 6, 6), QUIET_LESS),  # smaller than it was: perhaps only the beginning is written
        ((1, 10, 0, 6, 6), QUIET_LESS),
        (None, QUIET_LESS),  # gone: perhaps for a moment
        ((1, 11, 100, 6, 6), QUIET),  # made anew in its place, and written there
        ((1, 11, 99, 6, 7), 0.0),  # renamed into its place
        ((1, 10, 100, 6, 7), QUIET),  # the same file: a rename that came of nothing, or a chmod
    ],
)
def test_what_was_written_in_place_is_waited_for_and_what_was_renamed_is_not(stamp: Stamp | None, quiet: float):
    settling = Settling()
    assert wait(settling, stamp, 10.0) == pytest.approx(quiet)
    assert wait(settling, stamp, 10.0 + quiet) == pytest.approx(0.0)


# OPS-13
def test_a_new_file_is_waited_for_unless_it_was_renamed_into_its_place():
    assert Settling().wait({"a": (1, 10, 100, 6, 6)}, {}, 10.0, placed={(1, 10)}) == pytest.approx(QUIET)
    assert Settling().wait({"a": (1, 10, 100, 6, 7)}, {}, 10.0) == 0.0


# OPS-13
def test_a_file_that_took_the_place_of_another_was_renamed_also_where_its_stamp_does_not_tell():
    renamed: Stamp = (1, 11, 99, 6, 6)
    assert wait(Settling(), renamed, 10.0, placed={(1, 11)}) == 0.0


# OPS-13
@pytest.mark.parametrize("first", [None, (1, 11, 20, 6, 6)])
def test_a_file_that_was_removed_and_made_anew_was_not_renamed(first: Stamp | None):
    settling = Settling()
    wait(settling, first, 10.0)
    assert wait(settling, (1, 11, 99, 6, 6), 10.1, placed={(1, 11)}) == pytest.approx(QUIET_LESS)


# OPS-13
def test_each_further_write_begins_the_wait_anew_also_where_the_stamp_does_not_tell():
    settling = Settling()
    wait(settling, (1, 10, 200, 6, 6), 10.0)
    assert wait(settling, (1, 10, 300, 7, 7), 10.1) == pytest.approx(QUIET)
    assert wait(settling, (1, 10, 300, 7, 7), 10.2, touched={(1, 10)}) == pytest.approx(QUIET)
    assert wait(settling, (1, 10, 300, 7, 7), 10.3) == pytest.approx(QUIET - 0.1)


# OPS-13
def test_a_file_that_never_comes_to_rest_is_read_in_the_end():
    settling, now, size = Settling(), 10.0, 100
    while wait(settling, (1, 10, size, size, size), now) > 0:
        now, size = now + 0.1, size + 1
    assert now == pytest.approx(10.0 + LONGEST, abs=0.15)
    assert settling.is_overdue(now)
    settling.settle()
    assert wait(settling, (1, 10, size, size, size), now) > 0  # it begins anew


# OPS-13
def test_all_wait_for_the_last_that_is_in_motion():
    settling = Settling()
    renamed: Stamp = (1, 11, 100, 6, 7)
    assert settling.wait({"a": renamed, "b": (1, 12, 9, 6, 6)}, {"a": KNOWN}, 10.0) == pytest.approx(QUIET)


def test_nothing_changed_is_no_reason_to_wait():
    assert Settling().wait({}, {"a": KNOWN}, 10.0) == 0.0
