"""Define the nouns of the engine: params, variants, changes, and the traits of each resource type.

- `Params` are the key/value pairs of a subscription, taken from a locator (TP2) or from the client's node.
- A `Variant` is one form of a resource: contents plus the constraint that says which params get it. All variants of
  one name make a `VariantSet` (variants.py).
- A `Changeset` is what a writer hands to the store: the complete new variants of each name that it touches. The store
  turns it into `Change` objects, one per name that really differs, with the sets before and after.
- A `TypeSpec` holds what the protocol treats differently per resource type: the order within ADS, whether SotW
  responses hold the full state, whether an empty first request is a wildcard. Types without a spec get the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from sys import intern
from typing import TYPE_CHECKING, Final, Protocol

from ...argument_types import expect_fields
from ...native import mypyc_attr
from .constraints import TRUE, Constraint, canonical, unpadded

if TYPE_CHECKING:
    from .variants import VariantSet

TypeUrl = str

# A resource that another resource names, such as a route's cluster: its type and name (codec/references.py).
Reference = tuple[TypeUrl, str]

PREFIX: Final = "type.googleapis.com/"


@mypyc_attr(allow_interpreted_subclasses=True)
class Params(Mapping[str, str]):
    """The key/value pairs of a subscription: an immutable, hashable mapping.

    The hash is computed once, because params are dictionary keys wherever the engine groups clients into classes.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        self._items = dict(items)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # no other defaults
        """Return the value of `key`, or the default.

        Mapping.get raises and catches KeyError for an absent key, and an absent key is the usual case here.
        """
        return self._items.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if type(other) is Params:  # not what only passes for Params (provide/recorded.py)
            return self._hash == other._hash and self._items == other._items
        return NotImplemented

    def __repr__(self) -> str:
        return f"Params({self._items!r})"

    def only(self, keys: Iterable[str]) -> Params:
        """Cut the params down to `keys`.

        DESIGN 6.3: only the keys that constraints mention matter, so the remaining pairs are the client's class.
        """
        return Params({key: self._items[key] for key in keys if key in self._items})


# DESIGN 6.3: the client's value for each key that some constraint mentions, None where the client lacks the key.
# Clients with equal categories match the same constraints, so they form one class and share all answers.
Category = tuple[str | None, ...]

NO_PARAMS: Final = Params()


def category(params: Mapping[str, str], keys: Iterable[str]) -> Category:
    """Return the class of these params: their values for `keys`, in the order of `keys`."""
    # This runs for every subscription that comes or goes, so it calls dict.get directly where it can.
    get = params._items.get if type(params) is Params else params.get  # noqa: SLF001
    return tuple(map(get, keys))


