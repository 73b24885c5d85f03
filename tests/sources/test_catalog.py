from __future__ import annotations

import pytest

from tests.sources.samples import FOUR, cluster, text
from xdsprism.core.model import types
from xdsprism.core.model.constraints import keys, matches
from xdsprism.core.model.expr import show
from xdsprism.core.model.store import Store
from xdsprism.errors import ConfigError
from xdsprism.sources.catalog import MAX_PROBLEMS, Catalog


class Served:
    """A catalog and the store that it feeds, without any file."""

    def __init__(self, **files: str) -> None:
        self.catalog = Catalog()
        self.store = Store()
        self.write(**files)
        assert self.publish() == []

    def write(self, **files: str) -> None:
        for name, source in files.items():
            self.catalog.read(f"{name}.yaml", source.encode())

    def publish(self) -> list[str]:
        problems = self.catalog.problems()
        if not problems:
            try:
                self.store.apply(self.catalog.pending())
            except ConfigError as error:
                problems = error.problems
            else:
                self.catalog.mark_published()
        return [str(problem) for problem in problems]

    def clusters(self) -> dict[str, str]:
        """Names, each with where it stands."""
        found = self.store.table(types.CLUSTER)
        return {name: ", ".join(str(each.origin) for each in known.variants) for name, known in sorted(found)}

    def parsed(self) -> int:
        count, self.catalog.parsed = self.catalog.parsed, 0
        return count


def test_the_published_resources_are_those_of_the_files() -> None:
    served = Served(one=cluster("a") + cluster("b"), two=cluster("c"))
    assert served.clusters() == {"a": "one.yaml:2", "b": "one.yaml:6", "c": "two.yaml:2"}
    assert served.catalog.pending() == {}


def test_only_the_document_that_changed_is_parsed_and_published() -> None:
    served = Served(one="".join(cluster(f"c{n}") for n in range(10)))
    assert served.parsed() == 10
    served.write(one="".join(cluster(f"c{n}", seconds=7 if n == 4 else 5) for n in range(10)))
    assert served.parsed() == 1
    assert list(served.catalog.pending()) == [(types.CLUSTER, "c4")]


def test_a_file_that_was_only_touched_changes_nothing() -> None:
    served = Served(one=cluster("a"))
    served.parsed()
    served.write(one=cluster("a"))
    assert served.parsed() == 0
    assert served.catalog.pending() == {}


def test_documents_that_only_moved_are_not_parsed_and_point_to_where_they_are_now() -> None:
    served = Served(one=cluster("a") + cluster("b"))
    revision = served.store.revision
    served.parsed()
    served.write(one=cluster("a", "# a remark", "# and another") + cluster("b"))
    assert served.publish() == []
    assert served.parsed() == 1
    assert served.store.revision == revision
    assert served.clusters() == {"a": "one.yaml:2", "b": "one.yaml:8"}


def test_a_document_that_left_is_deleted() -> None:
    served = Served(one=cluster("a") + cluster("b"), two=cluster("c"))
    served.write(one=cluster("b"))
    served.catalog.forget("two.yaml")
    assert served.catalog.pending()[types.CLUSTER, "a"] == ()
    assert served.publish() == []
    assert served.clusters() == {"b": "one.yaml:2"}
    assert served.catalog.resources == 1


# OPS-8
def test_nothing_is_published_while_anything_is_wrong_and_all_of_it_after() -> None:
    served = Served(one=cluster("a"), two=cluster("b"))
    served.write(one=cluster("a", seconds=7), three=cluster("new"), two=cluster("b", "conect_timeout: 1s"))
    assert len(served.publish()) == 1
    assert served.clusters() == {"a": "one.yaml:2", "b": "two.yaml:2"}
    served.write(two=cluster("b", "# fine again"))
    assert served.publish() == []
    assert served.clusters() == {"a": "one.yaml:2", "b": "two.yaml:2", "new": "three.yaml:2"}
    (variant,) = served.store.table(types.CLUSTER).get("a").variants  # type: ignore[union-attr]
    assert b"\x08\x07" in variant.body


