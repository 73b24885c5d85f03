"""Names of the form xdstp://authority/type/id, and whom to ask for them (gRFC A47)."""

from __future__ import annotations

import asyncio

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.client.rig import (
    accept,
    bootstrap,
    both,
    cluster,
    exchange,
    follow,
    names,
    quiet,
    server,
    silent,
    status,
    talk,
    talk_to_several,
    timeless,
)
from xdsprism.testing import ScriptedPeer

TYPE = "envoy.config.cluster.v3.Cluster"
FEDERATED = bootstrap(
    server("one:1"),
    authorities={"x": {"xds_servers": [server("x:1")]}, "y": {"xds_servers": [server("x:1")]}, "z": {}},
)


def name(authority: str, rest: str) -> str:
    return f"xdstp://{authority}/{TYPE}/{rest}"


# -- names


@both
@timeless
async def test_directives_are_not_sent(delta):  # XTP-11
    async with talk(FEDERATED, delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, name("x", "a#entry=b,alt=xdstp://y/T/c"))
        stream, request = await accept(peer)
        assert names(request) == [name("x", "a")]
        await exchange(stream, xp.CLUSTER, cluster(name("x", "a")))
        assert status(await watcher.next()) == ("resource", name("x", "a"))


@both
@timeless
async def test_the_last_of_equal_context_keys_counts(delta):  # XTP-11
    async with talk(FEDERATED, delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, name("x", "a?env=test&zone=b&env=prod"))
        _, request = await accept(peer)
        assert names(request) == [name("x", "a?env=prod&zone=b")]


@both
@timeless
async def test_every_spelling_of_a_name_is_one_subscription(delta):  # XTP-11
    async with talk(FEDERATED, delta=delta) as (client, peer):
        spellings = ["a%3Ab?k=1&j=2", "a:b?j=2&k=1", "a:b?k=7&j=2&k=1#x", "%61:b?j=2&k=1"]
        together = follow(client, xp.CLUSTER, *[name("x", each) for each in spellings[:2]])
        others = [follow(client, xp.CLUSTER, name("x", each)) for each in spellings[2:]]
        stream, request = await accept(peer)
        assert names(request) == [name("x", "a:b?j=2&k=1")]
        await exchange(stream, xp.CLUSTER, cluster(name("x", "a%3Ab?k=1&j=2")))  # as Envoy would write it
        await quiet()
        assert [len(watcher.seen()) for watcher in (together, *others)] == [1, 1, 1]
        await together.close()
        assert await silent(stream)
        for watcher in others:
            await watcher.close()
        request = await stream.request()
        gone = list(request.resource_names_unsubscribe) if delta else names(request)
        assert gone == ([name("x", "a:b?j=2&k=1")] if delta else [])


@both
@timeless
async def test_a_glob_gives_its_members(delta):  # XTP-11
    async with talk(FEDERATED, delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, name("x", "shop/*?env=prod"))
        stream, request = await accept(peer)
        assert names(request) == [name("x", "shop/*?env=prod")]
        members = [name("x", f"shop/{each}?env=prod") for each in "ab"]
        strangers = [name("x", "shop/a"), name("x", "shop/deep/a?env=prod"), name("y", "shop/a?env=prod")]
        await exchange(stream, xp.CLUSTER, *[cluster(each) for each in (*members, *strangers)])
        await quiet()
        assert [update.name for update in watcher.seen()] == members


# -- authorities


@both
@pytest.mark.parametrize(
    "bad", [name("nobody", "a"), name("", "a"), "xdstp://x/only-a-type", "xdstp:x", name("x", "%zz")]
)
@timeless
async def test_a_name_without_a_server_is_an_error_for_its_watcher_only(delta, bad):  # XTP-12
    async with talk(FEDERATED, delta=delta) as (client, peer):
        plain, wrong = follow(client, xp.CLUSTER, "a"), follow(client, xp.CLUSTER, bad)
        mixed = follow(client, xp.CLUSTER, bad, "a")
        stream, request = await accept(peer)
        assert names(request) == ["a"]
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await quiet(60)
        assert [status(update) for update in plain.seen()] == [("resource", "a")]
        assert [status(update) for update in wrong.seen()] == [("error", "INVALID_ARGUMENT")]
        assert [(update.name, status(update)[0]) for update in mixed.seen()] == [(bad, "error"), ("a", "resource")]
        with pytest.raises(xp.WatchError) as error:
            await client.get(xp.CLUSTER, bad)
        assert error.value.status == "INVALID_ARGUMENT"
        assert not wrong.is_over


