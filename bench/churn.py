"""Clients that come and go, each in its own way. Their HTTP/2 is by hand: a library would never be so rude."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from envoy.service.discovery.v3 import discovery_pb2 as pb

from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, DATA, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, Code

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ADS = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


def header_block(path: bytes) -> bytes:
    """The headers of a gRPC call, compressed without any table."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"soak"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)


BLOCK = header_block(ADS)
PATIENCE = 60.0  # seconds
SILENCE = 120.0  # of one who does not answer, until we are hung up on


class Client:
    """One connection with one stream at a time, which acknowledges what it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self._name = name
        self._number = 1
        self._header: tuple[int, ...] | None = None  # of a frame whose payload is still to come
        self._body = b""
        self.updates = 0
        self.ended = False  # our stream
        self._half_closed = False  # we say no more on it

    async def begin(self) -> None:
        self._writer.write(PREFACE + frames.settings([]) + frames.window_update(0, 1 << 24))
        self._subscribe()
        await self._writer.drain()

    def _subscribe(self) -> None:
        self.ended = False
        self._body = b""
        request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=[self._name, "missing"])
        request.node.id = f"soak-{self._name}"
        self._writer.write(frames.headers(self._number, BLOCK, last=False))
        self._send(request)

    def _send(self, request: pb.DeltaDiscoveryRequest) -> None:
        message = request.SerializeToString()
        self._writer.write(frames.frame(DATA, 0, self._number, b"\0" + frames.UINT32.pack(len(message)) + message))

    async def live(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.ended:
                    await self._hear()
        if self.ended:
            raise ConnectionError("the server ended a stream")

    async def first(self) -> None:
        """Wait for the first response."""
        async with asyncio.timeout(PATIENCE):
            while not self.updates:
                await self._hear()

    async def _hear(self) -> None:
        if self._header is None:
            self._header = frames.HEADER.unpack(await self._reader.readexactly(9))
        high, low, kind, flags, number = self._header  # kept, since `live` may end before the rest is there
        payload = await self._reader.readexactly(high << 8 | low)
        self._header = None
        if kind == SETTINGS and not flags & ACK:
            self._writer.write(frames.SETTINGS_ACK)
        elif kind == PING and not flags & ACK:
            self._writer.write(frames.PING_ACK + payload)
        elif kind == HEADERS and flags & END_STREAM:
            self.ended = number == self._number
        elif kind == DATA and number == self._number:
            self._writer.write(frames.window_update(0, len(payload)) + frames.window_update(number, len(payload)))
            self._receive(payload)

    def _receive(self, payload: bytes) -> None:
        self._body += payload
        while len(self._body) >= 5 and len(self._body) >= 5 + (size := frames.UINT32.unpack_from(self._body, 1)[0]):
            response = pb.DeltaDiscoveryResponse.FromString(self._body[5 : 5 + size])
            self._body = self._body[5 + size :]
            self.updates += 1
            if not self._half_closed:
                self._send(pb.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce))

    # -- how it leaves

    async def politely(self) -> None:
        """Say that there is no more, hear the server out, and close."""
        self._half_closed = True
        self._writer.write(frames.frame(DATA, END_STREAM, self._number))
        async with asyncio.timeout(PATIENCE):
            while not self.ended:
                await self._hear()
        self._writer.write(frames.goaway(0, Code.NO_ERROR))
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def rudely(self) -> None:
        """The way of a process that was killed."""
        self._writer.transport.abort()

    async def amid_a_message(self) -> None:
        self._writer.write(frames.frame(DATA, 0, self._number, b"\0\0\0\xff\xff" + bytes(500)) + b"\0\0\x09\0")
        await self._writer.drain()
        self._writer.transport.abort()

    async def after_many_streams(self) -> None:
        """Cancel, and ask again on the same connection."""
        for _ in range(5):
            self._writer.write(frames.reset(self._number, Code.CANCEL))
            self._number += 2
            self._subscribe()
            await self.live(random.uniform(0.5, 1.5))  # noqa: S311
        await self.politely()

    async def silently(self) -> None:
        """Half open: the other end is gone, and nobody says so. The server has to find out."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(SILENCE):
                while await self._reader.read(1 << 16):
                    pass
        self._writer.transport.abort()

    async def with_nonsense(self) -> None:
        self._writer.write(struct.pack(">I", 0xFFFFFFFF) * 8)
        await self._writer.drain()
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await self._reader.read()
        self._writer.transport.abort()


Way = Callable[[Client], Awaitable[None]]
WAYS: dict[str, tuple[Way, int]] = {  # and how many of a hundred
    "politely": (Client.politely, 40),
    "rudely": (Client.rudely, 25),
    "amid a message": (Client.amid_a_message, 10),
    "after many streams": (Client.after_many_streams, 15),
    "with nonsense": (Client.with_nonsense, 5),
    "silently": (Client.silently, 5),
}


class Crowd:
    """So many at a time, until it is told to stop: who leaves is replaced."""

    def __init__(self, address: str, names: list[str], tls: ssl.SSLContext | None, life: float) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._names = names
        self._tls = tls
        self._life = life  # seconds, on average
        self._ways = list(WAYS)
        self._weights = [weight for _, weight in WAYS.values()]
        self.stopping = False
        self.came = 0
        self.updates = 0
        self.left: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()  # by why

    async def member(self) -> None:
        while not self.stopping:
            way = random.choices(self._ways, self._weights)[0]  # noqa: S311
            try:
                await self._one(way)
            except (OSError, EOFError, TimeoutError) as error:
                self.failed[f"{way}: {error!r}"] += 1
                await asyncio.sleep(1)
            else:
                self.left[way] += 1

    async def _one(self, way: str) -> None:
        host = "localhost" if self._tls else None
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, server_hostname=host)
        self.came += 1
        client = Client(reader, writer, random.choice(self._names))  # noqa: S311
        try:
            await client.begin()
            await client.live(random.uniform(0.2, 1.8) * self._life)  # noqa: S311
            self.updates += client.updates
            await WAYS[way][0](client)
        finally:
            writer.transport.abort()
