"""A bootstrap around a resource, so that `envoy --mode validate` has something to judge it by."""

from __future__ import annotations

import re
from typing import Any

import yaml

from xdsprism.messages.protos import find_message

CLUSTER = "envoy.config.cluster.v3.Cluster"
ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
HOST = "envoy.config.route.v3.VirtualHost"
LISTENER = "envoy.config.listener.v3.Listener"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105
KINDS = (CLUSTER, ENDPOINTS, HOST, LISTENER, ROUTES, SECRET)

_PREFIX = "type.googleapis.com/"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = {"name": "router", "typed_config": {"@type": f"{_PREFIX}envoy.extensions.filters.http.router.v3.Router"}}
_TLS = f"{_PREFIX}envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_INTERNAL = f"{_PREFIX}envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
_RESOURCE = "the resource goes here"
_UNKNOWN = re.compile(r"unknown (?:weighted |shadow )?cluster:? '([^']+)'|[Uu]nknown cluster:? \"?'?([\w.:/-]+)")
_ADS = "the control plane"


def around(kind: str, resource: yaml.MappingNode, stubs: set[str], *, nameless: bool = False) -> str:
    """The bootstrap as YAML, in it the resource as it was written. `nameless` adds a cluster that Envoy refuses."""
    static = _static(kind, resource)
    clusters = [*static.get("clusters", []), *({"name": name} for name in sorted({_ADS, *stubs}))]
    grpc = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": _ADS}}],
    }
    bootstrap = {
        "node": {"id": "node", "cluster": "cluster"},
        "dynamic_resources": {"ads_config": grpc},
        "bootstrap_extensions": [{"name": "internal", "typed_config": {"@type": _INTERNAL}}],
        "static_resources": {**static, "clusters": clusters + ([{"name": ""}] if nameless else [])},
    }
    root: Any = yaml.compose(yaml.safe_dump(bootstrap), Loader=yaml.SafeLoader)
    _put(root, resource)
    return yaml.serialize(root)


def _static(kind: str, resource: yaml.MappingNode) -> dict[str, Any]:
    if kind == CLUSTER:
        return {"clusters": [_RESOURCE]}
    if kind == ENDPOINTS:
        return {"clusters": [{"name": "endpoints", "load_assignment": _RESOURCE}]}
    if kind == SECRET:
        return {"secrets": [_RESOURCE], "clusters": [_user(resource)]}
    if kind == LISTENER:
        return {"listeners": [_RESOURCE]}
    routes: Any = _RESOURCE if kind == ROUTES else {"name": "routes", "virtual_hosts": [_RESOURCE]}
    manager = {"@type": _PREFIX + _MANAGER, "stat_prefix": "http", "http_filters": [_ROUTER], "route_config": routes}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"listeners": [{"name": "listener", "address": address, "filter_chains": [chain]}]}


def _user(secret: yaml.MappingNode) -> dict[str, Any]:
    """A cluster that uses the secret: Envoy judges no other."""
    fields = {name.value: value.value for name, value in secret.value}
    config = {"name": fields.get("name", "")}
    used: dict[str, Any] = {}
    if {"tls_certificate", "tlsCertificate"} & set(fields):
        used = {"tls_certificate_sds_secret_configs": [config]}
    elif {"validation_context", "validationContext"} & set(fields):
        used = {"validation_context_sds_secret_config": config}
    context = {"@type": _TLS, "common_tls_context": used}
    return {"name": "user", "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context}}


def _put(node: yaml.Node, resource: yaml.MappingNode) -> None:
    for index, each in enumerate(node.value if isinstance(node, yaml.CollectionNode) else ()):
        value = each[1] if isinstance(each, tuple) else each
        if value.value == _RESOURCE:
            node.value[index] = (each[0], resource) if isinstance(each, tuple) else resource
        else:
            _put(value, resource)


def stubs_for(refusal: str) -> set[str]:
    """The clusters that Envoy misses: a resource names them, and another one has them."""
    return {next(filter(None, match.groups())) for match in _UNKNOWN.finditer(refusal)}


def found_in(kind: str, bootstrap: Any) -> Any:
    """The resource in a bootstrap that was put around it."""
    static = bootstrap.static_resources
    if kind == CLUSTER:
        return static.clusters[0]
    if kind == ENDPOINTS:
        return static.clusters[0].load_assignment
    if kind == SECRET:
        return static.secrets[0]
    if kind == LISTENER:
        return static.listeners[0]
    manager: Any = find_message(_MANAGER)
    routes = manager.FromString(static.listeners[0].filter_chains[0].filters[0].typed_config.value).route_config
    return routes if kind == ROUTES else routes.virtual_hosts[0]
