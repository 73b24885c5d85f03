"""Connections that fail, or are too many: open ones are served, and further ones get a reason."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

import grpc.aio
import pytest
import uvloop

from tests.cli.rig import Daemon, write
from tests.http2.rig import of
from tests.support import insides, web
from tests.support.certificates import identity
from tests.support.resources import static_cluster
from tests.support.waiting import eventually
from tests.wire.abuse_rig import Site, ask, hear, site
from tests.wire.h2_rig import Raw, double, raw, serving
from tests.wire.rig import OPTIONS, PATIENCE, Stream, names_in, until
from xdsprism import CLUSTER
from xdsprism.http2 import frames
from xdsprism.http2.codes import GOAWAY, PING, PREFACE, Code
from xdsprism.http2.facts import Cause, Disconnected, HandshakeFailed
from xdsprism.http2.limits import MAX_REFUSALS, ConnectionCount, Limit, Limits, Times
from xdsprism.server import connection_limits
from xdsprism.server.engine_h2 import SocketConnection

PATIENT = Times(preface=2.0, linger=0.2)  # seconds: enough for those who mean it, on a busy machine too

# -- those who never say who they are


@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE, PREFACE + frames.settings([])[:5]])
async def test_a_client_that_is_slow_with_its_preface_is_disconnected(said: bytes) -> None:
    async with site() as found:
        found.hurry()
        async with raw(found.address, greet=False) as client:
            await client.say(said)
            (goaway,) = of(GOAWAY, await client.to_the_end())
        assert goaway.code is Code.PROTOCOL_ERROR
        assert found.limited() == {"connection": {Limit.PREFACE: 1}}
        await found.is_unharmed()


async def test_many_connections_without_a_preface_are_all_closed_and_delay_no_other() -> None:
    async with site() as found, AsyncExitStack() as stack:
        found.hurry()
        clients = [await stack.enter_async_context(raw(found.address, greet=False)) for _ in range(100)]
        await found.is_unharmed()
        for client in clients:
            (goaway,) = of(GOAWAY, await client.to_the_end())
            assert goaway.code is Code.PROTOCOL_ERROR
        assert found.limited() == {"connection": {Limit.PREFACE: 100}}


async def test_a_client_that_is_slow_with_its_handshake_is_disconnected(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*identity(tmp_path, "server"))
    roots = grpc.ssl_channel_credentials((tmp_path / "server.pem").read_bytes())
    options = (*OPTIONS, ("grpc.ssl_target_name_override", "localhost"))
    async with (
        serving(tls=tls, times=PATIENT) as rig,
        raw(rig.address, greet=False) as silent,
        grpc.aio.secure_channel(rig.address, roots, options=options) as channel,
    ):
        assert await double(channel, b"a") == b"aa"
        assert await asyncio.wait_for(silent.reader.read(), PATIENCE) == b""
        await until(lambda: any(isinstance(fact, HandshakeFailed) for fact in rig.facts))
        assert [fact.cause for fact in rig.facts if isinstance(fact, HandshakeFailed)] == [Cause.TIMEOUT]
        assert await double(channel, b"b") == b"bb"
        assert rig.engine.connection_limits.count.open == 1


# -- too many


@asynccontextmanager
async def crowd(found: Site, number: int) -> AsyncIterator[list[Raw]]:
    """So many who are served."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw(found.address)) for _ in range(number)]
        for client in clients:
            await client.say(frames.ping(b"are you?"))
            assert of(PING, await hear(client, PING))
        yield clients


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each connection came from another host."""
    addresses = (f"host-{number}" for number in range(10_000))
    admit, end, release = ConnectionCount.admit, ConnectionCount.end_handshake, ConnectionCount.release
    admitted: list[str] = []
    begun: list[str] = []

    def admit_next(self: ConnectionCount, _: str) -> Limit | None:
        address = next(addresses)
        limit = admit(self, address)
        if limit is None:
            admitted.append(address)
            begun.append(address)
        return limit

    monkeypatch.setattr(ConnectionCount, "admit", admit_next)
    monkeypatch.setattr(ConnectionCount, "end_handshake", lambda self, _: end(self, begun.pop()))
    monkeypatch.setattr(ConnectionCount, "release", lambda self, _: release(self, admitted.pop()))


async def test_a_connection_beyond_the_limit_gets_a_reason(elsewhere: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "xdsprism.server")
    async with site(Limits(connections=4)) as found:
        async with crowd(found, 3) as clients:
            for _ in range(3):
                async with raw(found.address) as refused:
                    (goaway,) = of(GOAWAY, await refused.to_the_end())
                assert goaway.code is Code.ENHANCE_YOUR_CALM
                assert goaway.payload[8:] == b"too many connections to this server"
            assert found.limited() == {"connection": {Limit.CONNECTIONS: 3}}
            await found.is_unharmed()
            await clients[0].say(ask(1), frames.ping(b"still on"))
            assert of(PING, await hear(clients[0], PING))
        await until(lambda: found.connections() == 1)
        async with crowd(found, 3):  # there is room again
            pass
    (told,) = [record.getMessage() for record in caplog.records]
    assert "there are 4 connections" in told
    assert "ulimit -n" in told


async def test_one_address_leaves_room_for_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(Limits(connections=8)) as found, crowd(found, 5):  # six, with the bystander
        async with raw(found.address) as refused:
            (goaway,) = of(GOAWAY, await refused.to_the_end())
        assert goaway.payload[8:] == b"too many connections to this server from one address"
        assert found.limited() == {"connection": {Limit.ADDRESS: 1}}
        await until(lambda: found.connections() == 6)
        admit = found.engine.connection_limits.admit
        monkeypatch.setattr(found.engine.connection_limits, "admit", lambda _: admit("ipv4:127.0.0.2:1"))
        async with crowd(found, 2):
            await found.is_unharmed()
        assert found.limited() == {"connection": {Limit.ADDRESS: 1}}
    assert "from ipv4:127.0.0.1: it has its share of the 8 connections" in caplog.text


async def test_a_flood_of_connections_is_closed_without_a_reason(elsewhere: None) -> None:
    """Those who are told to go have descriptors too, for a moment: there are few of them."""
    async with site(Limits(connections=1)) as found, AsyncExitStack() as stack:
        found.engine.times = Times(linger=PATIENCE)  # so that nobody who was told makes room for the next
        clients = [await stack.enter_async_context(raw(found.address, greet=False)) for _ in range(100)]
        told = 0
        for client in clients:
            with suppress(ConnectionError):
                told += bool(of(GOAWAY, await client.to_the_end()))
        assert 1 <= told <= MAX_REFUSALS
        assert found.limited() == {"connection": {Limit.CONNECTIONS: 100}}
        await found.is_unharmed()


async def test_a_handshake_takes_room_too(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*identity(tmp_path, "server"))
    async with serving(tls=tls, times=PATIENT, limits=Limits(connections=2)) as rig, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw(rig.address, greet=False)) for _ in range(3)]
        for client in clients:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(client.reader.read(), PATIENCE) == b""
        await until(lambda: rig.engine.connection_limits.count.open == 0)
        assert set(rig.limits()) <= {Limit.ADDRESS, Limit.CONNECTIONS}
        assert rig.limits()
        assert not [fact for fact in rig.facts if isinstance(fact, Disconnected)]


def test_a_connection_that_is_over_does_not_wait_for_the_collector(tmp_path: Path) -> None:
    """One of TLS has buffers of hundreds of kilobytes, and there may be many in a second."""
    certificate, key = identity(tmp_path, "server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    trust = ssl.create_default_context(cafile=certificate)
    trust.set_alpn_protocols(["h2"])
    gc.collect()  # of what other tests have left
    gc.disable()
    try:
        assert uvloop.run(_left_behind(tls, trust)) == 0
    finally:
        gc.enable()


async def _left_behind(tls: ssl.SSLContext, trust: ssl.SSLContext) -> int:
    async with serving(tls=tls) as rig:
        host, _, port = rig.address.rpartition(":")
        before = _connections()
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trust, server_hostname="localhost")
        writer.write(PREFACE + frames.settings([]))
        assert await asyncio.wait_for(reader.read(100), PATIENCE)
        assert len(insides.connections(rig.engine)) == 1
        writer.transport.abort()
        await until(lambda: not insides.connections(rig.engine))
        await asyncio.sleep(0.01)  # the loop lets go of it
        return _connections() - before


def _connections() -> int:
    return sum(isinstance(each, SocketConnection) for each in gc.get_objects())


# -- descriptors


def test_some_descriptors_are_kept_for_other_things() -> None:
    assert [connection_limits.connections_for(number) for number in (20, 64, 100, 1_024, 20_000)] == [
        1,
        1,
        36,
        922,
        18_000,
    ]


async def test_a_server_that_runs_out_of_descriptors_serves_those_it_has_and_others_later(tmp_path: Path) -> None:
    """Not by its connections, which leave some: here, the limit is lowered while it runs."""
    config = write(tmp_path / "config", "a", static_cluster("a", "127.0.0.1", 1)).parent
    with Daemon(tmp_path, config, "--engine", "h2") as daemon:
        async with Stream(daemon.listen) as client:
            await client.ack(await client.ask(CLUSTER, ["a"]))
            with _no_more_descriptors(daemon.process.pid), ExitStack() as stack:
                late = [stack.enter_context(socket.create_connection(web.split(daemon.listen))) for _ in range(5)]
                assert _is_hung_up_on(late[-1])
                assert await client.is_quiet(CLUSTER, "b")
                write(config, "a", static_cluster("a", "127.0.0.1", 2))
                await asyncio.to_thread(eventually, lambda: "can't be read: Too many open files" in daemon.stderr)
            assert names_in(await client.read()) == ["a"]  # the edit that could not be read, without another one
            await asyncio.to_thread(eventually, lambda: daemon.metric("xdsprism_connections") == 1)
            async with Stream(daemon.listen) as fresh:
                assert names_in(await fresh.ask(CLUSTER, ["a"])) == ["a"]
            write(config, "a", static_cluster("a", "127.0.0.1", 3))
            assert names_in(await client.read()) == ["a"]


@contextmanager
def _no_more_descriptors(pid: int) -> Iterator[None]:
    """A process that has as many open files as it may."""
    used = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    free = next(number for number in count() if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def _is_hung_up_on(client: socket.socket) -> bool:
    client.settimeout(PATIENCE)
    with suppress(ConnectionError):
        return client.recv(100) == b""
    return True
