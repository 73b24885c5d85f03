"""Version 2 of the API beside version 3, on one port and of one store (gRFC A30)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.api.v2 import cluster_pb2, discovery_pb2
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.admin.rig import locator
from tests.client.doors import boot
from tests.client.rig import both, follow
from tests.support.facts import each_of
from tests.wire.api import V2_METHODS, Defined
from tests.wire.rig import DELTA, SOTW, Stream, cluster, put, put_bytes, sessions, tag_of, unary, until
from xdsprism import CLUSTER, ENDPOINT, LISTENER, SECRET, Server, Store
from xdsprism.core.model.facts import Nacked, Sent
from xdsprism.core.model.type_versions import RESOURCE, as_v2, as_v3
from xdsprism.core.model.types import EXTENSION_CONFIG
from xdsprism.server.methods import V2, discovery_methods

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

STREAMS = [method for method in V2_METHODS if method.streams]
TYPED = [method for method in STREAMS if method.type_url]
FETCHES = [method for method in V2_METHODS if not method.streams]

BODY = b"\n\x01x"  # field 1, which is the name in nearly every type
OLD = as_v2(CLUSTER)
V2_ADS = "/envoy.service.discovery.v2.AggregatedDiscoveryService/"
V2_DELTA, V2_SOTW = V2_ADS + "DeltaAggregatedResources", V2_ADS + "StreamAggregatedResources"

PATHS = {"sotw": (V2_SOTW, SOTW), "delta": (V2_DELTA, DELTA)}
each_form = pytest.mark.parametrize(("old", "new"), PATHS.values(), ids=PATHS)


def contents(response: Any) -> list[Any]:
    """The Anys of a response of either form."""
    delta = isinstance(response, pb.DeltaDiscoveryResponse)
    return [each.resource if delta else each for each in response.resources]


def urls(response: Any) -> set[str]:
    return {response.type_url, *(each.type_url for each in contents(response))}


# -- which methods there are


async def test_every_discovery_method_of_v2_is_served_and_no_other(server: Server) -> None:
    # VER-1
    served = sorted(method.path for method in discovery_methods(server.hub, V2))
    assert served == sorted(method.path for method in V2_METHODS)
    assert {path.rpartition(".")[0] for path in served} == {"/envoy.api.v2", "/envoy.service.discovery.v2"}


@pytest.mark.parametrize("method", V2_METHODS, ids=str)
async def test_a_server_of_v3_alone_does_not_have_them(v3_alone: Server, method: Defined) -> None:
    # VER-1
    async with Stream(v3_alone.address, method.path) as stream:
        assert (await stream.status())[0] is grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture
async def v3_alone(store: Store) -> AsyncIterator[Server]:
    async with Server(store, listen="127.0.0.1:0", v2=False) as running:
        yield running


@each_form
async def test_a_server_of_v3_alone_serves_v3(v3_alone: Server, old: str, new: str) -> None:
    # VER-1
    put(v3_alone.store, cluster("a", "1"))
    async with Stream(v3_alone.address, new) as stream:
        assert urls(await stream.ask(CLUSTER, ["a"])) == {CLUSTER}


@pytest.mark.parametrize("method", ["StreamClientStatus", "FetchClientStatus"])
async def test_client_status_is_not_served_in_v2(server: Server, method: str) -> None:
    # VER-11
    async with Stream(server.address, f"/envoy.service.status.v2.ClientStatusDiscoveryService/{method}") as stream:
        assert (await stream.status())[0] is grpc.StatusCode.UNIMPLEMENTED


# -- answers have the version of the request


@pytest.mark.parametrize("method", STREAMS, ids=str)
async def test_a_stream_of_v2_answers_in_v2(server: Server, method: Defined) -> None:
    # VER-1, VER-2, VHD-17
    type_url = method.type_url or as_v2(SECRET)
    put_bytes(server.store, as_v3(type_url), "x", BODY)
    async with Stream(server.address, method.path) as stream:
        answer = await stream.ask(type_url, ["x"], node={"id": "me"})
        (packed,) = contents(answer)
        assert (answer.type_url, packed.type_url, packed.value) == (type_url, type_url, BODY)
        assert [session.table.spec.url for session in sessions(server)] == [as_v3(type_url)]


@pytest.mark.parametrize("method", TYPED, ids=str)
async def test_a_service_of_one_type_says_the_version_where_the_client_does_not(
    server: Server, method: Defined
) -> None:
    # VER-3, SRV-3
    put_bytes(server.store, as_v3(method.type_url), "x", BODY)
    async with Stream(server.address, method.path) as stream:
        assert urls(await stream.ask("", ["x"])) == {method.type_url}


@pytest.mark.parametrize("method", TYPED, ids=str)
async def test_a_service_of_one_type_takes_no_other(server: Server, method: Defined) -> None:
    # SRV-3
    async with Stream(server.address, method.path) as stream:
        await stream.send(type_url="type.googleapis.com/nobody.has.This")
        assert (await stream.status())[0] is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", FETCHES, ids=str)
async def test_a_fetch_of_v2_is_answered_in_v2(server: Server, method: Defined) -> None:
    # VER-1, VER-2, VER-3
    request = discovery_pb2.DiscoveryRequest(resource_names=["x"]).SerializeToString()
    empty = discovery_pb2.DiscoveryResponse.FromString(await unary(server.address, method.path, request))
    assert (empty.type_url, list(empty.resources)) == (method.type_url, [])
    put_bytes(server.store, as_v3(method.type_url), "x", BODY)
    answer = discovery_pb2.DiscoveryResponse.FromString(await unary(server.address, method.path, request))
    assert urls(answer) == {method.type_url}


@each_form
async def test_either_version_of_a_type_is_served_on_either_path(server: Server, old: str, new: str) -> None:
    # VER-3
    put(server.store, cluster("a", "1"))
    for path in (old, new):
        for url in (OLD, CLUSTER):
            async with Stream(server.address, path) as stream:
                assert urls(await stream.ask(url, ["a"])) == {url}


@each_form
async def test_a_type_without_a_twin_has_one_name_on_both(server: Server, old: str, new: str) -> None:
    # VER-3, VER-4
    put_bytes(server.store, EXTENSION_CONFIG, "x", BODY)
    for path in (old, new):
        async with Stream(server.address, path) as stream:
            assert urls(await stream.ask(EXTENSION_CONFIG, ["x"])) == {EXTENSION_CONFIG}


@each_form
async def test_types_on_one_stream_have_each_their_version(server: Server, old: str, new: str) -> None:
    # VER-3
    put(server.store, cluster("a", "1"))
    put_bytes(server.store, ENDPOINT, "a", BODY)
    async with Stream(server.address, old) as stream:
        assert urls(await stream.ask(OLD, ["a"])) == {OLD}
        assert urls(await stream.ask(ENDPOINT, ["a"])) == {ENDPOINT}
        put(server.store, cluster("a", "2"))
        assert urls(await stream.read()) == {OLD}


@each_form
async def test_types_nested_in_contents_are_converted(server: Server, old: str, new: str) -> None:
    # VER-2, VER-4
    made = Listener(name="svc")
    made.api_listener.api_listener.Pack(HttpConnectionManager(stat_prefix="x", route_config={"name": "r"}))
    put(server.store, made)
    manager = {
        old: "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
        new: HttpConnectionManager.DESCRIPTOR.full_name,
    }
    for path, url in ((old, as_v2(LISTENER)), (new, LISTENER), (old, as_v2(LISTENER))):
        async with Stream(server.address, path) as stream:
            (packed,) = contents(await stream.ask(url, ["svc"]))
        inner = Listener.FromString(packed.value).api_listener.api_listener
        assert inner.type_url.rpartition("/")[2] == manager[path]
        assert HttpConnectionManager.FromString(inner.value).stat_prefix == "x"


async def test_a_client_of_v2_reads_it_with_the_classes_of_v2(server: Server) -> None:
    # VER-2
    put(server.store, cluster("a", "1"))
    async with Stream(server.address, V2_SOTW) as stream:
        request = discovery_pb2.DiscoveryRequest(type_url=OLD, resource_names=["a"])
        request.node.id, request.node.build_version = "me", "old 1.0"
        await stream.send_bytes(request.SerializeToString())
        answer = discovery_pb2.DiscoveryResponse.FromString(await stream.read_bytes())
    made = cluster_pb2.Cluster()
    assert answer.resources[0].Unpack(made)
    assert (made.name, made.alt_stat_name) == ("a", "1")


async def test_locators_are_understood_on_v2_and_answered_in_a_wrapper_of_v2(server: Server) -> None:
    # VER-13
    with server.store.transaction() as tx:
        tx.put(cluster("a", "prod"), when="env=prod")
        tx.put(cluster("a", "test"), when="env=test")
    async with Stream(server.address, V2_SOTW) as stream:
        await stream.send(type_url=OLD, resource_locators=[locator("a", {"env": "test"})])
        answer = await stream.read()
    (wrapper,) = answer.resources
    assert (answer.type_url, wrapper.type_url) == (OLD, as_v2(RESOURCE))
    resource = pb.Resource.FromString(wrapper.value)
    assert (resource.resource_name.name, resource.resource.type_url) == ("a", OLD)
    assert tag_of(resource.resource.value) == "test"


@each_form
async def test_the_nodes_metadata_chooses_the_variant_on_v2(server: Server, old: str, new: str) -> None:
    # VER-14
    with server.store.transaction() as tx:
        tx.put(cluster("a", "prod"), when="env=prod")
        tx.put(cluster("a", "test"), when="env=test")
    async with Stream(server.address, old) as stream:
        answer = await stream.ask(OLD, ["a"], node={"id": "me", "metadata": {"env": "test"}})
    assert [tag_of(each.value) for each in contents(answer)] == ["test"]


@pytest.mark.parametrize("typed", [False, True], ids=["aggregated", "typed"])
async def test_a_ttl_is_not_sent_on_v2(server: Server, typed: bool) -> None:
    # TTL-1, VER-2
    with server.store.transaction() as tx:
        tx.put(cluster("a", "1"), ttl=60)
    paths = {
        "v2": "/envoy.api.v2.ClusterDiscoveryService/DeltaClusters" if typed else V2_DELTA,
        "v3": "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters" if typed else DELTA,
    }
    told = {}
    for version, path in paths.items():
        url = "" if typed else {"v2": OLD, "v3": CLUSTER}[version]
        async with Stream(server.address, path) as stream:
            (resource,) = (await stream.ask(url, ["a"])).resources
            told[version] = resource.HasField("ttl"), [session.ttl.is_read for session in sessions(server)]
        await until(lambda: not server.hub.connected())
    assert told == {"v2": (False, [False]), "v3": (True, [True])}


# -- one store, both versions


@each_form
async def test_one_change_reaches_clients_of_both_versions_in_one_push(server: Server, old: str, new: str) -> None:
    # VER-15
    put(server.store, cluster("a", "1"))
    async with Stream(server.address, old) as first, Stream(server.address, new) as second:
        for stream, url in ((first, OLD), (second, CLUSTER)):
            await stream.ack(await stream.ask(url, ["a"]), **({} if "Delta" in new else {"resource_names": ["a"]}))
        await until(lambda: all(session.progress.acked for session in sessions(server)))
        wakes: list[int] = []
        server.hub.readers.append(
            lambda facts: wakes.append(len([fact for fact in each_of(facts) if type(fact) is Sent]))
        )
        put(server.store, cluster("a", "2"))
        answers = [await first.read(), await second.read()]
        assert [urls(answer) for answer in answers] == [{OLD}, {CLUSTER}]
        assert [[tag_of(each.value) for each in contents(answer)] for answer in answers] == [["2"], ["2"]]
        await until(lambda: sum(wakes) == 2)
        put(server.store, cluster("b", "1"))  # neither asked for it
        put(server.store, cluster("a", "3"))
        assert [tag_of(contents(await stream.read())[0].value) for stream in (first, second)] == ["3", "3"]


@each_form
async def test_a_version_is_the_same_in_sotw_and_delta(server: Server, old: str, new: str) -> None:
    # VER-15, DLT-5: a version says what is in it, not in which words
    put(server.store, cluster("a", "1"))
    answers = []
    for path, url in ((old, OLD), (new, CLUSTER)):
        async with Stream(server.address, path) as stream:
            answers.append(await stream.ask(url, ["a"]))
    delta = "Delta" in new
    assert len({answer.resources[0].version if delta else answer.version_info for answer in answers}) == 1


# -- the client of this library


@contextmanager
def facts_of(server: Server, kind: type) -> Iterator[list[Any]]:
    found: list[Any] = []

    def read(facts: Any) -> None:
        found.extend(fact for fact in facts if isinstance(fact, kind))

    server.hub.readers.append(read)
    yield found
    server.hub.readers.remove(read)


async def heard(watched: Any) -> tuple[str, str]:
    update = await watched.next()
    if update.resource is not None:
        return update.name, update.resource.alt_stat_name
    return update.name, (update.error or update.ambient_error).status


@both
async def test_clients_of_both_versions_see_the_same(server: Server, store: Store, delta: bool) -> None:
    # VER-5, VER-6, VER-15
    put(store, cluster("a", "1"))
    async with (
        xp.Client(boot(server.address), delta=delta, transport="v2") as old,
        xp.Client(boot(server.address), delta=delta, transport="v3") as new,
    ):
        watches = [follow(client, CLUSTER) for client in (old, new)]
        seen: list[list[tuple[str, str]]] = [[], []]

        async def both_see(*expected: tuple[str, str]) -> None:
            for watch, known in zip(watches, seen, strict=True):
                known += [await heard(watch) for _ in expected]
            assert seen[0][-len(expected) :] == seen[1][-len(expected) :] == [*expected]

        await both_see(("a", "1"))
        assert {each.method for each in server.hub.connected()} == {*PATHS["delta" if delta else "sotw"]}
        put(store, cluster("a", "2"))
        await both_see(("a", "2"))
        put(store, cluster("b", "1"))
        await both_see(("b", "1"))
        with store.transaction() as tx:
            tx.delete(CLUSTER, "b")
        await both_see(("b", "NOT_FOUND"))
        for watch in watches:
            await watch.close()


@both
async def test_a_v2_client_nacks_a_bad_resource_and_accepts_its_correction(
    server: Server, store: Store, delta: bool
) -> None:
    # VER-5, VER-15, NAK-1, NAK-3
    put(store, cluster("a", "1"))
    async with xp.Client(boot(server.address), delta=delta, transport="v2") as client:
        watched = follow(client, CLUSTER, "a")
        assert await heard(watched) == ("a", "1")
        with facts_of(server, Nacked) as nacks:
            put_bytes(store, CLUSTER, "a", b"\n\x01a\x10\xff")
            await until(lambda: nacks)
        assert {fact.type_url for fact in nacks} == {CLUSTER}
        put(store, cluster("a", "2"))
        if delta:  # a name that can't be read is known in delta only
            assert await heard(watched) == ("a", "INVALID_ARGUMENT")
        assert await heard(watched) == ("a", "2")
        await watched.close()
