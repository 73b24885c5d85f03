"""What a server says, as a client reads it: plain values, no protobuf."""

from __future__ import annotations

from dataclasses import dataclass

from .constraints import Constraint, canonical
from .events import Absence, ResourceError
from .types import TypeUrl, Variant

# What a resource in a response is known by: its name and, where it came by resource_name, its constraints (TP2).
Identity = tuple[str, Constraint | None]


@dataclass(slots=True, eq=False)  # not frozen, which takes its time: there may be a hundred thousand of them at once
class Arrival:
    """A resource that can be read, and that passed every check."""

    variant: Variant
    located: bool  # named by resource_name, constraints included, as locators are answered (DESIGN 6.1)
    ttl: float | None = None

    @property
    def identity(self) -> Identity:
        return self.variant.name, canonical(self.variant.constraint) if self.located else None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A resource without contents: what was sent is still good, for so long (TTL-4)."""

    name: str
    constraint: Constraint | None
    ttl: float | None

    @property
    def identity(self) -> Identity:
        return self.name, canonical(self.constraint) if self.constraint is not None else None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A resource without contents, nor a time to live: there is none for whoever asked by one of its names (VHD-7)."""

    name: str
    constraint: Constraint | None
    version: str
    aliases: tuple[str, ...] = ()

    @property
    def strings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, *self.aliases)))


@dataclass(frozen=True, slots=True)
class InvalidResource:
    """A resource that can't be used. Without a name nobody knows which one it was meant to be (NAK-27)."""

    name: str
    constraint: Constraint | None
    reason: str
    version: str = ""
    aliases: tuple[str, ...] = ()
    is_identified: bool = True  # False: its constraints can't be read, so nobody knows which variant it is (PRX-37)

    @property
    def identity(self) -> Identity:
        return self.name, canonical(self.constraint) if self.constraint is not None else None

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.name else self.reason


@dataclass(frozen=True, slots=True)
class Response:
    """One response, SotW or delta; `type_url` is the v3 name whatever the server wrote (VER-9)."""

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
    server: str = ""  # what it calls itself, if it does (SRV-20)


def judge(response: Response) -> tuple[tuple[Arrival, ...], list[InvalidResource]]:
    """Tell what is usable from what is not: A46, each resource by itself.

    NAK-19: of two with one name neither is used, for nobody can tell which was meant. NAK-26: what is in a response
    both as there and as gone is not used either.
    """
    flaws = list(response.flaws)
    identities = [arrival.identity for arrival in response.arrivals]
    named = [flaw.identity for flaw in flaws if flaw.name and flaw.is_identified]
    gone: set[Identity] = {(name, None) for name in response.removed}
    gone |= {(absence.name, canonical(absence.constraint)) for absence in response.withdrawn}
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
    variant = arrival.variant
    constraint = variant.constraint if arrival.located else None
    return InvalidResource(variant.name, constraint, reason, variant.version, (*aliases, *variant.aliases))
