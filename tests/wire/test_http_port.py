"""Limits on connections of the admin and REST ports, and their deadlines: raw sockets, and a port in this process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.support import insides, web
from tests.support.certificates import Authority
from tests.wire.rig import PATIENCE, cluster, put, until
from xdsprism import Server, Store, Tls
from xdsprism.http2.facts import Cause, Fact, HandshakeFailed, HttpConnectionRefused, HttpRefusal, Limited
from xdsprism.http2.limits import MAX_REFUSALS, Limit, Limits
from xdsprism.server.connection_limits import ConnectionLimits, admin_connections_for, connections_for
from xdsprism.server.http_deadlines import HttpTimes
from xdsprism.server.http_port import HttpPort

HASTE = HttpTimes(header=0.3, idle=0.3, unread=0.3, linger=0.3)
SLOW = HttpTimes(header=PATIENCE, idle=PATIENCE)
GET = b"GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"


class Socket:
    """One connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, text: bytes) -> None:
        self.writer.write(text)
        await self.writer.drain()

    async def hear(self) -> bytes:
        """The next that comes; nothing where it was hung up on."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(10_000)
            except ConnectionError:
                return b""

    async def get(self) -> bytes:
        await self.say(GET)
        return await self.hear()


class Site:
    """A port with an application of two pages."""

    def __init__(self, connection_limits: ConnectionLimits, times: HttpTimes, tls: ssl.SSLContext | None) -> None:
        self.release = asyncio.Event()
        self.facts: list[Fact] = []
        app = Starlette(routes=[Route("/hello", self._hello), Route("/slow", self._slow), Route("/large", self._large)])
        self.connection_limits = connection_limits
        self.port = HttpPort(
            app, "127.0.0.1:0", "test", tls, connection_limits=connection_limits, report=self.facts.extend, times=times
        )

    def dismissals(self) -> list[HttpRefusal]:
        assert {(fact.port, fact.peer[:9]) for fact in self.facts if isinstance(fact, HttpConnectionRefused)} <= {
            ("test", "ipv4:127.")
        }
        return [fact.why for fact in self.facts if isinstance(fact, HttpConnectionRefused)]

    async def _hello(self, _: Request) -> Response:
        return PlainTextResponse("hello")

    async def _slow(self, _: Request) -> Response:
        await self.release.wait()
        return PlainTextResponse("at last")

    async def _large(self, _: Request) -> Response:
        return PlainTextResponse("x" * 50_000_000)


@asynccontextmanager
async def site(most: int = 8, times: HttpTimes = SLOW, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    found = Site(ConnectionLimits(Limits(connections=most), asyncio.get_running_loop().time), times, tls)
    serving = asyncio.create_task(found.port.serve())
    try:
        yield found
    finally:
        found.release.set()
        found.port.stop()
        await serving


@asynccontextmanager
async def connected(address: str, source: str = "127.0.0.1") -> AsyncIterator[Socket]:
    """By `source` as by another host: all of 127.0.0.0/8 is this machine."""
    reader, writer = await asyncio.open_connection(*web.split(address), local_addr=(source, 0))
    try:
        yield Socket(reader, writer)
    finally:
        writer.close()


# -- time


# OPS-6
@pytest.mark.parametrize(
    ("said", "heard", "why"),
    [
        (b"", b"", HttpRefusal.SILENT),
        (b"GET /hello HTTP/1.1\r\nhost:", b"HTTP/1.1 408 Request Timeout\r\n", HttpRefusal.HEADER),
        (GET + b"GET /hel", b"HTTP/1.1 200 OK\r\n", None),
    ],
)
async def test_a_peer_that_is_silent_or_never_ends_its_header_is_hung_up_on(
    said: bytes, heard: bytes, why: HttpRefusal | None
) -> None:
    async with site(times=HASTE) as found, connected(found.port.address) as peer:
        await peer.say(said)
        answer = b"".join([part async for part in _to_the_end(peer)])
        assert answer.startswith(heard)
        assert bool(answer) == bool(heard)
        await until(lambda: found.connection_limits.count.open == 0)
        assert found.dismissals() == [each for each in [why] if each]


async def _to_the_end(peer: Socket) -> AsyncIterator[bytes]:
    while part := await peer.hear():
        yield part


# OPS-6
async def test_a_peer_that_never_shakes_hands_is_hung_up_on() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with site(times=HASTE, tls=tls) as found, connected(found.port.address) as peer:
        await until(lambda: found.connection_limits.count.open == 1)
        assert await peer.hear() == b""
        await until(lambda: found.connection_limits.count.open == 0)
        assert [(each.peer[:5], each.cause) for each in found.facts if isinstance(each, HandshakeFailed)] == [
            ("ipv4:", Cause.TIMEOUT)
        ]


# OPS-6
async def test_a_peer_that_does_not_read_its_answer_is_hung_up_on() -> None:
    async with site(times=replace(HASTE, idle=PATIENCE)) as found, connected(found.port.address) as peer:
        await peer.say(GET.replace(b"hello", b"large"))
        await until(lambda: found.connection_limits.count.open == 1)
        await until(lambda: found.connection_limits.count.open == 0)
        assert found.dismissals() == [HttpRefusal.UNREAD]


# OPS-11
async def test_that_a_connection_ends_between_two_requests_is_no_refusal() -> None:
    async with site(times=HASTE) as found, connected(found.port.address) as peer:
        assert (await peer.get()).endswith(b"hello")
        assert await peer.hear() == b""
        await until(lambda: found.connection_limits.count.open == 0)
        assert found.dismissals() == []


async def test_a_request_may_wait_for_its_answer_longer_than_for_anything_else() -> None:
    async with site(times=HASTE) as found, connected(found.port.address) as peer:
        await peer.say(GET.replace(b"hello", b"slow"))
        async with connected(found.port.address) as silent:
            assert await silent.hear() == b""  # which takes all of the time that a header may take
        async with connected(found.port.address) as silent:
            assert await silent.hear() == b""
        found.release.set()
        assert (await peer.hear()).endswith(b"at last")


async def test_a_connection_that_goes_on_asking_is_kept() -> None:
    async with site() as found, connected(found.port.address) as peer:
        for _ in range(5):
            assert (await peer.get()).endswith(b"hello")
        assert found.connection_limits.count.open == 1


# -- numbers


async def test_a_silent_connection_makes_room_for_one_of_its_own_address() -> None:
    async with site(most=8) as found, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connected(found.port.address)) for _ in range(40)]
        async with connected(found.port.address) as peer:
            assert (await peer.get()).endswith(b"hello")
        for each in silent[:30]:
            assert await each.hear() == b""
        assert found.connection_limits.count.open <= 6
        async with connected(found.port.address, "127.0.0.2") as other:
            assert (await other.get()).endswith(b"hello")


async def test_when_all_is_full_the_address_with_most_silent_connections_makes_room() -> None:
    async with site(most=8) as found, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connected(found.port.address)) for _ in range(6)]
        others = [await stack.enter_async_context(connected(found.port.address, f"127.0.0.{n}")) for n in (2, 3)]
        await until(lambda: found.connection_limits.count.open == 8)
        async with connected(found.port.address, "127.0.0.4") as peer:
            assert (await peer.get()).endswith(b"hello")
            assert await silent[0].hear() == b""
        assert found.dismissals() == [HttpRefusal.EVICTED]
        for each in others:
            assert (await each.get()).endswith(b"hello")


async def test_a_busy_connection_is_not_evicted_and_the_new_one_is_refused() -> None:
    async with site(most=4) as found, AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(connected(found.port.address)) for _ in range(3)]
        for each in busy:
            await each.say(GET.replace(b"hello", b"slow"))
        await until(lambda: found.port.idle.oldest_of_largest() is None and found.connection_limits.count.open == 3)
        async with connected(found.port.address) as late:
            answer = await late.get()
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert answer.endswith(b"too many connections to this server from one address\n")
        assert [(each.limit, each.connection) for each in found.facts if isinstance(each, Limited)] == [
            (Limit.ADDRESS, True)
        ]
        assert found.dismissals() == [HttpRefusal.ADDRESS]
        flood = [await stack.enter_async_context(connected(found.port.address)) for _ in range(30)]
        told = [await each.hear() for each in flood]
        assert 1 <= sum(map(bool, told)) <= MAX_REFUSALS
        async with connected(found.port.address, "127.0.0.2") as other:
            assert (await other.get()).endswith(b"hello")
            await other.say(GET.replace(b"hello", b"slow"))
            await until(lambda: found.port.idle.oldest_of_largest() is None)
            async with connected(found.port.address, "127.0.0.3") as late:
                assert (await late.get()).endswith(b"too many connections to this server\n")
            assert found.dismissals()[-1] is HttpRefusal.CONNECTIONS
        found.release.set()
        for each in busy:
            assert (await each.hear()).endswith(b"at last")


def test_connections_of_the_admin_port_are_in_the_reserve() -> None:
    for descriptors in (20, 64, 80, 1_024, 20_000, 1 << 20):
        admin = admin_connections_for(descriptors)
        assert 16 <= admin <= 64
        assert connections_for(descriptors) + admin + MAX_REFUSALS + 40 <= max(
            descriptors, 65
        )  # 40: files, listening, the loop


# -- the REST port


async def test_connections_of_rest_and_of_streams_are_counted_together(store: Store) -> None:
    put(store, cluster("a"))
    async with Server(store, "127.0.0.1:0", rest="127.0.0.1:0") as server:
        async with connected(server.rest_address), connected(server.address):
            count = insides.engine(server).connection_limits.count
            await until(lambda: count.open == 2)
        await until(lambda: count.open == 0)


async def test_a_handshake_that_never_begins_is_counted(store: Store, tmp_path: Path) -> None:
    put(store, cluster("a"))
    authority = Authority(tmp_path)
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.make("first").put(*files)
    async with Server(store, "127.0.0.1:0", rest="127.0.0.1:0", tls=Tls(*files)) as server:
        count = insides.engine(server).connection_limits.count
        async with connected(server.rest_address):
            await until(lambda: count.open == 1)
        await until(lambda: count.open == 0)
        trust = ssl.create_default_context(cafile=str(authority.certificate))
        reader, writer = await asyncio.open_connection(
            *web.split(server.rest_address), ssl=trust, server_hostname="localhost"
        )
        writer.write(b"POST /v3/discovery:clusters HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        assert (await reader.read(15)) == b"HTTP/1.1 200 OK"
        assert count.open == 1
        writer.close()
        await until(lambda: count.open == 0)
