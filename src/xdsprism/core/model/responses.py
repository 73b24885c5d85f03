"""Define what a client reads in a server's response, as plain values without protobuf, and judge its resources.

Each resource of a response becomes one of four values. `judge` then applies A46: it accepts or rejects each resource by
itself, so that one bad resource does not cost the others.

| value             | the resource in the response                                                         |
|-------------------|--------------------------------------------------------------------------------------|
| `Arrival`         | has contents that can be read and passed every check                                 |
| `Heartbeat`       | has no contents, and a TTL: what the client has is still good                        |
| `Unresolved`      | has neither contents nor a TTL: nothing serves the host that the client asked for    |
| `InvalidResource` | can't be used; the response is NACKed for it                                         |
"""

from __future__ import annotations

from dataclasses import dataclass

from .constraints import Constraint, canonical
from .events import Absence, ResourceError
from .types import TypeUrl, Variant

# The identity of a resource in a response: its name and, if it has a resource_name, its constraints (TP2).
Identity = tuple[str, Constraint | None]


# Not frozen, because a frozen dataclass is slower to make, and a response may have a hundred thousand of these.
@dataclass(slots=True, eq=False)
class Arrival:
    """A resource with contents that can be read and passed every check."""

    variant: Variant
    located: bool  # named by resource_name, with constraints: the answer to a locator (DESIGN 6.1)
    ttl: float | None = None

    @property
    def identity(self) -> Identity:
        """Return what tells it apart from others; a plain resource has no constraints in its identity."""
        return self.variant.name, canonical(self.variant.constraint) if self.located else None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A resource without contents: the client may use what it has for another `ttl` seconds (TTL-4)."""

    name: str
    constraint: Constraint | None
    ttl: float | None

    @property
    def identity(self) -> Identity:
        """Return what tells it apart, as for an `Arrival`."""
        return self.name, canonical(self.constraint) if self.constraint is not None else None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A resource with neither contents nor a TTL: there is none for subscriptions to any of its names (VHD-7)."""

    name: str
    constraint: Constraint | None
    version: str
    aliases: tuple[str, ...] = ()

    @property
    def strings(self) -> tuple[str, ...]:
        """Return the name and the aliases, each once."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))


@dataclass(frozen=True, slots=True)
class InvalidResource:
    """A resource that can't be used. Without a name, it belongs to no subscription (NAK-27)."""

    name: str
    constraint: Constraint | None
    reason: str
    version: str = ""
    aliases: tuple[str, ...] = ()
    is_identified: bool = True  # False: its constraints can't be read, so the variant is unknown (PRX-37)

    @property
    def identity(self) -> Identity:
        """Return what tells it apart, as for an `Arrival`."""
        return self.name, canonical(self.constraint) if self.constraint is not None else None

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.name else self.reason


@dataclass(frozen=True, slots=True)
class Response:
    """One response, SotW or delta. `type_url` is always the v3 one, whichever version the server wrote (VER-9)."""

    type_url: TypeUrl
    version: str
    nonce: str
    arrivals: tuple[Arrival, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    flaws: tuple[InvalidResource, ...] = ()
    removed: tuple[str, ...] = ()
    withdrawn: tuple[Absence, ...] = ()
    errors: tuple[ResourceError, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    server: str = ""  # control_plane.identifier, if the server sends one (SRV-20)


def judge(response: Response) -> tuple[tuple[Arrival, ...], list[InvalidResource]]:
    """Return the usable resources and the flaws; A46: each resource is judged by itself.

    NAK-19: of two resources with one identity neither is used, because it is unknown which one the server meant.
    NAK-26: a resource that the response both contains and removes is not used either.
    """
    flaws = list(response.flaws)
    identities = [arrival.identity for arrival in response.arrivals]
    named = [flaw.identity for flaw in flaws if flaw.name and flaw.is_identified]
    gone: set[Identity] = {(name, None) for name in response.removed}
    gone |= {(absence.name, canonical(absence.constraint)) for absence in response.withdrawn}
    # Fast path: every identity occurs once, and none is also removed.
    if len({*identities, *named}) == len(identities) + len(named) and gone.isdisjoint(identities):
        return response.arrivals, flaws
    seen: dict[Identity, int] = {}
    for identity in (*identities, *named):
        seen[identity] = seen.get(identity, 0) + 1
    good: dict[Identity, Arrival] = {}
    bad: dict[Identity, InvalidResource] = {}
    for arrival, identity in zip(response.arrivals, identities, strict=True):
        if seen[identity] > 1:
            before = bad[identity].aliases if identity in bad else ()
            bad[identity] = _flaw(arrival, "it is in the response twice", before)
        elif identity in gone:
            bad[identity] = _flaw(arrival, "the response both has it and removes it")
        else:
            good[identity] = arrival
    return tuple(good.values()), [*flaws, *bad.values()]


def _flaw(arrival: Arrival, reason: str, aliases: tuple[str, ...] = ()) -> InvalidResource:
    """Make the flaw that reports this arrival as unusable."""
    variant = arrival.variant
    constraint = variant.constraint if arrival.located else None
    return InvalidResource(variant.name, constraint, reason, variant.version, (*aliases, *variant.aliases))
