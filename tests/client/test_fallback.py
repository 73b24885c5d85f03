"""Several servers for one authority (gRFC A71)."""

from __future__ import annotations

import asyncio

import pytest

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
    names,
    quiet,
    server,
    silent,
    status,
    talk_to_several,
    timeless,
)
from xdsprism.core.watch.entry import State

TWO = bootstrap(server("one:1"), server("two:2"))
THREE = bootstrap(server("one:1"), server("two:2"), server("three:3"))
STEADY = {"chance": lambda: 0.5}

XDSTP = "xdstp://{}/envoy.config.cluster.v3.Cluster/{}"


def seen(watcher) -> list[tuple[str, str]]:
    return [status(update) for update in watcher.seen()]


# -- when


@both
@timeless
async def test_only_the_first_server_is_asked_while_it_answers(delta):  # FBK-1
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet(20)  # and b does not exist
        stream.end()
        await accept(peers["one:1"])
        await quiet(60)
        assert peers["two:2"].opened == 0


@both
@pytest.mark.parametrize("how", ["refused", "ended before any response"])
@timeless
async def test_the_next_server_is_asked_when_the_first_one_fails_and_something_is_lacking(delta, how):  # FBK-1, FBK-5
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        if how == "refused":
            peers["one:1"].go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        if how != "refused":
            stream, _ = await accept(peers["one:1"])
            peers["one:1"].go_down()
            stream.end("UNAVAILABLE", "gone")
        failed_at = clock()
        stream, request = await accept(peers["two:2"])
        assert (names(request), request.node.id, clock()) == (["a"], "x", failed_at)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet(60)
        assert seen(watcher) == [("resource", "a")]  # and nothing of the failure


@both
@timeless
async def test_a_stream_that_ends_after_a_response_is_no_reason_to_ask_the_next_server(delta):  # FBK-1
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        follow(client, xp.CLUSTER, "a")
        follow(client, xp.ENDPOINT, "lacking")
        stream, _ = await accept(peers["one:1"])
        await stream.request()
        await exchange(stream, xp.CLUSTER, cluster("a"))
        stream.end("UNAVAILABLE", "restart")
        await accept(peers["one:1"])
        await quiet()
        assert peers["two:2"].opened == 0


@both
@timeless
async def test_with_everything_cached_there_are_ambient_errors_only(delta):  # FBK-2
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("a"))
        peers["one:1"].go_down()
        stream.end()
        await quiet(60)
        assert seen(watcher) == [("resource", "a"), ("ambient", "UNAVAILABLE")]
        assert peers["two:2"].opened == 0


@both
@timeless
async def test_a_resource_known_not_to_exist_starts_no_fallback(delta):  # FBK-1
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        watcher = follow(client, xp.ENDPOINT, "a", "b")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        await quiet(20)
        peers["one:1"].go_down()
        stream.end()
        await quiet(60)
        assert [kind for kind, _ in seen(watcher)] == ["resource", "error", "ambient", "error"]
        assert peers["two:2"].opened == 0


@both
@timeless
async def test_a_new_watch_during_an_outage_asks_the_next_server_for_everything(delta):  # FBK-1, FBK-3
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        held = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("a", "one"))
        peers["one:1"].go_down()
        stream.end()
        await quiet(10)
        added = follow(client, xp.ENDPOINT, "e")
        stream, first = await accept(peers["two:2"])
        requests = {request.type_url: request for request in (first, await stream.request())}
        assert {url: names(request) for url, request in requests.items()} == {xp.CLUSTER: ["a"], xp.ENDPOINT: ["e"]}
        if delta:  # what is held is from another server: no version of it can be current
            assert dict(requests[xp.CLUSTER].initial_resource_versions) == {"a": ""}
        else:
            assert requests[xp.CLUSTER].version_info == ""
        await exchange(stream, xp.ENDPOINT, endpoint("e"))
        await exchange(stream, xp.CLUSTER, cluster("a", "two"), nonce="n2")
        assert status(await added.next()) == ("resource", "e")
        assert [kind for kind, _ in seen(held)] == ["resource", "ambient", "resource"]


# -- all of them


