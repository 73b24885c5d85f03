"""What is measured, and of whom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# The build of wheels, as `make compiled` installs it, and the one of a checkout; both on h2.
COMPILED, H2, GRPCIO = OURS = "xdsprism compiled", "xdsprism h2", "xdsprism grpcio"
SNAPSHOT, LINEAR = GCP = "gcp Snapshot", "gcp Linear"  # go-control-plane, with either cache
DIDEROT = "diderot"
PEERS = (*GCP, DIDEROT)  # servers that one could use instead; diderot may not be there
FLOOR = "raw grpc-go"
BEFORE = "xdsprism before"  # other sources of ours, on h2, if told where they are
EVERYBODY = (*OURS, *PEERS, FLOOR)

Kind = Literal["fan-out", "connect", "subscribe"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One server in a scenario, and who is connected to it."""

    label: str
    server: str  # one of EVERYBODY
    resources: int = 1
    variants: int = 0
    only: int = -1  # the one class that is connected; -1: all


@dataclass(frozen=True, slots=True)
class Scenario:
    """Some servers and a fleet of the same form for each."""

    key: str
    title: str
    entries: tuple[Entry, ...]
    kind: Kind = "fan-out"
    connections: int = 50
    streams: int = 20  # on each connection
    sotw: bool = False
    tls: bool = False
    burst: int = 1  # changes at once
    wildcard: bool = False
    size: int = 1024
    at_once: int = 1000  # streams that are given their first resources at one time
    classes: int = 0

    @property
    def unit(self) -> str:
        if self.kind == "fan-out":
            return "µs/message" if self.burst == 1 else "µs/stream"
        return "ms/stream" if self.kind == "connect" else "µs/subscription"


def _each(*, resources: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(server, server, resources) for server in EVERYBODY)


THOUSAND = "1,000 resources"  # of S3, beside its 10,000
CLASSES = 12
ALONE = "only that class"
VARIANTS = (2, 20, 200, 2_000)


def fewer(server: str) -> str:
    return f"{server}, {THOUSAND}"


def alone(server: str) -> str:
    return f"{server}, {ALONE}"


def among(server: str, variants: int) -> str:
    return f"{server}, {variants:,}"


_S5 = tuple(
    Entry(label, server, variants=CLASSES, only=only)
    for server in OURS
    for label, only in ((server, -1), (alone(server), 0))
)
_S6 = tuple(
    Entry(among(server, variants), server, resources=2, variants=variants) for server in OURS for variants in VARIANTS
)

SCENARIOS = (
    Scenario("S1", "one resource of 1 KB, delta, 50 connections x 20 streams", _each()),
    Scenario("S1-sotw", "the same, SotW", _each(), sotw=True),
    Scenario("S1-1000x1", "the same, delta, 1000 connections x 1 stream", _each(), connections=1000, streams=1),
    Scenario("S1-tls", "TLS, 50 x 20", _each(), tls=True),
    Scenario("S1-tls-1000x1", "TLS, 1000 x 1", _each(), connections=1000, streams=1, tls=True),
    Scenario("S1-burst", "ten changes at once, 50 x 20, per stream", _each(), burst=10),
    Scenario(
        "S2",
        "1000 streams, wildcard over 1,000 resources, 1 changes",
        _each(resources=1_000),
        wildcard=True,
        at_once=40,
    ),
    Scenario(
        "S3",
        "200 streams, wildcard over 10,000 resources of 256 bytes, 1 changes",
        (*_each(resources=10_000), *[Entry(fewer(server), server, 1_000) for server in OURS]),
        connections=10,
        wildcard=True,
        size=256,  # which is much already, for 200 streams that get them all to begin with
        at_once=20,
    ),
    Scenario("S4", "1000 streams connect and get 100 resources", _each(resources=100), kind="connect", wildcard=True),
    Scenario("S5", "1000 streams in 12 classes, the variant of one class changes", _S5, classes=CLASSES),
    Scenario("S6", "first subscription to a name with N variants", _S6, kind="subscribe", classes=2),
)
_BY_KEY = {each.key: each for each in SCENARIOS}
_SMALLER = replace(
    _BY_KEY["S2"],
    key="S2-quick",
    title="200 streams, wildcard over 1,000 resources of 256 bytes, 1 changes",
    connections=10,
    size=256,
)
QUICK = (_BY_KEY["S1"], _BY_KEY["S1-1000x1"], _SMALLER, _BY_KEY["S5"])


def beside_before(scenario: Scenario) -> Scenario:
    """Of a scenario, ours on h2 alone, and each entry of it once more on other sources."""
    ours = [entry for entry in scenario.entries if entry.server == H2]
    before = [replace(entry, label=entry.label.replace(H2, BEFORE), server=BEFORE) for entry in ours]
    return replace(scenario, entries=(*ours, *before))


def chosen(keys: list[str]) -> list[Scenario]:
    """By key, or all forms of one: S1 is S1 and S1-sotw and so on; `S1=` is that one alone."""
    found = [each for each in SCENARIOS if any(_meant(each.key, key) for key in keys)]
    unknown = [key for key in keys if not any(_meant(each.key, key) for each in SCENARIOS)]
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(unknown)}; there are {', '.join(s.key for s in SCENARIOS)}")
    return found


def _meant(key: str, word: str) -> bool:
    return key == word.removesuffix("=") or (not word.endswith("=") and key.startswith(f"{word}-"))
