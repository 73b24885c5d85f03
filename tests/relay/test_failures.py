"""An error of this program while a relay works costs one name or one response, and no client what it has (OPS-10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import both, cluster, endpoint, follow, timeless
from tests.relay.rig import Raw, Station, marks, pair
from xdsprism.core.model.types import Params
from xdsprism.core.watch.entry import Entry
from xdsprism.relay.feed import Feed

ALL = ("a", "b", "c")


class Fault:
    """Stands in for a method, and fails for one name as long as it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, name: str = "b") -> None:
        self.is_there = True
        self.count = 0
        real = getattr(owner, method)

        def instead(one: Any, entry: Entry, *more: Any) -> Any:
            if self.is_there and entry.name == name:
                self.count += 1
                raise ValueError("planted")
            return real(one, entry, *more)

        monkeypatch.setattr(owner, method, instead)


async def returning(relay: Station) -> Raw:
    """A SotW client that comes back for all clusters, and takes those that the next response lacks for deleted."""
    client = await relay.raw(delta=False)
    await client.send(type_url=xp.CLUSTER, version_info="of an earlier stream")
    return client


async def sizes(client: Raw) -> list[int]:
    """How many resources each response has that came within a minute; all are ACKed."""
    found = []
    await asyncio.sleep(60)
    for response in await client.rest():
        found.append(len(response.resources))
        await client.ack(response)
    return found


@both
@timeless
async def test_a_client_that_comes_back_loses_nothing_while_a_name_can_not_be_examined(
    delta: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10, SOT-4
    fault = Fault(monkeypatch, Feed, "pin")
    async with pair(delta=delta) as (origin, relay):
        origin.put(*map(cluster, ALL))
        client = await returning(relay)
        assert await sizes(client) == []
        assert fault.count > 1, "the relay tries it again"
        assert "'b'" in caplog.text
        fault.is_there = False
        assert await sizes(client) == [3]
        client.close()


@both
@timeless
async def test_a_listing_that_was_complete_serves_nobody_who_comes_back_while_a_new_name_fails(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-10, SOT-4
    fault = Fault(monkeypatch, Feed, "pin")
    async with pair(delta=delta) as (origin, relay):
        origin.put(*map(cluster, "ac"))
        first = await returning(relay)
        assert await sizes(first) == [2]
        origin.put(cluster("b"))
        assert await sizes(first) == []
        second = await returning(relay)
        assert await sizes(second) == []
        origin.put(cluster("a", "1"))
        assert await sizes(first) == [2], "who is there gets what the relay could take in"
        fault.is_there = False
        assert await sizes(second) == [3]
        assert await sizes(first) == [3]
        first.close()
        second.close()


@both
@timeless
async def test_other_names_and_types_are_served_while_one_can_not_be_examined(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-10
    fault = Fault(monkeypatch, Feed, "pin")
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        origin.put(*map(cluster, ALL), endpoint("e"))
        fresh = follow(client, xp.CLUSTER)
        assert sorted(name for name, _ in await marks(fresh)) == ["a", "c"]
        other = follow(client, xp.ENDPOINT, "e")
        assert [name for name, _ in await marks(other)] == ["e"]
        origin.put(cluster("c", "1"))
        assert await marks(fresh) == [("c", "1")]
        fault.is_there = False
        await asyncio.sleep(60)
        assert [name for name, _ in await marks(fresh)] == ["b"]


@both
@timeless
async def test_what_a_flush_could_not_publish_the_next_one_does(delta: bool) -> None:
    # OPS-10, SOT-4
    failures = 3

    def fail(_applied: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise ValueError("planted")

    async with pair(delta=delta) as (origin, relay):
        relay.relay.store.listeners.append(fail)
        origin.put(*map(cluster, ALL))
        client = await returning(relay)
        assert await sizes(client) == [3]
        failures = 1
        origin.put(cluster("a", "1"))
        origin.put(cluster("d"))
        assert (await sizes(client))[-1] == 4
        client.close()


class BrokenCache:
    """A disk cache that can write nothing."""

    def __init__(self) -> None:
        self.count = 0

    def recall(self, _entry: Entry) -> None:
        return None

    def on_changed(self, _entry: Entry, _before: object) -> None:
        self.count += 1
        raise ValueError("planted")

    def on_unsubscribed(self, _entry: Entry) -> None:
        self.count += 1
        raise ValueError("planted")


@both
@timeless
async def test_a_disk_cache_that_can_not_write_costs_no_stream(delta: bool, caplog: pytest.LogCaptureFixture) -> None:
    # OPS-10
    cache = BrokenCache()
    async with pair() as (origin, relay):
        origin.put(*map(cluster, ALL))
        async with relay.client(delta=delta, cache=cache) as client:
            watched = follow(client, xp.CLUSTER)
            assert sorted(name for name, _ in await marks(watched)) == [*ALL]
            await watched.close()
            await asyncio.sleep(1)
            assert len(relay.wire.opened) == 1
    assert cache.count > len(ALL)
    assert "the disk cache" in caplog.text


@timeless
async def test_a_chore_that_fails_stops_no_turn_of_the_hub(caplog: pytest.LogCaptureFixture) -> None:
    # OPS-10
    def fail() -> None:
        raise ValueError("planted")

    async with pair() as (origin, relay), relay.client() as client:
        relay.hub.chores.insert(0, fail)
        origin.put(cluster("a"))
        watched = follow(client, xp.CLUSTER, "a")
        assert len(await marks(watched)) == 1
        origin.put(cluster("a", "1"))
        assert await marks(watched) == [("a", "1")]
    assert "planted" in caplog.text


@timeless
async def test_ages_are_looked_at_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    # OPS-10, PRX-25
    fault = Fault(monkeypatch, Feed, "silence", name="a")
    async with pair(max_stale=10) as (origin, relay), relay.client() as client:
        origin.put(cluster("a"))
        watched = follow(client, xp.CLUSTER, "a")
        assert len(await marks(watched)) == 1
        origin.wire.cut(down=True)
        await asyncio.sleep(5)
        assert fault.count
        fault.is_there = False
        await asyncio.sleep(60)
        async with relay.client() as late:
            assert [word for _, word in await marks(follow(late, xp.CLUSTER, "a"))] != [""], "it is too old"


def test_a_flush_that_a_stopped_relay_drops_needs_no_event_loop() -> None:
    # OPS-10: nothing runs it to its end any more, so it is closed when it is freed
    async def begun() -> Any:
        async with pair(delta=True) as (_, relay):
            for number in range(1_000):
                relay.relay.relaying.want(xp.CLUSTER, f"cluster-{number}", Params())
            steps = relay.relay._flushing()  # noqa: SLF001 # whether the relay stops within a flush is chance
            next(steps)
            return steps

    asyncio.run(begun()).close()
