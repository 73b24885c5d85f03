"""Abuses by one stream: it ends, and its connection and all others go on. And clients that do not read."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.http2.rig import data, message, of
from tests.support import insides
from tests.wire.abuse_rig import ASK, Site, alive, ask, hear, site
from tests.wire.h2_rig import Raw, raw
from tests.wire.rig import PATIENCE, cluster, put, until
from xdsprism import CLUSTER
from xdsprism.http2 import frames
from xdsprism.http2.codes import DATA, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, RST_STREAM, Code
from xdsprism.http2.limits import Limit, Limits
from xdsprism.http2.stream import Stream
from xdsprism.token_bucket import Rate

EXHAUSTED = b"grpc-status\x018"
MEGABYTE = 1024 * 1024
UNFINISHED = message(bytes(9_000))[:8_000]


def data_of(number: int, name: str) -> bytes:
    """A subscription."""
    asked = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=[name])
    return data(number, message(asked.SerializeToString()))


@dataclass(frozen=True)
class Abuse:
    """What is said on some streams, and how the last of them ends."""

    limit: Limit
    say: Callable[[], bytes]
    ends: bytes | Code  # what is in the trailers, or the code of the reset
    limits: Limits = field(default_factory=Limits)
    receive_bytes: int = 64 * MEGABYTE


def bomb() -> bytes:
    """Four kilobytes that become four megabytes."""
    return ask(1, ("grpc-encoding", "gzip")) + data(1, message(gzip.compress(bytes(4 * MEGABYTE)), flag=1))


def many_unfinished(last: int) -> bytes:
    return b"".join(ask(number) + data(number, UNFINISHED) for number in range(1, last + 1, 2))


ABUSES = {
    "one stream more than may be": Abuse(
        Limit.STREAMS, lambda: b"".join(ask(2 * number + 1) for number in range(1_025)), Code.REFUSED_STREAM
    ),
    "a header list too large": Abuse(Limit.HEADER_LIST, lambda: ask(1, *[("x", "v" * 30)] * 300), EXHAUSTED),
    "a message that says it is too large": Abuse(
        Limit.MESSAGE_SIZE, lambda: ask(1) + data(1, b"\0\xff\xff\xff\xff"), EXHAUSTED
    ),
    "a message that is too large once it is inflated": Abuse(
        Limit.MESSAGE_SIZE, bomb, EXHAUSTED, receive_bytes=MEGABYTE
    ),
    "many messages that are not finished": Abuse(
        Limit.UNFINISHED, lambda: many_unfinished(5), EXHAUSTED, Limits(unfinished_bytes=10_000), 10_000
    ),
    "a stream's window overflows": Abuse(
        Limit.WINDOW_OVERFLOW, lambda: ask(1) + frames.window_update(1, (1 << 31) - 1), Code.FLOW_CONTROL_ERROR
    ),
}


async def still_speaks(client: Raw) -> None:
    await client.say(frames.ping(b"still on"))
    assert any(frame.payload == b"still on" for frame in of(PING, await hear(client, PING)))


@pytest.mark.parametrize("name", ABUSES)
async def test_a_stream_ends_and_its_connection_goes_on(name: str) -> None:
    abuse = ABUSES[name]
    async with site(abuse.limits, receive_bytes=abuse.receive_bytes) as found, raw(found.address) as client:
        await client.say(abuse.say())
        if isinstance(abuse.ends, Code):
            (reset,) = of(RST_STREAM, await hear(client, RST_STREAM))
            assert reset.code is abuse.ends
        else:
            assert abuse.ends in of(HEADERS, await hear(client, HEADERS))[-1].payload
        assert found.limited() == {"stream": {abuse.limit: 1}}
        await still_speaks(client)
        await found.is_unharmed()


async def test_unfinished_messages_are_bounded_over_all_connections() -> None:
    """Each may have a little, so that nobody is kept out by what others hold."""
    limits = Limits(all_unfinished_bytes=150_000)
    part = message(bytes(200_000))
    async with site(limits) as found, raw(found.address) as one, raw(found.address) as two, raw(found.address) as three:
        for client in (one, two):
            await client.say(ask(1), *[data(1, part[at : at + 10_000]) for at in range(0, 70_000, 10_000)])
            await still_speaks(client)
        assert found.limited() == {}
        await three.say(ask(1), *[data(1, part[at : at + 10_000]) for at in range(0, 60_000, 10_000)])
        await still_speaks(three)
        assert found.limited() == {}
        await three.say(data(1, bytes(10_000)))
        assert EXHAUSTED in of(HEADERS, await hear(three, HEADERS))[-1].payload
        assert found.limited() == {"stream": {Limit.UNFINISHED: 1}}


async def test_a_message_that_is_never_finished_ends_its_stream() -> None:
    async with site() as found:
        found.hurry()
        async with raw(found.address) as client:
            await client.say(ask(1), data(1, UNFINISHED))
            assert EXHAUSTED in of(HEADERS, await hear(client, HEADERS))[-1].payload
            assert found.limited() == {"stream": {Limit.STALLED: 1}}
            await still_speaks(client)


# -- windows


async def test_a_client_that_never_opens_a_window_loses_the_stream() -> None:
    async with site() as found:
        found.hurry()
        async with raw(found.address, settings=((INITIAL_WINDOW_SIZE, 0),)) as client:
            await client.say(ask(1), data_of(1, "watched"))
            (reset,) = of(RST_STREAM, await hear(client, RST_STREAM))
            assert reset.code is Code.ENHANCE_YOUR_CALM
            assert found.limited() == {"stream": {Limit.STALLED: 1}}
            await still_speaks(client)
            await found.is_unharmed()


async def test_a_client_that_opens_windows_byte_by_byte_is_disconnected() -> None:
    limits = Limits(tiny_frames=Rate(50, 0))
    async with site(limits) as found, raw(found.address, settings=((INITIAL_WINDOW_SIZE, 1),)) as client:
        put(found.server.store, cluster("large", size=5_000))
        await client.say(ask(1), data_of(1, "large"))
        while not found.limited():
            await client.say(frames.window_update(1, 1))
            await asyncio.sleep(0)
        heard = await client.to_the_end()
        assert of(GOAWAY, heard)[0].code is Code.ENHANCE_YOUR_CALM
        assert len(of(DATA, heard)) <= 51
        assert found.limited() == {"connection": {Limit.TINY_WINDOWS: 1}}
        await found.is_unharmed()


async def test_streams_that_waited_for_a_window_of_the_connection_are_forgotten_with_it() -> None:
    """It stays closed all the time, so that their turn never comes."""
    limits = Limits(resets=Rate(100_000, 0))  # or it would take a while
    numbers = range(3, 603, 2)
    async with site(limits) as found, raw(found.address) as client:
        put(found.server.store, cluster("large", size=100_000))
        await client.say(ask(1), data_of(1, "large"))
        await hear(client, DATA)
        before = alive()[Stream]
        for _ in range(2):
            await client.say(*[ask(number) + data_of(number, "large") for number in numbers])
            await still_speaks(client)
            assert alive()[Stream] == before + len(numbers)
            await client.say(*[frames.reset(number, Code.CANCEL) for number in numbers])
            await still_speaks(client)
            assert alive()[Stream] == before
            numbers = range(603, 1_203, 2)


# -- those who do not read


async def deaf(found: Site, said: bytes, flood: Callable[[int], bytes]) -> None:
    """Send until the server has had enough, and read nothing of what it answers."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        host, _, port = found.address.rpartition(":")
        await loop.sock_connect(client, (host, int(port)))
        await loop.sock_sendall(client, PREFACE + frames.settings([]) + said)
        number = 0
        while not found.limited() and number < 2_000:
            await asyncio.wait_for(loop.sock_sendall(client, flood(number)), PATIENCE)
            number += 1
        await until(lambda: found.connections() == 1)


