"""Random configurations and changes, with clients that use their resources: no resource in use is removed.

The model clients do what real ones do. `Envoy` follows wildcards of clusters, listeners and scopes; a listener is in
use when its route configurations have arrived, and until then the one before it is. `Grpc` asks for everything by name,
and goes on with the whole that it has until the next one is whole. Both take their time over every response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.core.modes import both, connect
from tests.core.support import Bench, Peer, changeset
from xdsprism.core.model.events import DeltaRequest, Key, Node, Rejection, Send, SotwRequest
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SCOPED_ROUTE, Reference, TypeUrl, Variant

PATIENT = Settings(ack_timeout=1e9, drain_time=0)  # nothing goes by time alone
WORDS = {CLUSTER: "cds", ENDPOINT: "eds", LISTENER: "lds", SCOPED_ROUTE: "srds", ROUTE: "rds"}
FULL_STATE = (CLUSTER, LISTENER, SCOPED_ROUTE)

World = dict[Reference, tuple[Reference, ...]]  # what there is, and what it refers to


# -- worlds in which nothing that is referred to is missing


def world(random: Random, listeners: int, *, scopes: bool) -> World:
    made: World = {}
    waiting: list[Reference] = [(LISTENER, f"l{number}") for number in range(listeners)]
    waiting += [(CLUSTER, f"c{random.randrange(6)}")]  # that nobody uses
    while waiting:
        reference = waiting.pop()
        if reference not in made:
            made[reference] = tuple(refers(random, reference, scopes=scopes))
            waiting += [each for each in made[reference] if each[1] != "*"]
            if (SCOPED_ROUTE, "*") in made[reference]:
                waiting += [(SCOPED_ROUTE, f"s{random.randrange(3)}") for _ in range(2)]
    return made


def refers(random: Random, reference: Reference, *, scopes: bool) -> Iterator[Reference]:
    type_url, name = reference
    clusters = [(CLUSTER, f"c{random.randrange(6)}") for _ in range(random.choice([1, 1, 2]))]
    if type_url == LISTENER:
        way = random.choice(["inline", "rds", "rds", "srds" if scopes else "rds"])
        yield from {"inline": clusters, "srds": [(SCOPED_ROUTE, "*")]}.get(way) or [(ROUTE, f"r{random.randrange(4)}")]
    elif type_url == SCOPED_ROUTE:
        yield ROUTE, f"r{random.randrange(4)}"
    elif type_url == ROUTE:
        yield from [(CLUSTER, f"all{random.randrange(2)}")] if random.random() < 0.3 else clusters
    elif type_url == CLUSTER and name.startswith("all"):
        yield from clusters
    elif type_url == CLUSTER:
        yield ENDPOINT, name


class Author:
    """Writes one world after the other into a store; now and then with something that clients reject."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random
        self._edition = 0
        self._written: dict[Reference, str] = {}
        self._lives: Counter[str] = Counter()

    def _renamed(self, new: World) -> World:
        """SOT-7: a client is not told that a route configuration is gone. So none comes back under the same name."""

        def name(reference: Reference) -> Reference:
            type_url, name = reference
            return (type_url, f"{name}_{self._lives[name]}") if type_url == ROUTE else reference

        for type_url, old in [*self._written]:
            if type_url == ROUTE and (ROUTE, old.partition("_")[0]) not in new:
                self._lives[old.partition("_")[0]] += 1
        return {name(key): tuple(map(name, references)) for key, references in new.items()}

    def write(self, new: World, *, bad: float = 0.0) -> None:
        self._edition += 1
        new = self._renamed(new)
        lines = [f"{WORDS[type_url]} -{name}" for type_url, name in self._written if (type_url, name) not in new]
        for (type_url, name), references in new.items():
            told = "".join(f">{WORDS[kind]}.{each}" for kind, each in references if kind != ENDPOINT)
            known = self._written.get((type_url, name), "")
            if (
                known.partition(">")[2] == told[1:]
                and known
                and not known.startswith("bad")
                and self._random.random() < 0.7
            ):
                continue
            spoilt = type_url in (LISTENER, ROUTE) and self._random.random() < bad
            self._written[type_url, name] = body = f"{'bad' if spoilt else ''}{self._edition}{told}"
            lines.append(f"{WORDS[type_url]} {name}={body}")
        self._written = {reference: body for reference, body in self._written.items() if reference in new}
        self._bench.store.apply(changeset("; ".join(lines)))


