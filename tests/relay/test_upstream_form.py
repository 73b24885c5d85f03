"""Any control plane behind a relay without a flag: the relay finds out its form from its answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, endpoint, follow, quiet, server, timeless
from tests.relay.planes import Plane
from tests.relay.rig import MODE_IDS, MODES, Origin, Station, marks, pair, station
from xdsprism.admin.cache_model import ClockReading, upstreams
from xdsprism.testing import PeerStream, ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}

# How control planes in the field differ where they are asked something that they do not have.
planes = pytest.mark.parametrize(
    "habits", [{}, {"tells_of_nothing": True}, {"sends_all": True}], ids=["silent", "explicit", "sends-all"]
)


@asynccontextmanager
async def behind(plane: Plane, *, source: Any = None, **options: Any) -> AsyncIterator[Station]:
    async with plane.served(), station(plane.peer.connect, source, **options) as relay:
        yield relay


@asynccontextmanager
async def behind_several(by_uri: Mapping[str, Any], **options: Any) -> AsyncIterator[Station]:
    """A relay with a list of servers, each a plane or whatever else can be connected to."""
    peers = {uri: each.peer if isinstance(each, Plane) else each for uri, each in by_uri.items()}
    async with AsyncExitStack() as stack:
        for each in by_uri.values():
            if isinstance(each, Plane):
                await stack.enter_async_context(each.served())
        source = bootstrap(*map(server, by_uri))
        relay = await stack.enter_async_context(station(lambda config: peers[config.uri], source, **options))
        yield relay


def shown(relay: Station) -> list[tuple[str, str]]:
    """What the admin port says of the form and the protocol of each server."""
    rows = upstreams(relay.relay.feed.upstreams(), ClockReading(0.0, 0.0))["upstreams"]
    return [(row["form"], row["protocol"]) for row in json.loads(json.dumps(rows))]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "dynamic parameters" in record.getMessage()]


# -- servers without locators


@planes
@modes
@timeless
async def test_a_server_that_ignores_locators_is_asked_by_names_and_all_clients_share_its_answers(
    up: bool, down: bool, habits: dict[str, Any]
) -> None:
    # PRX-32
    plane = Plane(**habits)
    plane.publish(shop="1", cart="1")
    plane.publish(xp.ENDPOINT, shop="1")
    async with (
        behind(plane, delta=up) as relay,
        relay.client(delta=down) as plain,
        relay.client(delta=down, metadata=PROD) as prod,
        relay.client(delta=down) as located,
    ):
        watched = [
            follow(plain, xp.CLUSTER, "shop"),
            follow(prod, xp.CLUSTER, "shop"),
            follow(located, xp.CLUSTER, "shop", params={**TEST, "x": "1"}),
        ]
        endpoints = [follow(plain, xp.ENDPOINT, "shop"), follow(located, xp.ENDPOINT, "shop", params=TEST)]
        assert [await marks(each) for each in (*watched, *endpoints)] == [[("shop", "1")]] * 5
        everything = [follow(plain, xp.CLUSTER), follow(prod, xp.CLUSTER)]
        assert [sorted(await marks(each)) for each in everything] == [[("cart", "1"), ("shop", "1")]] * 2

        plane.publish(shop="2", cart="1")
        assert [await marks(each) for each in (*watched, *everything)] == [[("shop", "2")]] * 5
        plane.publish(cart="1")
        assert [await marks(each) for each in (*watched, *everything)] == [[("shop", "NOT_FOUND")]] * 5
        plane.publish(shop="3", cart="1")
        assert [await marks(each) for each in (*watched, *everything)] == [[("shop", "3")]] * 5
        plane.publish(xp.ENDPOINT, shop="2")
        assert [await marks(each) for each in endpoints] == [[("shop", "2")]] * 2
        assert shown(relay) == [("names", "delta" if up else "sotw")]
        assert len(plane.streams) == 1


@modes
@timeless
async def test_no_client_waits_longer_than_a_second_for_the_detection_of_the_form(up: bool, down: bool) -> None:
    # PRX-32: five seconds are the limit
    plane = Plane()
    plane.publish(shop="1")
    clock = asyncio.get_running_loop().time
    async with behind(plane, delta=up) as relay, relay.client(delta=down) as client:
        began = clock()
        update = await follow(client, xp.CLUSTER, "shop").next()
        assert update.resource.alt_stat_name == "1"
        assert clock() - began <= 1.0
        began = clock()
        plane.publish(shop="1", cart="1")
        assert (await follow(client, xp.CLUSTER, "cart").next()).resource.alt_stat_name == "1"
        assert clock() - began < 0.1  # once it is known it costs nothing


@modes
@timeless
async def test_a_server_that_answers_a_wildcard_plainly_needs_no_time_to_be_recognised(up: bool, down: bool) -> None:
    # PRX-32: it was not asked for a plain name, so that this can't be the answer to one
    plane = Plane()
    plane.publish(shop="1")
    clock = asyncio.get_running_loop().time
    async with behind(plane, delta=up) as relay, relay.client(delta=down, metadata=PROD) as client:
        began = clock()
        assert (await follow(client, xp.CLUSTER).next()).resource.alt_stat_name == "1"
        assert clock() - began < 0.1
        assert shown(relay) == [("names", "delta" if up else "sotw")]


@both
@timeless
async def test_the_form_of_a_server_is_logged_once(delta: bool, caplog: pytest.LogCaptureFixture) -> None:
    # PRX-32
    plane = Plane()
    plane.publish(shop="1")
    async with behind(plane, delta=delta) as relay, relay.client() as client:
        assert await marks(follow(client, xp.CLUSTER, "shop")) == [("shop", "1")]
        for _ in range(3):
            plane.end()
            await quiet(60.0)
        (said,) = warnings(caplog)
        assert said.startswith("one:1 does not support dynamic parameters: the relay subscribes by plain names")
        assert "--group-by" in said


@both
@timeless
async def test_a_server_is_never_sent_locators_alone_before_it_has_shown_that_it_knows_them(delta: bool) -> None:
    # PRX-32: without a name it would read a wildcard, and send everything
    plane = Plane()
    plane.publish(**{f"c{number}": "1" for number in range(50)})
    plane.publish(xp.ENDPOINT, **{f"c{number}": "1" for number in range(50)})
    async with behind(plane, delta=delta) as relay, relay.client(metadata=PROD) as client:
        watched = [follow(client, url, "c1") for url in (xp.CLUSTER, xp.ENDPOINT)]
        assert [await marks(each) for each in watched] == [[("c1", "1")]] * 2
        assert [watched.is_wild for talk in plane.talks for watched in talk.types.values()] == [False, False]


@both
@timeless
async def test_an_absent_name_is_reported_to_all_clients_and_sent_when_it_appears(delta: bool) -> None:
    # PRX-32: there are no params for which it could be there
    plane = Plane(tells_of_nothing=True)
    async with behind(plane) as relay, relay.client(delta=delta) as client, relay.client(delta=delta) as late:
        watched = [follow(client, xp.CLUSTER, "none", params=PROD)]
        assert await marks(watched[0]) == [("none", "NOT_FOUND")]
        watched.append(follow(late, xp.CLUSTER, "none", params=TEST))
        assert await marks(watched[1]) == [("none", "NOT_FOUND")]
        plane.publish(none="1")
        assert [await marks(each) for each in watched] == [[("none", "1")]] * 2


@both
@timeless
async def test_silence_decides_nothing_and_a_later_answer_does(delta: bool) -> None:
    # PRX-32
    plane = Plane()
    async with behind(plane) as relay, relay.client(delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "shop")
        await quiet(10.0)
        assert shown(relay) == [("unknown", "delta")]
        plane.publish(shop="1")
        await quiet()
        assert ("shop", "1") in await marks(watched)
        assert shown(relay) == [("names", "delta")]


@modes
@timeless
async def test_a_restart_of_the_server_changes_nothing_for_the_relays_clients(up: bool, down: bool) -> None:
    # PRX-32, PRX-10
    plane = Plane()
    plane.publish(shop="1", cart="1")
    async with behind(plane, delta=up) as relay, relay.client(delta=down, metadata=PROD) as client:
        watched, everything = follow(client, xp.CLUSTER, "shop"), follow(client, xp.CLUSTER)
        await quiet()
        assert [await marks(watched), len(await marks(everything))] == [[("shop", "1")], 2]
        plane.end()
        await quiet(60.0)
        assert [await marks(watched), await marks(everything)] == [[], []]
        plane.publish(shop="2")
        assert await marks(watched) == [("shop", "2")]
        assert sorted(await marks(everything)) == [("cart", "NOT_FOUND"), ("shop", "2")]


@both
@timeless
async def test_a_member_of_a_wildcard_is_updated_without_a_subscription_by_name(delta: bool) -> None:
    # PRX-32, PRX-9: some servers do not tell any more what becomes of a name that was given up
    plane = Plane(sends_all=True)
    plane.publish(shop="1", cart="1")
    async with (
        behind(plane, linger=5.0) as relay,
        relay.client(delta=delta, metadata=TEST) as other,
        relay.client(delta=delta, metadata=PROD) as client,
    ):
        named = follow(other, xp.CLUSTER, "shop")
        assert await marks(named) == [("shop", "1")]
        everything = follow(client, xp.CLUSTER)
        assert len(await marks(everything)) == 2
        await quiet(60.0)
        plane.publish(cart="1")
        assert [await marks(named), await marks(everything)] == [[("shop", "NOT_FOUND")]] * 2
        await everything.close()
        await quiet(60.0)
        plane.publish(shop="2", cart="1")
        assert await marks(named) == [("shop", "2")]


@both
@timeless
async def test_a_subscription_that_takes_over_gets_what_the_server_has_sent(delta: bool) -> None:
    # PRX-32, PRX-9: it was asked for the name, and does not answer again
    plane = Plane()
    plane.publish(shop="1")
    async with behind(plane, linger=5.0) as relay, relay.client(delta=delta) as client:
        first = follow(client, xp.CLUSTER, "shop", params=PROD)
        assert await marks(first) == [("shop", "1")]
        other = follow(client, xp.CLUSTER, "shop", params=TEST)
        assert await marks(other) == [("shop", "1")]
        await first.close()
        await quiet(60.0)
        plane.publish(shop="2")
        assert await marks(other) == [("shop", "2")]
        assert shown(relay) == [("names", "delta")]


# -- servers that do something else


@modes
@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "INTERNAL", "UNKNOWN"])
@timeless
async def test_a_server_that_ends_a_stream_with_locators_gets_one_without(
    up: bool, down: bool, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PRX-32
    plane = Plane(ends_on_locators=status)
    plane.publish(shop="1")
    clock = asyncio.get_running_loop().time
    async with behind(plane, delta=up) as relay, relay.client(delta=down, metadata=PROD) as client:
        began = clock()
        watched = follow(client, xp.CLUSTER, "shop", params=TEST)
        assert (await watched.next()).resource.alt_stat_name == "1"
        assert clock() - began < 0.1
        assert len(warnings(caplog)) == 1  # now that an answer shows that locators were the reason
        plane.end()  # ... nor do later ones have any
        await quiet(60.0)
        plane.publish(shop="2")
        assert await marks(watched) == [("shop", "2")]
        assert [bool(talk.locators) for talk in plane.talks] == [True, False, False]
        assert shown(relay) == [("names", "delta" if up else "sotw")]


@timeless
async def test_a_server_that_ends_every_stream_has_not_shown_what_it_understands() -> None:
    # PRX-32, CLI-17: clients are told
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "shop")
        for _ in range(4):
            stream = await peer.accept()
            await stream.request()
            stream.end("INTERNAL", "out of order")
        await quiet(2.0)
        assert shown(relay) == [("unknown", "delta")]
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, located("shop", "1", "env=prod or not env exists"))
        await quiet()
        assert ("shop", "1") in await marks(watched)
        assert shown(relay) == [("locators", "delta")]


def located(name: str, mark: str, when: str = "true") -> pb.Resource:
    made = pb.Resource(version=mark)
    made.resource.Pack(cluster(name, mark))
    made.resource_name.name = name
    made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    return made


def names_and_locators(request: Any) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    is_delta = isinstance(request, pb.DeltaDiscoveryRequest)
    locators = request.resource_locators_subscribe if is_delta else request.resource_locators
    names = request.resource_names_subscribe if is_delta else request.resource_names
    return [*names], [(each.name, dict(each.dynamic_parameters)) for each in locators]


@both
@timeless
async def test_a_server_that_answers_plain_names_first_and_locators_next_is_asked_by_locators(delta: bool) -> None:
    # PRX-32: what it has for the relay's own node reaches nobody
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "shop", params=PROD)
        stream = await peer.accept()
        request = await stream.request()
        assert names_and_locators(request) == (["shop"], [("shop", PROD)])
        stream.respond(xp.CLUSTER, cluster("shop", "for the relay"), version="1", nonce="n1")
        await quiet(0.2)
        assert await taken(watched) == []
        both_forms = [cluster("shop", "for the relay"), located("shop", "1", "env=prod")]
        stream.respond(xp.CLUSTER, *(both_forms[1:] if delta else both_forms), version="1", nonce="n2")
        assert await marks(watched) == [("shop", "1")]
        assert shown(relay) == [("locators", "delta" if delta else "sotw")]
        last = stream.pending()[-1]
        assert names_and_locators(last) == ([], [] if delta else [("shop", PROD)])
        assert [*last.resource_names_unsubscribe] == ["shop"] if delta else True
        later = follow(client, xp.CLUSTER, "shop", params=TEST)
        await quiet()
        assert names_and_locators(stream.pending()[-1])[0] == []
        assert await marks(later) == []


async def taken(watched: Any) -> list[str]:
    await asyncio.sleep(0)
    return [update.name for update in watched.seen()]


@both
@timeless
async def test_a_server_that_answers_plainly_where_there_are_no_variants_still_knows_locators(delta: bool) -> None:
    # PRX-32: resource_name is for what has variants, as one may read the proto
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client(metadata=PROD) as client:
        watched = [follow(client, xp.CLUSTER, "varied"), follow(client, xp.CLUSTER, "same")]
        stream = await peer.accept()
        await quiet(0.1)
        for nonce in ("n1", "n2"):
            stream.respond(xp.CLUSTER, cluster("same", "1"), located("varied", "1", "env=prod"), nonce=nonce)
        stream = await peer.accept()  # what was answered to both forms at once is asked for by one
        await quiet(0.1)
        asked = [names_and_locators(request) for request in stream.pending()]
        assert (asked[-1][0], sorted(asked[-1][1])) == ([], [("same", PROD), ("varied", PROD)])
        stream.respond(xp.CLUSTER, cluster("same", "1"), located("varied", "1", "env=prod"))
        assert [await marks(each) for each in watched] == [[("varied", "1")], [("same", "1")]]
        assert shown(relay) == [("locators", "delta" if delta else "sotw")]


@both
@timeless
async def test_a_server_that_was_slow_with_its_locators_is_asked_by_them_after_all(delta: bool) -> None:
    # PRX-32
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "shop", params=PROD)
        stream = await peer.accept()
        stream.respond(xp.CLUSTER, cluster("shop", "for the relay"), nonce="n1")
        assert await marks(watched) == [("shop", "for the relay")]
        assert shown(relay) == [("names", "delta" if delta else "sotw")]
        stream.respond(xp.CLUSTER, cluster("shop", "for the relay"), located("shop", "1", "env=prod"), nonce="n2")
        stream = await peer.accept()
        await quiet(0.1)
        assert names_and_locators(stream.pending()[-1]) == ([], [("shop", PROD)])
        stream.respond(xp.CLUSTER, located("shop", "1", "env=prod"))
        assert await marks(watched) == [("shop", "1")]
        assert shown(relay) == [("locators", "delta" if delta else "sotw")]


@both
@timeless
async def test_a_server_that_learns_to_read_locators_is_recognised_with_the_next_stream(delta: bool) -> None:
    # PRX-32: each stream has a locator or two to find that out
    plane = Plane()
    plane.publish(shop="1", cart="1", tea="1")
    origin = Origin()
    origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
    connects: list[Any] = [plane.peer]
    async with plane.served(), station(lambda _: _Either(connects), delta=delta) as relay, relay.client() as client:
        watched = [follow(client, xp.CLUSTER, "shop", params=params) for params in (PROD, TEST)]
        others = [follow(client, xp.CLUSTER, name, params=PROD) for name in ("cart", "tea")]
        assert [await marks(each) for each in watched] == [[("shop", "1")]] * 2
        assert [len(await marks(each)) for each in others] == [1, 1]
        plane.end()
        await quiet(60.0)
        assert len(plane.streams[-1].locators) <= 1 if delta else True
        connects[0] = origin.wire
        plane.end()
        await quiet(60.0)
        assert [await marks(each) for each in watched] == [[("shop", "prod")], [("shop", "test")]]
        assert shown(relay) == [("locators", "delta" if delta else "sotw")]


class _Either:
    """A transport to whichever server has the address now."""

    def __init__(self, current: list[Any]) -> None:
        self._current = current

    async def open(self, path: str) -> Any:
        return await self._current[0].open(path)

    async def close(self) -> None:
        """Nothing to let go of."""


@both
@timeless
async def test_a_server_without_locators_in_place_of_one_with_them_is_recognised(delta: bool) -> None:
    # PRX-32
    plane = Plane()
    plane.publish(shop="1", cart="1")
    origin = Origin()
    origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
    connects: list[Any] = [origin.wire]
    async with plane.served(), station(lambda _: _Either(connects), delta=delta) as relay, relay.client() as client:
        watched = [follow(client, xp.CLUSTER, "shop", params=params) for params in (PROD, TEST)]
        assert [await marks(each) for each in watched] == [[("shop", "prod")], [("shop", "test")]]
        connects[0] = plane.peer
        origin.wire.cut()
        await quiet(60.0)
        assert [await marks(each) for each in watched] == [[("shop", "1")]] * 2
        assert shown(relay) == [("names", "delta" if delta else "sotw")]


@both
@timeless
async def test_a_server_without_locators_is_recognised_by_resources_that_nobody_asked_for(delta: bool) -> None:
    # PRX-32: it takes a request with locators alone for a wildcard, and has none of the names in them
    plane = Plane()
    plane.publish(cart="1")
    origin = Origin()
    origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
    connects: list[Any] = [origin.wire]
    async with plane.served(), station(lambda _: _Either(connects), delta=delta) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "shop", params=PROD)
        assert await marks(watched) == [("shop", "prod")]
        connects[0] = plane.peer
        origin.wire.cut()
        await quiet(60.0)
        assert shown(relay) == [("unknown", "delta" if delta else "sotw")]
        watched.seen()
        plane.publish(shop="1", cart="1")
        await quiet(10.0)
        assert await marks(watched) == [("shop", "1")]
        assert shown(relay) == [("names", "delta" if delta else "sotw")]


# -- servers with locators


@modes
@timeless
async def test_a_server_that_knows_locators_is_left_with_them_alone(up: bool, down: bool) -> None:
    # PRX-32, PRX-5: it costs no time, and no subscription that stays
    clock = asyncio.get_running_loop().time
    async with pair(delta=up) as (origin, relay), relay.client(delta=down) as client:
        origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
        began = clock()
        assert (await follow(client, xp.CLUSTER, "shop", params=PROD).next()).resource.alt_stat_name == "prod"
        assert clock() - began < 0.1
        assert await marks(follow(client, xp.CLUSTER, "shop", params=TEST)) == [("shop", "test")]
        asked = origin.asked(xp.CLUSTER)
        assert sorted(asked, key=repr) == [("shop", xp.Params(PROD)), ("shop", xp.Params(TEST))]
        assert (len(origin.wire.ends), shown(relay)) == (1, [("locators", "delta" if up else "sotw")])
        origin.wire.cut()
        await quiet(60.0)
        assert not any(names_and_locators(request)[0] for request in origin.wire.requests)


@modes
@timeless
async def test_a_wildcard_is_asked_of_a_server_with_locators_once(up: bool, down: bool) -> None:
    # PRX-32
    async with pair(delta=up) as (origin, relay), relay.client(delta=down, metadata=PROD) as client:
        origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
        assert await marks(follow(client, xp.CLUSTER)) == [("shop", "prod")]
        assert origin.asked(xp.CLUSTER) == [("*", xp.Params(PROD))]
        assert len([each for each in origin.wire.responses if each.resources]) == 1


# -- servers without delta


@both
@timeless
async def test_a_server_without_delta_is_asked_in_sotw_at_once(delta: bool, caplog: pytest.LogCaptureFixture) -> None:
    # PRX-33
    caplog.set_level("INFO", "xdsprism")
    plane = Plane(has_delta=False)
    plane.publish(shop="1", cart="1")
    clock = asyncio.get_running_loop().time
    async with behind(plane) as relay, relay.client(delta=delta) as client:
        began = clock()
        watched = follow(client, xp.CLUSTER, "shop")
        update = await watched.next()
        assert (update.resource.alt_stat_name, clock() - began <= 1.0) == ("1", True)
        everything = follow(client, xp.CLUSTER)
        assert sorted(await marks(everything)) == [("cart", "1"), ("shop", "1")]
        plane.publish(cart="2")
        assert await marks(watched) == [("shop", "NOT_FOUND")]
        assert sorted(await marks(everything)) == [("cart", "2"), ("shop", "NOT_FOUND")]
        assert shown(relay) == [("names", "sotw")]
        assert [path.startswith("Delta") for path in plane.paths] == [True, False, False]
        said = [record.getMessage() for record in caplog.records if "delta" in record.getMessage()]
        assert said == ["one:1 has no delta method: the relay uses SotW"]


@timeless
async def test_a_new_connection_is_tried_with_delta_again_and_a_new_stream_is_not() -> None:
    # PRX-33
    plane = Plane(has_delta=False)
    plane.publish(shop="1")
    async with behind(plane) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "shop")
        assert await marks(watched) == [("shop", "1")]
        plane.end("ABORTED")
        await quiet(60.0)
        assert [path.startswith("Delta") for path in plane.paths] == [True, False, False]
        plane.habits.has_delta = True
        plane.end("UNAVAILABLE")
        await quiet(60.0)
        assert shown(relay) == [("names", "delta")]
        plane.publish(shop="2")
        assert await marks(watched) == [("shop", "2")]


@timeless
async def test_the_lack_of_delta_is_no_failure_that_others_have_to_stand_in_for() -> None:
    # PRX-33, FBK-1
    one, two = Plane(has_delta=False), Plane()
    one.publish(shop="1")
    two.publish(shop="2")
    async with behind_several({"one:1": one, "two:1": two}) as relay, relay.client() as client:
        assert await marks(follow(client, xp.CLUSTER, "shop")) == [("shop", "1")]
        assert two.paths == []


@timeless
async def test_virtual_hosts_do_not_exist_on_a_server_without_delta() -> None:
    # PRX-33, VHD-1
    plane = Plane(has_delta=False)
    plane.publish(shop="1")
    async with behind(plane) as relay, relay.client(delta=True) as client:
        assert await marks(follow(client, xp.CLUSTER, "shop")) == [("shop", "1")]
        update = await client.request_vhost("main", "shop.example.com")
        assert update.error is not None
        assert update.error.status == "NOT_FOUND"


# -- several servers


@both
@timeless
async def test_each_server_of_a_list_is_asked_as_it_understands(delta: bool) -> None:
    # PRX-32, FBK-1, FBK-4
    origin, plane = Origin(), Plane()
    origin.vary(prod=cluster("shop", "prod"), test=cluster("shop", "test"))
    plane.publish(shop="spare")
    origin.wire.down = True
    async with behind_several({"one:1": origin.wire, "two:1": plane}, delta=delta) as relay, relay.client() as client:
        watched = [follow(client, xp.CLUSTER, "shop", params=params) for params in (PROD, TEST)]
        await quiet(2.0)
        assert [await marks(each) for each in watched] == [[("shop", "spare")]] * 2
        origin.wire.down = False
        await quiet(300.0)
        assert [await marks(each) for each in watched] == [[("shop", "prod")], [("shop", "test")]]
        assert [form for form, _ in shown(relay)] == ["locators", "names"]
        assert plane.streams == []


@both
@timeless
async def test_a_fallback_server_without_locators_serves_all_wildcards(delta: bool) -> None:
    # PRX-32, FBK-1
    origin, plane = Origin(), Plane()
    plane.publish(shop="1", cart="1")
    origin.wire.down = True
    async with (
        behind_several({"one:1": origin.wire, "two:1": plane}) as relay,
        relay.client(delta=delta, metadata=PROD) as one,
        relay.client(delta=delta, metadata=TEST) as other,
    ):
        first = follow(one, xp.CLUSTER)
        await quiet(5.0)
        assert len(await marks(first)) == 2
        second, named = follow(other, xp.CLUSTER), follow(other, xp.CLUSTER, "shop")
        await quiet(2.0)
        assert [len(await marks(second)), await marks(named)] == [2, [("shop", "1")]]
        plane.publish(shop="2")
        assert sorted(await marks(second)) == [("cart", "NOT_FOUND"), ("shop", "2")]
        assert await marks(named) == [("shop", "2")]


# -- choices


@both
@timeless
async def test_by_choice_a_server_is_asked_by_names_and_never_by_anything_else(delta: bool) -> None:
    # PRX-32
    plane = Plane()
    plane.publish(shop="1")
    clock = asyncio.get_running_loop().time
    async with behind(plane, delta=delta, upstream_form="names") as relay, relay.client() as client:
        began = clock()
        assert (await follow(client, xp.CLUSTER, "shop", params=PROD).next()).resource.alt_stat_name == "1"
        assert clock() - began < 0.1
        assert [talk.locators for talk in plane.talks] == [[]]
        assert shown(relay) == [("names", "delta" if delta else "sotw")]


@both
@timeless
async def test_by_choice_a_server_is_asked_by_locators_alone(delta: bool) -> None:
    # PRX-32
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, upstream_form="locators") as relay, relay.client() as client:
        follow(client, xp.CLUSTER, "shop", params=PROD)
        stream: PeerStream = await peer.accept()
        assert names_and_locators(await stream.request()) == ([], [("shop", PROD)])
        assert shown(relay) == [("locators", "delta" if delta else "sotw")]


@pytest.mark.parametrize("word", ["false", "0"])
@both
@timeless
async def test_the_environment_switches_locators_off(delta: bool, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # DYN-54: neither are they sent, nor is resource_name read
    monkeypatch.setenv("GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS", word)
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay:
        client = (await relay.raw()).of(**PROD)
        await client.want(xp.ENDPOINT, "shop")
        stream = await peer.accept()
        assert names_and_locators(await stream.request()) == (["shop"], [])
        stream.respond(xp.ENDPOINT, endpoint("shop", "1"))
        (response,) = await client.rest()
        assert [each.name for each in response.resources] == ["shop"]
        client.close()


def test_a_form_that_can_not_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-32, DYN-54
    with pytest.raises(xp.UsageError, match="group_by"):
        xp.Relay(bootstrap(), upstream_form="locators", group_by=["env"])
    with pytest.raises(xp.UsageError, match="auto, locators, names"):
        xp.Relay(bootstrap(), upstream_form="both")  # type: ignore[arg-type]
    monkeypatch.setenv("GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS", "false")
    with pytest.raises(xp.UsageError, match="GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS"):
        xp.Relay(bootstrap(), upstream_form="locators")
