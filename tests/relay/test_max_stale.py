"""A relay whose servers have been away for too long: only clients that have a cached resource keep it."""

from __future__ import annotations

from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import both, clock, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Raw, Station, marks, pair
from xdsprism.admin.cache_model import ClockReading, cached_rows
from xdsprism.core.model.steps import finish

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

UNAVAILABLE = 14
PROD = {"env": "prod"}


async def newcomer(relay: Station, name: str, *, delta: bool, **fields: Any) -> tuple[Raw, list[Any]]:
    client = await relay.raw(delta=delta)
    await client.want(xp.CLUSTER, name, params=PROD, **fields)
    return client, await client.rest()


def is_deletion(response: Any) -> bool:
    removed = (*getattr(response, "removed_resources", ()), *getattr(response, "removed_resource_names", ()))
    return bool(removed) or any(error.error_detail.code != UNAVAILABLE for error in response.resource_errors)


@modes
@timeless
async def test_clients_keep_what_is_too_old_and_newcomers_do_not_get_it(up: bool, down: bool) -> None:
    # PRX-25, PRX-10
    async with pair(delta=up, max_stale=1000.0) as (origin, relay), relay.client(delta=down) as client:
        origin.put(cluster("a", "1"), cluster("b", "1"))
        watched = follow(client, xp.CLUSTER, "a", params=PROD), follow(client, xp.CLUSTER, params=PROD)
        assert [len(await marks(each)) for each in watched] == [1, 2]
        origin.wire.cut(down=True)
        await quiet(990.0)
        for name, count in (("a", 1), ("*", 2)):
            raw, responses = await newcomer(relay, name, delta=down)
            assert [len(response.resources) for response in responses] == [count]
            raw.close()
        await quiet(20.0)
        late = [await newcomer(relay, name, delta=down) for name in ("a", "none", "*")]
        for name, (_, responses) in zip(("a", "none", "*"), late, strict=True):
            assert not any(response.resources or is_deletion(response) for response in responses)
            codes = [error.error_detail.code for response in responses for error in response.resource_errors]
            if name == "a":  # of the others nothing was known: that nobody can be asked is said with the next try
                assert codes == [UNAVAILABLE]
        claims = {"initial_resource_versions": {"a": "0"}} if down else {"version_info": "0"}
        back, responses = await newcomer(relay, "a", delta=down, **claims)
        assert not any(response.resources or is_deletion(response) for response in responses)
        assert [mark for each in watched for mark in await marks(each) if not mark[1].startswith("(")] == []
        origin.put(cluster("a", "2"))
        origin.wire.down = False
        await quiet(300.0)
        assert [await marks(each) for each in watched] == [[("a", "2")], [("a", "2")]]
        (raw, _), _, (everything, _) = late
        for each, count in ((raw, 1), (back, 1), (everything, 2)):
            assert len((await each.rest())[-1].resources) == count
        for each in (*(one for one, _ in late), back):
            each.close()


@both
@timeless
async def test_an_absence_that_is_too_old_is_not_told_either(delta: bool) -> None:
    # PRX-25: never a deletion
    async with pair(max_stale=1000.0) as (origin, relay), relay.client(delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a", params=PROD)
        assert await marks(watched) == [("a", "NOT_FOUND")]
        origin.wire.cut(down=True)
        await quiet(2000.0)
        raw, responses = await newcomer(relay, "a", delta=delta)
        assert responses
        assert not any(map(is_deletion, responses))
        raw.close()


@timeless
async def test_staleness_counts_from_when_the_server_was_last_connected() -> None:
    # PRX-25: something that never changed is not old, and a server that comes and goes was there
    async with pair(max_stale=1000.0) as (origin, relay), relay.client() as client:
        origin.put(endpoint("a", "1"))
        assert await marks(follow(client, xp.ENDPOINT, "a", params=PROD)) == [("a", "1")]
        for _ in range(5):
            await quiet(5000.0)
            origin.wire.cut(down=True)
            await quiet(900.0)
            async with relay.client() as late:
                assert await marks(follow(late, xp.ENDPOINT, "a", params={**PROD, "x": "1"})) == [("a", "1")]
            origin.wire.down = False


@both
@timeless
async def test_pages_say_since_when_a_server_is_away_and_later_attempts_do_not_change_it(delta: bool) -> None:
    # PRX-25, PRX-28
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        origin.put(cluster("a", "1"))
        assert await marks(follow(client, xp.CLUSTER, "a", params=PROD)) == [("a", "1")]
        origin.wire.cut(down=True)
        lost = clock()
        await quiet(600.0)
        assert len(origin.wire.opened) > 2
        moment = ClockReading(clock(), 1_800_000_000.0)
        (row,), _ = finish(cached_rows(relay.relay.relaying, xp.CLUSTER, "a", moment))
        assert (row["stale"], row["stale_since"]) == (True, moment.time_of_day(lost))
