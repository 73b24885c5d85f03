"""Every gRPC method, once, for whatever transport carries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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

AGGREGATED = "envoy.service.discovery.v3.AggregatedDiscoveryService"

# Service, the noun in its method names, its resource type.
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
# SRV-2: the API gives these no SotW method and no fetch.
DELTA_SERVICES: tuple[tuple[str, str, TypeUrl], ...] = (
    ("envoy.service.route.v3.VirtualHostDiscoveryService", "VirtualHosts", VIRTUAL_HOST),
    (
        "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService",
        "LocalityEndpoints",
        PREFIX + "envoy.config.endpoint.v3.LbEndpoint",
    ),
)
DISCOVERY = (AGGREGATED, *(service for service, _, _ in (*SERVICES, *DELTA_SERVICES)))

NOTHING = f"{0:016x}"  # the version of no resources at all; it is the sum of their hashes


def discovery_methods(hub: Hub) -> Iterator[Method]:
    yield _stream(hub, f"/{AGGREGATED}/StreamAggregatedResources", delta=False)
    yield _stream(hub, f"/{AGGREGATED}/DeltaAggregatedResources", delta=True)
    for service, noun, type_url in SERVICES:
        yield _stream(hub, f"/{service}/Stream{noun}", delta=False, only_type=type_url)
        yield Method(f"/{service}/Fetch{noun}", partial(_open_fetch, hub, type_url))
    for service, noun, type_url in (*SERVICES, *DELTA_SERVICES):
        yield _stream(hub, f"/{service}/Delta{noun}", delta=True, only_type=type_url)


def _stream(hub: Hub, path: str, *, delta: bool, only_type: TypeUrl | None = None) -> Method:
    return Method(path, lambda peer: hub.open(path, peer, delta=delta, only_type=only_type))


def _open_fetch(hub: Hub, type_url: TypeUrl, peer: str) -> Call:
    return UnaryCall(lambda message: fetch(hub, type_url, peer, message))


def fetch(hub: Hub, type_url: TypeUrl, peer: str, message: bytes) -> bytes:
    """A fetch is a SotW stream that ends after its first answer; where a stream would stay quiet, an empty one."""
    call = hub.open("Fetch", peer, delta=False, only_type=type_url)
    try:
        call.take(_unversioned(Decoder(delta=False).decode(message)))
        answers = list(call.poll())
    finally:
        call.close()
    if len(answers) > 1:  # DYN-15
        raise PeerError("INVALID_ARGUMENT", "one answer can't hold a name both plain and as a locator: use a stream")
    return answers[0] if answers else hub.encoder.encode(Send(type_url, False, "fetch", NOTHING))  # noqa: FBT003


def _unversioned(request: Request) -> Request:
    """SOT-12 is for streams: the empty answer to a fetch would read as if all that the client has were gone."""
    body = request.body
    return replace(request, body=replace(body, version="")) if isinstance(body, SotwRequest) else request
