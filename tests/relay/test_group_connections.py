"""Groups of nodes that come and leave, over real connections: what a group had open is closed at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import xdsprism as xp
from tests.client.doors import boot
from tests.client.rig import cluster, follow, within
from tests.wire.rig import PATIENCE, put, until
from xdsprism.http2.facts import Connected, Disconnected, Fact
from xdsprism.relay.relay import Relay

GROUPS = 100


async def test_the_connections_of_groups_that_left_are_closed() -> None:
    # PRX-20, PRX-21, PRX-35
    store = xp.Store()
    put(store, cluster("a", "1"))
    opened = closed = 0

    def count(facts: Sequence[Fact]) -> None:
        nonlocal opened, closed
        opened += sum(isinstance(fact, Connected) for fact in facts)
        closed += sum(isinstance(fact, Disconnected) for fact in facts)

    server = xp.Server(store, listen="127.0.0.1:0")
    server.connection_readers.append(count)
    async with server, Relay(boot(server.address), "127.0.0.1:0", group_by=["env"], linger=0.0) as relay:
        for _ in range(0, GROUPS, 10):
            await asyncio.gather(*[_come_and_leave(relay, f"{opened}-{each}") for each in range(10)])
            await until(lambda: not relay.feed.clients, 20.0)
        await until(lambda: opened >= GROUPS and closed == opened)
        assert not server.hub.connected()


async def _come_and_leave(relay: Relay, env: str) -> None:
    source = boot(relay.address, node={"id": "client", "metadata": {"env": env}})
    async with xp.Client(source, delta=True) as client:
        watched = follow(client, xp.CLUSTER, "a")
        assert (await within(PATIENCE, watched.next())).resource == cluster("a", "1")
        await watched.close()
