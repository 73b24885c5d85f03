"""A TP2 server with another reading of the document, which shares no code with xdsprism's own server.

It has resources with variants, and streams that ask for them by locators, plain names and wildcards. Where the
documents leave a choice, its habits decide, or chance does. A stream is used as a call of `server.hub` is: bytes go in,
bytes come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import MAKE
from tests.strangers.shapes import TRUE, Region, Shape, holds, region

WILDCARD = "*"
FULL_STATE = (xp.CLUSTER, xp.LISTENER)  # a SotW response has all of them
Subject = tuple[str, str]  # type and name


@dataclass(frozen=True)
class Habits:
    """How this server uses its freedom. Where there are several words for a thing, each answer takes one of them."""

    delta: bool = True
    negatives: tuple[str, ...] = ("pinned",)  # see negatives.py
    replaces: tuple[str, ...] = ("at-once",)  # or "removal-first", "resource-first"
    rewords: bool = False  # constraints of a resource in another form whenever they are sent
    rewords_removals: bool = False  # ... and when they are withdrawn
    batches: float = 1.0  # how likely something shares a response with what is before it
    repeats: bool = False  # one variant for two new locators is sent twice, in two responses
    honours_versions: bool = False  # what a client says on a new stream that it has is not sent again
    versions: str = "unique"  # or "counted": each variant counts from one
    ignores_stale_nonces: bool = False

    @property
    def is_silent(self) -> bool:
        return bool({"silence", "omission"} & {*self.negatives})


@dataclass(frozen=True)
class Offer:
    """One variant of a resource, as the server has it."""

    shape: Shape
    mark: str  # of its contents
    body: bytes
    version: str

    @property
    def region(self) -> Region:
        return region(self.shape)


@dataclass
class History:
    """Every state that a resource ever had; and where a replacement was made in two steps, for whom it was away."""

    states: list[tuple[Offer, ...]] = field(default_factory=lambda: [()])
    gaps: list[tuple[int, Shape]] = field(default_factory=list)

    def value(self, revision: int, params: Mapping[str, str]) -> str | None:
        found = [each.mark for each in self.states[revision] if holds(each.shape, params)]
        assert len(found) < 2
        return found[0] if found else None

    @property
    def now(self) -> int:
        return len(self.states) - 1

    def earliest(self, value: str | None, params: Mapping[str, str], since: float) -> float | None:
        """The first time from `since` on at which the resource was this, or was away, for these params."""
        first = int(-(-since // 1))
        times: list[float] = [each for each in range(first, self.now + 1) if self.value(each, params) == value]
        if value is None:
            times += [each - 0.5 for each, shape in self.gaps if each - 0.5 >= since and holds(shape, params)]
        return min(times, default=None)


class Stranger:
    """The server: its resources, its streams, and all that they ever were."""

    def __init__(self, habits: Habits, random: Random) -> None:
        self.habits = habits
        self.random = random
        self.hub = self  # where a relay's line finds `open`
        self.resources: dict[Subject, tuple[Offer, ...]] = {}
        self.history: dict[Subject, History] = {}
        self.marks: dict[tuple[str, bytes], str] = {}  # from contents to their mark
        self.states: dict[str, int] = {}  # by type: how often anything changed
        self.streams: list[Any] = []
        self.begun: dict[Subject, int] = {}  # which state it was in when the newest stream was answered first
        self._count = 0
        self._counted: dict[tuple[Subject, Region], int] = {}

    def open(self, _engine: str, _peer: object, *, delta: bool, only_type: str | None) -> Any:
        from tests.strangers.streams import DeltaStream, SotwStream  # noqa: PLC0415 # they need what is in here

        assert only_type is None
        stream = DeltaStream(self) if delta else SotwStream(self)
        self.streams.append(stream)
        return stream

    def turn(self) -> None:
        """Streams look at the resources when they are polled."""

    # -- resources

    def offer(self, subject: Subject, shape: Shape, mark: str | None = None) -> Offer:
        """A variant with new contents, unless they have a mark already."""
        type_url, name = subject
        if mark is None:
            self._count += 1
            mark = f"m{self._count}"
        body = MAKE[type_url](name, mark).SerializeToString()
        self.marks[type_url, body] = mark
        return Offer(shape, mark, body, self.version(subject, shape))

    def version(self, subject: Subject, shape: Shape) -> str:
        """A version that this variant never had."""
        if self.habits.versions == "unique":
            self._count += 1
            return f"{self._count:x}"
        counted = self._counted[subject, region(shape)] = self._counted.get((subject, region(shape)), 0) + 1
        return str(counted)

    def put(self, subject: Subject, offers: Iterable[Offer]) -> None:
        made = tuple(offers)
        covered = [point for each in made for point in each.region]
        assert len(covered) == len({*covered}), "two variants overlap"
        self.resources[subject] = made
        self.past(subject).states.append(made)
        self.states[subject[0]] = self.states.get(subject[0], 0) + 1

    def past(self, subject: Subject) -> History:
        return self.history.setdefault(subject, History())

    def offers(self, type_url: str, name: str) -> tuple[Offer, ...]:
        return self.resources.get((type_url, name), ())

    def select(self, type_url: str, name: str, params: Mapping[str, str]) -> Offer | None:
        return next((each for each in self.offers(type_url, name) if holds(each.shape, params)), None)

    def names(self, type_url: str) -> list[str]:
        return sorted({name for url, name in self.history if url == type_url})

    def begin(self, type_url: str) -> None:
        """A stream is answered for the first time."""
        self.begun |= {subject: past.now for subject, past in self.history.items() if subject[0] == type_url}

    def leave_gap(self, subject: Subject, shape: Shape) -> None:
        """It is replaced in two responses, of which the first takes it away."""
        past = self.past(subject)
        past.gaps.append((past.now, shape))

    # -- words

    def nonce(self) -> str:
        self._count += 1
        return self.random.choice(("n", "nonce-", "\u00e9", "0")) + str(self._count)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def resource(self, type_url: str, name: str, offer: Offer, constraints: Any | None) -> Any:
        """By resource_name where it was asked for by a locator, else by name."""
        made = pb.Resource(version=offer.version)
        if constraints is None:
            made.name = name
        else:
            made.resource_name.name = name
            made.resource_name.dynamic_parameter_constraints.CopyFrom(constraints)
        made.resource.type_url, made.resource.value = type_url, offer.body
        return made


def everywhere(offers: Iterable[Offer]) -> Shape:
    """Whom there is a variant for."""
    return ("or", *(each.shape for each in offers)) if offers else ("or",)


def is_true(shape: Shape) -> bool:
    return region(shape) == region(TRUE)
