"""What a resource refers to, as the dependency view reads it."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.clusters.aggregate.v3.cluster_pb2 import ClusterConfig as Aggregate
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from tests.client.config_parts import aggregate, by_eds, listener, manager, packed, rds, route, static
from xdsprism.client.dependencies import part_of
from xdsprism.core.watch.dependencies import ClusterPart, Known, ListenerPart, RoutePart


def _part(type_url: str, made: Any) -> Known:
    return part_of(type_url, made.name, xp.Update(type_url, made.name, made))


def routes_of(made: Any) -> Any:
    part = _part(xp.LISTENER, made)
    assert isinstance(part, ListenerPart), part
    return part.routes


def test_routes_are_found_in_every_filter_chain():
    # CLI-23
    made = Listener(name="shop")
    for name in ("one", "two", "one"):
        chain = made.filter_chains.add()
        chain.filters.add(name="other", typed_config=packed(Aggregate(clusters=["x"])))
        chain.filters.add(name="http", typed_config=packed(manager(**rds(name))))
    made.default_filter_chain.filters.add(name="http", typed_config=packed(manager(route_config=route("a"))))
    one, two, inline = routes_of(made)
    assert (one, two) == ("one", "two")
    assert isinstance(inline, RoutePart)
    assert (inline.message, inline.clusters) == (route("a"), ("a",))


def test_a_connection_manager_of_v2_is_one_too():
    # VER-9
    made = listener()
    made.api_listener.api_listener.type_url = (
        "type.googleapis.com/envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
    )
    assert routes_of(made) == ("main",)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Listener(name="shop"), "without an HTTP connection manager"),
        (Listener(name="shop", api_listener={"api_listener": packed(manager())}), "no routes"),
        (
            Listener(name="shop", api_listener={"api_listener": packed(manager(scoped_routes={"name": "x"}))}),
            "scoped_routes",
        ),
        (
            Listener(
                name="shop",
                api_listener={"api_listener": AnyMessage(type_url="x/y.HttpConnectionManager", value=b"\1")},
            ),
            "shop",
        ),
    ],
    ids=["tcp", "no routes", "scoped", "garbage"],
)
def test_a_listener_that_can_not_be_followed_is_an_error(made: Listener, why: str):
    # CLI-23
    error = _part(xp.LISTENER, made)
    assert isinstance(error, xp.WatchError)
    assert error.status == "INVALID_ARGUMENT"
    assert why in error.message


def test_a_route_refers_to_clusters_in_many_ways():
    # CLI-23
    made = route("plain", "plain")
    weighted = {"clusters": [{"name": "heavy", "weight": {"value": 9}}, {"name": "light"}]}
    mirror = [{"cluster": "route-mirror"}]
    made.virtual_hosts[0].routes.extend(
        [
            Route(route={"weighted_clusters": weighted, "request_mirror_policies": mirror}),
            Route(route={"cluster_header": "x-cluster"}),
            Route(redirect={"path_redirect": "/"}),
        ]
    )
    made.virtual_hosts[0].request_mirror_policies.add(cluster="host-mirror")
    made.request_mirror_policies.add(cluster="mirror")
    part = _part(xp.ROUTE, made)
    assert isinstance(part, RoutePart)
    assert part.clusters == ("plain", "heavy", "light", "route-mirror", "mirror", "host-mirror")


def test_an_aggregate_that_can_not_be_read_is_an_error_of_that_cluster():
    # CLI-23
    broken = aggregate("all")
    broken.cluster_type.typed_config.value = b"\1"
    assert isinstance(_part(xp.CLUSTER, broken), xp.WatchError)
    other = Cluster(name="x", cluster_type={"name": "mine", "typed_config": packed(Route())})
    part = _part(xp.CLUSTER, other)
    assert isinstance(part, ClusterPart)
    assert (part.children, part.service, part.endpoints) == (None, None, None)


def test_endpoints_come_by_eds_or_with_the_cluster():
    # CLI-23
    named, own, inline = (_part(xp.CLUSTER, made) for made in (by_eds("a", "service"), by_eds("a"), static("a")))
    assert isinstance(named, ClusterPart)
    assert isinstance(own, ClusterPart)
    assert isinstance(inline, ClusterPart)
    assert (named.service, own.service, inline.service) == ("service", "a", None)
    assert inline.endpoints == static("a").load_assignment
