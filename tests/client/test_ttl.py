"""Resources with a time to live, and the heartbeats that extend it."""

from __future__ import annotations

from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import accept, both, clock, cluster, endpoint, follow, quiet, silent, status, talk, timeless
from tests.client.vhosts import void
from tests.client.wrapping import beat, is_ack, is_nack, reply, wrap


async def until(moment: float) -> None:
    await quiet(moment - clock())


@pytest.mark.parametrize("trusted", [False, True])
@both
@timeless
async def test_a_resource_whose_time_is_over_is_gone(delta: bool, trusted: bool) -> None:
    # TTL-4
    async with talk(delta=delta, fail_on_data_errors=trusted) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=10), wrap(cluster("b"))), "n1")
        await until(9.9)
        assert len(watcher.seen()) == 2
        gone = await watcher.next()
        assert clock() == 10
        assert (gone.name, status(gone)) == ("a", ("error", "NOT_FOUND"))
        assert "its TTL has expired" in str(gone.error)
        late = follow(client, xp.CLUSTER, "a")
        await until(1000)
        assert list(map(status, late.seen())) == [("error", "NOT_FOUND")]
        assert watcher.seen() == []
        assert await silent(stream)


@both
@timeless
async def test_a_heartbeat_extends_the_ttl_without_an_update(delta: bool) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a"), ttl=10))
        for number in range(1, 6):
            await until(number * 8)
            assert is_ack(await reply(stream, xp.ENDPOINT, beat("a", 10), nonce=f"h{number}"), f"h{number}")
        await until(49.9)
        assert list(map(status, watcher.seen())) == [("resource", "a")]
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() == 50


@timeless
async def test_a_full_response_may_hold_heartbeats_next_to_resources() -> None:
    # TTL-4: what has a heartbeat is there
    async with talk(fail_on_data_errors=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=10), cluster("b"))
        await until(5)
        await reply(stream, xp.CLUSTER, beat("a", 10), cluster("b"), nonce="n2")
        await until(14)
        assert len(watcher.seen()) == 2
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() == 15


@both
@timeless
async def test_a_heartbeat_of_a_variant_extends_it_where_it_is_held(delta: bool) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        prod, test = (follow(client, xp.ENDPOINT, "a", params={"env": env}) for env in ("prod", "test"))
        stream, _ = await accept(peer)
        variants = [wrap(endpoint("a", env), when=f"env={env} and not x exists", ttl=10) for env in ("prod", "test")]
        await reply(stream, xp.ENDPOINT, *variants)
        await until(5)
        await reply(stream, xp.ENDPOINT, beat("a", 10, when="not x exists and env=prod"), nonce="n2")
        await until(14)
        assert [status(update)[0] for update in prod.seen()] == ["resource"]
        assert [status(update)[0] for update in test.seen()] == ["resource", "error"]


@pytest.mark.parametrize("when", ["true", "env=prod and y=1"], ids=["wider", "narrower"])
@both
@timeless
async def test_a_heartbeat_of_another_variant_extends_nothing(delta: bool, when: str) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", params={"env": "prod", "y": "1"})
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a"), when="env=prod", ttl=10))
        await until(5)
        assert is_ack(await reply(stream, xp.ENDPOINT, beat("a", 10, when=when), nonce="n2"), "n2")
        await until(12)
        assert [status(update)[0] for update in watcher.seen()] == ["resource", "error"]


@both
@timeless
async def test_a_heartbeat_of_a_variant_that_matches_nothing_that_was_asked_still_counts(delta: bool) -> None:
    # TTL-4, DYN-56
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a", params={"env": "test"})
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a"), when="env=prod", ttl=10))
        await until(5)
        await reply(stream, xp.ENDPOINT, beat("a", 10, when="env=prod"), nonce="n2")
        await until(14)
        assert [status(update)[0] for update in watcher.seen()] == ["resource"]


@both
@timeless
async def test_a_heartbeat_for_what_is_not_held_is_acked_and_gives_nothing(delta: bool) -> None:
    # TTL-4: neither to a watcher that still waits, nor for a name that nobody asked for, nor after the end
    async with talk(delta=delta) as (client, peer):
        watcher, short = follow(client, xp.ENDPOINT, "a"), follow(client, xp.ENDPOINT, "b")
        stream, _ = await accept(peer)
        assert is_ack(await reply(stream, xp.ENDPOINT, beat("a", 10), beat("stranger", 10)), "n1")
        await reply(stream, xp.ENDPOINT, wrap(endpoint("b"), ttl=1), nonce="n2")
        await until(5)
        assert is_ack(await reply(stream, xp.ENDPOINT, beat("b", 10), nonce="n3"), "n3")
        assert [status(update)[0] for update in short.seen()] == ["resource", "error"]
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() == 15  # as if nothing had come
        await until(100)
        assert short.seen() == []


