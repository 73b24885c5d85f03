"""A change of very many resources is notified in slices: others are served in between, and no client gets a part."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from tests.wire.test_slicing import Rig, parsed, subscribing
from xdsprism import CLUSTER, ENDPOINT, Store
from xdsprism.server.calls import CallPort
from xdsprism.server.slicing import LONG_COUNT
from xdsprism.server.xds_call import XdsCall

MANY = [f"c{number}" for number in range(LONG_COUNT + 500)]


def change(store: Store, edition: int, names: list[str] = MANY) -> None:
    with store.transaction() as tx:
        for name in names:
            tx.put(Cluster(name=name, connect_timeout=Duration(seconds=edition)))


def editions(messages: list[bytes]) -> list[dict[str, int]]:
    """Of each response: the clusters in it, and what edition each is of."""
    found = []
    for response in parsed(messages):
        clusters = [Cluster.FromString(resource.resource.value) for resource in response.resources]
        found.append({cluster.name: cluster.connect_timeout.seconds for cluster in clusters})
    return found


def begun(rig: Rig, names: list[str], type_url: str = CLUSTER) -> XdsCall:
    call = rig.open()
    call.receive(subscribing(names, type_url))
    for response in parsed(rig.rest(call)[0]):
        call.receive(pb.DeltaDiscoveryRequest(type_url=type_url, response_nonce=response.nonce).SerializeToString())
    rig.rest(call)
    return call


def store_of_many() -> Store:
    store = Store(validate="off")
    change(store, 1)
    with store.transaction() as tx:
        tx.put(ClusterLoadAssignment(cluster_name="e"))
    return store


def test_others_are_answered_during_a_large_change() -> None:
    # OPS-10
    store = store_of_many()
    rig = Rig(store)
    concerned, other = begun(rig, MANY), begun(rig, ["e"], ENDPOINT)
    change(store, 2)
    answers: list[list[bytes]] = [[], []]
    turns = 0
    while rig.hub.changes:
        rig.turn()
        turns += 1
        if turns == 2:
            other.receive(subscribing(["none"], ENDPOINT))
            answers[0] += other.poll()
            late = rig.open()
            late.receive(subscribing(["c7"], CLUSTER))
            answers[1] += late.poll()
        elif rig.hub.changes:
            assert not list(concerned.poll())
    assert turns > 2
    assert parsed(answers[0])[0].removed_resources == ["none"]
    assert editions(answers[1]) == [{"c7": 2}]
    assert editions(rig.rest(concerned)[0]) == [dict.fromkeys(MANY, 2)]


def test_a_client_polled_meanwhile_gets_a_large_change_as_a_whole() -> None:
    # OPS-10, DYN-38
    store = store_of_many()
    rig = Rig(store)
    few = [MANY[0], MANY[-1]]
    calls = [begun(rig, few), begun(rig, ["*"])]
    change(store, 2)
    for _ in range(2):
        rig.turn()
        for call in calls:
            assert not list(call.poll())
    named, wild = map(editions, rig.rest(*calls))
    assert named == [dict.fromkeys(few, 2)]
    assert wild == [dict.fromkeys(MANY, 2)]


def test_a_change_during_a_large_one_follows_it() -> None:
    # OPS-10, DYN-38
    store = store_of_many()
    rig = Rig(store)
    few = [MANY[0], MANY[-1]]
    call = begun(rig, few)
    change(store, 2)
    rig.turn()
    change(store, 3, MANY[:1])
    assert not list(call.poll())
    assert editions(rig.rest(call)[0]) == [{MANY[0]: 3, MANY[-1]: 2}]


def test_long_work_of_a_stream_waits_for_a_large_change() -> None:
    # OPS-10, DYN-38: or its answer would have a part of the change
    store = store_of_many()
    rig = Rig(store)
    call = rig.open()
    call.receive(subscribing(MANY, CLUSTER))
    while not call.stream.count:
        rig.turn()
    change(store, 2)
    before = call.stream.count
    rig.turn()
    assert rig.hub.changes
    assert call.stream.count == before
    assert editions(rig.rest(call)[0])[-1] == dict.fromkeys(MANY, 2)


def test_a_client_that_had_to_wait_for_a_large_change_is_woken_after_it() -> None:
    # OPS-10: it asked meanwhile, and nothing that changed concerns it
    store = store_of_many()
    rig = Rig(store)
    call = begun(rig, ["none"])
    change(store, 2)
    rig.turn()
    call.receive(subscribing(["neither"], CLUSTER))
    assert not list(call.poll())
    woken: list[bool] = []

    class Port(CallPort):
        def wake(self) -> None:
            woken.append(bool(rig.hub.changes))

    call.attach(Port())
    while rig.turns:
        rig.turn()
    assert woken == [False]
    assert [response.removed_resources for response in parsed(list(call.poll()))] == [["neither"]]
