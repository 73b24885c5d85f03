"""A control plane as most are built, behind a relay with groups: it has a snapshot for each kind of node.

It says what changed and no more. A name that does not exist is not answered; what a stream has by a wildcard is not
sent again to a name; and in SotW `*` is a name like any other, so that only an empty list is a wildcard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

import xdsprism as xp
from tests.client.rig import bootstrap, cluster, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Station, marks, station
from xdsprism.testing import PeerStream, ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod"}, {"env": "test"}


class Plane:
    """Clusters by env and name, each with a mark."""

    def __init__(self) -> None:
        self.peer = ScriptedPeer()
        self.snapshots: dict[str, dict[str, str]] = {"prod": {}, "test": {}}
        self.version = 0
        self.talks: list[Talk] = []

    def publish(self, env: str, **marks: str) -> None:
        self.version += 1
        self.snapshots[env] = marks
        for talk in self.talks:
            talk.update()

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                stream = await self.peer.accept()
                self.talks.append(Talk(self, stream))
                tasks.create_task(self.talks[-1].run())


class Talk:
    """One stream."""

    def __init__(self, plane: Plane, stream: PeerStream) -> None:
        self.env = ""
        self.names: dict[str, None] = {}
        self.asked: set[str] = set()  # names that ever were
        self.is_wild = False
        self._plane = plane
        self._stream = stream
        self._returned: dict[str, str] = {}
        self._version = 0
        self._nonce = 0

    async def run(self) -> None:
        request = await self._stream.request()
        self.env = MessageToDict(request.node.metadata)["env"]
        self.is_wild = not (request.resource_names_subscribe if self._stream.is_delta else request.resource_names)
        self._returned = dict(request.initial_resource_versions) if self._stream.is_delta else {}
        while True:
            assert not request.HasField("error_detail"), request.error_detail
            if self._stream.is_delta:
                self._read_delta(request)
            else:
                self._read_sotw(request)
            request = await self._stream.request()

    @property
    def _snapshot(self) -> dict[str, str]:
        return self._plane.snapshots[self.env]

    def _read_delta(self, request: Any) -> None:
        self.asked.update(request.resource_names_subscribe)
        for name in request.resource_names_subscribe:
            self.is_wild |= name == "*"
            self.names[name] = None
        for name in request.resource_names_unsubscribe:
            self.is_wild &= name != "*"
            self.names.pop(name, None)
            self._returned.pop(name, None)
        self._send_delta(anyway=self.is_wild and not request.response_nonce)

    def _send_delta(self, *, anyway: bool = False) -> None:
        wanted = {*self._snapshot, *self._returned} if self.is_wild else {*self.names}
        news = [name for name in self._snapshot if name in wanted and self._returned.get(name) != self._snapshot[name]]
        gone = tuple(name for name in wanted if name in self._returned and name not in self._snapshot)
        self._returned = {name: mark for name, mark in self._snapshot.items() if name in wanted}
        if news or gone or anyway:
            self._respond(news, gone)

    def _read_sotw(self, request: Any) -> None:
        if request.response_nonce not in ("", str(self._nonce)):
            return
        fresh = [name for name in request.resource_names if name not in self.names]
        self.names = dict.fromkeys(request.resource_names)
        self.asked.update(self.names)
        if fresh or not self._nonce:
            self._send_sotw()

    def _send_sotw(self) -> None:
        self._version = self._plane.version
        self._respond([name for name in self._snapshot if not self.names or name in self.names], ())

    def _respond(self, names: list[str], gone: tuple[str, ...]) -> None:
        self._nonce += 1
        made = [cluster(name, self._snapshot[name]) for name in names]
        self._stream.respond(xp.CLUSTER, *made, version=str(self._plane.version), nonce=str(self._nonce), removed=gone)

    def update(self) -> None:
        if self._stream.cancelled.is_set() or not self.env:
            return
        if self._stream.is_delta:
            self._send_delta()
        elif self._version != self._plane.version:
            self._send_sotw()


@asynccontextmanager
async def behind(plane: Plane, *, delta: bool, **options: Any) -> AsyncIterator[Station]:
    serving = asyncio.ensure_future(plane.serve())
    try:
        async with station(plane.peer.connect, bootstrap(), group_by=["env"], delta=delta, **options) as relay:
            yield relay
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@modes
@timeless
async def test_the_answer_to_a_wildcard_serves_subscriptions_by_name(up: bool, down: bool) -> None:
    # PRX-20, PRX-5: also when nobody wants the wildcard any more, and it lingers
    plane = Plane()
    plane.publish("prod", shop="1", cart="1")
    plane.publish("test", shop="t")
    async with (
        behind(plane, delta=up) as relay,
        relay.client(delta=down, metadata=PROD) as plain,
        relay.client(delta=down) as located,
    ):
        prod = [follow(plain, xp.CLUSTER, "shop"), follow(located, xp.CLUSTER, "shop", params={**PROD, "x": "1"})]
        test = follow(located, xp.CLUSTER, "shop", params=TEST)
        assert [await marks(each) for each in (*prod, test)] == [[("shop", "1")]] * 2 + [[("shop", "t")]]
        everything = follow(plain, xp.CLUSTER)
        assert sorted(await marks(everything)) == [("cart", "1"), ("shop", "1")]
        await everything.close()
        plane.publish("prod", shop="2", cart="1")
        assert [await marks(each) for each in (*prod, test)] == [[("shop", "2")]] * 2 + [[]]
        plane.publish("prod", cart="1")
        assert [await marks(each) for each in (*prod, test)] == [[("shop", "NOT_FOUND")]] * 2 + [[]]
        plane.publish("prod", shop="3", cart="1")
        assert [await marks(each) for each in (*prod, test)] == [[("shop", "3")]] * 2 + [[]]


@modes
@timeless
async def test_when_a_wildcard_ends_subscriptions_by_name_keep_its_resources(up: bool, down: bool) -> None:
    # PRX-5, PRX-9, PRX-20
    plane = Plane()
    plane.publish("prod", shop="1", cart="1")
    async with behind(plane, delta=up, linger=5.0) as relay, relay.client(delta=down, metadata=PROD) as client:
        everything = follow(client, xp.CLUSTER)
        assert len(await marks(everything)) == 2
        async with relay.client(delta=down, metadata=PROD) as other:
            shop = follow(other, xp.CLUSTER, "shop")
            assert await marks(shop) == [("shop", "1")]
            await everything.close()
            await quiet(3600.0)
            assert await marks(shop) == []  # nor is it said that anything is wrong
            (answer,) = relay.relay.relaying.cached_answers(xp.CLUSTER, "shop")
            assert not answer.finding.stale
            plane.publish("prod", shop="2", cart="1")
            assert await marks(shop) == [("shop", "2")]
            plane.publish("prod", cart="1")
            assert await marks(shop) == [("shop", "NOT_FOUND")]


@modes
@timeless
async def test_a_wildcard_has_all_resources_whatever_names_were_requested_before(up: bool, down: bool) -> None:
    # PRX-20
    plane = Plane()
    plane.publish("prod", shop="1", cart="1")
    async with (
        behind(plane, delta=up) as relay,
        relay.client(delta=down, metadata=PROD) as one,
        relay.client(delta=down, metadata=PROD) as other,
    ):
        named = follow(one, xp.CLUSTER, "shop", "none")
        await quiet(5.0)
        assert [mark for mark in await marks(named) if mark[0] == "shop"] == [("shop", "1")]
        everything = follow(other, xp.CLUSTER)
        assert sorted(await marks(everything)) == [("cart", "1"), ("shop", "1")]
        plane.publish("prod", shop="1", cart="2")
        assert await marks(everything) == [("cart", "2")]
        late = follow(one, xp.CLUSTER, "cart", "more")
        await quiet(5.0)
        assert ("cart", "2") in await marks(late)
        assert await marks(everything) == []
        plane.publish("prod", shop="1", cart="2", more="1")
        assert [await marks(late), await marks(everything)] == [[("more", "1")], [("more", "1")]]


@modes
@timeless
async def test_wildcards_that_come_and_go_are_never_empty_by_mistake(up: bool, down: bool) -> None:
    # PRX-9, PRX-20
    plane = Plane()
    plane.publish("prod", shop="1")
    async with behind(plane, delta=up, linger=5.0) as relay, relay.client(delta=down, metadata=PROD) as client:
        follow(client, xp.CLUSTER, "shop")
        for _ in range(3):
            async with relay.client(delta=down, metadata=PROD) as guest:
                assert await marks(follow(guest, xp.CLUSTER)) == [("shop", "1")]
            await quiet(60.0)
        wild = [talk for talk in plane.talks if talk.is_wild]
        assert len(wild) == (0 if up else 3)  # in delta it is let go of on the same stream
        assert [talk.asked for talk in plane.talks if "*" in talk.asked] == []


@modes
@timeless
async def test_a_resource_that_is_forgotten_is_asked_again_and_never_looks_deleted(up: bool, down: bool) -> None:
    # PRX-28
    plane = Plane()
    plane.publish("prod", shop="1", cart="1")
    async with behind(plane, delta=up) as relay, relay.client(delta=down, metadata=PROD) as client:
        everything = follow(client, xp.CLUSTER)
        assert len(await marks(everything)) == 2
        assert relay.relay.forget(xp.CLUSTER, "shop")
        assert await marks(everything) == []
        plane.publish("prod", shop="2", cart="1")
        assert await marks(everything) == [("shop", "2")]


@modes
@timeless
async def test_an_unanswered_name_does_not_delay_the_others(up: bool, down: bool) -> None:
    # PRX-11, SOT-4: a full state can't wait for ever
    plane = Plane()
    plane.publish("prod", shop="1")
    async with behind(plane, delta=up) as relay, relay.client(delta=down, metadata=PROD) as client:
        watched = follow(client, xp.CLUSTER, "shop", "none")
        await quiet(5.0)
        assert await marks(watched) == [("shop", "1")]
        relay.wire.cut()  # it comes back, and says that it has something
        plane.publish("prod", shop="2")
        await quiet(60.0)
        assert ("shop", "2") in await marks(watched)
        plane.publish("prod", shop="2", none="1")
        assert await marks(watched) == [("none", "1")]
