"""Subscriptions past a limit, as they are on the wire: in every form of request, and in every form of stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support import insides, web
from tests.wire.rig import DELTA, SOTW, Stream, cluster, put, tag_of, unary, until
from xdsprism import CLUSTER, VIRTUAL_HOST, Limits, Server, Settings, Store

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

SERVICE = "/envoy.service.cluster.v3.ClusterDiscoveryService/"
WAYS = pytest.mark.parametrize(
    "path",
    [DELTA, SOTW, SERVICE + "DeltaClusters", SERVICE + "StreamClusters"],
    ids=["delta ads", "sotw ads", "delta", "sotw"],
)
LONG = "x" * 5000
FREE = "127.0.0.1:0"


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Server]:
    put(store, cluster("a", "1"))
    settings = Settings(limits=Limits(types=2), poll_hold=60.0)
    async with Server(store, listen=FREE, rest=FREE, settings=settings) as running:
        yield running


def large(name: str = "b") -> pb.ResourceLocator:
    return pb.ResourceLocator(name=name, dynamic_parameters={f"k{number}": "v" for number in range(1025)})


def bodies(response: Any) -> list[str]:
    return [tag_of(getattr(resource, "resource", resource).value) for resource in response.resources]


def errors(response: Any) -> dict[str, tuple[int, str]]:
    found = response.resource_errors
    return {each.resource_name.name: (each.error_detail.code, each.error_detail.message) for each in found}


@WAYS
async def test_a_long_name_and_a_large_locator_are_answered_and_the_stream_goes_on(server: Server, path: str) -> None:
    # DYN-46
    async with Stream(server.address, path) as stream:
        if "Delta" in path:
            fields: dict[str, Any] = {
                "resource_names_subscribe": ["a", LONG],
                "resource_locators_subscribe": [large(), pb.ResourceLocator(name=LONG)],
            }
        else:
            fields = {"resource_names": ["a", LONG], "resource_locators": [large()]}
        await stream.send(type_url=CLUSTER, **fields)
        answer = await stream.read()
        assert bodies(answer) == ["1"]
        if "Delta" in path:
            # DYN-15: a name in both forms takes two responses
            rest = [await stream.read() for _ in range(3)]
            assert [[*each.removed_resources] for each in rest] == [[LONG], [], []]
            assert [[gone.name for gone in each.removed_resource_names] for each in rest] == [[], ["b", LONG], []]
            told = errors(rest[-1])
        else:
            told = errors(answer)
        assert told.keys() == {"b", LONG}
        assert told["b"] == (3, "the locator has 1025 parameters; at most 1024 are accepted")
        assert told[LONG] == (3, "the name has 5000 bytes; at most 4096 are accepted")
        again = {} if "Delta" in path else fields
        await stream.ack(answer, **again)
        put(server.store, cluster("a", "2"))
        assert bodies(await stream.read()) == ["2"]  # and nothing in between


async def test_a_name_as_large_as_a_message_may_be_is_answered(server: Server) -> None:
    # VHD-26
    put(server.store, VirtualHost(name="rc/x", domains=["x.test"]))
    name = "rc/" + "é" * 15_000_000
    async with Stream(server.address) as stream:
        answer = await stream.ask(VIRTUAL_HOST, [name])
        (resource,) = answer.resources
        assert (resource.name, [*resource.aliases], resource.HasField("resource")) == (name, [name], False)
        answer = await stream.ask(VIRTUAL_HOST, ["rc/x.test"])
        assert [resource.name for resource in answer.resources] == ["rc/x"]


@pytest.mark.parametrize("path", [DELTA, SOTW])
@pytest.mark.parametrize("type_url", ["type.googleapis.com/acme.B", "type.googleapis.com/" + "x" * 5000])
async def test_a_type_past_the_limit_is_answered_and_the_stream_goes_on(
    server: Server, path: str, type_url: str
) -> None:
    # DYN-46
    async with Stream(server.address, path) as stream:
        assert bodies(await stream.ask(CLUSTER, ["a"])) == ["1"]
        await stream.subscribe("type.googleapis.com/acme.A", ["x"])
        if path == DELTA:
            assert [*(await stream.read()).removed_resources] == ["x"]
            answer = await stream.ask(type_url, ["x"])
            assert (answer.type_url, [*answer.removed_resources]) == (type_url, ["x"])
            assert errors(answer)["x"][0] == 3
            await stream.ack(answer)
        else:
            await stream.subscribe(type_url, ["x"])
        put(server.store, cluster("a", "2"))
        assert bodies(await stream.read()) == ["2"]


@pytest.mark.parametrize("path", [SERVICE + "DeltaClusters", SERVICE + "StreamClusters"])
async def test_another_type_than_that_of_the_service_still_ends_the_stream_and_is_not_quoted_in_full(
    server: Server, path: str
) -> None:
    # SRV-3
    async with Stream(server.address, path) as stream:
        await stream.send(type_url="x" * 100_000)
        code, details = await stream.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert len(details) < 1000


async def test_fetch_answers_valid_names_and_reports_refused_ones(server: Server) -> None:
    # DYN-46
    request = pb.DiscoveryRequest(type_url=CLUSTER, resource_names=["a", LONG], resource_locators=[large()])
    message = await unary(server.address, SERVICE + "FetchClusters", request.SerializeToString())
    answer = pb.DiscoveryResponse.FromString(message)
    assert bodies(answer) == ["1"]
    assert errors(answer).keys() == {"b", LONG}


async def test_rest_answers_valid_names_and_waits_for_their_changes(server: Server) -> None:
    # DYN-46, RST-2
    locator = {"name": "b", "dynamic_parameters": {f"k{number}": "v" for number in range(1025)}}
    fields: dict[str, Any] = {"node": {"id": "me"}, "resource_names": ["a", LONG], "resource_locators": [locator]}

    def post() -> Any:
        answer = web.post(server.rest_address, "/v3/discovery:clusters", json.dumps(fields).encode(), None)
        assert answer.status == 200
        return json.loads(answer.body)

    said = await asyncio.to_thread(post)
    assert [each["alt_stat_name"] for each in said["resources"]] == ["1"]
    assert {each["resource_name"]["name"] for each in said["resource_errors"]} == {"b", LONG}
    fields["version_info"] = said["version_info"]
    waiting = asyncio.create_task(asyncio.to_thread(post))
    await until(lambda: any(call.is_held for call in insides.calls(server.hub).values()))
    put(server.store, cluster("a", "2"))
    assert [each["alt_stat_name"] for each in (await waiting)["resources"]] == ["2"]
