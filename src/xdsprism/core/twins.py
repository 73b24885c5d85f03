"""The two versions of a resource type: what v2 called it, and v3 (gRFC A30; C18 of the requirements).

The messages are the same on the wire, field by field, so only the type URLs differ. Inside, everything goes by its v3
URL; a transport puts the names of its own version on what it sends, and takes either in what it gets (VER-9).
"""

from __future__ import annotations

from .types import (
    CLUSTER,
    ENDPOINT,
    LISTENER,
    PREFIX,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    TypeUrl,
)

RESOURCE = PREFIX + "envoy.service.discovery.v3.Resource"

_V2 = {
    LISTENER: PREFIX + "envoy.api.v2.Listener",
    ROUTE: PREFIX + "envoy.api.v2.RouteConfiguration",
    SCOPED_ROUTE: PREFIX + "envoy.api.v2.ScopedRouteConfiguration",
    VIRTUAL_HOST: PREFIX + "envoy.api.v2.route.VirtualHost",
    CLUSTER: PREFIX + "envoy.api.v2.Cluster",
    ENDPOINT: PREFIX + "envoy.api.v2.ClusterLoadAssignment",
    SECRET: PREFIX + "envoy.api.v2.auth.Secret",
    RUNTIME: PREFIX + "envoy.service.discovery.v2.Runtime",
    RESOURCE: PREFIX + "envoy.api.v2.Resource",
}
_V3 = {v2: v3 for v3, v2 in _V2.items()}


def as_v3(type_url: TypeUrl) -> TypeUrl:
    """The name that a type goes by in here; one without a twin is left as it is."""
    return _V3.get(type_url, type_url)


def as_v2(type_url: TypeUrl) -> TypeUrl:
    return _V2.get(type_url, type_url)
