"""xDS resources as a user writes them: plain structures that become YAML documents."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

_TYPES = "type.googleapis.com/envoy."
_ADS: Document = {"ads": {}, "resource_api_version": "V3"}
_ROUTER: Document = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{_TYPES}extensions.filters.http.router.v3.Router"},
}


def _hcm(**routing: Any) -> Document:
    return {
        "@type": f"{_TYPES}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "http_filters": [_ROUTER],
        **routing,
    }


def _rds(route_config: str) -> Document:
    return _hcm(rds={"route_config_name": route_config, "config_source": _ADS})


def listener(name: str, route_config: str) -> Document:
    """A listener for Envoy, on a port that the system chooses."""
    return _listener(name, _rds(route_config))


def inline_listener(name: str, *entries: Document) -> Document:
    """The same with its routes in it."""
    inline = routes(name, *entries)
    del inline["@type"]
    return _listener(name, _hcm(route_config=inline))


def _listener(name: str, manager: Document) -> Document:
    network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "@type": f"{_TYPES}config.listener.v3.Listener",
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [network]}],
    }


def api_listener(name: str, route_config: str) -> Document:
    """A listener for a gRPC client: the target `xds:///NAME` asks for it."""
    return {
        "@type": f"{_TYPES}config.listener.v3.Listener",
        "name": name,
        "api_listener": {"api_listener": _rds(route_config)},
    }


def routes(name: str, *entries: Document) -> Document:
    """A route configuration with one virtual host for every domain."""
    host = {"name": "all", "domains": ["*"], "routes": list(entries)}
    return {"@type": f"{_TYPES}config.route.v3.RouteConfiguration", "name": name, "virtual_hosts": [host]}


def to(cluster: str | Document, prefix: str = "/") -> Document:
    """A route to a cluster; the cluster may be a `$match`."""
    return {"match": {"prefix": prefix}, "route": {"cluster": cluster}}


def eds_cluster(name: str, **fields: Any) -> Document:
    """A cluster whose endpoints come over ADS."""
    cluster = {
        "@type": f"{_TYPES}config.cluster.v3.Cluster",
        "name": name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"eds_config": _ADS},
    }
    return cluster | fields


def static_cluster(name: str, address: str, port: int) -> Document:
    """A cluster that names its one endpoint itself."""
    return {
        "@type": f"{_TYPES}config.cluster.v3.Cluster",
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [_locality(address, port)]},
    }


def endpoints(cluster: str, port: int) -> Document:
    """One endpoint on this machine. The locality and its weight are what gRPC insists on."""
    locality = _locality("127.0.0.1", port) | {"locality": {"region": "here"}, "load_balancing_weight": 1}
    return {
        "@type": f"{_TYPES}config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster,
        "endpoints": [locality],
    }


def _locality(address: str, port: int) -> Document:
    socket_address = {"socket_address": {"address": address, "port_value": port}}
    return {"lb_endpoints": [{"endpoint": {"address": socket_address}}]}
