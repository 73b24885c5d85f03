"""The transport of our own on a socket, a few calls to serve, and clients by hand."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from tests.http2.rig import Frame, parse
from tests.wire.rig import OPTIONS, PATIENCE
from xdsprism.http2 import frames
from xdsprism.http2.codes import INITIAL_WINDOW_SIZE, PREFACE
from xdsprism.http2.facts import Fact, Limited
from xdsprism.http2.limits import Limit
from xdsprism.server.calls import Call, Method, Peer, UnaryCall
from xdsprism.server.engine_h2 import H2Engine

WIDE = ((INITIAL_WINDOW_SIZE, (1 << 31) - 1),)


class Echo(Call):
    """Says what it hears, and what a test wants said."""

    def __init__(self, peer: Peer, calls: list[Echo]) -> None:
        super().__init__()
        self.peer = peer
        self.heard: list[bytes] = []
        self.outbox: list[bytes] = []
        self.closed: str | None = None
        calls.append(self)

    def receive(self, message: bytes) -> None:
        self.heard.append(message)
        self.say(message)

    def poll(self) -> Iterator[bytes]:
        while self.outbox:
            yield self.outbox.pop(0)

    def half_close(self) -> None:
        self.finished = True

    def close(self, reason: str = "") -> None:
        self.closed = reason

    def say(self, *messages: bytes) -> None:
        self.outbox += messages
        self.wake()


class Rig:
    def __init__(self, **options: Any) -> None:
        self.calls: list[Echo] = []
        self.facts: list[Fact] = []
        methods = [
            Method("/test/Echo", lambda peer: Echo(peer, self.calls)),
            Method("/x", lambda peer: Echo(peer, self.calls)),
            Method("/test/Double", lambda _: UnaryCall(lambda asked: asked * 2)),
        ]
        self.engine = H2Engine(methods, receive_bytes=options.pop("receive_bytes", 64_000_000), **options)
        self.engine.readers.append(self.facts.extend)
        self.address = ""

    def limits(self) -> list[Limit]:
        return [fact.limit for fact in self.facts if isinstance(fact, Limited)]

    def channel(self, *options: tuple[str, Any]) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, options=(*OPTIONS, *options))

    async def serves(self) -> bool:
        """Somebody else is served as ever."""
        async with self.channel() as channel:
            return await double(channel, b"fine") == b"finefine"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Rig]:
    rig = Rig(**options)
    rig.address = await rig.engine.start("127.0.0.1:0")
    try:
        yield rig
    finally:
        await rig.engine.stop(0.0)


async def double(channel: grpc.aio.Channel, asked: bytes) -> Any:
    return await channel.unary_unary("/test/Double", None, None)(asked, timeout=PATIENCE)


def echo(channel: grpc.aio.Channel, **options: Any) -> Any:
    return channel.stream_stream("/test/Echo", None, None)(**options)


class Raw:
    """A client of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.rest = b""  # the beginning of a frame, of what was read

    async def say(self, *said: bytes) -> None:
        self.writer.write(b"".join(said))
        await self.writer.drain()

    async def to_the_end(self) -> list[Frame]:
        """All that comes until the server hangs up."""
        return parse(self.rest + await asyncio.wait_for(self.reader.read(), PATIENCE))


@asynccontextmanager
async def raw(address: str, *, greet: bool = True, settings: tuple[tuple[int, int], ...] = ()) -> AsyncIterator[Raw]:
    host, _, port = address.rpartition(":")
    client = Raw(*await asyncio.open_connection(host, int(port)))
    if greet:
        await client.say(PREFACE, frames.settings(settings))
    try:
        yield client
    finally:
        client.writer.transport.abort()


@asynccontextmanager
async def narrow(address: str, secure: dict[str, Any] | None = None) -> AsyncIterator[Raw]:
    """A client with wide windows and a small socket: what it does not read stays in that of the server."""
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    plug.setblocking(False)
    host, _, port = address.rpartition(":")
    await asyncio.get_running_loop().sock_connect(plug, (host, int(port)))
    client = Raw(*await asyncio.open_connection(sock=plug, **(secure or {})))
    await client.say(PREFACE, frames.settings(WIDE))
    try:
        yield client
    finally:
        client.writer.transport.abort()
