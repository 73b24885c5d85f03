"""A listener and all that it leads to, together: routes, clusters, endpoints and lists of endpoints (gRFCs A74, A95).

Whoever watches one resource at a time sees torn configurations: a route to a cluster that is not there yet. This waits
until there is a result for everything that is referred to, and only then shows the whole:

    deps = Dependencies("shop")
    deps.wanted                      # what to watch: at first only the listener
    deps.learn(ref, part or error)   # whatever comes
    deps.advance()                   # the next whole, or None while something is lacking; `wanted` is another now

A missing listener or route configuration is an error of the whole, since nothing can be done without. All else concerns
one cluster: that one has the error, and the rest goes on. What the last whole was made of stays wanted until the next
one is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...errors import WatchError
from ..model.types import CLUSTER, ENDPOINT, LB_ENDPOINT_COLLECTION, LISTENER, ROUTE, TypeUrl

DEPTH = 16  # A37: of clusters within clusters, the uppermost and the leaf included

Ref = tuple[TypeUrl, str]


# -- what comes: a resource, and what it refers to


@dataclass(frozen=True, slots=True, eq=False)
class RoutePart:
    message: Any
    clusters: tuple[str, ...]
    trusted: bool = False  # BST-6: it came from a `trusted_xds_server`, by itself or inside its listener


@dataclass(frozen=True, slots=True, eq=False)
class ListenerPart:
    message: Any
    routes: tuple[str | RoutePart, ...]  # by name, or inline


@dataclass(frozen=True, slots=True, eq=False)
class ClusterPart:
    message: Any
    service: str | None = None  # the name of its endpoints, where they come by EDS
    endpoints: Any = None  # where they are inline
    children: tuple[str, ...] | None = None  # of an aggregate


# From the endpoints of each collection that could be had to the message with all of them in it.
Fill = Callable[[Mapping[str, tuple[Any, ...]]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class EndpointPart:
    message: Any
    collections: tuple[str, ...] = ()  # CLI-25: where endpoints of its localities are, in place of the message
    fill: Fill | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CollectionPart:
    endpoints: tuple[Any, ...]


Part = ListenerPart | RoutePart | ClusterPart | EndpointPart | CollectionPart
Known = Part | WatchError


# -- what is shown


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One cluster, or why there is none.

    An aggregate has `leaves`: the clusters to use in its place, best first, without those that can't be had. Any other
    has `endpoints`, its own or those that came by EDS, or an `endpoints_error`. Localities whose endpoints came by LEDS
    have them in `lb_endpoints` like all others; one whose collection is in `collection_errors` has none.
    """

    cluster: Any = None
    endpoints: Any = None
    endpoints_error: WatchError | None = None
    leaves: tuple[str, ...] | None = None
    error: WatchError | None = None
    collection_errors: Mapping[str, WatchError] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that belongs to one listener; or an `error`, after which nothing shown before is to be used."""

    listener: Any = None
    routes: tuple[Any, ...] = ()  # one for each HTTP connection manager that has one of its own
    clusters: Mapping[str, ClusterConfig] = field(default_factory=lambda: MappingProxyType({}))
    error: WatchError | None = None
    trusted_routes: tuple[bool, ...] = ()  # BST-6: of each of `routes`, whether it came from a `trusted_xds_server`


class Dependencies:
    """What is known of one listener's dependencies."""

    def __init__(self, listener: str, clusters: Iterable[str] = ()) -> None:
        self.wanted: dict[Ref, None] = {(LISTENER, listener): None}
        self._listener = listener
        self._clusters = tuple(clusters)
        self._known: dict[Ref, Known] = {}
        self._shown: dict[Ref, Known] = {}

    @property
    def incomplete(self) -> bool:
        """Something that is wanted has not been answered."""
        return len(self._known) < len(self.wanted)

    def learn(self, ref: Ref, known: Known) -> None:
        if ref in self.wanted:
            self._known[ref] = known

    def advance(self) -> Config | None:
        walk = _Walk(self._known)
        config = walk.config(self._listener, self._clusters)
        self.wanted = {**dict.fromkeys(self._shown), **walk.seen} if walk.is_torn else walk.seen
        self._known = {ref: known for ref, known in self._known.items() if ref in self.wanted}
        if walk.is_torn or self._known == self._shown:
            return None
        self._shown = dict(self._known)
        return config


