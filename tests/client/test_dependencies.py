"""`Client.watch_config` against a server in memory: a listener and all that it leads to (CLI-23, gRFC A74)."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

import xdsprism as xp
from tests.client.config_parts import aggregate, by_eds, listener, route, static
from tests.client.rig import bootstrap, both, endpoint, quiet, server, talk, timeless
from xdsprism.core.watch.dependencies import Config
from xdsprism.testing import PeerStream

# -- a server that has what it is given, and answers for nothing else


class Plane:
    def __init__(self, stream: PeerStream) -> None:
        self.wanted: defaultdict[str, set[str]] = defaultdict(set)
        self._stream = stream
        self._has: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self._number = count(1)
        self._task = asyncio.ensure_future(self._listen())

    def put(self, *messages: Any) -> None:
        changed = defaultdict(list)
        for message in messages:
            type_url = "type.googleapis.com/" + message.DESCRIPTOR.full_name
            name = message.cluster_name if isinstance(message, ClusterLoadAssignment) else message.name
            self._has[type_url][name] = message
            changed[type_url].append(name)
        for type_url, names in changed.items():
            self._tell(type_url, names)

    def remove(self, type_url: str, name: str) -> None:
        del self._has[type_url][name]
        self._tell(type_url, [], removed=name)

    def forget(self) -> None:
        self._task.cancel()

    async def _listen(self) -> None:
        while True:
            request = await self._stream.request()
            wanted = self.wanted[request.type_url]
            before = set(wanted)
            if self._stream.is_delta:
                wanted |= set(request.resource_names_subscribe)
                wanted -= set(request.resource_names_unsubscribe)
            else:
                wanted.clear()
                wanted |= set(request.resource_names)
            if wanted - before:
                self._tell(request.type_url, sorted(wanted - before))

    def _tell(self, type_url: str, names: list[str], removed: str = "") -> None:
        has, wanted = self._has[type_url], self.wanted[type_url]
        candidates = names if self._stream.is_delta else sorted(wanted)
        there = [has[name] for name in candidates if name in wanted and name in has]
        gone = (removed,) if removed and self._stream.is_delta else ()
        if there or removed:
            number = str(next(self._number))
            self._stream.respond(type_url, *there, version=number, nonce=number, removed=gone)


@asynccontextmanager
async def planned(*messages: Any, **options: Any) -> AsyncIterator[tuple[xp.Client, Plane, Any]]:
    """A client that watches the listener `shop`, and its server, which has these."""
    async with talk(bootstrap(server("one:1", *options.pop("features", ()))), **options) as (client, peer):
        reader = Reader(client.watch_config("shop"))
        plane = Plane(await peer.accept())
        plane.put(*messages)
        try:
            yield client, plane, reader
        finally:
            await reader.close()
            plane.forget()


class Reader:
    """Takes one configuration after the other; begins at once."""

    def __init__(self, configs: Any) -> None:
        self._configs = configs
        self._next: asyncio.Future[Config] | None = None
        self._coming()

    async def next(self) -> Config:
        coming = self._coming()
        self._next = None
        return await coming

    async def is_waiting(self) -> bool:
        """Nothing to show yet, however long one waits (less than it takes to give a resource up)."""
        coming = self._coming()
        await quiet(5)
        return not coming.done()

    async def close(self) -> None:
        if self._configs is not None:
            self._configs.close()
        if self._next is not None:
            await asyncio.gather(self._next, return_exceptions=True)

    def forget(self) -> None:
        self._configs = None
        gc.collect()

    def _coming(self) -> asyncio.Future[Config]:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._configs))
        return self._next


# -- together, or not at all


@both
@timeless
async def test_a_listener_comes_with_all_that_it_leads_to(delta: bool) -> None:
    # CLI-23
    resources = listener(), route("a", "b"), by_eds("a", "service-a"), static("b"), endpoint("service-a")
    async with planned(*resources, delta=delta) as (_, _, reader):
        config = await reader.next()
        assert config.error is None
        assert (config.listener, config.routes) == (listener(), (route("a", "b"),))
        assert {name: each.cluster for name, each in config.clusters.items()} == {
            "a": by_eds("a", "service-a"),
            "b": static("b"),
        }
        assert config.clusters["a"].endpoints == endpoint("service-a")
        assert config.clusters["b"].endpoints == static("b").load_assignment


@both
@timeless
async def test_a_configuration_is_shown_only_when_it_is_complete(delta: bool) -> None:
    # CLI-23
    async with planned(listener(), route("a"), by_eds("a"), delta=delta) as (_, plane, reader):
        assert await reader.is_waiting()
        plane.put(endpoint("a"))
        assert (await reader.next()).clusters["a"].endpoints == endpoint("a")


@both
@timeless
async def test_a_new_route_waits_for_its_cluster_and_then_the_old_one_is_dropped(delta: bool) -> None:
    # CLI-23. A74: no tears
    async with planned(listener(), route("a"), static("a"), delta=delta) as (_, plane, reader):
        assert set((await reader.next()).clusters) == {"a"}
        plane.put(route("b"))
        assert await reader.is_waiting()
        assert plane.wanted[xp.CLUSTER] == {"a", "b"}
        plane.put(static("b"))
        config = await reader.next()
        assert (set(config.clusters), config.routes) == ({"b"}, (route("b"),))
        assert await reader.is_waiting()
        assert plane.wanted[xp.CLUSTER] == {"b"}


@both
@timeless
async def test_a_change_in_one_part_is_a_new_whole(delta: bool) -> None:
    # CLI-23
    async with planned(listener(), route("a"), by_eds("a"), endpoint("a"), delta=delta) as (_, plane, reader):
        before = await reader.next()
        plane.put(endpoint("a", "more"))
        after = await reader.next()
        assert after.clusters["a"].endpoints == endpoint("a", "more")
        assert before.clusters["a"].endpoints == endpoint("a")


@both
@timeless
async def test_one_bad_cluster_does_not_fail_the_rest(delta: bool) -> None:
    # CLI-23
    resources = listener(), route("a", "bad", "gone"), static("a"), Cluster(name="bad", connect_timeout={"seconds": -1})
    async with planned(*resources, delta=delta) as (_, _, reader):
        config = await reader.next()
        statuses = {name: each.error and each.error.status for name, each in config.clusters.items()}
        assert statuses == {"a": None, "bad": "INVALID_ARGUMENT", "gone": "NOT_FOUND"}


@both
@timeless
async def test_a_later_invalid_resource_leaves_the_last_configuration_in_use(delta: bool) -> None:
    # CLI-23. A74: an error where there is a resource is ignored
    async with planned(listener(), route("a"), static("a"), delta=delta) as (_, plane, reader):
        await reader.next()
        plane.put(Cluster(name="a", connect_timeout={"seconds": -1}))
        assert await reader.is_waiting()


@both
@timeless
async def test_missing_endpoints_are_noted_with_their_cluster(delta: bool) -> None:
    # CLI-23
    async with planned(listener(), route("a"), by_eds("a"), delta=delta) as (_, _, reader):
        config = await reader.next()
        [a] = config.clusters.values()
        assert (a.cluster, a.endpoints, a.error) == (by_eds("a"), None, None)
        assert a.endpoints_error is not None
        assert a.endpoints_error.status == "NOT_FOUND"


@both
@timeless
async def test_an_aggregate_comes_with_its_leaves(delta: bool) -> None:
    # CLI-23: a missing leaf is skipped
    resources = listener(), route("all"), aggregate("all", "x", "gone", "y"), static("x"), by_eds("y"), endpoint("y")
    async with planned(*resources, delta=delta) as (_, plane, reader):
        config = await reader.next()
        assert config.clusters["all"].leaves == ("x", "y")
        assert config.clusters["y"].endpoints == endpoint("y")
        plane.put(static("gone"))
        assert (await reader.next()).clusters["all"].leaves == ("x", "gone", "y")


@both
@timeless
async def test_without_a_listener_or_its_routes_there_is_an_error(delta: bool) -> None:
    # CLI-23
    async with planned(delta=delta) as (_, plane, reader):
        missing = await reader.next()
        assert missing.error is not None
        assert missing.error.status == "NOT_FOUND"
        plane.put(listener())
        lost = await reader.next()
        assert lost.error is not None
        assert "main" in lost.error.message
        plane.put(route("a"), static("a"))
        assert (await reader.next()).error is None


@both
@timeless
async def test_a_deletion_that_counts_ends_what_was_shown(delta: bool) -> None:
    # CLI-23. A74: stop using the previously returned resources
    resources = listener(), route("a"), static("a")
    async with planned(*resources, delta=delta, fail_on_data_errors=True) as (_, plane, reader):
        await reader.next()
        plane.remove(xp.LISTENER, "shop")
        assert (await reader.next()).error is not None
        assert await reader.is_waiting()
        assert (plane.wanted[xp.ROUTE], plane.wanted[xp.CLUSTER]) == (set(), set())


# -- as other watches


@both
@timeless
async def test_closing_lets_go_of_everything(delta: bool) -> None:
    # CLI-23
    async with planned(listener(), route("a"), by_eds("a"), endpoint("a"), delta=delta) as (client, _, reader):
        await reader.next()
        assert await reader.is_waiting()
        await reader.close()
        with pytest.raises(StopAsyncIteration):
            await reader.next()
        assert client.subscriber.entries() == []


@timeless
async def test_one_that_was_forgotten_lets_go_of_everything() -> None:
    # CLI-23
    async with planned(listener(), route("a"), static("a")) as (client, _, reader):
        await reader.next()
        assert len(client.subscriber.entries()) == 3
        reader.forget()
        await quiet()
        assert client.subscriber.entries() == []


@timeless
async def test_closing_the_client_ends_it() -> None:
    # CLI-24
    async with planned(listener(), route("a"), static("a")) as (client, _, reader):
        await reader.next()
        assert await reader.is_waiting()
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await reader.next()


@both
@timeless
async def test_a_second_watcher_gets_the_cached_configuration_without_a_request(delta: bool) -> None:
    # CLI-18
    async with planned(listener(), route("a"), by_eds("a"), endpoint("a"), delta=delta) as (client, plane, reader):
        await reader.next()
        assert await reader.is_waiting()
        plane.forget()
        async with client.watch_config("shop") as configs:
            assert (await anext(configs)).clusters["a"].endpoints == endpoint("a")


@timeless
async def test_params_go_with_everything() -> None:
    # CLI-23, DYN-50
    async with talk() as (client, peer):
        configs = client.watch_config("shop", params={"env": "prod"})
        coming = asyncio.ensure_future(anext(configs))
        stream = await peer.accept()
        for type_url, message in ((xp.LISTENER, listener()), (xp.ROUTE, route("a")), (xp.CLUSTER, static("a"))):
            request = await asked(stream, type_url)
            [locator] = request.resource_locators
            assert dict(locator.dynamic_parameters) == {"env": "prod"}
            stream.respond(type_url, message)
        assert set((await coming).clusters) == {"a"}


async def asked(stream: PeerStream, type_url: str) -> Any:
    while True:
        request = await stream.request()
        if request.type_url == type_url and not request.response_nonce:
            return request


@timeless
async def test_more_clusters_can_be_named() -> None:
    # CLI-23. A74: clusters that are determined dynamically
    async with talk() as (client, peer):
        configs = client.watch_config("shop", clusters="extra")
        coming = asyncio.ensure_future(anext(configs))
        plane = Plane(await peer.accept())
        plane.put(listener(), route("a"), static("a"), static("extra"))
        assert set((await coming).clusters) == {"a", "extra"}
        plane.forget()


@timeless
async def test_a_name_of_an_unknown_authority_is_an_error_of_its_own() -> None:
    # XTP-12, CLI-23
    lost = Cluster(name="a", type=Cluster.EDS, eds_cluster_config={"service_name": "xdstp://nobody/x/y"})
    async with planned(listener(), route("a"), lost) as (_, _, reader):
        config = await reader.next()
        assert config.clusters["a"].endpoints_error is not None
        assert "nobody" in config.clusters["a"].endpoints_error.message


@timeless
async def test_many_clusters_of_one_response_make_one_whole() -> None:
    # CLI-23
    names = [f"c{number}" for number in range(2000)]
    async with planned(listener(), route(*names), *map(static, names)) as (_, _, reader):
        assert len((await reader.next()).clusters) == len(names)
        assert await reader.is_waiting()


@timeless
async def test_a_watcher_that_lags_does_not_hold_up_what_is_incomplete() -> None:
    # CLI-20: one task, two watches
    async with talk() as (client, peer):
        lagging = client.watch(xp.CLUSTER, "a")
        first = asyncio.ensure_future(anext(lagging))
        plane = Plane(await peer.accept())
        plane.put(static("a"))
        await first
        plane.put(Cluster(name="a", alt_stat_name="2"))  # nobody takes it
        await quiet()
        plane.put(listener(), route("a"))
        assert set((await anext(client.watch_config("shop"))).clusters) == {"a"}
        plane.forget()


@both
async def test_a_real_server_is_followed_too(delta: bool) -> None:
    # CLI-23, over gRPC
    store = xp.Store()
    with store.transaction() as tx:
        for message in (listener(), route("a"), by_eds("a"), endpoint("a")):
            tx.put(message)
    async with (
        xp.Server(store, listen="127.0.0.1:0") as real,
        xp.Client(xp.Bootstrap.for_server(real.address), delta=delta) as client,
        client.watch_config("shop") as configs,
    ):
        assert set((await anext(configs)).clusters) == {"a"}
        with store.transaction() as tx:
            tx.put(route("b"))
            tx.put(static("b"))
        config = await anext(configs)
        assert (config.routes, config.clusters["b"].cluster) == ((route("b"),), static("b"))
