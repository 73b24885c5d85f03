"""What goes into a session and what comes out: closed sets of plain values, no protobuf, no bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .constraints import Constraint
from .types import NO_PARAMS, Params, TypeUrl, Variant

# What a subscription is known by on its stream: the name and, for a locator, its exact params (DYN-19).
# None in place of params: a plain name, whose params come from the node (DESIGN 6.2).
Key = tuple[str, Params | None]

WILDCARD = "*"

# Of what a client says that it can do. TTL-1: the documents spell the first in two ways.
WRAPPED = frozenset({"xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"})
TTL = "xds.config.supports-resource-ttl"
# Without it a server must list the clusters whose load it wants to hear of (lrs.proto, send_all_clusters).
SEND_ALL_CLUSTERS = "envoy.lrs.supports_send_all_clusters"


@dataclass(frozen=True, slots=True)
class Node:
    """Who is at the other end, as it says itself; the first three are cut if they are long (truncation.py)."""

    id: str = ""  # still another for each client: what is cut has a digest of the whole
    cluster: str = ""
    user_agent: str = ""
    metadata: Params = NO_PARAMS  # the string values only
    features: frozenset[str] = frozenset()
    named: Params = NO_PARAMS  # what else the settings name: fields, nested keys, numbers, booleans (node_params.py)

    @property
    def takes_ttl(self) -> bool:
        """TTL-1: whether a SotW client reads wrapped resources, and their times to live."""
        return not WRAPPED.isdisjoint(self.features) and TTL in self.features


@dataclass(frozen=True, slots=True)
class Rejection:
    """error_detail: the client did not like a response."""

    code: int
    message: str  # cut if it is long


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """State of the world: each request says everything that the client wants."""

    wanted: tuple[Key, ...] = ()
    version: str = ""
    nonce: str = ""
    error: Rejection | None = None

    def with_lists(self, parts: Iterable[SotwRequest]) -> SotwRequest:
        """The same with all that is listed in parts of it."""
        wanted = [*self.wanted]
        for part in parts:
            wanted += part.wanted
        return replace(self, wanted=tuple(wanted))


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """Incremental: each request says what changes in what the client wants."""

    subscribe: tuple[Key, ...] = ()
    unsubscribe: tuple[Key, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    error: Rejection | None = None

    def with_lists(self, parts: Iterable[DeltaRequest]) -> DeltaRequest:
        """The same with all that is listed in parts of it."""
        subscribe, unsubscribe = [*self.subscribe], [*self.unsubscribe]
        versions = dict(self.initial_versions)
        for part in parts:
            subscribe += part.subscribe
            unsubscribe += part.unsubscribe
            versions.update(part.initial_versions)
        return replace(self, subscribe=tuple(subscribe), unsubscribe=tuple(unsubscribe), initial_versions=versions)


@dataclass(frozen=True, slots=True)
class Request:
    """One message as it came in. `node` is read from the first message of a stream only (SRV-6, SRV-25)."""

    type_url: TypeUrl
    body: SotwRequest | DeltaRequest
    node: Node | None = None
    other_node: bool = False  # SRV-7: a later message named a different node
    v2: bool = False  # it came in the words of v2, which has no times to live
    unread: int = 0  # names past the limit on those in one request (DYN-46)
    continues: bool = False  # it is a part of the one before, which was too large (SRV-24)
    is_v2: bool = field(default=False, compare=False)  # its type is called as in v2
    is_plain: bool = field(default=False, compare=False)  # it may be an ACK, and no more than that


@dataclass(frozen=True, slots=True)
class Absence:
    """The name of a variant that is gone, or of one that never was: name and constraints (DESIGN 6.4)."""

    name: str
    constraint: Constraint
    never: bool = field(default=False, compare=False)  # the latter: a negative answer


@dataclass(frozen=True, slots=True)
class ResourceError:
    """TP3: why a resource is not there."""

    about: Absence
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Send:
    """One response. Equal sends are encoded once and shared between streams (DESIGN 9)."""

    type_url: TypeUrl
    delta: bool
    nonce: str
    version: str
    plain: tuple[Variant, ...] = ()
    located: tuple[Variant, ...] = ()
    removed: tuple[str, ...] = ()
    withdrawn: tuple[Absence, ...] = ()
    errors: tuple[ResourceError, ...] = ()
    beats: tuple[Variant, ...] = ()  # TTL-2: heartbeats, in plain form
    located_beats: tuple[Variant, ...] = ()
    ttl: bool = False  # SotW: what has a time to live is wrapped, and says so (TTL-1)
    unresolved: tuple[str, ...] = ()  # VHD-7: hosts that there are none for, each a resource without contents
    absent: str = ""  # their version
    aliases: tuple[tuple[str, ...], ...] = ()  # VHD-4: further ones, of each in `plain` and then in `located`

    @property
    def is_heartbeat(self) -> bool:
        return bool(self.beats or self.located_beats)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variant.name for variant in (*self.plain, *self.located))

    @property
    def count(self) -> int:
        return len(self.plain) + len(self.located)
