"""`Client.list`: everything of a type, once; and when that is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse

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
    silent,
    talk,
    talk_to_several,
    timeless,
)
from xdsprism.client.list_query import END_OF_LIST, QUIET
from xdsprism.testing import PeerStream, ScriptedPeer


def begin(coming: Coroutine[Any, Any, list[xp.Update]]) -> asyncio.Future[list[xp.Update]]:
    return asyncio.ensure_future(coming)


async def asks_for_the_end(stream: PeerStream) -> str:
    """The request that follows the ACK of the first response: for a name that nobody has."""
    (name,) = names(await stream.request())
    assert name.startswith(END_OF_LIST)
    return name


async def shown(coming: asyncio.Future[list[xp.Update]]) -> list[str]:
    return [update.name for update in await coming]


# WLD-1, SOT-6
@timeless
async def test_a_sotw_list_is_complete_with_the_first_response():
    async with talk() as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, first = await accept(peer)
        assert names(first) == []
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        assert await shown(listing) == ["a", "b"]
        assert clock() == 0


# WLD-1
@timeless
async def test_a_delta_list_is_complete_when_the_server_answers_for_nobodys_name():
    async with talk(delta=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, first = await accept(peer)
        assert names(first) == []
        ack = await exchange(stream, xp.CLUSTER, cluster("a"))
        assert (ack.response_nonce, names(ack)) == ("n1", [])
        end = await asks_for_the_end(stream)
        await exchange(stream, xp.CLUSTER, cluster("b"), nonce="n2")
        await exchange(stream, xp.CLUSTER, nonce="n3", removed=[end])
        assert await shown(listing) == ["a", "b"]
        assert clock() == 0


# Servers that do not answer for names that they do not know
@timeless
async def test_a_delta_list_is_complete_when_the_server_is_quiet():
    async with talk(delta=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await asyncio.sleep(QUIET * 0.9)
        stream.respond(xp.CLUSTER, cluster("b"), nonce="n2")
        assert await shown(listing) == ["a", "b"]
        assert clock() == pytest.approx(QUIET * 1.9)


@both
@timeless
async def test_an_empty_list_is_a_list(delta):
    async with talk(delta=delta) as (client, peer):
        listing = begin(client.list(xp.ENDPOINT, timeout=5))
        stream, first = await accept(peer)
        assert names(first) == ["*"]
        await exchange(stream, xp.ENDPOINT)
        assert await listing == []
        assert clock() == (QUIET if delta else 0)


@both
@timeless
async def test_silence_is_not_an_empty_list(delta):
    async with talk(delta=delta) as (client, peer):
        with pytest.raises(xp.WatchError, match="DEADLINE_EXCEEDED: '\\*': no answer within 7 s"):
            await client.list(xp.CLUSTER, timeout=7)
        await accept(peer)
        assert clock() == 7


@timeless
async def test_a_list_that_runs_out_of_time_has_what_came_until_then():
    async with talk(delta=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER, timeout=QUIET / 2))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        assert await shown(listing) == ["a"]
        assert clock() == QUIET / 2


@both
@timeless
async def test_a_list_from_an_unreachable_server_is_an_error_at_once(delta):
    peer = ScriptedPeer()
    peer.go_down("one:1: refused")
    async with xp.Client(BOOT, connect=peer.connect, delta=delta) as client:
        with pytest.raises(xp.WatchError, match="UNAVAILABLE: one:1: refused"):
            await client.list(xp.CLUSTER)
        assert clock() == 0


# A part of a list must not pass for all of it
@timeless
async def test_a_server_that_is_gone_in_the_middle_of_a_list_is_an_error():
    async with talk(delta=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        peer.go_down("gone")
        stream.end()
        with pytest.raises(xp.WatchError, match="UNAVAILABLE: gone"):
            await listing


# NAK-14, NAK-17: the good are used, the others named
@both
@timeless
async def test_an_invalid_resource_is_in_the_list_with_its_error(delta):
    bad = cluster("bad")
    bad.connect_timeout.SetInParent()
    async with talk(delta=delta) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("good"), bad)
        found = {update.name: update for update in await listing}
        assert found["good"].resource == cluster("good")
        assert found["bad"].error.status == "INVALID_ARGUMENT"
        assert "connect_timeout" in found["bad"].error.message


@timeless
async def test_a_resource_that_is_removed_before_the_end_is_not_in_the_list():
    async with talk(delta=True, fail_on_data_errors=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        end = await asks_for_the_end(stream)
        stream.respond(xp.CLUSTER, nonce="n2", removed=("a", end))
        assert await shown(listing) == ["b"]


# CLI-18: what is watched already is known; nothing is asked in SotW, and only for the end of it in delta
@both
@timeless
async def test_a_list_of_watched_resources_comes_from_the_cache(delta):
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        listing = begin(client.list(xp.CLUSTER))
        if delta:
            stream.respond(xp.CLUSTER, nonce="n2", removed=(await asks_for_the_end(stream),))
        assert await shown(listing) == ["a"]
        if not delta:
            assert await silent(stream)
        await watcher.close()


# DYN-1
@timeless
async def test_lists_side_by_side_end_each_by_its_own_sign():
    async with talk(delta=True) as (client, peer):
        one = begin(client.list(xp.ENDPOINT, params={"env": "prod"}))
        two = begin(client.list(xp.ENDPOINT, params={"env": "test"}))
        stream, first = await accept(peer)
        assert [locator.dynamic_parameters["env"] for locator in first.resource_locators_subscribe] == ["prod", "test"]
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        await quiet(QUIET / 4)
        ends = [name for request in stream.pending() for name in names(request)]
        stream.respond(xp.ENDPOINT, nonce="n2", removed=(ends[0],))
        await quiet(QUIET / 4)
        assert (one.done(), two.done()) == (True, False)
        stream.respond(xp.ENDPOINT, nonce="n3", removed=(ends[1],))
        assert await shown(one) == await shown(two) == ["a"]
        assert clock() == QUIET / 2


@both
@timeless
async def test_a_list_leaves_nothing_behind(delta):
    async with talk(delta=delta) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await listing
        await quiet()
        assert list(client.subscriber.entries()) == []


# XTP-3: one step below a glob
@timeless
async def test_a_glob_is_listed_too():
    name = "xdstp://far/envoy.config.endpoint.v3.ClusterLoadAssignment/"
    source = bootstrap(authorities={"far": {"xds_servers": [server("far:1")]}})
    async with talk(source) as (client, peer):
        listing = begin(client.list(xp.ENDPOINT, f"{name}*"))
        stream, first = await accept(peer)
        assert names(first) == [f"{name}*"]
        await exchange(stream, xp.ENDPOINT, endpoint(f"{name}a"))
        assert await shown(listing) == [f"{name}a"]


# CLI-20: there is nothing to take of an empty list, so nobody is waited for
@timeless
async def test_an_empty_list_holds_nothing_up():
    far = "xdstp://far/envoy.config.endpoint.v3.ClusterLoadAssignment/a"
    source = bootstrap(authorities={"far": {"xds_servers": [server("far:1")]}})
    async with talk_to_several(source) as (client, peers):
        watcher = follow(client, xp.ENDPOINT, far, "*")
        remote, _ = await accept(peers["far:1"])
        remote.respond(xp.ENDPOINT, endpoint(far))
        assert (await watcher.next()).name == far
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.ENDPOINT)
        stream.respond(xp.ENDPOINT, endpoint("b"), nonce="n2")
        assert (await watcher.next()).name == "b"


@timeless
async def test_one_name_is_no_list():
    async with talk() as (client, _):
        with pytest.raises(xp.UsageError, match="'a' is one resource"):
            await client.list(xp.CLUSTER, "a")


# TP3: the list as a whole is denied
@timeless
async def test_an_error_for_the_whole_list_is_raised():
    async with talk(delta=True) as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        stream, _ = await accept(peer)
        denied = DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="n1")
        error = denied.resource_errors.add()
        error.resource_name.name, error.error_detail.code, error.error_detail.message = "*", 7, "not for you"
        stream.send(denied)
        with pytest.raises(xp.WatchError, match="PERMISSION_DENIED: not for you"):
            await listing


@timeless
async def test_closing_the_client_ends_a_list():
    async with talk() as (client, peer):
        listing = begin(client.list(xp.CLUSTER))
        await accept(peer)
        await client.close()
        with pytest.raises(xp.WatchError, match="CANCELLED"):
            await listing


async def test_while_every_server_is_down_the_list_is_what_is_on_disk(tmp_path: Path):
    async with talk(cache=tmp_path / "cache") as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.next()
        await watcher.close()
    async with talk(cache=tmp_path / "cache") as (client, peer):
        peer.go_down()
        assert await shown(begin(client.list(xp.CLUSTER))) == ["a"]
