"""What can be set about the protocol; the daemon's own settings are elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...errors import UsageError
from .events import Node
from .limits import Limits
from .node_params import check_names, params_of, with_defaults
from .types import Params
from .xdstp import authority_of

Engine = Literal["grpcio", "h2"]  # what carries the streams: grpc.aio, or the transport of our own
UpstreamForm = Literal["auto", "locators", "names"]  # how a relay asks its servers (PRX-32)

ENGINE: Engine = "h2"


SERVER, RELAY = "xdsprism", "xdsprism-relay"  # how control planes of this project call themselves


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices that the documents leave to a server."""

    identifier: str = SERVER  # SRV-20
    node_params: Collection[str] | None = None  # DESIGN 6.2: see node_params.py; None: all strings of the metadata
    # What plain subscriptions have beside what the node says: by the authority of the name, None for names that are not
    # xdstp. A relay takes them from its bootstrap (DYN-48, DYN-49).
    default_params: Mapping[str | None, Params] = field(default_factory=dict)
    response_bytes: int = 3_500_000  # DLT-21
    idle_results: int = 10_000  # of providers: what was made, and is kept though nobody wants it now
    ack_timeout: float = 5.0  # ORD-2: how long a removal waits for the change that makes it safe
    drain_time: float = 1.0  # ORD-2: and for connections of the listeners that it is safe without
    resource_errors: Literal["locators", "all", "none"] = "locators"  # ERR-1: who is told why a resource is missing
    poll_hold: float = 20.0  # RST-2: how long a REST request waits for news, if its client can
    load_interval: float = 10.0  # LRS-1: how often clients are to report their loads
    load_clusters: Collection[str] | None = None  # of these clusters; None: of all
    limits: Limits = field(default_factory=Limits)
    epoch: str = ""  # differs between two servers and between two lives of one (VHD-7)

    def __post_init__(self) -> None:
        check_names(self.node_params)

    def params_of(self, node: Node) -> Params:
        """TP2, Migrating From Node Metadata: today's clients get their variants with no change on their side."""
        return params_of(node, self.node_params)

    def plain_params(self, params: Params, name: str) -> Params:
        """The params of a plain subscription to `name`, of a client whose node gives `params`.

        A default counts for each key that the node does not give. DYN-49: nothing is inherited between authorities.
        """
        if not self.default_params:
            return params
        try:
            defaults = self.default_params.get(authority_of(name))
        except UsageError:  # no name at all: whoever takes the subscription says so
            return params
        return with_defaults(params, defaults) if defaults else params

    def means_wildcard(self, node: Node) -> bool:
        """WLD-12: gRPC clients never mean an empty first request as a wildcard."""
        return not node.user_agent.lower().startswith("grpc")