async def test_a_client_that_provokes_answers_and_does_not_read_them_is_disconnected() -> None:
    limits = Limits(pings=Rate(10_000_000, 0), unread_bytes=50_000)
    async with site(limits) as found:
        await deaf(found, b"", lambda _: frames.ping(bytes(8)) * 5_000)
        assert found.limited() == {"connection": {Limit.UNREAD: 1}}


async def test_a_client_that_does_not_read_statuses_is_disconnected_too() -> None:
    """A few bytes of ours, by the table of HPACK, are answered with kilobytes, and no stream stays open."""
    path = (":path", "/" + "%" * 900)
    fields = [path if name == ":path" else (name, value) for name, value in ASK]
    literal = b"".join(
        b"\x40" + bytes((len(name),)) + name.encode() + _length(value) + value.encode() for name, value in fields
    )
    indexes = bytes(0x80 | 62 + at for at in reversed(range(len(fields))))

    def calls(number: int) -> bytes:
        first = 1_000 * number + 3
        return b"".join(frames.headers(each, indexes, last=True) for each in range(first, first + 1_000, 2))

    async with site(Limits(streams=100_000)) as found:  # those of one read are open before any is answered
        await deaf(found, frames.headers(1, literal, last=True), calls)
        assert found.limited() == {"connection": {Limit.UNREAD: 1}}


def _length(value: str) -> bytes:
    size = len(value)
    return bytes((size,)) if size < 127 else b"\x7f" + bytes(((size - 127) & 127 | 128, (size - 127) >> 7))


async def test_a_client_that_does_not_read_a_large_answer_delays_no_other() -> None:
    """OPS-6: one message waits, and what replaces it is not even made."""
    wide = ((INITIAL_WINDOW_SIZE, (1 << 31) - 1),)
    async with site() as found, raw(found.address, settings=wide) as client:
        put(found.server.store, cluster("large", "0", 3_000_000))
        await client.say(frames.window_update(0, 1 << 30), ask(1), data_of(1, "large"))
        for number in range(30):
            put(found.server.store, cluster("large", str(number), 3_000_000))
            await found.is_unharmed()
        connections = insides.connections(found.engine)
        (connection,) = [each for each in connections if each._is_writing_paused]  # noqa: SLF001 # it alone waits
        streams = insides.calls_of(connection).rpcs.connection.streams
        waiting = sum(len(piece) for each in streams.values() for piece in each.queue)
        written = connection._transport.get_write_buffer_size()  # noqa: SLF001 # memory that nobody else counts
        assert waiting + written < 4_000_000
        del connection, connections, streams  # they must be gone in the end
        assert found.limited() == {}
