"""The updates of watchers, and when the client reads on."""

from __future__ import annotations

import asyncio

import pytest

import xdsprism as xp
from tests.client.rig import (
    MAKE,
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
    talk,
    timeless,
    within,
)

FULL_STATE = pytest.mark.parametrize("type_url", [xp.LISTENER, xp.CLUSTER], ids=["lds", "cds"])
PARTIAL = pytest.mark.parametrize("type_url", [xp.ROUTE, xp.ENDPOINT], ids=["rds", "eds"])


# -- what a response means


@both
@timeless
async def test_resources_that_nothing_watches_are_ignored_and_their_response_acked(delta):  # CLI-7
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        ack = await exchange(stream, xp.CLUSTER, cluster("b"), cluster("a"), cluster("c"), nonce="n7")
        assert (ack.response_nonce, ack.HasField("error_detail")) == ("n7", False)
        await quiet()
        assert [status(update) for update in watcher.seen()] == [("resource", "a")]
        later = follow(client, xp.CLUSTER, "b")
        await stream.request()
        assert later.seen() == []  # it was not kept either


@FULL_STATE
@timeless
async def test_a_held_resource_that_a_full_response_lacks_is_deleted(type_url):  # CLI-8, CLI-15
    make = MAKE[type_url]
    async with talk(bootstrap(server("one:1", "fail_on_data_errors"))) as (client, peer):
        watcher = follow(client, type_url, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, type_url, make("a"), make("b"))
        assert {(await watcher.next()).name, (await watcher.next()).name} == {"a", "b"}
        ack = await exchange(stream, type_url, make("b"), version="2", nonce="n2")
        update = await watcher.next()
        assert (update.name, status(update), update.variant) == ("a", ("error", "NOT_FOUND"), None)
        assert (ack.version_info, names(ack)) == ("2", ["a", "b"])
        assert watcher.seen() == []


@both
@timeless
async def test_a_deleted_resource_is_kept_unless_the_server_is_trusted_with_deletions(delta):  # CLI-8, CLI-15
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"])
        update = await watcher.next()
        assert (status(update), update.variant.body) == (("ambient", "NOT_FOUND"), cluster("a").SerializeToString())
        second = follow(client, xp.CLUSTER, "a")
        assert [status(await second.next()) for _ in range(2)] == [("resource", "a"), ("ambient", "NOT_FOUND")]
        await exchange(stream, xp.CLUSTER, version="3", nonce="n3")
        await quiet()
        assert watcher.seen() == []  # not told twice


@both
@pytest.mark.parametrize("way", ["feature", "option"])
@timeless
async def test_a_trusted_deletion_drops_the_value(delta, way):  # CLI-15
    features = ["fail_on_data_errors"] if way == "feature" else []
    option = None if way == "feature" else True
    source = bootstrap(server("one:1", *features))
    async with talk(source, delta=delta, fail_on_data_errors=option) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"])
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        second = follow(client, xp.CLUSTER, "a")
        assert status(await second.next()) == ("error", "NOT_FOUND")


@both
@timeless
async def test_a_server_is_not_trusted_where_the_program_says_so(delta):  # CLI-15
    source = bootstrap(server("one:1", "fail_on_data_errors"))
    async with talk(source, delta=delta, fail_on_data_errors=False) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"])
        assert status(await watcher.next()) == ("ambient", "NOT_FOUND")


