"""TLS handshakes on the h2 engine: failures are counted by cause, and affect no other client."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from tests.support.certificates import Authority, Pair
from tests.wire.h2_rig import Rig, double, serving
from tests.wire.rig import OPTIONS, PATIENCE, until
from xdsprism.http2.codes import PREFACE, Code
from xdsprism.http2.facts import Cause, Disconnected, HandshakeFailed
from xdsprism.http2.limits import Times
from xdsprism.observe.connection_metrics import ConnectionMetrics

pytestmark = pytest.mark.usefixtures("nothing_is_an_error")


@pytest.fixture
def nothing_is_an_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a peer does is no error of ours, and no reason for a traceback."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = authority.make("server")
    context.load_cert_chain(server.certificate, server.key)
    return context


def channel(rig: Rig, authority: Authority, client: Pair | None = None) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(authority.pem, *(client.pem if client else (None, None)))
    return grpc.aio.secure_channel(rig.address, credentials, options=OPTIONS)


def port(rig: Rig) -> int:
    return int(rig.address.rpartition(":")[2])


def causes(rig: Rig) -> list[Cause]:
    return [fact.cause for fact in rig.facts if isinstance(fact, HandshakeFailed)]


async def said(rig: Rig, *words: bytes) -> bytes:
    """What is answered to bytes, until the server hangs up; a reset is an answer too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(rig))
    try:
        writer.writelines(words)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_calls_over_tls(tls: ssl.SSLContext, authority: Authority) -> None:
    async with serving(tls=tls) as rig, channel(rig, authority) as secure:
        assert await double(secure, b"ab") == b"abab"
        assert len(await double(secure, bytes(3_000_000))) == 6_000_000
        assert causes(rig) == []


@pytest.mark.parametrize(
    "words", [PREFACE, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"hello?\n" * 50], ids=["HTTP/2", "HTTP/1", "noise"]
)
async def test_plain_text_on_a_tls_port_is_reported(tls: ssl.SSLContext, authority: Authority, words: bytes) -> None:
    async with serving(tls=tls) as rig, channel(rig, authority) as secure:
        assert await double(secure, b"a") == b"aa"
        await said(rig, words)
        await until(lambda: causes(rig) == [Cause.PLAIN])
        assert await double(secure, b"b") == b"bb"


async def test_tls_on_a_plain_port_is_reported(authority: Authority) -> None:
    async with serving() as rig, channel(rig, authority) as secure:
        with pytest.raises(grpc.aio.AioRpcError):
            await double(secure, b"a")
        await until(lambda: Cause.TLS in causes(rig))
        assert await rig.serves()


async def test_a_tls_client_without_alpn_h2_is_disconnected(tls: ssl.SSLContext, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    async with serving(tls=tls) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", port(rig), ssl=context, server_hostname="localhost")
        assert await reader.read() == b""
        writer.close()
        await until(lambda: any(isinstance(fact, Disconnected) for fact in rig.facts))
        assert [fact.code for fact in rig.facts if isinstance(fact, Disconnected)] == [Code.INADEQUATE_SECURITY]
        assert causes(rig) == [Cause.ALPN]
        async with channel(rig, authority) as secure:
            assert await double(secure, b"a") == b"aa"


async def test_a_client_without_a_handshake_is_disconnected(tls: ssl.SSLContext, authority: Authority) -> None:
    async with serving(tls=tls, times=Times(preface=0.2)) as rig:
        assert await said(rig) == b""
        await until(lambda: causes(rig) == [Cause.TIMEOUT])
        async with channel(rig, authority) as secure:
            assert await double(secure, b"a") == b"aa"


async def test_many_unfinished_handshakes_keep_no_other_client_out(tls: ssl.SSLContext, authority: Authority) -> None:
    async with serving(tls=tls) as rig:
        silent = [socket.create_connection(("127.0.0.1", port(rig))) for _ in range(200)]
        async with channel(rig, authority) as secure:
            assert await double(secure, b"a") == b"aa"
        await asyncio.wait_for(rig.engine.stop(5.0), PATIENCE)
        for each in silent:
            with each:
                each.settimeout(PATIENCE)
                assert each.recv(100) == b"", "a stop ends these too"


async def test_a_client_that_closes_within_the_handshake_is_reported(tls: ssl.SSLContext) -> None:
    async with serving(tls=tls) as rig:
        hello = ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        _, writer = await asyncio.open_connection("127.0.0.1", port(rig))
        writer.write(hello.read()[:100])
        writer.close()
        await until(lambda: causes(rig) == [Cause.LEFT])


async def test_garbage_after_the_handshake_closes_the_connection(tls: ssl.SSLContext, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_alpn_protocols(["h2"])

    def spoil() -> None:
        plain = socket.create_connection(("127.0.0.1", port(rig)), PATIENCE)
        with context.wrap_socket(plain, server_hostname="localhost") as secure, suppress(OSError):
            os.write(secure.fileno(), b"nonsense" * 100)
            while secure.recv(10_000):
                pass

    async with serving(tls=tls) as rig, channel(rig, authority) as welcome:
        assert await double(welcome, b"a") == b"aa"
        await asyncio.to_thread(spoil)
        await until(lambda: any(isinstance(fact, Disconnected) for fact in rig.facts))
        assert await double(welcome, b"b") == b"bb"


async def test_a_client_that_rejects_the_server_certificate_is_reported(tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with serving(tls=tls) as rig, channel(rig, Authority(tmp_path, "elsewhere")) as wary:
        with pytest.raises(grpc.aio.AioRpcError):
            await double(wary, b"a")
        await until(lambda: causes(rig))
        assert set(causes(rig)) <= {Cause.OTHER, Cause.LEFT}


async def test_a_client_certificate_may_be_wanted(tls: ssl.SSLContext, authority: Authority, tmp_path: Path) -> None:
    tls.load_verify_locations(str(authority.certificate))
    tls.verify_mode = ssl.CERT_REQUIRED
    stranger = Authority(tmp_path, "elsewhere").make("client")
    async with serving(tls=tls) as rig, channel(rig, authority, authority.make("client")) as welcome:
        for client, cause in ((None, Cause.NO_CERTIFICATE), (stranger, Cause.UNTRUSTED)):
            async with channel(rig, authority, client) as refused:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await double(refused, b"a")
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            await until(lambda: cause in causes(rig))  # noqa: B023 # it is over before the next
        assert await double(welcome, b"a") == b"aa"


async def test_failures_are_metrics(tls: ssl.SSLContext) -> None:
    registry = CollectorRegistry()
    async with serving(tls=tls) as rig:
        rig.engine.readers.append(ConnectionMetrics(registry))
        await said(rig, PREFACE)
        await until(lambda: causes(rig) == [Cause.PLAIN])
        for cause in Cause:
            value = registry.get_sample_value("xdsprism_handshake_failures_total", {"cause": cause.value})
            assert value == (1.0 if cause is Cause.PLAIN else 0.0)


async def test_a_stop_ends_connections_over_tls_too(tls: ssl.SSLContext, authority: Authority) -> None:
    async with serving(tls=tls) as rig, channel(rig, authority) as secure:
        await double(secure, b"a")
        await asyncio.wait_for(rig.engine.stop(5.0), PATIENCE)
        (ended,) = [fact for fact in rig.facts if isinstance(fact, Disconnected)]
        assert (ended.code, ended.reason) == (Code.NO_ERROR, "")
