"""What a relay keeps on disk: one that starts while every server is down serves what the one before it knew last."""

# ruff: noqa: ASYNC110, ASYNC240 - these loops have nothing else to do

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import Follower, cluster, endpoint, follow, listener
from tests.relay.rig import MODE_IDS, MODES, Origin, Station, held, station
from tests.relay.rig import _mark as mark_of
from xdsprism.client.last_good import LastGood
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)
both_up = pytest.mark.parametrize("up", [True, False], ids=["delta", "sotw"])

SOON = 0.3  # seconds of a real clock: long enough for everything that happens in memory
PROD, TEST = {"env": "prod"}, {"env": "test"}
PROD_EU = {"env": "prod", "region": "eu"}


async def marks(follower: Follower, count: int = 0) -> list[tuple[str, str]]:
    """What came: this many updates, however long they take, and whatever else comes soon after them."""
    came = [await follower.next() for _ in range(count)]
    await asyncio.sleep(SOON)
    return [(update.name, mark_of(update)) for update in (*came, *follower.seen())]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "relay.cache"


@asynccontextmanager
async def run(origin: Origin, cache: Path, **options: Any) -> AsyncIterator[Station]:
    async with asyncio.timeout(60), station(origin.wire.connect, cache=cache, **options) as relay:
        yield relay


async def earlier(origin: Origin, cache: Path, *asked: tuple[str, str, Any], up: bool = True, **options: Any) -> None:
    """An earlier run, in which somebody asked for these: type, name and params. Then the server goes away."""
    async with run(origin, cache, delta=up, **options) as relay, relay.client() as client:
        for type_url, name, params in asked:
            follower = follow(client, type_url, name, params=params)
            if name != "*" or origin.store.table(type_url):
                await follower.next()
        await asyncio.sleep(SOON)
    origin.wire.cut(down=True)


@modes
async def test_with_every_server_down_the_last_state_is_served_at_once(cache: Path, up: bool, down: bool) -> None:
    # PRX-25, PRX-2
    origin = Origin()
    origin.put(endpoint("a", "1"))
    origin.put(cluster("c", "1"), cluster("d", "2"))
    await earlier(origin, cache, (xp.ENDPOINT, "a", PROD), (xp.CLUSTER, "*", PROD), up=up)
    async with run(origin, cache, delta=up) as relay, relay.client(delta=down) as client:
        assert relay.relay.is_ready  # PRX-30
        named = follow(client, xp.ENDPOINT, "a", params=PROD)
        everything = follow(client, xp.CLUSTER, params=PROD)
        assert await marks(named, 1) == [("a", "1")]
        assert sorted(await marks(everything, 2)) == [("c", "1"), ("d", "2")]


@both_up
async def test_a_variant_on_disk_answers_all_params_that_its_constraints_match(cache: Path, up: bool) -> None:
    # PRX-4, PRX-25
    origin = Origin()
    origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
    await earlier(origin, cache, (xp.CLUSTER, "a", PROD), up=up)
    async with run(origin, cache, delta=up) as relay, relay.client() as client:
        other = follow(client, xp.CLUSTER, "a", params=PROD_EU)
        assert await marks(other, 1) == [("a", "prod")]
        stranger = follow(client, xp.CLUSTER, "a", params=TEST)
        assert await marks(stranger) == []  # PRX-11: nothing is known, which does not mean that there is nothing


@both_up
async def test_a_newer_variant_replaces_an_older_one_on_disk_for_all_params_that_it_matches(
    cache: Path, up: bool
) -> None:
    # PRX-25
    origin = Origin()
    origin.vary(prod=cluster("a", "1"))
    await earlier(origin, cache, (xp.CLUSTER, "a", PROD_EU), (xp.CLUSTER, "*", PROD_EU), up=up)
    origin.wire.down = False
    origin.vary(prod=cluster("a", "2"))
    await earlier(origin, cache, (xp.CLUSTER, "a", PROD), up=up)
    async with run(origin, cache, delta=up) as relay, relay.client() as client:
        assert await marks(follow(client, xp.CLUSTER, "a", params=PROD_EU), 1) == [("a", "2")]
        async with relay.client() as other:
            assert await marks(follow(other, xp.CLUSTER, params=PROD_EU)) == []  # it is not known what else there is


