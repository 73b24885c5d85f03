"""What can be set about the protocol; the daemon's own settings are elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from .events import Node
from .twins import as_v2
from .types import NO_PARAMS, VIRTUAL_HOST, Params, TypeUrl

Engine = Literal["grpcio", "h2"]  # what carries the streams: grpc.aio, or the transport of our own
ENGINE: Engine = "h2"


@dataclass(frozen=True, slots=True)
class Limits:
    """Past these a stream ends with a status that says so; no other stream is touched (DYN-46)."""

    params: int = 64
    key_bytes: int = 256
    value_bytes: int = 1024
    subscriptions: int = 200_000  # per stream; a request of 100,000 names is a large mesh, not an attack
    locators: int = 100_000
    types: int = 128  # per stream
    name_bytes: int = 4096  # of a resource's name, and of a type URL
    hosts: int = 2_000_000  # per stream: Envoy comes back with all that it ever asked for (V15)
    unresolved: int = 10_000  # of these, the ones that there are none for: the oldest are forgotten (VHD-25)
    polls: int = 10_000  # REST requests that wait for news; more are told at once that there are none
    loads: int = 10_000  # per stream: clusters and localities whose loads are kept

    def names_of(self, type_url: TypeUrl) -> int:
        return self.hosts if type_url in (VIRTUAL_HOST, as_v2(VIRTUAL_HOST)) else self.subscriptions


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices that the documents leave to a server."""

    identifier: str = "xdsprism"  # SRV-20
    node_params: Collection[str] | None = None  # DESIGN 6.2: these keys of the node's metadata; None: all of them
    response_bytes: int = 3_500_000  # DLT-21
    idle_results: int = 10_000  # of providers: what was made, and is kept though nobody wants it now
    ack_timeout: float = 5.0  # ORD-2: how long a removal waits for the change that makes it safe
    resource_errors: Literal["locators", "all", "none"] = "locators"  # ERR-1: who is told why a resource is missing
    poll_hold: float = 20.0  # RST-2: how long a REST request waits for news, if its client can
    load_interval: float = 10.0  # LRS-1: how often clients are to report their loads
    load_clusters: Collection[str] | None = None  # of these clusters; None: of all
    limits: Limits = Limits()
    epoch: str = ""  # differs between two servers and between two lives of one (VHD-7)

    def params_of(self, node: Node) -> Params:
        """TP2, Migrating From Node Metadata: today's clients get their variants with no change on their side."""
        if self.node_params is None:
            return node.metadata
        return node.metadata.only(self.node_params) if self.node_params else NO_PARAMS

    def means_wildcard(self, node: Node) -> bool:
        """WLD-12: gRPC clients never mean an empty first request as a wildcard."""
        return not node.user_agent.lower().startswith("grpc")
