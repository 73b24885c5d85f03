"""What is passed on is what came: in whichever protocol, of whichever type, with all that belongs to it."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, endpoint, follow, listener, quiet, route, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, marks, pair, station
from xdsprism.core.model.facts import Sent
from xdsprism.core.model.types import make_variant
from xdsprism.testing import ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}
UNKNOWN = "type.googleapis.com/example.v1.Thing"
GARBAGE = bytes(range(256))
STRANGE = cluster("a", "1").SerializeToString() + b"\xfa\x3f\x03\xff\x00\xff\x08\x01\x08\x00"  # what no rule allows


# -- protocols


@modes
@timeless
async def test_in_any_two_protocols_everybody_gets_what_the_server_has(up: bool, down: bool) -> None:
    # PRX-15
    async with pair(delta=up) as (origin, relay), relay.client(delta=down, metadata=PROD) as client:
        for make in (cluster, endpoint, listener, route):
            origin.vary(prod=make("a", "1"), test=make("a", "no"))
        types = (xp.CLUSTER, xp.ENDPOINT, xp.LISTENER, xp.ROUTE)
        plain = [follow(client, url, "a") for url in types]
        located = [follow(client, url, "a", params=TEST) for url in types]
        assert [await marks(each) for each in plain] == [[("a", "1")]] * 4
        assert [await marks(each) for each in located] == [[("a", "no")]] * 4
        for make in (cluster, endpoint, listener, route):
            origin.vary(prod=make("a", "2"))
        assert [await marks(each) for each in plain] == [[("a", "2")]] * 4
        assert [await marks(each) for each in located] == [[]] * 4
        for url in types:
            origin.delete(url, "a", when="env=test")
        assert [await marks(each) for each in located] == [[("a", "NOT_FOUND")]] * 4
        assert [await marks(each) for each in plain] == [[]] * 4


@modes
@timeless
async def test_wildcards_follow_what_comes_and_goes(up: bool, down: bool) -> None:
    # PRX-15
    async with (
        pair(delta=up) as (origin, relay),
        relay.client(delta=down, metadata=PROD) as one,
        relay.client(delta=down, metadata=TEST) as other,
    ):
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        origin.put(cluster("b", "prod"), when="env=prod")
        prod, test = follow(one, xp.CLUSTER), follow(other, xp.CLUSTER)
        assert sorted(await marks(prod)) == [("a", "prod"), ("b", "prod")]
        assert await marks(test) == [("a", "test")]
        origin.put(cluster("c", "all"))
        assert [await marks(prod), await marks(test)] == [[("c", "all")]] * 2
        origin.delete(xp.CLUSTER, "b")
        origin.delete(xp.CLUSTER, "a", when="env=test")
        assert [await marks(prod), await marks(test)] == [[("b", "NOT_FOUND")], [("a", "NOT_FOUND")]]


@both
@timeless
async def test_an_empty_wildcard_is_answered_with_nothing(delta: bool) -> None:
    # PRX-15, WLD-10
    async with pair(delta=delta) as (_, relay):
        for down in (True, False):
            client = await relay.raw(delta=down)
            await client.want(xp.CLUSTER, "*")
            (response,) = await client.rest()
            assert not response.resources
            client.close()


@both
@timeless
async def test_a_full_state_holds_everything_that_is_wanted_each_time(delta: bool) -> None:
    # PRX-15, SOT-4, SOT-6
    async with pair(delta=delta) as (origin, relay):
        origin.put(*[cluster(name, "1") for name in "abc"])
        client = await relay.raw(delta=False)
        await client.want(xp.CLUSTER, *"abc")
        (first,) = await client.rest()
        assert [each.value for each in first.resources] == [cluster(n, "1").SerializeToString() for n in "abc"]
        await client.ack(first, resource_names="abc")
        origin.put(cluster("b", "2"))
        (second,) = await client.rest()
        wanted = [cluster(name, mark) for name, mark in (("a", "1"), ("b", "2"), ("c", "1"))]
        assert [each.value for each in second.resources] == [each.SerializeToString() for each in wanted]
        assert second.version_info != first.version_info
        await client.ack(second, resource_names="abc")
        origin.delete(xp.CLUSTER, "a")
        (third,) = await client.rest()
        assert len(third.resources) == 2
        client.close()


@both
@timeless
async def test_a_new_relay_does_not_send_a_returning_client_what_it_has(delta: bool) -> None:
    # PRX-15, DLT-13
    async with pair(delta=True) as (origin, relay), relay.client(delta=delta, metadata=PROD) as client:
        origin.put(route("a", "1"), route("b", "1"))
        watched = follow(client, xp.ROUTE, "a", "b")
        assert len(await marks(watched)) == 2
        origin.put(route("b", "2"))
        assert await marks(watched) == [("b", "2")]
        async with station(origin.wire.connect) as fresh:
            sent = fresh.facts(Sent)
            relay.wire.hub, relay.wire._methods = fresh.wire.hub, fresh.wire._methods  # noqa: SLF001 # the client meets another relay
            relay.wire.cut()
            await quiet(60.0)
            assert await marks(watched) == []
            assert sum(fact.resources for fact in sent) == (0 if delta else 2)
            origin.put(route("a", "3"))
            assert await marks(watched) == [("a", "3")]


# -- contents


@pytest.mark.parametrize(
    ("type_url", "body"),
    [(UNKNOWN, GARBAGE), (xp.CLUSTER, GARBAGE), (xp.CLUSTER, STRANGE)],
    ids=["unknown-type", "garbage", "unknown-fields"],
)
@modes
@timeless
async def test_contents_arrive_byte_for_byte_whether_or_not_they_make_sense(
    type_url: str, body: bytes, up: bool, down: bool
) -> None:
    # PRX-16
    async with pair(delta=up) as (origin, relay):
        origin.store.apply({(type_url, "a"): (make_variant(type_url, "a", body),)})
        plain, located = await relay.raw(delta=down), await relay.raw(delta=down)
        await plain.want(type_url, "a")
        await located.want(type_url, "a", params=PROD)
        assert _bodies((await plain.rest())[0]) == [(type_url, body)]
        assert _bodies((await located.rest())[0]) == [(type_url, body)]
        assert not any(each.HasField("error_detail") for each in origin.wire.requests)
        plain.close()
        located.close()


def _bodies(response: Any) -> list[tuple[str, bytes]]:
    found = []
    for each in response.resources:
        item = each
        if isinstance(each, pb.Resource):
            item = each.resource
        elif each.Is(pb.Resource.DESCRIPTOR):
            item = pb.Resource.FromString(each.value).resource
        found.append((item.type_url, item.value))
    return found


@both
@timeless
async def test_a_do_not_cache_resource_is_asked_for_again_for_each_later_client(delta: bool) -> None:
    # PRX-17
    async with pair(delta=True) as (origin, relay), relay.client(delta=delta) as one, relay.client(delta=delta) as two:
        _put(origin, "a", "1", do_not_cache=True)
        first, same = follow(one, xp.CLUSTER, "a", params=PROD), follow(two, xp.CLUSTER, "a", params=PROD)
        assert [await marks(first), await marks(same)] == [[("a", "1")]] * 2
        before = len(origin.wire.requests)
        async with relay.client(delta=delta) as late:
            assert await marks(follow(late, xp.CLUSTER, "a", params=PROD)) == [("a", "1")]
            asked = [each for each in origin.wire.requests[before:] if each.resource_locators_subscribe]
            assert len(asked) == 1
            origin.wire.cut(down=True)
            third = follow(late, xp.CLUSTER, "a", params=TEST)
            await quiet(10.0)  # after 15 it would not believe any more that there is anything
            assert await marks(third) == []
        assert [await marks(first), await marks(same)] == [[]] * 2
        origin.wire.down = False
        await quiet(600.0)
        _put(origin, "a", "2", do_not_cache=True)
        assert [await marks(first), await marks(same)] == [[("a", "2")]] * 2


@both
@timeless
async def test_a_do_not_cache_resource_of_a_wildcard_is_asked_for_again_too(delta: bool) -> None:
    # PRX-17
    async with pair() as (origin, relay), relay.client(delta=delta) as one, relay.client(delta=delta) as two:
        _put(origin, "a", "1", do_not_cache=True)
        _put(origin, "b", "1")
        first = follow(one, xp.CLUSTER)
        assert await marks(first) == [("a", "1"), ("b", "1")]
        origin.wire.cut(down=True)
        late, named = follow(two, xp.CLUSTER), follow(two, xp.CLUSTER, "a")
        await quiet(10.0)
        assert ("a", "1") not in await marks(late)
        assert await marks(named) == []
        origin.wire.down = False
        await quiet(300.0)
        assert ("a", "1") in await marks(named)
        assert await marks(first) == []


@pytest.mark.parametrize("do_not_cache", [False, True])
@both
@timeless
async def test_a_wildcard_is_asked_for_again_for_a_later_client_if_it_lists_a_do_not_cache_resource(
    delta: bool, do_not_cache: bool
) -> None:
    # PRX-17
    async with pair(delta=True) as (origin, relay), relay.client(delta=delta) as one, relay.client(delta=delta) as two:
        _put(origin, "a", "1", do_not_cache=do_not_cache)
        _put(origin, "b", "1")
        assert await marks(follow(one, xp.CLUSTER)) == [("a", "1"), ("b", "1")]
        await quiet(10.0)
        before = len(origin.wire.requests)
        late = follow(two, xp.CLUSTER)
        assert await marks(late) == [("a", "1"), ("b", "1")]
        asked = [each for each in origin.wire.requests[before:] if not each.response_nonce]
        assert bool(asked) == do_not_cache


def _put(origin: Origin, name: str, mark: str, *, do_not_cache: bool = False, metadata: bool = False) -> None:
    extras = pb.Resource()
    if do_not_cache:
        extras.cache_control.do_not_cache = True
    if metadata:
        extras.metadata.filter_metadata["team"]["name"] = "payments"
        extras.aliases.append("other-" + name)
    body = cluster(name, mark).SerializeToString()
    variant = make_variant(
        xp.CLUSTER, name, body, aliases=tuple(extras.aliases), extras=extras.SerializeToString(deterministic=True)
    )
    origin.store.apply({(xp.CLUSTER, name): (variant,)})


@timeless
async def test_versions_aliases_and_metadata_arrive_as_they_were_sent() -> None:
    # PRX-22
    async with pair() as (origin, relay):
        _put(origin, "a", "1", metadata=True)
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a")
        (response,) = await client.rest()
        (passed,), (sent,) = response.resources, origin.wire.responses[0].resources
        assert passed.version == sent.version == _version(origin, "a")
        assert list(passed.aliases) == ["other-a"]
        assert passed.metadata == sent.metadata
        assert passed.metadata.filter_metadata["team"]["name"] == "payments"
        client.close()


def _version(origin: Origin, name: str) -> str:
    known = origin.store.named(xp.CLUSTER, name)
    assert known is not None
    return known.variants[0].version


@both
@timeless
async def test_a_subscription_by_alias_is_answered_and_gets_changes(delta: bool) -> None:
    # PRX-22, DLT-20
    async with pair(delta=delta) as (origin, relay), relay.client() as client:
        _put(origin, "a", "1", metadata=True)
        watched = follow(client, xp.CLUSTER, "other-a", params=PROD)
        assert await marks(watched) == [("other-a", "1")]
        _put(origin, "a", "2", metadata=True)
        assert await marks(watched) == [("other-a", "2")]
        origin.delete(xp.CLUSTER, "a")
        assert await marks(watched) == [("other-a", "NOT_FOUND")]


@both
@timeless
async def test_a_wildcard_lists_a_resource_once_also_after_somebody_asked_for_it_by_an_alias(delta: bool) -> None:
    # DLT-20, XTP-3: Envoy refuses a response that has a resource twice
    foo, bar = (f"xdstp://auth/envoy.config.cluster.v3.Cluster/{path}/" for path in ("foo", "bar"))
    origin = Origin()
    async with station(origin.wire.connect, bootstrap(authorities={"auth": {}})) as relay:
        with origin.store.transaction() as tx:
            tx.put(cluster("a", "1"), aliases=["alias"])
            tx.put(cluster(f"{foo}a", "1"), aliases=[f"{bar}alias"])
        other, client = await relay.raw(), await relay.raw(delta=delta)
        await other.want(xp.CLUSTER, "alias", f"{bar}alias")
        assert len(await other.rest()) > 0
        await other.want(xp.CLUSTER, f"{bar}*")
        (response,) = await other.rest()
        assert (_bodies(response), [*response.removed_resources]) == ([], [f"{bar}*"])
        await client.want(xp.CLUSTER)
        for mark in "12":
            (response,) = await client.rest()
            expected = [cluster(name, mark).SerializeToString() for name in ("a", f"{foo}a")]
            assert sorted(body for _, body in _bodies(response)) == sorted(expected)
            await client.ack(response)
            with origin.store.transaction() as tx:
                tx.put(cluster("a", "2"), aliases=["alias"])
                tx.put(cluster(f"{foo}a", "2"), aliases=[f"{bar}alias"])
        client.close()
        other.close()


def _error(name: str, code: int, *, delta: bool) -> Any:
    kind = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
    response = kind(type_url=xp.ENDPOINT, nonce="e1")
    error = response.resource_errors.add()
    error.resource_name.name, error.error_detail.code, error.error_detail.message = name, code, "because"
    return response


@both
@pytest.mark.parametrize("status", [7, 14, 13], ids=["denied", "unavailable", "internal"])
@timeless
async def test_why_a_resource_can_not_be_had_is_passed_on(delta: bool, status: int) -> None:
    # PRX-22, TP3
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta) as relay:
        clients = [await relay.raw(delta=down) for down in (True, False)]
        for client in clients:
            await client.want(xp.ENDPOINT, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        stream.send(_error("a", status, delta=delta))
        for client in clients:
            (said,) = await client.rest()
            (error,) = said.resource_errors
            assert (error.resource_name.name, error.error_detail.code) == ("a", status)
            assert error.error_detail.message == "because"
            assert not said.resources
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n2")
        for client in clients:
            (said,) = await client.rest()
            assert _bodies(said) == [(xp.ENDPOINT, endpoint("a", "1").SerializeToString())]
            client.close()


@both
@timeless
async def test_a_resource_that_a_server_denies_is_gone_for_later_clients_too(delta: bool) -> None:
    # PRX-22, ERR-10
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client(delta=delta) as client, relay.client() as late:
        watched = follow(client, xp.ENDPOINT, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"))
        assert await marks(watched) == [("a", "1")]
        stream.send(_error("a", 7, delta=True))
        assert ("a", "PERMISSION_DENIED") in await marks(watched)
        assert ("a", "1") not in await marks(follow(late, xp.ENDPOINT, "a", params=PROD))
        stream.respond(xp.ENDPOINT, endpoint("a", "2"), nonce="n3")
        assert await marks(watched) == [("a", "2")]


@both
@timeless
async def test_a_transient_error_of_the_server_is_passed_on_as_an_ambient_error(delta: bool) -> None:
    # PRX-22, TP3
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client(delta=delta) as client:
        watched = follow(client, xp.ENDPOINT, "a", params=PROD)
        await quiet()
        stream = await peer.accept()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"))
        assert await marks(watched) == [("a", "1")]
        stream.send(_error("a", 13, delta=True))
        assert await marks(watched) == [("a", "(INTERNAL)")]


@timeless
async def test_one_client_of_many_repeats_a_failed_question() -> None:
    # PRX-14, PRX-22
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        watched = [follow(client, xp.ENDPOINT, "a", params={"x": str(number)}) for number in range(20)]
        await quiet()
        stream = await peer.accept()
        stream.send(_error("a", 13, delta=True))
        assert [await marks(each) for each in watched] == [[("a", "INTERNAL")]] * 20
        asked = [locator for request in stream.pending() for locator in request.resource_locators_subscribe]
        assert len(asked) == 1