@both
@timeless
async def test_ignoring_deletions_is_accepted_and_changes_nothing(delta):  # CLI-15
    async with talk(bootstrap(server("one:1", "ignore_resource_deletion")), delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"])
        assert status(await watcher.next()) == ("ambient", "NOT_FOUND")


@FULL_STATE
@timeless
async def test_a_resource_that_has_not_come_yet_is_not_deleted_by_its_absence(type_url):  # CLI-9
    make = MAKE[type_url]
    async with talk() as (client, peer):
        watcher = follow(client, type_url, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, type_url, make("a"))
        await quiet()
        assert [status(update) for update in watcher.seen()] == [("resource", "a")]
        await exchange(stream, type_url, make("a"), make("b"), version="2", nonce="n2")
        assert status(await watcher.next()) == ("resource", "b")


@PARTIAL
@timeless
async def test_absence_says_nothing_where_responses_may_be_partial(type_url):  # CLI-10
    make = MAKE[type_url]
    async with talk(fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, type_url, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, type_url, make("a"), make("b"))
        await watcher.next(), await watcher.next()
        for version in ("2", "3"):
            left = [make("b", "new")] if version == "2" else []
            ack = await exchange(stream, type_url, *left, version=version, nonce=version)
            assert (ack.version_info, ack.response_nonce, names(ack)) == (version, version, ["a", "b"])
        await quiet()
        assert [status(update) for update in watcher.seen()] == [("resource", "b")]


@timeless
async def test_an_empty_delta_response_changes_nothing():  # CLI-10
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        ack = await exchange(stream, xp.CLUSTER, nonce="n2")
        assert (ack.response_nonce, ack.HasField("error_detail")) == ("n2", False)
        await quiet()
        assert watcher.seen() == []


@both
@timeless
async def test_a_resource_that_comes_after_all_is_delivered(delta):  # CLI-13
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        await exchange(stream, xp.CLUSTER, cluster("a"))
        assert status(await watcher.next()) == ("resource", "a")


@both
@timeless
async def test_a_deleted_resource_that_comes_back_unchanged_is_delivered(delta):  # CLI-13, CLI-15
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"])
        await watcher.next()
        await exchange(stream, xp.CLUSTER, cluster("a"), version="3", nonce="n3")
        update = await watcher.next()
        assert (status(update), update.resource, update.version) == (("resource", "a"), cluster("a"), "3")


@both
@timeless
async def test_unchanged_contents_are_acked_without_an_update(delta):  # CLI-19
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await exchange(stream, xp.CLUSTER, cluster("a"), version="2", nonce="n2")
        await quiet()
        assert watcher.seen() == []


# -- a second watcher


@both
@timeless
async def test_a_second_watcher_gets_what_is_cached_at_once_and_nothing_is_sent(delta):  # CLI-18
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), version="7")
        second = client.watch(xp.CLUSTER, "a")
        before = clock()
        update = await anext(second)
        assert (update.resource, update.version, clock()) == (cluster("a"), "7", before)
        assert await silent(stream)
        second.close()
        assert await silent(stream)  # the first one still watches


@both
@timeless
async def test_a_second_watcher_hears_of_an_ambient_error_after_the_resource(delta):  # CLI-18
    async with talk(delta=delta) as (client, peer):
        first = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        peer.go_down()
        stream.end()
        assert [status(await first.next()) for _ in range(2)] == [("resource", "a"), ("ambient", "UNAVAILABLE")]
        second = follow(client, xp.CLUSTER, "a")
        assert [status(await second.next()) for _ in range(2)] == [("resource", "a"), ("ambient", "UNAVAILABLE")]


@both
@timeless
async def test_a_second_watcher_of_an_absent_resource_is_told_at_once(delta):  # CLI-18
    async with talk(delta=delta) as (client, peer):
        first = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await first.next()
        before = clock()
        with pytest.raises(xp.WatchError) as error:
            await client.get(xp.CLUSTER, "a")
        assert (error.value.status, clock()) == ("NOT_FOUND", before)
        assert await silent(stream)


@both
@timeless
async def test_a_second_watcher_of_everything_gets_every_member(delta):  # CLI-18
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        second = follow(client, xp.CLUSTER)
        assert [(await second.next()).name for _ in range(2)] == ["a", "b"]
        assert await silent(stream)


# -- back-pressure


@both
@timeless
async def test_the_next_response_is_not_read_until_watchers_took_the_last_one(delta):  # CLI-20
    async with talk(delta=delta) as (client, peer):
        slow = client.watch(xp.CLUSTER, "a")
        asked = asyncio.ensure_future(anext(slow))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        await asked
        for version in "23456":
            stream.respond(xp.CLUSTER, cluster("a", version), version=version, nonce=version)
        await quiet()
        assert [request.response_nonce for request in stream.pending()] == ["2"]
        assert stream.unread.qsize() == 4
        assert (await anext(slow)).resource == cluster("a", "2")
        assert (await within(1, anext(slow))).resource == cluster("a", "3")


