from __future__ import annotations

import pytest

from xdsprism.core.model.constraints import TRUE, Constraint, matches
from xdsprism.core.model.decisions import Branch
from xdsprism.core.model.expr import parse, show
from xdsprism.core.model.types import Variant, make_variant
from xdsprism.core.model.variants import Clash, DisjointVariants, padded

TP2_TABLE = (
    "env!=prod and version!=v1",
    "env=prod and version!=v1",
    "env!=prod and version=v1",
    "env=prod and version=v1",
)


def variant(expr: str, aliases: tuple[str, ...] = ()) -> Variant:
    return make_variant("type.example/Thing", "main", expr.encode(), parse(expr), aliases=aliases)


def build(*exprs: str, budget: int = 200_000) -> DisjointVariants:
    return DisjointVariants.build([variant(expr) for expr in exprs], budget)


def clash(*exprs: str, budget: int = 200_000) -> Clash:
    with pytest.raises(Clash) as caught:
        build(*exprs, budget=budget)
    return caught.value


def chosen(variants: DisjointVariants, **params: str) -> str | None:
    found = variants.select(params)
    return found and show(found.constraint)


# DYN-35
@pytest.mark.parametrize(
    "exprs",
    [
        ("env=prod", "env=test"),
        ("env=prod and not version exists", "env=prod and version=v1"),
        TP2_TABLE,
        ("env exists", "not env exists"),
        ('env=""', 'env exists and env!=""', "not env exists"),
        ("env=prod and (zone exists or not zone exists)", "env=test and zone=a"),
    ],
)
def test_disjoint_variants_that_mention_the_same_keys_are_accepted(exprs: tuple[str, ...]) -> None:
    assert [show(item.constraint) for item in build(*exprs).variants] == [show(parse(expr)) for expr in exprs]


# DYN-33, DYN-36, DYN-37
@pytest.mark.parametrize(
    ("exprs", "witness", "text"),
    [
        (("env in (prod, test)", "env in (qa, test)"), {"env": "test"}, "both match env=test"),
        (("env!=prod", "env=test"), {"env": "test"}, "both match env=test"),
        (("true", "env=prod"), {"env": "prod"}, "both match env=prod"),
        (("env exists", "env=prod"), {"env": "prod"}, "both match env=prod"),
        (("true", "true"), {}, "both match every client"),
        (("not env exists", "env!=prod"), {}, "both match not env exists"),
        (("env!=prod", "env!=test"), {"env": "other"}, "both match env=other"),
        (("env!=other", "env!=prod"), {"env": "other-2"}, "both match env=other-2"),
        (
            ("env=prod", "env=test", "version=v1"),
            {"env": "prod", "version": "v1"},
            "both match env=prod and version=v1",
        ),
        (("a=1 and not b exists", "a!=2 and b!=2"), {"a": "1"}, "both match a=1 and not b exists"),
    ],
)
def test_an_overlap_is_refused_with_params_that_match_both(
    exprs: tuple[str, ...], witness: dict[str, str], text: str
) -> None:
    found = clash(*exprs)
    assert found.witness == witness
    assert matches(found.first.constraint, witness)
    assert matches(found.second.constraint, witness)
    assert found.first is not found.second
    assert found.message == f"{text}: `{show(found.first.constraint)}` and `{show(found.second.constraint)}`"


# DYN-33
def test_one_variant_given_twice_is_an_overlap() -> None:
    same = variant("env=prod")
    with pytest.raises(Clash, match="both match env=prod"):
        DisjointVariants.build([same, same])


# DYN-33
def test_the_one_overlap_among_many_variants_is_found() -> None:
    found = clash(*[f"env=v{number}" for number in range(500)], "env in (v250, w)")
    assert found.witness == {"env": "v250"}
    assert [show(item.constraint) for item in (found.first, found.second)] == ["env=v250", "env in (v250, w)"]


# DYN-34
def test_variants_that_mention_different_keys_are_padded_and_mean_what_they_meant() -> None:
    given = [variant(text) for text in ("env=prod and zone=a", "env=test and version=v1", "env=qa")]
    whole = padded(given)
    assert [show(each.constraint) for each in whole] == [
        "env=prod and zone=a and (version exists or not version exists)",
        "env=test and version=v1 and (zone exists or not zone exists)",
        "env=qa and (version exists or not version exists) and (zone exists or not zone exists)",
    ]
    assert [show(each.shown) for each in whole] == [show(each.constraint) for each in given]
    found = DisjointVariants.build(whole)
    assert found.keys == ("env", "version", "zone")
    assert found.select({"env": "qa", "zone": "b"}) is whole[2]


