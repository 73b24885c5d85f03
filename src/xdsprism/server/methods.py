"""Every gRPC method, once, for whatever transport carries it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..core.codec import Decoder
from ..core.events import Send
from ..core.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    TypeUrl,
)
from .calls import Call, Method, UnaryCall
from .hub import Hub

AGGREGATED = "envoy.service.discovery.v3.AggregatedDiscoveryService"

# Service, the noun in its method names, its resource type. SRV-2: VHDS is delta only.
SERVICES: tuple[tuple[str, str, TypeUrl], ...] = (
    ("envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", LISTENER),
    ("envoy.service.route.v3.RouteDiscoveryService", "Routes", ROUTE),
    ("envoy.service.route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", SCOPED_ROUTE),
    ("envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", CLUSTER),
    ("envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", ENDPOINT),
    ("envoy.service.secret.v3.SecretDiscoveryService", "Secrets", SECRET),
    ("envoy.service.runtime.v3.RuntimeDiscoveryService", "Runtime", RUNTIME),
    ("envoy.service.extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", EXTENSION_CONFIG),
)
VIRTUAL_HOSTS = "envoy.service.route.v3.VirtualHostDiscoveryService"


def discovery_methods(hub: Hub) -> Iterator[Method]:
    yield _stream(hub, f"/{AGGREGATED}/StreamAggregatedResources", delta=False)
    yield _stream(hub, f"/{AGGREGATED}/DeltaAggregatedResources", delta=True)
    for service, noun, type_url in SERVICES:
        yield _stream(hub, f"/{service}/Stream{noun}", delta=False, only_type=type_url)
        yield _stream(hub, f"/{service}/Delta{noun}", delta=True, only_type=type_url)
        yield Method(f"/{service}/Fetch{noun}", partial(_open_fetch, hub, type_url))
    yield _stream(hub, f"/{VIRTUAL_HOSTS}/DeltaVirtualHosts", delta=True, only_type=VIRTUAL_HOST)


def _stream(hub: Hub, path: str, *, delta: bool, only_type: TypeUrl | None = None) -> Method:
    return Method(path, lambda peer: hub.open(path, peer, delta=delta, only_type=only_type))


def _open_fetch(hub: Hub, type_url: TypeUrl, peer: str) -> Call:
    return UnaryCall(lambda message: fetch(hub, type_url, peer, message))


def fetch(hub: Hub, type_url: TypeUrl, peer: str, message: bytes) -> bytes:
    """A fetch is a SotW stream that ends after its first answer; where a stream would stay quiet, an empty one."""
    call = hub.open("Fetch", peer, delta=False, only_type=type_url)
    try:
        call.receive(message)
        request = Decoder(delta=False).decode(message)
        nothing = Send(type_url, False, "fetch", request.body.version)  # type: ignore[union-attr] # noqa: FBT003
        return next(call.poll(), None) or hub.encoder.encode(nothing)
    finally:
        call.close()
