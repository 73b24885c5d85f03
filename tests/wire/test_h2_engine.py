"""The h2 engine on sockets: real clients, and bad clients that do not harm others."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest
import uvloop

from tests.http2.rig import CALL, headers, of
from tests.support import insides
from tests.support.certificates import identity
from tests.wire.h2_rig import Rig, double, echo, raw, serving
from tests.wire.rig import PATIENCE, until
from xdsprism.errors import UsageError
from xdsprism.http2 import frames
from xdsprism.http2.codes import GOAWAY, INITIAL_WINDOW_SIZE, Code
from xdsprism.http2.facts import Connected, Disconnected
from xdsprism.http2.limits import Limit, Times
from xdsprism.server.engine_h2 import H2Engine

LARGE = 20_000_000


# -- real clients


async def test_calls_of_both_kinds() -> None:
    async with serving() as rig, rig.channel() as channel:
        assert await double(channel, b"ab") == b"abab"
        call = echo(channel)
        for number in range(3):
            await call.write(b"%d" % number)
            assert await call.read() == b"%d" % number
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert rig.calls[0].peer.address.startswith("ipv4:127.0.0.1:")
        assert rig.calls[0].closed == ""


async def test_large_messages_both_ways() -> None:
    async with serving() as rig, rig.channel(("grpc.max_send_message_length", -1)) as channel:
        answer = await double(channel, bytes(LARGE))
        assert len(answer) == 2 * LARGE


async def test_many_streams_on_one_connection() -> None:
    async with serving() as rig, rig.channel() as channel:
        calls = [echo(channel) for _ in range(300)]
        for number, call in enumerate(calls):
            await call.write(b"%d" % number)
        assert [await call.read() for call in calls] == [b"%d" % number for number in range(300)]
        assert len([fact for fact in rig.facts if isinstance(fact, Connected)]) == 1


async def test_gzip_from_a_real_client() -> None:
    async with serving() as rig, rig.channel() as channel:
        method = channel.unary_unary("/test/Double", None, None)
        assert await method(bytes(5_000), compression=grpc.Compression.Gzip, timeout=PATIENCE) == bytes(10_000)


async def test_unknown_methods_and_too_large_messages_end_their_calls() -> None:
    async with serving(receive_bytes=1_000) as rig, rig.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/no/Such", None, None)(b"", timeout=PATIENCE)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await double(channel, bytes(1_001))
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert rig.limits() == [Limit.MESSAGE_SIZE]
        assert await double(channel, b"a") == b"aa"


async def test_a_deadline() -> None:
    async with serving() as rig, rig.channel() as channel:
        call = echo(channel, timeout=0.2)
        await call.write(b"a")
        assert await call.read() == b"a"
        assert await asyncio.wait_for(call.code(), PATIENCE) is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: rig.calls[0].closed is not None)


async def test_a_cancelled_call_is_closed_and_its_connection_goes_on() -> None:
    async with serving() as rig, rig.channel() as channel:
        call = echo(channel)
        await call.write(b"a")
        await call.read()
        call.cancel()
        await until(lambda: rig.calls[0].closed is not None)
        assert await double(channel, b"a") == b"aa"


async def test_a_client_that_does_not_read_holds_one_message_and_not_the_rest() -> None:
    # OPS-6
    async with serving() as rig, raw(rig.address, settings=((INITIAL_WINDOW_SIZE, (1 << 31) - 1),)) as client:
        await client.say(frames.window_update(0, 1 << 30), headers(1, CALL))
        await until(lambda: rig.calls)
        call = rig.calls[0]
        call.say(*[bytes(1_000_000) for _ in range(50)])
        before = 50
        while len(call.outbox) < before:  # until the socket is full
            before = len(call.outbox)
            await asyncio.sleep(0.05)
        assert before > 30
        assert await rig.serves()
        received = 0
        while received < 50 * 1_000_005:
            received += len(await asyncio.wait_for(client.reader.read(1 << 20), PATIENCE))
        assert call.outbox == []


async def test_a_wake_from_elsewhere_is_written_without_delay() -> None:
    async with serving() as rig, rig.channel() as channel:
        call = echo(channel)
        await call.write(b"first")
        await call.read()
        rig.calls[0].say(b"one", b"two")
        assert [await asyncio.wait_for(call.read(), PATIENCE) for _ in range(2)] == [b"one", b"two"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_no_loop_delays_small_writes(run: Callable[..., None], secure: bool, tmp_path: Path) -> None:
    """With Nagle's algorithm, an update may take 40 ms."""
    tls = None
    if secure:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*identity(tmp_path, "server"))

    async def check() -> None:
        trusting = None
        if secure:
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname = False
            trusting.verify_mode = ssl.CERT_NONE
            trusting.set_alpn_protocols(["h2"])
        async with serving(tls=tls) as rig:
            host, _, port = rig.address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
            await until(lambda: bool(insides.connections(rig.engine)))
            (connection,) = insides.connections(rig.engine)
            made = connection._transport.get_extra_info("socket")  # noqa: SLF001 # an option of our end of the socket, which only the kernel acts on
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.transport.abort()

    run(check())


# -- addresses


async def test_an_address_in_use_says_so() -> None:
    async with serving() as rig:
        other = H2Engine([], receive_bytes=1)
        with pytest.raises(UsageError, match="in use"):
            await other.start(rig.address)
        with pytest.raises(UsageError, match="HOST:PORT"):
            await other.start("nowhere")
        with pytest.raises(UsageError, match="HOST:PORT"):
            await other.start("127.0.0.1:70000")


