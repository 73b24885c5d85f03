"""Translate between the v2 and v3 type URLs of a resource type (gRFC A30; C18 of the requirements).

The v2 and v3 messages are the same on the wire, field by field, so only the type URLs differ. The core uses the v3 URL
of every type. At the edge of a stream, `TypeNames` notes which version the client uses for each type: requests may have
either URL, and responses have the client's (VER-9).
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

# The v2 URL of each v3 URL. Types that are not here exist in one version only.
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

_NO_TYPES: frozenset[TypeUrl] = frozenset()  # one for all clients: each empty set takes 216 bytes


def as_v3(type_url: TypeUrl) -> TypeUrl:
    """Return the v3 URL, by which the engine knows the type; a URL without a twin comes back unchanged."""
    return _V3.get(type_url, type_url)


def as_v2(type_url: TypeUrl) -> TypeUrl:
    """Return the v2 URL; a URL without a twin comes back unchanged."""
    return _V2.get(type_url, type_url)


def has_twin(type_url: TypeUrl) -> bool:
    """Whether the type exists in both versions, so that its URL says which one; takes either URL."""
    return type_url in _V2 or type_url in _V3


def wrapper_of(type_url: TypeUrl) -> TypeUrl:
    """Return the type URL of discovery.Resource in the same version as the type that it wraps."""
    return as_v2(RESOURCE) if type_url in _V3 else RESOURCE


class TypeNames:
    """The version by whose names one client calls its types: that of its last request for each type (VER-3)."""

    __slots__ = ("others",)

    def __init__(self, only_type: TypeUrl | None = None, *, v2: bool = False) -> None:
        # SRV-3: on a service of one type the method says the type, and so the version too.
        # The v3 URLs of the types for which this client uses the v2 name.
        self.others = frozenset((only_type,)) if v2 and only_type is not None else _NO_TYPES

    def note_url(self, type_url: TypeUrl) -> TypeUrl:
        """Note which URL the client uses for a type; return the v3 URL."""
        inside = as_v3(type_url)
        if inside != type_url:
            self.others |= {inside}
        elif inside in self.others:
            self.others -= {inside}
        return inside

    def is_v2(self, type_url: TypeUrl) -> bool:
        """Whether the client uses the v2 name for this type, given by its v3 URL."""
        return type_url in self.others