@both_up
async def test_a_variant_that_a_wildcard_left_on_disk_answers_its_name(cache: Path, up: bool) -> None:
    # PRX-4, PRX-25
    origin = Origin()
    origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
    await earlier(origin, cache, (xp.CLUSTER, "*", PROD), up=up)
    async with run(origin, cache, delta=up) as relay, relay.client() as client:
        assert await marks(follow(client, xp.CLUSTER, "a", params=PROD_EU), 1) == [("a", "prod")]
        assert await marks(follow(client, xp.CLUSTER, "a", params=TEST)) == []


async def test_a_wildcard_with_other_params_is_not_known(cache: Path) -> None:
    # PRX-25
    origin = Origin()
    origin.put(cluster("a", "1"))
    await earlier(origin, cache, (xp.CLUSTER, "*", PROD))
    async with run(origin, cache) as relay:
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "*", params=PROD_EU)
        await asyncio.sleep(SOON)
        assert raw.end.unread.empty()


@both_up
async def test_an_empty_list_is_a_state_too(cache: Path, up: bool) -> None:
    # PRX-25
    origin = Origin()
    await earlier(origin, cache, (xp.CLUSTER, "*", PROD), up=up)
    async with run(origin, cache, delta=up) as relay:
        raw = await relay.raw(delta=False)
        await raw.want(xp.CLUSTER, "*", params=PROD)
        async with asyncio.timeout(5):
            assert held(await raw.read()) == {}


async def test_an_absence_on_disk_keeps_its_constraints(cache: Path) -> None:
    # PRX-25
    origin = Origin()
    origin.put(cluster("a", "prod"), when="env=prod")
    await earlier(origin, cache, (xp.CLUSTER, "a", TEST))
    async with run(origin, cache) as relay:
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "a", params={**TEST, "region": "eu"})
        async with asyncio.timeout(5):
            response = await raw.read()
        (absence,) = response.removed_resource_names
        assert str(xp.Expression.from_proto(absence.dynamic_parameter_constraints)) == "env=test"
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "a", params=PROD)
        await asyncio.sleep(SOON)
        assert raw.end.unread.empty()


@both_up
async def test_an_answer_from_disk_is_marked_until_a_server_confirms_it(cache: Path, up: bool) -> None:
    # PRX-25
    origin = Origin()
    origin.put(cluster("a", "1"))
    await earlier(origin, cache, (xp.CLUSTER, "a", PROD), up=up)
    async with run(origin, cache, delta=up) as relay, relay.client() as client:
        follower = follow(client, xp.CLUSTER, "a", params=PROD)
        assert await marks(follower, 1) == [("a", "1")]
        (holding,) = relay.relay.relaying.cached_answers(xp.CLUSTER, "a")
        assert holding.entry is not None
        assert holding.entry.kept_at == pytest.approx(relay.relay.last_good.wall(), abs=30)
        origin.wire.down = False
        async with asyncio.timeout(10):
            while holding.entry.kept_at is not None:
                await asyncio.sleep(0.05)
        assert await marks(follower) == []  # PRX-12: it has that already


async def test_answers_on_disk_that_are_older_than_max_stale_are_neither_used_nor_kept(cache: Path) -> None:
    # PRX-25: never a deletion either
    origin = Origin()
    origin.put(cluster("a", "1"))
    await earlier(origin, cache, (xp.CLUSTER, "*", PROD), (xp.CLUSTER, "a", PROD))
    async with run(origin, cache, max_stale=0.0) as relay:
        assert not relay.relay.is_ready
        raw = await relay.raw()
        await raw.want(xp.CLUSTER, "*", "a", params=PROD)
        await asyncio.sleep(SOON)
        for _ in range(raw.end.unread.qsize()):
            response = await raw.read()
            assert not [*response.resources, *response.removed_resources, *response.removed_resource_names]
            assert {error.error_detail.code for error in response.resource_errors} == {14}
    assert rows(cache) == []


