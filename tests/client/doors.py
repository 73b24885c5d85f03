"""Ends of a real connection that misbehave: below HTTP/2, in it, and above it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import grpc
import grpc.aio

from tests.client.rig import bootstrap
from tests.client.rig import server as entry

Treatment = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def boot(*addresses: str, **fields: Any) -> dict[str, Any]:
    return bootstrap(*[entry(address) for address in addresses], **fields)


class Door:
    """A port in front of a server. Each connection is treated as `treat` says when it comes."""

    def __init__(self, treat: Treatment) -> None:
        self.treat = treat
        self.address = ""
        self.came = 0
        self.open: set[asyncio.Task[None]] = set()  # a task for each connection that is there

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._come, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._listening.close()
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)

    def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await self.treat(reader, writer)
        finally:
            writer.transport.abort()


# -- below HTTP/2


async def slam(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Accept, and close."""


async def say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass


async def close_when_spoken_to(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def speak_http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    await writer.drain()


async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(bytes(range(256)) * 16)
    await writer.drain()


# -- in HTTP/2, by hand

DATA, HEADERS, SETTINGS, GOAWAY = 0, 1, 4, 7
END_HEADERS, ACK = 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


HELLO = frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0)
OPENING = frame(HEADERS, END_HEADERS, 1, b"\x88" + _literal(b"content-type", b"application/grpc"))
A_PART = frame(DATA, 0, 1, b"\x00" + struct.pack(">I", 100) + b"\x0a\x01")  # 2 of 100 bytes
FAREWELL = frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0))
COMPRESSED = frame(DATA, 0, 1, b"\x01" + struct.pack(">I", 3) + b"abc")  # in a way that nobody agreed on


def saying(*frames: bytes) -> Treatment:
    """Greet, wait for the request, say this and close."""

    async def treat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        heard = b""
        while b"AggregatedDiscoveryService" not in heard:
            more = await reader.read(65536)
            if not more:
                return
            heard += more
        writer.write(b"".join(frames))
        await writer.drain()

    return treat


def leading_to(address: str, cut: int | None = None) -> Treatment:
    """Pass everything on, but to the client no more than so many bytes."""
    host, _, port = address.rpartition(":")

    async def treat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, thither = await asyncio.open_connection(host, int(port))
        ways = [asyncio.ensure_future(_pass_on(reader, thither)), asyncio.ensure_future(_pass_on(there, writer, cut))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            thither.transport.abort()

    return treat


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None = None) -> None:
    while left is None or left > 0:
        piece = await reader.read(65536 if left is None else left)
        if not piece:
            return
        left = None if left is None else left - len(piece)
        writer.write(piece)
        await writer.drain()


# -- above HTTP/2


class Method(grpc.GenericRpcHandler):
    """One behaviour for every method of a server."""

    def __init__(self, serve: Callable[[Any, Any], AsyncIterator[bytes]]) -> None:
        self._serve = serve

    def service(self, _details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._serve)


@asynccontextmanager
async def serving(serve: Callable[[Any, Any], AsyncIterator[bytes]]) -> AsyncIterator[str]:
    """A gRPC server that treats each stream so: requests and a context in, responses out."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Method(serve),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)
