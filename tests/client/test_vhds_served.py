"""Virtual hosts and clusters on demand, from our own server, with nothing but bytes between client and store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import BOOT, bootstrap, clock, cluster, follow, quiet, route, server, status, timeless
from tests.client.vhosts import told, vhost
from xdsprism.core.model.settings import Settings
from xdsprism.server.hub import Hub
from xdsprism.testing import HubTransport

VHDS = xp.VIRTUAL_HOST
A, B = "rc/a.test", "rc/b.test"


@asynccontextmanager
async def served(store: xp.Store, source: Any = BOOT) -> AsyncIterator[tuple[xp.Client, HubTransport]]:
    loop = asyncio.get_running_loop()
    way = HubTransport(Hub(store, Settings(), loop.time, loop.call_soon))
    async with xp.Client(source, delta=True, connect=way.connect, fail_on_data_errors=True) as client:
        yield client, way


def put(store: xp.Store, *hosts: Any, **options: Any) -> None:
    with store.transaction() as tx:
        for host in hosts:
            tx.put(host, **options)


def delete(store: xp.Store, type_url: str, name: str) -> None:
    with store.transaction() as tx:
        tx.delete(type_url, name)


@pytest.mark.parametrize("source", [BOOT, bootstrap(server(v3=False))], ids=["v3", "v2"])
@timeless
async def test_a_request_finds_what_serves_a_host(source: Any) -> None:
    # VHD-3, VHD-6, VHD-17, VHD-22
    store = xp.Store()
    put(store, vhost("rc/shop", "a.test", "b.test"), vhost("rc/wide", "*.test"), vhost("rc/rest", "*"))
    put(store, vhost("team/rc/x", "a.test"))
    async with served(store, source) as (client, _):
        expected = {"A.Test": "rc/shop", "b.test": "rc/shop", "b.test:80": "rc/rest", "c.test": "rc/wide"}
        for host, name in expected.items():
            assert told(await client.request_vhost("rc", host)) == (f"rc/{host.lower()}", name)
        assert told(await client.request_vhost("team/rc", "a.test")) == ("team/rc/a.test", "team/rc/x")
        assert told(await client.request_vhost("nobody", "a.test")) == ("nobody/a.test", "error NOT_FOUND")
        assert clock() == 0


@timeless
async def test_a_thousand_requests_at_once_are_answered_each() -> None:
    # VHD-22, VHD-24
    store = xp.Store()
    put(store, *[vhost(f"rc/{number}", f"{number}.test", mark=f"{number}") for number in range(0, 1000, 2)])
    async with served(store) as (client, way):
        asked = await asyncio.gather(*[client.request_vhost("rc", f"{number}.test") for number in range(1000)])
        assert [update.resource is not None for update in asked] == [True, False] * 500
        assert {update.error.status for update in asked if update.error is not None} == {"NOT_FOUND"}
        assert (clock(), way.opened) == (0, 1)
        assert client.subscriber.entries() == []


@timeless
async def test_ports_count_unless_the_route_configuration_says_otherwise() -> None:
    # VHD-6
    store = xp.Store()
    strict, lax = route("strict"), route("lax")
    lax.ignore_port_in_host_matching = True
    put(store, strict, lax, vhost("strict/x", "a.test"), vhost("lax/x", "a.test"))
    async with served(store) as (client, _):
        assert told(await client.request_vhost("lax", "a.test:80")) == ("lax/a.test:80", "lax/x")
        assert told(await client.request_vhost("strict", "a.test:80"))[1] == "error NOT_FOUND"
        watcher = follow(client, VHDS, "lax/a.test:80", "strict/a.test:80")
        await quiet()
        watcher.seen()
        put(store, vhost("lax/x", "a.test", mark="2"))
        await quiet()
        assert [told(update) for update in watcher.seen()] == [("lax/a.test:80", "lax/x=2")]


@timeless
async def test_a_watch_of_a_host_sees_its_creation_changes_and_removal() -> None:
    # VHD-7, VHD-8, VHD-9, VHD-10
    store = xp.Store()
    async with served(store) as (client, _):
        watcher = follow(client, VHDS, A, B)
        steps = [
            (lambda: None, [(A, "error NOT_FOUND"), (B, "error NOT_FOUND")]),
            (lambda: put(store, vhost("rc/shop", "a.test")), [(A, "rc/shop")]),
            (lambda: put(store, vhost("rc/other", "c.test")), []),
            (lambda: put(store, vhost("rc/shop", "a.test", "b.test", mark="2")), [(A, "rc/shop=2"), (B, "rc/shop=2")]),
            (lambda: put(store, vhost("rc/shop", "b.test", mark="3")), [(B, "rc/shop=3"), (A, "error NOT_FOUND")]),
            (lambda: put(store, vhost("rc/rest", "*.test")), [(A, "rc/rest")]),
            (lambda: delete(store, VHDS, "rc/shop"), [(B, "rc/rest")]),
            (lambda: delete(store, VHDS, "rc/rest"), [(A, "error NOT_FOUND"), (B, "error NOT_FOUND")]),
            (lambda: put(store, vhost("rc/shop", "b.test", mark="4")), [(B, "rc/shop=4")]),
        ]
        for act, heard in steps:
            act()
            await quiet()
            assert [told(update) for update in watcher.seen()] == heard


@timeless
async def test_a_domain_that_moves_is_one_update() -> None:
    # VHD-12
    store = xp.Store()
    put(store, vhost("rc/x", "a.test", "b.test"))
    async with served(store) as (client, _):
        watcher = follow(client, VHDS, A, B)
        await quiet()
        watcher.seen()
        put(store, vhost("rc/x", "b.test", mark="2"), vhost("rc/y", "a.test"))
        await quiet()
        assert sorted(map(told, watcher.seen())) == [(A, "rc/y"), (B, "rc/x=2")]


@timeless
async def test_after_a_new_stream_every_host_has_its_current_virtual_host() -> None:
    # VHD-3, VHD-7, CLI-6: what is the same is not told again
    store = xp.Store()
    put(store, vhost("rc/x", "a.test"), vhost("rc/y", "*.test"), vhost("rc/z", "z.other"))
    async with served(store) as (client, way):
        watcher = follow(client, VHDS, A, B, "rc/z.other", "rc/gone.other")
        await quiet()
        assert len(watcher.seen()) == 4
        way.go_down()
        delete(store, VHDS, "rc/x")
        put(store, vhost("rc/w", "gone.other"))
        way.come_up()
        await quiet(10)
        heard = [told(update) for update in watcher.seen() if status(update)[1] != "UNAVAILABLE"]
        assert sorted(heard) == [(A, "rc/y"), ("rc/gone.other", "rc/w")]


@timeless
async def test_variants_of_a_virtual_host_go_to_matching_clients() -> None:
    # VHD-18
    store = xp.Store()
    for env in ("prod", "test"):
        put(store, vhost("rc/shop", "a.test", mark=env), when=f"env={env}")
    async with served(store) as (client, _):
        for env, outcome in {"prod": "rc/shop=prod", "test": "rc/shop=test", "qa": "error NOT_FOUND"}.items():
            assert told(await client.request_vhost("rc", "a.test", params={"env": env})) == (A, outcome)


@timeless
async def test_a_list_of_virtual_hosts_is_the_base_set() -> None:
    # VHD-13
    store = xp.Store()
    put(store, vhost("rc/base", "base.test"), vhost("rc/more", "more.test"), base=True)
    put(store, *[vhost(f"rc/{number}", f"{number}.test") for number in range(100)])
    async with served(store) as (client, _):
        assert sorted(update.name for update in await client.list(VHDS)) == ["rc/base", "rc/more"]
        assert clock() == 0
        watcher = follow(client, VHDS)
        await quiet()
        assert [told(update)[0] for update in watcher.seen()] == ["rc/base", "rc/more"]
        delete(store, VHDS, "rc/more")
        await quiet()
        assert [told(update) for update in watcher.seen()] == [("rc/more", "error NOT_FOUND")]


@timeless
async def test_an_on_demand_cluster_is_reported_at_once_and_given_when_it_appears() -> None:
    # VHD-21: and nothing but what was asked for
    store = xp.Store()
    put(store, cluster("other"))
    async with served(store) as (client, _):
        watcher = follow(client, xp.CLUSTER, "dynamic")
        assert (status(await watcher.next()), clock()) == (("error", "NOT_FOUND"), 0)
        put(store, cluster("dynamic"), cluster("more"))
        assert status(await watcher.next()) == ("resource", "dynamic")
        put(store, cluster("dynamic", "2"))
        assert (await watcher.next()).resource.alt_stat_name == "2"
        delete(store, xp.CLUSTER, "dynamic")
        assert status(await watcher.next()) == ("error", "NOT_FOUND")
        await quiet(100)
        assert watcher.seen() == []
