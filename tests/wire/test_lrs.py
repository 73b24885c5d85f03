"""Load reports on the server's port: requested, received, shown."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.load_stats.v2 import lrs_pb2 as v2
from envoy.service.load_stats.v3 import lrs_pb2 as v3
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest

from tests.wire.rig import Stream, cluster, put, until
from xdsprism import Client, Server, Settings, Store
from xdsprism.core.loads.loads import Locality
from xdsprism.core.model.events import SEND_ALL_CLUSTERS
from xdsprism.core.model.facts import Fact, LoadsHeard, LoadsRefused
from xdsprism.server.calls import Peer
from xdsprism.server.lrs import LoadCall

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

METHOD = "/envoy.service.load_stats.{}.LoadReportingService/StreamLoadStats"
FREE = "127.0.0.1:0"
VERSIONS = pytest.mark.parametrize(("version", "kind"), [("v2", v2), ("v3", v3)], ids=["v2", "v3"])
NODE = {"id": "me", "client_features": [SEND_ALL_CLUSTERS]}


class LoadStream(Stream):
    """A stream of load reports by hand."""

    def __init__(self, server: Server, version: str = "v3", kind: Any = v3) -> None:
        super().__init__(server.address, METHOD.format(version), delta=False)
        self._kind = kind

    async def send(self, **fields: Any) -> None:
        await self.send_bytes(self._kind.LoadStatsRequest(**fields).SerializeToString())

    def parse(self, message: bytes) -> Any:
        return self._kind.LoadStatsResponse.FromString(message)


def stats(name: str, issued: int = 20, seconds: float = 10.0) -> dict[str, Any]:
    whole, part = divmod(seconds, 1)
    place = {"locality": {"region": "eu", "zone": "eu-1"}, "total_issued_requests": issued}
    return {
        "cluster_name": name,
        "upstream_locality_stats": [place],
        "load_report_interval": {"seconds": int(whole), "nanos": round(part * 1e9)},
    }


def rates(server: Server) -> dict[tuple[str, str], list[float]]:
    """By client and cluster, what was issued at each place."""
    clients = server.hub.reports.clients(server.hub.clock())
    return {
        (client.node, each.cluster): [place.issued for place in each.localities]
        for client in clients
        for each in client.clusters
    }


def heard(server: Server) -> list[Fact]:
    facts: list[Fact] = []
    server.hub.readers.append(facts.extend)
    return facts


@VERSIONS
async def test_the_first_request_is_answered_and_reports_are_kept_as_rates(
    server: Server, version: str, kind: Any
) -> None:
    # LRS-1, VER-10
    async with LoadStream(server, version, kind) as stream:
        await stream.send(node=NODE)
        answer = await stream.read()
        assert (answer.load_reporting_interval.seconds, answer.send_all_clusters) == (10, True)
        assert list(answer.clusters) == []
        await stream.send(cluster_stats=[stats("shop"), stats("cart", 5)])
        await until(lambda: rates(server) == {("me", "shop"): [2.0], ("me", "cart"): [0.5]})
    await until(lambda: len(server.hub.reports) == 0)
    assert rates(server) == {}


async def test_interval_and_clusters_are_what_the_settings_say(store: Store) -> None:
    # LRS-1
    settings = Settings(load_interval=0.25, load_clusters=frozenset({"b", "a"}))
    async with Server(store, FREE, settings=settings) as server, LoadStream(server) as stream:
        await stream.send(node=NODE)
        answer = await stream.read()
    assert (answer.load_reporting_interval.nanos, answer.send_all_clusters) == (250_000_000, False)
    assert list(answer.clusters) == ["a", "b"]


async def test_a_client_that_can_not_report_all_gets_a_list_of_clusters(server: Server) -> None:
    # LRS-1
    with server.store.transaction() as tx:
        tx.put(cluster("shop"))
        tx.put(cluster("secret"), when="env=prod")
    async with LoadStream(server) as stream:
        await stream.send(node={"id": "old", "metadata": {"env": "test"}})
        answer = await stream.read()
        assert (list(answer.clusters), answer.send_all_clusters) == (["shop"], False)
        put(server.store, cluster("cart"))
        assert list((await stream.read()).clusters) == ["cart", "shop"]
    await until(lambda: len(server.hub.reports) == 0)
    assert len(server.store.listeners) == 1  # the hub's


async def test_an_invalid_report_is_reported_and_the_stream_goes_on(server: Server) -> None:
    # LRS-1
    facts = heard(server)
    async with LoadStream(server) as stream:
        await stream.send(node=NODE)
        await stream.read()
        await stream.send(cluster_stats=[stats("bad", 2**64 - 1), stats("worse", seconds=-1.0), stats("good")])
        await until(lambda: rates(server) == {("me", "good"): [2.0]})
        await stream.send(cluster_stats=[stats("bad"), stats("worse")])
        await until(lambda: len(rates(server)) == 3)
    await until(lambda: [fact.clusters for fact in facts if isinstance(fact, LoadsHeard)] == [0, 1, 2])
    assert [fact.cluster for fact in facts if isinstance(fact, LoadsRefused)] == ["bad", "worse"]


async def test_an_undecodable_load_report_ends_its_stream_and_no_other(server: Server) -> None:
    # LRS-1, OPS-10
    async with LoadStream(server) as stream, LoadStream(server) as other:
        await other.send(node=NODE)
        await other.read()
        await stream.send_bytes(b"\xff")
        code, details = await stream.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("not a load stats request")
        await other.send(cluster_stats=[stats("shop")])
        await until(lambda: rates(server))


async def test_a_half_closed_load_stream_ends(server: Server) -> None:
    # LRS-1
    async with LoadStream(server) as stream:
        await stream.send(node=NODE)
        await stream.read()
        await stream.half_close()
        assert (await stream.outcome())[0] is grpc.StatusCode.OK
    await until(lambda: len(server.hub.reports) == 0)


async def test_without_v2_load_reports_of_v2_are_unimplemented(store: Store) -> None:
    # VER-1, VER-10
    async with Server(store, FREE, v2=False) as server:
        async with LoadStream(server, "v2", v2) as stream:
            assert (await stream.status())[0] is grpc.StatusCode.UNIMPLEMENTED
        async with LoadStream(server) as stream:
            await stream.send(node=NODE)
            assert (await stream.read()).send_all_clusters


@pytest.mark.parametrize("features", [["xds_v3"], []], ids=["v3", "v2"])
async def test_the_clients_of_this_project_are_understood(store: Store, features: list[str]) -> None:
    # LRS-1, LRS-2, VER-10
    settings = Settings(load_interval=0.1)
    async with Server(store, FREE, settings=settings) as server, Client(_bootstrap(server.address, features)) as client:
        loads = client.loads().cluster("shop", "shop-eds")
        place = Locality("eu", "eu-1")
        loads.started(place)
        loads.started(place)
        loads.finished(place, ok=False, metrics={"cpu": 0.5, "mem_utilization": 0.25})
        loads.dropped("throttle")
        seen: list[Any] = []

        def look() -> bool:
            clients = server.hub.reports.clients(server.hub.clock())
            seen[:] = [each for client in clients for each in client.clusters]
            return bool(seen)

        await until(look)
        (found,) = seen
        assert (found.cluster, found.service, set(found.drops)) == ("shop", "shop-eds", {"throttle"})
        (rate,) = found.localities
        assert (rate.locality, rate.in_progress, rate.metrics["cpu"].mean) == (place, 1, 0.5)
        assert rate.metrics["mem_utilization"].mean == 0.25  # LRS-3
        assert rate.issued == pytest.approx(2 * rate.failed)


def _bootstrap(address: str, features: list[str]) -> dict[str, Any]:
    server = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": features}
    return {"xds_servers": [server], "node": {"id": "shop-1"}}


async def test_a_long_report_delays_no_other_and_later_reports_follow_it(server: Server) -> None:
    # LRS-1, OPS-10
    async with LoadStream(server) as stream:
        await stream.send(node=NODE)
        await stream.read()
        await stream.send(cluster_stats=[stats(f"c{number}") for number in range(4_000)])
        await stream.send(cluster_stats=[stats("c0", issued=50)])
        await stream.half_close()
        await until(lambda: rates(server).get(("me", "c0")) == [5.0] or len(server.hub.reports) == 0)
        assert (await stream.status())[0] is grpc.StatusCode.OK


async def test_a_long_report_that_is_none_ends_its_stream(server: Server) -> None:
    # LRS-1
    async with LoadStream(server) as stream:
        await stream.send(node=NODE)
        await stream.read()
        await stream.send_bytes(b"\x12\x02\x0a\xff" + b"\x12\x00" * 5_000)
        assert (await stream.outcome())[0] is grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: len(server.hub.reports) == 0)


async def test_others_are_served_while_a_long_report_is_read(server: Server) -> None:
    # OPS-10
    call = LoadCall(server.hub, Peer("ipv4:127.0.0.1:1"))
    many = [stats(f"c{number}") for number in range(2_000)]
    call.receive(LoadStatsRequest(node=NODE, cluster_stats=many).SerializeToString())
    turns = 0
    while call.is_busy:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2
    assert len(rates(server)) == 2_000
    call.receive(LoadStatsRequest(cluster_stats=many).SerializeToString())
    call.close()
    assert len(server.hub.reports) == 0
