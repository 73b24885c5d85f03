"""The nouns of the engine: params, variants, changes, and what is known of each resource type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from sys import intern
from typing import TYPE_CHECKING, Protocol

from ...errors import UsageError
from .constraints import TRUE, Constraint, canonical, unpadded

if TYPE_CHECKING:
    from .variants import VariantSet

TypeUrl = str

# What a resource refers to: another one, by type and name (references.py).
Reference = tuple[TypeUrl, str]

PREFIX = "type.googleapis.com/"


class Params(Mapping[str, str]):
    """The key/value pairs a client sends with a subscription: an immutable, hashable mapping."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        self._items = dict(items)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # no other defaults
        """The Mapping's own goes through an exception where a key is absent, which is the usual case here."""
        return self._items.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Params):
            return self._hash == other._hash and self._items == other._items
        return NotImplemented

    def __repr__(self) -> str:
        return f"Params({self._items!r})"

    def only(self, keys: Iterable[str]) -> Params:
        """Cut down to `keys`. DESIGN 6.3: only mentioned keys matter; what remains is the client's class."""
        return Params({key: self._items[key] for key in keys if key in self._items})


# DESIGN 6.3: what a client has of each key that matters. All who have the same are of one class.
Category = tuple[str | None, ...]

NO_PARAMS = Params()


def category(params: Mapping[str, str], keys: Iterable[str]) -> Category:
    # Asked for everybody who comes or goes: so a dict's own `get` wherever there is one.
    get = params._items.get if type(params) is Params else params.get  # noqa: SLF001
    return tuple(map(get, keys))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a variant was written down, or who made it."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Routing:
    """What a route configuration says about its virtual hosts that are not in it."""

    on_demand: bool = False  # `vhds`: there are such
    ignores_port: bool = False  # of the host that is asked for, when it is looked up (VHD-6)


_NO_FRAMES: Mapping[object, bytes] = {}  # of all that was never sent, which can be a million virtual hosts


@dataclass(eq=False, slots=True)
class Variant:
    """Contents plus constraints: one of the forms that one name can take.

    Compared by identity: the store keeps a variant object for as long as nothing about it changes, so that
    `is` answers "does the client have this one already?".
    """

    type_url: TypeUrl
    name: str
    constraint: Constraint
    body: bytes  # the message inside the Any, serialised deterministically
    version: str  # a hash, see `make_variant`
    digest: int  # the same hash as a number; SotW versions are sums of these
    aliases: tuple[str, ...] = ()
    extras: bytes = b""  # further fields of discovery.Resource (aliases, cache_control ...), encoded
    origin: Origin | None = None
    references: tuple[Reference, ...] = ()  # what a client must have in order to use it
    ttl: float | None = None  # seconds that a client may use it without hearing of it again (TTL-2)
    do_not_cache: bool = False  # do_not_cache: a relay gives it to those who have asked, not to those who come later
    base: Constraint | None = None  # who gets it without asking for it, by a wildcard; None: everybody (VHD-13)
    domains: tuple[str, ...] = ()  # a virtual host: what it serves, in lower case (VHD-6)
    routing: Routing | None = None  # a route configuration
    written: Constraint | None = None  # as its author wrote it; None: that is not known, or it is `constraint`
    frames: Mapping[object, bytes] = field(default_factory=lambda: _NO_FRAMES, repr=False)  # the codec's, by form

    @property
    def identity(self) -> tuple[str, Constraint]:
        """TP2: constraints are part of the unique identifier, along with the name. DYN-30: in canonical form."""
        return self.name, canonical(self.constraint)

    @property
    def stated(self) -> Constraint:
        """What its author said, before the store added the keys of the other variants (DYN-34)."""
        return self.written if self.written is not None else self.constraint

    @property
    def shown(self) -> Constraint:
        """What people are shown: as it was written, or without idle clauses where that is not known (DYN-34)."""
        return self.written if self.written is not None else unpadded(self.constraint)

    @property
    def warms(self) -> str | None:
        """A cluster that learns its endpoints by EDS: the ClusterLoadAssignment's name."""
        return next((name for type_url, name in self.references if type_url == ENDPOINT), None)

    @property
    def is_on_demand(self) -> bool:
        """A route configuration: whether it has virtual hosts that are not in it."""
        return self.routing is not None and self.routing.on_demand

    @property
    def is_remnant(self) -> bool:
        return not self.version

    @property
    def size(self) -> int:
        """About how many bytes it takes in a response."""
        return len(self.body) + len(self.extras) + len(self.name) + len(self.type_url) + 64


