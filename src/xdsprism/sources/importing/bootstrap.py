"""Makes the bootstrap with which Envoy fetches its resources from the server."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from ipaddress import ip_address
from typing import Any, NamedTuple

from ...core.model.types import CLUSTER, LISTENER, SECRET
from .config_sources import ADS
from .resources import Resource

_HTTP2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_FIELDS = {LISTENER: "listeners", CLUSTER: "clusters", SECRET: "secrets"}
NODE = {"id": "envoy", "cluster": "envoy"}  # unless the bootstrap says otherwise


class ServerAddress(NamedTuple):
    """Where Envoy finds the server."""

    host: str  # an address, or a DNS name
    port: int


def source_of(cluster: str, *, by_ads: bool) -> dict[str, Any]:
    """Return the config source for the server: ADS, or a stream for each type if another server has the ADS stream."""
    return ADS if by_ads else {"api_config_source": _api(cluster), "resource_api_version": "V3"}


def _api(cluster: str) -> dict[str, Any]:
    return {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,  # Envoy's node is 60 kB
        "grpc_services": [{"envoy_grpc": {"cluster_name": cluster}}],
    }


def fetching(
    rest: dict[str, Any],
    staying: Iterable[Resource],
    source: dict[str, Any],
    cluster: str,
    server: ServerAddress,
    is_dump: bool,  # noqa: FBT001 # where the fields come from
) -> dict[str, Any]:
    """Return a bootstrap with the given fields that fetches listeners and clusters, unless another server has them.

    Of a dump all other servers are replaced: it has what they sent.
    """
    dynamic = dict(rest.get("dynamic_resources", {}))
    if is_dump:
        dynamic |= {"lds_config": deepcopy(source), "cds_config": deepcopy(source)}
    else:
        for field in ("lds", "cds"):
            if f"{field}_resources_locator" not in dynamic:
                dynamic.setdefault(f"{field}_config", deepcopy(source))
    if source is ADS:
        dynamic["ads_config"] = _api(cluster)
    static: dict[str, list[Any]] = {}
    for each in staying:
        static.setdefault(_FIELDS[each.type_url], []).append(each.body)
    static.setdefault("clusters", []).append(_cluster(cluster, server))
    first = {"node": {**NODE, **rest.get("node", {})}}
    if "admin" in rest:
        first["admin"] = rest["admin"]
    return {**first, "dynamic_resources": dynamic, "static_resources": static} | {
        key: value for key, value in rest.items() if key not in ("node", "admin", "dynamic_resources")
    }


def _cluster(name: str, server: ServerAddress) -> dict[str, Any]:
    """Return the cluster of the server. The keepalive notices a server that is gone without a word."""
    http2 = {"connection_keepalive": {"interval": "30s", "timeout": "5s"}}
    address = {"socket_address": {"address": server.host, "port_value": server.port}}
    return {
        "name": name,
        "type": "STATIC" if _is_address(server.host) else "STRICT_DNS",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            _HTTP2: {
                "@type": f"type.googleapis.com/{_HTTP2}",
                "explicit_http_config": {"http2_protocol_options": http2},
            }
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
