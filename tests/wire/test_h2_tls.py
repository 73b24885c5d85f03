"""TLS on the transport of our own: ALPN, client certificates, and a new certificate for connections to come."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.support.certificates import identity
from tests.wire.h2_rig import Rig, double, serving
from tests.wire.rig import OPTIONS, until
from xdsprism.http2.codes import Code
from xdsprism.http2.facts import Disconnected
from xdsprism.http2.limits import Times


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*identity(tmp_path, "server"))
    return context


def channel(rig: Rig, roots: Path, client: tuple[Path, Path] | None = None) -> grpc.aio.Channel:
    pair = (client[1].read_bytes(), client[0].read_bytes()) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(roots.read_bytes(), *pair)
    options = (*OPTIONS, ("grpc.ssl_target_name_override", "localhost"))
    return grpc.aio.secure_channel(rig.address, credentials, options=options)


async def test_calls_over_tls(tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with serving(tls=tls) as rig, channel(rig, tmp_path / "server.pem") as secure:
        assert await double(secure, b"ab") == b"abab"
        assert len(await double(secure, bytes(3_000_000))) == 6_000_000


async def test_who_does_not_ask_for_http_2_is_hung_up_on(tls: ssl.SSLContext, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    async with serving(tls=tls) as rig:
        host, _, port = rig.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
        assert await reader.read() == b""
        writer.close()
        ended = [fact for fact in rig.facts if isinstance(fact, Disconnected)]
        assert [fact.code for fact in ended] == [Code.INADEQUATE_SECURITY]
        async with channel(rig, tmp_path / "server.pem") as secure:
            assert await double(secure, b"a") == b"aa"


async def test_who_does_not_shake_hands_is_hung_up_on(tls: ssl.SSLContext) -> None:
    async with serving(tls=tls, times=Times(preface=0.2)) as rig:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", int(rig.address.rpartition(":")[2]))) as silent:
            silent.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(silent, 100), 20) == b""


async def test_a_client_certificate_may_be_wanted(tls: ssl.SSLContext, tmp_path: Path) -> None:
    known, stranger = identity(tmp_path, "known"), identity(tmp_path, "stranger")
    tls.load_verify_locations(str(known[0]))
    tls.verify_mode = ssl.CERT_REQUIRED
    async with serving(tls=tls) as rig:
        async with channel(rig, tmp_path / "server.pem", known) as welcome:
            assert await double(welcome, b"a") == b"aa"
        async with channel(rig, tmp_path / "server.pem", stranger) as refused:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await double(refused, b"a")
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_new_certificate_is_for_new_connections(tls: ssl.SSLContext, tmp_path: Path) -> None:
    old = tmp_path / "server.pem"
    new, key = identity(tmp_path, "renewed")
    async with serving(tls=tls) as rig, channel(rig, old) as before:
        assert await double(before, b"a") == b"aa"
        tls.load_cert_chain(new, key)
        async with channel(rig, new) as after:
            assert await double(after, b"b") == b"bb"
        assert await double(before, b"c") == b"cc"


async def test_a_stop_ends_connections_over_tls_too(tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with serving(tls=tls) as rig, channel(rig, tmp_path / "server.pem") as secure:
        await double(secure, b"a")
        await asyncio.wait_for(rig.engine.stop(5.0), 20)
        await until(lambda: any(isinstance(fact, Disconnected) for fact in rig.facts))
