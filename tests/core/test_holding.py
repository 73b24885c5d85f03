"""Which changes are held back, and what a confirmation lets through."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from xdsprism.core.model.removal_guard import AT_LEAST, Guard, HeldBack, Loss
from xdsprism.core.model.types import CLUSTER, LISTENER


def loss(removed: int, of: int, type_url: str = CLUSTER) -> Loss:
    return Loss(type_url, tuple(f"c{n}" for n in range(removed)), of)


def judge(guard: Guard, *losses: Loss, left: int = 1, now: float = 0.0) -> HeldBack | None:
    return guard.judge(losses, left, now)


def held(guard: Guard, *losses: Loss, left: int = 1, now: float = 0.0) -> HeldBack:
    found = judge(guard, *losses, left=left, now=now)
    assert found is not None
    return found


# OPS-13
@pytest.mark.parametrize(
    ("removed", "of", "is_held"),
    [
        (36, 40, True),
        (21, 40, True),
        (20, 40, False),  # half is not more than half
        (AT_LEAST, AT_LEAST + 9, True),
        (AT_LEAST - 1, AT_LEAST - 1, False),  # all of a type, but few, and others are left
        (1, 1, False),
    ],
)
def test_more_than_half_of_a_type_is_held_back_if_it_is_not_a_few(removed: int, of: int, is_held: bool):
    assert (judge(Guard(), loss(removed, of)) is not None) == is_held


# OPS-13
@pytest.mark.parametrize("removed", [1, 9, 40])
def test_a_change_that_leaves_nothing_is_held_back_however_small(removed: int):
    found = held(Guard(), loss(removed, removed), left=0)
    assert found.reasons == (f"nothing would be left of {removed} resource{'s' if removed > 1 else ''}",)


# OPS-13
@pytest.mark.parametrize(("limit", "removed", "is_held"), [(90.0, 36, False), (89.9, 36, True), (0.0, 10, True)])
def test_the_limit_is_the_operators(limit: float, removed: int, is_held: bool):
    assert (judge(Guard(limit), loss(removed, 40)) is not None) == is_held


# OPS-13
def test_at_100_per_cent_no_change_is_too_large():
    assert judge(Guard(100.0), loss(40, 40)) is None
    assert judge(Guard(100.0), loss(40, 40), left=0) is None


# OPS-13
def test_each_type_counts_by_itself_and_all_that_would_go_is_shown():
    found = held(Guard(), loss(30, 40), loss(2, 4, LISTENER), left=100)
    assert found.reasons == ("30 of 40 cds would be removed, which is more than 50%",)
    assert found.summary == "30 of 40 cds, 2 of 4 lds"
    assert judge(Guard(), loss(20, 40), loss(2, 2, LISTENER), left=100) is None


# OPS-13
def test_a_place_that_vanished_is_held_back_whatever_it_held():
    found = Guard(100.0).judge([], 5, 0.0, ["conf"])
    assert found is not None
    assert (found.reasons, found.summary) == (("conf does not exist any more",), "no resources")


# OPS-13
def test_a_confirmation_lets_exactly_that_change_through_and_once():
    guard = Guard()
    guard.confirm(held(guard, loss(36, 40)).id)
    assert judge(guard, loss(36, 40)) is None
    assert guard.held is None
    assert judge(guard, loss(36, 40)) is not None  # the same again is another accident


# OPS-13
def test_a_confirmation_of_what_is_another_change_by_now_lets_nothing_through_then_or_later():
    guard = Guard()
    guard.confirm(held(guard, loss(36, 40)).id)
    assert judge(guard, loss(37, 40)) is not None
    assert judge(guard, loss(36, 40)) is not None


# OPS-13
def test_a_confirmation_while_nothing_can_be_judged_is_not_kept():
    guard = Guard()
    guard.confirm(held(guard, loss(36, 40)).id)
    guard.suspend()
    assert judge(guard, loss(36, 40)) is not None


# OPS-13
def test_a_change_that_removes_little_again_is_not_held_back_any_more():
    guard = Guard()
    held(guard, loss(36, 40))
    assert judge(guard, loss(5, 40)) is None
    assert guard.held is None


# OPS-13
def test_a_change_keeps_its_id_for_as_long_as_the_same_would_go_and_tells_since_when():
    guard = Guard()
    first = held(guard, loss(36, 40), now=1.0)
    assert held(guard, loss(36, 40), now=2.0) is first
    other = held(guard, loss(37, 40), now=3.0)
    assert other.id != first.id
    assert other.since == 1.0
    assert held(Guard(), loss(36, 40), now=9.0).id == first.id


# OPS-13
def test_the_id_tells_names_and_types_apart():
    changes: Mapping[str, list[Loss]] = {
        "one": [Loss(CLUSTER, ("ab", "c"), 2)],
        "two": [Loss(CLUSTER, ("a", "bc"), 2)],
        "three": [Loss(LISTENER, ("ab", "c"), 2)],
    }
    assert len({held(Guard(), *each, left=0).id for each in changes.values()}) == 3