class ResourceProblem(Protocol):
    """TP3: for whom, which code, in which words."""

    @property
    def constraint(self) -> Constraint: ...

    @property
    def code(self) -> int: ...

    @property
    def message(self) -> str: ...

    @property
    def unresolved(self) -> bool:
        """VHD-19: whether clients that know no errors are told that there is nothing."""

    @property
    def refused(self) -> bool:
        """PRX-35: whether a relay has no room for it. Who has nothing is told so, and who has it keeps it."""


def make_variant(  # noqa: PLR0913 # all that makes a variant
    type_url: TypeUrl,
    name: str,
    body: bytes,
    constraint: Constraint = TRUE,
    *,
    aliases: tuple[str, ...] = (),
    extras: bytes = b"",
    origin: Origin | None = None,
    references: tuple[Reference, ...] = (),
    ttl: float | None = None,
    base: Constraint | None = None,
    domains: tuple[str, ...] = (),
    routing: Routing | None = None,
    written: Constraint | None = None,
) -> Variant:
    """Build a variant; its version is a hash of contents and constraints (DESIGN 6.6, DYN-31).

    The same on every replica, after every restart and through every relay. TTL-3: a time to live is part of it, so
    that another one is another version, and is sent.
    """
    version, number = _fingerprint(type_url, name, body, extras, constraint, ttl)
    return Variant(
        intern(type_url),
        name,
        constraint,
        body,
        version,
        number,
        aliases,
        extras,
        origin,
        references,
        ttl,
        base=base,
        domains=domains,
        routing=routing,
        written=written,
    )


def _fingerprint(
    type_url: TypeUrl, name: str, body: bytes, extras: bytes, constraint: Constraint, ttl: float | None
) -> tuple[str, int]:
    digest = sha256()
    lives = [repr(ttl).encode()] if ttl is not None else []
    for part in (type_url.encode(), name.encode(), body, extras, ascii(canonical(constraint)).encode(), *lives):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    head = digest.digest()[:8]
    return head.hex(), int.from_bytes(head, "big")


def padded_variant(variant: Variant, constraint: Constraint) -> Variant:
    """The same variant with a constraint that means the same and mentions other keys: another version (DYN-31)."""
    version, number = _fingerprint(
        variant.type_url, variant.name, variant.body, variant.extras, constraint, variant.ttl
    )
    written = variant.stated
    return replace(variant, constraint=constraint, version=version, digest=number, written=written, frames={})


def remnant(type_url: TypeUrl, name: str) -> Variant:
    """Something that a client has from an earlier stream and that is gone: its name is all that is known of it."""
    return Variant(type_url, name, TRUE, b"", version="", digest=0)


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """What the protocol needs to know of a resource type. Everything has a default: any type works."""

    url: TypeUrl
    words: tuple[str, ...] = ()  # how it is called on the command line
    rank: int = 100  # DESIGN 6.9: order within ADS
    full_state: bool = False  # SOT-4: a SotW response holds every resource
    wildcard: bool = False  # WLD-12: an empty first request means all
    referrers: tuple[TypeUrl, ...] = ()  # ORD-2: removals wait until these have moved on
    stays_while_referred: bool = False  # ORD-12: however long that is
    always_resend: bool = False  # DLT-13: sent again although the client has this version
    on_demand: bool = False  # VHD-7: what is not there is answered with a resource that has no contents

    @property
    def has_wildcard(self) -> bool:
        """Delta: whether an empty first request asks for something. VHD-13: of virtual hosts, for the base set."""
        return self.wildcard or self.on_demand

    @property
    def label(self) -> str:
        return self.words[0] if self.words else self.url.removeprefix(PREFIX)


