"""A name that is watched beside a wildcard which has it already."""

from __future__ import annotations

import xdsprism as xp
from tests.client.rig import accept, both, cluster, exchange, follow, quiet, talk, timeless
from tests.client.wrapping import wrap


@both
@timeless
async def test_a_member_of_a_wildcard_is_given_at_once_to_a_watch_by_name(delta: bool) -> None:
    # CLI-18: servers in the field do not send once more what a stream has
    async with talk(delta=delta) as (client, peer):
        everything = follow(client, xp.CLUSTER)
        stream = await peer.accept()
        await stream.request()
        stream.respond(xp.CLUSTER, cluster("a", "1"), cluster("b", "1"))
        assert sorted([(await everything.next()).name, (await everything.next()).name]) == ["a", "b"]
        named = follow(client, xp.CLUSTER, "a")
        await quiet(3600.0)  # and its timer does not say that there is none
        assert [update.resource.alt_stat_name for update in named.seen()] == ["1"]
        stream.respond(xp.CLUSTER, cluster("a", "2"), *([] if delta else [cluster("b", "1")]), version="2", nonce="n2")
        assert (await named.next()).resource.alt_stat_name == "2"
        assert (await everything.next()).resource.alt_stat_name == "2"


@both
@timeless
async def test_when_the_wildcard_ends_the_name_stays_watched(delta: bool) -> None:
    # WLD-7
    async with talk(delta=delta) as (client, peer):
        everything = follow(client, xp.CLUSTER)
        stream = await peer.accept()
        await stream.request()
        stream.respond(xp.CLUSTER, cluster("a", "1"))
        await everything.next()
        named = follow(client, xp.CLUSTER, "a")
        await named.next()
        await everything.close()
        await quiet()
        last = stream.pending()[-1]
        assert list(last.resource_names_unsubscribe if delta else last.resource_names) == ["*" if delta else "a"]
        stream.respond(xp.CLUSTER, cluster("a", "2"), version="2", nonce="n2")
        assert (await named.next()).resource.alt_stat_name == "2"


@timeless
async def test_members_of_an_unanswered_wildcard_are_not_claimed_on_the_next_stream() -> None:
    # DLT-13: the response that came after the second was asked for had been on its way to the first
    async with talk(delta=True) as (client, peer):
        follow(client, xp.CLUSTER, params={"x": "1"})
        stream, _ = await accept(peer)
        shared, own = wrap(cluster("a"), when="true"), wrap(cluster("b"), when="x=1")
        await exchange(stream, xp.CLUSTER, shared, own)
        follow(client, xp.CLUSTER, params={"env": "prod"})
        await stream.request()
        await exchange(stream, xp.CLUSTER, wrap(cluster("c"), when="x=1"), nonce="n2")
        stream.end()
        _, request = await accept(peer)
        assert dict(request.initial_resource_versions) == {"a": "", "b": "1", "c": "1"}
