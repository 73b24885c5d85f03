"""Long requests are processed in slices: others are served in between, and the responses are the same as at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, product
from unittest.mock import patch

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.duration_pb2 import Duration
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import insides
from tests.support.examples import examples
from xdsprism import CLUSTER, ENDPOINT, VIRTUAL_HOST, Settings, Store
from xdsprism.core.model.steps import EVERY
from xdsprism.errors import PeerError
from xdsprism.server import hub as hub_module
from xdsprism.server import long_work, xds_call
from xdsprism.server.calls import CallPort, Peer
from xdsprism.server.fetch import open_fetch
from xdsprism.server.hub import Hub
from xdsprism.server.slicing import BUDGET, LONG_BYTES, LONG_COUNT, Slices
from xdsprism.server.xds_call import XdsCall

STEP = 0.006  # seconds that each step takes, by the clock of these tests
MANY = [f"name-of-a-usual-length-{number}" for number in range(2_000)]


class Rig:
    """A hub whose turns are run by hand, with a clock that each look at it moves."""

    def __init__(self, store: Store, *, sliced: bool = True) -> None:
        self.turns: list[Callable[[], None]] = []
        ticks = count()
        slices = Slices(self.turns.append, lambda: next(ticks) * STEP) if sliced else None
        self.hub = Hub(store, Settings(epoch="e"), lambda: 0.0, self.turns.append, None, slices)

    def open(self, *, delta: bool = True) -> XdsCall:
        return self.hub.open("x", Peer("x"), delta=delta, only_type=None)

    def turn(self) -> None:
        """One turn of the loop."""
        due, self.turns[:] = list(self.turns), []
        for each in due:
            each()

    def rest(self, *calls: XdsCall) -> list[list[bytes]]:
        """Until nobody has anything to say or to do: what each call said."""
        said: list[list[bytes]] = [[] for _ in calls]
        while True:
            news = [list(call.poll()) for call in calls]
            for number, more in enumerate(news):
                said[number] += more
            if not self.turns and not any(news):
                return said
            self.turn()


def filled(validate: str = "off") -> Store:
    store = Store(validate=validate)  # type: ignore[arg-type] # one of the three
    with store.transaction() as tx:
        for number in range(40):
            tx.put(Cluster(name=f"n{number}"), when="env=prod")
            tx.put(Cluster(name=f"n{number}", connect_timeout=Duration(seconds=2)), when="env!=prod")
            tx.put(ClusterLoadAssignment(cluster_name=f"n{number}"))
            tx.put(VirtualHost(name=f"r/n{number}", domains=[f"n{number}.test", f"*.n{number}.test"]))
    return store


def subscribing(names: list[str], type_url: str = ENDPOINT) -> bytes:
    asked = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=type_url, resource_names_subscribe=names)
    return asked.SerializeToString()


def parsed(messages: list[bytes]) -> list[pb.DeltaDiscoveryResponse]:
    return [pb.DeltaDiscoveryResponse.FromString(message) for message in messages]


# -- others are served in between


def test_another_stream_is_served_between_two_slices() -> None:
    # OPS-10
    rig = Rig(filled())
    long, short = rig.open(), rig.open()
    long.receive(subscribing(MANY))
    turns = 0
    while long.is_busy:
        rig.turn()
        turns += 1
        if turns == 2:
            assert not list(long.poll())
            short.receive(subscribing(["n1"]))
            (answer,) = parsed(list(short.poll()))
            assert [resource.name for resource in answer.resources] == ["n1"]
    assert turns > len(MANY) / EVERY * STEP / BUDGET  # the takeover alone has so many
    assert len(parsed(rig.rest(long)[0])[0].removed_resources) == len(MANY)


def test_a_few_names_of_many_megabytes_are_answered_in_slices() -> None:
    # OPS-10, VHD-26
    rig = Rig(filled())
    call = rig.open()
    names = [str(number) * 700_000 for number in range(4)]
    call.receive(subscribing(names))
    while call.is_busy:
        rig.turn()
    assert not list(call.poll())  # it is encoded first
    assert call.is_busy
    assert [name for answer in parsed(rig.rest(call)[0]) for name in answer.removed_resources] == names


def test_two_long_requests_have_their_turns_alternately() -> None:
    # OPS-10
    rig = Rig(filled())
    calls = [rig.open(), rig.open()]
    for call in calls:
        call.receive(subscribing(MANY))
    seen = []
    while all(call.is_busy for call in calls):
        rig.turn()
        seen.append([call.stream.count for call in calls])
    assert any(0 < one < len(MANY) and 0 < other < len(MANY) for one, other in seen)


def test_an_address_with_many_streams_has_a_turn_like_any_other() -> None:
    # OPS-10
    rig = Rig(filled())
    crowd = [rig.hub.open("x", Peer(f"ipv4:10.0.0.1:{port}"), delta=True, only_type=None) for port in range(1, 11)]
    other = rig.hub.open("x", Peer("ipv4:10.0.0.2:1"), delta=True, only_type=None)
    for call in (*crowd, other):
        call.receive(subscribing(MANY))
    while other.is_busy:
        rig.turn()
    assert sum(call.stream.count for call in crowd) < 2 * len(MANY)


def test_a_short_request_is_answered_at_once() -> None:
    # OPS-10
    rig = Rig(filled())
    call = rig.open()
    call.receive(subscribing(["n1"] * 10))
    assert not call.is_busy
    assert len(list(call.poll())) == 1


# -- the order of one stream


def test_messages_during_long_work_wait_in_order_and_hold_the_window() -> None:
    # DLT-7, OPS-10
    rig = Rig(filled())
    call = rig.open()
    held: list[bool] = []

    class Port(CallPort):
        def hold_back(self, *, waits: bool) -> None:
            held.append(waits)

    call.attach(Port())
    call.receive(subscribing(MANY))
    rig.turn()
    gone = pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_unsubscribe=MANY[:1])
    call.receive(gone.SerializeToString())
    call.receive(subscribing([*MANY[:1], "n2"]))
    call.receive(pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_unsubscribe=["n2"]).SerializeToString())
    assert call.stream.count < len(MANY)
    assert held[-1]
    rig.rest(call)
    (session,) = call.stream.sessions.values()
    assert sorted(name for name, _ in session.subscriptions) == sorted(MANY)
    assert not held[-1]


def test_a_stream_that_is_half_closed_ends_after_its_answer() -> None:
    # OPS-10
    rig = Rig(filled())
    call = rig.open()
    call.receive(subscribing(MANY))
    call.half_close()
    assert not call.finished
    (said,) = rig.rest(call)
    assert len(parsed(said)[0].removed_resources) == len(MANY)
    assert call.finished


def test_work_is_abandoned_when_its_stream_is_closed() -> None:
    # OPS-7
    rig = Rig(filled())
    call = rig.open()
    call.receive(subscribing(MANY))
    while call.stream.count < 1_500:
        rig.turn()
    call.close()
    turns = 0
    while rig.turns:
        rig.turn()
        turns += 1
    assert turns > 2  # so is letting go
    assert not rig.hub.connected()
    assert not call.stream.sessions
    assert all(not rig.hub.interest.subscribers(ENDPOINT, name) for name in MANY)


def test_small_streams_that_all_close_in_one_turn_close_in_slices() -> None:
    # OPS-10
    rig = Rig(filled())
    calls = [rig.open() for _ in range(40)]
    for number, call in enumerate(calls):
        call.receive(subscribing(MANY[50 * number : 50 * number + 50]))
    rig.rest(*calls)
    for call in calls:
        call.close()
    left = rig.hub.connected()
    assert left == [call.connected for call in calls[LONG_COUNT // 50 :]]
    turns = 0
    while rig.turns:
        rig.turn()
        turns += 1
    assert turns > 2
    assert not rig.hub.connected()
    assert all(not rig.hub.interest.subscribers(ENDPOINT, name) for name in MANY)
    later = rig.open()
    later.close()
    assert not rig.hub.connected()  # at once: that turn is over


def test_an_error_in_a_long_request_ends_its_stream() -> None:
    # SRV-4, OPS-10
    rig = Rig(filled())
    calls = [rig.open(), rig.open()]
    calls[0].receive(b"\x1a\x7f" + bytes(LONG_BYTES))
    calls[1].receive(pb.DeltaDiscoveryRequest(resource_names_subscribe=MANY).SerializeToString())
    for call in calls:
        while call.is_busy:
            rig.turn()
        with pytest.raises(PeerError) as told:
            list(call.poll())
        assert told.value.status == "INVALID_ARGUMENT"


# -- changes in the meantime


def put(store: Store, **versions: int) -> None:
    with store.transaction() as tx:
        for name, version in versions.items():
            tx.put(Cluster(name=name, connect_timeout=Duration(seconds=version)))


def test_changes_during_long_work_are_one_later_response() -> None:
    # SRV-18
    store = Store(validate="off")
    names = [f"c{number}" for number in range(1_500)]
    put(store, **dict.fromkeys(names, 1))
    rig = Rig(store)
    call = rig.open()
    call.receive(subscribing(names, CLUSTER))
    while call.is_busy:
        rig.turn()
    list(call.poll())  # begins to look
    rig.turn()
    put(store, c0=2, c1499=2)
    responses = parsed(rig.rest(call)[0])
    bodies = [{each.name: Cluster.FromString(each.resource.value) for each in one.resources} for one in responses]
    assert bodies[0]["c0"].connect_timeout.seconds == 1
    assert "c1499" not in bodies[0]
    assert {name: body.connect_timeout.seconds for name, body in bodies[1].items()} == {"c0": 2, "c1499": 2}


def test_full_state_that_takes_long_is_that_of_its_end() -> None:
    # SOT-4
    store = Store(validate="off")
    names = [f"c{number}" for number in range(1_500)]
    put(store, **dict.fromkeys(names, 1))
    rig = Rig(store)
    call = rig.open(delta=False)
    asked = pb.DiscoveryRequest(node=Node(id="n"), type_url=CLUSTER, resource_names=names)
    call.receive(asked.SerializeToString())
    while call.is_busy:
        rig.turn()
    list(call.poll())
    rig.turn()
    put(store, c0=2, c1499=2)
    first = pb.DiscoveryResponse.FromString(rig.rest(call)[0][0])
    told = {body.name: body.connect_timeout.seconds for body in map(_cluster, first.resources)}
    assert len(told) == len(names)
    assert (told["c0"], told["c1499"]) == (2, 2)


def _cluster(resource: object) -> Cluster:
    return Cluster.FromString(resource.value)  # type: ignore[attr-defined]


# -- the same as at once


@contextmanager
def everything_is_long() -> Iterator[None]:
    with (
        patch.object(hub_module, "LONG_COUNT", 0),
        patch.object(xds_call, "LONG_BYTES", 0),
        patch.object(xds_call, "LONG_COUNT", 0),
        patch.object(long_work, "LONG_COUNT", 0),
    ):
        yield


NAMES = st.lists(st.integers(0, 60), max_size=12).map(lambda found: [f"n{each}" for each in found])
LISTS = st.tuples(NAMES, st.integers(0, 300)).map(lambda both: both[0] + [f"x{number}" for number in range(both[1])])


@st.composite
def delta_requests(draw: st.DrawFn) -> bytes:
    type_url = draw(st.sampled_from([CLUSTER, ENDPOINT, VIRTUAL_HOST]))
    inside = "r/{}.test" if type_url == VIRTUAL_HOST else "{}"
    said = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=type_url)
    said.resource_names_subscribe.extend(inside.format(name) for name in draw(LISTS))
    said.resource_names_unsubscribe.extend(inside.format(name) for name in draw(NAMES))
    for name in draw(NAMES):
        params = draw(st.sampled_from([{}, {"env": "prod"}, {"env": "test", "pod": "7"}]))
        said.resource_locators_subscribe.add(name=inside.format(name), dynamic_parameters=params)
    for name in draw(st.lists(st.integers(0, 60), max_size=1)):
        said.initial_resource_versions[f"n{name}"] = "old"
    return said.SerializeToString()


@st.composite
def sotw_requests(draw: st.DrawFn) -> bytes:
    said = pb.DiscoveryRequest(node=Node(id="n"), type_url=draw(st.sampled_from([CLUSTER, ENDPOINT])))
    said.resource_names.extend(draw(LISTS))
    for name in draw(NAMES):
        said.resource_locators.add(name=name, dynamic_parameters={"env": "prod"})
    return said.SerializeToString()


def talk(rig: Rig, requests: list[bytes], *, delta: bool) -> list[bytes]:
    """What is said to one who asks, and accepts all that it is told."""
    call = rig.open(delta=delta)
    said: list[bytes] = []
    for request in requests:
        call.receive(request)
        (news,) = rig.rest(call)
        said += news
        for message in news if delta else ():
            told = pb.DeltaDiscoveryResponse.FromString(message)
            call.receive(
                pb.DeltaDiscoveryRequest(type_url=told.type_url, response_nonce=told.nonce).SerializeToString()
            )
        (more,) = rig.rest(call)
        said += more
    return said


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(delta_requests(), min_size=1, max_size=4))
def test_delta_in_slices_sends_the_same_as_at_once(requests: list[bytes]) -> None:
    # DLT-3, DLT-4, DLT-7, DYN-14, VHD-7
    plain = talk(Rig(filled(), sliced=False), requests, delta=True)
    with everything_is_long():
        assert talk(Rig(filled()), requests, delta=True) == plain


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(sotw_requests(), min_size=1, max_size=4))
def test_sotw_in_slices_sends_the_same_as_at_once(requests: list[bytes]) -> None:
    # SOT-4, SOT-5, DYN-14
    plain = talk(Rig(filled(), sliced=False), requests, delta=False)
    with everything_is_long():
        assert talk(Rig(filled()), requests, delta=False) == plain


def test_a_long_fetch_is_answered_in_slices_with_the_same_bytes() -> None:
    # SRV-2
    store = Store(validate="off")
    with store.transaction() as tx:
        for name in MANY:
            tx.put(ClusterLoadAssignment(cluster_name=name))
    asked = pb.DiscoveryRequest(node=Node(id="n"), type_url=ENDPOINT, resource_names=MANY).SerializeToString()
    said = []
    for sliced in (True, False):
        rig = Rig(store, sliced=sliced)
        call = open_fetch(rig.hub, "x", Peer("x"), ENDPOINT, v2=False)
        call.receive(asked)
        assert call.is_busy is sliced
        call.half_close()
        said.append(rig.rest(call)[0])
        assert call.finished
        assert not call.is_busy
        call.close()
    assert said[0] == said[1]
    assert len(pb.DiscoveryResponse.FromString(said[0][0]).resources) == len(MANY)


# -- few changes that concern very many


def moved(store: Store, *, by: int) -> None:
    with store.transaction() as tx:
        for number in range(20):
            tx.put(VirtualHost(name=f"m/v{number}", domains=[f"*.v{(number + by) % 20}.test"]))


def test_a_change_that_moves_very_many_hosts_is_notified_in_slices() -> None:
    # OPS-10, VHD-12, SRV-18
    hosts = [f"m/h{number}.v{number % 20}.test" for number in range(2_000)]
    said = []
    for sliced in (True, False):
        store = Store(validate="off")
        moved(store, by=0)
        rig = Rig(store, sliced=sliced)
        call, other = rig.open(), rig.open()
        call.receive(subscribing(hosts, VIRTUAL_HOST))
        rig.rest(call)
        moved(store, by=1)
        if sliced:
            rig.turn()
            assert rig.hub.changes  # not all is told, and so nothing is said
            assert not list(call.poll())
            other.receive(subscribing(["n1"]))
            assert len(list(other.poll())) == 1
        said.append(parsed(rig.rest(call)[0]))
    assert [{each.name for each in one.resources} for one in said[0]] == [{f"m/v{number}" for number in range(20)}]
    aliases = [{each.name: {*each.aliases} for each in one.resources} for response in said for one in response]
    assert aliases[0] == aliases[1]
    assert {*hosts} == {alias for found in aliases[0].values() for alias in found}


def test_a_change_of_very_many_variants_is_sent_in_slices_to_a_stream_at_rest() -> None:
    # OPS-10, SRV-18: two resources change, which the fast path is for, and 1,600 subscriptions
    store = Store(validate="off")

    def write(version: int) -> None:
        with store.transaction() as tx:
            for name, pod in product("ab", range(800)):
                tx.put(Cluster(name=name, connect_timeout=Duration(seconds=version)), when=f"pod=p{pod}")

    write(1)
    rig = Rig(store)
    call = rig.open()
    asked = pb.DeltaDiscoveryRequest(node=Node(id="n"), type_url=CLUSTER)
    for name, pod in product("ab", range(800)):
        asked.resource_locators_subscribe.add(name=name, dynamic_parameters={"pod": f"p{pod}"})
    call.receive(asked.SerializeToString())
    for response in parsed(rig.rest(call)[0]):
        call.receive(pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce).SerializeToString())
    rig.rest(call)
    write(2)
    assert not list(call.poll())
    assert call.is_busy
    assert sum(len(response.resources) for response in parsed(rig.rest(call)[0])) == 1_600


def test_a_returning_client_of_a_large_table_is_compared_in_slices() -> None:
    # SOT-12, OPS-10
    store = Store(validate="off")
    put(store, **{f"c{number}": 1 for number in range(1_500)})
    rig = Rig(store)
    first = rig.open(delta=False)
    first.receive(pb.DiscoveryRequest(node=Node(id="n"), type_url=CLUSTER).SerializeToString())
    version = pb.DiscoveryResponse.FromString(rig.rest(first)[0][0]).version_info
    put(store, c0=1, c1500=1)
    put(store, c1500=1)
    with store.transaction() as tx:
        tx.delete(CLUSTER, "c1500")
    for named, answers in ((version, 0), ("0123456789abcdef", 1)):
        call = rig.open(delta=False)
        asked = pb.DiscoveryRequest(node=Node(id="n"), type_url=CLUSTER, version_info=named)
        call.receive(asked.SerializeToString())
        assert call.is_busy
        assert len(rig.rest(call)[0]) == answers


def test_subscriptions_that_were_begun_when_their_stream_is_closed_are_taken_back() -> None:
    # OPS-7
    rig = Rig(filled())
    call = rig.open()
    call.receive(subscribing(MANY))
    session, kept = None, insides.kept_of_interest(rig.hub.interest)
    while session is None or len(session.subscriptions.names) <= len(kept["names"].get(ENDPOINT, {})):
        rig.turn()
        session = call.stream.sessions.get(ENDPOINT)
    call.close()
    while rig.turns:
        rig.turn()
    assert not any(kept.values())
