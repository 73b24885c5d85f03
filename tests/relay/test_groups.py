"""A server that knows nothing of dynamic parameters, behind a relay that asks it once for each group of nodes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from google.protobuf.json_format import MessageToDict

import xdsprism as xp
from tests.client.rig import bootstrap, both, cluster, follow, quiet, timeless
from tests.relay.rig import marks, station
from xdsprism.testing import PeerStream, ScriptedPeer

PROD, TEST = {"env": "prod"}, {"env": "test"}
SOURCE = bootstrap(node={"id": "relay-1", "cluster": "relays", "metadata": {"site": "x"}})


class Legacy:
    """A control plane that tailors by node metadata, and has never heard of locators."""

    def __init__(self) -> None:
        self.peer = ScriptedPeer()
        self.nodes: list[Any] = []
        self.asked: list[tuple[str, str]] = []  # env of the node, name
        self.located = False
        self.streams: list[tuple[PeerStream, str, dict[str, None]]] = []
        self._round = 0

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._talk(await self.peer.accept()))

    async def _talk(self, stream: PeerStream) -> None:
        request = await stream.request()
        self.nodes.append(request.node)
        env = MessageToDict(request.node.metadata).get("env", "none")
        names: dict[str, None] = {}
        self.streams.append((stream, env, names))
        while True:
            delta = stream.is_delta
            listed = request.resource_names_subscribe if delta else request.resource_names
            listed = listed or ([] if names else ["*"])  # WLD-1: a first request without names is for all of them
            self.located |= bool(request.resource_locators_subscribe if delta else request.resource_locators)
            fresh = [name for name in listed if name not in names]
            names.update(dict.fromkeys(listed))
            self.asked += [(env, name) for name in fresh]
            if fresh:
                self._send(stream, env, fresh if delta else list(names))
            request = await stream.request()

    def push(self, env: str) -> None:
        for stream, of, names in self.streams:
            if of == env:
                self._send(stream, env, list(names))

    def _send(self, stream: PeerStream, env: str, names: list[str]) -> None:
        self._round += 1
        names = [f"{env}-1", f"{env}-2", "both"] if names == ["*"] else names
        made = [cluster(name, f"{env}-{self._round}") for name in names if name != "none"]
        gone = tuple(name for name in names if name == "none")
        stream.respond(xp.CLUSTER, *made, version=str(self._round), nonce=str(self._round), removed=gone)


class _Served:
    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._legacy.serve())

    async def __aexit__(self, *_exc: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def _mark(watched: Any) -> str:
    ((_, mark),) = await marks(watched)
    return mark.split("-")[0]


@both
@timeless
async def test_each_group_has_a_stream_of_its_own_and_gets_what_is_sent_on_it(delta: bool) -> None:
    # PRX-20
    legacy = Legacy()
    async with (
        _Served(legacy),
        station(legacy.peer.connect, SOURCE, group_by=["env"], delta=delta) as relay,
        relay.client(metadata=PROD) as plain,
        relay.client() as located,
    ):
        prod = follow(plain, xp.CLUSTER, "a")
        test = follow(located, xp.CLUSTER, "a", params={**TEST, "x": "1"})
        same = follow(located, xp.CLUSTER, "a", params={**TEST, "x": "2"})
        assert [await _mark(each) for each in (prod, test, same)] == ["prod", "test", "test"]
        assert sorted(legacy.asked) == [("prod", "a"), ("test", "a")]
        assert not legacy.located
        legacy.push("prod")
        assert await _mark(prod) == "prod"
        assert [await marks(test), await marks(same)] == [[], []]


@both
@timeless
async def test_a_variant_of_a_group_is_constrained_to_the_values_of_the_group(delta: bool) -> None:
    # PRX-20
    legacy = Legacy()
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, group_by=["env", "version"], delta=delta) as relay:
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a", params={**PROD, "x": "1"})
        (response,) = await client.rest()
        constraint = response.resources[0].resource_name.dynamic_parameter_constraints
        assert str(xp.Expression.from_proto(constraint)) == "env=prod and not version exists"
        client.close()


@timeless
async def test_an_absence_holds_for_its_group_only() -> None:
    # PRX-20
    legacy = Legacy()
    async with (
        _Served(legacy),
        station(legacy.peer.connect, SOURCE, group_by=["env"]) as relay,
        relay.client() as client,
    ):
        assert await marks(follow(client, xp.CLUSTER, "none", params=PROD)) == [("none", "NOT_FOUND")]
        assert await marks(follow(client, xp.CLUSTER, "none", params={**PROD, "x": "1"})) == [("none", "NOT_FOUND")]
        assert legacy.asked == [("prod", "none")]
        assert await marks(follow(client, xp.CLUSTER, "none", params=TEST)) == [("none", "NOT_FOUND")]
        assert legacy.asked == [("prod", "none"), ("test", "none")]


@timeless
async def test_without_keys_there_is_one_group_and_everybody_gets_the_same() -> None:
    # PRX-20
    legacy = Legacy()
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, group_by=[]) as relay, relay.client() as client:
        watched = [follow(client, xp.CLUSTER, "a", params=params) for params in (PROD, TEST)]
        assert [await _mark(each) for each in watched] == ["none", "none"]
        assert legacy.asked == [("none", "a")]


@both
@timeless
async def test_wildcards_of_groups_do_not_mix(delta: bool) -> None:
    # PRX-20
    legacy = Legacy()
    async with (
        _Served(legacy),
        station(legacy.peer.connect, SOURCE, group_by=["env"], delta=delta) as relay,
        relay.client(metadata=PROD) as one,
        relay.client(metadata=TEST) as other,
    ):
        for client, env in ((one, "prod"), (other, "test")):
            seen = await marks(follow(client, xp.CLUSTER))
            assert sorted(name for name, _ in seen) == ["both", f"{env}-1", f"{env}-2"]
            assert {mark.split("-")[0] for _, mark in seen} == {env}
        assert legacy.asked == [("prod", "*"), ("test", "*")]


@both
@timeless
async def test_the_node_is_the_relays_own_with_what_makes_the_group(delta: bool) -> None:
    # PRX-21
    legacy = Legacy()
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, group_by=["env"], delta=delta) as relay:
        async with relay.client(metadata={**PROD, "secret": "s"}) as client:
            follow(client, xp.CLUSTER, "a")
            await quiet()
        (node,) = legacy.nodes
        assert (node.id, node.cluster) == ("relay-1", "relays")
        assert MessageToDict(node.metadata) == {"site": "x", "env": "prod"}


@both
@timeless
async def test_without_groups_the_node_is_the_relays_own(delta: bool) -> None:
    # PRX-21
    peer = ScriptedPeer()
    async with station(peer.connect, SOURCE, delta=delta) as relay, relay.client(metadata=PROD) as client:
        follow(client, xp.CLUSTER, "a")
        await quiet()
        request = await (await peer.accept()).request()
        assert (request.node.id, MessageToDict(request.node.metadata)) == ("relay-1", {"site": "x"})


@timeless
async def test_a_group_in_which_nobody_wants_anything_has_no_stream() -> None:
    # PRX-20, PRX-9
    legacy = Legacy()
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, group_by=["env"], linger=30.0) as relay:
        for _ in range(2):
            async with relay.client() as client:
                for params in (PROD, TEST):
                    assert await _mark(follow(client, xp.CLUSTER, "a", params=params)) == params["env"]
                assert len(relay.relay.feed.clients) == 2
            await quiet(60.0)
            assert not relay.relay.feed.clients
            assert all(stream.cancelled.is_set() for stream, _, _ in legacy.streams)
        assert len(legacy.streams) == 4
