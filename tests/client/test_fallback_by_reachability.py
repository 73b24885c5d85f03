"""Authorities that fall back whenever a server can't be reached, whatever is cached (gRFC A95)."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import (
    accept,
    both,
    cluster,
    exchange,
    follow,
    names,
    quiet,
    status,
    talk_to_several,
    timeless,
)
from tests.client.test_fallback import STEADY, TWO, XDSTP, seen

A = XDSTP.format("x", "a")


def by_reachability(value=True, **fields):
    """An authority `x` that uses the two servers of the top level."""
    return {**TWO, "authorities": {"x": {"fallback_on_reachability_only": value, **fields}}}


@both
@timeless
async def test_an_authority_can_fall_back_although_everything_is_cached(delta):  # FBK-7
    async with talk_to_several(by_reachability(), delta=delta, **STEADY) as (client, peers):
        watcher = follow(client, xp.CLUSTER, A)
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster(A, "one"))
        peers["one:1"].go_down()
        stream.end()
        second, request = await accept(peers["two:2"])
        assert names(request) == [A]
        if delta:  # nothing that the first server gave is offered to the second as its own
            assert dict(request.initial_resource_versions) == {A: ""}
        await exchange(second, xp.CLUSTER, cluster(A, "two"))
        await quiet(60)
        assert seen(watcher) == [("resource", A), ("resource", A)]  # and no ambient error: somebody could be asked
        peers["one:1"].come_up()
        first, _ = await accept(peers["one:1"])
        await exchange(first, xp.CLUSTER, cluster(A, "back"))
        await quiet(1)
        assert second.cancelled.is_set()  # FBK-4 is as it was
        assert [update.resource.alt_stat_name for update in watcher.seen()] == ["back"]


@both
@timeless
async def test_reachability_is_judged_by_a_stream_that_brought_no_response(delta):  # FBK-7, CLI-16
    async with talk_to_several(by_reachability(), delta=delta, **STEADY) as (client, peers):
        follow(client, xp.CLUSTER, A)
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster(A))
        stream.end("UNAVAILABLE", "restart")
        await accept(peers["one:1"])
        await quiet()
        assert peers["two:2"].opened == 0


@timeless
async def test_each_authority_falls_back_by_its_own_rule():  # FBK-7, FBK-2
    source = by_reachability()
    source["authorities"]["y"] = {"fallback_on_reachability_only": False}
    source["authorities"]["z"] = {"fallback_on_reachability_only": None}
    y, z = XDSTP.format("y", "a"), XDSTP.format("z", "a")
    async with talk_to_several(source, delta=True, **STEADY) as (client, peers):
        watchers = {name: follow(client, xp.CLUSTER, name) for name in ("a", y, z)}
        follow(client, xp.CLUSTER, A)
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, *(cluster(name) for name in ("a", A, y, z)))
        peers["one:1"].go_down()
        stream.end()
        _, request = await accept(peers["two:2"])
        assert names(request) == [A]
        await quiet(30)
        for name, watcher in watchers.items():
            assert seen(watcher) == [("resource", name), ("ambient", "UNAVAILABLE")]


@timeless
async def test_watchers_hear_when_the_last_server_falls_too():  # FBK-7, FBK-5
    async with talk_to_several(by_reachability(), delta=True, **STEADY) as (client, peers):
        peers["two:2"].go_down("second")
        watcher = follow(client, xp.CLUSTER, A)
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster(A))
        peers["one:1"].go_down("first")
        stream.end()
        await quiet(60)
        told = watcher.seen()
        assert [status(update) for update in told] == [("resource", A), ("ambient", "UNAVAILABLE")]
        assert "second" in told[-1].ambient_error.message


@timeless
async def test_an_unwatched_authority_does_not_fall_back():  # FBK-7
    async with talk_to_several(by_reachability(), delta=True, **STEADY) as (client, peers):
        watcher = follow(client, xp.CLUSTER, A)
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peers["one:1"])
        await exchange(stream, xp.CLUSTER, cluster(A), cluster("a"))
        await watcher.close()
        await quiet()
        peers["one:1"].go_down()
        stream.end()
        await quiet(60)
        assert peers["two:2"].opened == 0


def test_the_rule_is_true_or_false():  # FBK-7
    assert xp.Bootstrap.load(by_reachability()).authority("x").fallback_on_reachability_only
    assert not xp.Bootstrap.load(by_reachability(None)).authority("x").fallback_on_reachability_only
    with pytest.raises(xp.ConfigError) as caught:
        xp.Bootstrap.load(by_reachability("yes"))
    assert [problem.path for problem in caught.value.problems] == ["authorities.x.fallback_on_reachability_only"]
