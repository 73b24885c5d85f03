"""A listener and all that it leads to: complete or not at all (CLI-23, gRFC A74)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from xdsprism.core.model.types import CLUSTER, ENDPOINT, LB_ENDPOINT_COLLECTION, LISTENER, ROUTE
from xdsprism.core.watch.dependencies import (
    DEPTH,
    ClusterConfig,
    ClusterPart,
    CollectionPart,
    Config,
    Dependencies,
    EndpointPart,
    Known,
    ListenerPart,
    RoutePart,
)
from xdsprism.errors import WatchError

MISSING = WatchError("NOT_FOUND", "there is none")

LDS, RDS = (LISTENER, "shop"), (ROUTE, "main")


def cds(name: str) -> tuple[str, str]:
    return CLUSTER, name


def eds(name: str) -> tuple[str, str]:
    return ENDPOINT, name


def by_eds(name: str, service: str | None = None) -> ClusterPart:
    return ClusterPart(f"cluster {name}", service=service or name)


def static(name: str) -> ClusterPart:
    return ClusterPart(f"cluster {name}", endpoints=f"endpoints of {name}")


def aggregate(name: str, *children: str) -> ClusterPart:
    return ClusterPart(f"cluster {name}", children=children)


def routes_to(*clusters: str) -> RoutePart:
    return RoutePart("route", clusters)


class View:
    """Learns of something, and sees what that makes."""

    def __init__(self, *clusters: str) -> None:
        self.deps = Dependencies("shop", clusters)

    def learn(self, *known: tuple[tuple[str, str], Known]) -> Config | None:
        for ref, part in known:
            self.deps.learn(ref, part)
        return self.deps.advance()

    def wants(self) -> set[tuple[str, str]]:
        return set(self.deps.wanted)


def routed(*clusters: str) -> View:
    """A view that knows its listener, and its routes to these clusters."""
    view = View()
    assert view.learn((LDS, ListenerPart("listener", ("main",)))) is None
    assert view.learn((RDS, routes_to(*clusters))) is None
    return view


def of_clusters(parts: Iterable[ClusterPart | WatchError], *roots: str) -> Config:
    """What a set of clusters comes to, each named as its message says."""
    known = {part.message.removeprefix("cluster "): part for part in parts if isinstance(part, ClusterPart)}
    view = routed(*roots)
    config = None
    while config is None:
        lacking = {ref for ref in view.wants() if ref[0] == CLUSTER}
        config = view.learn(*((ref, known.get(ref[1], MISSING)) for ref in lacking))
    return config


# -- complete, or not at all


def test_each_resource_leads_to_the_next():
    # CLI-23
    view = View()
    assert view.wants() == {LDS}
    assert view.learn((LDS, ListenerPart("listener", ("main",)))) is None
    assert view.wants() == {LDS, RDS}
    assert view.learn((RDS, routes_to("a", "b"))) is None
    assert view.wants() == {LDS, RDS, cds("a"), cds("b")}
    assert view.learn((cds("a"), by_eds("a", "service-a"))) is None
    assert view.wants() == {LDS, RDS, cds("a"), cds("b"), eds("service-a")}
    assert view.learn((cds("b"), static("b"))) is None
    config = view.learn((eds("service-a"), EndpointPart("endpoints of a")))
    assert config == Config(
        "listener",
        ("route",),
        {
            "a": ClusterConfig("cluster a", "endpoints of a"),
            "b": ClusterConfig("cluster b", "endpoints of b"),
        },
        trusted_routes=(False,),
    )


def test_dependencies_are_incomplete_while_answers_are_missing():
    view = View()
    assert view.deps.incomplete
    view.learn((LDS, ListenerPart("listener", ("main",))))
    assert view.deps.incomplete
    assert view.learn((RDS, routes_to())) is not None
    assert not view.deps.incomplete


def test_routes_inline_need_no_watch():
    # CLI-23
    view = View()
    assert view.learn((LDS, ListenerPart("listener", (routes_to("a"),)))) is None
    config = view.learn((cds("a"), static("a")))
    assert config is not None
    assert (config.routes, set(config.clusters)) == (("route",), {"a"})
    assert view.wants() == {LDS, cds("a")}


def test_several_route_configurations_make_one_whole():
    # CLI-23
    view = View()
    view.learn((LDS, ListenerPart("listener", ("main", RoutePart("inline", ("b",)), "more"))))
    assert view.learn((RDS, routes_to("a")), (cds("b"), static("b"))) is None
    assert view.learn(((ROUTE, "more"), RoutePart("more", ("a",))), (cds("b"), static("b"))) is None
    config = view.learn((cds("a"), static("a")))
    assert config is not None
    assert config.routes == ("route", "inline", "more")
    assert set(config.clusters) == {"a", "b"}


def test_clusters_that_no_route_names_can_be_asked_for():
    # CLI-23. A74: clusters that are determined dynamically
    view = View("extra")
    assert view.learn((LDS, ListenerPart("listener", (routes_to(),)))) is None
    config = view.learn((cds("extra"), static("extra")))
    assert config is not None
    assert set(config.clusters) == {"extra"}


def test_an_unchanged_answer_is_not_shown_again():
    view = routed("a")
    part, cluster = routes_to("a"), static("a")
    assert view.learn((RDS, part)) is None
    assert view.learn((cds("a"), cluster)) is not None
    assert view.learn((RDS, part), (cds("a"), cluster)) is None
    assert view.learn((cds("a"), static("a"))) is not None


def test_a_cluster_that_nothing_refers_to_is_not_kept():
    view = routed("a")
    assert view.learn((cds("b"), static("b")), (cds("a"), static("a"))) is not None
    assert view.learn((RDS, routes_to("b"))) is None


# -- changes


def test_a_new_route_is_shown_when_its_cluster_is_there():
    # CLI-23. A74: no tears
    view = routed("a")
    assert view.learn((cds("a"), by_eds("a"))) is None
    assert view.learn((eds("a"), EndpointPart("1"))) is not None
    assert view.learn((RDS, routes_to("b"))) is None
    assert view.wants() == {LDS, RDS, cds("a"), eds("a"), cds("b")}  # the last whole is still in use
    config = view.learn((cds("b"), static("b")))
    assert config is not None
    assert set(config.clusters) == {"b"}
    assert view.wants() == {LDS, RDS, cds("b")}


def test_a_route_that_changes_back_costs_nothing():
    # CLI-23
    view = routed("a")
    there = routes_to("a")
    assert view.learn((RDS, there), (cds("a"), static("a"))) is not None
    assert view.learn((RDS, routes_to("b"))) is None
    assert view.learn((RDS, there)) is None
    assert view.wants() == {LDS, RDS, cds("a")}


def test_a_cluster_that_was_never_shown_is_dropped_at_once():
    # CLI-23
    view = routed("a")
    assert view.learn((RDS, routes_to("b"))) is None
    assert view.wants() == {LDS, RDS, cds("b")}


def test_new_endpoints_are_a_new_whole():
    # CLI-23
    view = routed("a")
    view.learn((cds("a"), by_eds("a")))
    view.learn((eds("a"), EndpointPart("1")))
    config = view.learn((eds("a"), EndpointPart("2")))
    assert config is not None
    assert config.clusters["a"].endpoints == "2"


# -- errors


def test_without_a_listener_there_is_an_error():
    # CLI-23
    assert View().learn((LDS, MISSING)) == Config(error=MISSING)


def test_without_its_routes_there_is_an_error():
    # CLI-23
    view = routed("a")
    assert view.learn((cds("a"), static("a"))) is not None
    assert view.learn((RDS, MISSING)) == Config(error=MISSING)
    assert view.wants() == {LDS, RDS}


def test_a_listener_that_comes_back_is_followed_again():
    # CLI-23
    view = routed("a")
    assert view.learn((LDS, MISSING)) == Config(error=MISSING)
    assert view.wants() == {LDS}
    assert view.learn((LDS, ListenerPart("listener", ("main",)))) is None
    assert view.learn((RDS, routes_to())) is not None


def test_one_bad_cluster_does_not_fail_the_rest():
    # CLI-23
    view = routed("a", "b")
    assert view.learn((cds("a"), MISSING)) is None
    config = view.learn((cds("b"), static("b")))
    assert config is not None
    assert config.error is None
    assert config.clusters == {
        "a": ClusterConfig(error=MISSING),
        "b": ClusterConfig("cluster b", "endpoints of b"),
    }


def test_missing_endpoints_are_an_error_of_the_endpoints():
    # CLI-23. A74: resolution_note
    view = routed("a")
    view.learn((cds("a"), by_eds("a")))
    config = view.learn((eds("a"), MISSING))
    assert config is not None
    assert config.clusters["a"] == ClusterConfig("cluster a", endpoints_error=MISSING)


# -- aggregates


def test_an_aggregate_is_its_leaves_in_order():
    # CLI-23
    config = of_clusters([aggregate("all", "far", "x"), aggregate("far", "y", "z"), *map(static, "xyz")], "all")
    assert config.clusters["all"] == ClusterConfig("cluster all", leaves=("y", "z", "x"))
    assert config.clusters["far"].leaves == ("y", "z")
    assert set(config.clusters) == {"all", "far", "x", "y", "z"}


def test_a_leaf_that_is_there_twice_counts_once_and_first():
    # CLI-23, A37
    config = of_clusters([aggregate("all", "x", "far", "y"), aggregate("far", "y", "x"), *map(static, "xy")], "all")
    assert config.clusters["all"].leaves == ("x", "y")


def test_a_leaf_of_an_aggregate_is_waited_for():
    # CLI-23
    view = routed("all")
    assert view.learn((cds("all"), aggregate("all", "x"))) is None
    assert view.learn((cds("x"), by_eds("x"))) is None
    config = view.learn((eds("x"), EndpointPart("1")))
    assert config is not None
    assert config.clusters["x"].endpoints == "1"


def test_a_missing_leaf_is_skipped():
    # CLI-23
    config = of_clusters([aggregate("all", "gone", "x"), static("x")], "all")
    assert config.clusters["all"].leaves == ("x",)
    assert config.clusters["gone"].error is MISSING


def test_an_aggregate_without_any_leaf_is_an_error():
    # CLI-23. A74: it has to fail
    config = of_clusters([aggregate("all", "gone"), aggregate("empty")], "all", "empty")
    for name in ("all", "empty"):
        error = config.clusters[name].error
        assert error is not None
        assert error.status == "UNAVAILABLE"
        assert name in error.message
        assert config.clusters[name].cluster == f"cluster {name}"


def test_an_aggregate_cycle_is_an_error_of_its_clusters():
    # CLI-23
    parts = [aggregate("out", "a", "y"), aggregate("a", "b", "x"), aggregate("b", "a"), static("x"), static("y")]
    config = of_clusters(parts, "out")
    for name in "ab":
        error = config.clusters[name].error
        assert error is not None
        assert "contains itself" in error.message
    assert config.clusters["out"].leaves == ("x", "y")
    assert config.clusters["x"].error is None


def chain(length: int) -> list[ClusterPart]:
    names = [f"c{number}" for number in range(1, length + 1)]
    return [*(aggregate(name, below) for name, below in pairwise(names)), static(names[-1])]


def test_sixteen_levels_are_allowed():
    # CLI-23, A37
    assert DEPTH == 16
    config = of_clusters(chain(16), "c1")
    assert config.clusters["c1"].leaves == ("c16",)


def test_more_than_sixteen_levels_are_an_error():
    # CLI-23, A37
    config = of_clusters(chain(17), "c1")
    error = config.clusters["c1"].error
    assert error is not None
    assert "16 levels" in error.message
    assert "c17" not in config.clusters


def test_depth_is_counted_from_each_cluster():
    # CLI-23: also where routes lead to all of them
    config = of_clusters(chain(3000), *(f"c{number}" for number in range(1, 3001)))
    assert config.clusters["c2984"].error is not None
    assert config.clusters["c2985"].leaves == ("c3000",)


def test_clusters_without_end_are_not_followed_without_end():
    # CLI-23
    view = routed("c0")
    config, count = None, 0
    while config is None:
        config = view.learn((cds(f"c{count}"), aggregate(f"c{count}", f"c{count + 1}")))
        count += 1
    assert count == DEPTH
    assert config.clusters["c0"].error is not None


def test_many_ways_to_one_leaf_take_no_time():
    # CLI-23: 16 levels of 10 aggregates, each made of all those below
    levels = [[f"{depth}.{number}" for number in range(10)] for depth in range(15)]
    parts = [aggregate(name, *below) for upper, below in pairwise(levels) for name in upper]
    config = of_clusters([*parts, *map(static, levels[-1])], *levels[0])
    assert config.clusters["0.0"].leaves == tuple(levels[-1])


# -- endpoints in collections of their own (CLI-25, gRFC A95)


def leds(name: str) -> tuple[str, str]:
    return LB_ENDPOINT_COLLECTION, name


def in_collections(*names: str) -> EndpointPart:
    return EndpointPart("endpoints", names, lambda found: {name: found.get(name) for name in names})


def test_collections_of_endpoints_are_waited_for():
    # CLI-25
    view = View()
    view.learn((LDS, ListenerPart("listener", ("main",))))
    view.learn((RDS, routes_to("a")))
    view.learn((cds("a"), by_eds("a")))
    assert view.learn((eds("a"), in_collections("one", "two"))) is None
    assert view.wants() >= {leds("one"), leds("two")}
    assert view.learn((leds("one"), CollectionPart(("e1", "e2")))) is None
    config = view.learn((leds("two"), CollectionPart(())))
    assert config is not None
    assert config.clusters["a"] == ClusterConfig("cluster a", {"one": ("e1", "e2"), "two": ()})
    config = view.learn((leds("one"), CollectionPart(("e3",))))
    assert config is not None
    assert config.clusters["a"].endpoints == {"one": ("e3",), "two": ()}


def test_a_collection_that_cannot_be_had_leaves_the_others_in_use():
    # CLI-25
    view = View()
    view.learn((LDS, ListenerPart("listener", ("main",))))
    view.learn((RDS, routes_to("a")))
    view.learn((cds("a"), by_eds("a")))
    view.learn((eds("a"), in_collections("one", "two")))
    config = view.learn((leds("one"), CollectionPart(("e1",))), (leds("two"), MISSING))
    assert config is not None
    found = config.clusters["a"]
    assert (found.endpoints, found.endpoints_error) == ({"one": ("e1",), "two": None}, None)
    assert found.collection_errors == {"two": MISSING}


def test_collections_that_are_referred_to_no_more_are_let_go_of():
    # CLI-25
    view = View()
    view.learn((LDS, ListenerPart("listener", ("main",))))
    view.learn((RDS, routes_to("a")))
    view.learn((cds("a"), by_eds("a")))
    view.learn((eds("a"), in_collections("one")))
    view.learn((leds("one"), CollectionPart(("e1",))))
    assert view.learn((eds("a"), in_collections("two"))) is None
    assert view.wants() >= {leds("one"), leds("two")}  # the old one is in use until the new one is there
    assert view.learn((leds("two"), CollectionPart(("e2",)))) is not None
    assert leds("one") not in view.wants()