def test_documents_parsed_before_a_half_written_file_are_reused_after_it() -> None:
    whole = "".join(cluster(f"c{n}") for n in range(10))
    served = Served(one=whole)
    served.parsed()
    served.write(one=whole[: len(whole) // 2 + 5])
    assert len(served.publish()) == 1
    served.write(one=whole)
    assert served.publish() == []
    assert served.parsed() == 1  # the torn one


def test_a_file_that_became_empty_is_taken_for_half_written() -> None:
    served = Served(one=cluster("a"), two="")
    served.write(one="")
    assert served.publish() == [
        "one.yaml: is empty now, like an unfinished write; to remove its resources, delete the file"
    ]
    served.write(one="# nothing in it any more\n")
    assert served.publish() == []
    assert served.clusters() == {}


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    served = Served(one=cluster("a"))
    served.catalog.read("one.yaml", b"a: 1\nb: \xff\n")
    assert served.publish() == ["one.yaml:2: is not UTF-8: byte 0xff"]
    served.catalog.read("one.yaml", b"\xef\xbb\xbf" + cluster("b").encode())
    assert served.publish() == []
    assert served.clusters() == {"b": "one.yaml:2"}


# DYN-33, DYN-36, DYN-37
def test_two_documents_for_one_name_are_refused_with_both_places() -> None:
    served = Served(one=cluster("a"))
    served.write(two=cluster("b") + cluster("a", seconds=7))
    (problem,) = served.publish()
    assert problem.startswith("one.yaml:2: ")
    assert "both match every client" in problem
    assert "two.yaml:6" in problem
    assert served.clusters() == {"a": "one.yaml:2"}


# DYN-33
def test_the_same_text_twice_is_a_clash_too() -> None:
    served = Served(one=cluster("a"))
    served.write(one=cluster("a") + cluster("a"))
    (problem,) = served.publish()
    assert "one.yaml:2" in problem
    assert "one.yaml:6" in problem


# DYN-33, DYN-37
def test_overlapping_variants_are_refused_with_both_places_and_a_witness() -> None:
    served = Served(one=cluster("a", '$when: "env in (prod, test)"'))
    served.write(two=cluster("a", '$when: "env in (qa, test)"'))
    (problem,) = served.publish()
    assert "both match env=test" in problem
    assert "one.yaml:2" in problem
    assert "two.yaml:2" in problem
    served.write(two=cluster("a", "$when: env=qa"))
    assert served.publish() == []
    assert served.clusters() == {"a": "one.yaml:2, two.yaml:2"}


# DYN-34
def test_a_key_that_only_some_documents_mention_is_added_to_the_others() -> None:
    served = Served(one=cluster("a", "$when: env=prod"))
    served.write(two=cluster("a", "$when: env=test and version=v1"))
    assert served.publish() == []
    known = served.store.table(types.CLUSTER).get("a")
    assert known is not None
    assert [(show(each.constraint), show(each.shown)) for each in known.variants] == [
        ("env=prod and (version exists or not version exists)", "env=prod"),
        ("env=test and version=v1", "env=test and version=v1"),
    ]
    served.write(two=cluster("a", "$when: version=v1"))
    (problem,) = served.publish()
    assert "both match env=prod and version=v1: `env=prod` and `version=v1`" in problem
    assert problem.startswith("one.yaml:2")


# DYN-34
def test_keys_that_a_template_adds_are_not_shown() -> None:
    choice = "{$match: [{when: zone=a, value: x}, {when: rack=1, value: y}]}"
    served = Served(one=cluster("a", f"alt_stat_name: {choice}"))
    known = served.store.table(types.CLUSTER).get("a")
    assert known is not None
    shown = [(show(each.shown), show(each.constraint)) for each in known.variants]
    assert ("zone=a", "zone=a and (rack exists or not rack exists)") in shown


# DYN-34
def test_a_template_and_a_document_beside_it_mention_the_same_keys() -> None:
    served = Served(
        one=cluster("a", "$when: env=prod", "alt_stat_name: {$match: [{when: zone=a, value: x}]}"),
        two=cluster("a", "$when: env=test and version=v1"),
    )
    known = served.store.table(types.CLUSTER).get("a")
    assert known is not None
    assert len({keys(each.constraint) for each in known.variants}) == 1
    assert [show(each.shown) for each in known.variants] == [
        "env=prod and zone=a",
        "env=prod and zone!=a",
        "env=test and version=v1",
    ]


# DYN-38
def test_a_swap_over_two_files_is_one_step() -> None:
    served = Served(one=cluster("a", "$when: env=prod"), two=cluster("a", "$when: env=test", seconds=7))
    served.write(one=cluster("a", "$when: env=test"))
    assert len(served.publish()) == 1
    served.write(two=cluster("a", "$when: env=prod", seconds=7))
    assert served.publish() == []
    known = served.store.table(types.CLUSTER).get("a")
    assert known is not None
    assert [str(each.origin) for each in known.variants if matches(each.constraint, {"env": "prod"})] == ["two.yaml:2"]


# DYN-39
def test_a_document_too_complex_to_decide_is_refused_and_the_old_one_stays() -> None:
    served = Served(one=FOUR)
    keys = [f"k{n}" for n in range(14)]
    pairs = " and ".join(f"({a}=x or {b}=y)" for a in keys for b in keys if a != b)
    hosts = "".join(f"- {{$when: '{pairs} and h{n}=x', name: h{n}, domains: [d{n}], routes: []}}\n" for n in range(12))
    served.write(one=text('"@type": envoy.config.route.v3.RouteConfiguration\nname: main\nvirtual_hosts:\n') + hosts)
    (problem,) = served.publish()
    assert problem.startswith("one.yaml:1: ")
    known = served.store.table(types.ROUTE).get("main")
    assert known is not None
    assert len(known.variants) == 4


def test_a_long_list_of_problems_is_cut_short() -> None:
    served = Served()
    served.write(one="".join(cluster(f"c{n}", "x: 1") for n in range(30)), two=cluster("a", "x: 1"))
    problems = served.publish()
    assert len(problems) == MAX_PROBLEMS + 2
    assert problems[MAX_PROBLEMS] == "one.yaml: and 10 more problems"
    assert problems[-1].startswith("two.yaml:5: x: no such field")


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_the_order_in_which_files_are_read_makes_no_difference(order: tuple[str, str]) -> None:
    """OPS-12: replicas agree."""
    files = {"one": cluster("a", "$when: env=prod"), "two": cluster("a", "$when: env=test")}
    served = Served(**{name: files[name] for name in order})
    assert served.clusters() == {"a": "one.yaml:2, two.yaml:2"}
