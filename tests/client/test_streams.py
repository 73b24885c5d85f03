"""Streams that end, streams that can't be opened, and the client's own end."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

import xdsprism as xp
from tests.client.rig import (
    BOOT,
    accept,
    bootstrap,
    both,
    clock,
    cluster,
    endpoint,
    exchange,
    follow,
    names,
    quiet,
    server,
    status,
    talk,
    timeless,
)
from xdsprism.client.transport import ByteStream
from xdsprism.testing import ScriptedPeer

# -- ends


@both
@pytest.mark.parametrize("code", ["OK", "UNAVAILABLE", "INTERNAL"])
@timeless
async def test_a_stream_that_ends_after_a_response_is_followed_by_another_at_once(delta, code):  # CLI-16
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet(5)
        ended_at = clock()
        stream.end(code, "max age")
        again, _ = await accept(peer)
        assert clock() == ended_at
        assert [status(update) for update in watcher.seen()] == [("resource", "a")]
        await exchange(again, xp.CLUSTER, cluster("b"), cluster("a"), version="2")
        assert status(await watcher.next()) == ("resource", "b")


@both
@timeless
async def test_streams_that_last_some_seconds_are_followed_by_another_at_once_each_time(delta):  # CLI-16
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        for version in ("1", "2", "3"):
            stream, _ = await accept(peer)
            await exchange(stream, xp.CLUSTER, cluster("a"), version=version)
            await quiet(5)
            ended_at = clock()
            stream.end()
        await accept(peer)
        assert clock() == ended_at
        assert {status(update) for update in watcher.seen()} == {("resource", "a")}


@both
@timeless
async def test_a_response_of_an_earlier_stream_does_not_excuse_a_later_one(delta):  # CLI-16, CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        stream.end()
        again, _ = await accept(peer)
        again.end("UNAVAILABLE", "no more")
        update = await watcher.next()
        assert (status(update), update.ambient_error.message) == (("ambient", "UNAVAILABLE"), "no more")


@both
@timeless
async def test_a_stream_that_ends_before_any_response_is_an_error_for_every_watcher(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        held = follow(client, xp.CLUSTER, "a")
        lacking = follow(client, xp.ENDPOINT, "e")
        everything = follow(client, xp.LISTENER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await held.next()
        stream.end()
        again, _ = await accept(peer)
        again.end("PERMISSION_DENIED", "not you")
        assert status(await held.next()) == ("ambient", "PERMISSION_DENIED")
        assert status(await lacking.next()) == ("error", "PERMISSION_DENIED")
        assert status(await everything.next()) == ("error", "PERMISSION_DENIED")


@both
@timeless
async def test_a_stream_that_ends_in_good_order_without_a_response_is_an_error_too(delta):  # CLI-17, CLI-22
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.end("OK", "")
        assert status(await watcher.next()) == ("error", "UNAVAILABLE")


@both
@timeless
async def test_a_response_of_an_unrequested_type_does_not_count_as_a_response(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.ENDPOINT, endpoint("e"))
        stream.end("UNAVAILABLE", "gone")
        assert status(await watcher.next()) == ("error", "UNAVAILABLE")


# -- backoff


class Timed(ScriptedPeer):
    """A server that is down, and the times at which it was tried."""

    def __init__(self) -> None:
        super().__init__()
        self.go_down()
        self.times: list[float] = []

    async def open(self, path: str) -> ByteStream:
        self.times.append(clock())
        return await super().open(path)


def gaps(times: list[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(times)]


@both
@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.5, 1.0), (0.999, 1.2)])
@timeless
async def test_the_wait_between_attempts_grows_and_has_jitter(delta, chance, factor):  # CLI-17
    peer = Timed()
    async with xp.Client(BOOT, connect=peer.connect, delta=delta, chance=lambda: chance) as client:
        follow(client, xp.CLUSTER, "a")
        await quiet(20)
        assert gaps(peer.times)[:4] == pytest.approx([factor * wait for wait in (1, 1.6, 2.56, 4.096)], rel=0.001)


@timeless
async def test_the_wait_has_a_ceiling():  # CLI-17
    peer = Timed()
    async with xp.Client(BOOT, connect=peer.connect, chance=lambda: 0.5) as client:
        follow(client, xp.CLUSTER, "a")
        await quiet(1000)
        assert gaps(peer.times)[-3:] == pytest.approx([120, 120, 120])


@both
@timeless
async def test_the_first_response_resets_the_wait_and_a_mere_connection_does_not(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        times = []
        for _ in range(3):
            stream, _ = await accept(peer)
            times.append(clock())
            stream.end("UNAVAILABLE", "not yet")
        stream, _ = await accept(peer)
        times.append(clock())
        assert gaps(times) == pytest.approx([1, 1.6, 2.56])
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet(5)
        peer.refuse()
        lost_at = clock()
        stream.end()
        await accept(peer)
        assert clock() - lost_at == pytest.approx(1)


@both
@timeless
async def test_a_server_that_ends_each_stream_after_its_first_response_is_not_hammered(delta):  # CLI-16
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        for turn in range(20):
            stream, _ = await accept(peer)
            stream.respond(xp.CLUSTER, cluster("a", str(turn)), version=str(turn))
            stream.end()
        assert clock() >= 15
        assert all(update.error is update.ambient_error is None for update in watcher.seen())  # none of it is an error


@both
@timeless
async def test_a_watch_begun_during_an_outage_hears_of_it_and_does_not_shorten_the_wait(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        peer.go_down()
        first = follow(client, xp.CLUSTER, "a")
        await first.next()
        tried = peer.opened
        second = follow(client, xp.ENDPOINT, "e")
        before = clock()
        assert (status(await second.next()), clock()) == (("error", "UNAVAILABLE"), before)
        assert peer.opened == tried
        assert first.seen() == []


@both
@timeless
async def test_the_same_failure_is_reported_once(delta):  # CLI-17
    async with talk(delta=delta) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        await quiet(500)
        assert [status(update) for update in watcher.seen()] == [("error", "UNAVAILABLE")]


@both
@timeless
async def test_a_repeated_outage_is_reported_again(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        for _ in range(2):
            stream, _ = await accept(peer)
            await exchange(stream, xp.CLUSTER, cluster("a"))
            await quiet(5)
            peer.refuse()
            stream.end()
        await accept(peer)
        assert [status(update)[0] for update in watcher.seen()] == ["resource", "ambient", "ambient"]


# -- nothing to ask


@both
@timeless
async def test_a_stream_on_which_nothing_is_asked_is_kept_but_not_replaced(delta):  # CLI-16, CLI-17
    """Servers end idle streams. That is no failure, and whoever asks later must not hear of one."""
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        asked = asyncio.ensure_future(client.get(xp.CLUSTER, "a"))
        stream, _ = await accept(peer)
        stream.respond(xp.CLUSTER, cluster("a"))
        await asked
        await quiet(60)
        assert not stream.cancelled.is_set()
        stream.end("UNAVAILABLE", "idle")
        await quiet(600)
        assert peer.opened == 1
        before = clock()
        asked = asyncio.ensure_future(client.get(xp.CLUSTER, "a"))
        stream, request = await accept(peer)
        assert (names(request), request.node.id, clock()) == (["a"], "x", before)
        stream.respond(xp.CLUSTER, cluster("a", "2"))
        assert await asked == cluster("a", "2")


@both
@timeless
async def test_a_server_that_is_down_is_not_retried_without_watchers(delta):  # CLI-17
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        await quiet(10)
        await watcher.close()
        await quiet(10)
        tried = peer.opened
        await quiet(1000)
        assert peer.opened == tried
        peer.come_up()
        follow(client, xp.CLUSTER, "b")
        _, request = await accept(peer)
        assert names(request) == ["b"]


# -- the end


@both
@timeless
async def test_closing_ends_the_stream_and_every_watch_and_nothing_reconnects(delta):  # CLI-24
    async with talk(delta=delta) as (client, peer):
        watchers = [follow(client, xp.CLUSTER, "a"), follow(client, xp.ENDPOINT)]
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await client.close()
        assert stream.cancelled.is_set()
        await quiet(1000)
        assert peer.opened == 1
        assert all(watcher.is_over for watcher in watchers)
        with pytest.raises(xp.UsageError, match="closed"):
            await anext(client.watch(xp.CLUSTER, "a"))
        await client.close()  # once more does no harm


@pytest.mark.parametrize("after", [0.0, 0.5, 3.0])
@timeless
async def test_closing_ends_the_attempts_to_connect(after):  # CLI-24
    async with talk() as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        await quiet(after)
        await client.close()
        tried = peer.opened
        await quiet(1000)
        assert peer.opened == tried
        assert watcher.is_over


@pytest.mark.parametrize("turns", range(1, 8))
@timeless
async def test_closing_while_the_stream_is_being_opened(turns):  # CLI-24
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        opened = peer.opened
        await quiet(100)
        assert peer.opened == opened
        assert watcher.is_over


@both
@timeless
async def test_closing_does_not_wait_for_slow_watchers(delta):  # CLI-24, CLI-20
    async with talk(delta=delta) as (client, peer):
        slow = client.watch(xp.CLUSTER, "a")
        asked = asyncio.ensure_future(anext(slow))
        stream, _ = await accept(peer)
        for version in "123":
            stream.respond(xp.CLUSTER, cluster("a", version), version=version, nonce=version)
        await asked
        await quiet()
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await anext(slow)


@timeless
async def test_closing_ends_a_watch_of_which_nothing_can_be_asked():  # CLI-24, XTP-12
    async with talk() as (client, _):
        watcher = follow(client, xp.CLUSTER, "xdstp://nobody/envoy.config.cluster.v3.Cluster/a")
        await watcher.next()
        await client.close()
        await quiet()
        assert watcher.is_over


@timeless
async def test_closing_ends_a_get():  # CLI-24
    async with talk() as (client, peer):
        asked = asyncio.ensure_future(client.get(xp.CLUSTER, "a"))
        await accept(peer)
        await client.close()
        with pytest.raises(xp.WatchError) as error:
            await asked
        assert error.value.status == "CANCELLED"


@timeless
async def test_an_unused_client_closes():  # CLI-24
    peer = ScriptedPeer()
    async with xp.Client(BOOT, connect=peer.connect):
        await quiet(100)
    assert peer.opened == 0


@timeless
async def test_nothing_is_left_running_after_closing():  # CLI-24
    async with talk(bootstrap(server("one:1"), server("two:2"))) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        client.loads()
        await accept(peer)
        await client.close()
        await quiet()
        assert asyncio.all_tasks() == {asyncio.current_task()}