# DYN-34
def test_a_variant_that_mentions_all_keys_is_not_padded() -> None:
    given = [variant("env=prod and (zone exists or not zone exists)"), variant("env=test and zone=a")]
    assert all(one is other for one, other in zip(given, padded(given), strict=True))
    alone = [variant("env=prod")]
    assert padded(alone)[0] is alone[0]


# DYN-34: the same set gives the same versions on every replica, whatever the order
def test_versions_of_padded_variants_do_not_depend_on_the_order() -> None:
    given = [variant(text) for text in ("env=prod and zone=a", "env=test and version=v1", "env=qa")]
    forward, backward = padded(given), padded(given[::-1])
    assert [each.version for each in forward] == [each.version for each in backward][::-1]
    assert padded(forward) == forward


# DYN-8, DYN-34
def test_a_variant_that_padding_would_make_too_large_is_refused_with_what_was_to_be_added() -> None:
    deep = "not " * 30 + "(a=1 or b=1)"
    with pytest.raises(Clash, match=r"too large once it mentions what other variants do \(c\): .* more than 32 deep"):
        padded([variant(deep), variant("a!=1 and b!=1 and c=1")])


def test_a_huge_expression_does_not_make_a_huge_message() -> None:
    found = clash(f"env in ({', '.join(f'v{number}' for number in range(2000))})", "env=v7")
    assert "both match env=v7" in found.message
    assert len(found.message) < 500


# DYN-39
def test_variants_that_take_too_many_steps_to_compare_are_refused() -> None:
    pigeons, holes = 9, 8  # the classic that no branching solver likes
    placed = [" or ".join(f"p{p}h{h} exists" for h in range(holes)) for p in range(pigeons)]
    alone = [
        f"not (p{p}h{h} exists and p{q}h{h} exists)" for h in range(holes) for p in range(pigeons) for q in range(p)
    ]
    exprs = f"({') and ('.join(placed)})", " and ".join(alone)
    found = clash(*exprs, budget=2_000)
    assert found.message == "too complex to prove disjoint: gave up after 2,000 steps"


# DYN-39
def test_a_single_variant_has_a_budget_too() -> None:
    expr = " and ".join(f"(a{number}=1 or b{number}=1)" for number in range(40))
    found = clash(expr, budget=100)
    assert "too complex" in found.message
    assert found.first is found.second


# DYN-39: a thousand values move with one dictionary update, but a budget that ignores them would bound no memory.
def test_the_budget_counts_values_that_are_only_copied() -> None:
    one, two = (", ".join(f"{side}{number}" for number in range(1000)) for side in "vw")
    assert "too complex" in clash(f"env in ({one}) or env in ({two})", budget=100).message
    assert build(f"env in ({one}) or env in ({two})", budget=10_000).select({"env": "w7"}) is not None


# DYN-39
def test_more_keys_than_can_be_walked_are_refused() -> None:
    found = clash(" and ".join(f"k{number}=1" for number in range(129)))
    assert found.message == "too complex to prove disjoint: 129 keys are mentioned, at most 128 can be handled"
    assert build(" and ".join(f"k{number}=1" for number in range(128))).keys[-1] == "k99"


# DYN-1, DYN-5, DYN-10
def test_select_finds_the_variant_that_matches() -> None:
    variants = build(*TP2_TABLE)
    assert chosen(variants) == "env!=prod and version!=v1"
    assert chosen(variants, env="prod") == "env=prod and version!=v1"
    assert chosen(variants, env="test", version="v1", zone="a") == "env!=prod and version=v1"
    assert chosen(variants, env="prod", version="v1") == "env=prod and version=v1"
    assert chosen(build("env=prod", "env=test"), env="qa") is None


# DYN-4
def test_a_single_unconstrained_variant_matches_everybody() -> None:
    variants = build("true")
    assert variants.select({}) is variants.variants[0]
    assert variants.select({"env": "prod"}) is variants.variants[0]
    assert variants.keys == ()


# DYN-6, DYN-7
def test_select_tells_absent_from_empty() -> None:
    variants = build('env=""', "not env exists")
    assert chosen(variants) == "not env exists"
    assert chosen(variants, env="") == 'env=""'