@both
@timeless
async def test_watchers_hear_of_a_failure_when_all_servers_have_failed(delta):  # FBK-5
    async with talk_to_several(THREE, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].go_down("first")
        peers["two:2"].go_down("second")
        watcher = follow(client, xp.CLUSTER, "a")
        last, _ = await accept(peers["three:3"])
        await quiet(5)
        assert seen(watcher) == []
        peers["three:3"].go_down("third")
        last.end("UNAVAILABLE", "third")
        update = await watcher.next()
        assert (status(update), "third" in update.error.message) == (("error", "UNAVAILABLE"), True)
        await quiet(100)
        assert seen(watcher) == []
        assert min(peer.opened for peer in peers.values()) > 3  # each is tried on


@both
@timeless
async def test_a_new_watch_while_everything_fails_hears_so_at_once(delta):  # FBK-5
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        for peer in peers.values():
            peer.go_down()
        first = follow(client, xp.CLUSTER, "a")
        await first.next()
        before = clock()
        second = follow(client, xp.ENDPOINT, "e")
        assert (status(await second.next()), clock()) == (("error", "UNAVAILABLE"), before)
        assert seen(first) == []


@both
@timeless
async def test_whichever_server_comes_back_ends_the_outage(delta):  # FBK-4, FBK-5
    for back in ("one:1", "two:2"):
        async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
            for peer in peers.values():
                peer.go_down()
            watcher = follow(client, xp.CLUSTER, "a")
            await watcher.next()
            await quiet(10)
            peers[back].come_up()
            stream, _ = await accept(peers[back])
            await exchange(stream, xp.CLUSTER, cluster("a"))
            assert status(await watcher.next()) == ("resource", "a")


@timeless
async def test_a_past_outage_is_not_reported_to_later_watchers():  # FBK-4, CLI-18
    """The server that comes back need not be the one whose failure was told."""
    async with talk_to_several(TWO, delta=True, **STEADY) as (client, peers):
        peers["two:2"].go_down("second")
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("a"), version="1")
        peers["one:1"].go_down("first")
        stream.end()
        await quiet(1)
        lacking = follow(client, xp.ENDPOINT, "e")
        await quiet(30)
        assert (seen(watcher)[-1], seen(lacking)[-1]) == (("ambient", "UNAVAILABLE"), ("error", "UNAVAILABLE"))
        peers["one:1"].come_up()
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.ENDPOINT, endpoint("e"), nonce="n2")  # a is held: it is not sent again
        late = follow(client, xp.CLUSTER, "a")
        await quiet()
        assert seen(late) == [("resource", "a")]


# -- the return of the first


@both
@timeless
async def test_the_first_server_is_tried_all_along_and_its_response_ends_the_others(delta):  # FBK-4
    async with talk_to_several(THREE, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].go_down()
        peers["two:2"].go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        third, _ = await accept(peers["three:3"])
        await exchange(third, xp.CLUSTER, cluster("a", "three"))
        await quiet(30)
        assert min(peers["one:1"].opened, peers["two:2"].opened) > 4
        peers["one:1"].come_up()
        first, request = await accept(peers["one:1"])
        assert names(request) == ["a"]
        await quiet(5)
        assert not third.cancelled.is_set()  # a connection alone is not enough
        await exchange(first, xp.CLUSTER, cluster("a", "one"))
        await quiet(1)
        assert third.cancelled.is_set()
        tried = peers["two:2"].opened, peers["three:3"].opened
        await quiet(500)
        assert (peers["two:2"].opened, peers["three:3"].opened) == tried
        marks = [update.resource.alt_stat_name for update in watcher.seen()]
        assert marks == ["three", "one"]


@both
@timeless
async def test_a_server_in_the_middle_ends_those_after_it_only(delta):  # FBK-4
    async with talk_to_several(THREE, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].go_down()
        peers["two:2"].go_down()
        follow(client, xp.CLUSTER, "a")
        third, _ = await accept(peers["three:3"])
        peers["two:2"].come_up()
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.CLUSTER, cluster("a"))
        await quiet(1)
        assert third.cancelled.is_set()
        before = peers["one:1"].opened
        await quiet(100)
        assert peers["one:1"].opened > before


