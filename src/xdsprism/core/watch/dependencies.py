"""Join a listener with all the resources that it refers to into one consistent configuration (gRFCs A74, A95).

    listener ─▶ route configurations ─▶ clusters ─▶ endpoints ─▶ collections of endpoints (LEDS)
                                           └─▶ clusters of an aggregate

A client that watches each resource by itself sees torn configurations, such as a route to a cluster that has not come
yet. This object waits until every reference has a resource or an error, and only then returns the whole:

    deps = Dependencies("shop")
    deps.wanted                      # what to watch: at first only the listener
    deps.learn(ref, part or error)   # each resource or error that comes
    deps.advance()                   # the next whole, or None while a reference is open; updates `wanted`

A missing listener or route configuration is an error of the whole, since no request can be routed without it. Any other
error concerns one cluster only, and the rest stays in use. The resources of the last whole stay wanted until the next
whole is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...errors import WatchError
from ..model.types import CLUSTER, ENDPOINT, LB_ENDPOINT_COLLECTION, LISTENER, ROUTE, TypeUrl

DEPTH = 16  # A37: levels of clusters within clusters, with the root aggregate and the leaf

Ref = tuple[TypeUrl, str]


# -- input: a resource, and what it refers to


@dataclass(frozen=True, slots=True, eq=False)
class RoutePart:
    """A route configuration, and the clusters that it names."""

    message: Any
    clusters: tuple[str, ...]
    trusted: bool = False  # BST-6: it came from a `trusted_xds_server`, by itself or inside its listener


@dataclass(frozen=True, slots=True, eq=False)
class ListenerPart:
    """A listener, and its route configurations."""

    message: Any
    routes: tuple[str | RoutePart, ...]  # by name, or inline


@dataclass(frozen=True, slots=True, eq=False)
class ClusterPart:
    """A cluster, and where its endpoints come from: EDS, inline, or the clusters of an aggregate."""

    message: Any
    service: str | None = None  # the name to subscribe to in EDS
    endpoints: Any = None  # the ClusterLoadAssignment, if it is inline
    children: tuple[str, ...] | None = None  # the clusters of an aggregate


# Returns the ClusterLoadAssignment with the endpoints of the given collections in their localities.
Fill = Callable[[Mapping[str, tuple[Any, ...]]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class EndpointPart:
    """A ClusterLoadAssignment, and the endpoint collections that it refers to."""

    message: Any
    collections: tuple[str, ...] = ()  # CLI-25: collections that have the endpoints of some localities
    fill: Fill | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CollectionPart:
    """The endpoints of one LbEndpointCollection."""

    endpoints: tuple[Any, ...]


Part = ListenerPart | RoutePart | ClusterPart | EndpointPart | CollectionPart
Known = Part | WatchError


# -- output


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One cluster, or the error why it can't be used.

    An aggregate has `leaves`: the clusters to use in its place, best first, without unusable ones. Any other cluster
    has `endpoints`, inline or from EDS, or an `endpoints_error`. Endpoints from LEDS are in `lb_endpoints` of their
    locality like all others; a locality whose collection is in `collection_errors` has none.
    """

    cluster: Any = None
    endpoints: Any = None
    endpoints_error: WatchError | None = None
    leaves: tuple[str, ...] | None = None
    error: WatchError | None = None
    collection_errors: Mapping[str, WatchError] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that belongs to one listener; or an `error`, which also invalidates every earlier Config."""

    listener: Any = None
    routes: tuple[Any, ...] = ()  # one for each HTTP connection manager with routes
    clusters: Mapping[str, ClusterConfig] = field(default_factory=lambda: MappingProxyType({}))
    error: WatchError | None = None
    trusted_routes: tuple[bool, ...] = ()  # BST-6: of each of `routes`, whether it came from a `trusted_xds_server`


class Dependencies:
    """The known dependencies of one listener; `clusters` are wanted in addition to those that routes name."""

    def __init__(self, listener: str, clusters: Iterable[str] = ()) -> None:
        self.wanted: dict[Ref, None] = {(LISTENER, listener): None}
        self._listener = listener
        self._clusters = tuple(clusters)
        self._known: dict[Ref, Known] = {}
        self._shown: dict[Ref, Known] = {}

    @property
    def incomplete(self) -> bool:
        """Whether something wanted has neither a resource nor an error yet."""
        return len(self._known) < len(self.wanted)

    def learn(self, ref: Ref, known: Known) -> None:
        """Note the resource or the error for a reference, if it is wanted."""
        if ref in self.wanted:
            self._known[ref] = known

    def advance(self) -> Config | None:
        """Return the next whole configuration, or None if a reference is open or nothing changed."""
        walk = _Walk(self._known)
        config = walk.config(self._listener, self._clusters)
        # Keep watching what the last whole is made of: the client uses it until the next whole is complete.
        self.wanted = {**dict.fromkeys(self._shown), **walk.seen} if walk.is_torn else walk.seen
        self._known = {ref: known for ref, known in self._known.items() if ref in self.wanted}
        # `==` compares parts by identity, so a part that came again counts as a change.
        if walk.is_torn or self._known == self._shown:
            return None
        self._shown = dict(self._known)
        return config


class _Walk:
    """One walk along all references, by what is known now; `seen` collects the references."""

    def __init__(self, known: Mapping[Ref, Known]) -> None:
        self._known = known
        self.seen: dict[Ref, None] = {}
        self.is_torn = False  # a reference has neither a resource nor an error

    def config(self, listener: str, clusters: Iterable[str]) -> Config:
        """Walk from the listener down, and return the configuration; incomplete if `is_torn`."""
        root = self._find(LISTENER, listener)
        if not isinstance(root, ListenerPart):
            return Config(error=root if isinstance(root, WatchError) else None)
        found = [self._find(ROUTE, each) if isinstance(each, str) else each for each in root.routes]
        # Without all of its route configurations a listener can't route (A74).
        for each in found:
            if isinstance(each, WatchError):
                return Config(error=each)
        routes = [each for each in found if isinstance(each, RoutePart)]
        names = dict.fromkeys([*(name for route in routes for name in route.clusters), *clusters])
        parts = self._clusters(names)
        shown = {name: self._cluster(name, parts) for name in parts}
        return Config(
            root.message,
            tuple(route.message for route in routes),
            MappingProxyType(shown),
            trusted_routes=tuple(route.trusted for route in routes),
        )

    def _find(self, type_url: TypeUrl, name: str) -> Known | None:
        """Return the known part of a reference, and note that the walk reached it."""
        ref = type_url, name
        self.seen[ref] = None
        known = self._known.get(ref)
        self.is_torn = self.is_torn or known is None
        return known

    def _clusters(self, names: Iterable[str]) -> dict[str, Known | None]:
        """Return these clusters and the clusters of aggregates, level by level, DEPTH levels at most."""
        found: dict[str, Known | None] = {}
        for _ in range(DEPTH):
            level = [name for name in dict.fromkeys(names) if name not in found]
            # Breadth first, each name once, so that circles end.
            found.update((name, self._find(CLUSTER, name)) for name in level)
            names = [child for name in level for child in _children(found[name])]
        return found

    def _cluster(self, name: str, parts: Mapping[str, Known | None]) -> ClusterConfig:
        """Return the configuration of one cluster, with its endpoints or leaves."""
        part = parts[name]
        if not isinstance(part, ClusterPart):
            return ClusterConfig(error=part if isinstance(part, WatchError) else None)
        if part.children is not None:
            return _aggregate(name, part, parts)
        if part.service is None:
            return ClusterConfig(part.message, part.endpoints)
        known = self._find(ENDPOINT, part.service)
        if isinstance(known, EndpointPart):
            return self._with_collections(part, known)
        return ClusterConfig(part.message, endpoints_error=known if isinstance(known, WatchError) else None)

    def _with_collections(self, cluster: ClusterPart, part: EndpointPart) -> ClusterConfig:
        """Add the endpoints of collections (CLI-25). A missing collection concerns its localities only."""
        known = {name: self._find(LB_ENDPOINT_COLLECTION, name) for name in part.collections}
        # An incomplete whole is not shown, so do not spend time on filling.
        if part.fill is None or self.is_torn:
            return ClusterConfig(cluster.message, part.message)
        found = {name: each.endpoints for name, each in known.items() if isinstance(each, CollectionPart)}
        errors = {name: each for name, each in known.items() if isinstance(each, WatchError)}
        return ClusterConfig(cluster.message, part.fill(found), collection_errors=MappingProxyType(errors))


def _children(known: Known | None) -> tuple[str, ...]:
    return known.children or () if isinstance(known, ClusterPart) else ()


def _aggregate(name: str, part: ClusterPart, parts: Mapping[str, Known | None]) -> ClusterConfig:
    """Return the configuration of an aggregate, with its leaves or an error."""
    try:
        leaves = _Leaves(name, parts).collect()
    except WatchError as error:
        return ClusterConfig(part.message, error=error)
    return ClusterConfig(part.message, leaves=leaves)


class _Leaves:
    """The leaf clusters below one aggregate, depth first, in the order of their first occurrence (A37)."""

    def __init__(self, root: str, parts: Mapping[str, Known | None]) -> None:
        self._root = root
        self._parts = parts
        self._met: dict[str, bool] = {}  # cluster -> whether it is a usable leaf

    def collect(self) -> tuple[str, ...]:
        """Return the usable leaves. Raise WatchError if there are none, or if the nesting is circular or too deep."""
        self._below(self._root, 1)
        leaves = tuple(name for name, usable in self._met.items() if usable)
        if not leaves:  # A74: the aggregate fails; it does not wait for a leaf
            raise WatchError("UNAVAILABLE", f"{self._root!r}: none of its clusters is available")
        return leaves

    def _below(self, name: str, depth: int) -> None:
        """Visit the clusters of an aggregate, and then theirs."""
        for child in _children(self._parts[name]):
            if child == self._root:
                raise WatchError("INVALID_ARGUMENT", f"{self._root!r} is an aggregate that contains itself")
            if depth == DEPTH or child not in self._parts:
                text = f"{self._root!r}: aggregates more than {DEPTH} levels deep"
                raise WatchError("INVALID_ARGUMENT", text)
            if child in self._met:  # A37: the first occurrence counts; also ends a cycle without the root
                continue
            part = self._parts[child]
            # A74: skip aggregates and errors.
            self._met[child] = isinstance(part, ClusterPart) and part.children is None
            self._below(child, depth + 1)