# -- clients


def needs(variant: Variant, *kinds: TypeUrl) -> list[str]:
    return [name for kind, name in variant.references if kind in kinds]


@dataclass
class Client(ABC):
    """What is common to both: responses that wait to be looked at, and resources."""

    peer: Peer
    random: Random
    has: dict[TypeUrl, dict[str, Variant]] = field(default_factory=lambda: {url: {} for url in WORDS})
    wants: dict[TypeUrl, tuple[str, ...]] = field(default_factory=dict)
    inbox: deque[Send] = field(default_factory=deque)
    nonces: dict[TypeUrl, str] = field(default_factory=dict)

    def listen(self) -> None:
        self.inbox += self.peer.poll()

    def ask(self, type_url: TypeUrl, names: Iterable[str], nonce: str = "", error: Rejection | None = None) -> None:
        before, self.wants[type_url] = self.wants.get(type_url, ()), tuple(sorted(names))
        now = self.wants[type_url]
        if self.peer.stream.delta:
            added = tuple(Key(name) for name in now if name not in before)
            dropped = tuple(Key(name) for name in before if name not in now)
            self.peer.receive(type_url, DeltaRequest(added, dropped, nonce=nonce, error=error))
        else:
            nonce = nonce or self.nonces.get(type_url, "")
            self.peer.receive(type_url, SotwRequest(tuple(Key(name) for name in now), "", nonce, error))
        self.nonces[type_url] = nonce

    def step(self) -> None:
        """Look at one response."""
        if self.inbox:
            send = self.inbox.popleft()
            error = None
            if any(variant.body.startswith(b"bad") for variant in send.plain):
                error = Rejection(3, "bad")
            else:
                self.apply(send)
            self.ask(send.type_url, self.wants[send.type_url], send.nonce, error)
            self.act()
            self.check(send)

    def apply(self, send: Send) -> None:
        known = self.has[send.type_url]
        if not send.delta and send.type_url in FULL_STATE:
            known.clear()
        for name in send.removed:
            if send.type_url in FULL_STATE:  # S16: Envoy keeps the others
                known.pop(name, None)
        wanted = self.wants[send.type_url]
        known.update({each.name: each for each in send.plain if each.name in wanted or wanted == ("*",)})

    def follow(self, type_url: TypeUrl, names: Iterable[str]) -> None:
        """Ask for these, if they are others than before, and drop what is not wanted."""
        wanted = tuple(sorted(set(names)))
        if wanted != self.wants.get(type_url, ()):
            self.ask(type_url, wanted)
            self.has[type_url] = {name: held for name, held in self.has[type_url].items() if name in wanted}

    def clusters(self, names: Iterable[str]) -> set[str]:
        """These, and the parts of those that are aggregates and are there."""
        found: set[str] = set()
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                known = self.has[CLUSTER].get(name)
                waiting += needs(known, CLUSTER) if known is not None else []
        return found

    @abstractmethod
    def act(self) -> None:
        """Ask for what it needs next."""

    @abstractmethod
    def used(self) -> set[str]:
        """The clusters that its requests may go to."""

    def check(self, send: Send) -> None:
        lost = self.used() - self.has[CLUSTER].keys()
        assert not lost, f"{lost} went from under the client with {send.nonce}"


