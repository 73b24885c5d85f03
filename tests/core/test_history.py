"""What a store remembers of its revisions (core/model/history.py)."""

from __future__ import annotations

from collections.abc import Mapping

from xdsprism.core.model.expr import parse, show
from xdsprism.core.model.history import OVERHEAD, History, Revision, Wanted, finding_formers
from xdsprism.core.model.steps import finish
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER, SECRET, Origin, Params, Variant, make_variant


class Rig:
    """A store whose revisions are recorded at the time 100, 101 and so on."""

    def __init__(self, **given: int) -> None:
        self.store = Store()
        self.history = History(**given)
        self.records: list[Revision] = []
        self.store.listeners.append(lambda done: self.records.append(self.history.record(done, 100.0 + done.revision)))

    def put(self, *variants: Variant, by: str = "program") -> Revision:
        changeset: dict[tuple[str, str], tuple[Variant, ...]] = {}
        for each in variants:
            key = each.type_url, each.name
            changeset[key] = (*changeset.get(key, ()), each)
        self.store.apply(changeset, by)
        return self.records[-1]

    def delete(self, *names: str) -> Revision:
        self.store.apply({(CLUSTER, name): () for name in names})
        return self.records[-1]


def cluster(name: str, body: bytes = b"1", when: str = "true", line: int = 0) -> Variant:
    return make_variant(CLUSTER, name, body, parse(when), origin=Origin("a.yaml", line) if line else None)


def told(revision: Revision) -> Mapping[str, tuple[str, list[tuple[str, str]]]]:
    """Of each name: what happened to it, and to which variants."""
    return {
        each.name: (each.change, [(show(variant.constraint), variant.change) for variant in each.variants])
        for each in revision.changes
    }


def test_a_revision_tells_who_made_it_when_and_what_it_did_to_each_variant():
    rig = Rig()
    rig.put(cluster("a", when="env=prod"), cluster("a", when="env=test"), cluster("b"), by="file load")
    first = rig.records[0]
    assert (first.number, first.time, first.by, first.total, first.more) == (1, 101.0, "file load", 2, 0)
    assert told(first) == {
        "a": ("added", [("env=prod", "added"), ("env=test", "added")]),
        "b": ("added", [("true", "added")]),
    }

    second = rig.put(cluster("a", b"2", "env=prod", line=3), cluster("a", when="env=qa"))
    assert told(second) == {"a": ("changed", [("env=prod", "changed"), ("env=qa", "added"), ("env=test", "removed")])}
    changed = second.changes[0].variants[0]
    assert str(changed.origin) == "a.yaml:3"
    assert changed.old == first.changes[0].variants[0].new
    assert changed.body == b"1"

    third = rig.delete("b")
    assert told(third) == {"b": ("removed", [("true", "removed")])}
    assert third.changes[0].variants[0].body == b"1"


def test_a_variant_that_stays_while_another_brings_a_key_counts_as_the_same_variant():
    rig = Rig()
    rig.put(cluster("a", when="env=prod"))
    # DYN-34: the store pads the first one with `tier`, so its constraint on the wire is another one.
    revision = rig.put(cluster("a", when="env=prod"), cluster("a", when="env=test and tier=x"))
    assert told(revision) == {"a": ("changed", [("env=prod", "changed"), ("env=test and tier=x", "added")])}


def test_a_variant_that_replaces_one_with_another_constraint_is_added_and_that_one_removed():
    rig = Rig()
    rig.put(cluster("a", when="env=prod"))
    revision = rig.put(cluster("a", when="env=test"))
    assert told(revision) == {"a": ("changed", [("env=test", "added"), ("env=prod", "removed")])}


def test_of_a_large_transaction_the_first_are_listed_and_the_others_counted():
    rig = Rig(listed=10)
    revision = rig.put(*[cluster(f"c{number}") for number in range(3_000)])
    assert len(revision.changes) == 10
    assert (revision.total, revision.more) == (3_000, 2_990)


def test_of_a_resource_with_many_variants_the_first_are_listed_and_the_others_counted():
    rig = Rig(listed=10)
    revision = rig.put(*[cluster("a", when=f"n={number}") for number in range(25)], cluster("b"))
    assert [(each.name, len(each.variants), each.more) for each in revision.changes] == [("a", 10, 15)]
    assert revision.more == 1


def test_only_the_last_revisions_are_remembered():
    rig = Rig(revisions=3)
    for number in range(5):
        rig.put(cluster("a", b"%d" % number))
    assert (rig.history.oldest, rig.history.newest, len(rig.history)) == (3, 5, 3)
    assert [each.number for each in rig.history.newest_first()] == [5, 4, 3]
    assert rig.history.find(2) is None
    assert rig.history.find(6) is None
    found = rig.history.find(4)
    assert found is not None
    assert found.number == 4


def test_what_came_after_a_revision_is_known_or_said_to_be_unknown():
    rig = Rig(revisions=3)
    assert rig.history.since(0) == []
    assert rig.history.since(1) is None  # of another run
    for number in range(5):
        rig.put(cluster("a", b"%d" % number))
    numbers = {since: [each.number for each in rig.history.since(since) or ()] for since in (2, 3, 4, 5)}
    assert numbers == {2: [3, 4, 5], 3: [4, 5], 4: [5], 5: []}
    assert rig.history.since(1) is None
    assert rig.history.since(0) is None
    assert rig.history.since(6) is None