@both
@timeless
async def test_a_released_fallback_server_is_asked_again_at_the_next_outage(delta):  # FBK-3, FBK-4
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].refuse()
        follow(client, xp.CLUSTER, "a")
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.CLUSTER, cluster("a", "two"), version="9")
        first, _ = await accept(peers["one:1"])
        await exchange(first, xp.CLUSTER, cluster("a", "one"))
        await quiet(5)
        peers["one:1"].go_down()
        first.end()
        watcher = follow(client, xp.ENDPOINT, "e")
        stream, request = await accept(peers["two:2"])
        other = await stream.request()
        cds = request if request.type_url == xp.CLUSTER else other
        held = cds.initial_resource_versions["a"] if delta else cds.version_info
        assert (names(cds), cds.response_nonce, held) == (["a"], "", "")
        await exchange(stream, xp.ENDPOINT, endpoint("e"))
        assert status(await watcher.next()) == ("resource", "e")
        assert await silent(stream)


@both
@timeless
async def test_resources_that_only_the_fallback_server_had_are_gone_when_the_first_is_back(delta):  # FBK-4, CLI-8
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].refuse()
        watcher = follow(client, xp.CLUSTER)
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.CLUSTER, cluster("a"), cluster("b"))
        first, request = await accept(peers["one:1"])
        assert not delta or dict(request.initial_resource_versions) == {"a": "", "b": ""}
        await exchange(first, xp.CLUSTER, cluster("a"), removed=["b"])  # as a server does that is told of b
        await quiet()
        assert seen(watcher) == [("resource", "a"), ("resource", "b"), ("ambient", "NOT_FOUND")]


@both
@timeless
async def test_a_watch_that_ends_during_an_outage_is_unsubscribed_from_every_server(delta):  # FBK-3
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].go_down()
        going, _ = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, "b")
        second, _ = await accept(peers["two:2"])
        await going.close()
        request = await second.request()
        assert names(request) == ([] if delta else ["b"])
        peers["one:1"].come_up()
        _, request = await accept(peers["one:1"])
        assert names(request) == ["b"]


@timeless
async def test_a_resource_that_the_next_server_does_not_have_is_missing_after_its_timer():  # FBK-1, CLI-11
    async with talk_to_several(TWO, **STEADY) as (client, peers):
        peers["one:1"].go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        await accept(peers["two:2"])
        began = clock()
        assert (status(await watcher.next()), clock() - began) == (("error", "NOT_FOUND"), 15)
        assert [entry.state for entry in client.subscriber.entries()] == [State.DOES_NOT_EXIST]


@both
@timeless
async def test_closing_ends_every_server(delta):  # CLI-24, FBK-4
    async with talk_to_several(TWO, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].refuse()
        follow(client, xp.CLUSTER, "a")
        second, _ = await accept(peers["two:2"])
        first, _ = await accept(peers["one:1"])
        await client.close()
        await quiet(500)
        assert first.cancelled.is_set()
        assert second.cancelled.is_set()
        assert (peers["one:1"].opened, peers["two:2"].opened) == (2, 1)


@both
@timeless
async def test_a_server_that_is_listed_twice_is_one_server(delta):  # FBK-4, XTP-13
    async with talk_to_several(bootstrap(server("one:1"), server("one:1")), delta=delta, **STEADY) as (client, peers):
        peers["one:1"].refuse()
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet()
        assert not stream.cancelled.is_set()
        assert seen(watcher) == [("error", "UNAVAILABLE"), ("resource", "a")]


# -- several authorities


@both
@timeless
async def test_an_authority_has_servers_of_its_own_or_those_of_the_top_level(delta):  # FBK-6
    source = bootstrap(
        server("one:1"), authorities={"own": {"xds_servers": [server("own:1"), server("own:2")]}, "": {}}
    )
    async with talk_to_several(source, delta=delta, **STEADY) as (client, peers):
        peers["own:1"].go_down()
        own = follow(client, xp.CLUSTER, XDSTP.format("own", "a"))
        plain = follow(client, xp.CLUSTER, XDSTP.format("", "b"))
        stream, request = await accept(peers["own:2"])
        assert names(request) == [XDSTP.format("own", "a")]
        await exchange(stream, xp.CLUSTER, cluster(XDSTP.format("own", "a")))
        stream, request = await accept(peers["one:1"])
        assert names(request) == [XDSTP.format("", "b")]
        await exchange(stream, xp.CLUSTER, cluster(XDSTP.format("", "b")))
        assert (await own.next()).resource.name == XDSTP.format("own", "a")
        assert (await plain.next()).resource.name == XDSTP.format("", "b")


