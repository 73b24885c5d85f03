"""Servers that fail in all ways: streams to clients stay open and clients keep what they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import bootstrap, both, clock, cluster, endpoint, follow, quiet, server, timeless
from tests.relay.rig import MODE_IDS, MODES, Station, held, marks, pair, station
from xdsprism.core.model.facts import Closed, Sent
from xdsprism.testing import PeerStream, ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD = {"env": "prod"}
LONG = 3600.0


async def served(peer: ScriptedPeer, *resources: Any) -> PeerStream:
    """The next stream from the relay, answered with these clusters."""
    stream = await peer.accept()
    await stream.request()
    stream.respond(xp.CLUSTER, *resources)
    await quiet()
    stream.pending()
    return stream


def untouched(relay: Station) -> Callable[[], bool]:
    """Whether from now on no client hears anything, and no stream of theirs ends."""
    sent, closed = relay.facts(Sent), relay.facts(Closed)
    return lambda: not sent and not closed


@modes
@timeless
async def test_slow_is_not_the_same_as_empty(up: bool, down: bool) -> None:
    # PRX-11: a client that comes back with something keeps it, however long the answer takes
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay:
        client = await relay.raw(delta=down)
        claim = {"initial_resource_versions": {"a": "1"}} if down else {"version_info": "1"}
        await client.want(xp.ENDPOINT, "a", **claim)
        stream = await peer.accept()
        await quiet(LONG)
        assert await client.rest() == []
        stream.respond(xp.ENDPOINT, endpoint("a", "2"), version="2")
        (response,) = await client.rest()
        assert [*held(response).values()] == [endpoint("a", "2").SerializeToString()]
        client.close()


@modes
@timeless
async def test_some_names_are_answered_and_others_are_not(up: bool, down: bool) -> None:
    # PRX-11
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay:
        client = await relay.raw(delta=down)
        claim = {"initial_resource_versions": {"a": "0", "b": "0"}} if down else {"version_info": "0"}
        await client.want(xp.ENDPOINT, "a", "b", **claim)
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"))
        (response,) = await client.rest()
        assert [*held(response).values()] == [endpoint("a", "1").SerializeToString()]
        await client.ack(response, **({} if down else {"resource_names": ["a", "b"]}))
        await quiet(LONG)
        assert await client.rest() == []
        stream.respond(xp.ENDPOINT, endpoint("b", "1"), version="2", nonce="n2")
        (response,) = await client.rest()
        assert [*held(response).values()] == [endpoint("b", "1").SerializeToString()]
        client.close()


@modes
@timeless
async def test_a_response_that_was_on_its_way_is_not_taken_for_all_there_is(up: bool, down: bool) -> None:
    # PRX-11: it does not say what it answers, and may be from before the server heard of the wildcard
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay:
        client = await relay.raw(delta=down)
        claim = {"initial_resource_versions": {"a": "0", "b": "0"}} if down else {"version_info": "0"}
        await client.want(xp.CLUSTER, "*", **claim)
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, cluster("a", "1"))
        await quiet(0.5)
        assert client.end.unread.empty()
        stream.respond(xp.CLUSTER, cluster("a", "1"), cluster("b", "1"), version="2", nonce="n2")
        await quiet(5.0)
        (response,) = await client.rest()
        assert len(response.resources) == 2
        fresh = await relay.raw(delta=down)
        await fresh.want(xp.CLUSTER, "*")
        (response,) = await fresh.rest()
        assert len(response.resources) == 2
        for each in (client, fresh):
            each.close()


@modes
@timeless
async def test_a_server_that_comes_and_goes_is_nothing_that_clients_notice(up: bool, down: bool) -> None:
    # PRX-10, PRX-12, PRX-13
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.put(*[cluster(name, "1") for name in "abc"])
        watched = [follow(client, xp.CLUSTER, params=PROD), follow(client, xp.CLUSTER, "a", params=PROD)]
        assert [len(await marks(each)) for each in watched] == [3, 1]
        nothing_happens = untouched(relay)
        for number in range(50):
            origin.wire.cut(down=number % 2 == 0)
            await quiet(0.5 * number)
        origin.wire.down = False
        await quiet(300.0)
        assert nothing_happens()
        assert len(origin.wire.opened) < 200  # a few for each time that it was away
        origin.put(cluster("a", "2"))
        assert [await marks(each) for each in watched] == [[("a", "2")]] * 2


@modes
@pytest.mark.parametrize("status", ["PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"])
@timeless
async def test_a_server_that_refuses_the_relay_takes_nothing_from_clients(up: bool, down: bool, status: str) -> None:
    # PRX-10
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay, relay.client(delta=down) as client:
        watched = follow(client, xp.CLUSTER, "a")
        stream = await served(peer, cluster("a", "1"))
        assert await marks(watched) == [("a", "1")]
        nothing_happens = untouched(relay)
        for _ in range(10):
            stream.end(status, "not you")
            stream = await peer.accept()
        assert nothing_happens()
        stream.respond(xp.CLUSTER, cluster("a", "2"), version="2")
        assert await marks(watched) == [("a", "2")]


@both
@timeless
async def test_after_a_long_quiet_time_the_server_is_not_waited_for_any_longer_than_at_first(delta: bool) -> None:
    # PRX-13: a stream on which nothing had to be said was a good one
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        origin.put(cluster("a", "1"))
        follow(client, xp.CLUSTER, "a")
        await quiet()
        for _ in range(20):
            origin.wire.cut()
            await quiet(LONG)
        origin.wire.cut()
        lost, tries = clock(), len(origin.wire.opened)
        await quiet(5.0)
        assert [when - lost < 2.0 for when in origin.wire.opened[tries:]] == [True]


GARBAGE: dict[str, Callable[[PeerStream], None]] = {
    "no message": lambda stream: stream.send(b"\xff\xff\xff\xff"),
    "a message of another kind": lambda stream: stream.send(pb.ResourceError()),
    "nothing": lambda stream: stream.send(b""),
    "a type that nobody asked for": lambda stream: stream.respond(xp.SECRET, cluster("a", "x")),
    "a resource without a name": lambda stream: stream.respond(xp.CLUSTER, cluster("", "x"), cluster("a", "1")),
    "a resource that can't be read": lambda stream: stream.send(_unreadable(stream)),
    "a name twice": lambda stream: stream.respond(xp.CLUSTER, cluster("b", "x"), cluster("b", "y"), cluster("a", "1")),
}


def _unreadable(stream: PeerStream) -> Any:
    if stream.is_delta:
        response = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="x")
        response.resources.add(name="b").resource.value = b"\xff"
    else:
        response = pb.DiscoveryResponse(type_url=xp.CLUSTER, nonce="x", version_info="x")
        response.resources.add(type_url=xp.CLUSTER, value=b"\xff")
    return response


@modes
@pytest.mark.parametrize("garbage", GARBAGE)
@timeless
async def test_garbage_is_not_passed_on_and_takes_nothing_away(up: bool, down: bool, garbage: str) -> None:
    # PRX-10, PRX-19
    peer = ScriptedPeer()
    async with station(peer.connect, delta=up) as relay, relay.client(delta=down) as client:
        watched = follow(client, xp.CLUSTER, "a")
        stream = await served(peer, cluster("a", "1"))
        assert await marks(watched) == [("a", "1")]
        nothing_happens = untouched(relay)
        GARBAGE[garbage](stream)
        await quiet(30.0)
        assert nothing_happens()
        if stream.cancelled.is_set():
            stream = await peer.accept()
        stream.respond(xp.CLUSTER, cluster("a", "2"), version="2", nonce="n2")
        assert await marks(watched) == [("a", "2")]


@both
@timeless
async def test_an_error_of_the_servers_is_no_deletion(delta: bool) -> None:
    # PRX-10, PRX-22
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client(delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a")
        stream = await served(peer, cluster("a", "1"))
        assert await marks(watched) == [("a", "1")]
        error = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce="n2")
        told = error.resource_errors.add()
        told.resource_name.name = "a"
        told.error_detail.code, told.error_detail.message = 14, "the database is gone"
        stream.send(error)
        assert [mark for _, mark in await marks(watched) if not mark.startswith("(")] == []
        async with relay.client(delta=delta) as late:
            assert ("a", "1") in await marks(follow(late, xp.CLUSTER, "a"))


@both
@timeless
async def test_a_server_that_takes_streams_and_says_nothing_is_given_up_for_the_next(delta: bool) -> None:
    # PRX-26
    silent, good = ScriptedPeer(), ScriptedPeer()
    peers = {"one:1": silent, "two:2": good}
    source = bootstrap(server("one:1"), server("two:2"))
    async with station(lambda config: peers[config.uri], source) as relay, relay.client(delta=delta) as client:
        silent.refuse()
        watched = follow(client, xp.CLUSTER, "a")
        await served(good, cluster("a", "1"))
        assert await marks(watched) == [("a", "1")]
        await silent.accept()
        nothing_happens = untouched(relay)
        await quiet(LONG)
        assert nothing_happens()


@modes
@timeless
async def test_asking_again_keeps_the_subscription(up: bool, down: bool) -> None:
    # PRX-28, PRX-10: in SotW what is not listed for a moment would be missing from a push at that moment
    peer = ScriptedPeer()
    asked = station(peer.connect, delta=up, upstream_form="locators")
    async with asked as relay, relay.client(delta=down) as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=PROD)
        stream = await served(peer, cluster("a", "1"), cluster("b", "1"))
        assert sorted(await marks(watched)) == [("a", "1"), ("b", "1")]
        everything = follow(client, xp.CLUSTER, params=PROD)
        await quiet()
        stream.respond(xp.CLUSTER, cluster("a", "1"), cluster("b", "1"), version="2", nonce="n2")
        assert sorted(await marks(everything)) == [("a", "1"), ("b", "1")]
        await quiet(5.0)
        nothing_happens = untouched(relay)
        assert relay.relay.forget(xp.CLUSTER, "a")
        await quiet()
        answered = [] if up else [cluster("b", "1")]  # what a server might say to a list without it
        stream.respond(xp.CLUSTER, *answered, version="3", nonce="n3")
        await quiet()
        assert nothing_happens()
        stream = await peer.accept() if not up else stream
        stream.respond(xp.CLUSTER, cluster("a", "2"), cluster("b", "1"), version="4", nonce="n4")
        assert await marks(watched) == [("a", "2")]
