"""What messages refer to: whatever a client has to have in order to use them."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.config_source_pb2 import ConfigSource
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.extensions.clusters.aggregate.v3.cluster_pb2 import ClusterConfig
from envoy.extensions.filters.http.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.types import CLUSTER, ENDPOINT, EXTENSION_CONFIG, ROUTE, SCOPED_ROUTE, Reference

ADS: dict[str, Any] = {"ads": {}}
FILE: dict[str, Any] = {"path_config_source": {"path": "/etc/routes.yaml"}}


def listener(message: Message, place: str = "chain") -> Listener:
    made = Listener(name="l")
    if place == "api":
        made.api_listener.api_listener.Pack(message)
    else:
        chain = made.default_filter_chain if place == "default chain" else made.filter_chains.add()
        chain.filters.add(name="f").typed_config.Pack(message)
    return made


def manager(**fields: Any) -> HttpConnectionManager:
    return ParseDict(fields, HttpConnectionManager())


def found(message: Message) -> set[Reference]:
    references = variant_of(message).references
    assert len(set(references)) == len(references)
    return set(references)


# -- listeners


@pytest.mark.parametrize("place", ["chain", "default chain", "api"])
def test_a_listener_refers_to_its_route_configuration(place: str):
    # ORD-2
    rds = {"route_config_name": "main", "config_source": ADS}
    assert found(listener(manager(rds=rds), place)) == {(ROUTE, "main")}


@pytest.mark.parametrize(
    ("source", "here"),
    [(ADS, True), ({"self": {}}, True), ({}, True), (FILE, False), ({"api_config_source": {}}, False)],
)
def test_a_name_from_another_config_source_is_no_reference(source: dict[str, Any], here: bool):
    # ORD-2: this stream has no part in it
    rds = {"route_config_name": "main", "config_source": source}
    assert bool(found(listener(manager(rds=rds)))) is here
    scoped = {"name": "s", "scoped_rds": {"scoped_rds_config_source": source}}
    assert bool(found(listener(manager(scoped_routes=scoped)))) is here
    made = Listener(name="l")
    each = made.filter_chains.add().filters.add(name="f")
    each.config_discovery.config_source.CopyFrom(ParseDict(source, ConfigSource()))
    assert bool(found(made)) is here


def test_a_listener_with_scoped_routes_refers_to_all_scopes():
    # ORD-2
    scoped = {"name": "s", "scoped_rds": {"scoped_rds_config_source": ADS}}
    assert found(listener(manager(scoped_routes=scoped))) == {(SCOPED_ROUTE, "*")}
    inline = [{"name": "s1", "route_configuration_name": "a"}, {"name": "s2", "route_configuration_name": "b"}]
    scoped = {"scoped_route_configurations_list": {"scoped_route_configurations": inline}, "rds_config_source": ADS}
    assert found(listener(manager(scoped_routes=scoped))) == {(ROUTE, "a"), (ROUTE, "b")}


def test_a_listener_refers_to_the_clusters_of_its_inline_routes_and_of_its_filters():
    # ORD-2
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "a"}}]
    authz = ExtAuthz(grpc_service={"envoy_grpc": {"cluster_name": "authz"}})
    made = manager(
        route_config={"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]},
        http_filters=[{"name": "static"}, {"name": "dynamic", "config_discovery": {"config_source": ADS}}],
    )
    made.http_filters[0].typed_config.Pack(authz)
    assert found(listener(made)) == {(CLUSTER, "a"), (CLUSTER, "authz"), (EXTENSION_CONFIG, "dynamic")}


def test_a_listener_refers_to_the_clusters_of_tcp_proxies():
    # ORD-2
    assert found(listener(TcpProxy(cluster="a"))) == {(CLUSTER, "a")}
    weighted = TcpProxy(weighted_clusters={"clusters": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]})
    assert found(listener(weighted)) == {(CLUSTER, "a"), (CLUSTER, "b")}


def test_packed_messages_that_can_not_be_parsed_have_no_references():
    # ORD-2
    made = listener(TcpProxy(cluster="a"))
    made.filter_chains[0].filters.add(name="odd").typed_config.type_url = "type.googleapis.com/acme.Unknown"
    broken = made.filter_chains[0].filters.add(name="broken").typed_config
    broken.type_url, broken.value = made.filter_chains[0].filters[0].typed_config.type_url, b"\xff"
    assert found(made) == {(CLUSTER, "a")}


def test_packed_in_itself_a_thousand_times_it_is_searched_without_fail():
    # ORD-2
    inner: Message = TcpProxy(cluster="a")
    for _ in range(1_000):
        wrapped = Packed()
        wrapped.Pack(inner)
        inner = wrapped
    assert found(listener(inner)) == set()


# -- routes and scopes


ACTIONS = {
    "cluster": ({"cluster": "a"}, {"a"}),
    "weighted": ({"weighted_clusters": {"clusters": [{"name": "a"}, {"name": "b"}]}}, {"a", "b"}),
    "header": ({"cluster_header": "x-cluster"}, set()),
    "mirrored": ({"cluster": "a", "request_mirror_policies": [{"cluster": "m"}]}, {"a", "m"}),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_routes_refer_to_clusters(action: str):
    # ORD-2: one that is chosen by a header is named by nobody
    route, clusters = ACTIONS[action]
    host = {"name": "r/v", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
    expected = {(CLUSTER, name) for name in clusters}
    assert found(ParseDict(host, VirtualHost())) == expected
    assert found(ParseDict({"name": "r", "virtual_hosts": [host]}, RouteConfiguration())) == expected
    scope = {"name": "s", "route_configuration": {"name": "r", "virtual_hosts": [host]}}
    assert found(ParseDict(scope, ScopedRouteConfiguration())) == expected


def test_mirrors_of_whole_hosts_and_route_configurations_count():
    # ORD-2
    host = {"name": "r/v", "domains": ["*"], "request_mirror_policies": [{"cluster": "m"}]}
    made = ParseDict(
        {"name": "r", "virtual_hosts": [host], "request_mirror_policies": [{"cluster": "n"}]}, RouteConfiguration()
    )
    assert found(made) == {(CLUSTER, "m"), (CLUSTER, "n")}
    assert found(ParseDict(host, VirtualHost())) == {(CLUSTER, "m")}


def test_a_scope_refers_to_its_route_configuration():
    # ORD-2
    assert found(ScopedRouteConfiguration(name="s", route_configuration_name="r")) == {(ROUTE, "r")}


# -- clusters


def test_a_cluster_refers_to_its_endpoints_and_an_aggregate_to_its_parts():
    # ORD-2, ORD-11
    assert found(Cluster(name="a", type=Cluster.EDS, eds_cluster_config={"service_name": "s"})) == {(ENDPOINT, "s")}
    assert found(Cluster(name="a", type=Cluster.STATIC, load_assignment={"cluster_name": "a"})) == set()
    made = Cluster(name="all")
    made.cluster_type.typed_config.Pack(ClusterConfig(clusters=["a", "b"]))
    assert found(made) == {(CLUSTER, "a"), (CLUSTER, "b")}
    made.cluster_type.typed_config.value = b"\xff"
    assert found(made) == set()


def test_a_message_in_an_any_refers_to_the_same():
    # ORD-2
    made = listener(TcpProxy(cluster="a"))
    wrapped = Packed()
    wrapped.Pack(made)
    assert variant_of(wrapped, name="l").references == variant_of(made).references


def test_names_are_spelled_in_one_way():
    # XTP-1
    name = "xdstp://auth/envoy.config.route.v3.RouteConfiguration/main"
    rds = {"route_config_name": f"{name}?b=2&a=1", "config_source": ADS}
    assert found(listener(manager(rds=rds))) == {(ROUTE, f"{name}?a=1&b=2")}


def test_equal_references_of_many_resources_are_one_object():
    # VHD-9: there may be a million
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "a"}}]
    hosts = [ParseDict({"name": f"r/{n}", "domains": [f"{n}"], "routes": routes}, VirtualHost()) for n in "ab"]
    one, other = (variant_of(host).references for host in hosts)
    assert one is other


def test_what_a_map_of_messages_refers_to_counts():
    # ORD-2
    made = Listener(name="l")
    chosen = made.filter_chain_matcher.matcher_tree.exact_match_map.map["10.0.0.1"]
    chosen.action.typed_config.Pack(TcpProxy(cluster="a"))
    assert found(made) == {(CLUSTER, "a")}
