"""gRPC health checking and reflection, asked with the official stubs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from tests.client.doors import boot
from tests.support import web
from tests.support.generic_client import pool_of
from tests.wire.api import METHODS, V2_METHODS
from tests.wire.rig import OPTIONS, PATIENCE, Stream, until
from xdsprism import Server, Store
from xdsprism.core.model.settings import Engine
from xdsprism.relay.relay import Relay

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
PATHS = [method.path for method in (*METHODS, *V2_METHODS)]
LOADS = [f"envoy.service.load_stats.{version}.LoadReportingService" for version in ("v2", "v3")]
STATUSES = "envoy.service.status.v3.ClientStatusDiscoveryService"
SERVICES = sorted({path.split("/")[1] for path in PATHS} | {*LOADS, STATUSES})


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as opened:
        yield opened


def ask(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


async def next_of(watch: Any) -> Any:
    return await asyncio.wait_for(watch.read(), PATIENCE)


# -- health


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_a_running_server_serves_each_of_its_services(channel: grpc.aio.Channel, service: str) -> None:
    answer = await health_pb2_grpc.HealthStub(channel).Check(ask(service), timeout=PATIENCE)
    assert answer.status == SERVING


async def test_the_health_of_a_service_that_is_not_here_is_not_found(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_pb2_grpc.HealthStub(channel).Check(ask("acme.Widgets"), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_list_of_healths_has_every_service(channel: grpc.aio.Channel) -> None:
    answer = await health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=PATIENCE)
    assert {name: found.status for name, found in answer.statuses.items()} == dict.fromkeys(["", *SERVICES], SERVING)


async def test_a_watch_says_that_the_server_drains_before_it_ends(store: Store) -> None:
    server = Server(store, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(ask(ADS))
        assert (await next_of(watch)).status == SERVING
        await server.stop()
        assert (await next_of(watch)).status == NOT_SERVING
        assert await next_of(watch) is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK


async def statuses(channel: grpc.aio.Channel) -> set[int]:
    """What Check, List and Watch say, of all services."""
    stub = health_pb2_grpc.HealthStub(channel)
    checked = {(await stub.Check(ask(service), timeout=PATIENCE)).status for service in ("", *SERVICES)}
    listed = (await stub.List(health_pb2.HealthListRequest(), timeout=PATIENCE)).statuses.values()
    watch = stub.Watch(ask(STATUSES))
    watched = (await next_of(watch)).status
    watch.cancel()
    return checked | {each.status for each in listed} | {watched}


async def test_a_relay_serves_once_it_has_reached_a_server(store: Store, engine: Engine) -> None:
    """Whoever waits for its health asks for nothing before, so asking for the health makes it look for a server."""
    # PRX-30
    address = f"127.0.0.1:{web.free_port()}"
    async with (
        Relay(boot(address), "127.0.0.1:0", engine=engine) as relay,
        grpc.aio.insecure_channel(relay.address, options=OPTIONS) as channel,
    ):
        watches = [health_pb2_grpc.HealthStub(channel).Watch(ask(service)) for service in ("", ADS, STATUSES)]
        assert [(await next_of(watch)).status for watch in watches] == [NOT_SERVING] * 3
        assert await statuses(channel) == {NOT_SERVING}
        async with Server(store, address):
            assert [(await next_of(watch)).status for watch in watches] == [SERVING] * 3
            assert await statuses(channel) == {SERVING}
        assert await statuses(channel) == {SERVING}  # it goes on with what it has
        await relay.stop()
        assert [(await next_of(watch)).status for watch in watches] == [NOT_SERVING] * 3


async def test_a_probe_that_waits_for_ok_passes_while_the_server_runs(store: Store, engine: Engine) -> None:
    """As grpc_health_probe does: exit status 0 for SERVING alone, and a deadline."""

    async def probe(address: str) -> int:
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            try:
                answer = await health_pb2_grpc.HealthStub(channel).Check(ask(""), timeout=5)
            except grpc.aio.AioRpcError:
                return 3
            return 0 if answer.status == SERVING else 4

    async with Server(store, "127.0.0.1:0") as server:
        assert await probe(server.address) == 0
    assert await probe(server.address) == 3
    async with Relay(boot("127.0.0.1:1"), "127.0.0.1:0", engine=engine) as relay:
        assert await probe(relay.address) == 4


async def test_a_watch_of_a_service_that_is_not_here_says_so_and_stays_open(channel: grpc.aio.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(ask("acme.Widgets"))
    assert (await next_of(watch)).status == SERVICE_UNKNOWN
    assert not watch.done()
    watch.cancel()


async def test_a_watch_that_is_cancelled_is_forgotten(server: Server, channel: grpc.aio.Channel) -> None:
    # OPS-7
    watches = [health_pb2_grpc.HealthStub(channel).Watch(ask("")) for _ in range(20)]
    for watch in watches:
        await next_of(watch)
    assert len(server._health._watches) == 20  # noqa: SLF001 # a watch that is left behind costs memory, and says nothing
    for watch in watches:
        watch.cancel()
    await until(lambda: not server._health._watches)  # noqa: SLF001 # as above


async def test_a_request_that_is_none_ends_a_health_call(server: Server) -> None:
    for method in ("Check", "Watch", "List"):
        async with Stream(server.address, f"/grpc.health.v1.Health/{method}") as stream:
            await stream.send_bytes(b"\xff\xff")
            assert (await stream.status())[0] is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["Check", "Watch", "List"])
async def test_a_health_call_without_a_request_ends(server: Server, method: str) -> None:
    async with Stream(server.address, f"/grpc.health.v1.Health/{method}") as stream:
        await stream.half_close()
        assert (await stream.status())[0] is grpc.StatusCode.INVALID_ARGUMENT


# -- reflection


class Reflection:
    """The official client; the messages of v1 are those of v1alpha under another name."""

    def __init__(self, channel: grpc.aio.Channel, version: str) -> None:
        self._call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )()

    async def ask(self, **question: Any) -> Any:
        await self._call.write(reflection_pb2.ServerReflectionRequest(**question))
        answer = await asyncio.wait_for(self._call.read(), PATIENCE)
        assert answer.original_request == reflection_pb2.ServerReflectionRequest(**question)
        return answer

    async def services(self) -> list[str]:
        answer = await self.ask(list_services="")
        return [service.name for service in answer.list_services_response.service]

    async def end(self) -> grpc.StatusCode:
        await self._call.done_writing()
        return await asyncio.wait_for(self._call.code(), PATIENCE)


@pytest.fixture(params=["v1", "v1alpha"])
async def reflection(channel: grpc.aio.Channel, request: pytest.FixtureRequest) -> Reflection:
    return Reflection(channel, request.param)


async def test_reflection_lists_every_service(reflection: Reflection) -> None:
    listed = await reflection.services()
    assert set(listed) >= {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert await reflection.end() is grpc.StatusCode.OK


async def test_reflection_describes_every_service_that_it_lists(reflection: Reflection) -> None:
    """Enough for a client that has no protos, such as grpcurl, to build requests from."""
    for service in await reflection.services():
        answer = await reflection.ask(file_containing_symbol=service)
        files = answer.file_descriptor_response.file_descriptor_proto
        described = pool_of(files).FindServiceByName(service)
        assert described.methods
        served = {path.rpartition("/")[2] for path in PATHS if path.startswith(f"/{service}/")}
        assert not served or {method.name for method in described.methods} == served


FRESH = """
import asyncio, grpc.aio, xdsprism
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

