"""What one client may do at a server, in all its streams, and that others do not notice when it does more."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest, LoadStatsResponse

from tests.support import web
from tests.support.certificates import Authority
from tests.wire.rig import DELTA, OPTIONS, SOTW, Stream, cluster, put, unary, until
from xdsprism import CLUSTER, Limits, Server, Settings, Store, Tls
from xdsprism.admin.read_model import clients
from xdsprism.core.model.facts import Fact, LimitReached
from xdsprism.observe.logs import FactLog
from xdsprism.observe.metrics import Metrics

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

FREE = "127.0.0.1:0"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
LOADS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
LIMITED = re.compile(r'^xdsprism_limited_total\{ended="(\w+)",limit="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)


class Site:
    """A server with few of everything, and what it says of it."""

    def __init__(self, store: Store, tls: Tls | None = None, **limits: int) -> None:
        put(store, cluster("a", "1"))
        self.store = store
        self.server = Server(store, FREE, rest=FREE, tls=tls, settings=Settings(limits=Limits(**limits)))
        self.facts: list[Fact] = []
        self.metrics = Metrics(store)
        self.server.hub.readers += [self.facts.extend, self.metrics, FactLog()]

    def limited(self) -> dict[tuple[str, str], int]:
        """By limit, and what ended of it: how often. As /metrics says it."""
        found = LIMITED.findall(self.metrics.render().decode())
        return {(limit, ended): int(float(number)) for ended, limit, number in found if float(number)}

    def rows(self) -> list[dict[str, Any]]:
        hub = self.server.hub
        return [*clients(hub.connected(), 0.0, 0.0, budget=hub.clients).rows]

    async def is_served(self, stream: Stream, version: str) -> None:
        put(self.store, cluster("a", version))
        await acked(stream)


@asynccontextmanager
async def site(store: Store, tls: Tls | None = None, **limits: int) -> AsyncIterator[Site]:
    made = Site(store, tls, **limits)
    async with made.server:
        yield made


async def begun(stack: AsyncExitStack, address: str, method: str = DELTA) -> Stream:
    stream = await stack.enter_async_context(Stream(address, method))
    await stream.subscribe(CLUSTER, ["a"])
    await acked(stream)
    return stream


async def acked(stream: Stream) -> None:
    """Read a response, and ACK it with all that the client wants."""
    response = await stream.read()
    await stream.ack(response, **({"resource_names": ["a"]} if hasattr(response, "version_info") else {}))


@pytest.mark.parametrize("method", [DELTA, SOTW])
async def test_a_stream_too_many_is_refused_and_no_other_is_touched(store: Store, method: str) -> None:
    # OPS-3
    async with site(store, client_streams=2) as found, AsyncExitStack() as stack:
        first, second = [await begun(stack, found.server.address, method) for _ in range(2)]
        async with Stream(found.server.address, method) as third:
            await third.subscribe(CLUSTER, ["a"])
            code, text = await third.outcome()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert text.startswith("127.0.0.1 has 2 streams at this server, and may have no more: end some")
        assert "--limit client_streams=N" in text
        assert found.server.hub.clients.open == 2
        put(store, cluster("a", "2"))
        for stream in (first, second):
            await acked(stream)
        assert found.limited() == {("client_streams", "stream"): 1}
        assert [row["limited"] for row in found.rows()] == [{"client_streams": 1}] * 2


async def test_there_is_room_again_when_a_stream_ends(store: Store) -> None:
    # OPS-3, OPS-7
    async with site(store, client_streams=1) as found, AsyncExitStack() as stack:
        for _ in range(3):
            async with AsyncExitStack() as one:
                await begun(one, found.server.address)
            await until(lambda: found.server.hub.clients.open == 0)
        await begun(stack, found.server.address)
        assert found.limited() == {}


async def test_a_stream_that_is_refused_and_says_nothing_hears_of_it_too(store: Store) -> None:
    # OPS-3
    async with site(store, client_streams=1) as found, AsyncExitStack() as stack:
        await begun(stack, found.server.address)
        async with Stream(found.server.address) as silent:
            code, _ = await silent.outcome()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_when_the_server_is_full_it_says_so_and_serves_those_that_it_has(store: Store) -> None:
    # OPS-3
    async with site(store, client_streams=9, all_streams=2) as found, AsyncExitStack() as stack:
        first, _ = [await begun(stack, found.server.address) for _ in range(2)]
        async with Stream(found.server.address) as third:
            await third.subscribe(CLUSTER, ["a"])
            code, text = await third.outcome()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "ask another server, or start this one with a higher --limit all_streams=N" in text
        await found.is_served(first, "2")


async def test_load_reports_and_rest_requests_that_wait_are_streams_too(store: Store) -> None:
    # OPS-3
    async with site(store, client_streams=1) as found:
        address = found.server.address
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            call = channel.stream_stream(LOADS, LoadStatsRequest.SerializeToString, LoadStatsResponse.FromString)()
            await call.write(LoadStatsRequest())
            assert await call.read()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary(address, FETCH, b"")
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            status, said, _ = await post(found.server.rest_address)
            assert status == 429
            assert "client_streams" in said["error"]
            call.cancel()
            await until(lambda: found.server.hub.clients.open == 0)
        status, _, _ = await post(found.server.rest_address)
        assert status == 200
        await until(lambda: found.server.hub.clients.open == 0)


async def test_clients_are_told_apart_by_what_they_proved(store: Store, tmp_path: Path) -> None:
    # OPS-3: both come from one address
    authority = Authority(tmp_path)
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.make("server").put(*files)
    greedy, modest = [authority.make(name, (f"URI:spiffe://example.com/{name}",)) for name in ("greedy", "modest")]
    async with (
        site(store, Tls(*files, authority.certificate), client_streams=1) as found,
        AsyncExitStack() as stack,
    ):

        async def stream(pair: Any) -> Stream:
            credentials = grpc.ssl_channel_credentials(authority.pem, *pair.pem)
            channel = grpc.aio.secure_channel(found.server.address, credentials, options=OPTIONS)
            await stack.enter_async_context(channel)
            made = await stack.enter_async_context(Stream("", channel=channel))
            await made.subscribe(CLUSTER, ["a"])
            return made

        await (await stream(greedy)).read()
        code, text = await (await stream(greedy)).outcome()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert text.startswith("spiffe://example.com/greedy has 1 streams")
        await (await stream(modest)).read()
        assert [row["limited"] for row in found.rows()] == [{"client_streams": 1}, {}]


async def test_a_client_that_fetches_too_often_is_told_when_to_come_again(store: Store) -> None:
    # OPS-4
    async with site(store, fetches=1) as found, AsyncExitStack() as stack:
        stream = await begun(stack, found.server.address)
        for _ in range(5):
            status, _, _ = await post(found.server.rest_address)
            assert status == 200
        status, said, headers = await post(found.server.rest_address)
        assert status == 429
        assert headers["retry-after"] == "1"
        assert "--limit fetches=N" in said["error"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:  # the same client, by gRPC
            await unary(found.server.address, FETCH, b"")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await found.is_served(stream, "2")
        assert found.limited() == {("fetches", "request"): 2}


async def test_the_log_has_one_line_about_a_client_and_its_limit(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-3
    async with site(store, client_streams=1) as found, AsyncExitStack() as stack:
        await begun(stack, found.server.address)
        for _ in range(3):
            async with Stream(found.server.address) as refused:
                await refused.subscribe(CLUSTER, ["a"])
                await refused.outcome()
        await until(lambda: sum(isinstance(fact, LimitReached) for fact in found.facts) == 3)
        lines = [line for line in caplog.messages if "exceeds the limit" in line]
        assert len(lines) == 1
        assert lines[0].startswith("127.0.0.1 exceeds the limit `client_streams`, and another stream of it was refused")
        assert clients([], 0.0, 0.0, budget=found.server.hub.clients).head["limited"] == {
            "127.0.0.1": {"client_streams": 3}
        }


async def post(address: str) -> tuple[int, Any, Any]:
    """Ask for all clusters over REST: the status, what it says, and the headers."""
    answer = await asyncio.to_thread(web.post, address, "/v3/discovery:clusters", b"{}")
    return answer.status, json.loads(answer.body), answer.headers
