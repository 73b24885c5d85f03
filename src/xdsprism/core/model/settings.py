"""Define the choices that the protocol leaves to a server; the daemon's own settings are elsewhere.

These settings decide what goes on the wire: which params a node's plain subscriptions have, how large a response may
be, how long a removal waits, who is told errors, and which limits hold (limits.py). Ports, files and certificates are
the daemon's business (config.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...argument_types import expect_fields
from ...errors import UsageError
from .events import Node
from .limits import Limits
from .node_params import check_names, params_of, with_defaults
from .types import Params
from .xdstp import authority_of

Engine = Literal["grpcio", "h2"]  # the transport of the streams: grpc.aio, or this project's own HTTP/2
UpstreamForm = Literal["auto", "locators", "names"]  # how a relay writes subscriptions with params (PRX-32)

ENGINE: Engine = "h2"


SERVER, RELAY = "xdsprism", "xdsprism-relay"  # control_plane.identifier of this project's servers and relays


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices that the xDS documents leave to a server."""

    identifier: str = SERVER  # SRV-20
    node_params: Collection[str] | None = None  # DESIGN 6.2: see node_params.py; None: all strings of the metadata
    # Params that plain subscriptions have in addition to those of the node, by the authority of the name; None is the
    # key for names that are not xdstp. A relay takes them from its bootstrap (DYN-48, DYN-49).
    default_params: Mapping[str | None, Params] = field(default_factory=dict)
    response_bytes: int = 3_500_000  # DLT-21
    idle_results: int = 10_000  # resources made by providers that are kept although no client subscribes to them
    ack_timeout: float = 5.0  # ORD-2: seconds that a removal waits for the ACK of the change that makes it safe
    drain_time: float = 1.0  # ORD-2: further seconds in which Envoy may serve connections by its old listeners
    resource_errors: Literal["locators", "all", "none"] = "locators"  # ERR-1: who is told why a resource is missing
    poll_hold: float = 20.0  # RST-2: seconds that a REST request waits for a change, if the client can wait
    load_interval: float = 10.0  # LRS-1: seconds between two load reports of a client
    load_clusters: Collection[str] | None = None  # the clusters that clients report on; None: all
    limits: Limits = field(default_factory=Limits)
    epoch: str = ""  # differs between two servers, and between two runs of one server (VHD-7)

    def __post_init__(self) -> None:
        expect_fields(self, resource_errors=str, limits=Limits)
        check_names(self.node_params)

    def params_of(self, node: Node) -> Params:
        """Return the params that a node gives to its plain subscriptions.

        TP2, Migrating From Node Metadata: clients of today get their variants without any change on their side.
        """
        return params_of(node, self.node_params)

    def plain_params(self, params: Params, name: str) -> Params:
        """Return the params of a plain subscription to `name`, by a client whose node gives `params`.

        A default counts for each key that the node does not give. DYN-49: an authority inherits nothing from another.
        """
        if not self.default_params:
            return params
        try:
            defaults = self.default_params.get(authority_of(name))
        except UsageError:  # a malformed xdstp name: the session refuses the subscription later, with the reason
            return params
        return with_defaults(params, defaults) if defaults else params

    def means_wildcard(self, node: Node) -> bool:
        """WLD-12: whether an empty first request of this client is a wildcard; gRPC clients never mean it as one."""
        return not node.user_agent.lower().startswith("grpc")
