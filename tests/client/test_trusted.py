"""Which resources came from a server that the bootstrap trusts with security (gRFC A81)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import xdsprism as xp
from tests.client.config_parts import chains
from tests.client.rig import (
    accept,
    bootstrap,
    both,
    exchange,
    follow,
    quiet,
    route,
    server,
    talk,
    talk_to_several,
    timeless,
)

TRUSTED = server("one:1", "trusted_xds_server")
BOTH = bootstrap(TRUSTED, server("two:2"))
STEADY = {"chance": lambda: 0.5}


def trust(updates: list[xp.Update]) -> list[tuple[bool, bool]]:
    """Of each: is it the resource, and is it trusted."""
    return [(update.resource is not None, update.trusted) for update in updates]


@both
@timeless
async def test_an_update_says_whether_its_server_is_trusted(delta: bool) -> None:  # BST-6
    for entry, trusted in ((TRUSTED, True), (server("one:1"), False)):
        async with talk(bootstrap(entry), delta=delta) as (client, peer):
            assert [each.trusted_xds_server for each in client.bootstrap.servers] == [trusted]
            watcher = follow(client, xp.ROUTE, "r")
            stream, _ = await accept(peer)
            await exchange(stream, xp.ROUTE, route("r"))
            assert trust([await watcher.next()]) == [(True, trusted)]
            late = follow(client, xp.ROUTE, "r")
            assert trust([await late.next()]) == [(True, trusted)]


@both
@timeless
async def test_the_same_contents_from_an_untrusted_server_are_an_update(delta: bool) -> None:  # BST-6
    source = {**BOTH, "authorities": {"x": {"fallback_on_reachability_only": True}}}
    name = "xdstp://x/envoy.config.route.v3.RouteConfiguration/r"
    async with talk_to_several(source, delta=delta, **STEADY) as (client, peers):
        watcher = follow(client, xp.ROUTE, name)
        first, _ = await accept(peers["one:1"])
        await exchange(first, xp.ROUTE, route(name))
        peers["one:1"].go_down()
        first.end()
        second, _ = await accept(peers["two:2"])
        await exchange(second, xp.ROUTE, route(name))
        await quiet()
        peers["one:1"].come_up()
        again, _ = await accept(peers["one:1"])
        await exchange(again, xp.ROUTE, route(name))
        await exchange(again, xp.ROUTE, route(name), nonce="n2")  # CLI-19 is as it was
        await quiet()
        assert trust(watcher.seen()) == [(True, True), (True, False), (True, True)]


@timeless
async def test_an_error_is_not_trusted_and_an_ambient_one_is_as_what_it_is_about() -> None:  # BST-6
    async with talk(bootstrap(TRUSTED), **STEADY) as (client, peer):
        held, lacking = follow(client, xp.ROUTE, "r"), follow(client, xp.ENDPOINT, "e")
        stream, _ = await accept(peer)
        await stream.request()
        await exchange(stream, xp.ROUTE, route("r"))
        await quiet(20)  # e does not exist
        peer.go_down()
        stream.end()
        await quiet(20)
        assert trust(held.seen()) == [(True, True), (False, True)]
        assert {trusted for _, trusted in trust(lacking.seen())} == {False}


async def test_a_resource_from_disk_is_not_trusted_until_a_server_sends_it(tmp_path: Path) -> None:  # BST-6
    options = {"cache": tmp_path / "cache", "chance": lambda: 0.0}
    async with asyncio.timeout(30), talk(bootstrap(TRUSTED), **options) as (client, peer):
        watcher = follow(client, xp.ROUTE, "r")
        stream, _ = await accept(peer)
        await exchange(stream, xp.ROUTE, route("r"))
        assert trust([await watcher.next()]) == [(True, True)]
    async with asyncio.timeout(30), talk(bootstrap(TRUSTED), **options) as (client, peer):
        peer.refuse()
        watcher = follow(client, xp.ROUTE, "r")
        assert trust([await watcher.next(), await watcher.next()]) == [(True, False), (False, False)]
        stream, _ = await accept(peer)
        await exchange(stream, xp.ROUTE, route("r"))
        assert trust([await watcher.next()]) == [(True, True)]


@timeless
async def test_a_whole_configuration_says_which_of_its_routes_are_trusted() -> None:  # BST-6, CLI-23
    far = "xdstp://x/envoy.config.route.v3.RouteConfiguration/far"
    source = bootstrap(TRUSTED, authorities={"x": {"xds_servers": [server("two:2")]}})
    async with talk_to_several(source) as (client, peers):
        configs = client.watch_config("shop")
        coming = asyncio.ensure_future(anext(configs))
        first, _ = await accept(peers["one:1"])
        first.respond(xp.LISTENER, chains(route("inline"), far, "near"), version="1", nonce="n1")
        second, _ = await accept(peers["two:2"])
        second.respond(xp.ROUTE, route(far), version="1", nonce="n1")
        first.respond(xp.ROUTE, route("near"), version="1", nonce="n2")
        config = await coming
        names = [each.name for each in config.routes]
        assert dict(zip(names, config.trusted_routes, strict=True)) == {"inline": True, far: False, "near": True}
        configs.close()
