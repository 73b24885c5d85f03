"""Random constraints, families of variants and templates against oracles that try everything.

The oracles know nothing of decision diagrams: they evaluate, for every params over a small domain. The domain has
for each key: absent, the values that constraints may mention, and one that none mentions. That is all that a
constraint can tell apart (DYN-39), so what holds here holds for all params.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xdsprism.core.model.constraints import (
    MAX_DEPTH,
    All,
    AnyOf,
    Constraint,
    Eq,
    Exists,
    Not,
    canonical,
    check_limits,
    failing,
    keys,
    matches,
)
from xdsprism.core.model.decisions import Decisions, expression, lookup, mean_the_same
from xdsprism.core.model.expr import KEYWORDS, parse, show
from xdsprism.core.model.template import compile_template
from xdsprism.core.model.types import Variant, make_variant
from xdsprism.core.model.variants import Clash, DisjointVariants, padded
from xdsprism.errors import UsageError

KEYS = ("a", "b", "c")
VALUES = ("x", "y", "other")  # "other" is what a witness would be called if it weren't taken
ELSEWHERE = "unmentioned"

EVERY_PARAMS: list[dict[str, str]] = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in product((None, *VALUES, ELSEWHERE), repeat=len(KEYS))
]


def constraints(key: st.SearchStrategy[str], value: st.SearchStrategy[str]) -> st.SearchStrategy[Constraint]:
    def deeper(inner: st.SearchStrategy[Constraint]) -> st.SearchStrategy[Constraint]:
        several = st.lists(inner, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(All, several) | st.builds(AnyOf, several)

    return st.recursive(st.builds(Eq, key, value) | st.builds(Exists, key), deeper, max_leaves=8)


SMALL = constraints(st.sampled_from(KEYS), st.sampled_from(VALUES))
WORDS = st.text(max_size=5) | st.sampled_from(sorted(KEYWORDS)) | st.from_regex(r"[a-z0-9_./:@*-]{1,6}", fullmatch=True)
ANY = constraints(WORDS.filter(bool), WORDS)


def idle(key: str) -> Constraint:
    return AnyOf((Exists(key), Not(Exists(key))))


def mentioning_all(constraint: Constraint) -> Constraint:
    return All((constraint, *map(idle, KEYS)))


def variants_of(family: list[Constraint]) -> list[Variant]:
    return [make_variant("t", "n", b"%d" % index, mentioning_all(item)) for index, item in enumerate(family)]


@st.composite
def disjoint_families(draw: st.DrawFn) -> list[Constraint]:
    """Each takes what those before it have left; some of it stays uncovered, mostly."""
    drawn = draw(st.lists(SMALL, min_size=1, max_size=5))
    return [All((item, *map(Not, drawn[:index]))) for index, item in enumerate(drawn)]


def same(one: Constraint, other: Constraint) -> bool:
    return all(matches(one, params) == matches(other, params) for params in EVERY_PARAMS)


# ---- text


@given(ANY)
def test_printing_then_parsing_gives_the_same_constraint(constraint: Constraint) -> None:
    assert canonical(parse(show(constraint))) == canonical(constraint)


# DYN-8: what may be sent may be written.
@given(
    st.lists(st.sampled_from([Not, lambda item: All((item, Exists("a"))), lambda item: AnyOf((item,))]), max_size=40)
)
def test_constraints_within_the_limits_can_be_printed_and_parsed(wraps: list[Any]) -> None:
    constraint: Constraint = Eq("b", "x")
    for wrap in wraps[: MAX_DEPTH - 1]:
        constraint = wrap(constraint)
    check_limits(constraint)
    assert canonical(parse(show(constraint))) == canonical(constraint)


@given(st.text(alphabet="ab=!(),\" \\andortue'", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        constraint = parse(text)
    except UsageError:
        return
    assert canonical(parse(show(constraint))) == canonical(constraint)


# ---- form: DYN-30


@given(SMALL)
def test_the_canonical_form_means_the_same(constraint: Constraint) -> None:
    assert same(constraint, canonical(constraint))
    assert canonical(canonical(constraint)) == canonical(constraint)
    assert keys(canonical(constraint)) == keys(constraint)


@given(SMALL, SMALL)
def test_equal_canonical_forms_mean_equal_constraints(one: Constraint, other: Constraint) -> None:
    if canonical(one) == canonical(other):
        assert same(one, other)
    if not same(one, other):
        assert canonical(one) != canonical(other)


def rewritten(draw: st.DrawFn, constraint: Constraint) -> Constraint:
    """The same in another form: shuffled, repeated, nested, with double nots."""
    match constraint:
        case Not(item):
            result: Constraint = Not(rewritten(draw, item))
        case All(items) | AnyOf(items):
            again = [rewritten(draw, item) for item in items]
            again += draw(st.lists(st.sampled_from(again), max_size=2)) if again else []
            shuffled = draw(st.permutations(again))
            cut = draw(st.integers(0, len(shuffled)))
            form = type(constraint)
            result = form((*shuffled[:cut], form(tuple(shuffled[cut:]))))
        case _:
            result = constraint
    return Not(Not(result)) if draw(st.booleans()) else result


@given(SMALL, st.data())
def test_a_difference_in_form_alone_is_no_difference(constraint: Constraint, data: st.DataObject) -> None:
    assert canonical(rewritten(data.draw, constraint)) == canonical(constraint)


@given(SMALL, st.sampled_from(EVERY_PARAMS))
def test_the_part_to_blame_does_not_match(constraint: Constraint, params: dict[str, str]) -> None:
    assume(not matches(constraint, params))
    blamed = failing(constraint, params)
    assert not matches(blamed, params)
    assert keys(blamed) <= keys(constraint)


# ---- diagrams: DYN-39


@given(SMALL, st.permutations(KEYS))
def test_a_diagram_decides_as_its_constraint_does(constraint: Constraint, order: list[str]) -> None:
    node = Decisions(order).constraint(constraint)
    for params in EVERY_PARAMS:
        assert lookup(node, params) is matches(constraint, params)


@given(SMALL, SMALL)
def test_constraints_that_mean_the_same_have_one_diagram(one: Constraint, other: Constraint) -> None:
    decisions = Decisions(KEYS)
    assert (decisions.constraint(one) is decisions.constraint(other)) == same(one, other)


@given(SMALL, st.permutations(KEYS))
def test_a_diagram_turns_back_into_a_constraint_that_means_the_same(constraint: Constraint, order: list[str]) -> None:
    assert same(expression(Decisions(order).constraint(constraint)), constraint)


# ---- families: DYN-33 to DYN-39, DYN-11


@given(st.lists(SMALL, min_size=1, max_size=4))
def test_variants_are_refused_exactly_if_some_params_match_two(family: list[Constraint]) -> None:
    overlapping = any(
        matches(one, params) and matches(other, params)
        for one, other in combinations(family, 2)
        for params in EVERY_PARAMS
    )
    variants = variants_of(family)
    if not overlapping:
        assert DisjointVariants.build(variants).variants == tuple(variants)
        return
    with pytest.raises(Clash) as caught:
        DisjointVariants.build(variants)
    clash = caught.value
    assert clash.first is not clash.second
    assert {clash.first, clash.second} <= set(variants)
    assert matches(clash.first.constraint, clash.witness)
    assert matches(clash.second.constraint, clash.witness)


@given(disjoint_families())
def test_select_finds_what_trying_each_variant_finds(family: list[Constraint]) -> None:
    variants = DisjointVariants.build(variants_of(family))
    for params in EVERY_PARAMS:
        matching = [variant for variant in variants.variants if matches(variant.constraint, params)]
        assert [variants.select(params)] == (matching or [None])


@given(disjoint_families())
def test_a_negative_answer_covers_its_client_and_nobody_who_has_a_variant(family: list[Constraint]) -> None:
    variants = DisjointVariants.build(variants_of(family))
    covered = [params for params in EVERY_PARAMS if variants.select(params)]
    for params in EVERY_PARAMS:
        if variants.select(params) is None:
            negative = variants.negative(params)
            assert matches(negative, params)
            assert not any(matches(negative, other) for other in covered)


@given(disjoint_families())
def test_gaps_are_found_exactly_if_there_are_any(family: list[Constraint]) -> None:
    variants = DisjointVariants.build(variants_of(family))
    gaps = variants.gaps(1000)
    assert all(not any(matches(item, gap) for item in family) for gap in gaps)
    assert bool(gaps) == any(variants.select(params) is None for params in EVERY_PARAMS)
    assert len({tuple(sorted(gap.items())) for gap in gaps}) == len(gaps)
    assert variants.gaps(1) == gaps[:1]


@given(disjoint_families(), st.sampled_from(EVERY_PARAMS))
def test_an_explanation_accounts_for_every_variant(family: list[Constraint], params: dict[str, str]) -> None:
    variants = DisjointVariants.build(variants_of(family))
    explanation = variants.explain(params)
    assert explanation.chosen is variants.select(params)
    accounted = [
        *([explanation.chosen] if explanation.chosen else []),
        *(variant for variant, _ in explanation.refused),
    ]
    assert set(accounted) == set(variants.variants)
    assert not any(matches(reason, params) for _, reason in explanation.refused)


# DYN-34
@given(st.lists(SMALL, min_size=1, max_size=4), st.sampled_from(EVERY_PARAMS), st.randoms(use_true_random=False))
def test_padding_adds_keys_and_changes_no_meaning(
    family: list[Constraint], params: dict[str, str], shuffle: Random
) -> None:
    given_as = [make_variant("t", "n", b"%d" % index, item) for index, item in enumerate(family)]
    whole = padded(given_as)
    assert len({keys(each.constraint) for each in whole}) == 1
    assert [matches(each.constraint, params) for each in whole] == [matches(item, params) for item in family]
    assert [each.stated for each in whole] == family
    assert padded(whole) == whole
    mixed = shuffle.sample(given_as, len(given_as))
    assert {each.body: each.version for each in padded(mixed)} == {each.body: each.version for each in whole}
    assert [each.version for each in padded([whole[0]])] == [given_as[0].version]


# ---- templates

ABSENT = object()
EXPRS = constraints(st.sampled_from(KEYS), st.sampled_from(VALUES[:2])).map(show)


def optional(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda when, fields: {"$when": when, **fields}, EXPRS, mappings(inner))


def match(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hits = st.lists(st.fixed_dictionaries({"when": EXPRS, "value": inner}), min_size=1, max_size=3)
    default = st.lists(st.fixed_dictionaries({"value": inner}), max_size=1)
    return st.builds(lambda some, last: {"$match": [*some, *last]}, hits, default)


def mappings(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["p", "q"]), inner, max_size=2)


def lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(optional(inner) | match(inner) | inner, max_size=3)


PARTS = st.recursive(
    st.sampled_from(["s", "t", None]), lambda inner: lists(inner) | match(inner) | mappings(inner), max_leaves=4
)
BODIES = st.fixed_dictionaries({"x": lists(PARTS), "y": match(PARTS)})
ROOTS = BODIES | st.builds(lambda when, body: {"$when": when, **body}, EXPRS, BODIES)


condition = cache(parse)


def evaluate(item: Any, params: dict[str, str]) -> Any:
    """What a template means, said in the plainest way."""
    if isinstance(item, list):
        return [value for value in (evaluate(element, params) for element in item) if value is not ABSENT]
    if not isinstance(item, dict):
        return item
    if "$match" in item:
        hits = (entry["value"] for entry in item["$match"] if matches(condition(entry.get("when", "true")), params))
        return evaluate(next(hits, ABSENT), params)
    if not matches(condition(item.get("$when", "true")), params):
        return ABSENT
    fields = {key: evaluate(value, params) for key, value in item.items() if key != "$when"}
    return {key: value for key, value in fields.items() if value is not ABSENT}


def contents(document: Any) -> list[tuple[dict[str, str], str | None]]:
    values = [(params, evaluate(document, params)) for params in EVERY_PARAMS]
    return [(params, None if value is ABSENT else json.dumps(value, sort_keys=True)) for params, value in values]


# DESIGN 3: the fewest variants with distinct contents, disjoint, and all mention the same keys. DYN-33, DYN-34.
@given(ROOTS)
def test_a_template_compiles_to_the_fewest_variants_and_to_the_right_ones(document: Any) -> None:
    expected = contents(document)
    distinct = {content for _, content in expected if content is not None}
    assume(distinct)
    compiled = {json.dumps(item.content, sort_keys=True): item.constraint for item in compile_template(document)}
    assert compiled.keys() == distinct
    assert len(compile_template(document)) == len(distinct)
    assert len(set(map(keys, compiled.values()))) == 1
    for params, content in expected:
        found = [text for text, constraint in compiled.items() if matches(constraint, params)]
        assert found == ([] if content is None else [content])
    DisjointVariants.build([make_variant("t", "n", text.encode(), constraint) for text, constraint in compiled.items()])


@given(one=SMALL, other=SMALL)
def test_constraints_mean_the_same_if_they_match_the_same_params(one, other):  # DYN-30
    assert mean_the_same(one, other) == all(matches(one, params) == matches(other, params) for params in EVERY_PARAMS)
    assert mean_the_same(one, Not(AnyOf((Not(one), Not(one)))))
    assert mean_the_same(one, All((one, AnyOf((Exists("d"), Not(Exists("d")))))))