@timeless
async def test_the_error_names_the_authorities_that_there_are():  # XTP-12
    async with talk(FEDERATED) as (client, _):
        update = await anext(client.watch(xp.CLUSTER, name("nobody", "a")))
        assert "'nobody'" in update.error.message
        assert "'x', 'y', 'z'" in update.error.message


@timeless
async def test_a_plain_name_needs_servers_at_the_top():  # XTP-12
    source = {"xds_servers": [], "authorities": {"x": {"xds_servers": [server("x:1")]}}, "node": {"id": "x"}}
    async with talk(source) as (client, peer):
        assert status(await anext(client.watch(xp.CLUSTER, "a"))) == ("error", "INVALID_ARGUMENT")
        follow(client, xp.CLUSTER, name("x", "a"))
        _, request = await accept(peer)
        assert names(request) == [name("x", "a")]


@both
@timeless
async def test_authorities_with_the_same_server_share_a_stream(delta):  # XTP-13
    async with talk_to_several(FEDERATED, delta=delta) as (client, peers):
        watchers = [follow(client, xp.CLUSTER, name(each, "a")) for each in "xy"]
        stream, request = await accept(peers["x:1"])
        assert names(request) == [name("x", "a"), name("y", "a")]
        await exchange(stream, xp.CLUSTER, *[cluster(name(each, "a")) for each in "xy"])
        assert [(await watcher.next()).name for watcher in watchers] == [name("x", "a"), name("y", "a")]
        await quiet(60)
        assert (peers["x:1"].opened, peers["one:1"].opened) == (1, 0)


@both
@timeless
async def test_an_authority_without_servers_shares_the_stream_of_the_top_level(delta):  # XTP-13
    async with talk_to_several(FEDERATED, delta=delta) as (client, peers):
        follow(client, xp.CLUSTER, "a")
        follow(client, xp.CLUSTER, name("z", "a"))
        _, request = await accept(peers["one:1"])
        assert names(request) == ["a", name("z", "a")]


@timeless
async def test_servers_that_differ_in_a_known_feature_have_streams_of_their_own():  # XTP-13
    other = server("one:1", "fail_on_data_errors")
    async with talk(bootstrap(server("one:1"), authorities={"x": {"xds_servers": [other]}})) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        follow(client, xp.CLUSTER, name("x", "a"))
        streams = await asyncio.gather(accept(peer), accept(peer))
        assert sorted(names(request) for _, request in streams) == [["a"], [name("x", "a")]]


@timeless
async def test_channels_are_opened_when_they_are_first_needed():  # XTP-13
    peer, reached = ScriptedPeer(), []

    def connect(config):
        reached.append(config.uri)
        return peer

    async with xp.Client(FEDERATED, connect=connect) as client:
        await quiet(60)
        assert reached == []
        follow(client, xp.CLUSTER, name("x", "a"))
        await accept(peer)
        assert reached == ["x:1"]
        follow(client, xp.CLUSTER, name("y", "a"))
        await quiet()
        assert reached == ["x:1"]
        follow(client, xp.CLUSTER, "a")
        await accept(peer)
        assert reached == ["x:1", "one:1"]


# -- clusters


def eds(called: str, service: str = "") -> Cluster:
    made = Cluster(name=called, type=Cluster.EDS)
    made.eds_cluster_config.eds_config.ads.SetInParent()
    made.eds_cluster_config.service_name = service
    return made


@both
@timeless
async def test_an_xdstp_cluster_has_to_name_its_endpoints(delta):  # XTP-14
    async with talk(FEDERATED, delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, name("x", "a"), name("x", "b"))
        stream, _ = await accept(peer)
        nack = await exchange(stream, xp.CLUSTER, eds(name("x", "a")), eds(name("x", "b"), name("x", "b")))
        assert nack.HasField("error_detail")
        assert "service_name" in nack.error_detail.message
        await quiet()
        assert {(update.name, status(update)) for update in watcher.seen()} == {
            (name("x", "a"), ("error", "INVALID_ARGUMENT")),
            (name("x", "b"), ("resource", name("x", "b"))),
        }


@pytest.mark.parametrize(
    "good",
    [
        eds("plain"),
        eds(name("x", "a"), "somewhere"),
        Cluster(name=name("x", "a"), type=Cluster.STATIC),
        Cluster(name=name("x", "a"), cluster_type={"name": "envoy.clusters.aggregate"}),
    ],
    ids=["plain name", "named", "static", "aggregate"],
)
def test_other_clusters_need_not_name_endpoints(good):  # XTP-14
    assert [fault for fault in xp.check_rules(good) if "service_name" in fault] == []
