"""The two versions of a resource type: what v2 called it, and v3 (gRFC A30; C18 of the requirements).

The messages are the same on the wire, field by field, so only the type URLs differ. Inside, everything goes by its v3
URL; a transport puts the names of its own version on what it sends, and takes either in what it gets (VER-9).
"""

from __future__ import annotations

from .types import (
    CLUSTER,
    ENDPOINT,
    LB_ENDPOINT,
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
    LB_ENDPOINT: PREFIX + "envoy.api.v2.endpoint.LbEndpoint",
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


def has_twin(type_url: TypeUrl) -> bool:
    """Whether its name says a version; by the name of v3 or of v2."""
    return type_url in _V2 or type_url in _V3


def wrapper_of(type_url: TypeUrl) -> TypeUrl:
    """The Resource of the same version as what it wraps."""
    return as_v2(RESOURCE) if type_url in _V3 else RESOURCE


class Names:
    """Which version's names the client of one stream uses for its types: those of its last request for each (VER-3)."""

    __slots__ = ("others",)

    def __init__(self, only_type: TypeUrl | None = None, *, v2: bool = False) -> None:
        # SRV-3: a service of one type says the type for the client, and so the version.
        # Those that it has by other names than there are in here.
        self.others = {only_type} if v2 and only_type is not None else set()

    def take(self, type_url: TypeUrl) -> TypeUrl:
        """Note how the client calls it; returns what it is called in here."""
        inside = as_v3(type_url)
        if inside != type_url:
            self.others.add(inside)
        else:
            self.others.discard(inside)
        return inside

    def is_v2(self, type_url: TypeUrl) -> bool:
        return type_url in self.others