@pytest.mark.parametrize(("ttl", "end"), [(3.0, 8.0), (100.0, 105.0), (None, None)], ids=["less", "more", "none"])
@pytest.mark.parametrize("changed", [False, True], ids=["same", "new"])
@both
@timeless
async def test_a_resource_sent_again_has_the_time_that_it_then_has(
    delta: bool, changed: bool, ttl: float | None, end: float | None
) -> None:
    # TTL-4: with the same contents nobody is told
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=10))
        await until(5)
        await reply(stream, xp.CLUSTER, wrap(cluster("a", "new" if changed else ""), ttl=ttl), nonce="n2")
        await until(end - 0.1 if end is not None else 1000)
        assert [status(update)[0] for update in watcher.seen()] == ["resource"] * (1 + changed)
        if end is not None:
            assert status(await watcher.next()) == ("error", "NOT_FOUND")
            assert clock() == end


@both
@timeless
async def test_a_heartbeat_may_give_another_time_or_a_first_one(delta: bool) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a")))
        await until(1)
        await reply(stream, xp.ENDPOINT, beat("a", 100), nonce="n2")
        await reply(stream, xp.ENDPOINT, beat("a", 2.5), nonce="n3")
        await until(3.4)
        assert [status(update)[0] for update in watcher.seen()] == ["resource"]
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        assert clock() == 3.5


@both
@timeless
async def test_an_expired_resource_may_come_again(delta: bool) -> None:
    # TTL-4: and in delta it is not named as held
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=10))
        await until(20)
        stream.end()
        stream, request = await accept(peer)
        assert not delta or not request.initial_resource_versions
        await reply(stream, xp.CLUSTER, wrap(cluster("a")), nonce="m1")
        await until(100)
        assert [status(update)[0] for update in watcher.seen()] == ["resource", "error", "resource"]


@both
@timeless
async def test_members_of_a_wildcard_expire_one_by_one(delta: bool) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=5), wrap(cluster("b"), ttl=10), wrap(cluster("c")))
        await until(7)
        assert [(update.name, status(update)[0]) for update in watcher.seen()][3:] == [("a", "error")]
        late = follow(client, xp.CLUSTER)
        await quiet()
        assert [update.name for update in late.seen()] == ["b", "c"]
        await until(11)
        assert [(update.name, status(update)[0]) for update in watcher.seen()] == [("b", "error")]


@pytest.mark.parametrize("wild", [False, True], ids=["name", "wildcard"])
@both
@timeless
async def test_the_ttl_of_an_unwatched_resource_expires_silently(delta: bool, wild: bool) -> None:
    # TTL-4
    async with talk(delta=delta) as (client, peer):
        other, watcher = follow(client, xp.ENDPOINT, "x"), follow(client, xp.CLUSTER, *([] if wild else ["a"]))
        stream, _ = await accept(peer)
        await stream.request()
        await reply(stream, xp.CLUSTER, wrap(cluster("a"), ttl=10))
        await watcher.next()
        await watcher.close()
        await until(14.9)
        assert other.seen() == []
        await until(15.1)  # its timer still works
        assert list(map(status, other.seen())) == [("error", "NOT_FOUND")]


@timeless
async def test_in_sotw_a_resource_without_contents_is_refused_with_aliases_too() -> None:
    # NAK-14: only delta has a Resource that says that there is none (VHD-7)
    async with talk(delta=False) as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        nack = await reply(stream, xp.ENDPOINT, void("a", "a"))
        assert is_nack(nack, "n1")
        assert "a: it has no contents" in nack.error_detail.message


@both
@timeless
async def test_a_resource_without_contents_and_time_is_refused(delta: bool) -> None:
    # TTL-4, NAK-14
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await reply(stream, xp.ENDPOINT, wrap(endpoint("a")))
        empty: Any = beat("a", None)
        nack = await reply(stream, xp.ENDPOINT, empty, nonce="n2")
        assert is_nack(nack, "n2")
        assert "a: it has no contents" in nack.error_detail.message
        await quiet()
        assert list(map(status, watcher.seen())) == [("resource", "a"), ("ambient", "INVALID_ARGUMENT")]