@both
@timeless
async def test_a_slow_watcher_holds_up_every_stream_and_lets_go_when_it_is_closed(delta):  # CLI-20
    async with talk(delta=delta) as (client, peer):
        slow = client.watch(xp.CLUSTER, "a")
        asked = asyncio.ensure_future(anext(slow))
        other = follow(client, xp.CLUSTER, "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"), cluster("b", "1"))
        await asked
        for version in "23":
            stream.respond(xp.CLUSTER, cluster("a", version), cluster("b", version), version=version, nonce=version)
        await quiet()
        assert [update.resource.alt_stat_name for update in other.seen()] == ["1", "2"]
        slow.close()
        assert (await within(1, other.next())).resource == cluster("b", "3")


@both
@timeless
async def test_a_watcher_may_ask_for_more_inside_its_loop(delta):  # CLI-20
    """It has not taken everything, and yet the stream must be read on, or it would wait for itself."""
    async with talk(delta=delta) as (client, peer):
        updates = client.watch(xp.CLUSTER)
        seen = []

        async def loop():
            async for update in updates:
                found = await client.get(xp.ENDPOINT, update.name)
                seen.append((update.name, found))

        looping = asyncio.ensure_future(loop())
        stream, _ = await accept(peer)
        stream.respond(xp.CLUSTER, cluster("a"), cluster("b"), nonce="c1")
        while len(seen) < 2:
            request = await within(5, stream.request())
            if request.type_url == xp.ENDPOINT and names(request) and not request.response_nonce:
                stream.respond(xp.ENDPOINT, endpoint(names(request)[0]), nonce=names(request)[0])
            elif request.type_url == xp.ENDPOINT and names(request) == ["b"]:
                stream.respond(xp.ENDPOINT, endpoint("b"), nonce="b")
            await asyncio.sleep(0.01)
        assert seen == [("a", endpoint("a")), ("b", endpoint("b"))]
        updates.close()
        await looping


@timeless
async def test_a_slow_watcher_has_only_the_newest_update_of_a_resource_waiting():  # CLI-20
    """Where somebody else's first answer keeps the stream going, what waits does not grow."""
    async with talk() as (client, peer):
        slow = client.watch(xp.CLUSTER, "a")
        asked = asyncio.ensure_future(anext(slow))
        follow(client, xp.CLUSTER, "never")
        stream, _ = await accept(peer)
        for version in "12345":
            await exchange(stream, xp.CLUSTER, cluster("a", version), version=version, nonce=version)
        assert (await asked).resource == cluster("a", "1")
        assert (await anext(slow)).resource == cluster("a", "5")
        waiting = asyncio.ensure_future(anext(slow))
        await quiet()
        assert not waiting.done()
        slow.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


# -- one resource, once


@both
@timeless
async def test_get_asks_once_and_lets_go(delta):
    async with talk(delta=delta) as (client, peer):
        asked = asyncio.ensure_future(client.get(xp.ENDPOINT, "a"))
        stream, _ = await accept(peer)
        stream.respond(xp.ENDPOINT, endpoint("a"))
        assert await asked == endpoint("a")
        await quiet()
        last = stream.pending()[-1]
        assert list(last.resource_names_unsubscribe) == ["a"] if delta else names(last) == []
        with pytest.raises(xp.WatchError) as error:
            await client.get(xp.ENDPOINT, "b", timeout=3)
        assert error.value.status == "DEADLINE_EXCEEDED"


# -- errors for calls


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        *[(code, "INTERNAL") for code in ("OK", "INVALID_ARGUMENT", "ALREADY_EXISTS", "FAILED_PRECONDITION")],
        *[(code, "INTERNAL") for code in ("ABORTED", "OUT_OF_RANGE", "DATA_LOSS")],
        ("NOT_FOUND", "UNAVAILABLE"),
        *[(code, code) for code in ("UNAVAILABLE", "PERMISSION_DENIED", "CANCELLED", "UNKNOWN", "UNIMPLEMENTED")],
        *[(code, code) for code in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAUTHENTICATED")],
    ],
)
def test_calls_never_fail_with_a_status_that_is_reserved_for_applications(mine, theirs):  # CLI-22
    status, text = xp.WatchError(mine, "no such cluster").call_status
    assert status == theirs
    assert "no such cluster" in text
    assert mine == theirs or mine in text


@timeless
async def test_a_missing_resource_fails_calls_as_unavailable():  # CLI-22
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        await accept(peer)
        error = (await watcher.next()).error
        assert (error.status, error.call_status[0]) == ("NOT_FOUND", "UNAVAILABLE")
        assert "NOT_FOUND" in error.call_status[1]
