"""Clients that connect or open streams, and say nothing: they are ended, and nobody else is (OPS-3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.http2.rig import data, message
from tests.support import insides, web
from tests.wire.abuse_rig import ask, hear
from tests.wire.h2_rig import raw
from tests.wire.rig import DELTA, SOTW, Stream, cluster, put, until
from tests.wire.test_client_limits import LOADS, acked, begun
from xdsprism import CLUSTER, Limits, Server, Settings, Store
from xdsprism.core.model.facts import Closed, Fact, LimitReached
from xdsprism.http2.codes import DATA
from xdsprism.http2.facts import Fact as ConnectionFact
from xdsprism.http2.facts import Limited
from xdsprism.http2.limits import Limit

FREE = "127.0.0.1:0"
on_both = pytest.mark.usefixtures("engine")


class Site:
    """A server that has little patience."""

    def __init__(self, store: Store, engine: str | None, **limits: Any) -> None:
        put(store, cluster("a", "1"))
        self.store = store
        given: dict[str, Any] = {} if engine is None else {"engine": engine}
        self.server = Server(store, FREE, rest=FREE, settings=Settings(limits=Limits(**limits)), **given)
        self.facts: list[Fact] = []
        self.connection_facts: list[ConnectionFact] = []
        self.server.hub.readers.append(self.facts.extend)
        self.server.connection_readers.append(self.connection_facts.extend)

    def limited(self) -> list[Limit]:
        return [fact.limit for fact in self.connection_facts if isinstance(fact, Limited)]


@asynccontextmanager
async def site(store: Store, engine: str | None = None, **limits: Any) -> AsyncIterator[Site]:
    made = Site(store, engine, **limits)
    async with made.server:
        yield made


@on_both
@pytest.mark.parametrize("method", [DELTA, SOTW, LOADS, "/grpc.health.v1.Health/Watch"])
async def test_a_stream_without_a_first_request_is_ended_and_no_other(store: Store, method: str) -> None:
    # OPS-3
    async with site(store, first_request=0.3) as found, AsyncExitStack() as stack:
        busy = await begun(stack, found.server.address)
        async with Stream(found.server.address, method) as silent:
            code, text = await silent.outcome()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert text == "no request came within 0.3 seconds: send one once the stream is open"
        await until(lambda: found.limited() == [Limit.FIRST_REQUEST])
        put(found.store, cluster("a", "2"))  # it said its first word in time, and none since
        await acked(busy)


@on_both
async def test_a_stream_that_carries_nothing_is_ended_where_that_is_limited(store: Store) -> None:
    # OPS-3
    async with site(store, idle_stream=0.4) as found, AsyncExitStack() as stack:
        idle = await begun(stack, found.server.address)
        code, text = await idle.outcome()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert text == "the stream carried nothing for 0.4 seconds: open another when you need it"
        await until(lambda: any(isinstance(fact, Closed) for fact in found.facts))
        (fact,) = [fact for fact in found.facts if isinstance(fact, LimitReached)]
        assert fact.limit == "idle_stream"


@on_both
async def test_by_default_a_stream_may_be_silent_for_as_long_as_it_likes(store: Store) -> None:
    # OPS-3: Envoy keeps a stream for days on which nothing happens
    async with site(store) as found, AsyncExitStack() as stack:
        await begun(stack, found.server.address)
        (connected,) = found.server.hub.connected()
        assert connected.stream.deadline() is None


@on_both
async def test_a_connection_without_a_stream_is_drained(store: Store) -> None:
    # OPS-3
    async with site(store, idle_connection=0.3) as found, raw(found.server.address) as unused:
        await unused.to_the_end()
        async with AsyncExitStack() as stack:  # one that has a stream stays
            stream = await begun(stack, found.server.address)
            async with raw(found.server.address) as other:
                await other.to_the_end()
            put(found.store, cluster("a", "2"))
            await acked(stream)


async def test_an_unused_connection_is_counted(store: Store) -> None:
    # OPS-3; grpc does not report it
    async with site(store, "h2", idle_connection=0.3) as found, raw(found.server.address) as unused:
        await unused.to_the_end()
        await until(lambda: found.limited() == [Limit.IDLE_CONNECTION])


async def test_connections_in_the_handshake_are_few_for_each_address_and_no_other_connection_counts(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-3; grpc offers no such limit
    async with site(store, "h2", handshakes=4) as found, AsyncExitStack() as stack:
        stream = await begun(stack, found.server.address)
        host, _, port = found.server.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(3)]  # three quarters of four
        count = insides.engine(found.server).connection_limits.count
        await until(lambda: count.handshakes == 3)
        reader, writer = await asyncio.open_connection(host, int(port))
        assert b"too many connections to this server from one address that have just begun" in await reader.read()
        writer.close()
        await until(lambda: found.limited() == [Limit.ADDRESS_HANDSHAKES])
        assert "too many of the" in caplog.text
        answer = await asyncio.to_thread(web.post, found.server.rest_address, "/v3/discovery:clusters", b"{}")
        assert answer.status == 503  # connections of both ports are counted together
        put(found.store, cluster("a", "2"))
        await acked(stream)
        for _, each in silent:
            each.close()
        await until(lambda: count.handshakes == 0)
        await begun(stack, found.server.address)  # there is room again
        assert count.handshakes == 0


async def test_handshakes_of_all_addresses_are_few(store: Store) -> None:
    # OPS-3
    async with site(store, "h2", handshakes=2, address_handshakes=9) as found:
        host, _, port = found.server.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        reader, writer = await asyncio.open_connection(host, int(port))
        assert b"too many connections to this server that have just begun" in await reader.read()
        writer.close()
        await until(lambda: found.limited() == [Limit.HANDSHAKES])
        for _, each in silent:
            each.close()


async def test_the_address_limit_can_be_set(store: Store) -> None:
    # OPS-3
    async with site(store, "h2", address_connections=1) as found, AsyncExitStack() as stack:
        stream = await begun(stack, found.server.address)
        async with raw(found.server.address) as other:
            await other.to_the_end()
        assert found.limited() == [Limit.ADDRESS]
        put(found.store, cluster("a", "2"))
        await acked(stream)


async def test_a_first_request_that_takes_long_to_arrive_is_waited_for(store: Store) -> None:
    # OPS-3, SRV-24: an Envoy comes back with many names over a slow network
    asks = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=["a"]).SerializeToString()
    async with site(store, "h2", first_request=0.2) as found, raw(found.server.address) as slow:
        await slow.say(ask(1), data(1, message(asks)[:9]))
        async with Stream(found.server.address) as silent:
            await silent.outcome()  # its time is over, and it began later
        await slow.say(data(1, message(asks)[9:]))
        assert await hear(slow, DATA)
        assert found.limited() == [Limit.FIRST_REQUEST]