async def test_every_address_of_a_host_has_one_port() -> None:
    rig = Rig()
    rig.address = await rig.engine.start("localhost:0")
    try:
        assert await rig.serves()
    finally:
        await rig.engine.stop(0.0)


# -- the end


async def test_a_stop_ends_streams_in_good_order_and_refuses_new_ones() -> None:
    async with serving() as rig, rig.channel() as channel:
        call = echo(channel)
        await call.write(b"a")
        await call.read()
        await rig.engine.stop(PATIENCE)
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert rig.calls[0].closed == ""
        with pytest.raises(OSError):  # noqa: PT011
            await asyncio.open_connection("127.0.0.1", int(rig.address.rpartition(":")[2]))


async def test_a_stop_does_not_wait_for_clients_that_do_not_read() -> None:
    async with serving(times=Times(linger=0.1, notice=0.1)) as rig, raw(rig.address) as client:
        await client.say(headers(1, CALL))
        await until(lambda: rig.calls)
        rig.calls[0].say(bytes(10_000_000))
        await until(lambda: not rig.calls[0].outbox)
        await asyncio.wait_for(rig.engine.stop(0.2), PATIENCE)
        assert rig.calls[0].closed is not None


async def test_an_old_connection_is_left_for_a_new_one_and_no_call_fails() -> None:
    async with serving(times=Times(age=0.3, age_grace=5.0)) as rig, rig.channel() as channel:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while len([fact for fact in rig.facts if isinstance(fact, Connected)]) < 3:
            assert await double(channel, b"a") == b"aa"
            assert loop.time() < begin + PATIENCE
        ended = [fact for fact in rig.facts if isinstance(fact, Disconnected)]
        assert {fact.code for fact in ended} == {Code.NO_ERROR}


async def test_connections_of_one_age_are_drained_at_different_times() -> None:
    # OPS-9
    async with serving(times=Times(age=1_000.0)) as rig, AsyncExitStack() as stack:
        begin = asyncio.get_running_loop().time()
        for _ in range(20):
            await stack.enter_async_context(raw(rig.address))
        await until(lambda: sum(isinstance(fact, Connected) for fact in rig.facts) == 20)
        lives = [insides.calls_of(each).rpcs.life for each in insides.connections(rig.engine)]
        ends = [life._drain_at - begin for life in lives]  # noqa: SLF001 # or the test would take 15 minutes
        assert 899 < min(ends) < max(ends) < 1_100 + PATIENCE
        assert max(ends) - min(ends) > PATIENCE


async def test_a_dead_peer_is_found_out() -> None:
    times = Times(keepalive=0.2, keepalive_timeout=0.2, linger=0.1)
    async with serving(times=times) as rig, raw(rig.address) as client:
        await client.say(headers(1, CALL))
        (goaway,) = of(GOAWAY, await client.to_the_end())
        assert goaway.code is Code.NO_ERROR
        await until(lambda: any(isinstance(fact, Disconnected) for fact in rig.facts))
        assert rig.limits() == [Limit.KEEPALIVE]
        assert rig.calls[0].closed


async def test_a_client_that_answers_pings_stays_connected() -> None:
    async with serving(times=Times(keepalive=0.1, keepalive_timeout=5.0)) as rig, rig.channel() as channel:
        call = echo(channel)
        await call.write(b"a")
        await call.read()
        await asyncio.sleep(1.0)
        await call.write(b"b")
        assert await call.read() == b"b"
        assert rig.limits() == []


# -- who leaves, or should never have come; what is too much is in test_abuse.py

HASTE = Times(preface=0.2)


async def test_http_1_is_hung_up_on() -> None:
    async with serving(times=HASTE) as rig, raw(rig.address, greet=False) as client:
        await client.say(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        (goaway,) = of(GOAWAY, await client.to_the_end())
        assert goaway.code is Code.PROTOCOL_ERROR


async def test_a_client_that_vanishes_leaves_nothing_behind() -> None:
    async with serving() as rig:
        async with raw(rig.address) as client:
            await client.say(headers(1, CALL), headers(3, CALL))
            await until(lambda: len(rig.calls) == 2)
            linger = struct.pack("ii", 1, 0)
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await until(lambda: not insides.connections(rig.engine))
        assert all(call.closed is not None for call in rig.calls)


async def test_a_connection_that_fails_in_a_turn_does_not_take_others_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10
    async with serving() as rig, rig.channel() as one, rig.channel() as two:
        calls = []
        for channel in (one, two):
            calls.append(echo(channel))
            await calls[-1].write(b"a")
            await calls[-1].read()
        (broken,) = (
            insides.calls_of(each)
            for each in insides.connections(rig.engine)
            if each._peer == rig.calls[0].peer.address  # noqa: SLF001 # nothing else tells which connection is whose
        )
        monkeypatch.setattr(broken, "woken", 1)  # as a bug would
        monkeypatch.setattr(rig.calls[0], "wake", broken.on_wake)
        for call in rig.calls:
            call.say(b"news")
        assert await asyncio.wait_for(calls[1].read(), PATIENCE) == b"news"
        assert "a connection failed" in caplog.text
        await until(lambda: rig.calls[0].closed is not None)
