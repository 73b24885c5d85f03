"""A client and a server with nothing but their bytes between them: what has a time to live outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

import xdsprism as xp
from tests.client.rig import MAKE, Follower, both, clock, endpoint, follow, quiet, status, talk, timeless
from xdsprism.core.model.settings import Settings
from xdsprism.server.calls import CallPort, Peer
from xdsprism.server.hub import Hub
from xdsprism.testing import PeerStream

kinds = pytest.mark.parametrize("type_url", [xp.ENDPOINT, xp.CLUSTER], ids=["eds", "cds"])


class Wire(CallPort):
    """Carries a client's stream to a server, for as long as it is not cut."""

    def __init__(self, store: xp.Store, stream: PeerStream) -> None:
        loop = asyncio.get_running_loop()
        self.responses = 0
        self._stream = stream
        self._due = asyncio.Event()
        self._call = Hub(store, Settings(), loop.time, loop.call_soon).open(
            stream.path, Peer("memory"), delta=stream.is_delta, only_type=None
        )
        self._call.attach(self)
        self._tasks = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._speak())]

    def wake(self) -> None:
        self._due.set()

    async def _listen(self) -> None:
        while True:
            self._call.receive(await self._stream.requests.get())
            self._due.set()

    async def _speak(self) -> None:
        while True:
            self._due.clear()
            for message in self._call.poll():
                self.responses += 1
                self._stream.send(message)
            deadline = self._call.deadline()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._due.wait()
            except TimeoutError:
                continue

    async def cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def served(store: xp.Store, type_url: str, *, delta: bool) -> AsyncIterator[tuple[Wire, Follower]]:
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, type_url, "a")
        wire = Wire(store, await peer.accept())
        try:
            yield wire, watcher
        finally:
            await wire.cut()


@kinds
@both
@timeless
async def test_a_resource_lives_for_as_long_as_its_server_and_no_longer_than_its_time(
    delta: bool, type_url: str
) -> None:
    # TTL-2, TTL-4
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(MAKE[type_url]("a"), ttl=10)
    async with served(store, type_url, delta=delta) as (wire, watcher):
        await quiet(101)
        assert list(map(status, watcher.seen())) == [("resource", "a")]
        assert wire.responses == 21  # every 5 s
        await wire.cut()
        gone = await watcher.next()
        assert status(gone) == ("error", "NOT_FOUND")
        assert clock() == 110  # 10 s after the last heartbeat


@both
@timeless
async def test_a_time_to_live_that_is_taken_away_ends_nothing(delta: bool) -> None:
    # TTL-3
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(endpoint("a"), ttl=timedelta(seconds=10))
    async with served(store, xp.ENDPOINT, delta=delta) as (wire, watcher):
        await quiet(1)
        with store.transaction() as tx:
            tx.put(endpoint("a"))
        await quiet(1)
        assert wire.responses == 2
        await wire.cut()
        await quiet(1000)
        assert list(map(status, watcher.seen())) == [("resource", "a")]