class _Walk:
    """One way through all references, from what is known at the time."""

    def __init__(self, known: Mapping[Ref, Known]) -> None:
        self._known = known
        self.seen: dict[Ref, None] = {}
        self.is_torn = False  # something is not known

    def config(self, listener: str, clusters: Iterable[str]) -> Config:
        root = self._find(LISTENER, listener)
        if not isinstance(root, ListenerPart):
            return Config(error=root if isinstance(root, WatchError) else None)
        found = [self._find(ROUTE, each) if isinstance(each, str) else each for each in root.routes]
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
        ref = type_url, name
        self.seen[ref] = None
        known = self._known.get(ref)
        self.is_torn = self.is_torn or known is None
        return known

    def _clusters(self, names: Iterable[str]) -> dict[str, Known | None]:
        """Those, and what they aggregate. Not for ever: a server might have ever more to add."""
        found: dict[str, Known | None] = {}
        for _ in range(DEPTH):
            level = [name for name in dict.fromkeys(names) if name not in found]
            found.update((name, self._find(CLUSTER, name)) for name in level)
            names = [child for name in level for child in _children(found[name])]
        return found

    def _cluster(self, name: str, parts: Mapping[str, Known | None]) -> ClusterConfig:
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
        """CLI-25. A collection that can't be had concerns its localities only: the others go on."""
        known = {name: self._find(LB_ENDPOINT_COLLECTION, name) for name in part.collections}
        if part.fill is None or self.is_torn:
            return ClusterConfig(cluster.message, part.message)
        found = {name: each.endpoints for name, each in known.items() if isinstance(each, CollectionPart)}
        errors = {name: each for name, each in known.items() if isinstance(each, WatchError)}
        return ClusterConfig(cluster.message, part.fill(found), collection_errors=MappingProxyType(errors))


def _children(known: Known | None) -> tuple[str, ...]:
    return known.children or () if isinstance(known, ClusterPart) else ()


def _aggregate(name: str, part: ClusterPart, parts: Mapping[str, Known | None]) -> ClusterConfig:
    try:
        leaves = _Leaves(name, parts).collect()
    except WatchError as error:
        return ClusterConfig(part.message, error=error)
    return ClusterConfig(part.message, leaves=leaves)


class _Leaves:
    """The leaves below one aggregate, in the order in which they are met first (A37)."""

    def __init__(self, root: str, parts: Mapping[str, Known | None]) -> None:
        self._root = root
        self._parts = parts
        self._met: dict[str, bool] = {}  # whether it is a leaf that can be used

    def collect(self) -> tuple[str, ...]:
        self._below(self._root, 1)
        leaves = tuple(name for name, usable in self._met.items() if usable)
        if not leaves:  # A74: it must fail, not wait
            raise WatchError("UNAVAILABLE", f"{self._root!r}: none of the clusters that it is made of can be had")
        return leaves

    def _below(self, name: str, depth: int) -> None:
        for child in _children(self._parts[name]):
            if child == self._root:
                raise WatchError("INVALID_ARGUMENT", f"{self._root!r} is an aggregate that is part of itself")
            if depth == DEPTH or child not in self._parts:
                text = f"{self._root!r}: aggregates more than {DEPTH} levels deep"
                raise WatchError("INVALID_ARGUMENT", text)
            if child in self._met:  # A37: twice in the tree counts once; or in a circle that leaves the root out
                continue
            part = self._parts[child]
            self._met[child] = isinstance(part, ClusterPart) and part.children is None  # A74: others are skipped
            self._below(child, depth + 1)
