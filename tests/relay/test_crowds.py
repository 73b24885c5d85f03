"""Many parameter sets of one name: what is said to one of them concerns nobody else."""

from __future__ import annotations

import xdsprism as xp
from tests.client.rig import both, endpoint, follow, quiet, timeless
from tests.relay.rig import marks, pair

CROWD = 30


@both
@timeless
async def test_each_of_a_crowd_has_its_own_and_loses_its_own(delta: bool) -> None:
    # PRX-4, PRX-5, DYN-59
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        with origin.store.transaction() as tx:
            for number in range(CROWD):
                tx.put(endpoint("a", f"m{number}"), when=f"pod=p{number}")
        watched = [follow(client, xp.ENDPOINT, "a", params={"pod": f"p{number}"}) for number in range(CROWD)]
        await quiet(60)
        assert [await marks(each) for each in watched] == [[("a", f"m{number}")] for number in range(CROWD)]
        origin.put(endpoint("a", "new"), when="pod=p7")
        await quiet(60)
        assert [await marks(each) for each in watched] == [[("a", "new")] if at == 7 else [] for at in range(CROWD)]
        origin.delete(xp.ENDPOINT, "a", when="pod=p8")
        await quiet(60)
        told = [await marks(each) for each in watched]
        assert told[:8] + told[9:] == [[]] * (CROWD - 1)
        assert {mark for _, mark in told[8]} <= {"NOT_FOUND", "UNAVAILABLE"}
        assert bool(told[8]) or not delta
        origin.put(endpoint("a", "back"), when="pod=p8")
        await quiet(60)
        assert [await marks(each) for each in watched] == [[("a", "back")] if at == 8 else [] for at in range(CROWD)]
