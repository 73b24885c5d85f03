"""Load reports over streams in memory, and over gRPC."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.load_stats.v2 import lrs_pb2 as v2
from envoy.service.load_stats.v2 import lrs_pb2_grpc as v2_grpc
from envoy.service.load_stats.v3 import lrs_pb2 as v3
from envoy.service.load_stats.v3 import lrs_pb2_grpc as v3_grpc

from xdsprism.client.bootstrap import ChannelCreds, ServerConfig
from xdsprism.client.lrs import LoadReporter
from xdsprism.client.transport import Ended, GrpcTransport
from xdsprism.core.model.backoff import Backoff

V3 = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
V2 = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats"

NODE = Node(id="me", client_features=["envoy.lrs.supports_send_all_clusters"])
PATIENCE = 30


def answer(*clusters: str, seconds: float = 0.1) -> bytes:
    message = v3.LoadStatsResponse(clusters=clusters, send_all_clusters=not clusters)
    message.load_reporting_interval.FromNanoseconds(int(seconds * 1e9))
    return bytes(message.SerializeToString())


class Stream:
    """A stream whose other end is the test."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.cancelled = asyncio.Event()
        self.refuses = False  # to be written to
        self._sent: asyncio.Queue[v3.LoadStatsRequest] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes | Ended] = asyncio.Queue()

    async def send(self, message: bytes) -> None:
        if self.refuses:
            raise Ended("UNAVAILABLE", "gone")
        self._sent.put_nowait(v3.LoadStatsRequest.FromString(message))

    async def receive(self) -> bytes:
        message = await self._answers.get()
        if isinstance(message, Ended):
            raise message
        return message

    def cancel(self) -> None:
        self.cancelled.set()

    def answer(self, message: bytes | Ended) -> None:
        self._answers.put_nowait(message)

    async def request(self) -> Any:
        return await self._sent.get()

    async def report_of(self, accept: Callable[[Counter[str]], bool]) -> list[Any]:
        """Requests until what they add up to, issued by cluster, is accepted."""
        seen, total = [], Counter[str]()
        while not accept(total):
            seen.append(await self.request())
            total += issued(seen[-1])
        return seen


def issued(request: Any) -> Counter[str]:
    counts = Counter[str]()
    for stats in request.cluster_stats:
        counts[stats.cluster_name] += sum(place.total_issued_requests for place in stats.upstream_locality_stats)
    return counts


class Peer:
    """Hands out streams; notes how long the reporter would have waited between them."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.failures: list[Exception] = []
        self.opened = 0

    async def open(self, path: str) -> Stream:
        self.opened += 1
        if self.failures:
            raise self.failures.pop(0)
        stream = Stream(path)
        self.streams.put_nowait(stream)
        return stream


class Waits(Backoff):
    """Waits for no time at all, and remembers for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def next(self, random: float) -> float:
        self.waits.append(super().next(random))
        return 0.0


@asynccontextmanager
async def reporting(peer: Peer, *, version_3: bool = True) -> AsyncIterator[tuple[LoadReporter, Waits]]:
    waits = Waits()
    reporter = LoadReporter(
        peer.open,
        NODE.SerializeToString(),
        v3=version_3,
        clock=asyncio.get_running_loop().time,
        chance=lambda: 0.5,
        backoff=waits,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield reporter, waits
    finally:
        await reporter.close()


# LRS-2
async def test_no_load_stream_is_opened_before_a_load_is_recorded() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, _):
        for _ in range(5):
            await asyncio.sleep(0)
        assert (peer.opened, len(asyncio.all_tasks())) == (0, 1)
        reporter.loads()
        await peer.streams.get()
        assert reporter.loads() is reporter.loads()
        assert peer.opened == 1


# VER-10, LRS-2
@pytest.mark.parametrize(("version_3", "path"), [(True, V3), (False, V2)])
async def test_the_method_is_that_of_the_version_chosen_for_the_server(version_3: bool, path: str) -> None:
    peer = Peer()
    async with reporting(peer, version_3=version_3) as (reporter, _):
        reporter.loads()
        assert (await peer.streams.get()).path == path


# LRS-1, LRS-2
async def test_the_node_goes_out_first_and_reports_follow_at_the_interval() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, _):
        cluster = reporter.loads().cluster("c")
        cluster.started()
        stream = await peer.streams.get()
        first = await stream.request()
        assert first.node == NODE
        assert not first.cluster_stats
        stream.answer(answer(seconds=0.1))
        began = asyncio.get_running_loop().time()
        report = await stream.request()
        assert asyncio.get_running_loop().time() - began > 0.09
        assert not report.HasField("node")
        assert issued(report) == {"c": 1}
        cluster.started()
        assert issued(await stream.request()) == {"c": 1}


