"""The requests of a client, and its ACKs and NACKs."""

from __future__ import annotations

import asyncio

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest

import xdsprism as xp
from tests.client.rig import (
    MAKE,
    accept,
    bootstrap,
    both,
    cluster,
    endpoint,
    exchange,
    follow,
    names,
    quiet,
    silent,
    talk,
    timeless,
)
from tests.client.wrapping import reply, wrap
from xdsprism.release import __version__

# -- the node


@both
@timeless
async def test_the_node_is_in_the_first_request_of_each_stream_and_in_no_other(delta):  # CLI-1
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        follow(client, xp.ENDPOINT, "a")
        stream, first = await accept(peer)
        second = await stream.request()
        ack = await exchange(stream, xp.CLUSTER, cluster("a"))
        assert (first.node.id, first.node.cluster) == ("x", "y")
        assert not second.HasField("node")
        assert not ack.HasField("node")
        stream.end()
        again, first = await accept(peer)
        assert first.node.id == "x"
        assert not any(request.HasField("node") for request in again.pending())


@both
@timeless
async def test_the_library_says_what_it_is_and_what_it_can_do(delta):  # CLI-1
    node = {"id": "x", "user_agent_name": "mine", "client_features": ["own", "xds.config.resource-in-sotw"]}
    async with talk(bootstrap(node=node), delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        features = list(request.node.client_features)
        assert (request.node.user_agent_name, request.node.user_agent_version) == ("xdsprism", __version__)
        assert features[:2] == ["own", "xds.config.resource-in-sotw"]
        assert features.count("xds.config.resource-in-sotw") == 1
        assert "envoy.lb.does_not_support_overprovisioning" in features
        assert "xds.endpoint.supports_lb_endpoint_collection" in features  # CLI-25


# -- names


@both
@timeless
async def test_subscriptions_of_one_turn_go_out_in_one_request_per_type(delta):
    async with talk(delta=delta) as (client, peer):
        for name in "abc":
            follow(client, xp.ENDPOINT, name)
        follow(client, xp.ROUTE, "r")
        stream, first = await accept(peer)
        second = await stream.request()
        assert [(request.type_url, names(request)) for request in (first, second)] == [
            (xp.ENDPOINT, ["a", "b", "c"]),
            (xp.ROUTE, ["r"]),
        ]
        assert await silent(stream)
        for name in "def":
            follow(client, xp.ENDPOINT, name)
        assert names(await stream.request()) == (["d", "e", "f"] if delta else [*"abcdef"])
        assert await silent(stream)


@timeless
async def test_a_subscription_made_for_a_resource_goes_out_with_its_ack():  # CLI-4
    async with talk() as (client, peer):
        updates = client.watch(xp.ENDPOINT, "a")

        async def loop():
            async for update in updates:
                follow(client, xp.ENDPOINT, f"{update.name}-next")

        looping = asyncio.ensure_future(loop())
        stream, _ = await accept(peer)
        ack = await exchange(stream, xp.ENDPOINT, endpoint("a"), nonce="n7")
        assert (ack.response_nonce, names(ack)) == ("n7", ["a", "a-next"])
        assert await silent(stream)
        updates.close()
        await looping


@timeless
async def test_each_sotw_request_lists_all_names_and_the_last_unsubscription_none():  # CLI-2
    async with talk() as (client, peer):
        watchers = [follow(client, xp.ENDPOINT, name) for name in "ab"]
        stream, request = await accept(peer)
        assert names(request) == ["a", "b"]
        await watchers[0].close()
        assert names(await stream.request()) == ["b"]
        await watchers[1].close()
        assert names(await stream.request()) == []
        assert await silent(stream)


@timeless
async def test_each_delta_request_says_what_changes():  # CLI-2
    async with talk(delta=True) as (client, peer):
        watchers = [follow(client, xp.ENDPOINT, name) for name in "ab"]
        stream, _ = await accept(peer)
        await watchers[0].close()
        request = await stream.request()
        assert (names(request), list(request.resource_names_unsubscribe)) == ([], ["a"])
        await watchers[1].close()
        assert list((await stream.request()).resource_names_unsubscribe) == ["b"]
        follow(client, xp.ENDPOINT, "c")
        request = await stream.request()
        assert (names(request), list(request.resource_names_unsubscribe)) == (["c"], [])


@both
@timeless
async def test_a_subscription_that_begins_and_ends_in_one_turn_is_not_sent(delta):
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        brief = client.watch(xp.ENDPOINT, "b")
        asking = asyncio.ensure_future(anext(brief))
        await asyncio.sleep(0)
        brief.close()
        with pytest.raises(StopAsyncIteration):
            await asking
        assert await silent(stream)


@both
@timeless
async def test_a_subscription_that_ends_and_begins_in_one_turn_is_sent_again(delta):
    """Its value is forgotten with the last watcher, so the server has to be made to send it."""
    async with talk(delta=delta) as (client, peer):
        before = follow(client, xp.ENDPOINT, "a")
        follow(client, xp.ENDPOINT, "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("a"), endpoint("b"))
        await before.next()
        closing = asyncio.ensure_future(before.close())
        after = follow(client, xp.ENDPOINT, "a")
        await closing
        without, whole = await stream.request(), await stream.request()
        if delta:
            assert (list(without.resource_names_unsubscribe), names(without)) == (["a"], [])
            assert (list(whole.resource_names_unsubscribe), names(whole)) == ([], ["a"])
        else:
            assert (names(without), sorted(names(whole))) == (["b"], ["a", "b"])
        await exchange(stream, xp.ENDPOINT, endpoint("a"), nonce="n2")
        assert (await after.next()).resource == endpoint("a")


# -- answers


@timeless
async def test_an_ack_has_the_nonce_and_version_of_the_response_and_all_names():  # CLI-3, CLI-4
    async with talk() as (client, peer):
        follow(client, xp.ENDPOINT, "a", "b")
        stream, first = await accept(peer)
        assert (first.version_info, first.response_nonce) == ("", "")
        ack = await exchange(stream, xp.ENDPOINT, endpoint("a"), version="7", nonce="n7")
        assert (ack.version_info, ack.response_nonce, names(ack)) == ("7", "n7", ["a", "b"])
        assert (ack.type_url, ack.HasField("error_detail")) == (xp.ENDPOINT, False)
        follow(client, xp.ENDPOINT, "c")
        later = await stream.request()
        assert (later.version_info, later.response_nonce, names(later)) == ("7", "n7", ["a", "b", "c"])


@timeless
async def test_types_have_nonces_and_versions_of_their_own():  # CLI-3, CLI-4
    async with talk() as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        follow(client, xp.ROUTE, "r")
        stream, _ = await accept(peer)
        await stream.request()
        await exchange(stream, xp.ENDPOINT, endpoint("a"), version="7", nonce="n7")
        follow(client, xp.ROUTE, "s")
        later = await stream.request()
        assert (later.type_url, later.version_info, later.response_nonce) == (xp.ROUTE, "", "")


@timeless
async def test_a_delta_answer_has_the_nonce_only_and_a_change_has_none():  # CLI-3
    async with talk(delta=True) as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        stream, first = await accept(peer)
        assert first.response_nonce == ""
        ack = await exchange(stream, xp.ENDPOINT, endpoint("a"), nonce="n7")
        assert (ack.response_nonce, names(ack), ack.HasField("error_detail")) == ("n7", [], False)
        follow(client, xp.ENDPOINT, "b")
        later = await stream.request()
        assert (later.response_nonce, names(later)) == ("", ["b"])


@both
@timeless
async def test_every_response_is_answered_even_without_watchers(delta):  # CLI-7
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await watcher.close()
        await stream.request()
        ack = await exchange(stream, xp.ENDPOINT, endpoint("a"), nonce="late")
        assert (ack.response_nonce, names(ack), ack.HasField("error_detail")) == ("late", [], False)


# -- a new stream


@timeless
async def test_a_new_sotw_stream_has_no_nonce_but_the_version_and_asks_for_every_type():  # CLI-5
    async with talk() as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        follow(client, xp.ROUTE, "r")
        stream, _ = await accept(peer)
        await stream.request()
        await exchange(stream, xp.ENDPOINT, endpoint("a"), version="7", nonce="n7")
        stream.end()
        again, first = await accept(peer)
        asked = {each.type_url: each for each in (first, await again.request())}
        assert [(asked[url].version_info, asked[url].response_nonce) for url in (xp.ENDPOINT, xp.ROUTE)] == [
            ("7", ""),
            ("", ""),
        ]
        assert (names(asked[xp.ENDPOINT]), names(asked[xp.ROUTE])) == (["a"], ["r"])


@timeless
async def test_a_version_is_not_claimed_on_a_new_stream_where_something_is_lacking():  # CLI-5
    """A server that goes by the version alone would never send what was added meanwhile."""
    async with talk() as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("a"), version="7")
        stream.end()
        follow(client, xp.ENDPOINT, "b")
        _, first = await accept(peer)
        assert (names(first), first.version_info) == (["a", "b"], "")


@timeless
async def test_a_new_delta_stream_names_everything_and_the_versions_held():  # CLI-6
    async with talk(delta=True) as (client, peer):
        follow(client, xp.ENDPOINT, "a", "b")
        stream, first = await accept(peer)
        assert dict(first.initial_resource_versions) == {}
        await exchange(stream, xp.ENDPOINT, endpoint("a"), version="7")
        stream.end()
        again, first = await accept(peer)
        assert (names(first), dict(first.initial_resource_versions)) == (["a", "b"], {"a": "7"})
        follow(client, xp.ENDPOINT, "c")
        assert dict((await again.request()).initial_resource_versions) == {}


@timeless
async def test_a_new_delta_stream_names_the_version_of_a_resource_that_is_watched_by_an_alias():  # CLI-6
    async with talk(delta=True) as (client, peer):
        follow(client, xp.CLUSTER, "other")
        stream, _ = await accept(peer)
        aliased = wrap(cluster("a"))
        aliased.aliases.append("other")
        await reply(stream, xp.CLUSTER, aliased)
        stream.end()
        _, first = await accept(peer)
        assert (names(first), dict(first.initial_resource_versions)) == (["other"], {"a": "1"})


@timeless
async def test_an_unwatched_resource_is_not_claimed():  # CLI-6
    async with talk(delta=True) as (client, peer):
        follow(client, xp.ENDPOINT, "a")
        going = follow(client, xp.ENDPOINT, "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("a"), endpoint("b"), version="7")
        await going.close()
        await stream.request()
        stream.end()
        _, first = await accept(peer)
        assert (names(first), dict(first.initial_resource_versions)) == (["a"], {"a": "7"})


@both
@timeless
async def test_an_unwatched_type_is_not_requested_on_a_new_stream(delta):  # CLI-5, CLI-6
    async with talk(delta=delta) as (client, peer):
        going = follow(client, xp.ENDPOINT, "a")
        follow(client, xp.ROUTE, "r")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        await going.close()
        await quiet()
        stream.end()
        again, first = await accept(peer)
        assert first.type_url == xp.ROUTE
        assert await silent(again)
        follow(client, xp.ENDPOINT, "b")
        request = await again.request()
        assert (request.type_url, names(request), request.response_nonce) == (xp.ENDPOINT, ["b"], "")


# -- wildcards


@both
@pytest.mark.parametrize("type_url", [xp.LISTENER, xp.CLUSTER], ids=["lds", "cds"])
@timeless
async def test_everything_is_asked_for_in_the_form_that_every_server_knows(delta, type_url):
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, type_url)
        stream, first = await accept(peer)
        assert names(first) == []
        ack = await exchange(stream, type_url, MAKE[type_url]("a"), MAKE[type_url]("b"))
        assert names(ack) == []
        assert [update.name for update in (await watcher.next(), await watcher.next())] == ["a", "b"]


@both
@timeless
async def test_everything_of_another_type_is_asked_for_by_a_star(delta):
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.ENDPOINT)
        stream, first = await accept(peer)
        assert names(first) == ["*"]
        await exchange(stream, xp.ENDPOINT, endpoint("a"))
        assert (await watcher.next()).name == "a"


