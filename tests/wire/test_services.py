"""The gRPC methods, and their answers to requests for other methods."""

from __future__ import annotations

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any

from tests.wire.api import FETCHES, METHODS, STREAMS, TYPED, Defined
from tests.wire.rig import DELTA, SOTW, Stream, cluster, names_in, put, put_bytes, unary
from xdsprism import CLUSTER, ENDPOINT, LISTENER, SECRET, Server, Settings, Store
from xdsprism.server.methods import discovery_methods

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

UNKNOWN = "type.googleapis.com/nobody.has.This"
BODY = b"\n\x01x"  # field 1, which is the name in nearly every type


# -- which methods there are


async def test_every_discovery_method_of_the_api_is_served_and_no_other(server: Server) -> None:
    # SRV-1, SRV-2
    assert sorted(method.path for method in discovery_methods(server.hub)) == sorted(method.path for method in METHODS)


def test_the_api_defines_what_the_requirements_name() -> None:
    """So that the comparison above can't be one of nothing with nothing."""
    # SRV-2
    found = {str(method) for method in METHODS}
    nouns = ("Listeners", "Routes", "ScopedRoutes", "Clusters", "Endpoints", "Secrets", "Runtime", "ExtensionConfigs")
    assert found >= {verb + noun for verb in ("Stream", "Delta", "Fetch") for noun in nouns}
    assert found >= {"StreamAggregatedResources", "DeltaAggregatedResources", "DeltaVirtualHosts"}
    assert "StreamVirtualHosts" not in found


@pytest.mark.parametrize("method", STREAMS, ids=str)
async def test_a_stream_answers_a_first_request_with_its_type(server: Server, method: Defined) -> None:
    # SRV-1, SRV-2, SRV-18, VHD-1
    type_url = method.type_url or SECRET
    put_bytes(server.store, type_url, "x", BODY)
    async with Stream(server.address, method.path) as stream:
        answer = await stream.ask(type_url, ["x"], node={"id": "me"})
    assert answer.type_url == type_url
    assert answer.nonce
    (resource,) = answer.resources
    assert (resource.resource if method.delta else resource) == Any(type_url=type_url, value=BODY)


@pytest.mark.parametrize("method", TYPED, ids=str)
async def test_on_a_service_of_one_type_an_empty_type_url_means_that_type(server: Server, method: Defined) -> None:
    # SRV-3
    put_bytes(server.store, method.type_url, "x", BODY)
    put_bytes(server.store, method.type_url, "y", BODY)
    async with Stream(server.address, method.path) as stream:
        answer = await stream.ask("", ["x"])
        assert (answer.type_url, len(answer.resources)) == (method.type_url, 1)
        again = await stream.ask(method.type_url, ["x", "y"])  # and it may be said at any time
        assert again.type_url == method.type_url


@pytest.mark.parametrize("method", TYPED, ids=str)
async def test_on_a_service_of_one_type_another_type_ends_the_stream(server: Server, method: Defined) -> None:
    # SRV-3
    async with Stream(server.address, method.path) as stream:
        await stream.send(type_url=UNKNOWN)
        code, details = await stream.status()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert method.type_url in details
    assert UNKNOWN in details


@pytest.mark.parametrize("path", [DELTA, SOTW])
async def test_on_an_aggregated_stream_an_empty_type_url_ends_the_stream(server: Server, path: str) -> None:
    # SRV-4
    async with Stream(server.address, path) as stream:
        await stream.send(type_url="", node={"id": "me"})
        code, details = await stream.status()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "type_url is empty" in details


@pytest.mark.parametrize(
    "path",
    [
        "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
        "/nobody.has.This/Method",
        "/",
    ],
)
async def test_a_method_that_does_not_exist_is_unimplemented(server: Server, path: str) -> None:
    # SRV-2
    async with Stream(server.address, path, delta=False) as stream:
        code, _ = await stream.status()
    assert code is grpc.StatusCode.UNIMPLEMENTED


# -- unary fetches


@pytest.mark.parametrize("method", FETCHES, ids=str)
async def test_a_fetch_is_answered_once_with_the_current_state(server: Server, method: Defined) -> None:
    # SRV-2, SRV-3
    put_bytes(server.store, method.type_url, "x", BODY)
    request = pb.DiscoveryRequest(resource_names=["x"])
    answer = pb.DiscoveryResponse.FromString(await unary(server.address, method.path, request.SerializeToString()))
    assert answer.type_url == method.type_url
    assert [resource.value for resource in answer.resources] == [BODY]
    assert answer.version_info
    assert server.hub.connected() == []


@pytest.mark.parametrize("method", FETCHES, ids=str)
async def test_a_fetch_of_an_absent_name_is_empty_and_of_another_type_is_refused(
    server: Server, method: Defined
) -> None:
    # SRV-3
    request = pb.DiscoveryRequest(resource_names=["x"])
    answer = pb.DiscoveryResponse.FromString(await unary(server.address, method.path, request.SerializeToString()))
    assert (answer.type_url, list(answer.resources)) == (method.type_url, [])
    request = pb.DiscoveryRequest(type_url=UNKNOWN)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(server.address, method.path, request.SerializeToString())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def fetch_clusters(server: Server, **fields: object) -> pb.DiscoveryResponse:
    path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
    return pb.DiscoveryResponse.FromString(
        await unary(server.address, path, pb.DiscoveryRequest(**fields).SerializeToString())
    )


