"""Long work pauses in each of its passes over the items, so that nobody waits for long (OPS-10, core/model/steps.py).

A pass that went through all items at once would take its pauses away, so these tests count how many passes the pauses
make up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3 import lrs_pb2 as lrs

from xdsprism.core.codec.client_side import LONG, Checked, RequestEncoder, ResponseDecoder
from xdsprism.core.codec.loads import decoding
from xdsprism.core.loads.load_reports import LoadMessage, LoadReports
from xdsprism.core.model.events import DeltaRequest, Key, Node, Request, SotwRequest
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.limits import Client
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.steps import EVERY, Steps
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER, ENDPOINT, VIRTUAL_HOST, TypeUrl, make_variant
from xdsprism.core.relay.shares import Shares
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.batch import MANY, Batch
from xdsprism.core.session.interest import Interest
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Watch
from xdsprism.core.watch.held_versions import SOME
from xdsprism.core.watch.requests import PORTION
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError

COUNT = 2 * LONG
NAMES = [f"rc/h{number}.test" for number in range(COUNT)]
KEYS = tuple(map(Key, NAMES))
OTHERS = tuple(Key(f"rc/other-{number}.test") for number in range(COUNT))


def passes(steps: Steps[object], size: int = EVERY) -> int:
    """Run the steps through; to how many passes over all items, in pieces of this size, their pauses amount."""
    return round(sum(1 for _ in steps) * size / COUNT)


class Bench:
    """A store and one stream."""

    def __init__(self, *, delta: bool = True, **limits: int) -> None:
        self.store, interest = Store(), Interest()
        settings = Settings(resource_errors="none")
        settings = replace(settings, limits=replace(settings.limits, **limits))
        self.stream = Stream(1, self.store, interest, settings, Facts(), delta=delta)
        self.store.listeners.append(lambda applied: [self.stream.stir(None) for _ in interest.notify(applied.changes)])

    def put(self, type_url: TypeUrl, names: Iterable[str], body: bytes = b"1") -> None:
        self.store.apply({(type_url, name): (make_variant(type_url, name, body),) for name in names})

    def remove(self, type_url: TypeUrl, names: Iterable[str]) -> None:
        self.store.apply({(type_url, name): () for name in names})

    def receiving(self, type_url: TypeUrl, body: DeltaRequest | SotwRequest) -> Steps[object]:
        return self.stream.receiving(Request(type_url, body, Node("n")), 0.0)

    def receive(self, type_url: TypeUrl, body: DeltaRequest | SotwRequest) -> None:
        self.stream.receive(Request(type_url, body, Node("n")), 0.0)


# -- requests and reports


def test_a_client_encodes_a_long_request_in_steps() -> None:
    # subscribe, unsubscribe, versions
    request = DeltaRequest(KEYS, OTHERS, dict.fromkeys(NAMES, "1"))
    assert passes(RequestEncoder(b"", delta=True, v3=True).encoding(CLUSTER, request), LONG) == 3
    assert passes(RequestEncoder(b"", delta=False, v3=True).encoding(CLUSTER, SotwRequest(KEYS)), LONG) == 1


def drops(request: lrs.LoadStatsRequest) -> None:
    cluster = request.cluster_stats.add()
    for name in NAMES:
        cluster.dropped_requests.add(category=name)


def metrics(request: lrs.LoadStatsRequest) -> None:
    place = request.cluster_stats.add().upstream_locality_stats.add()
    for name in NAMES:
        place.load_metric_stats.add(metric_name=name)


@pytest.mark.parametrize("fill", [drops, metrics])
def test_a_server_decodes_a_long_load_report_in_steps(fill: Callable[[lrs.LoadStatsRequest], None]) -> None:
    request = lrs.LoadStatsRequest()
    fill(request)
    assert passes(decoding(request.SerializeToString())) == 1


def test_a_server_refuses_many_load_reports_that_are_too_large_in_steps() -> None:
    reporter = LoadReports(Settings(), lambda _: []).open(Facts())
    assert passes(reporter.receiving(LoadMessage(Node("n"), oversize=tuple(NAMES)), 0.0)) == 1


# -- sessions


def test_subscriptions_past_the_limit_are_read_and_answered_in_steps() -> None:
    # DYN-46
    bench = Bench(subscriptions=1)
    assert passes(bench.receiving(CLUSTER, DeltaRequest(KEYS))) == 2
    assert passes(bench.stream.polling(0.0)) == 1


def test_a_client_that_replaces_all_of_its_subscriptions_at_the_limit_is_served_in_steps() -> None:
    # DYN-46
    bench = Bench(subscriptions=COUNT)
    bench.put(CLUSTER, NAMES)
    bench.receive(CLUSTER, DeltaRequest(KEYS))
    bench.stream.poll(0.0)
    assert passes(bench.receiving(CLUSTER, DeltaRequest(OTHERS, KEYS))) == 8


def test_many_names_that_nothing_has_are_answered_and_forgotten_in_steps() -> None:
    # VHD-25: each request is within the limit, and together they are far beyond it
    bench = Bench(unresolved=EVERY)
    for first in range(0, COUNT, EVERY):
        bench.receive(CLUSTER, DeltaRequest(KEYS[first : first + EVERY]))
    assert passes(bench.stream.polling(0.0)) == 2


def test_a_long_sotw_request_that_is_repeated_is_read_in_steps() -> None:
    # ORD-5
    bench = Bench(delta=False)
    bench.put(ENDPOINT, NAMES)
    bench.receive(ENDPOINT, SotwRequest(KEYS))
    (send,) = bench.stream.poll(0.0)
    bench.receive(ENDPOINT, SotwRequest(KEYS, send.version, send.nonce))
    assert passes(bench.receiving(ENDPOINT, SotwRequest(KEYS, send.version, send.nonce))) == 2


def test_a_batch_of_many_names_with_and_without_params_is_looked_at_in_steps() -> None:
    # DYN-15
    batch = Batch()
    batch.plain = {name: make_variant(CLUSTER, name, b"1") for name in NAMES}
    batch.located = dict.fromkeys(make_variant(CLUSTER, key.name, b"1") for key in OTHERS)
    assert passes(batch.mixed(), MANY) == 1
    assert passes(batch.weighing(), MANY) == 2


def test_the_versions_that_a_returning_client_holds_are_compared_in_steps() -> None:
    # DLT-14
    bench = Bench()
    bench.receive(CLUSTER, DeltaRequest((Key("*"),), initial_versions=dict.fromkeys(NAMES, "1")))
    assert passes(bench.stream.polling(0.0)) == 1


def test_the_virtual_hosts_that_a_returning_client_holds_are_compared_in_steps() -> None:
    # DLT-14
    bench = Bench()
    bench.receive(VIRTUAL_HOST, DeltaRequest((Key("rc/x.test"),), initial_versions=dict.fromkeys(NAMES, "1")))
    assert passes(bench.stream.polling(0.0)) == 1


# -- a client


def test_a_client_of_many_resources_asks_on_a_new_stream_in_steps() -> None:
    # CLI-6
    client = Subscriber()
    server = client.upstream("server", delta=True)
    watch, authority = Watch(lambda: None), Authority("", [server])
    for key in KEYS:
        client.watch(watch, authority, CLUSTER, key)
    client.opened(server, 0.0)
    client.poll(server, 0.0)
    answer = pb.DeltaDiscoveryResponse(type_url=CLUSTER, nonce="1")
    for name in NAMES:
        answer.resources.add(name=name, version="1").resource.Pack(Cluster(name=name))
    decoder = ResponseDecoder(lambda _url, _body: Checked(None, "", ()), delta=True)
    client.receive(server, decoder.decode(answer.SerializeToString()), 0.0)
    client.ended(server, WatchError("UNAVAILABLE", "gone"), 0.0, 0.5)
    client.opened(server, 0.0)
    # the versions are found and checked, and then the timers start
    assert sum(1 for _ in client.polling(server, 0.0)) == 2 * COUNT // SOME + COUNT // PORTION


# -- a relay


class Thing:
    """Something that takes room."""

    has_room = False
    owner = None


def test_whose_subscriptions_give_way_is_found_in_steps() -> None:
    # PRX-35
    def wanting(_: Thing) -> Steps[list[Client]]:
        yield from ()
        return [("10.0.0.1", "modest")]

    shares: Shares[Thing] = Shares(wanting)
    for _ in NAMES:
        shares.take(Thing(), None)
    assert passes(shares.gives_way([("10.0.0.2", "other")])) == 1