# LRS-2
async def test_a_new_answer_of_the_server_counts_from_then_on() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, _):
        stream_loads = reporter.loads()
        stream_loads.cluster("a").started()
        stream_loads.cluster("b").started()
        stream = await peer.streams.get()
        await stream.request()
        stream.answer(answer(seconds=3600))
        stream.answer(answer("a"))
        assert issued(await stream.request()) == {"a": 1}
        stream.answer(answer("b"))
        reports = await stream.report_of(lambda total: total["b"] == 1)
        assert sum(map(issued, reports), Counter()) == {"b": 1}


# LRS-2
async def test_a_lost_stream_is_opened_again_and_loses_nothing_that_was_not_sent() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, _):
        cluster = reporter.loads().cluster("c")
        stream = await peer.streams.get()
        stream.answer(answer())
        cluster.started()
        await stream.report_of(lambda total: total["c"] == 1)
        stream.refuses = True
        cluster.started()
        again = await peer.streams.get()
        assert stream.cancelled.is_set()
        assert (await again.request()).node == NODE
        again.answer(answer())
        reports = await again.report_of(lambda total: total["c"] >= 1)
        assert issued(reports[-1]) == {"c": 1}  # the one that was refused; not the one that was sent before
        assert reporter.problem is None


# PRX-13
async def test_attempts_are_further_and_further_apart_until_the_server_answers() -> None:
    peer = Peer()
    peer.failures = [Ended("UNAVAILABLE", "nobody there") for _ in range(3)]
    async with reporting(peer) as (reporter, backoff):
        reporter.loads()
        stream = await peer.streams.get()
        assert backoff.waits == pytest.approx([1.0, 1.6, 2.56])
        assert str(reporter.problem) == "UNAVAILABLE: nobody there"
        await stream.request()
        stream.answer(Ended("UNIMPLEMENTED", "no LRS here"))  # open, but not answered: not a success
        stream = await peer.streams.get()
        assert backoff.waits[3:] == pytest.approx([4.096])
        assert str(reporter.problem) == "UNIMPLEMENTED: no LRS here"
        stream.answer(answer())
        stream.answer(Ended("OK", "done"))
        await peer.streams.get()
        assert backoff.waits[4:] == pytest.approx([1.0])


async def test_garbage_from_the_server_ends_the_stream_and_is_no_answer() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, backoff):
        reporter.loads()
        for _ in range(2):
            stream = await peer.streams.get()
            stream.answer(b"\xff\xff")
        await peer.streams.get()
        assert stream.cancelled.is_set()
        assert "not a load stats response" in str(reporter.problem)
        assert backoff.waits == pytest.approx([1.0, 1.6])


async def test_closing_leaves_no_stream_and_no_task() -> None:
    peer = Peer()
    async with reporting(peer) as (reporter, _):
        reporter.loads()
        stream = await peer.streams.get()
        await stream.request()
        stream.answer(answer())
        await stream.request()
        await reporter.close()
        assert stream.cancelled.is_set()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await reporter.close()


class Service:
    """An LRS server of either version, as its generated code makes it."""

    def __init__(self, version: Any) -> None:
        self._version = version
        self.requests: asyncio.Queue[Any] = asyncio.Queue()

    async def StreamLoadStats(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        first = True
        async for request in requests:
            self.requests.put_nowait(request)
            if first:
                reply = self._version.LoadStatsResponse(send_all_clusters=True)
                reply.load_reporting_interval.FromMilliseconds(100)
                yield reply
            first = False


# LRS-2, VER-10: over the wire
@pytest.mark.parametrize(("messages", "stubs"), [(v3, v3_grpc), (v2, v2_grpc)])
async def test_reports_arrive_at_a_grpc_server_of_either_version(messages: Any, stubs: Any) -> None:
    service = Service(messages)
    server = grpc.aio.server()
    stubs.add_LoadReportingServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    clock = asyncio.get_running_loop().time
    transport = GrpcTransport(ServerConfig(f"127.0.0.1:{port}", ChannelCreds("insecure")), clock)
    reporter = LoadReporter(transport.open, NODE.SerializeToString(), v3=messages is v3, clock=clock)
    try:
        async with asyncio.timeout(PATIENCE):
            cluster = reporter.loads().cluster("c", "service")
            first = await service.requests.get()
            assert (first.node.id, len(first.cluster_stats)) == ("me", 0)
            cluster.started()
            cluster.finished(ok=False)
            while not (report := await service.requests.get()).cluster_stats:
                pass
            (stats,) = report.cluster_stats
            assert stats.upstream_locality_stats[0].total_error_requests == 1
            assert stats.load_report_interval.ToMilliseconds() > 0
    finally:
        await reporter.close()
        await transport.close()
        await server.stop(None)
