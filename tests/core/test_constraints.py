from __future__ import annotations

import pytest

from xdsprism.core.model.constraints import (
    FALSE,
    TRUE,
    All,
    AnyOf,
    Constraint,
    Eq,
    Exists,
    Not,
    atoms,
    canonical,
    check_limits,
    failing,
    keys,
    matches,
    mentioning,
    unpadded,
)
from xdsprism.errors import UsageError

PROD = Eq("env", "prod")
V1 = Eq("version", "v1")


# DYN-6
@pytest.mark.parametrize(
    ("constraint", "holds"),
    [(PROD, False), (Exists("env"), False), (Not(Exists("env")), True), (Not(PROD), True)],
)
def test_an_absent_key_equals_nothing_and_does_not_exist(constraint: Constraint, holds: bool) -> None:
    assert matches(constraint, {"other": "prod"}) is holds


# DYN-7
@pytest.mark.parametrize("value", ["", "prod", "anything"])
def test_exists_holds_for_any_present_value_the_empty_string_included(value: str) -> None:
    assert matches(Exists("env"), {"env": value})


# DYN-7
@pytest.mark.parametrize("value", ["Prod", "PROD", "prod ", "", "pro\N{LATIN SMALL LETTER D WITH STROKE}"])
def test_values_are_compared_exactly(value: str) -> None:
    assert not matches(PROD, {"env": value})
    assert not matches(PROD, {"Env": "prod"})
    assert matches(Eq("env", value), {"env": value})


# DYN-9
def test_an_empty_and_is_true_and_an_empty_or_is_false() -> None:
    assert matches(All(()), {})
    assert not matches(AnyOf(()), {"env": "prod"})


# DYN-4, DYN-5
def test_params_that_are_not_mentioned_do_not_prevent_a_match() -> None:
    assert matches(TRUE, {"env": "prod", "zone": "a"})
    assert matches(PROD, {"env": "prod", "zone": "a"})


# DYN-8
def test_and_or_and_not_can_be_nested() -> None:
    constraint = Not(AnyOf((All((PROD, Not(V1))), Exists("zone"))))
    assert matches(constraint, {"env": "prod", "version": "v1"})
    assert not matches(constraint, {"env": "prod", "version": "v2"})
    assert not matches(constraint, {"env": "prod", "version": "v1", "zone": ""})


# DYN-34
def test_keys_are_those_that_are_written_even_if_they_make_no_difference() -> None:
    idle = AnyOf((Exists("zone"), Not(Exists("zone"))))
    assert keys(All((PROD, Not(V1), idle))) == {"env", "version", "zone"}
    assert keys(TRUE) == frozenset()


def test_atoms_come_in_the_order_written() -> None:
    assert list(atoms(All((V1, Not(AnyOf((PROD, Exists("zone")))))))) == [V1, PROD, Exists("zone")]


# DYN-30
@pytest.mark.parametrize(
    ("one", "same"),
    [
        (Not(Not(PROD)), PROD),
        (All((PROD, V1)), All((V1, PROD))),
        (AnyOf((PROD, V1)), AnyOf((V1, PROD, V1))),
        (All((PROD, All((V1, Exists("zone"))))), All((All((Exists("zone"), PROD)), V1))),
        (AnyOf((AnyOf((PROD,)), V1)), AnyOf((PROD, V1))),
        (All((PROD,)), PROD),
        (Not(Not(Not(AnyOf((PROD,))))), Not(PROD)),
        (Not(TRUE), FALSE),
        (Not(FALSE), TRUE),
        (All((PROD, TRUE)), PROD),
        (AnyOf((PROD, FALSE)), PROD),
    ],
)
def test_constraints_that_differ_only_in_form_are_the_same(one: Constraint, same: Constraint) -> None:
    assert canonical(one) == canonical(same)


# DYN-30, DYN-34
def test_the_canonical_form_tells_different_constraints_apart_and_keeps_their_keys() -> None:
    assert canonical(All((PROD, V1))) != canonical(AnyOf((PROD, V1)))
    assert canonical(PROD) != canonical(Not(PROD))
    idle = AnyOf((Exists("zone"), Not(Exists("zone"))))
    assert keys(canonical(All((PROD, idle)))) == {"env", "zone"}


# DYN-31: versions are hashes of this text, so it must not depend on the process, the order or the hash seed.
def test_the_canonical_form_reads_the_same_in_every_process() -> None:
    shuffled = AnyOf((Not(V1), Exists("b"), All((Eq("z", "1"), Eq("a", "2"))), Eq("b", "2"), Exists("a"), Eq("b", "1")))
    assert repr(canonical(shuffled)) == (
        "AnyOf(items=(Eq(key='b', value='1'), Eq(key='b', value='2'), Exists(key='a'), Exists(key='b'),"
        " Not(item=Eq(key='version', value='v1')), All(items=(Eq(key='a', value='2'), Eq(key='z', value='1')))))"
    )


def nested(depth: int) -> Constraint:
    constraint: Constraint = PROD
    for _ in range(depth - 1):
        constraint = Not(constraint)
    return constraint


# DYN-8
@pytest.mark.parametrize("constraint", [TRUE, Eq("env", "prod"), All((Eq("env", "prod"), Eq("zone", "a")))])
def test_constraints_are_shown_as_written_without_the_keys_that_other_variants_mention(constraint: Constraint) -> None:
    # DYN-34
    padded = mentioning(constraint, ["pod", "version"])
    assert keys(padded) == keys(constraint) | {"pod", "version"}
    assert unpadded(padded) == constraint


def test_nesting_is_limited() -> None:
    check_limits(nested(32))
    with pytest.raises(UsageError, match="nested more than 32 deep"):
        check_limits(nested(33))
    with pytest.raises(UsageError, match="nested more than 32 deep"):
        check_limits(nested(100_000))


# DYN-8
def test_size_is_limited() -> None:
    check_limits(AnyOf(tuple(Eq("env", str(number)) for number in range(4095))))
    with pytest.raises(UsageError, match="more than 4,096 parts"):
        check_limits(AnyOf(tuple(Eq("env", str(number)) for number in range(4096))))
    twice: Constraint = PROD
    for _ in range(30):
        twice = All((twice, twice))  # few objects, a thousand million parts
    with pytest.raises(UsageError, match="more than 4,096 parts"):
        check_limits(twice)


# DYN-9
@pytest.mark.parametrize("constraint", [Eq("", "x"), Exists(""), Not(All((PROD, Exists(""))))])
def test_an_empty_key_is_refused(constraint: Constraint) -> None:
    with pytest.raises(UsageError, match="empty key"):
        check_limits(constraint)


def test_an_empty_value_is_fine() -> None:
    check_limits(Eq("env", ""))


@pytest.mark.parametrize(
    ("constraint", "blamed"),
    [
        (All((Exists("env"), V1)), V1),
        (All((PROD, All((Exists("env"), V1)))), PROD),
        (AnyOf((PROD, V1)), AnyOf((PROD, V1))),
        (AnyOf((All((Exists("env"), V1)),)), V1),
        (Not(AnyOf((PROD, Eq("env", "test")))), Not(Eq("env", "test"))),
        (Not(Not(All((Exists("env"), V1)))), V1),
        (Not(All((Exists("env"), Eq("env", "test")))), Not(All((Exists("env"), Eq("env", "test"))))),
        (FALSE, FALSE),
    ],
)
def test_the_part_to_blame_is_as_small_as_it_can_be(constraint: Constraint, blamed: Constraint) -> None:
    assert failing(constraint, {"env": "test"}) == blamed