@both
@timeless
async def test_a_name_beside_the_wildcard_leaves_the_wildcard_as_it_is(delta):
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        named = follow(client, xp.CLUSTER, "a")
        assert names(await stream.request()) == (["a"] if delta else ["*", "a"])
        await named.close()
        request = await stream.request()
        if delta:
            assert list(request.resource_names_unsubscribe) == ["a"]
        else:
            assert names(request) == ["*"]


@both
@timeless
async def test_a_first_request_for_the_wildcard_and_a_name_has_both(delta):
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER)
        follow(client, xp.CLUSTER, "a")
        _, first = await accept(peer)
        assert names(first) == ["*", "a"]


@timeless
async def test_an_implicit_wildcard_is_named_before_it_is_unsubscribed():
    """Until there has been a name an empty list means everything, and could not take back anything."""
    async with talk() as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.close()
        assert [names(await stream.request()) for _ in range(2)] == [["*"], []]
        assert await silent(stream)


@timeless
async def test_a_wildcard_dropped_together_with_an_answer_is_dropped_all_the_same():
    async with talk() as (client, peer):
        updates = client.watch(xp.CLUSTER)
        first = asyncio.ensure_future(anext(updates))
        stream, _ = await accept(peer)
        stream.respond(xp.CLUSTER, cluster("a"), nonce="n1")
        await first
        updates.close()  # before the answer was written
        await quiet()
        sent = [(names(request), request.response_nonce) for request in stream.pending()]
        assert sent in ([([], "n1"), (["*"], "n1"), ([], "n1")], [(["*"], "n1"), ([], "n1")])


