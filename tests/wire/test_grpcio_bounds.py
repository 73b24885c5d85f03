"""The bounds of grpc.aio: connections, streams, and the size of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import hpack
import pytest

from tests.http2.rig import CALL, Frame, data, headers, message, of
from tests.wire.abuse_rig import hear
from tests.wire.h2_rig import Echo, Raw, raw
from tests.wire.rig import OPTIONS, PATIENCE, until
from xdsprism.http2.codes import (
    DATA,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Code,
)
from xdsprism.http2.frames import SETTINGS_ACK, UINT32, frame, parse_settings
from xdsprism.http2.limits import Limits, Times
from xdsprism.server.calls import Method, Peer
from xdsprism.server.engine_grpcio import LIMITS, GrpcioEngine
from xdsprism.server.large_messages import LARGEST

WINDOW = 65_535  # bytes, of a stream that nobody reads


class Shy(Echo):
    """Takes one message, and then no more."""

    def receive(self, message: bytes) -> None:
        super().receive(message)
        self.port.hold_back(waits=True)


class Rig:
    def __init__(self, **options: Any) -> None:
        self.calls: list[Echo] = []
        methods = [Method("/x", self._open(Echo)), Method("/shy", self._open(Shy))]
        self.engine = GrpcioEngine(methods, receive_bytes=64_000_000, **options)
        self.address = ""

    def _open(self, kind: type[Echo]) -> Any:
        def make(peer: Peer) -> Echo:
            return kind(peer, self.calls)

        return make

    async def echo(self) -> bytes:
        """What a client hears that comes by a connection of its own."""
        options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            stream = channel.stream_stream("/x", None, None)()
            await stream.write(b"heard")
            return bytes(await asyncio.wait_for(stream.read(), PATIENCE))


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Rig]:
    rig = Rig(**options)
    rig.address = await rig.engine.start("127.0.0.1:0")
    try:
        yield rig
    finally:
        await rig.engine.stop(0.0)


async def settings_of(client: Raw) -> dict[int, int]:
    return dict(parse_settings(of(SETTINGS, await hear(client, SETTINGS))[0].payload))


async def hear_of(client: Raw, kind: int, number: int) -> list[Frame]:
    """All that comes, until a frame of this kind has on this stream."""
    found: list[Frame] = []
    while not [each for each in of(kind, found) if each.number == number]:
        found += await hear(client, kind)
    return found


# SRV-24
async def test_a_message_that_says_it_is_too_large_is_refused_before_it_comes_and_others_go_on() -> None:
    async with serving() as rig, raw(rig.address) as client:
        await client.say(headers(1, CALL), data(1, message(b"before")), headers(3, CALL))
        came = await hear_of(client, DATA, 1)
        await client.say(data(3, b"\0" + UINT32.pack(LARGEST + 1)))  # and nothing of what it announces
        while len([each for each in of(HEADERS, came) if each.number == 3]) < 1:
            came += await hear(client, HEADERS)
        decoder = hpack.Decoder()
        said = {each.number: dict(decoder.decode(each.payload)) for each in of(HEADERS, came)}
        assert said[3]["grpc-status"] == str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        await client.say(data(1, message(b"after")))
        assert of(DATA, await hear_of(client, DATA, 1))[-1].payload == message(b"after")


async def test_of_a_stream_that_is_not_read_grpc_takes_one_window_and_no_more() -> None:
    # OPS-6
    shy = tuple((name, "/shy" if name == ":path" else value) for name, value in CALL)
    first, second = message(b"first"), message(b"x" * 10_000_000)
    async with serving() as rig, raw(rig.address) as client:
        window = (await settings_of(client))[INITIAL_WINDOW_SIZE]
        await client.say(headers(1, shy), data(1, first))
        came = await hear_of(client, DATA, 1)
        rest = second[: WINDOW - len(first)]
        await client.say(*[data(1, rest[at : at + 16_384]) for at in range(0, len(rest), 16_384)])
        for number in range(3):  # what grpc has to say to that, it has said by then
            await client.say(frame(PING, 0, 0, b"%08d" % number))
            came += await hear(client, PING)
        for each in of(SETTINGS, came):
            window = dict(parse_settings(each.payload)).get(INITIAL_WINDOW_SIZE, window)
        wider = [int.from_bytes(each.payload) for each in of(WINDOW_UPDATE, came) if each.number == 1]
        assert window + sum(wider) <= WINDOW + len(first)
        assert await rig.echo() == b"heard"


async def test_a_connection_has_so_many_streams_at_once_and_one_more_when_one_ends() -> None:
    async with serving(limits=Limits(streams=2)) as rig, raw(rig.address) as client:
        assert (await settings_of(client))[MAX_CONCURRENT_STREAMS] == 2
        await client.say(SETTINGS_ACK, *[headers(number, CALL) for number in (1, 3, 5)])
        (reset,) = of(RST_STREAM, await hear(client, RST_STREAM))
        assert (reset.number, reset.code) == (5, Code.REFUSED_STREAM)
        await client.say(data(1, message(b"heard")))
        assert of(DATA, await hear_of(client, DATA, 1))[-1].payload == message(b"heard")
        await client.say(data(3, b"", last=True))
        await until(lambda: rig.engine.open_calls == 1)
        await hear_of(client, HEADERS, 3)
        await client.say(headers(7, CALL), data(7, message(b"again")))
        assert of(DATA, await hear_of(client, DATA, 7))[-1].payload == message(b"again")
        assert await rig.echo() == b"heard", "a connection of its own"


async def test_a_connection_has_as_many_streams_as_with_h2_by_default() -> None:
    async with serving() as rig, raw(rig.address) as client:
        assert (await settings_of(client))[MAX_CONCURRENT_STREAMS] == LIMITS.streams == 1_024


async def test_there_are_so_many_connections_and_one_more_when_one_ends() -> None:
    async with serving(limits=Limits(connections=2)) as rig, raw(rig.address) as first:
        await settings_of(first)
        async with raw(rig.address) as second:
            await settings_of(second)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rig.echo()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await first.say(headers(1, CALL), data(1, message(b"heard")))
            assert of(DATA, await hear_of(first, DATA, 1))[-1].payload == message(b"heard")
        await until_echo(rig)


async def until_echo(rig: Rig) -> None:
    """grpc needs a moment to know that a connection is gone."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            assert await rig.echo() == b"heard"
        except grpc.aio.AioRpcError:
            assert asyncio.get_running_loop().time() < deadline
        else:
            return


async def test_a_connection_without_a_preface_in_time_is_closed() -> None:
    async with serving(times=Times(preface=0.3)) as rig, raw(rig.address, greet=False) as silent:
        await silent.to_the_end()
        assert await rig.echo() == b"heard"
