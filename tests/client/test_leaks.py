"""A client that has done a lot is as small as one that has done a little.

Each test does something often. After the first turns, which fill caches, memory may not grow any more. Complaints of
asyncio ("Task exception was never retrieved", "coroutine was never awaited") are failures.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.doors import boot, serving
from tests.client.rig import accept, both, cluster, endpoint, exchange, follow, quiet, status, talk, timeless, within
from tests.client.soundness import NOTHING, remains, sound
from tests.wire.rig import PATIENCE, put, until
from xdsprism.core.model.backoff import Backoff
from xdsprism.core.watch import stream_lifecycle

LITTLE = 40.0  # bytes that a turn may leave behind: less than any object


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Pytest keeps every line of them."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


async def _fail() -> None:
    raise LookupError


async def _leave_a_failed_task() -> None:
    asyncio.ensure_future(_fail())  # noqa: RUF006 # that is the point
    await asyncio.sleep(0)


async def _leave_a_task() -> None:
    left.append(asyncio.ensure_future(asyncio.Event().wait()))


async def _leave_a_coroutine() -> None:
    _fail()


left: list[Any] = []


@pytest.mark.parametrize("leave", [_leave_a_failed_task, _leave_a_task, _leave_a_coroutine])
@timeless
async def test_the_check_itself_sees_what_is_left(leave: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(AssertionError):
        async with sound():
            await leave()
    while left:
        left.pop().cancel()


async def growth(turn: Callable[[int], Awaitable[None]], times: int) -> float:
    """How many bytes each turn leaves behind; what is said of them where they are too many."""
    for number in range(times // 5):
        await turn(number)
    gc.collect()
    tracemalloc.start()
    try:
        await turn(0)
        gc.collect()
        before = tracemalloc.take_snapshot()
        start, _ = tracemalloc.get_traced_memory()
        for number in range(times):
            await turn(number)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        grown = (after - start) / times
        if grown >= LITTLE:
            print(*tracemalloc.take_snapshot().compare_to(before, "lineno")[:5], sep="\n")
    finally:
        tracemalloc.stop()
    return grown


def living(message: Any, seconds: int = 3600) -> pb.Resource:
    made = pb.Resource(name=message.cluster_name, version="1")
    made.resource.Pack(message)
    made.ttl.seconds = seconds
    return made


@both
@timeless
async def test_a_thousand_watches_that_came_and_went_leave_nothing(delta: bool) -> None:
    # CLI-2, TTL-4
    async with sound(), talk(delta=delta) as (client, peer):
        kept = follow(client, xp.ENDPOINT, "kept")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("kept"))

        async def turn(number: int) -> None:
            name, params = f"e{number}", [None, {"env": str(number)}][number % 2]
            watched = follow(client, xp.ENDPOINT, name, params=params)
            await stream.request()
            await exchange(stream, xp.ENDPOINT, living(endpoint(name)), nonce=str(number))
            assert status(await watched.next()) == ("resource", name)
            await watched.close()
            await quiet(0.01)
            assert len(stream.pending()) == 1

        assert await growth(turn, 1000) < LITTLE
        assert [entry.name for entry in client.subscriber.entries()] == ["kept"]
        await kept.close()
        await quiet()
        assert remains(client) == NOTHING


@both
@timeless
async def test_watches_that_never_got_an_answer_leave_nothing(delta: bool) -> None:
    # CLI-11
    async with sound(), talk(delta=delta) as (client, peer):
        kept = follow(client, xp.ENDPOINT, "kept")
        stream, _ = await accept(peer)

        async def turn(number: int) -> None:
            watched = follow(client, xp.ENDPOINT, f"e{number}")
            if number % 2:
                assert status(await watched.next()) == ("error", "NOT_FOUND")
            else:
                await quiet(1)
            await watched.close()
            await quiet(0.01)
            stream.pending()

        assert await growth(turn, 500) < LITTLE
        await kept.close()
        await quiet()
        assert remains(client) == NOTHING


@both
@timeless
async def test_two_hundred_reconnects_leave_nothing(delta: bool) -> None:
    # CLI-5, CLI-6, CLI-16, CLI-17
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a", "b")

        async def turn(number: int) -> None:
            if number % 3 == 0:
                peer.refuse()
            stream, _ = await accept(peer)
            if number % 2:
                await exchange(stream, xp.CLUSTER, cluster("a", str(number)), cluster("b", "1"), version=str(number))
            stream.end("UNAVAILABLE", f"end {number}")
            await stream.cancelled.wait()
            watched.seen()

        assert await growth(turn, 400) < 300  # what a stream is made of takes thousands
        assert len(asyncio.all_tasks()) <= 8
        await watched.close()
        await quiet()
        assert remains(client) == NOTHING


@both
@timeless
async def test_loops_left_by_break_or_by_an_exception_leave_nothing(delta: bool) -> None:
    # CLI-2, CLI-18
    async with sound(), talk(delta=delta) as (client, peer):
        kept = follow(client, xp.ENDPOINT, "e")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("e"))

        async def leave(number: int) -> None:
            async for update in client.watch(xp.ENDPOINT, "e"):
                if number % 2:
                    raise LookupError(update.name)
                break

        async def turn(number: int) -> None:
            if number % 2:
                with pytest.raises(LookupError):
                    await leave(number)
            else:
                await leave(number)
            await quiet(0.01)

        assert await growth(turn, 500) < LITTLE
        (entry,) = client.subscriber.entries()
        assert len(entry.watches) == 1
        await kept.close()
        await quiet()
        assert remains(client) == NOTHING


@both
@timeless
async def test_gets_that_are_cancelled_or_not_answered_in_time_leave_nothing(delta: bool) -> None:
    # CLI-2
    async with sound(), talk(delta=delta) as (client, peer):
        kept = follow(client, xp.ENDPOINT, "kept")
        stream, _ = await accept(peer)

        async def turn(number: int) -> None:
            asked = asyncio.ensure_future(client.get(xp.ENDPOINT, f"e{number}", timeout=5))
            if number % 3 == 0:
                asked.cancel()  # before it has begun
            elif number % 3 == 1:
                await quiet(0.01)
                asked.cancel()
            await asyncio.wait([asked])
            if not asked.cancelled():
                assert str(asked.exception()).startswith("DEADLINE_EXCEEDED")
            await quiet(0.01)
            stream.pending()

        assert await growth(turn, 500) < LITTLE
        await kept.close()
        await quiet()
        assert remains(client) == NOTHING


@both
@timeless
async def test_a_thousand_refusals_leave_nothing(delta: bool) -> None:
    # NAK-15, NAK-23
    async with sound(), talk(delta=delta, validators={xp.ENDPOINT: lambda _: ["no"]}) as (client, peer):
        watched = follow(client, xp.ENDPOINT, "e")
        stream, _ = await accept(peer)

        async def turn(number: int) -> None:
            nack = await exchange(
                stream, xp.ENDPOINT, endpoint("e", str(number)), version=str(number), nonce=str(number)
            )
            assert nack.error_detail.code == 3
            await quiet(2)  # what comes right after a NACK is answered late
            watched.seen()

        assert await growth(turn, 1000) < LITTLE
        await watched.close()
        await quiet()
        assert remains(client) == NOTHING


@timeless
async def test_members_of_a_wildcard_that_came_and_went_leave_nothing() -> None:
    # CLI-15
    async with sound(), talk(delta=True, fail_on_data_errors=True) as (client, peer):
        watched = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)

        async def turn(number: int) -> None:
            name = f"c{number}"
            await exchange(stream, xp.CLUSTER, cluster(name))
            await exchange(stream, xp.CLUSTER, removed=[name])
            await quiet(0.01)
            assert len(watched.seen()) == 2

        assert await growth(turn, 500) < LITTLE
        assert [entry.name for entry in client.subscriber.entries()] == ["*"]
        await watched.close()
        await quiet()
        assert remains(client) == NOTHING


@timeless
async def test_a_time_to_live_that_is_renewed_over_and_over_leaves_one_timer() -> None:
    # TTL-4
    async with sound(), talk(delta=True) as (client, peer):
        watched = follow(client, xp.ENDPOINT, "e")
        stream, _ = await accept(peer)
        heartbeat = pb.Resource(name="e")
        heartbeat.ttl.seconds = 3600

        async def turn(number: int) -> None:
            await exchange(stream, xp.ENDPOINT, living(endpoint("e")) if number % 2 else heartbeat)
            await quiet(1)

        assert await growth(turn, 1000) < LITTLE
        assert len(remains(client)["expiries"]) == 1
        await watched.close()
        await quiet()
        assert remains(client) == NOTHING


# -- over real connections


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock does not jump here, so pauses are short."""
    monkeypatch.setattr(stream_lifecycle, "Backoff", partial(Backoff, first=0.001, ceiling=0.002))


