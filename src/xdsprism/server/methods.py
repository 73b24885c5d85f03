"""Lists every discovery and load reporting method of the v2 and v3 APIs, for any transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..core.codec.pieces import RequestPieces
from ..core.model.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LB_ENDPOINT,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    TypeUrl,
)
from ..errors import PeerError
from ..http2.grpc import PiecesFactory
from .calls import Call, Method, Peer, RefusedCall
from .fetch import open_fetch
from .hub import Hub
from .lrs import LoadCall

# A service, the noun in its method names (StreamListeners), and its resource type.
Typed = tuple[str, str, TypeUrl]


@dataclass(frozen=True, slots=True)
class Api:
    """The services of one version of the xDS API."""

    aggregated: str
    services: tuple[Typed, ...]
    delta_services: tuple[Typed, ...]  # SRV-2: the API gives these no SotW method and no fetch
    loads: str
    v2: bool = False
    statuses: str = ""  # the service of client_status.py; empty: this version has none (VER-11)

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of all its services."""
        typed = (service for service, _, _ in (*self.services, *self.delta_services))
        return self.aggregated, *typed, self.loads, *((self.statuses,) if self.statuses else ())


_V3_SERVICES: tuple[Typed, ...] = (
    ("envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", LISTENER),
    ("envoy.service.route.v3.RouteDiscoveryService", "Routes", ROUTE),
    ("envoy.service.route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", SCOPED_ROUTE),
    ("envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", CLUSTER),
    ("envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", ENDPOINT),
    ("envoy.service.secret.v3.SecretDiscoveryService", "Secrets", SECRET),
    ("envoy.service.runtime.v3.RuntimeDiscoveryService", "Runtime", RUNTIME),
    ("envoy.service.extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", EXTENSION_CONFIG),
)
_V3_DELTA_SERVICES: tuple[Typed, ...] = (
    ("envoy.service.route.v3.VirtualHostDiscoveryService", "VirtualHosts", VIRTUAL_HOST),
    (
        "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService",
        "LocalityEndpoints",
        LB_ENDPOINT,
    ),
)
CLIENT_STATUS = "envoy.service.status.v3.ClientStatusDiscoveryService"
V3 = Api(
    "envoy.service.discovery.v3.AggregatedDiscoveryService",
    _V3_SERVICES,
    _V3_DELTA_SERVICES,
    "envoy.service.load_stats.v3.LoadReportingService",
    statuses=CLIENT_STATUS,
)

_V2_SERVICES: tuple[Typed, ...] = (
    ("envoy.api.v2.ListenerDiscoveryService", "Listeners", LISTENER),
    ("envoy.api.v2.RouteDiscoveryService", "Routes", ROUTE),
    ("envoy.api.v2.ScopedRoutesDiscoveryService", "ScopedRoutes", SCOPED_ROUTE),
    ("envoy.api.v2.ClusterDiscoveryService", "Clusters", CLUSTER),
    ("envoy.api.v2.EndpointDiscoveryService", "Endpoints", ENDPOINT),
    ("envoy.service.discovery.v2.SecretDiscoveryService", "Secrets", SECRET),
    ("envoy.service.discovery.v2.RuntimeDiscoveryService", "Runtime", RUNTIME),
)
_V2_DELTA_SERVICES: tuple[Typed, ...] = (("envoy.api.v2.VirtualHostDiscoveryService", "VirtualHosts", VIRTUAL_HOST),)
V2 = Api(
    "envoy.service.discovery.v2.AggregatedDiscoveryService",
    _V2_SERVICES,
    _V2_DELTA_SERVICES,
    "envoy.service.load_stats.v2.LoadReportingService",
    v2=True,
)


def discovery_methods(hub: Hub, api: Api = V3) -> Iterator[Method]:
    """Return the discovery methods of one API version. Both versions lead to the same hub (VER-1)."""
    yield _stream(hub, api, f"/{api.aggregated}/StreamAggregatedResources", delta=False)
    yield _stream(hub, api, f"/{api.aggregated}/DeltaAggregatedResources", delta=True)
    for service, noun, type_url in api.services:
        yield _stream(hub, api, f"/{service}/Stream{noun}", delta=False, only_type=type_url)
        yield _fetch(hub, api, f"/{service}/Fetch{noun}", type_url)
    for service, noun, type_url in (*api.services, *api.delta_services):
        yield _stream(hub, api, f"/{service}/Delta{noun}", delta=True, only_type=type_url)


def _stream(hub: Hub, api: Api, path: str, *, delta: bool, only_type: TypeUrl | None = None) -> Method:
    # SRV-24: a large delta request can be split. A SotW request can't: what it omits is unsubscribed.
    parting = RequestPieces if delta else None
    return _method(hub, path, lambda peer: hub.open(path, peer, delta=delta, only_type=only_type, v2=api.v2), parting)


def _fetch(hub: Hub, api: Api, path: str, only_type: TypeUrl) -> Method:
    def begin(peer: Peer) -> Call:
        hub.admit_fetch(peer)
        return open_fetch(hub, path, peer, only_type, v2=api.v2)

    return _method(hub, path, begin)


def load_methods(hub: Hub, api: Api = V3) -> Iterator[Method]:
    """Return the load reporting method of one API version; the messages are the same bytes in both (VER-10)."""
    yield _method(hub, f"/{api.loads}/StreamLoadStats", lambda peer: LoadCall(hub, peer))


def _method(hub: Hub, path: str, begin: Callable[[Peer], Call], parting: PiecesFactory | None = None) -> Method:
    """Return a method that begins a call for whoever its token says it is.

    It is refused, with a status, if the token is bad (OPS-16), or where the client exceeds a limit (OPS-3).
    """

    def open_call(peer: Peer) -> Call:
        try:
            return begin(hub.identify(peer))
        except PeerError as error:
            return RefusedCall(error.status, error.message, hub.clock())

    return Method(path, open_call, parting)
