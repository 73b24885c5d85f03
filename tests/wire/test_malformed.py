"""Requests of which one field is malformed, at any level, or nested without measure: the answer is for that stream."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.support.malformed import JUNK, corrupted, deep_struct
from tests.wire.rig import DELTA, SOTW, Stream, cluster, put, tag_of
from xdsprism import CLUSTER, Server
from xdsprism.core.codec.wire import join_field

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW])
LOADS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
HEALTH = "/grpc.health.v1.Health/"


def rich(path: str) -> Any:
    """A request with something in nearly every field."""
    request = pb.DeltaDiscoveryRequest() if path == DELTA else pb.DiscoveryRequest()
    request.type_url = CLUSTER
    node = request.node
    node.id, node.cluster, node.locality.zone, node.user_agent_name = "me", "us", "z", "test"
    node.metadata.update({"env": "prod", "deep": {"list": ["x", {"y": 1}]}})
    node.user_agent_build_version.version.major_number = 1
    node.user_agent_build_version.metadata.update({"a": "b"})
    node.extensions.add(name="an extension").type_urls.append("x")
    node.client_features.append("a feature")
    node.listening_addresses.add().socket_address.address = "192.0.2.1"
    node.dynamic_parameters["a"].params["b"] = "c"
    request.response_nonce = "1"
    request.error_detail.message = "no"
    request.error_detail.details.add(type_url="x", value=b"x")
    if path == SOTW:
        request.version_info = "1"
        request.resource_names.append("a")
        locators = [request.resource_locators.add(name="b")]
    else:
        request.resource_names_subscribe.append("a")
        request.resource_names_unsubscribe.append("c")
        request.initial_resource_versions["a"] = "1"
        locators = [request.resource_locators_subscribe.add(name="b"), request.resource_locators_unsubscribe.add()]
    for locator in locators:
        locator.dynamic_parameters["env"] = "prod"
    return request


@PATHS
async def test_a_malformed_field_anywhere_in_a_request_is_answered_to_that_stream(
    server: Server, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Either the stream ends with the reason, or it goes on: then the field was skipped, or refused by itself."""
    # DYN-46, VHD-26
    put(server.store, cluster("watched", "1"))
    ended = 0
    gone_on: list[str] = []
    async with Stream(server.address, path) as bystander:
        assert tags(await bystander.ask(CLUSTER, ["watched"])) == ["1"]
        for label, message in corrupted(rich(path)):
            async with bystander.beside() as stream:
                await stream.send_bytes(message)
                with suppress(grpc.aio.AioRpcError):  # it may be over
                    await stream.half_close()
                code, details = await stream.outcome()
                if code is not grpc.StatusCode.OK:
                    assert code is grpc.StatusCode.INVALID_ARGUMENT, f"{label}: {code} {details}"
                    assert "not a discovery request" in details, label
                    ended += 1
                else:
                    gone_on.append(label)
        put(server.store, cluster("watched", "2"))
        assert tags(await bystander.read()) == ["2"]
    assert ended > 50
    ask = "_subscribe" if path == DELTA else ""
    names = [f"resource_names{ask}", f"resource_locators{ask}.name", f"resource_locators{ask}.dynamic_parameters.value"]
    assert {f"{each}: not UTF-8" for each in (*names, "error_detail.message")} <= {*gone_on}
    assert not [record for record in caplog.records if record.exc_info]


NESTED = {
    "metadata": join_field(3, deep_struct(3_000)),
    "much metadata": join_field(3, deep_struct(20_000)),
    "the metadata of an extension": join_field(9, join_field(3, deep_struct(3_000))),
    "groups": JUNK["groups 5,000 deep"],
    "groups without end": JUNK["groups without end"],
}


@PATHS
async def test_a_node_that_is_nested_without_measure_ends_its_stream_only(server: Server, path: str) -> None:
    """Also where a long message is trimmed before it is parsed: then metadata that can be no params is left out."""
    put(server.store, cluster("watched", "1"))
    ask = rich(path)
    ask.ClearField("node")
    async with Stream(server.address, path) as bystander:
        await bystander.ask(CLUSTER, ["watched"])
        for size, what in product((0, 200_000), NESTED):
            async with bystander.beside() as stream:
                node = NESTED[what] + join_field(100, b"x" * size)
                await stream.send_bytes(join_field(1 if path == DELTA else 2, node) + ask.SerializeToString())
                if what == "much metadata" or (size and "extension" in what):
                    await stream.subscribe(CLUSTER, ["watched"])
                    while "1" not in tags(await stream.read()):
                        pass
                    continue
                code, details = await stream.outcome()
                assert code is grpc.StatusCode.INVALID_ARGUMENT, what
                assert "not a discovery request" in details or "not a protobuf message" in details
        put(server.store, cluster("watched", "2"))
        assert tags(await bystander.read()) == ["2"]


async def test_malformed_load_reports_end_their_stream_and_no_other(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    good = LoadStatsRequest(node={"id": "me", "metadata": {"a": {"b": "c"}}})
    stats = good.cluster_stats.add(cluster_name="c", cluster_service_name="s", total_dropped_requests=1)
    stats.load_report_interval.seconds = 10
    stats.dropped_requests.add(category="x", dropped_count=1)
    place = stats.upstream_locality_stats.add(total_issued_requests=1)
    place.locality.zone = "z"
    place.load_metric_stats.add(metric_name="m", total_metric_value=1.0)
    place.upstream_endpoint_stats.add().address.socket_address.address = "192.0.2.1"
    ended = 0
    async with Stream(server.address, LOADS) as bystander:
        await bystander.send_bytes(good.SerializeToString())
        await bystander.read_bytes()  # what it is asked for
        for label, message in corrupted(good):
            async with bystander.beside() as stream:
                await stream.send_bytes(message)
                with suppress(grpc.aio.AioRpcError):  # it may be over
                    await stream.half_close()
                code, _ = await stream.outcome()
                assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), label
                ended += code is not grpc.StatusCode.OK
        assert ended > 30
        await bystander.send_bytes(good.SerializeToString())
        await bystander.half_close()
        assert (await bystander.outcome())[0] is grpc.StatusCode.OK
    assert not [record for record in caplog.records if record.exc_info]


QUESTIONS = {
    HEALTH + "Check": health_pb2.HealthCheckRequest(service="x"),
    HEALTH + "Watch": health_pb2.HealthCheckRequest(service="x"),
    REFLECTION: reflection_pb2.ServerReflectionRequest(
        host="h", file_containing_extension={"containing_type": "x", "extension_number": 1}
    ),
}


@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_malformed_question_about_health_or_methods_is_answered_to_its_caller(
    server: Server, method: str
) -> None:
    put(server.store, cluster("watched", "1"))
    question = QUESTIONS[method]
    cases = [*JUNK.items(), *corrupted(question)]
    async with Stream(server.address) as bystander:
        await bystander.ask(CLUSTER, ["watched"])
        for label, message in cases:
            try:
                type(question).FromString(message)
            except DecodeError:
                async with bystander.beside(method) as stream:
                    await stream.send_bytes(message)
                    code, details = await stream.outcome()
                    assert code is grpc.StatusCode.INVALID_ARGUMENT, label
                    assert f"not a {question.DESCRIPTOR.full_name}" in details
        put(server.store, cluster("watched", "2"))
        assert tags(await bystander.read()) == ["2"]


def tags(answer: Any) -> list[str]:
    return [tag_of(getattr(resource, "resource", resource).value) for resource in answer.resources]