@dataclass
class Envoy(Client):
    active: dict[str, Variant] = field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of aggregates that are in use

    def start(self) -> None:
        for type_url in (CLUSTER, LISTENER, SCOPED_ROUTE):
            self.ask(type_url, ["*"])

    def routes(self, listener: Variant) -> set[str]:
        scoped = [name for scope in self.has[SCOPED_ROUTE].values() for name in needs(scope, ROUTE)]
        return {*needs(listener, ROUTE), *(scoped if needs(listener, SCOPED_ROUTE) else [])}

    def act(self) -> None:
        listeners = self.has[LISTENER]
        self.active = {name: held for name, held in self.active.items() if name in listeners}
        everything = [*self.active.values(), *listeners.values()]
        self.follow(ROUTE, (name for listener in everything for name in self.routes(listener)))
        for name, listener in listeners.items():
            if self.routes(listener) <= self.has[ROUTE].keys():
                self.active[name] = listener

    def used(self) -> set[str]:
        found: set[str] = set()
        for listener in self.active.values():
            found.update(needs(listener, CLUSTER))
            for name in self.routes(listener) & self.has[ROUTE].keys():
                found.update(needs(self.has[ROUTE][name], CLUSTER))
        return self.clusters(found)


@dataclass
class Grpc(Client):
    using: tuple[str | None, frozenset[str]] = (None, frozenset())  # the route configuration, and clusters

    def start(self) -> None:
        self.ask(LISTENER, ["l0"])

    def act(self) -> None:
        listener = self.has[LISTENER].get("l0")
        if listener is None:
            return
        routes = needs(listener, ROUTE)
        self.follow(ROUTE, routes)
        found = [listener, *(self.has[ROUTE][name] for name in routes if name in self.has[ROUTE])]
        new = self.clusters(name for variant in found for name in needs(variant, CLUSTER))
        known = self.has[CLUSTER]
        services = {name for each in new if each in known for name in needs(known[each], ENDPOINT)}
        whole = len(found) == 1 + len(routes) and new <= known.keys() and services <= self.has[ENDPOINT].keys()
        if whole:
            self.using = (routes[0] if routes else None), frozenset(new)
        self.follow(CLUSTER, {*new, *self.using[1]})
        kept = {name for each in self.using[1] if each in known for name in needs(known[each], ENDPOINT)}
        self.follow(ENDPOINT, services | kept)

    def used(self) -> set[str]:
        return set(self.using[1])


# -- the runs


def run(client: Client, author: Author, random: Random, *, listeners: int, bad: float) -> None:
    client.listen()
    for _ in range(12):
        author.write(world(random, listeners, scopes=isinstance(client, Envoy)), bad=bad)
        for _ in range(random.choice([0, 1, 3, 8, 20])):
            client.listen()
            client.step()
    last = world(random, listeners, scopes=isinstance(client, Envoy))
    author.write(last)
    client.listen()
    while client.inbox:
        client.step()
        client.listen()
    wanted = {name for type_url, name in last if type_url == CLUSTER}
    have = client.has[CLUSTER].keys()
    assert have == wanted if isinstance(client, Envoy) else have == client.used(), (
        "and what is not used goes in the end"
    )
    assert client.used() <= wanted


@both
@pytest.mark.parametrize("bad", [0.0, 0.15], ids=["good", "some bad"])
@pytest.mark.parametrize("seed", range(25))
def test_envoy_never_loses_a_cluster_that_it_uses(mode: str, bad: float, seed: int):
    # ORD-2, ORD-3, ORD-4
    random = Random(f"{mode} {bad} {seed}")
    bench = Bench(PATIENT)
    author = Author(bench, random)
    author.write(world(random, 2, scopes=True))
    client = Envoy(connect(bench, mode), random)
    client.start()
    run(client, author, random, listeners=2, bad=bad)


@pytest.mark.parametrize("bad", [0.0, 0.15], ids=["good", "some bad"])
@pytest.mark.parametrize("seed", range(25))
def test_a_grpc_client_never_loses_a_cluster_that_it_uses(bad: float, seed: int):
    # ORD-2, ORD-4
    random = Random(f"grpc {bad} {seed}")
    bench = Bench(PATIENT)
    author = Author(bench, random)
    author.write(world(random, 1, scopes=False))
    client = Grpc(bench.connect(Node("grpc", user_agent="grpc-c++"), delta=False), random)
    client.start()
    run(client, author, random, listeners=1, bad=bad)