# DYN-39: the cost of a lookup is the number of keys on the way, which no number of variants changes.
@pytest.mark.parametrize("count", [2, 2_000])
def test_select_looks_at_each_key_once_whatever_the_number_of_variants(count: int) -> None:
    class Counting(dict[str, str]):
        reads = 0

        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            self.reads += 1
            return super().get(key, default)  # type: ignore[call-overload]

    variants = build(*[f"env=v{number} and zone exists" for number in range(count)])
    params = Counting(env="v1", zone="a", version="v1")
    found = variants.select(params)
    assert found is variants.variants[1]
    assert params.reads == 2


# DYN-39: what one shared diagram is for. Pair by pair this would be two million comparisons.
@pytest.mark.parametrize(
    "exprs",
    [
        [f"env=v{number}" for number in range(2_000)],
        [f"a=v{a} and b=w{b}" for a in range(40) for b in range(50)],
        [f"env!=v{number} and tenant=t{number}" for number in range(1_000)],
        [f"tenant=t{number} and env!=v{number}" for number in range(1_000)],
    ],
)
def test_thousands_of_disjoint_variants_take_few_steps(exprs: list[str]) -> None:
    variants = build(*exprs, budget=30_000)
    assert len(variants.variants) == len(exprs)


# DYN-11
def test_a_negative_answer_pins_each_mentioned_key() -> None:
    variants = build("env=prod and version=v1", "env=test and version=v1")
    assert show(variants.negative({"env": "qa", "zone": "a"})) == "env=qa and not version exists"
    assert show(variants.negative({})) == "not env exists and not version exists"
    assert show(build("env=prod").negative({"env": ""})) == 'env=""'


# DYN-11
def test_with_no_variants_at_all_the_negative_answer_has_no_constraints() -> None:
    variants = build()
    assert variants.negative({"env": "qa"}) == TRUE
    assert variants.select({"env": "qa"}) is None
    assert variants.gaps(10) == [{}]


def test_gaps_are_params_that_no_variant_covers() -> None:
    assert build("env=prod", "env=test").gaps(10) == [{"env": "other"}, {}]
    assert build("env=prod", "env=test").gaps(1) == [{"env": "other"}]
    assert build(*TP2_TABLE).gaps(10) == []
    assert build("true").gaps(10) == []
    assert build("env!=other").gaps(10) == [{"env": "other"}]
    assert build("env=prod and version!=v1").gaps(2) == [{"env": "prod", "version": "v1"}, {"env": "other"}]


# Ways to a gap may be many millions; the limit must not mean to list them all first.
def test_gaps_stop_at_the_limit() -> None:
    variants = build(" and ".join(f"(a{number}=1 or b{number}=1 or c{number}=1)" for number in range(20)))
    gaps = variants.gaps(7)
    assert len(gaps) == 7
    assert all(variants.select(gap) is None for gap in gaps)


# ... and ways that lead to no gap may be many too: here 2**30 before the one that does.
def test_gaps_do_not_search_where_there_are_none() -> None:
    many = " and ".join(f"(a{number}=1 or b{number}=1)" for number in range(30))
    assert build(f"zone exists and {many}", f"zone exists and not ({many})").gaps(3) == [{}]


def test_explain_says_which_and_why_not_the_others() -> None:
    variants = build("env=prod and version!=v1", "env=prod and version=v1", "env!=prod and version exists")
    explanation = variants.explain({"env": "prod", "version": "v1"})
    assert explanation.chosen is variants.variants[1]
    reasons: list[tuple[Variant, Constraint]] = list(explanation.refused)
    assert [(item, show(reason)) for item, reason in reasons] == [
        (variants.variants[0], "version!=v1"),
        (variants.variants[2], "env!=prod"),
    ]
    assert variants.explain({}).chosen is None
    assert len(variants.explain({}).refused) == 3


def test_keys_and_aliases_are_those_of_all_variants() -> None:
    variants = DisjointVariants.build([variant("b=1 and a=1", ("x", "y")), variant("b=2 and a=1", ("y", "z"))])
    assert variants.keys == ("a", "b")
    assert variants.aliases == {"x", "y", "z"}
    assert build("env=prod").aliases == frozenset()


# 10,000 resources that don't vary are the common case: nothing is kept for them but the variant.
def test_an_unconstrained_variant_is_its_own_index() -> None:
    variants = build("true")
    assert variants._index is variants.variants[0]  # noqa: SLF001 # 10,000 resources that don't vary are the common case: their size
    assert not hasattr(variants, "__dict__")
    assert isinstance(build("env=prod")._index, Branch)  # noqa: SLF001 # as above


def test_a_variant_set_shows_its_constraints() -> None:
    assert repr(build("env=prod", "env=test")) == "DisjointVariants(env=prod, env=test)"
