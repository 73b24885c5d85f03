"""When a server stops, a stream ends once the client has answered the last response, so no response is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.http2.rig import CALL, Frame, bodies, data, headers, message, of, parse
from tests.wire.h2_rig import Raw, narrow
from tests.wire.rig import DELTA, PATIENCE, SOTW, Stream, cluster, put, sessions, until
from xdsprism import CLUSTER, Server, Store
from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, END_STREAM, GOAWAY, HEADERS, PING
from xdsprism.server import xds_call

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW], ids=["delta", "sotw"])
LARGE = 500_000  # bytes: more than a narrow client takes, and no more than the server's socket does
GRACE = 1_000.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has as long to answer as it likes."""
    monkeypatch.setattr(xds_call, "ANSWER", GRACE)


@asynccontextmanager
async def stopping(server: Server, grace: float = GRACE) -> AsyncIterator[None]:
    """It stops during the block, and has stopped soon after that."""
    task = asyncio.create_task(server.stop(grace))
    try:
        yield
        await asyncio.wait_for(task, PATIENCE)
    finally:
        task.cancel()


async def started(store: Store) -> Server:
    server = Server(store, "127.0.0.1:0")
    await server.start()
    return server


# OPS-9
@PATHS
@pytest.mark.usefixtures("patient")
async def test_a_stream_ends_when_its_last_response_is_answered(store: Store, path: str) -> None:
    """Not before: there are libraries that drop with the connection what the program has not read yet."""
    put(store, cluster("a"))
    server = await started(store)
    async with Stream(server.address, path) as stream:
        answer = await stream.ask(CLUSTER, ["a"])
        async with stopping(server):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(stream.status())), 0.5)
            await stream.ack(answer, **({} if path == DELTA else {"resource_names": ["a"]}))
            assert (await stream.status())[0] is grpc.StatusCode.OK


@PATHS
@pytest.mark.usefixtures("patient")
async def test_a_nack_is_an_answer_too(store: Store, path: str) -> None:
    put(store, cluster("a"))
    server = await started(store)
    async with Stream(server.address, path) as stream:
        answer = await stream.ask(CLUSTER, ["a"])
        async with stopping(server):
            names = {} if path == DELTA else {"resource_names": ["a"]}
            await stream.ack(answer, error_detail={"code": 3, "message": "no"}, **names)
            assert (await stream.status())[0] is grpc.StatusCode.OK


@pytest.mark.usefixtures("patient")
async def test_a_drain_waits_for_no_client_that_owes_no_answer(store: Store) -> None:
    put(store, cluster("a"))
    server = await started(store)
    async with Stream(server.address) as silent, Stream(server.address) as done:
        await done.ask(CLUSTER, ["a"])
        await until(lambda: len(server.hub.connected()) == 2)
        async with stopping(server):
            assert (await silent.status())[0] is grpc.StatusCode.OK
            await done.half_close()
            assert (await done.status())[0] is grpc.StatusCode.OK


async def test_a_draining_stream_waits_a_moment_for_an_answer(store: Store) -> None:
    put(store, cluster("a"))
    server = await started(store)
    async with Stream(server.address) as stream:
        await stream.ask(CLUSTER, ["a"])
        async with stopping(server):
            assert (await stream.status())[0] is grpc.StatusCode.OK


@pytest.mark.usefixtures("patient")
async def test_a_draining_stream_ends_before_its_connection(store: Store) -> None:
    put(store, cluster("a"))
    server = await started(store)
    async with Stream(server.address) as stream:
        await stream.ask(CLUSTER, ["a"])
        async with stopping(server, grace=2.0):
            assert (await stream.status())[0] is grpc.StatusCode.OK


# -- a client of bytes, with a small socket


class Client:
    """It reads when it is told to, and answers every PING that it reads."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.frames: list[Frame] = []
        self.body = b""  # what came on its stream

    async def read(self, size: int = 1 << 20) -> bool:
        """Read a piece; False at the end."""
        piece = await asyncio.wait_for(self.raw.reader.read(size), PATIENCE)
        found, self.raw.rest = whole(self.raw.rest + piece)
        self.frames += found
        self.body += bodies(found)
        await self.raw.say(*(frames.PING_ACK + frame.payload for frame in of(PING, found) if not frame.flags & ACK))
        return bool(piece)

    def response(self) -> pb.DeltaDiscoveryResponse | None:
        """The first one, once all of it has come."""
        if len(self.body) < 5 or len(self.body) < 5 + frames.UINT32.unpack_from(self.body, 1)[0]:
            return None
        return pb.DeltaDiscoveryResponse.FromString(self.body[5:])


def whole(received: bytes) -> tuple[list[Frame], bytes]:
    """The frames that have come as a whole, and what has come of the next."""
    end = 0
    while len(received) >= end + 9:
        high, low, *_ = frames.HEADER.unpack_from(received, end)
        size = 9 + (high << 8 | low)
        if len(received) < end + size:
            break
        end += size
    return parse(received[:end]), received[end:]


def said(**fields: object) -> bytes:
    return data(1, message(pb.DeltaDiscoveryRequest(type_url=CLUSTER, **fields).SerializeToString()))


# OPS-9
@pytest.mark.usefixtures("patient")
async def test_a_slow_reader_that_still_sends_gets_the_whole_last_response(store: Store) -> None:
    """A socket that is closed, and hears more, makes the kernel drop what was not taken yet."""
    server = await started(store)
    path = [(name, DELTA if name == ":path" else value) for name, value in CALL]
    async with narrow(server.address) as raw:
        client = Client(raw)
        await raw.say(frames.window_update(0, 1 << 30), headers(1, path))
        await raw.say(said(resource_names_subscribe=["a"]))
        while not client.response():
            await client.read()
        client.body = b""  # that there is none is not answered yet: the stream goes on
        async with stopping(server):
            while len(of(GOAWAY, client.frames)) < 2:
                await client.read()
            put(store, cluster("a", size=LARGE))
            await until(lambda: [each.progress.sent for each in sessions(server)] == [2])
            while (response := client.response()) is None:
                await raw.say(frames.window_update(0, 1))
                await asyncio.sleep(0.02)
                assert await client.read(50_000), "the connection was closed in the middle"
            assert [len(each.resource.value) > LARGE for each in response.resources] == [True]
            await raw.say(said(response_nonce=response.nonce))
            while await client.read():
                pass
            raw.writer.close()
    assert any(frame.flags & END_STREAM for frame in of(HEADERS, client.frames))
