"""What a cache knows of one name, and which clients may get it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xdsprism.core.model.cache_knowledge import cache_table
from xdsprism.core.model.cached import CachedSet, Finding
from xdsprism.core.model.constraints import TRUE
from xdsprism.core.model.expr import parse
from xdsprism.core.model.types import CLUSTER, NO_PARAMS, Change, Params, TypeSpec, Variant, make_variant
from xdsprism.core.relay.audience import Audience

PROD, TEST, PROD1 = Params({"env": "prod"}), Params({"env": "test"}), Params({"env": "prod", "v": "1"})


def found(when: str, mark: str | None = "x", *, stale: bool = False, only: Params | None = None) -> Finding:
    constraint = parse(when)
    variant = make_variant(CLUSTER, "a", mark.encode(), constraint) if mark is not None else None
    return Finding(constraint, variant, stale=stale, only=only)


def mark(known: CachedSet, params: Params) -> str | None:
    variant: Variant | None = known.select(params)
    return variant.body.decode() if variant is not None else None


def test_constraints_select_for_params_without_a_subscription():
    # PRX-4
    known = CachedSet([found("env=prod", "p"), found("env=test", "t")])
    assert (mark(known, PROD), mark(known, PROD1), mark(known, TEST)) == ("p", "p", "t")
    assert not known.knows(NO_PARAMS)  # which is not the same as nothing being there


def test_a_negative_answer_is_for_its_pinned_params():
    # PRX-4, DYN-11
    known = CachedSet([found("env=prod", "p"), found("env=test", None)])
    assert known.knows(TEST)
    assert known.select(TEST) is None
    assert known.negative(TEST) == parse("env=test")
    assert not known.knows(NO_PARAMS)


def test_the_newest_of_two_overlapping_findings_wins_unless_it_is_stale():
    # PRX-8, DYN-45
    newer, older = found("env=prod and v=1", "new"), found("env=prod", "old")
    assert mark(CachedSet([newer, older]), PROD1) == "new"
    assert mark(CachedSet([older, newer]), PROD1) == "old"
    stale = found("env=prod and v=1", "new", stale=True)
    assert mark(CachedSet([stale, older]), PROD1) == "old"


def test_a_stale_finding_is_served_where_no_newer_one_matches():
    # PRX-28
    known = CachedSet([found("env=prod", "old", stale=True), found("env=test", "t")])
    assert mark(known, PROD) == "old"


def test_a_removed_finding_is_selected_for_nobody():
    # PRX-38, PRX-5: who has it keeps it, since nothing is known that would replace it
    removed = replace(found("env=prod", "old", stale=True), removed=True)
    known = CachedSet([removed, found("env=test", "t")])
    assert (mark(known, PROD), known.knows(PROD)) == (None, False)
    assert known.find(PROD) is known.findings[1]


def test_a_negative_finding_for_certain_params_is_for_no_others():
    # PRX-5: a variant was removed; whoever had it has nothing, and of the others nothing is known
    known = CachedSet([found("env=prod", None, only=PROD)])
    assert known.knows(PROD)
    assert not known.knows(PROD1)
    assert known.negative(PROD) == parse("env=prod")


@pytest.mark.parametrize("wildcard", ["*", "xdstp://x/T/*"])
def test_a_wildcard_with_like_params_does_not_see_what_is_only_for_others(wildcard: str):
    # PRX-5, XTP-3
    name = "xdstp://x/T/a"
    table = cache_table(TypeSpec(CLUSTER))
    own = CachedSet([found("env=prod", "mine", only=PROD)])
    table.commit(Change(1, CLUSTER, name, None, own))
    table.drop_shared_views()
    listing = table.listing(wildcard)
    assert [each.body for each in listing.snapshot(PROD).variants] == [b"mine"]
    assert listing.snapshot(PROD1).variants == ()
    shared = CachedSet([found("env=prod", "ours")])
    table.commit(Change(2, CLUSTER, name, own, shared))
    table.drop_shared_views()
    assert listing.snapshot(PROD1).variants == listing.snapshot(PROD).variants != ()


def test_an_answer_without_constraints_makes_one_class_of_all_clients():
    known = CachedSet([found("true", "all")])
    assert (known.keys, known.findings[0].constraint) == ((), TRUE)
    assert mark(known, PROD1) == "all"


def test_a_stale_finding_is_no_member_of_a_wildcard():
    # PRX-5
    known, doubtful = CachedSet([found("true", "old")]), CachedSet([found("true", "old", stale=True)])
    assert known.member(PROD) is known.variants[0]
    assert (mark(doubtful, PROD), doubtful.member(PROD)) == ("old", None)


def test_an_audience_is_grouped_by_the_keys_that_matter():
    # PRX-14
    audience = Audience()
    for params in (PROD, PROD1, TEST, PROD):
        audience.add(params)
    assert {*audience.classes(())} == {()}
    assert {category: [*alike] for category, alike in audience.classes(("env",)).items()} == {
        ("prod",): [PROD, PROD1],
        ("test",): [TEST],
    }
    audience.remove(PROD)
    assert PROD in audience  # another one wants the same
    audience.remove(PROD)
    audience.remove(TEST)
    assert {category: [*alike] for category, alike in audience.classes(("env",)).items()} == {("prod",): [PROD1]}
    audience.remove(PROD1)
    assert not audience
    assert not audience.classes(("env",))


@pytest.mark.parametrize("keys", [("env",), ("env", "v"), ()])
def test_classes_follow_the_subscribers(keys: tuple[str, ...]):
    audience = Audience()
    audience.classes(keys)
    for params in (PROD, TEST):
        audience.add(params)
    audience.remove(TEST)
    assert {*audience.classes(keys)} == {tuple(PROD.get(key) for key in keys)}
