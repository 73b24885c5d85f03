"""What a third party puts into a Host header does not reach the server behind a relay without bound."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import cluster, quiet, timeless
from tests.relay.rig import pair
from tests.relay.test_vhds import envoy, heard, host, routes

SMALL = xp.Settings(limits=xp.Limits(unresolved=50))


@timeless
async def test_a_scan_of_hosts_does_not_grow_the_subscriptions_to_the_server() -> None:
    # VHD-25, VHD-26, PRX-27, PRX-35
    async with pair(settings=SMALL) as (origin, relay):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"))
        raw = await envoy(relay)
        await heard(raw)
        for turn in range(20):
            scanned = [f"rc/unknown{turn}-{number}.test" for number in range(50)]
            await raw.want(xp.VIRTUAL_HOST, *scanned)
            answered = [token for tokens in await heard(raw) for token in tokens]
            assert sorted(answered) == sorted(f"?{name}" for name in scanned)
        await quiet(60)
        assert len(origin.asked(xp.VIRTUAL_HOST)) <= 50 + 1  # and the wildcard
        assert len(relay.relay.store.table(xp.VIRTUAL_HOST)) <= 50 + 1
        await raw.want(xp.VIRTUAL_HOST, "rc/shop.test")
        assert await heard(raw) == [["rc/shop(rc/shop.test)=1"]]
        assert len(origin.wire.ends) == 1
        raw.close()


@timeless
async def test_a_scan_of_clusters_leaves_few_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    # VHD-25, VHD-26, PRX-27, PRX-35
    monkeypatch.setattr("xdsprism.core.relay.timers.MOST", 100)
    async with pair(settings=SMALL) as (origin, relay):
        origin.put(cluster("shop"))
        raw = await relay.raw()

        async def answered(*names: str) -> tuple[list[str], list[str]]:
            await raw.want(xp.CLUSTER, *names)
            responses = await raw.rest()
            for response in responses:
                await raw.ack(response)
            there = [resource.name for response in responses for resource in response.resources]
            return there, sorted(name for response in responses for name in response.removed_resources)

        for turn in range(20):
            scanned = sorted(f"unknown{turn}-{number}" for number in range(50))
            assert await answered(*scanned) == ([], scanned)
            assert len(origin.asked(xp.CLUSTER)) <= 50 + 100
        await quiet(6)
        assert len(origin.asked(xp.CLUSTER)) <= 50
        assert await answered("shop") == (["shop"], [])
        assert len(origin.wire.ends) == 1
        raw.close()


ODD = {
    "4,000 characters": "x" * 4000,
    "5,000 characters": "x" * 5000,
    "100,000 characters": "y" * 100_000,
    "slashes and spaces": "a/b /c",
    "no host": "",
    "not a host": "\x01\x7f%ü*?[",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@timeless
async def test_a_host_of_any_length_and_form_is_answered_and_nothing_ends(odd: str) -> None:
    # VHD-26
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"))
        raw = await envoy(relay)
        await heard(raw)
        await raw.want(xp.VIRTUAL_HOST, f"rc/{odd}")
        assert await heard(raw) == [[f"?rc/{odd}"]]
        await raw.want(xp.VIRTUAL_HOST, "rc/shop.test")
        assert await heard(raw) == [["rc/shop(rc/shop.test)=1"]]
        assert len(origin.wire.ends) == len(relay.wire.ends) == 1
        if len(odd) > xp.Limits().name_bytes:  # and then it does not reach the server
            assert not any(name.endswith(odd) for name, _ in origin.asked(xp.VIRTUAL_HOST))
        raw.close()