async def test_a_fetch_is_whole_whatever_version_the_client_has(server: Server) -> None:
    """A stream may skip what the client has; an empty answer to a fetch would read as if all were gone."""
    put(server.store, cluster("a"), cluster("b"))
    first = await fetch_clusters(server)
    again = await fetch_clusters(server, version_info=first.version_info)
    assert len(first.resources) == 2
    assert (again.version_info, len(again.resources)) == (first.version_info, 2)


async def test_an_empty_fetch_does_not_repeat_the_version_of_what_is_gone(server: Server) -> None:
    # SRV-11
    path = "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets"
    put_bytes(server.store, SECRET, "x", BODY)
    request = pb.DiscoveryRequest(resource_names=["x"])
    full = pb.DiscoveryResponse.FromString(await unary(server.address, path, request.SerializeToString()))
    with server.store.transaction() as tx:
        tx.delete(SECRET, "x")
    request.version_info = full.version_info
    empty = pb.DiscoveryResponse.FromString(await unary(server.address, path, request.SerializeToString()))
    assert not empty.resources
    assert empty.version_info != full.version_info


async def test_a_fetch_tells_its_variant_by_the_node(server: Server) -> None:
    # SRV-6
    with server.store.transaction() as tx:
        tx.put(cluster("shop", "prod"), when="env=prod")
        tx.put(cluster("shop", "test"), when="env=test")
    for env in ("prod", "test"):
        answer = await fetch_clusters(server, node={"id": "me", "metadata": {"env": env}})
        assert [item.value for item in answer.resources] == [cluster("shop", env).SerializeToString()]


async def test_a_fetch_can_not_hold_a_name_in_both_forms(server: Server) -> None:
    # DYN-15
    path = "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets"
    put_bytes(server.store, SECRET, "x", BODY)
    both = pb.DiscoveryRequest(resource_names=["x"], resource_locators=[pb.ResourceLocator(name="x")])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(server.address, path, both.SerializeToString())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "use a stream" in (caught.value.details() or "")


async def test_a_unary_call_without_a_message_is_refused(server: Server) -> None:
    path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
    async with Stream(server.address, path, delta=False) as stream:
        await stream.half_close()
        code, _ = await stream.status()
    assert code is grpc.StatusCode.INVALID_ARGUMENT


# -- types that nobody knows


async def test_an_unknown_type_on_delta_ads_is_answered_with_removals_and_disturbs_no_other(server: Server) -> None:
    # SRV-5
    put(server.store, cluster("a"))
    async with Stream(server.address, DELTA) as stream:
        answer = await stream.ask(UNKNOWN, ["p", "q"], node={"id": "me"})
        assert (answer.type_url, list(answer.removed_resources)) == (UNKNOWN, ["p", "q"])
        assert names_in(await stream.ask(CLUSTER, ["a"])) == ["a"]


async def test_an_unknown_type_on_sotw_ads_is_met_with_silence_and_disturbs_no_other(server: Server) -> None:
    # SRV-5
    put(server.store, cluster("a"))
    async with Stream(server.address, SOTW) as stream:
        await stream.send(type_url=UNKNOWN, resource_names=["p"], node={"id": "me"})
        answer = await stream.ask(CLUSTER, ["a"])  # answers come in order, so that there was none to the first
        assert (answer.type_url, len(answer.resources)) == (CLUSTER, 1)


@pytest.mark.parametrize("path", [DELTA, SOTW])
async def test_a_type_unknown_to_protobuf_is_served_byte_by_byte(server: Server, path: str) -> None:
    # SRV-18
    odd = Any(type_url="type.googleapis.com/acme.v9.Widget", value=bytes(range(256)))
    with server.store.transaction() as tx:
        tx.put(odd, name="w")
    async with Stream(server.address, path) as stream:
        answer = await stream.ask(odd.type_url, ["w"])
        (resource,) = answer.resources
        assert (resource.resource if path == DELTA else resource) == odd
        with server.store.transaction() as tx:
            tx.put(Any(type_url=odd.type_url, value=b""), name="w")
        (resource,) = (await stream.read()).resources
        assert (resource.resource if path == DELTA else resource) == Any(type_url=odd.type_url)


# -- what every response says


@pytest.mark.parametrize("path", [DELTA, SOTW])
async def test_responses_name_the_instance(store: Store, path: str) -> None:
    # SRV-20
    put(store, cluster("a"))
    settings = Settings(identifier="replica-7")
    async with (
        Server(store, "127.0.0.1:0", settings=settings) as server,
        Stream(server.address, path) as stream,
    ):
        answer = await stream.ask(CLUSTER, ["a"])
    assert answer.control_plane.identifier == "replica-7"


@pytest.mark.parametrize("path", [DELTA, SOTW])
async def test_by_default_responses_name_the_program(server: Server, path: str) -> None:
    # SRV-20
    async with Stream(server.address, path) as stream:
        answer = await stream.ask(LISTENER, [])
    assert answer.control_plane.identifier == "xdsprism"


async def test_two_streams_of_one_node_are_independent(server: Server) -> None:
    # SRV-22
    put(server.store, cluster("a", "1"), cluster("b", "1"))
    node = {"id": "twin"}
    async with Stream(server.address) as one, Stream(server.address) as two:
        answer = await one.ask(CLUSTER, ["a"], node=node)
        assert names_in(await two.ask(CLUSTER, ["b"], node=node)) == ["b"]
        await one.ack(answer, error_detail={"code": 3, "message": "no"})
        put(server.store, cluster("a", "2"), cluster("b", "2"))
        assert names_in(await one.read()) == ["a"]
        assert names_in(await two.read()) == ["b"]
        assert await one.is_quiet(ENDPOINT, "nothing")
        assert await two.is_quiet(ENDPOINT, "nothing")
