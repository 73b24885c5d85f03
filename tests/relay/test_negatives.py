"""Negative answers of other servers: each concerns the parameter set that asked, unless its constraints say more."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

import xdsprism as xp
from tests.client.rig import cluster, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, chain, marks, station
from tests.relay.stranger import Stranger, variant
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, QA, TEST = {"env": "prod"}, {"env": "qa"}, {"env": "test"}

# How a server says that there is nothing. SotW has errors only.
WAYS = ("names", "removed", "errors")
ways = pytest.mark.parametrize(
    ("up", "down", "way"),
    [(up, down, way) for up, down in MODES for way in WAYS if up or way == "errors"],
    ids=[
        f"{mode}-{way}" for (up, _), mode in zip(MODES, MODE_IDS, strict=True) for way in WAYS if up or way == "errors"
    ],
)


@ways
@timeless
async def test_an_absence_for_some_params_takes_nothing_from_others(up: bool, down: bool, way: str) -> None:
    # PRX-31
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"))
        assert await marks(prod) == [("a", "1")]
        qa = follow(client, xp.ENDPOINT, "a", params=QA)
        await quiet()
        server.says(absent="a", way=way)
        assert [await marks(qa), await marks(prod)] == [[("a", "NOT_FOUND")], []]
        late = follow(client, xp.ENDPOINT, "a", params={**PROD, "x": "1"})
        assert await marks(late) == [("a", "1")]
        server.says(variant("2", "env=prod"))
        assert [await marks(prod), await marks(late), await marks(qa)] == [[("a", "2")], [("a", "2")], []]


@ways
@timeless
async def test_a_newcomer_is_asked_for_though_there_is_nothing_for_another(up: bool, down: bool, way: str) -> None:
    # PRX-31: nothing at all is known of those who are different
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        qa = follow(client, xp.ENDPOINT, "a", params=QA)
        server = Stranger(await peer.accept())
        await quiet()
        server.says(absent="a", way=way)
        assert await marks(qa) == [("a", "NOT_FOUND")]
        server.asked()
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        assert await marks(prod) == []
        assert PROD in server.asked()
        server.says(variant("1", "env=prod"))
        assert [await marks(prod), await marks(qa)] == [[("a", "1")], []]


@ways
@timeless
async def test_the_unanswered_one_of_two_waiting_clients_is_told_nothing(up: bool, down: bool, way: str) -> None:
    # PRX-31: nobody can tell whose answer it is
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"))
        assert await marks(prod) == [("a", "1")]
        qa, test = (follow(client, xp.ENDPOINT, "a", params=params) for params in (QA, TEST))
        await quiet()
        server.says(absent="a", way=way)
        await quiet(0.1)
        server.says(variant("t", "env=test"))
        assert await marks(test) == [("a", "t")]
        await quiet(5.0)  # that was all
        assert [await marks(qa), await marks(test), await marks(prod)] == [[("a", "NOT_FOUND")], [], []]


@ways
@timeless
async def test_after_a_reconnect_nothing_is_taken_from_who_is_up_to_date(up: bool, down: bool, way: str) -> None:
    # PRX-31, PRX-12: the server need not send again what the relay has
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"))
        qa = follow(client, xp.ENDPOINT, "a", params=QA)
        await quiet()
        server.says(absent="a", way=way)
        assert [await marks(prod), await marks(qa)] == [[("a", "1")], [("a", "NOT_FOUND")]]
        server.stream.end()
        server = Stranger(await peer.accept())
        await quiet()
        server.asked()
        server.says(absent="a", way=way)
        await quiet(0.1)
        assert PROD in server.asked()  # once more, so that it is known
        server.says(variant("1", "env=prod"))
        await quiet(5.0)
        assert [await marks(prod), await marks(qa)] == [[], []]


@ways
@timeless
async def test_after_a_reconnect_what_is_gone_is_gone(up: bool, down: bool, way: str) -> None:
    # PRX-31, PRX-12
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up, upstream_form="locators") as relay, relay.client(delta=down) as client:
        prod, test = (follow(client, xp.ENDPOINT, "a", params=params) for params in (PROD, TEST))
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "env=prod"), variant("2", "env=test"))
        await quiet()
        server.says(variant("1", "env=prod"), variant("2", "env=test"))
        assert [await marks(prod), await marks(test)] == [[("a", "1")], [("a", "2")]]
        server.stream.end()
        server = Stranger(await peer.accept())
        await quiet()
        server.says(absent="a", way=way)
        await quiet(0.1)
        assert [prod.seen(), test.seen()] == [[], []]
        server.says(absent="a", way=way)
        await quiet(5.0)
        assert [await marks(prod), await marks(test)] == [[("a", "NOT_FOUND")], [("a", "NOT_FOUND")]]


@timeless
async def test_a_removal_of_what_was_sent_is_no_answer_to_another() -> None:
    # PRX-31: the server had not heard of the question when it said so
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client() as client:
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept())
        await quiet()
        server.says(variant("1", "true"))
        assert await marks(prod) == [("a", "1")]
        other = follow(client, xp.ENDPOINT, "a", params={})
        assert await marks(other) == [("a", "1")]
        server.says(variant("2", "env exists"))
        await quiet(0.1)
        server.says(absent="a")  # what both had before
        await quiet(0.1)
        server.says(variant("3", "not env exists"))
        assert [await marks(prod), await marks(other)] == [[("a", "2")], [("a", "3")]]


@pytest.mark.parametrize("identifier", ["xdsprism", "xdsprism/2.1", "xdsprism 2.1", "stranger", "xdsprisma"])
@timeless
async def test_a_server_that_says_for_nobody_is_asked_once(identifier: str) -> None:
    # PRX-31, PRX-14, DYN-11: of another server that is not known
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(relay.client()) for _ in range(20)]
        watched = [follow(each, xp.ENDPOINT, "a", params={"x": str(number)}) for number, each in enumerate(clients)]
        server = Stranger(await peer.accept(), identifier)
        await quiet()
        assert len(server.asked()) == 1
        server.says(absent="a")
        await quiet(0.1)
        told = sum(len(each.seen()) for each in watched)
        known = identifier.startswith(("xdsprism/", "xdsprism ")) or identifier == "xdsprism"
        assert (told, bool(server.asked())) == (20 if known else 1, not known)


@timeless
async def test_for_nobody_takes_nothing_from_those_who_have_a_variant() -> None:
    # PRX-31: not even if a server says so that is known to mean it
    peer = ScriptedPeer()
    async with station(peer.connect, upstream_form="locators") as relay, relay.client() as client:
        prod = follow(client, xp.ENDPOINT, "a", params=PROD)
        server = Stranger(await peer.accept(), "xdsprism")
        await quiet()
        server.says(variant("1", "env=prod"))
        qa = follow(client, xp.ENDPOINT, "a", params=QA)
        await quiet()
        server.says(absent="a")
        late = follow(client, xp.ENDPOINT, "a", params={**PROD, "x": "1"})
        assert [await marks(each) for each in (prod, qa, late)] == [[("a", "1")], [("a", "NOT_FOUND")], [("a", "1")]]


@modes
@timeless
async def test_a_relay_behind_a_relay_knows_no_more_of_an_absence_than_that_one(up: bool, down: bool) -> None:
    # PRX-31, PRX-24: {x=1} has nothing; who has that and more may have a variant
    peer = ScriptedPeer()
    async with (
        station(peer.connect, delta=up, upstream_form="locators") as first,
        station(first.wire.connect, delta=up, upstream_form="locators") as second,
        second.client(delta=down) as client,
    ):
        one = follow(client, xp.ENDPOINT, "a", params={"x": "1"})
        server = Stranger(await peer.accept())
        await quiet()
        server.says(absent="a", way="names" if up else "errors")
        assert await marks(one) == [("a", "NOT_FOUND")]
        prod = follow(client, xp.ENDPOINT, "a", params={"x": "1", **PROD})
        assert await marks(prod) == []
        server.says(variant("1", "env=prod"))
        assert [await marks(prod), await marks(one)] == [[("a", "1")], []]


@timeless
async def test_relays_in_a_row_tell_of_what_nobody_has() -> None:
    # PRX-24, DYN-11
    async with chain(2, upstream_form="locators") as (origin, relays), relays[-1].client() as client:
        watched = [follow(client, xp.CLUSTER, "a", params={"x": str(number)}) for number in range(5)]
        await quiet(5.0)  # the first can't say for whom there is nothing, and these are five on one stream
        assert [await marks(each) for each in watched] == [[("a", "NOT_FOUND")]] * 5
        assert len(origin.asked(xp.CLUSTER)) == 1
        origin.put(cluster("a", "1"))
        assert [await marks(each) for each in watched] == [[("a", "1")]] * 5