def test_a_store_that_had_revisions_before_it_was_watched_has_no_history_of_these():
    store = Store()
    store.apply({(CLUSTER, "a"): (cluster("a"),)})
    history = History()
    store.listeners.append(lambda done: history.record(done, 1.0) and None)
    assert history.since(0) == []
    store.apply({(CLUSTER, "a"): (cluster("a", b"2"),)})
    assert history.oldest == 2
    assert history.since(0) is None
    assert [each.number for each in history.since(1) or ()] == [2]


def test_the_details_of_the_oldest_revisions_go_first_when_they_take_too_much():
    # Three replaced contents do not fit.
    rig = Rig(kept=25_000)
    for number in range(5):
        rig.put(cluster("a", b"%d" % number * 10_000))
    assert rig.history.size <= 25_000
    assert [each.is_forgotten for each in rig.records] == [True, True, True, False, False]
    forgotten = rig.records[0]
    assert (forgotten.total, forgotten.changes, forgotten.more) == (1, (), 1)
    assert [each.body for each in rig.records[4].changes[0].variants] == [b"3" * 10_000]


def test_what_is_kept_stays_bounded_while_revisions_come_and_go():
    rig = Rig(revisions=4, kept=25_000)
    for number in range(20):
        rig.put(cluster("a", b"%d" % (number % 10) * 10_000))
        assert rig.history.size <= 25_000
    assert [each.is_forgotten for each in rig.records[-4:]] == [True, True, False, False]


def test_the_size_counts_down_when_revisions_leave():
    rig = Rig(revisions=2)
    for number in range(10):
        rig.put(cluster("a", b"%d" % number))
    assert rig.history.size == 2 * (2 * OVERHEAD + 1 + 1)


def test_one_revision_keeps_no_more_contents_than_its_share(monkeypatch):
    rig = Rig()
    large = 3 * 1024 * 1024
    rig.put(*[cluster(f"c{number}", b"x" * large) for number in range(4)])
    revision = rig.put(*[cluster(f"c{number}", b"y" * large) for number in range(4)])
    kept = [variant.body is not None for each in revision.changes for variant in each.variants]
    assert kept == [True, True, False, False]


def test_no_contents_of_secrets_are_kept():
    # OPS-14
    rig = Rig()
    rig.put(make_variant(SECRET, "key", b"secret"))
    revision = rig.put(make_variant(SECRET, "key", b"other"))
    assert revision.changes[0].variants[0].change == "changed"
    assert revision.changes[0].variants[0].body is None


def test_a_set_that_only_learned_of_absences_changed_no_resource():
    rig = Rig()
    from xdsprism.core.model.cached import CachedSet, Finding  # noqa: PLC0415

    there = cluster("a", when="env=prod")
    first = CachedSet([Finding(there.constraint, there)])
    rig.store.publish({(CLUSTER, "a"): first}, "upstream server")
    second = CachedSet([*first.findings, Finding(parse("env=test"), None)])
    rig.store.publish({(CLUSTER, "a"): second}, "upstream server")
    assert told(rig.records[0]) == {"a": ("added", [("env=prod", "added")])}
    assert (rig.records[1].by, rig.records[1].total, rig.records[1].changes) == ("upstream server", 0, ())


def former(rig: Rig, variant: Variant, **params: str) -> tuple[int, str, bytes | None] | None:
    """What a client with these params had before it was to get this variant: since when not, for whom, and what."""
    (shown,) = [each for each in rig.store.table(CLUSTER).named(variant.name).variants if each.body == variant.body]
    wanted = Wanted(CLUSTER, variant.name, shown.version)
    found = finish(finding_formers(rig.history, {wanted: Params(params)})).get(wanted)
    return (found.revision, show(found.constraint), found.body) if found is not None else None


def test_what_a_variant_took_the_place_of_is_found():
    rig = Rig()
    rig.put(first := cluster("a", b"1"))
    assert former(rig, first) is None  # nothing was there before
    rig.put(second := cluster("a", b"2"))
    assert former(rig, second) == (2, "true", b"1")
    rig.put(cluster("b", b"x"))
    prod, other = cluster("a", b"3", "env=prod"), cluster("a", b"4", "env!=prod")
    rig.put(prod, other)
    assert former(rig, prod, env="prod") == (4, "true", b"2")
    rig.put(alone := cluster("a", b"5"))
    assert former(rig, alone, env="prod") == (5, "env=prod", b"3")
    assert former(rig, alone, env="test") == (5, "env!=prod", b"4")


def test_what_is_no_longer_remembered_is_not_found():
    rig = Rig(revisions=1)
    rig.put(cluster("a", b"1"))
    rig.put(second := cluster("a", b"2"))
    assert former(rig, second) == (2, "true", b"1")
    rig.put(cluster("b"))
    assert former(rig, second) is None
