"""Every gRPC method, once, for whatever transport carries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from ..core.codec import Decoder
from ..core.events import Request, Send, SotwRequest
from ..core.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    PREFIX,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    TypeUrl,
)
from ..errors import PeerError
from .calls import Call, Method, UnaryCall
from .hub import Hub

# Service, the noun in its method names, its resource type.
Typed = tuple[str, str, TypeUrl]


@dataclass(frozen=True, slots=True)
class Api:
    """The discovery services of one version of the API."""

    aggregated: str
    services: tuple[Typed, ...]
    delta_services: tuple[Typed, ...]  # SRV-2: the API gives these no SotW method and no fetch
    v2: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.aggregated, *(service for service, _, _ in (*self.services, *self.delta_services))


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
        PREFIX + "envoy.config.endpoint.v3.LbEndpoint",
    ),
)
V3 = Api("envoy.service.discovery.v3.AggregatedDiscoveryService", _V3_SERVICES, _V3_DELTA_SERVICES)

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
V2 = Api("envoy.service.discovery.v2.AggregatedDiscoveryService", _V2_SERVICES, _V2_DELTA_SERVICES, v2=True)

NOTHING = f"{0:016x}"  # the version of no resources at all; it is the sum of their hashes


def discovery_methods(hub: Hub, api: Api = V3) -> Iterator[Method]:
    """VER-1: of one version; both go to the same hub."""
    yield _stream(hub, api, f"/{api.aggregated}/StreamAggregatedResources", delta=False)
    yield _stream(hub, api, f"/{api.aggregated}/DeltaAggregatedResources", delta=True)
    for service, noun, type_url in api.services:
        yield _stream(hub, api, f"/{service}/Stream{noun}", delta=False, only_type=type_url)
        yield Method(f"/{service}/Fetch{noun}", partial(_open_fetch, hub, api, type_url))
    for service, noun, type_url in (*api.services, *api.delta_services):
        yield _stream(hub, api, f"/{service}/Delta{noun}", delta=True, only_type=type_url)


def _stream(hub: Hub, api: Api, path: str, *, delta: bool, only_type: TypeUrl | None = None) -> Method:
    return Method(path, lambda peer: hub.open(path, peer, delta=delta, only_type=only_type, v2=api.v2))


def _open_fetch(hub: Hub, api: Api, type_url: TypeUrl, peer: str) -> Call:
    return UnaryCall(lambda message: fetch(hub, type_url, peer, message, v2=api.v2))


def fetch(hub: Hub, type_url: TypeUrl, peer: str, message: bytes, *, v2: bool = False) -> bytes:
    """A fetch is a SotW stream that ends after its first answer; where a stream would stay quiet, an empty one."""
    call = hub.open("Fetch", peer, delta=False, only_type=type_url, v2=v2)
    try:
        call.take(_unversioned(Decoder(delta=False).decode(message)))
        answers = list(call.poll())
    finally:
        call.close()
    if len(answers) > 1:  # DYN-15
        raise PeerError("INVALID_ARGUMENT", "one answer can't hold a name both plain and as a locator: use a stream")
    return answers[0] if answers else call.encode(Send(type_url, False, "fetch", NOTHING))  # noqa: FBT003


def _unversioned(request: Request) -> Request:
    """SOT-12 is for streams: the empty answer to a fetch would read as if all that the client has were gone."""
    body = request.body
    return replace(request, body=replace(body, version="")) if isinstance(body, SotwRequest) else request
