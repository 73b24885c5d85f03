"""Resources that refer to one another, for the tests of the dependency view."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.clusters.aggregate.v3.cluster_pb2 import ClusterConfig as Aggregate
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf.any_pb2 import Any as AnyMessage


def manager(**routes: Any) -> HttpConnectionManager:
    return HttpConnectionManager(stat_prefix="x", **routes)


def rds(name: str) -> dict[str, Any]:
    return {"rds": {"route_config_name": name, "config_source": {"ads": {}}}}


def packed(message: Any) -> AnyMessage:
    made = AnyMessage()
    made.Pack(message)
    return made


def listener(route: str = "main") -> Listener:
    made = Listener(name="shop")
    made.api_listener.api_listener.Pack(manager(**rds(route)))
    return made


def chains(*routes: str | RouteConfiguration) -> Listener:
    """A server's listener, with a filter chain for each route configuration: by name, or inline."""
    made = Listener(name="shop")
    for each in routes:
        config = manager(**rds(each)) if isinstance(each, str) else manager(route_config=each)
        made.filter_chains.add().filters.add(name="http").typed_config.Pack(config)
    return made


def route(*clusters: str, name: str = "main") -> RouteConfiguration:
    made = RouteConfiguration(name=name)
    host = made.virtual_hosts.add(name="all", domains=["*"])
    for each in clusters:
        host.routes.add(match={"prefix": f"/{each}"}, route={"cluster": each})
    return made


def by_eds(name: str, service: str = "") -> Cluster:
    config = {"eds_config": {"ads": {}}, "service_name": service}
    return Cluster(name=name, type=Cluster.EDS, eds_cluster_config=config)


def static(name: str) -> Cluster:
    return Cluster(name=name, type=Cluster.STATIC, load_assignment={"cluster_name": name})


def aggregate(name: str, *clusters: str) -> Cluster:
    config = packed(Aggregate(clusters=clusters))
    return Cluster(
        name=name,
        lb_policy="CLUSTER_PROVIDED",
        cluster_type={"name": "envoy.clusters.aggregate", "typed_config": config},
    )