@dataclass(frozen=True, slots=True)
class Origin:
    """The place in the configuration where a variant was written, or the component that made the variant."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Routing:
    """The traits of a route configuration that concern VHDS, by which clients fetch further virtual hosts."""

    on_demand: bool = False  # the configuration has `vhds`: clients fetch further virtual hosts on demand
    ignores_port: bool = False  # the lookup of a host leaves out its port (VHD-6)


# One shared empty mapping for all variants that were never sent: a store may hold a million virtual hosts.
_NO_FRAMES: Mapping[object, bytes] = {}


@dataclass(eq=False, slots=True)
class Variant:
    """One form of a resource: contents plus the constraint that decides which params get them.

    Variants compare by identity. The store keeps the same object for as long as nothing about the variant changes, so
    that `is` answers "does the client have this variant already?".
    """

    type_url: TypeUrl
    name: str
    constraint: Constraint
    # The message inside the Any, serialised deterministically. OPS-14: a repr, as in a traceback, has no secret.
    body: bytes = field(repr=False)
    version: str  # a hash, see `make_variant`
    digest: int  # the same hash as a number; SotW versions are sums of these
    aliases: tuple[str, ...] = ()
    extras: bytes = b""  # the other fields of discovery.Resource (aliases, cache_control ...), encoded
    origin: Origin | None = None
    references: tuple[Reference, ...] = ()  # resources that a client needs before it can use this one
    ttl: float | None = None  # seconds that a client may use it without a heartbeat (TTL-2)
    do_not_cache: bool = False  # a relay gives it to clients that have asked already, not to clients that come later
    base: Constraint | None = None  # params whose wildcard includes it; None: every wildcard does (VHD-13)
    domains: tuple[str, ...] = ()  # of a virtual host, in lower case (VHD-6)
    routing: Routing | None = None  # set for route configurations only
    written: Constraint | None = None  # as its author wrote it; None: that is not known, or it is `constraint`
    # The codec's cache of encoded resources, by wire form: each variant is encoded once for all streams.
    frames: Mapping[object, bytes] = field(default_factory=lambda: _NO_FRAMES, repr=False)

    @property
    def identity(self) -> tuple[str, Constraint]:
        """Return what tells variants apart: the name and the constraint in canonical form (DYN-30).

        TP2: constraints are part of the unique identifier of a resource, along with the name.
        """
        return self.name, canonical(self.constraint)

    @property
    def stated(self) -> Constraint:
        """Return the constraint as its author wrote it, before the store added keys of the other variants (DYN-34)."""
        return self.written if self.written is not None else self.constraint

    @property
    def shown(self) -> Constraint:
        """Return the constraint to show to people: as written, or without idle clauses where the text is unknown.

        DYN-34 pads constraints with clauses that are always true. They matter on the wire and only distract people.
        """
        return self.written if self.written is not None else unpadded(self.constraint)

    @property
    def warms(self) -> str | None:
        """Return the name of the ClusterLoadAssignment that this cluster fetches by EDS, if this is an EDS cluster."""
        return next((name for type_url, name in self.references if type_url == ENDPOINT), None)

    @property
    def is_on_demand(self) -> bool:
        """Whether this is a route configuration whose clients fetch further virtual hosts by VHDS."""
        return self.routing is not None and self.routing.on_demand

    @property
    def is_remnant(self) -> bool:
        """Whether only the name is known: see `remnant`."""
        return not self.version

    @property
    def size(self) -> int:
        """Return about how many bytes the variant takes in a response."""
        return len(self.body) + len(self.extras) + len(self.name) + len(self.type_url) + 64


class ResourceProblem(Protocol):
    """Why some params can't get a resource, in the terms of a TP3 resource error: for whom, status code, message."""

    @property
    def constraint(self) -> Constraint: ...

    @property
    def code(self) -> int: ...

    @property
    def message(self) -> str: ...

    @property
    def unresolved(self) -> bool:
        """VHD-19: whether clients that can't read errors are told instead that the resource does not exist."""

    @property
    def refused(self) -> bool:
        """PRX-35: whether a relay refused the subscription for lack of room.

        Clients that have nothing are told that the resource does not exist; clients that have the resource keep it.
        """


