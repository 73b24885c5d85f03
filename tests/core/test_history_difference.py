"""How two revisions differ, by what is remembered of those between (core/model/history_difference.py)."""

from __future__ import annotations

from tests.core.test_history import Rig, cluster
from xdsprism.core.model.expr import show
from xdsprism.core.model.history_difference import Difference, finding_difference
from xdsprism.core.model.steps import finish
from xdsprism.core.model.types import SECRET, make_variant


def between(rig: Rig, old: int, new: int) -> Difference:
    found = finish(finding_difference(rig.history, rig.store, old, new))
    assert found is not None
    return found


def told(found: Difference) -> list[tuple[str, str, str, bytes | None, bytes | None]]:
    return [(each.name, show(each.constraint), each.change, each.before, each.after) for each in found.variants]


def test_of_several_changes_of_a_variant_the_first_and_the_last_contents_count():
    rig = Rig()
    for body in (b"1", b"2", b"3", b"4"):
        rig.put(cluster("a", body))
    assert told(between(rig, 1, 3)) == [("a", "true", "changed", b"1", b"3")]
    assert told(between(rig, 3, 4)) == [("a", "true", "changed", b"3", b"4")]
    assert told(between(rig, 0, 4)) == [("a", "true", "added", None, b"4")]
    assert told(between(rig, 4, 4)) == []


def test_the_opposite_direction_says_the_opposite():
    rig = Rig()
    rig.put(cluster("a"), cluster("b"))
    rig.put(cluster("a", b"2"), cluster("c"))
    rig.delete("b")
    assert told(between(rig, 3, 1)) == [
        ("a", "true", "changed", b"2", b"1"),
        ("c", "true", "removed", b"1", None),
        ("b", "true", "added", None, b"1"),
    ]


def test_what_came_and_went_between_is_no_difference():
    rig = Rig()
    rig.put(cluster("a"))
    rig.put(cluster("b"))
    rig.delete("b")
    assert told(between(rig, 1, 3)) == []


def test_variants_are_told_apart_by_their_constraints():
    rig = Rig()
    rig.put(cluster("a", when="env=prod"), cluster("a", when="env=test"))
    rig.put(cluster("a", b"2", "env=prod"), cluster("a", when="env=qa"))
    assert told(between(rig, 1, 2)) == [
        ("a", "env=prod", "changed", b"1", b"2"),
        ("a", "env=qa", "added", None, b"1"),
        ("a", "env=test", "removed", b"1", None),
    ]


def test_what_is_not_remembered_is_not_compared():
    rig = Rig(revisions=2)
    for body in (b"1", b"2", b"3"):
        rig.put(cluster("a", body))
    for old, new in ((0, 3), (1, 4), (4, 1), (5, 6)):
        assert finish(finding_difference(rig.history, rig.store, old, new)) is None
    assert told(between(rig, 1, 3)) == [("a", "true", "changed", b"1", b"3")]


def test_changes_that_are_not_listed_are_counted():
    rig = Rig(listed=2)
    rig.put(*[cluster(f"c{number}") for number in range(5)])
    found = between(rig, 0, 1)
    assert (len(found.variants), found.unknown) == (2, 3)


def test_contents_that_no_revision_keeps_are_unknown_and_their_versions_are_not():
    rig = Rig()
    rig.put(make_variant(SECRET, "key", b"1"))
    rig.put(make_variant(SECRET, "key", b"2"))
    (each,) = between(rig, 1, 2).variants
    assert (each.change, each.before, each.after) == ("changed", None, None)
    assert each.old != each.new
