"""The last good state on disk: a client that starts while every server is down."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import xdsprism as xp
from tests.client.rig import accept, bootstrap, both, cluster, endpoint, exchange, follow, server, status, talk
from tests.client.soundness import remains
from xdsprism.core.watch.entry import State

SOON = 0.3  # seconds of a real clock: long enough for everything that happens in memory


@asynccontextmanager
async def run(cache: Path, delta: bool, *features: str, **options):
    source = bootstrap(server("one:1", *features))
    async with asyncio.timeout(30), talk(source, cache=cache, delta=delta, chance=lambda: 0.0, **options) as both_ends:
        yield both_ends


async def earlier(cache: Path, delta: bool, type_url: str, *resources, watched: tuple[str, ...] = ()) -> None:
    """An earlier run, in which the server gave these."""
    async with run(cache, delta) as (client, peer):
        watcher = follow(client, type_url, *watched)
        stream, _ = await accept(peer)
        await exchange(stream, type_url, *resources, version="old")
        for _ in resources:
            await watcher.next()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "last-good"


@both
async def test_with_every_server_down_there_is_the_last_value_and_then_an_ambient_error(cache, delta):
    await earlier(cache, delta, xp.ENDPOINT, endpoint("a", "old"), watched=("a",))
    async with run(cache, delta) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.ENDPOINT, "a", "never seen")
        first, second, third = [await watcher.next() for _ in range(3)]
        assert (first.resource, first.version) == (endpoint("a", "old"), "old")
        assert (second.name, status(second)) == ("a", ("ambient", "UNAVAILABLE"))
        assert (third.name, status(third)) == ("never seen", ("error", "UNAVAILABLE"))
        assert await client.get(xp.ENDPOINT, "a") == endpoint("a", "old")


@both
async def test_the_resources_of_a_wildcard_are_remembered(cache, delta):
    await earlier(cache, delta, xp.CLUSTER, cluster("a", "old"), cluster("b", "old"))
    async with run(cache, delta) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.CLUSTER)
        updates = [await watcher.next() for _ in range(3)]
        assert [update.name for update in updates[:2]] == ["a", "b"]
        assert status(updates[2]) == ("ambient", "UNAVAILABLE")


@both
async def test_a_server_that_answers_is_never_preceded_by_a_stale_value(cache, delta):
    await earlier(cache, delta, xp.CLUSTER, cluster("a", "old"), watched=("a",))
    async with run(cache, delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, request = await accept(peer)
        await asyncio.sleep(SOON)
        assert watcher.seen() == []
        held = dict(request.initial_resource_versions) if delta else request.version_info
        assert not held  # nobody can say whose version it was
        await exchange(stream, xp.CLUSTER, cluster("a", "new"), version="new")
        assert (await watcher.next()).resource == cluster("a", "new")


@both
async def test_the_answer_of_the_server_after_an_outage_replaces_the_value_from_disk(cache, delta):
    await earlier(cache, delta, xp.CLUSTER, cluster("a", "old"), watched=("a",))
    async with run(cache, delta) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.CLUSTER, "a")
        assert [status(await watcher.next())[0] for _ in range(2)] == ["resource", "ambient"]
        stream, request = await accept(peer)
        assert (request.initial_resource_versions["a"] if delta else request.version_info) == ""
        await exchange(stream, xp.CLUSTER, cluster("a", "new"), version="new")
        assert (await watcher.next()).resource == cluster("a", "new")
    async with run(cache, delta) as (client, peer):
        peer.go_down()
        assert await client.get(xp.CLUSTER, "a") == cluster("a", "new")


@both
async def test_a_value_from_disk_is_waited_for_like_any_other(cache, delta):  # CLI-11
    """A server that is up and does not know it any more must not leave it standing without a word."""
    await earlier(cache, delta, xp.ENDPOINT, endpoint("a", "old"), watched=("a",))
    async with run(cache, delta) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.ENDPOINT, "a")
        assert [status(await watcher.next())[0] for _ in range(2)] == ["resource", "ambient"]
        await accept(peer)
        await asyncio.sleep(SOON)
        assert [entry.name for entry in remains(client)["timers"]] == ["a"]
        client.subscriber.tick(asyncio.get_running_loop().time() + 15)
        assert status(await watcher.next()) == ("ambient", "NOT_FOUND")
        assert [entry.state for entry in client.subscriber.entries()] == [State.DOES_NOT_EXIST]


async def test_a_value_from_disk_that_a_trusted_server_does_not_have_is_dropped_for_good(cache):  # CLI-11, CLI-15
    await earlier(cache, False, xp.ENDPOINT, endpoint("a", "old"), watched=("a",))
    async with run(cache, False, "fail_on_data_errors") as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.ENDPOINT, "a")
        assert [status(await watcher.next())[0] for _ in range(2)] == ["resource", "ambient"]
        await accept(peer)
        await asyncio.sleep(SOON)
        client.subscriber.tick(asyncio.get_running_loop().time() + 15)
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
    async with run(cache, False) as (client, peer):
        peer.go_down()
        with pytest.raises(xp.WatchError):
            await client.get(xp.ENDPOINT, "a")


@both
async def test_a_deleted_resource_is_not_remembered(cache, delta):  # CLI-15
    async with run(cache, delta, "fail_on_data_errors") as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        await exchange(stream, xp.CLUSTER, cluster("b"), version="2", nonce="n2", removed=["a"])
        while (await watcher.next()).error is None:
            pass
    async with run(cache, delta) as (client, peer):
        peer.go_down()
        assert await client.get(xp.CLUSTER, "b") == cluster("b")
        with pytest.raises(xp.WatchError) as error:
            await client.get(xp.CLUSTER, "a")
        assert error.value.status == "UNAVAILABLE"


@both
async def test_each_set_of_params_has_a_last_value_of_its_own(cache, delta):
    async with run(cache, delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", params={"env": "prod"})
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "prod"))
        await watcher.next()
    async with run(cache, delta) as (client, peer):
        peer.go_down()
        assert await client.get(xp.CLUSTER, "a", params={"env": "prod"}) == cluster("a", "prod")
        for params in ({"env": "test"}, {}):
            with pytest.raises(xp.WatchError):
                await client.get(xp.CLUSTER, "a", params=params)


async def test_with_another_server_to_ask_the_disk_is_not_looked_at(cache):  # FBK-1
    await earlier(cache, False, xp.CLUSTER, cluster("a", "old"), watched=("a",))
    source = bootstrap(server("one:1"), server("two:2"))
    async with asyncio.timeout(30), talk(source, cache=cache) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await asyncio.sleep(SOON)
        assert watcher.seen() == []
        await exchange(stream, xp.CLUSTER, cluster("a", "new"))
        assert (await watcher.next()).resource == cluster("a", "new")


async def test_an_entry_that_is_gone_from_everything_says_so(cache):  # CLI-8
    """In SotW a full response tells what is gone of the values from disk."""
    await earlier(cache, False, xp.CLUSTER, cluster("a"), cluster("b"))
    async with run(cache, False) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.CLUSTER)
        for _ in range(3):
            await watcher.next()
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("b"), version="2")
        update = await watcher.next()
        assert (update.name, status(update)) == ("a", ("ambient", "NOT_FOUND"))


async def test_a_delta_server_says_what_is_gone_of_everything_from_disk(cache):  # CLI-6
    """It can only do so of what it hears is held: by name, with no version that it could take for current."""
    await earlier(cache, True, xp.CLUSTER, cluster("a"), cluster("b"))
    async with run(cache, True) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.CLUSTER)
        for _ in range(3):
            await watcher.next()
        stream, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"a": "", "b": ""}
        await exchange(stream, xp.CLUSTER, cluster("b"), removed=["a"])
        update = await watcher.next()
        assert (update.name, status(update)) == ("a", ("ambient", "NOT_FOUND"))
