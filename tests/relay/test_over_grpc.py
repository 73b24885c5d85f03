"""The same over real connections: a server, a relay and clients, each on a port of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack

import xdsprism as xp
from tests.client.doors import boot
from tests.client.rig import both, cluster, follow, status, within
from tests.wire.rig import PATIENCE, heap, put, sessions, tag_of, until
from tests.wire.rig import Stream as Wire
from xdsprism.relay.relay import Relay

PROD = {"env": "prod"}


@both
async def test_updates_pass_through_and_an_outage_does_not(delta: bool) -> None:
    # PRX-1, PRX-10, PRX-12, PRX-15
    store = xp.Store()
    put(store, cluster("a", "1"))
    first = xp.Server(store, listen="127.0.0.1:0")
    await first.start()
    async with (
        Relay(boot(first.address), "127.0.0.1:0", delta=delta) as relay,
        xp.Client(boot(relay.address), delta=delta) as one,
        xp.Client(boot(relay.address), delta=not delta) as other,
    ):
        watched = [follow(client, xp.CLUSTER, "a", params=PROD) for client in (one, other)]
        for each in watched:
            assert (await within(PATIENCE, each.next())).resource == cluster("a", "1")
        # The relay asked in two forms, and drops the one that the server's answer makes superfluous.
        await until(lambda: [session.count for session in sessions(first)] == [1])
        await first.stop()
        put(store, cluster("a", "2"))
        async with xp.Server(store, listen=first.address):
            for each in watched:
                update = await within(PATIENCE, each.next())
                assert (status(update), update.resource) == (("resource", "a"), cluster("a", "2"))
        assert len(relay.server.hub.connected()) == 2
        for each in watched:
            assert each.seen() == []
            await each.close()


async def test_a_connection_on_which_nothing_is_read_delays_no_other() -> None:
    # PRX-23
    store = xp.Store()
    put(store, *heap())
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(xp.Server(store, listen="127.0.0.1:0"))
        relay = await stack.enter_async_context(Relay(boot(server.address), "127.0.0.1:0"))
        slow = await stack.enter_async_context(Wire(relay.address))
        quick = await stack.enter_async_context(xp.Client(boot(relay.address), delta=True))
        names = [each.name for each in heap()]
        await slow.subscribe(xp.CLUSTER, names)
        watched = follow(quick, xp.CLUSTER, "small")
        await until(lambda: len(relay.server.hub.connected()) == 2)
        known = relay.server.store.table(xp.CLUSTER)
        await until(lambda: all(known.get(name) is not None for name in names))  # which is more than it can be sent
        for number in range(5):
            put(store, cluster("small", str(number)), cluster("heap-0", str(number)))
            while (update := await within(PATIENCE, watched.next())).resource != cluster("small", str(number)):
                assert status(update)[0] == "error"  # it was not there at first
        seen = 0
        newest = ""
        while newest != "4":
            response = await slow.read()
            seen += len(response.resources)
            for each in response.resources:
                if each.name == "heap-0":
                    newest = tag_of(each.resource.value)
            await slow.ack(response)
        assert seen <= len(names) + 4  # not every one of them
        await watched.close()
