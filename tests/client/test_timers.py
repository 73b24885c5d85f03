"""How long a client waits before a resource counts as absent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

import xdsprism as xp
from tests.client.rig import (
    accept,
    bootstrap,
    both,
    clock,
    cluster,
    endpoint,
    exchange,
    follow,
    quiet,
    server,
    status,
    talk,
    talk_to_several,
    timeless,
)
from xdsprism.core.watch.entry import State
from xdsprism.core.watch.subscriber import Subscriber


def states(client: xp.Client) -> dict[str, State]:
    return {entry.name: entry.state for entry in client.subscriber.entries()}


@both
@timeless
async def test_a_resource_that_does_not_come_within_15_seconds_does_not_exist(delta):  # CLI-11
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        await accept(peer)
        asked_at = clock()
        update = await watcher.next()
        assert (status(update), clock() - asked_at) == (("error", "NOT_FOUND"), 15)
        assert states(client) == {"a": State.DOES_NOT_EXIST}


@both
@timeless
async def test_the_timer_starts_when_the_subscription_is_sent_not_when_it_is_wanted(delta):  # CLI-11, CLI-12
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.ENDPOINT, "a")
        assert status(await watcher.next()) == ("error", "UNAVAILABLE")
        await quiet(40)
        assert watcher.seen() == []  # and no NOT_FOUND
        peer.come_up()
        await accept(peer)
        sent_at = clock()
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() - sent_at == 15


@both
@timeless
async def test_each_subscription_has_a_timer_of_its_own(delta):  # CLI-11
    async with talk(delta=delta) as (client, peer):
        first = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        began = clock()
        await quiet(10)
        second = follow(client, xp.ENDPOINT, "b")
        await stream.request()
        assert status(await first.next()) == ("error", "NOT_FOUND")
        assert clock() - began == 15
        assert status(await second.next()) == ("error", "NOT_FOUND")
        assert clock() - began == 25


@both
@timeless
async def test_a_resource_that_came_in_time_gets_no_timeout_later(delta):  # CLI-11
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", "b")
        stream, _ = await accept(peer)
        await quiet(14)
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        await quiet(60)
        assert [status(update) for update in watcher.seen()] == [("resource", "a"), ("error", "NOT_FOUND")]


@both
@timeless
async def test_no_timer_runs_while_disconnected_and_a_new_one_on_the_new_stream(delta):  # CLI-12
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        follow(client, xp.ROUTE, "r")
        stream, _ = await accept(peer)
        await stream.request()
        await quiet(14)
        peer.go_down()
        stream.end("UNAVAILABLE", "restart")
        await quiet(30)
        assert [status(update) for update in watcher.seen()] == [("error", "UNAVAILABLE")] * 2  # two different texts
        peer.come_up()
        await accept(peer)
        connected_at = clock()
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() - connected_at == 15


@both
@timeless
async def test_a_stream_that_ends_after_a_response_restarts_the_timers_of_what_is_not_cached(delta):  # CLI-12
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        await quiet(14)
        stream.end()
        await accept(peer)
        began = clock()
        await quiet(14)
        assert [status(update) for update in watcher.seen()] == [("resource", "a")]
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() - began == 15
        await quiet(60)
        assert watcher.seen() == []  # nothing about the cached one


@both
@timeless
async def test_a_resource_that_did_not_exist_before_an_outage_does_not_exist_after_it(delta):  # CLI-12
    """Who asks after the outage must hear something, though no timer runs."""
    async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("b"))
        assert [status(await watcher.next()) for _ in range(2)] == [("resource", "b"), ("error", "NOT_FOUND")]
        peer.go_down()
        stream.end()
        outage = {status(await watcher.next()), status(await watcher.next())}
        assert outage == {("ambient", "UNAVAILABLE"), ("error", "UNAVAILABLE")}
        peer.come_up()
        again, _ = await accept(peer)
        await exchange(again, xp.ENDPOINT, endpoint("b", "new"), version="2")
        with pytest.raises(xp.WatchError) as error:
            await client.get(xp.ENDPOINT, "a")
        assert error.value.status == "NOT_FOUND"
        assert [status(update) for update in watcher.seen()] == [("error", "NOT_FOUND"), ("resource", "b")]


@both
@timeless
async def test_a_timer_ends_with_the_watch_and_a_new_watch_has_a_new_one(delta):  # CLI-11
    async with talk(delta=delta) as (client, peer):
        going, staying = follow(client, xp.ENDPOINT, "a"), follow(client, xp.ENDPOINT, "b")
        stream, _ = await accept(peer)
        await quiet(10)
        await going.close()
        await stream.request()
        back = follow(client, xp.ENDPOINT, "a")
        await stream.request()
        began = clock()
        assert status(await staying.next()) == ("error", "NOT_FOUND")
        assert back.seen() == []
        assert status(await back.next()) == ("error", "NOT_FOUND")
        assert clock() - began == 15


@both
@timeless
async def test_a_wildcard_has_no_timer(delta):  # CLI-11
    """A wildcard is answered by any response; that there is nothing is not an error."""
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        await accept(peer)
        await quiet(100)
        assert watcher.seen() == []


@both
@timeless
async def test_where_silence_is_transient_the_wait_is_30_seconds_and_says_unavailable(delta):  # CLI-14
    source = bootstrap(server("one:1", "resource_timer_is_transient_error"))
    async with talk(source, delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        began = clock()
        update = await watcher.next()
        assert (status(update), clock() - began) == (("error", "UNAVAILABLE"), 30)
        assert states(client) == {"a": State.TIMEOUT}
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        assert status(await watcher.next()) == ("resource", "a")
        assert states(client) == {"a": State.ACKED}


@both
@timeless
async def test_each_server_has_the_wait_that_its_features_say(delta):  # CLI-14
    patient_server = server("two:2", "resource_timer_is_transient_error")
    source = bootstrap(server("one:1"), authorities={"x": {"xds_servers": [patient_server]}})
    async with talk_to_several(source, delta=delta) as (client, peers):
        plain = follow(client, xp.CLUSTER, "a")
        patient = follow(client, xp.CLUSTER, "xdstp://x/envoy.config.cluster.v3.Cluster/a")
        await asyncio.gather(accept(peers["one:1"]), accept(peers["two:2"]))
        began = clock()
        assert (status(await plain.next()), clock() - began) == (("error", "NOT_FOUND"), 15)
        assert (status(await patient.next()), clock() - began) == (("error", "UNAVAILABLE"), 30)


@both
@timeless
async def test_the_timer_of_one_server_does_not_delete_what_another_server_sent(delta):  # CLI-12
    source = bootstrap(server("one:1"), server("two:2"))
    async with talk_to_several(source, delta=delta, chance=lambda: 0.5) as (client, peers):
        peers["one:1"].refuse()
        watcher = follow(client, xp.CLUSTER, "a")
        second, _ = await accept(peers["two:2"])
        await accept(peers["one:1"])  # which is there again, and silent
        await exchange(second, xp.CLUSTER, cluster("a"))
        await quiet(60)
        assert [status(update) for update in watcher.seen()] == [("resource", "a")]


# CLI-11, CLI-20
@both
@timeless
async def test_time_in_which_a_slow_watcher_holds_up_the_stream_does_not_count(delta: bool) -> None:
    async with talk(delta=delta) as (client, peer):
        slow = client.watch(xp.CLUSTER, ["a", "b"])
        first = asyncio.ensure_future(anext(slow))
        stream = await peer.accept()
        await stream.request()
        stream.respond(xp.CLUSTER, cluster("a"), version="1", nonce="n1")
        assert (await first).name == "a"
        stream.respond(xp.CLUSTER, cluster("a", "2"), version="2", nonce="n2")
        await asyncio.sleep(1)  # it has come, and nobody takes it
        stream.respond(xp.CLUSTER, cluster("a", "3"), cluster("b"), version="3", nonce="n3")
        await asyncio.sleep(60)
        assert (await anext(slow)).resource == cluster("a", "2")
        later = [await anext(slow), await anext(slow)]
        assert [(update.name, update.error) for update in later] == [("a", None), ("b", None)]


class Overdue:
    """A subscriber whose next deadline is always now."""

    def __init__(self, subscriber: Subscriber, now: float) -> None:
        self._subscriber = subscriber
        self._now = now

    def deadline(self) -> float:
        return self._now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)


def test_a_deadline_in_the_past_does_not_block_later_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # CLI-11: of a timer that is due at once uvloop returns a handle that does not say so
    async def run() -> None:
        async with talk() as (client, _):
            now = asyncio.get_running_loop().time()
            monkeypatch.setattr(client, "subscriber", Overdue(client.subscriber, now))
            asked = [client.get(xp.ENDPOINT, name, timeout=0.05) for name in "abc"]
            ends = await asyncio.gather(*asked, return_exceptions=True)
            monkeypatch.undo()
            assert [type(error) for error in ends] == [xp.WatchError] * 3

    uvloop.run(run())
