"""Virtual hosts on demand through a relay: what an Envoy asks for is asked upstream, and answered as Envoy needs it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

import xdsprism as xp
from tests.client.rig import quiet, timeless
from tests.relay.rig import Raw, Station, chain, pair


def host(name: str, *domains: str, mark: str = "") -> VirtualHost:
    made = VirtualHost(name=name, domains=domains)
    if mark:
        made.virtual_clusters.add(name=mark).headers.add(name=":path", present_match=True)
    return made


def routes(name: str, *, mark: str = "") -> RouteConfiguration:
    made = RouteConfiguration(name=name, internal_only_headers=[mark] if mark else [])
    made.vhds.config_source.ads.SetInParent()
    made.vhds.config_source.resource_api_version = 2
    return made


def shown(response: Any) -> list[str]:
    """`rc/vh(aliases)=mark`, `?name` without contents, `-name`."""
    tokens = []
    for each in response.resources:
        name = each.name + (f"({','.join(sorted(each.aliases))})" if each.aliases else "")
        clusters = VirtualHost.FromString(each.resource.value).virtual_clusters
        mark = clusters[0].name if clusters else ""
        tokens.append(f"{name}={mark}" if each.HasField("resource") else f"?{each.name}")
    return sorted(tokens) + [f"-{name}" for name in response.removed_resources]


async def heard(envoy: Raw) -> list[list[str]]:
    """All that came, ACKed."""
    responses = await envoy.rest()
    for response in responses:
        await envoy.ack(response)
    await quiet()
    return [shown(response) for response in responses if response.type_url == xp.VIRTUAL_HOST]


async def envoy(relay: Station, **metadata: str) -> Raw:
    """One that has joined: its routes, and the empty request with which it asks for the base set (V2)."""
    raw = (await relay.raw()).of(**metadata)
    await raw.want(xp.ROUTE, "rc")
    await raw.want(xp.VIRTUAL_HOST)
    return raw


@pytest.mark.parametrize("relays", [1, 2])
@timeless
async def test_a_host_is_asked_upstream_when_it_is_asked_for(relays: int) -> None:
    # PRX-24, VHD-3, VHD-13
    async with chain(relays) as (origin, stations):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"), host("rc/other", "other.test"))
        raw = await envoy(stations[-1])
        assert await heard(raw) == [["-rc/_"]]
        await raw.want(xp.VIRTUAL_HOST, "rc/shop.test")
        assert await heard(raw) == [["rc/shop(rc/shop.test)=1"]]
        origin.put(host("rc/shop", "shop.test", mark="2"))
        assert await heard(raw) == [["rc/shop(rc/shop.test)=2"]]
        origin.delete(xp.VIRTUAL_HOST, "rc/shop")
        assert await heard(raw) == [["-rc/shop"]]
        origin.put(host("rc/new", "shop.test", mark="3"))
        assert await heard(raw) == [["rc/new(rc/shop.test)=3"]]
        raw.close()


@pytest.mark.parametrize("relays", [1, 2])
@timeless
async def test_a_host_that_is_not_there_is_answered_and_pushed_when_it_comes(relays: int) -> None:
    # PRX-27, VHD-7, VHD-8
    async with chain(relays) as (origin, stations):
        origin.put(routes("rc"))
        raw = await envoy(stations[-1])
        await heard(raw)
        await raw.want(xp.VIRTUAL_HOST, "rc/none.test")
        assert await heard(raw) == [["?rc/none.test"]]
        origin.put(host("rc/w", "*.test", mark="1"))
        assert await heard(raw) == [["rc/w(rc/none.test)=1"]]
        raw.close()


@timeless
async def test_hosts_of_one_virtual_host_are_one_resource_with_the_strings_that_were_asked() -> None:
    # VHD-4, VHD-5
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/w", "*.test", mark="1"))
        raw = await envoy(relay)
        await heard(raw)
        await raw.want(xp.VIRTUAL_HOST, "rc/a.test")
        assert await heard(raw) == [["rc/w(rc/a.test)=1"]]
        await raw.want(xp.VIRTUAL_HOST, "rc/b.test")
        assert await heard(raw) == [["rc/w(rc/b.test)=1"]]  # what is new
        origin.put(host("rc/w", "*.test", mark="2"))
        assert await heard(raw) == [["rc/w(rc/a.test,rc/b.test)=2"]]
        raw.close()


@timeless
async def test_a_host_goes_to_the_client_that_asked_and_the_base_set_to_all() -> None:
    # VHD-9, VHD-13
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"))
        origin.put(host("rc/base", "base.test", mark="b"), base=True)
        first = await envoy(relay)
        assert await heard(first) == [["rc/base(rc/base.test)=b"]]
        await first.want(xp.VIRTUAL_HOST, "rc/shop.test")
        assert await heard(first) == [["rc/shop(rc/shop.test)=1"]]
        second = await envoy(relay)
        assert await heard(second) == [["rc/base(rc/base.test)=b"]]
        origin.put(host("rc/shop", "shop.test", mark="2"))
        assert (await heard(first), await heard(second)) == ([["rc/shop(rc/shop.test)=2"]], [])
        origin.put(host("rc/base", "base.test", mark="c"), base=True)
        assert (await heard(first), await heard(second)) == ([["rc/base(rc/base.test)=c"]],) * 2
        first.close()
        second.close()


@timeless
async def test_envoys_get_their_variants_and_one_subscription_serves_all_of_a_class() -> None:
    # VHD-18, PRX-5
    async with pair() as (origin, relay):
        origin.put(routes("rc"))
        origin.vary(prod=host("rc/shop", "shop.test", mark="p"), test=host("rc/shop", "shop.test", mark="t"))
        kinds = ["prod", "test", "prod", "test", "qa"]
        raws = [await envoy(relay, env=env) for env in kinds]
        for raw in raws:
            await heard(raw)
            await raw.want(xp.VIRTUAL_HOST, "rc/shop.test")
        said = [await heard(raw) for raw in raws]
        found = {
            "prod": [["rc/shop(rc/shop.test)=p"]],
            "test": [["rc/shop(rc/shop.test)=t"]],
            "qa": [["?rc/shop.test"]],
        }
        assert said == [found[kind] for kind in kinds]
        assert len([key for key in origin.asked(xp.VIRTUAL_HOST) if key[0] == "rc/shop.test"]) == 3
        for raw in raws:
            raw.close()


@timeless
async def test_a_changed_route_configuration_takes_its_hosts_along() -> None:
    # VHD-16, VHD-23
    async with pair() as (origin, relay):
        origin.put(routes("rc"), routes("later"), host("rc/shop", "shop.test", mark="1"))
        raw = await envoy(relay)
        await raw.want(xp.VIRTUAL_HOST, "rc/shop.test")
        await heard(raw)
        origin.put(routes("rc", mark="x"))
        assert await heard(raw) == [["rc/shop(rc/shop.test)=1", "-rc/_"]]
        await raw.want(xp.ROUTE, "later")
        assert await heard(raw) == [["-later/_"]]
        raw.close()


@timeless
async def test_a_client_that_returns_to_a_new_relay_is_sent_only_what_changed() -> None:
    # V15, PRX-12: and nothing goes that is only not known yet
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/a", "a.test", mark="1"), host("rc/b", "b.test", mark="1"))
        raw = await envoy(relay)
        await raw.want(xp.VIRTUAL_HOST, "rc/a.test", "rc/b.test", "rc/c.test")
        responses = [each for each in await raw.rest() if each.type_url == xp.VIRTUAL_HOST]
        versions = {each.name: each.version for response in responses for each in response.resources}
        raw.close()
        origin.put(host("rc/b", "b.test", mark="2"))
    async with pair() as (same, relay):
        same.put(routes("rc"), host("rc/a", "a.test", mark="1"), host("rc/b", "b.test", mark="2"))
        raw = await relay.raw()
        names = ("*", "rc/a.test", "rc/b.test", "rc/c.test")
        await raw.want(xp.VIRTUAL_HOST, *names, initial_resource_versions=versions)
        said = [token for response in await heard(raw) for token in response]
        assert [token for token in said if token != "-rc/_"] == ["rc/b(rc/b.test)=2"]
        raw.close()


@timeless
async def test_while_the_server_is_down_a_host_waits_and_is_answered_when_it_is_back() -> None:
    # PRX-11, V9
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/a", "a.test", mark="1"), host("rc/b", "b.test", mark="1"))
        raw = await envoy(relay)
        await raw.want(xp.VIRTUAL_HOST, "rc/a.test")
        await heard(raw)
        origin.wire.cut(down=True)
        await raw.want(xp.VIRTUAL_HOST, "rc/b.test")
        assert await heard(raw) == []
        other = await envoy(relay)
        await other.want(xp.VIRTUAL_HOST, "rc/a.test")
        assert ["rc/a(rc/a.test)=1"] in await heard(other)
        origin.wire.down = False
        while not (said := await heard(raw)):
            pass
        assert said == [["rc/b(rc/b.test)=1"]]
        raw.close()
        other.close()


@timeless
async def test_behind_a_sotw_relay_hosts_are_unresolved_at_once() -> None:
    # VHD-1: there are no virtual hosts on demand in SotW; Envoy would wait for ever (V9)
    async with pair(delta=False) as (origin, relay):
        origin.put(routes("rc"), host("rc/a", "a.test", mark="1"))
        raw = await envoy(relay)
        assert [token for said in await heard(raw) for token in said] == ["-rc/_"]
        await raw.want(xp.VIRTUAL_HOST, "rc/a.test")
        assert await heard(raw) == [["?rc/a.test"]]
        raw.close()


@timeless
async def test_an_unresolved_host_is_remembered_for_five_seconds_after_its_last_client() -> None:
    # PRX-27: whoever comes in that time is answered from the cache; then there is no subscription left
    async with pair() as (origin, relay):
        origin.put(routes("rc"), host("rc/a", "a.test", mark="1"))
        for _ in range(2):
            raw = await envoy(relay)
            await raw.want(xp.VIRTUAL_HOST, "rc/none.test", "rc/a.test")
            said = sorted(token for response in await heard(raw) for token in response)
            assert said == ["-rc/_", "?rc/none.test", "rc/a(rc/a.test)=1"]
            raw.close()
            await asyncio.sleep(4)
        strings = [name for name, _ in origin.asked(xp.VIRTUAL_HOST)]
        assert {"rc/none.test", "rc/a.test"} <= {*strings}
        await asyncio.sleep(2)
        strings = [name for name, _ in origin.asked(xp.VIRTUAL_HOST)]
        assert "rc/none.test" not in strings
        assert "rc/a.test" in strings