def make_variant(  # noqa: PLR0913 # a variant has this many independent parts
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

    The version is therefore the same on every replica, after every restart and through every relay. TTL-3: the hash
    includes the TTL, so a variant with a new TTL is a new version and is sent.
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
    """Hash a variant's parts; return the version string and the same 64 bits as a number.

    Each part is preceded by its length, so that no two lists of parts hash the same bytes.
    """
    digest = sha256()
    lives = [repr(ttl).encode()] if ttl is not None else []
    for part in (type_url.encode(), name.encode(), body, extras, ascii(canonical(constraint)).encode(), *lives):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    head = digest.digest()[:8]
    return head.hex(), int.from_bytes(head, "big")


def padded_variant(variant: Variant, constraint: Constraint) -> Variant:
    """Return the variant with a constraint that means the same and mentions further keys: a new version (DYN-31)."""
    version, number = _fingerprint(
        variant.type_url, variant.name, variant.body, variant.extras, constraint, variant.ttl
    )
    written = variant.stated
    return replace(variant, constraint=constraint, version=version, digest=number, written=written, frames={})


def remnant(type_url: TypeUrl, name: str) -> Variant:
    """Stand in for a resource that a client still has from an earlier stream and that no longer exists.

    Only its name is known. The session needs the object to remove the resource from the client.
    """
    return Variant(type_url, name, TRUE, b"", version="", digest=0)


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """The traits of one resource type that the protocol depends on. Each trait has a default, so any type URL works.

    A store or a client that is given this as one of its `types` also takes a message's full name as `url`, and every
    name of a type in `referrers`.
    """

    url: TypeUrl
    words: tuple[str, ...] = ()  # names of the type on the command line, the label first
    rank: int = 100  # DESIGN 6.9: order within ADS
    full_state: bool = False  # SOT-4: a SotW response holds every resource
    wildcard: bool = False  # WLD-12: an empty first request is a wildcard
    referrers: tuple[TypeUrl, ...] = ()  # ORD-2: a removal waits until resources of these types no longer refer to it
    stays_while_referred: bool = False  # ORD-12: the removal waits without a time limit
    always_resend: bool = False  # DLT-13: send it again although the client has this version
    on_demand: bool = False  # VHD-7: answer a name that does not exist with a resource that has no contents

    def __post_init__(self) -> None:
        expect_fields(self, words=tuple, referrers=tuple)

    @property
    def has_wildcard(self) -> bool:
        """Whether an empty first delta request is a wildcard. VHD-13: for virtual hosts, it gets the base set."""
        return self.wildcard or self.on_demand

    @property
    def has_xdstp_names(self) -> bool:
        """Whether names may be xdstp URLs, with one canonical spelling, and members of glob collections (XTP-1, XTP-3).

        VHD-2: the name of a virtual host begins with the name of its route configuration, and is compared as written.
        """
        return not self.on_demand

    @property
    def is_numerous(self) -> bool:
        """Whether one client may have a million of them (V15), so that nothing keeps or searches an index for each."""
        return self.on_demand

    @property
    def label(self) -> str:
        """Return the short name of the type, or the full message name if there is no short one."""
        return self.words[0] if self.words else self.url.removeprefix(PREFIX)


LISTENER: Final = PREFIX + "envoy.config.listener.v3.Listener"
ROUTE: Final = PREFIX + "envoy.config.route.v3.RouteConfiguration"
SCOPED_ROUTE: Final = PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST: Final = PREFIX + "envoy.config.route.v3.VirtualHost"
CLUSTER: Final = PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINT: Final = PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LB_ENDPOINT: Final = PREFIX + "envoy.config.endpoint.v3.LbEndpoint"
LB_ENDPOINT_COLLECTION: Final = PREFIX + "envoy.config.endpoint.v3.LbEndpointCollection"
SECRET: Final = PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
RUNTIME: Final = PREFIX + "envoy.service.runtime.v3.Runtime"
EXTENSION_CONFIG: Final = PREFIX + "envoy.config.core.v3.TypedExtensionConfig"

# DESIGN 6.9: the order is clusters, endpoints, listeners, routes, virtual hosts, then the rest; ORD-9: SDS after EDS.
# Envoy reads a SotW SRDS response as the full state too, and drops scopes that are missing, hence full_state there.
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
    # LEDS: a locality's endpoints as resources of their own, members of a glob (Envoy) or one list (A95, CLI-25).
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


@dataclass(frozen=True, slots=True)
class Change:
    """One name got another set of variants. `before` is None if the name is new, `after` if the name is deleted."""

    revision: int
    type_url: TypeUrl
    name: str
    before: VariantSet | None
    after: VariantSet | None

    @property
    def names(self) -> tuple[str, ...]:
        """Return every string by which a client may have subscribed to the resource: name and aliases (DLT-20)."""
        aliases = [alias for known in (self.before, self.after) if known is not None for alias in known.aliases]
        return (self.name, *dict.fromkeys(aliases))

    @property
    def is_listed(self) -> bool:
        """Whether any wildcard could see the resource, before or after the change."""
        return any(known is not None and known.is_listed for known in (self.before, self.after))


# A transaction: the complete new variants of each (type, name) that it touches. An empty tuple deletes the name.
Changeset = Mapping[tuple[TypeUrl, str], tuple[Variant, ...]]
