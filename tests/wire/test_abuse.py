"""Floods: actions that are allowed, but not so often. Each ends its own connection, is counted, and nobody
else notices. What is counted how is in tests/http2/test_limits.py; here it is a server on a socket, as it is run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.http2.rig import block, data, of
from tests.support import insides
from tests.wire.abuse_rig import ASK, ask, site
from tests.wire.h2_rig import raw
from tests.wire.rig import Stream, cluster, put, tag_of, until
from xdsprism import CLUSTER, Server, Store
from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    CONTINUATION,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PRIORITY,
    Code,
)
from xdsprism.http2.limits import Limit, Limits
from xdsprism.token_bucket import Rate

CALM = Code.ENHANCE_YOUR_CALM
FEW_RESETS = Limits(resets=Rate(20, 0))  # where each takes us long
LARGE = [("x", "v" * 100)] * 130  # 32 bytes more for each, as lists are counted


@dataclass(frozen=True)
class Flood:
    """The nth part of what is said, and what comes of it."""

    limit: Limit
    say: Callable[[int], bytes]
    code: Code = CALM
    parts: int = 3_000
    limits: Limits | None = None


def odd(number: int) -> int:
    return 2 * number + 1


def on_one(frame: bytes) -> Callable[[int], bytes]:
    """A stream, and then the same on it again and again."""
    return lambda number: frame if number else ask(1)


def on_new(*said: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """A new stream each time, and something on it that makes us reset it."""
    return lambda number: ask(odd(number)) + b"".join(each(odd(number)) for each in said)


def begun(frame: bytes) -> Callable[[int], bytes]:
    """A header block that has begun, and does not end."""
    return lambda number: frame if number else frames.frame(HEADERS, 0, 1, b"")


def window(number: int) -> bytes:
    return frames.settings([(INITIAL_WINDOW_SIZE, 1 if number % 2 else 65_535)])


FLOODS = {
    # CVE 2023-44487
    "rapid reset": Flood(Limit.RESETS, on_new(lambda number: frames.reset(number, Code.CANCEL))),
    # CVE 2025-8671, whose many ways are all to make us send the reset
    "made to reset: an update of nothing": Flood(Limit.RESETS, on_new(lambda number: frames.window_update(number, 0))),
    "made to reset: priority of itself": Flood(
        Limit.RESETS, on_new(lambda number: frames.frame(PRIORITY, 0, number, frames.UINT32.pack(number) + b"\0"))
    ),
    "made to reset: a priority too short": Flood(
        Limit.RESETS, on_new(lambda number: frames.frame(PRIORITY, 0, number, b"\0\0\0\0"))
    ),
    "made to reset: headers again": Flood(Limit.RESETS, on_new(ask)),
    "made to reset: more than was announced": Flood(
        Limit.RESETS,
        lambda number: ask(odd(number), ("content-length", "1")) + data(odd(number), b"12"),
    ),
    "made to reset: data after the end": Flood(
        Limit.RESETS, lambda number: ask(odd(number), last=True) + data(odd(number), b"12")
    ),
    "made to reset: malformed headers": Flood(
        Limit.RESETS, lambda number: frames.headers(odd(number), block(ASK[1:]), last=False)
    ),
    "settings": Flood(Limit.SETTINGS, lambda _: frames.settings([])),
    "windows to and fro": Flood(Limit.SETTINGS, lambda number: window(number) if number else ask(1)),
    "pings": Flood(Limit.PINGS, lambda _: frames.ping(bytes(8))),
    "empty data": Flood(Limit.EMPTY_FRAMES, on_one(data(1))),
    "data of padding": Flood(Limit.EMPTY_FRAMES, on_one(frames.frame(0, PADDED, 1, b"\xff" + bytes(255)))),
    "unknown frames": Flood(Limit.NOISE, lambda _: frames.frame(0x77, 0, 0, b"what?")),
    "priorities": Flood(Limit.NOISE, lambda _: frames.frame(PRIORITY, 0, 7, b"\0\0\0\1\0")),
    "goodbyes": Flood(Limit.NOISE, lambda _: frames.goaway(0, Code.NO_ERROR)),
    "answers to nothing": Flood(Limit.NOISE, lambda _: frames.PING_ACK + bytes(8)),
    "window updates": Flood(Limit.WINDOW_UPDATES, lambda _: frames.window_update(0, 1)),
    "window updates of a stream": Flood(Limit.WINDOW_UPDATES, on_one(frames.window_update(1, 1))),
    # CVE 2024-27316
    "continuations": Flood(Limit.CONTINUATIONS, begun(frames.frame(CONTINUATION, 0, 1, b"\x82"))),
    "empty continuations": Flood(Limit.CONTINUATIONS, begun(frames.frame(CONTINUATION, 0, 1))),
    "large continuations": Flood(Limit.HEADER_LIST, begun(frames.frame(CONTINUATION, 0, 1, bytes(16_384)))),
    # One large field in the table, then its index again and again.
    "an HPACK bomb": Flood(
        Limit.HEADER_LIST,
        lambda number: frames.headers(
            odd(number), b"\x40\x01a\x7f\xd1\x1e" + b"v" * 4_000 + b"\xbe" * 4_000, last=False
        ),
    ),
    "an HPACK table that changes its size": Flood(
        Limit.HEADER_LIST,
        lambda number: frames.headers(odd(number), b"\x20" * 16_000 + block(ASK), last=False),
        Code.COMPRESSION_ERROR,
    ),
    # Of a list that is above the limit we hear all, and answer with a status: for a while.
    "headers too large": Flood(Limit.RESETS, lambda number: ask(odd(number), *LARGE), parts=50, limits=FEW_RESETS),
    "messages too large": Flood(
        Limit.RESETS, lambda number: ask(odd(number)) + data(odd(number), b"\0\xff\xff\xff\xff")
    ),
    "the window overflows": Flood(
        Limit.WINDOW_OVERFLOW, lambda _: frames.window_update(0, (1 << 31) - 1), Code.FLOW_CONTROL_ERROR
    ),
    "a setting makes a window overflow": Flood(
        Limit.WINDOW_OVERFLOW,
        lambda number: (
            frames.settings([(INITIAL_WINDOW_SIZE, (1 << 31) - 1)])
            if number
            else ask(1) + frames.window_update(1, 1 << 30)
        ),
        Code.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_its_connection_and_no_other(name: str) -> None:
    flood = FLOODS[name]
    async with site(flood.limits) as found, raw(found.address) as client:
        client.writer.write(b"".join(flood.say(number) for number in range(flood.parts)))
        (goaway,) = of(GOAWAY, await client.to_the_end())
        assert goaway.code is flood.code
        limited = found.limited()
        assert limited["connection"] == {flood.limit: 1}
        assert limited.keys() == {"connection"} or flood.limit is Limit.RESETS
        await found.is_unharmed()


async def test_no_flood_harms_another_client_of_grpcio_either(capfd: pytest.CaptureFixture[str]) -> None:
    """grpc has limits of its own. What counts is that the server goes on, serves others, and keeps nothing of it."""
    store = Store()
    async with Server(store, "127.0.0.1:0", engine="grpcio") as server, Stream(server.address) as bystander:
        put(store, cluster("watched", "0"))
        await bystander.ask(CLUSTER, ["watched"])
        before = {*insides.calls(server.hub)}
        for number, (name, flood) in enumerate(FLOODS.items(), 1):
            async with raw(server.address) as client:
                with suppress(ConnectionError):
                    await client.say(*[flood.say(part) for part in range(flood.parts)])
                put(store, cluster("watched", str(number)))
                response = await bystander.read()
                assert [tag_of(each.resource.value) for each in response.resources] == [str(number)], name
                await bystander.ack(response)
        await until(lambda: {*insides.calls(server.hub)} == before)
    assert "Traceback" not in capfd.readouterr().err