@timeless
async def test_a_wildcard_dropped_and_wanted_again_in_one_turn_is_sent_again():
    async with talk() as (client, peer):
        before = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        closing = asyncio.ensure_future(before.close())
        after = follow(client, xp.CLUSTER)
        await closing
        await quiet()
        assert [names(request) for request in stream.pending()] == [["*"], [], ["*"]]
        await exchange(stream, xp.CLUSTER, cluster("a"), nonce="n2")
        assert (await after.next()).name == "a"


@timeless
async def test_a_delta_wildcard_is_dropped_by_its_star():
    async with talk(delta=True) as (client, peer):
        watcher = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        await watcher.close()
        request = await stream.request()
        assert (names(request), list(request.resource_names_unsubscribe)) == ([], ["*"])


@both
@timeless
async def test_a_wildcard_becomes_a_list_of_names(delta):
    async with talk(delta=delta) as (client, peer):
        everything = follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"))
        follow(client, xp.CLUSTER, "a")
        await stream.request()
        await everything.close()
        request = await stream.request()
        assert names(request) == ([] if delta else ["a"])
        assert not delta or list(request.resource_names_unsubscribe) == ["*"]


@timeless
async def test_a_request_can_be_read_by_the_published_schema_without_a_rest():
    async with talk() as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream = await peer.accept()
        raw = await stream.requests.get()
        assert DiscoveryRequest.FromString(raw).SerializeToString(deterministic=True) == DiscoveryRequest(
            node=DiscoveryRequest.FromString(raw).node, type_url=xp.CLUSTER, resource_names=["a"]
        ).SerializeToString(deterministic=True)