async def test_time_does_not_count_while_the_server_is_there(cache: Path) -> None:
    # PRX-25: something that never changed is not old
    origin = Origin()
    origin.put(cluster("a", "1"))
    now = 1000.0
    async with run(origin, cache) as relay, relay.client() as client:
        assert relay.relay.last_good is not None
        relay.relay.last_good.wall = lambda: now
        follow(client, xp.CLUSTER, "a", params=PROD)
        await asyncio.sleep(SOON)
        now = 5000.0
    for later, ages in ((5100.0, [5000.0]), (5300.0, [])):
        kept = LastGood(str(cache), pytest.fail, lambda later=later: later, max_stale=200.0)
        assert [each.written_at for known in kept.entries.values() for each in known.values()] == ages
        await kept.close()


async def test_an_answer_on_disk_ages_from_when_its_last_client_left(cache: Path) -> None:
    # PRX-25
    origin = Origin()
    origin.put(cluster("a", "1"), cluster("b", "1"))
    now = 1000.0
    async with run(origin, cache, linger=0.0) as relay, relay.client() as client:
        assert relay.relay.last_good is not None
        relay.relay.last_good.wall = lambda: now
        follow(client, xp.CLUSTER, "a", params=PROD)
        async with relay.client() as guest:
            follow(guest, xp.CLUSTER, "b", params=PROD)
            follow(guest, xp.CLUSTER, params=TEST)
            await asyncio.sleep(SOON)
        await asyncio.sleep(SOON)
        now = 5000.0
    kept = LastGood(str(cache), pytest.fail, lambda: 5100.0, max_stale=200.0)
    assert [name for _, _, name in kept.entries] == ["a"]
    assert kept.complete_lists == {}
    await kept.close()


@both_up
async def test_a_resource_that_the_server_deletes_is_removed_from_disk(cache: Path, up: bool) -> None:
    # PRX-25
    origin = Origin()
    origin.put(cluster("a", "1"), cluster("b", "1"))
    async with run(origin, cache, delta=up) as relay, relay.client() as client:
        follow(client, xp.CLUSTER, params=PROD)
        follow(client, xp.CLUSTER, "a", params=PROD)
        await asyncio.sleep(SOON)
        origin.delete(xp.CLUSTER, "a")
        await asyncio.sleep(SOON)
    assert [name for name, what in rows(cache) if what == "variant"] == ["b"]


async def test_a_do_not_cache_resource_is_not_on_disk_and_neither_is_its_wildcard(cache: Path) -> None:
    # PRX-17
    peer = ScriptedPeer()
    secret = pb.Resource(name="s", version="1", cache_control={"do_not_cache": True})
    secret.resource.Pack(cluster("s", "for now only"))
    plain = pb.Resource(name="a", version="1")
    plain.resource.Pack(cluster("a", "for later"))
    async with asyncio.timeout(60), station(peer.connect, cache=cache) as relay, relay.client() as client:
        follower = follow(client, xp.CLUSTER)
        stream = await peer.accept()
        await stream.request()
        stream.respond(xp.CLUSTER, secret, plain)
        assert sorted(await marks(follower, 2)) == [("a", "for later"), ("s", "for now only")]
    assert rows(cache) == [("a", "variant")]
    assert not [file for file in cache.parent.iterdir() if b"for now only" in file.read_bytes()]