@pytest.mark.usefixtures("in_no_time")
async def test_two_hundred_streams_over_a_connection_leave_nothing() -> None:
    # CLI-16
    ended = 0

    async def answer_and_go(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        nonlocal ended
        await anext(aiter(requests))
        response = pb.DiscoveryResponse(type_url=xp.CLUSTER, nonce="1", version_info="1")
        response.resources.add().Pack(cluster("a", str(ended)))
        yield response.SerializeToString()
        ended += 1

    async with serving(answer_and_go) as address, sound(), xp.Client(boot(address)) as client:
        watched = follow(client, xp.CLUSTER, "a")
        base = len(asyncio.all_tasks())

        async def turn(_number: int) -> None:
            until_then = ended + 1
            await until(lambda: ended >= until_then)
            watched.seen()

        assert await growth(turn, 200) < 2_000  # what a call is made of takes more
        assert len(asyncio.all_tasks()) <= base + 10
        await watched.close()


async def test_clients_that_came_and_went_leave_nothing() -> None:
    # CLI-24
    store = xp.Store()
    put(store, cluster("a", "1"))
    # Of grpcio, which has the memory of connections elsewhere: a client's are closed some time after it.
    async with xp.Server(store, listen="127.0.0.1:0", engine="grpcio") as running, sound():

        async def turn(number: int) -> None:
            async with xp.Client(boot(running.address), delta=bool(number % 2)) as client:
                assert await within(PATIENCE, client.get(xp.CLUSTER, "a")) == cluster("a", "1")

        assert await growth(turn, 40) < 5_000
        await until(lambda: not running.hub.connected())
