"""Clients that leave at bad moments. Nothing may be left of them: no task, no stream, no complaint in a log."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import pytest

from tests.support import insides
from tests.wire.rig import DELTA, SOTW, Stream, cluster, footprint, heap, put, sessions, until
from xdsprism import CLUSTER, Server, Store

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW], ids=["delta", "sotw"])
ROUNDS = 25  # these are races: each is run so often


@pytest.fixture
def store(store: Store) -> Store:
    put(store, cluster("small", "0"), *heap())
    return store


@pytest.fixture
async def server(server: Server, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Server]:
    """At the end of a test all is as it was, and nobody complained."""
    tasks = len(running())
    base = footprint(server, [CLUSTER])
    yield server
    await until(lambda: footprint(server, [CLUSTER]) == base)
    await until(lambda: len(running()) <= tasks)
    await until(lambda: insides.open_calls(server) == 0)
    assert complaints(caplog) == []


def running() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if not task.done()]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of anybody: grpc, asyncio, or ourselves. A task that failed and that nobody asked complains when collected."""
    gc.collect()
    records = {*caplog.get_records("call"), *caplog.records}  # the latter are those of the phase that we are in
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


@PATHS
async def test_before_the_first_request(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            stream.cancel()


@PATHS
async def test_once_the_stream_is_open(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await until(lambda: len(server.hub.connected()) > 0)
            stream.cancel()
            await until(lambda: not server.hub.connected())


@PATHS
async def test_right_after_a_request(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.send(type_url=CLUSTER)
            stream.cancel()


@PATHS
async def test_while_the_server_writes(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.send(type_url=CLUSTER)
            await until(lambda: any(session.progress.sent for session in sessions(server)))
            stream.cancel()
            await until(lambda: not server.hub.connected())


@PATHS
async def test_while_the_store_changes(server: Server, path: str) -> None:
    for number in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.ask(CLUSTER, ["small"])
            put(server.store, cluster("small", str(number + 1)))
            stream.cancel()
            put(server.store, cluster("small", "0"))


@PATHS
async def test_a_client_that_leaves_after_its_last_request_leaves_nothing_behind(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.send(type_url=CLUSTER)
            await stream.half_close()
            stream.cancel()


@PATHS
async def test_right_after_a_half_close_that_is_answered(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.ask(CLUSTER, ["small"])
            await stream.half_close()
            stream.cancel()


@PATHS
async def test_together_with_bytes_that_end_the_stream(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.send(type_url=CLUSTER)
            await stream.send_bytes(b"\xff")
            stream.cancel()


async def test_a_unary_call_before_its_answer(server: Server) -> None:
    path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
    for _ in range(ROUNDS):
        async with Stream(server.address, path, delta=False) as stream:
            await stream.send()
            stream.cancel()


@PATHS
async def test_a_connection_that_breaks(server: Server, path: str) -> None:
    for _ in range(ROUNDS):
        async with Stream(server.address, path) as stream:
            await stream.ask(CLUSTER, ["small"])
            await stream.send(type_url=CLUSTER)
            await stream.disconnect()


@PATHS
@pytest.mark.parametrize("moment", ["before", "at once", "after"])
async def test_while_the_server_stops(store: Store, path: str, moment: str, caplog: pytest.LogCaptureFixture) -> None:
    tasks = len(running())
    for _ in range(5):
        server = Server(store, "127.0.0.1:0")
        await server.start()
        streams = [Stream(server.address, path) for _ in range(4)]
        for number, stream in enumerate(streams):
            await stream.__aenter__()
            if number:
                await stream.send(type_url=CLUSTER)  # the answer to which is more than it will take
        await until(lambda: len([1 for session in sessions(server) if session.progress.sent]) == 3)  # noqa: B023
        if moment == "before":
            for stream in streams:
                stream.cancel()
        stopping = asyncio.create_task(server.stop(grace=0.2))
        if moment == "at once":
            await asyncio.sleep(0)
            for stream in streams:
                stream.cancel()
        await asyncio.wait_for(stopping, 20)
        assert server.hub.connected() == []
        for stream in streams:
            await stream.__aexit__()
    await until(lambda: len(running()) <= tasks)
    assert complaints(caplog) == []
    assert store.listeners == []
