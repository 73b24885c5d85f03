"""Which variant answers which params, as a table: over all values that make a difference, and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from hypothesis import given

from tests.core.test_constraint_properties import EVERY_PARAMS, disjoint_families, variants_of
from xdsprism.core.model.cached import CachedSet, Finding
from xdsprism.core.model.constraints import TRUE, Constraint, Eq
from xdsprism.core.model.expr import parse
from xdsprism.core.model.matrix import MAX_CELLS, MAX_VALUES, Axis, Cell, Matrix, tabulate
from xdsprism.core.model.steps import finish
from xdsprism.core.model.types import Variant, make_variant
from xdsprism.core.model.variants import DisjointVariants


def variants(*constraints: str) -> DisjointVariants:
    return DisjointVariants.build([make_variant("t", "n", text.encode(), parse(text)) for text in constraints])


def cells(found: Matrix) -> dict[tuple[str | None, ...], Cell]:
    """The cells by their choices; None: the key is absent."""
    return dict(zip(product(*(axis.choices for axis in found.tabulated)), found.cells, strict=True))


def body(cell: Cell) -> str | None:
    return cell.variant.body.decode() if cell.variant is not None else None


def choice(axis: Axis, params: Mapping[str, str]) -> str | None:
    """Where params are on an axis."""
    value = params.get(axis.key)
    return value if value is None or value in axis.values else axis.other


def test_each_key_has_the_values_that_are_mentioned_any_other_and_absent() -> None:
    found = finish(tabulate(variants("env=prod", "env=test and tier=a"), {}))
    assert [(axis.key, axis.values, axis.other) for axis in found.axes] == [
        ("env", ("prod", "test"), "other"),
        ("tier", ("a",), "other"),
    ]
    assert {choices: body(cell) for choices, cell in cells(found).items() if body(cell)} == {
        **dict.fromkeys([("prod", tier) for tier in ("a", "other", None)], "env=prod"),
        ("test", "a"): "env=test and tier=a",
    }
    assert all(cell.is_known for cell in found.cells)


def test_the_other_value_is_none_that_is_mentioned() -> None:
    (axis,) = finish(tabulate(variants("env=other", "env=other-2"), {})).axes
    assert axis.other == "other-3"


def test_a_resource_for_everybody_is_one_cell() -> None:
    found = finish(tabulate(variants("true"), {}))
    assert (found.axes, [body(cell) for cell in found.cells]) == ((), ["true"])


@given(disjoint_families())
def test_every_client_gets_what_its_cell_says(family: list[Constraint]) -> None:
    known = DisjointVariants.build(variants_of(family))
    found = finish(tabulate(known, {}))
    assert not found.held
    by_choices = cells(found)
    for params in EVERY_PARAMS:
        assert by_choices[tuple(choice(axis, params) for axis in found.axes)].variant is known.select(params)


def test_keys_that_are_given_are_held() -> None:
    found = finish(tabulate(variants("env=prod", "env=test and tier=a"), {"env": "test", "team": "x"}))
    assert found.held == {"env": "test"}
    assert {key: body(cell) for key, cell in cells(found).items()} == {
        ("a",): "env=test and tier=a",
        ("other",): None,
        (None,): None,
    }


def test_beyond_the_largest_table_keys_that_few_mention_are_held_absent() -> None:
    keys = [f"k{number}" for number in range(12)]
    constraints = [
        " and ".join([f"{key}=x", *(f"not {each} exists" for each in keys[:at])]) for at, key in enumerate(keys)
    ]
    found = finish(tabulate(variants(*constraints), {}))
    assert len(found.axes) == 12
    assert len(found.cells) <= MAX_CELLS
    assert [axis.key for axis in found.tabulated] == keys[: len(found.tabulated)]  # the first are mentioned by most
    assert found.held == dict.fromkeys(keys[len(found.tabulated) :])
    assert body(cells(found)["x", *[None] * (len(found.tabulated) - 1)]) == "k0=x"
    last = finish(tabulate(variants(*constraints), {"k11": "x"}))
    assert body(cells(last)[(None,) * len(last.tabulated)]) == constraints[-1]


def test_values_beyond_the_bound_are_counted() -> None:
    many = [make_variant("t", "n", b"x", Eq("v", f"{number:05}")) for number in range(MAX_VALUES + 3)]
    found = finish(tabulate(DisjointVariants.build(many), {}))
    assert [(len(axis.values), axis.left_out) for axis in found.axes] == [(MAX_VALUES, 3)]
    assert len(found.cells) == MAX_VALUES + 2
    assert found.cells[-1].variant is found.cells[-2].variant is None


def test_a_cache_tells_what_does_not_exist_from_what_it_does_not_know() -> None:
    variant = make_variant("t", "n", b"p", parse("env=prod"))
    known = CachedSet([Finding(variant.constraint, variant), Finding(parse("env=test and zone=a"), None)])
    found = cells(finish(tabulate(known, {})))
    assert found["prod", "a"] == found["prod", None] == Cell(variant)
    assert found["test", "a"] == Cell(None)
    assert found["test", "other"] == found["other", "a"] == Cell(None, is_known=False)


def test_a_large_table_is_made_in_steps() -> None:
    many = [make_variant("t", "n", b"x", Eq("v", f"{number:03}")) for number in range(300)]
    steps = tabulate(DisjointVariants.build(many), {})
    assert sum(1 for _ in steps) >= 4


def test_a_variant_for_everybody_of_a_cache_has_no_axis() -> None:
    variant: Variant = make_variant("t", "n", b"p", TRUE)
    assert finish(tabulate(CachedSet([Finding(TRUE, variant)]), {})).cells == (Cell(variant),)
