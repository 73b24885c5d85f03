"""Versions and types that do not match or do not exist: an error in the version of the request.

Whatever was wrong, the other streams of the connection go on.
"""

from __future__ import annotations

import asyncio
import json

import grpc
import grpc.aio
import pytest

from tests.support import web
from tests.wire.api import METHODS, V2_METHODS, Defined
from tests.wire.rig import SOTW, Stream, cluster, put, unary
from xdsprism import CLUSTER, LISTENER, Server, Store
from xdsprism.core.model.type_versions import as_v2
from xdsprism.core.model.types import PREFIX

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

OLD = as_v2(CLUSTER)
V2_ADS = "/envoy.service.discovery.v2.AggregatedDiscoveryService/"
EACH_ADS = pytest.mark.parametrize("ads", [V2_ADS, SOTW.rpartition("/")[0] + "/"], ids=["v2", "v3"])
UNKNOWN = PREFIX + "nobody.has.This"


def _other(type_url: str) -> str:
    """A type of the same version that is not this one."""
    old = ".v2." in type_url
    listener = as_v2(LISTENER) if old else LISTENER
    return listener if type_url != listener else (OLD if old else CLUSTER)


def _refusal(own: str, asked: str) -> str:
    return f"this service serves {own}, not {asked}: use its own service or ADS"


TYPED = [method for method in (*V2_METHODS, *METHODS) if method.streams and method.type_url]
FETCHES = [method for method in (*V2_METHODS, *METHODS) if not method.streams]


@pytest.mark.parametrize("method", TYPED, ids=lambda method: method.path)
async def test_a_service_of_one_type_names_its_type_in_the_clients_version(server: Server, method: Defined) -> None:
    # SRV-3, VER-2
    for asked in (_other(method.type_url), UNKNOWN):
        async with Stream(server.address, method.path) as stream:
            await stream.send(type_url=asked)
            expected = grpc.StatusCode.INVALID_ARGUMENT, _refusal(method.type_url, asked)
            assert await stream.status() == expected


@pytest.mark.parametrize("method", FETCHES, ids=lambda method: method.path)
async def test_so_does_a_fetch(server: Server, method: Defined) -> None:
    # SRV-3, VER-2
    asked = _other(method.type_url)
    request = b"\x22" + bytes([len(asked)]) + asked.encode()  # field 4, type_url
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(server.address, method.path, request)
    assert caught.value.details() == _refusal(method.type_url, asked)


@pytest.mark.parametrize(("version", "own"), [("v2", OLD), ("v3", CLUSTER)])
async def test_so_does_rest(store: Store, version: str, own: str) -> None:
    # SRV-3, RST-1, VER-2
    async with Server(store, "127.0.0.1:0", rest="127.0.0.1:0") as server:
        body = json.dumps({"type_url": _other(own)}).encode()
        answer = await asyncio.to_thread(web.post, server.rest_address, f"/{version}/discovery:clusters", body)
    assert (answer.status, json.loads(answer.body)) == (400, {"error": _refusal(own, _other(own))})


@pytest.mark.parametrize(
    ("path", "asked", "own"),
    [
        ("/envoy.api.v2.ClusterDiscoveryService/StreamClusters", LISTENER, CLUSTER),
        ("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters", as_v2(LISTENER), OLD),
    ],
    ids=["v3 on v2", "v2 on v3"],
)
async def test_a_response_has_the_version_of_the_request(server: Server, path: str, asked: str, own: str) -> None:
    # SRV-3, VER-3
    async with Stream(server.address, path) as stream:
        await stream.send(type_url=asked)
        assert (await stream.status())[1] == _refusal(own, asked)


@pytest.mark.parametrize(
    "path",
    [
        "/envoy.service.discovery.v4.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.service.discovery.AggregatedDiscoveryService/DeltaAggregatedResources",
        "/envoy.api.v2.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.api.v3.ClusterDiscoveryService/StreamClusters",
        "/envoy.service.cluster.v2.ClusterDiscoveryService/FetchClusters",
        "/envoy.service.discovery.v2.VirtualHostDiscoveryService/DeltaVirtualHosts",
        "/envoy.service.load_stats.v1.LoadReportingService/StreamLoadStats",
    ],
)
async def test_a_method_of_a_version_that_there_is_not_is_named_and_the_connection_goes_on(
    server: Server, path: str
) -> None:
    # VER-1, OPS-10
    put(server.store, cluster("a", "1"))
    async with Stream(server.address, SOTW) as good:
        await good.ack(await good.ask(CLUSTER, ["a"]), resource_names=["a"])
        async with good.beside(path) as bad:
            assert await bad.status() == (grpc.StatusCode.UNIMPLEMENTED, f"no method {path}")
        put(server.store, cluster("a", "2"))
        assert (await good.read()).type_url == CLUSTER


async def test_a_method_with_an_endless_name_is_refused_in_few_words(server: Server) -> None:
    # OPS-10
    async with Stream(server.address, "/" + "envoy.v2." * 400 + "/x") as stream:
        code, said = await stream.status()
        assert (code, len(said) < 2_000) == (grpc.StatusCode.UNIMPLEMENTED, True)


@EACH_ADS
@pytest.mark.parametrize(
    "name", ["envoy.api.v3.Cluster", "envoy.config.cluster.v2.Cluster", "envoy.api.v2.Clusters", "envoy.api.v2.", ""]
)
async def test_a_type_of_a_version_that_there_is_not_is_a_type_of_which_there_is_nothing(
    server: Server, ads: str, name: str
) -> None:
    # SRV-5, VER-3
    put(server.store, cluster("a", "1"))
    async with Stream(server.address, ads + "DeltaAggregatedResources") as stream:
        answer = await stream.ask(PREFIX + name, ["a"])
        assert (answer.type_url, list(answer.removed_resources)) == (PREFIX + name, ["a"])
        url = OLD if ads == V2_ADS else CLUSTER
        assert [each.name for each in (await stream.ask(url, ["a"])).resources] == ["a"]


@EACH_ADS
@pytest.mark.parametrize("form", ["Stream", "Delta"])
async def test_no_type_at_all_ends_that_stream_alone(server: Server, ads: str, form: str) -> None:
    # SRV-4, OPS-10
    put(server.store, cluster("a", "1"))
    async with Stream(server.address, SOTW) as good, good.beside(f"{ads}{form}AggregatedResources") as bad:
        await bad.send(type_url="")
        code, said = await bad.status()
        assert (code, said.partition(":")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, "type_url is empty")
        assert len((await good.ask(CLUSTER, ["a"])).resources) == 1