LISTENER = PREFIX + "envoy.config.listener.v3.Listener"
ROUTE = PREFIX + "envoy.config.route.v3.RouteConfiguration"
SCOPED_ROUTE = PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST = PREFIX + "envoy.config.route.v3.VirtualHost"
CLUSTER = PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINT = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LB_ENDPOINT = PREFIX + "envoy.config.endpoint.v3.LbEndpoint"
LB_ENDPOINT_COLLECTION = PREFIX + "envoy.config.endpoint.v3.LbEndpointCollection"
SECRET = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
RUNTIME = PREFIX + "envoy.service.runtime.v3.Runtime"
EXTENSION_CONFIG = PREFIX + "envoy.config.core.v3.TypedExtensionConfig"

# DESIGN 6.9: clusters, endpoints, listeners, routes, virtual hosts, then the rest; ORD-9: SDS after EDS.
# Envoy reads a SotW SRDS response as the full state too (scopes that are missing go away), hence its flag.
TYPES: tuple[TypeSpec, ...] = (
    TypeSpec(
        CLUSTER,
        ("cds", "cluster", "clusters"),
        0,
        full_state=True,
        wildcard=True,
        referrers=(LISTENER, ROUTE, SCOPED_ROUTE, VIRTUAL_HOST),
    ),
    TypeSpec(ENDPOINT, ("eds", "endpoint", "endpoints"), 10, always_resend=True),
    # LEDS: endpoints apart from their localities, as members of a glob (Envoy) or as one list (A95, CLI-25).
    TypeSpec(LB_ENDPOINT, ("leds", "lbendpoint", "lbendpoints"), 15),
    TypeSpec(LB_ENDPOINT_COLLECTION, ("lbendpointcollection", "lbendpointcollections"), 15),
    TypeSpec(SECRET, ("sds", "secret", "secrets"), 20),
    TypeSpec(LISTENER, ("lds", "listener", "listeners"), 30, full_state=True, wildcard=True),
    TypeSpec(
        SCOPED_ROUTE, ("srds", "scopedroute", "scopedroutes"), 40, full_state=True, wildcard=True, referrers=(LISTENER,)
    ),
    TypeSpec(ROUTE, ("rds", "route", "routes"), 50, referrers=(LISTENER, SCOPED_ROUTE)),
    TypeSpec(VIRTUAL_HOST, ("vhds", "virtualhost", "virtualhosts"), 60, on_demand=True),
    TypeSpec(RUNTIME, ("rtds", "runtime", "runtimes"), 100),
    TypeSpec(
        EXTENSION_CONFIG,
        ("ecds", "extensionconfig", "extensionconfigs"),
        100,
        referrers=(LISTENER, ROUTE, VIRTUAL_HOST),
        stays_while_referred=True,
    ),
)


_WORDS = {word: spec.url for spec in TYPES for word in spec.words}


def resolve_type(word: str) -> TypeUrl:
    """Turn `cds`, `cluster`, a message's full name or a type URL into a type URL. DESIGN 4."""
    known = _WORDS.get(word.lower())
    if known is not None:
        return known
    if "/" in word:
        return word
    if "." in word:
        return PREFIX + word
    words = ", ".join(spec.words[0] for spec in TYPES)
    message = f"unknown resource type {word!r}: use one of {words}, a message's full name, or a type URL"
    raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Change:
    """One name took on a new set of variants, or lost or gained all of them."""

    revision: int
    type_url: TypeUrl
    name: str
    before: VariantSet | None
    after: VariantSet | None

    @property
    def names(self) -> tuple[str, ...]:
        """Every string under which a client may have asked for it (DLT-20)."""
        aliases = [alias for known in (self.before, self.after) if known is not None for alias in known.aliases]
        return (self.name, *dict.fromkeys(aliases))

    @property
    def is_listed(self) -> bool:
        """Whether any wildcard can see it."""
        return any(known is not None and known.is_listed for known in (self.before, self.after))


# What a transaction asks for: the complete new variants of each touched (type, name); none: delete.
Changeset = Mapping[tuple[TypeUrl, str], tuple[Variant, ...]]
