"""Define what goes into a session and what comes out of it: closed sets of plain values, no protobuf, no bytes.

The codec decodes each DiscoveryRequest or DeltaDiscoveryRequest into one `Request`, whose body is a `SotwRequest` or a
`DeltaRequest`. A session answers with `Send` objects, one per response, which the codec encodes. The session never sees
the wire format, and therefore serves v2 and v3, grpcio and h2 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from .constraints import Constraint
from .steps import Steps
from .types import NO_PARAMS, Params, TypeUrl, Variant


class Key(NamedTuple):
    """The key of a subscription on its stream: a plain name, or a locator (DYN-19).

    A named tuple, since a large request has a million of them: it takes no more memory than a tuple, and dictionaries
    compare it as fast.
    """

    name: str
    tag: Params | None = None  # the exact params of a locator; None: a plain name, whose params come from the node

    @property
    def is_locator(self) -> bool:
        """Whether the client subscribed by a locator, and so wants the answer with constraints."""
        return self.tag is not None


def plain_keys(names: Iterable[str]) -> Iterator[Key]:
    """Make the keys of plain names, without a call in Python for each: a request may have a million of them."""
    return map(_make_key, zip(names, repeat(None)))


_make_key = cast("Callable[[tuple[str, Params | None]], Key]", partial(tuple.__new__, Key))

WILDCARD: Final = "*"

# Values of Node.client_features that the engine knows. TTL-1: the documents spell the first in two ways.
WRAPPED = frozenset({"xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"})
TTL = "xds.config.supports-resource-ttl"
# A client without this feature needs the server to list the clusters to report on (lrs.proto, send_all_clusters).
SEND_ALL_CLUSTERS = "envoy.lrs.supports_send_all_clusters"


@dataclass(frozen=True, slots=True)
class Node:
    """The client, as its Node message describes it.

    The codec cuts id, cluster and user agent to a bounded length (truncation.py).
    """

    id: str = ""  # still unique per client when cut: the cut form includes a digest of the whole id
    cluster: str = ""
    user_agent: str = ""
    metadata: Params = NO_PARAMS  # top-level metadata whose value is a string
    features: frozenset[str] = frozenset()
    # Further params that the settings name: node fields, nested keys, numbers and booleans (node_params.py).
    named: Params = NO_PARAMS

    @property
    def takes_ttl(self) -> bool:
        """TTL-1: whether the client reads resources wrapped in discovery.Resource in SotW responses, and their TTLs."""
        return not WRAPPED.isdisjoint(self.features) and TTL in self.features


@dataclass(frozen=True, slots=True)
class Rejection:
    """The error_detail of a NACK: status code and message."""

    code: int
    message: str  # cut to a bounded length


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """The body of a SotW request, which lists every subscription of the type each time."""

    wanted: tuple[Key, ...] = ()  # resource_names and resource_locators
    version: str = ""  # version_info: the last version that the client accepted
    nonce: str = ""  # response_nonce; empty in the first request of a type on a stream
    error: Rejection | None = None  # set in a NACK

    def with_lists(self, parts: Iterable[SotwRequest]) -> Steps[SotwRequest]:
        """Return the request with the lists of its continuation parts appended, in steps."""
        wanted = [*self.wanted]
        for part in parts:
            wanted += part.wanted
            yield
        return replace(self, wanted=tuple(wanted))


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """The body of a delta request, which lists only the subscriptions to add and to remove."""

    subscribe: tuple[Key, ...] = ()
    unsubscribe: tuple[Key, ...] = ()
    # initial_resource_versions: what a client that reconnects still has, by name.
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""  # response_nonce: set in an ACK or NACK
    error: Rejection | None = None  # set in a NACK

    def with_lists(self, parts: Iterable[DeltaRequest]) -> Steps[DeltaRequest]:
        """Return the request with the lists of its continuation parts appended, in steps."""
        subscribe, unsubscribe = [*self.subscribe], [*self.unsubscribe]
        versions = dict(self.initial_versions)
        for part in parts:
            subscribe += part.subscribe
            unsubscribe += part.unsubscribe
            versions.update(part.initial_versions)
            yield
        return replace(self, subscribe=tuple(subscribe), unsubscribe=tuple(unsubscribe), initial_versions=versions)


@dataclass(frozen=True, slots=True)
class Request:
    """One decoded request. The codec reads `node` from the first request of a stream only (SRV-6, SRV-25)."""

    type_url: TypeUrl
    body: SotwRequest | DeltaRequest
    node: Node | None = None
    other_node: bool = False  # SRV-7: a later message named a different node
    v2: bool = False  # the client uses v2 names for this type, and gets v2 responses, which have no TTLs
    unread: int = 0  # number of names past the limit per request, which the codec did not read (DYN-46)
    continues: bool = False  # it continues the request before it, which was too large to handle as one (SRV-24)
    is_v2: bool = field(default=False, compare=False)  # this request's type URL is the v2 one
    is_plain: bool = field(default=False, compare=False)  # it may be an ACK that carries nothing else

    def with_node(self, node: Node) -> Request:
        """Return the same request of a client with this node."""
        return Request(
            self.type_url,
            self.body,
            node,
            self.other_node,
            self.v2,
            self.unread,
            self.continues,
            self.is_v2,
            self.is_plain,
        )


@dataclass(frozen=True, slots=True)
class Absence:
    """A variant that does not exist for some params, by name and constraint: withdrawn, or never there (DESIGN 6.4)."""

    name: str
    constraint: Constraint
    never: bool = field(default=False, compare=False)  # a negative answer: there was no such variant to withdraw


@dataclass(frozen=True, slots=True)
class ResourceError:
    """One entry of `resource_errors` (TP3): why a resource can't be served, instead of the resource."""

    about: Absence
    code: int
    message: str


class EncodedResponse:
    """The bytes of one response, shared by all streams that send it."""

    __slots__ = ("body", "framed")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.framed: Any = None  # the same as a transport has cut it for its frames, once one has


@dataclass(frozen=True, slots=True)
class Send:
    """One response, SotW or delta. Equal sends are encoded once and shared between streams (DESIGN 9).

    Each resource is in one of two forms. `plain` answers a subscription by plain name: the resource has a `name`.
    `located` answers a locator: the resource has a `resource_name` with its constraints. Removals come in the same two
    forms: `removed` holds plain names, `withdrawn` holds names with constraints.

    `encoded` has its bytes, until the end of the turn in which they were encoded.
    """

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
    located_beats: tuple[Variant, ...] = ()  # the same, for locators
    ttl: bool = False  # SotW: wrap resources that have a TTL in discovery.Resource (TTL-1)
    unresolved: tuple[str, ...] = ()  # VHD-7: hosts without a virtual host, each sent as a resource without contents
    absent: str = ""  # the version of those in `unresolved`
    aliases: tuple[tuple[str, ...], ...] = ()  # VHD-4: additional aliases of each in `plain`, then in `located`
    # By encoder: a store may have several servers, and each serves v2 and v3.
    encoded: dict[object, EncodedResponse] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def is_heartbeat(self) -> bool:
        """Whether the response carries TTL heartbeats."""
        return bool(self.beats or self.located_beats)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the resources with contents."""
        return tuple(variant.name for variant in (*self.plain, *self.located))

    @property
    def count(self) -> int:
        """Return how many resources with contents the response has."""
        return len(self.plain) + len(self.located)
