"""Finds the references of a resource to others that Envoy fetches, and has them fetched from the new server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from ...core.model.types import ENDPOINT, EXTENSION_CONFIG, ROUTE, SCOPED_ROUTE, SECRET, TypeUrl
from ...messages.document import Path
from ...messages.json_parts import parts_of

ADS: dict[str, Any] = {"ads": {}, "resource_api_version": "V3"}

_HCM = "envoy.extensions.filters.network.http_connection_manager.v3."
_API_SOURCE = "envoy.config.core.v3.ApiConfigSource"
HTTP_CONNECTION_MANAGER = f"{_HCM}HttpConnectionManager"


class Link(NamedTuple):
    """A reference to a resource that Envoy fetches."""

    path: Path
    type_url: TypeUrl
    name: str  # empty: whichever there are
    owner: dict[str, Any]  # the message with the config source
    field: str  # the field of the owner that has the config source; it may be missing

    @property
    def source(self) -> dict[str, Any] | None:
        return self.owner.get(self.field)

    @property
    def is_over_ads(self) -> bool:
        source = self.source
        return source is not None and ("ads" in source or "self" in source)


def links_of(body: dict[str, Any], full_name: str) -> Iterator[Link]:
    """Yield the references of a resource, or of a part of a bootstrap."""
    for part in parts_of(body, full_name):
        find = _LINKS.get(part.type)
        if find is not None:
            found = find(part.value)
            if found is not None:
                type_url, name, owner, field = found
                yield Link(part.path, type_url, name, owner, field)


def api_clusters_of(body: dict[str, Any], full_name: str) -> Iterator[tuple[Path, str]]:
    """Yield the clusters of config sources, with their paths. Envoy wants these clusters in its bootstrap."""
    for part in parts_of(body, full_name):
        if part.type == _API_SOURCE:
            named = [each.get("envoy_grpc", {}).get("cluster_name") for each in part.value.get("grpc_services", ())]
            for name in (*named, *part.value.get("cluster_names", ())):
                if name:
                    yield part.path, name


def redirect(link: Link, source: dict[str, Any]) -> None:
    """Have Envoy fetch the resource from another source."""
    link.owner[link.field] = deepcopy(source)


_Found = tuple[TypeUrl, str, dict[str, Any], str]


def _rds(value: dict[str, Any]) -> _Found | None:
    return ROUTE, value.get("route_config_name", ""), value, "config_source"


def _srds(value: dict[str, Any]) -> _Found | None:
    """Scoped routes are asked for by wildcard."""
    return SCOPED_ROUTE, "", value, "scoped_rds_config_source"


def _scope_rds(value: dict[str, Any]) -> _Found | None:
    """Route configurations of scopes are named by the scopes."""
    return (ROUTE, "", value, "rds_config_source") if "rds_config_source" in value else None


def _eds(value: dict[str, Any]) -> _Found | None:
    config = value.get("eds_cluster_config")
    if value.get("type") != "EDS" or config is None:
        return None
    return ENDPOINT, config.get("service_name") or value.get("name", ""), config, "eds_config"


def _sds(value: dict[str, Any]) -> _Found | None:
    return SECRET, value.get("name", ""), value, "sds_config"


def _ecds(value: dict[str, Any]) -> _Found | None:
    config = value.get("config_discovery")
    return (EXTENSION_CONFIG, value.get("name", ""), config, "config_source") if config is not None else None


_LINKS: dict[str, Callable[[dict[str, Any]], _Found | None]] = {
    f"{_HCM}Rds": _rds,
    f"{_HCM}ScopedRds": _srds,
    f"{_HCM}ScopedRoutes": _scope_rds,
    "envoy.config.cluster.v3.Cluster": _eds,
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": _sds,
    f"{_HCM}HttpFilter": _ecds,
    "envoy.config.listener.v3.Filter": _ecds,
    "envoy.config.listener.v3.ListenerFilter": _ecds,
}
