"""Removed variants: each client that shared one is told once, and does not get it again."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import both, cluster, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, marks, pair, station
from tests.relay.stranger import Stranger, variant
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}
PROD_EU, PROD_US = {"env": "prod", "region": "eu"}, {"env": "prod", "region": "us"}
TEST_EU, TEST_US = {"env": "test", "region": "eu"}, {"env": "test", "region": "us"}
GONE = [("a", "NOT_FOUND")]


@both
@timeless
async def test_a_resource_that_a_full_state_lacks_is_gone_for_all_clients_that_shared_it(delta: bool) -> None:
    # PRX-34: the server has no word for what is not there
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=False, upstream_form="locators") as relay,
        relay.client(delta=delta) as client,
    ):
        watched = [follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, PROD_EU, PROD_US)]
        server = Stranger(await peer.accept(), type_url=xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 3
        assert len(server.asked()) == 1
        server.says()
        await quiet(3.0)
        assert [await marks(each) for each in watched] == [GONE] * 3
        server.says(variant("2", "env=prod", xp.CLUSTER))
        assert [await marks(each) for each in watched] == [[("a", "2")]] * 3


@both
@timeless
async def test_clients_that_shared_a_lost_variant_are_asked_for_before_it_is_gone_for_them(delta: bool) -> None:
    # PRX-34, PRX-6
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=False, upstream_form="locators") as relay,
        relay.client(delta=delta) as client,
    ):
        prod, europe, states = (follow(client, xp.CLUSTER, "a", params=each) for each in (PROD, PROD_EU, PROD_US))
        server = Stranger(await peer.accept(), type_url=xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert [await marks(each) for each in (prod, europe, states)] == [[("a", "1")]] * 3
        server.asked()
        server.says()
        await quiet(0.1)
        asked = server.asked()
        assert PROD_EU in asked
        assert PROD_US in asked
        server.says(variant("2", "env=prod and region=eu", xp.CLUSTER))
        await quiet(3.0)
        assert [await marks(each) for each in (prod, europe, states)] == [GONE, [("a", "2")], GONE]


@both
@timeless
async def test_a_variant_that_is_replaced_for_one_client_is_gone_for_others_without_an_answer(delta: bool) -> None:
    # PRX-34
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=False, upstream_form="locators") as relay,
        relay.client(delta=delta) as client,
    ):
        europe, states, other = (follow(client, xp.CLUSTER, "a", params=each) for each in (PROD_EU, PROD_US, PROD))
        server = Stranger(await peer.accept(), type_url=xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert [await marks(each) for each in (europe, states, other)] == [[("a", "1")]] * 3
        server.says(variant("2", "env=prod and region=eu", xp.CLUSTER))
        await quiet(6.0)
        assert [await marks(each) for each in (europe, states, other)] == [[("a", "2")], GONE, GONE]


@both
@timeless
async def test_a_removed_variant_is_gone_for_all_clients_though_the_server_does_not_answer(delta: bool) -> None:
    # PRX-34, PRX-5
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client(delta=delta) as client:
        watched = [follow(client, xp.ENDPOINT, "a", params=params) for params in (PROD, PROD_EU, PROD_US)]
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"))
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 3
        server.says(absent="a", when="env=prod")
        await quiet(3.0)
        assert [await marks(each) for each in watched] == [GONE] * 3


@both
@timeless
async def test_while_the_server_is_away_clients_get_no_removals(delta: bool) -> None:
    # PRX-34, PRX-11: it can't say what there is instead
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=False, upstream_form="locators") as relay,
        relay.client(delta=delta) as client,
    ):
        prod, europe = (follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, PROD_EU))
        server = Stranger(await peer.accept(), type_url=xp.CLUSTER)
        await quiet()
        server.says(variant("1", "env=prod", xp.CLUSTER))
        assert [await marks(prod), await marks(europe)] == [[("a", "1")]] * 2
        server.says()
        server.stream.end("UNAVAILABLE", "gone")
        for _ in range(10):
            peer.refuse("UNAVAILABLE", "gone")
        await quiet(10.0)
        assert [mark for mark in await marks(europe) if mark[1] == "NOT_FOUND"] == []


@modes
@timeless
async def test_each_client_is_told_once_of_two_variants_that_vanish_together(up: bool, down: bool) -> None:
    # PRX-38
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.vary(prod=cluster("a", "p"), test=cluster("a", "t"))
        params = (PROD_EU, TEST_EU, PROD_US, TEST_US, PROD, TEST)
        watched = [follow(client, xp.CLUSTER, "a", params=each) for each in params]
        assert [await marks(each) for each in watched] == [[("a", "p")], [("a", "t")]] * 3
        origin.delete(xp.CLUSTER, "a")
        await quiet(10.0)
        assert [await marks(each) for each in watched] == [GONE] * 6


@pytest.mark.parametrize("server", ["stranger", "xdsprism"])
@pytest.mark.parametrize("way", ["names", "removed", "errors"])
@both
@timeless
async def test_removals_that_come_one_by_one_are_seen_once(delta: bool, way: str, server: str) -> None:
    # PRX-38: between them, some ask what there is now
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client(delta=delta) as client:
        params = (PROD_EU, TEST_EU, PROD_US, TEST_US)
        watched = [follow(client, xp.ENDPOINT, "a", params=each) for each in params]
        origin = Stranger(await peer.accept(), server)
        await quiet()
        origin.says(variant("p", "env=prod"), variant("t", "env=test"))
        await quiet(0.1)
        origin.says(variant("p", "env=prod"), variant("t", "env=test"))
        assert [await marks(each) for each in watched] == [[("a", "p")], [("a", "t")]] * 2
        origin.says(absent="a", when="env=prod")
        await quiet(0.1)
        origin.says(absent="a", way=way)
        await quiet(0.1)
        origin.says(absent="a", when="env=test")
        for _ in range(5):
            await quiet(0.1)
            origin.says(absent="a", way=way)
        await quiet(5.0)
        assert [await marks(each) for each in watched] == [GONE] * 4


@modes
@timeless
async def test_a_new_client_is_not_given_a_removed_variant(up: bool, down: bool) -> None:
    # PRX-38, PRX-5: those who have it keep it until the server has said what there is instead
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        europe, states = (follow(client, xp.ENDPOINT, "a", params=params) for params in (PROD_EU, PROD_US))
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"))
        assert [await marks(europe), await marks(states)] == [[("a", "1")]] * 2
        if up:
            server.says(variant("2", "env=prod and region=eu"), absent="a", when="env=prod")
        else:
            server.says(variant("2", "env=prod and region=eu"))
        await quiet(0.1)
        late = follow(client, xp.ENDPOINT, "a", params={**PROD_US, "x": "1"})
        await quiet(0.1)
        assert (len(europe.seen()), states.seen(), late.seen()) == (1, [], [])
        server.says(variant("3", "env=prod and region=us"))
        assert [await marks(states), await marks(late)] == [[("a", "3")]] * 2


@both
@pytest.mark.parametrize("down", [True, False], ids=["to-delta", "to-sotw"])
@timeless
async def test_an_unanswered_subscription_delays_no_other(delta: bool, down: bool) -> None:
    # PRX-14, PRX-11: silence says nothing of others
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=delta, upstream_form="locators") as relay,
        relay.client(delta=down) as client,
    ):
        nobody = follow(client, xp.ENDPOINT, "a", params={})
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept())
        await quiet(3.0)
        assert PROD in server.asked()
        server.says(variant("1", "env=prod"))
        assert [await marks(prod), await marks(nobody)] == [[("a", "1")], []]