async def main():
    async with xdsprism.Server(xdsprism.Store(), "127.0.0.1:0") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            for service in (await call.read()).list_services_response.service:
                await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.name))
                print((await call.read()).WhichOneof("message_response"), service.name)
            call.cancel()

asyncio.run(main())
"""


async def test_reflection_imports_the_protos_by_itself() -> None:
    """In a process of its own: here, the tests have imported all of them."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=60, check=True, env=ENV
    )
    answers = dict(reversed(line.split()) for line in done.stdout.splitlines())
    assert set(answers) > set(SERVICES)
    assert set(answers.values()) == {"file_descriptor_response"}


async def test_reflection_reports_unknown_names(reflection: Reflection) -> None:
    answer = await reflection.ask(file_containing_symbol="acme.Widgets")
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    answer = await reflection.ask(file_by_filename="envoy/service/discovery/v3/ads.proto")
    assert answer.file_descriptor_response.file_descriptor_proto


async def test_reflection_ends_with_the_client_s_questions(server: Server) -> None:
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    async with Stream(server.address, path) as silent, silent.beside() as broken:
        await silent.half_close()
        assert (await silent.status())[0] is grpc.StatusCode.OK
        await broken.send_bytes(b"\xff\xff")
        assert (await broken.status())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_questions_without_end_from_a_client_that_reads_no_answer_are_cut_off(server: Server) -> None:
    """What waits for a slow reader is bounded here too."""
    # OPS-6
    question = reflection_pb2.ServerReflectionRequest(file_containing_symbol=ADS).SerializeToString()
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    async with Stream(server.address, path) as stream:
        for _ in range(2_500):
            await stream.send_bytes(question)
        assert (await stream.outcome())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