@modes
async def test_when_the_server_is_back_only_what_changed_meanwhile_is_passed_on(
    cache: Path, up: bool, down: bool
) -> None:
    # PRX-12
    origin = Origin()
    origin.put(cluster("same", "1"), cluster("changed", "1"), cluster("gone", "1"))
    origin.put(listener("same", "1"), listener("gone", "1"))
    wanted = [(xp.CLUSTER, "*", PROD), *((xp.LISTENER, name, PROD) for name in ("same", "gone"))]
    await earlier(origin, cache, *wanted, up=up)
    origin.delete(xp.CLUSTER, "gone")
    origin.delete(xp.LISTENER, "gone")
    origin.put(cluster("changed", "2"))
    async with run(origin, cache, delta=up) as relay, relay.client(delta=down) as client:
        everything = follow(client, xp.CLUSTER, params=PROD)
        named = follow(client, xp.LISTENER, "same", "gone", params=PROD)
        assert sorted(await marks(everything, 3)) == [("changed", "1"), ("gone", "1"), ("same", "1")]
        assert sorted(await marks(named, 2)) == [("gone", "1"), ("same", "1")]
        origin.wire.down = False
        while not origin.hub.connected():
            await asyncio.sleep(0.05)
        assert sorted(await marks(everything, 2)) == [("changed", "2"), ("gone", "NOT_FOUND")]
        assert await marks(named, 1) == [("gone", "NOT_FOUND")]
        sent = [name for response in relay.wire.responses for name in held(response)]
        assert sent.count("same") == (2 if down else 0)  # one of each type
    origin.wire.cut(down=True)
    async with run(origin, cache, delta=up) as relay, relay.client(delta=down) as client:
        again = follow(client, xp.CLUSTER, params=PROD)
        assert sorted(await marks(again, 2)) == [("changed", "2"), ("same", "1")]


@modes
async def test_a_returning_client_with_a_newer_version_keeps_it_until_a_server_has_answered(
    cache: Path, up: bool, down: bool
) -> None:
    # PRX-25: what was passed on a moment before a kill may not be on disk yet
    origin = Origin()
    origin.put(cluster("a", "1"))
    await earlier(origin, cache, (xp.CLUSTER, "*", PROD), (xp.CLUSTER, "new", PROD), up=up)
    async with run(origin, cache, delta=up) as relay:
        for name in ("*", "new"):
            client = await relay.raw(delta=down)
            claim = {"initial_resource_versions": {"a": "0", "new": "0"}} if down else {"version_info": "0"}
            await client.want(xp.CLUSTER, name, params=PROD, **claim)
            await asyncio.sleep(SOON)
            assert client.end.unread.empty()
        origin.put(cluster("new", "1"))
        origin.wire.down = False
        async with asyncio.timeout(20):
            response = await client.read()
        assert any(cluster("new", "1").SerializeToString() in body for body in held(response).values())


async def test_groups_share_a_file_and_nothing_else(cache: Path) -> None:
    # PRX-20, PRX-25
    origin = Origin()
    origin.put(cluster("a", "1"))
    async with run(origin, cache, group_by=["env"]) as relay:
        for env, name in (("prod", "a"), ("test", "b")):
            async with relay.client(metadata={"env": env}) as client:
                follow(client, xp.CLUSTER, name)
                await asyncio.sleep(SOON)
    origin.wire.cut(down=True)
    async with run(origin, cache, group_by=["env"]) as relay:
        async with relay.client(metadata={"env": "prod"}) as client:
            assert await marks(follow(client, xp.CLUSTER, "a"), 1) == [("a", "1")]
        async with relay.client(metadata={"env": "test"}) as client:
            assert await marks(follow(client, xp.CLUSTER, "a")) == []


async def test_a_file_that_is_broken_is_moved_aside_and_the_relay_starts_empty(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # PRX-25
    cache.write_bytes(b"this is not a database\n" * 500)
    origin = Origin()
    origin.put(cluster("a", "1"))
    with caplog.at_level(logging.WARNING):
        async with run(origin, cache) as relay, relay.client() as client:
            assert not relay.relay.is_ready
            assert await marks(follow(client, xp.CLUSTER, "a", params=PROD), 1) == [("a", "1")]
    aside = cache.with_name(f"{cache.name}.aside-1")
    assert aside.read_bytes() == b"this is not a database\n" * 500
    assert str(aside) in caplog.text
    assert ("a", "variant") in rows(cache)


def rows(cache: Path) -> list[tuple[str, str]]:
    """What is kept, by name and kind."""
    db = sqlite3.connect(cache)
    try:
        return sorted(db.execute("SELECT name, what FROM kept"))
    finally:
        db.close()