@both
@timeless
async def test_the_failure_of_one_authority_is_nothing_to_another(delta):  # FBK-5, FBK-6
    source = bootstrap(server("one:1"), authorities={"own": {"xds_servers": [server("own:1")]}})
    async with talk_to_several(source, delta=delta, **STEADY) as (client, peers):
        peers["own:1"].go_down()
        own, plain = follow(client, xp.CLUSTER, XDSTP.format("own", "a")), follow(client, xp.CLUSTER, "b")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster("b"))
        await quiet(60)
        assert (seen(own), seen(plain)) == ([("error", "UNAVAILABLE")], [("resource", "b")])


@both
@timeless
async def test_a_server_released_by_one_authority_stays_for_another(delta):  # FBK-4, FBK-6, XTP-13
    """two:2 is the second choice of one authority, and the only one of another."""
    source = bootstrap(server("one:1"), server("two:2"), authorities={"other": {"xds_servers": [server("two:2")]}})
    async with talk_to_several(source, delta=delta, **STEADY) as (client, peers):
        other = follow(client, xp.CLUSTER, XDSTP.format("other", "b"))
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.CLUSTER, cluster(XDSTP.format("other", "b")))
        peers["one:1"].refuse()
        plain = follow(client, xp.CLUSTER, "a")
        added = await second.request()
        assert "a" in names(added)
        assert peers["two:2"].opened == 1  # one stream for both
        await exchange(second, xp.CLUSTER, cluster("a", "two"), cluster(XDSTP.format("other", "b")), nonce="n2")
        first, _ = await accept(peers["one:1"])
        await exchange(first, xp.CLUSTER, cluster("a", "one"))
        left = await second.request()
        if delta:
            assert list(left.resource_names_unsubscribe) == ["a"]
        else:
            assert names(left) == [XDSTP.format("other", "b")]
        assert not second.cancelled.is_set()
        await quiet(60)
        assert (seen(other), seen(plain)) == ([("resource", XDSTP.format("other", "b"))], [("resource", "a")] * 2)


@both
@timeless
async def test_a_shared_server_that_is_known_to_fail_is_skipped_at_once(delta):  # FBK-1, XTP-13
    source = bootstrap(server("one:1"), authorities={"other": {"xds_servers": [server("one:1"), server("two:2")]}})
    async with talk_to_several(source, delta=delta, **STEADY) as (client, peers):
        peers["one:1"].go_down()
        plain = follow(client, xp.CLUSTER, "a")
        await plain.next()
        tried, now = peers["one:1"].opened, clock()
        follow(client, xp.CLUSTER, XDSTP.format("other", "b"))
        await accept(peers["two:2"])
        assert (peers["one:1"].opened, clock()) == (tried, now)


@pytest.mark.parametrize("turns", range(12))
@timeless
async def test_a_server_released_and_needed_again_at_once_begins_a_new_stream(turns):  # FBK-3, FBK-4
    """Its first stream is on its way out while the outage comes back."""
    async with talk_to_several(TWO, **STEADY) as (client, peers):
        peers["one:1"].refuse()
        follow(client, xp.CLUSTER, "a")
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.CLUSTER, cluster("a", "two"), version="9", nonce="n9")
        first, _ = await accept(peers["one:1"])
        peers["one:1"].go_down()
        first.respond(xp.CLUSTER, cluster("a", "one"))
        first.end()
        for _ in range(turns):
            await asyncio.sleep(0)
        follow(client, xp.ENDPOINT, "e")
        await quiet(1)
        if second.cancelled.is_set():
            stream, request = await accept(peers["two:2"])
            asked = [request, *stream.pending()]
            assert all(each.response_nonce == "" for each in asked)
        else:
            asked = second.pending()
        assert sorted(name for each in asked for name in names(each) if name == "e") == ["e"]
