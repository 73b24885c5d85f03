"""How the h2 engine drains connections: no sent message is lost."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.http2.rig import CALL, bodies, headers, of, parse
from tests.support import insides
from tests.support.certificates import identity
from tests.wire.h2_rig import Raw, Rig, narrow, raw, serving
from tests.wire.rig import PATIENCE, until
from xdsprism.http2 import frames
from xdsprism.http2.codes import END_STREAM, GOAWAY, HEADERS
from xdsprism.http2.limits import Times

LARGE = 5_000_000  # bytes


def both_ends(folder: Path) -> tuple[ssl.SSLContext, dict[str, Any]]:
    """TLS for a server, and what its client is to say of it."""
    certificate, key = identity(folder, "server")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(certificate))
    client.set_alpn_protocols(["h2"])
    return server, {"ssl": client, "server_hostname": "localhost"}


async def spoken_to(rig: Rig, client: Raw) -> None:
    """All of a large message is said, with wide windows, and most of it is still with us, or on its way."""
    await client.say(frames.window_update(0, 1 << 30), headers(1, CALL))
    await until(lambda: rig.calls)
    rig.calls[0].say(bytes(LARGE))
    await until(lambda: not rig.calls[0].outbox)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("pace", [0.0, 0.1], ids=["at once", "slowly"])
async def test_a_client_that_still_sends_gets_the_last_frames(pace: float, secure: bool, tmp_path: Path) -> None:
    """What lies unread when a socket closes makes the kernel drop what was not taken yet."""
    times = Times(notice=0.1, linger=0.5)
    tls, client_tls = both_ends(tmp_path) if secure else (None, {})
    async with serving(times=times, tls=tls) as rig, narrow(rig.address, client_tls) as client:
        await spoken_to(rig, client)
        stopping = asyncio.create_task(rig.engine.stop(PATIENCE))
        received = b""
        while rig.calls[0].closed is None:  # until what is left is in the socket of the server
            received += await asyncio.wait_for(client.reader.read(100_000), PATIENCE)
        (connection,) = insides.connections(rig.engine)
        await until(lambda: connection._is_closing)  # noqa: SLF001 # the moment between the two ends of a connection
        while not client.reader.at_eof():
            await client.say(frames.ping(bytes(8)), frames.window_update(0, 1))
            await asyncio.sleep(pace)
            received += await asyncio.wait_for(client.reader.read(1 << 20), PATIENCE)
        client.writer.close()
        await asyncio.wait_for(stopping, PATIENCE)
    found = parse(received)
    assert len(bodies(found)) == 5 + LARGE
    assert [frame.flags & END_STREAM for frame in of(HEADERS, found)] == [0, END_STREAM]
    assert len(of(GOAWAY, found)) == 2


async def test_a_client_that_does_not_close_has_the_linger_time() -> None:
    times = Times(notice=0.1, linger=0.1)
    async with serving(times=times) as rig, raw(rig.address) as client:
        await client.say(headers(1, CALL))
        await until(lambda: rig.calls)
        await asyncio.wait_for(rig.engine.stop(1_000), PATIENCE)


async def test_a_client_that_goes_on_sending_has_until_the_grace_ends() -> None:
    times = Times(notice=0.1, linger=0.1)
    async with serving(times=times) as rig, raw(rig.address) as client:
        await client.say(headers(1, CALL))
        await until(lambda: rig.calls)
        stopping = asyncio.create_task(rig.engine.stop(1.0))
        async with asyncio.timeout(PATIENCE):
            while not stopping.done():
                client.writer.write(frames.ping(bytes(8)))
                await asyncio.sleep(0.02)
        await stopping
