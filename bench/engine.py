"""The engine alone, in one process and without a network: what a change, a selection and a fan-out cost."""

from __future__ import annotations

from collections.abc import Callable

from envoy.config.cluster.v3 import cluster_pb2

from bench.figures import micro, paired, say, seconds
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.events import DeltaRequest, Node, Request
from xdsprism.core.model.expr import parse
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import CLUSTER, Params, Variant, make_variant
from xdsprism.core.model.variants import DisjointVariants
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest


def run() -> None:
    print("Engine")
    say("one change among 100 and among 10,000 resources (wildcard delta)", _change_among(100, 10_000))
    say("choosing among 2 and among 2,000 variants of a name", _choose_among(2, 2_000))
    say("building the index of 2,000 variants, overlap proof included", f"{seconds(lambda: _variants(2_000)):.3f} s")
    for streams in (1, 1_000):
        say(f"one change to {streams:,} wildcard streams, per stream", micro(_fan_out(streams) / streams))
    say("one change to 1,000 streams in 12 classes, per stream", micro(_fan_out(1_000, classes=12) / 1_000))
    say("ten changes in one turn to 1,000 streams, per stream", micro(_fan_out(1_000, burst=10) / 1_000))


def _cluster(name: str, edition: int, when: str = "true") -> Variant:
    message = cluster_pb2.Cluster(name=name, alt_stat_name=f"edition-{edition}")
    return variant_of(message, constraint=parse(when))


def _world(resources: int) -> Store:
    store = Store()
    store.apply({(CLUSTER, f"c{i}"): (_cluster(f"c{i}", 0),) for i in range(resources)})
    return store


class Fleet:
    """Streams that want every cluster and ACK whatever they get, on a store that changes."""

    def __init__(self, store: Store, streams: int, classes: int = 1) -> None:
        self.store = store
        self._interest = Interest()
        self._facts = Facts()
        self._encoder = Encoder("bench")
        self._editions = 0
        store.listeners.append(self._applied)
        self._streams = [Stream(i, store, self._interest, Settings(), self._facts, delta=True) for i in range(streams)]
        for i, stream in enumerate(self._streams):
            node = Node(id=f"n{i}", metadata=Params({"class": str(i % classes), "host": f"h{i}"}))
            stream.receive(Request(CLUSTER, DeltaRequest(), node), 0.0)
        self.deliver()

    def _applied(self, applied: Applied) -> None:
        for session in self._interest.notify(applied.changes):
            self._streams[session.stream].stir(session)

    def change(self, classes: int = 1) -> None:
        self._editions += 1
        if classes == 1:
            self.store.apply({(CLUSTER, "c0"): (_cluster("c0", self._editions),)})
            return
        variants = [_cluster("c0", self._editions * classes + i, f"class={i}") for i in range(classes)]
        self.store.apply({(CLUSTER, "c0"): tuple(variants)})

    def deliver(self) -> None:
        for stream in self._streams:
            for send in stream.poll(0.0):
                self._encoder.encode(send)
                stream.receive(Request(CLUSTER, DeltaRequest(nonce=send.nonce), is_plain=True), 0.0)
        self._encoder.forget()
        self._facts.take()


def _change_among(few: int, many: int) -> str:
    def change_in(fleet: Fleet) -> Callable[[], None]:
        def change() -> None:
            fleet.change()
            fleet.deliver()

        return change

    return paired(change_in(Fleet(_world(few), 1)), change_in(Fleet(_world(many), 1)), number=200)


def _variants(count: int) -> DisjointVariants:
    return DisjointVariants.build(
        [make_variant(CLUSTER, "c", str(i).encode(), parse(f"env=e{i}")) for i in range(count)]
    )


def _choose_among(few: int, many: int) -> str:
    small, large = _variants(few), _variants(many)
    params = [Params({"env": f"e{count - 1}", "other": "x"}) for count in (few, many)]
    return paired(lambda: small.select(params[0]), lambda: large.select(params[1]), number=20_000)


def _fan_out(streams: int, classes: int = 1, burst: int = 1) -> float:
    fleet = Fleet(_world(1_000), streams, classes)

    def change() -> None:
        for _ in range(burst):
            fleet.change(classes)
        fleet.deliver()

    return seconds(change, rounds=9)
