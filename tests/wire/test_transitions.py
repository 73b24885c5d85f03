"""gRFC A30, "Transition Examples", acted out: N is v3, and N-1 is v2, which has no feature in a bootstrap.

A release of a client has two versions. Here that is `transport`: "v2" is a client of N-2 and N-1, which takes no notice
of `xds_v3`; "auto" is one of N-1 and N; "v3" is one of N and N+1, which has no v2 any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from envoy.api.v2 import discovery_pb2 as old
from envoy.service.load_stats.v2 import lrs_pb2 as old_lrs

import xdsprism as xp
from tests.client.rig import bootstrap, both, follow
from tests.client.rig import server as entry
from tests.wire.rig import cluster, put, put_bytes, until
from xdsprism import CLUSTER, Server, Settings, Store
from xdsprism.client.bootstrap import ServerConfig
from xdsprism.client.transport import ByteStream, GrpcTransport
from xdsprism.core.loads.loads import Locality
from xdsprism.core.model.facts import Nacked
from xdsprism.core.model.type_versions import as_v2
from xdsprism.release import __version__

FREE = "127.0.0.1:0"
ADS = "/envoy.service.discovery.{}.AggregatedDiscoveryService/{}AggregatedResources"
LRS = "/envoy.service.load_stats.{}.LoadReportingService/StreamLoadStats"

OLDER, CURRENT, NEWER = "v2", "auto", "v3"  # clients of N-2 and N-1; of N-1 and N; of N and N+1
N, NEXT = "xds_v3", "xds_v3.1"  # server features; that of N+1 is as A30 expects it


@dataclass(frozen=True)
class Case:
    """A server, what bootstraps say of it, a client, and the version that A30 says they speak."""

    server_has_v2: bool
    features: tuple[str, ...]
    client: str
    spoken: str


# "your xDS server currently supports versions N-1 and N", "supports only version N", "add support for" N+1
WORKING = {
    "N-1 and N: an older client uses N-1": Case(True, (N,), OLDER, "v2"),
    "N-1 and N: a current client uses N": Case(True, (N,), CURRENT, "v3"),
    "N-1 and N: a current client uses N-1 where N is not listed": Case(True, (), CURRENT, "v2"),
    "only N: a current client uses N": Case(False, (N,), CURRENT, "v3"),
    "only N: the newest client uses N": Case(False, (N,), NEWER, "v3"),
    "N and N+1: a current client takes no notice of N+1": Case(False, (N, NEXT), CURRENT, "v3"),
}
# "Before you can do that, you need to upgrade the older gRPC clients"
BROKEN = {
    "only N: an older client": Case(False, (N,), OLDER, "v2"),
    "only N: a current client where N is not listed": Case(False, (), CURRENT, "v2"),
    "only N+1, in a single step: an older client": Case(False, (NEXT,), OLDER, "v2"),
}


class Recorder(GrpcTransport):
    """Keeps what the client sends, by method."""

    def __init__(self, server: ServerConfig) -> None:
        super().__init__(server, asyncio.get_running_loop().time)
        self.sent: dict[str, list[bytes]] = {}

    async def open(self, path: str) -> ByteStream:
        kept = self.sent.setdefault(path, [])
        stream = await super().open(path)
        send = stream.send

        async def keep(message: bytes) -> None:
            kept.append(message)
            await send(message)

        stream.send = keep  # type: ignore[method-assign]
        return stream


@asynccontextmanager
async def client_of(server: Server, case: Case, *, delta: bool) -> AsyncIterator[tuple[xp.Client, list[Recorder]]]:
    made: list[Recorder] = []

    def connect(config: ServerConfig) -> Recorder:
        made.append(Recorder(config))
        return made[-1]

    source = bootstrap(entry(server.address, *case.features, v3=False))
    async with xp.Client(source, delta=delta, transport=case.client, connect=connect) as client:
        yield client, made


def sent_in(made: list[Recorder]) -> dict[str, list[bytes]]:
    return {path: messages for each in made for path, messages in each.sent.items()}


async def tags(watched: Any, wanted: str) -> list[str]:
    """Read on until contents of this tag come; all that came on the way."""
    seen: list[str] = []
    async with asyncio.timeout(20):
        while wanted not in seen:
            update = await watched.next()
            seen.append(update.resource.alt_stat_name if update.resource is not None else "trouble")
    return seen


@both
@pytest.mark.parametrize("case", WORKING.values(), ids=WORKING)
async def test_a_client_uses_the_newest_version_that_both_have(store: Store, case: Case, delta: bool) -> None:
    # VER-5, VER-6, VER-7, VER-10, VER-15, NAK-1, LRS-1
    put(store, cluster("a", "1"))
    settings = Settings(load_interval=0.1)
    nacks: list[Any] = []
    async with Server(store, FREE, v2=case.server_has_v2, settings=settings) as server:
        server.hub.readers.append(lambda facts: nacks.extend(each for each in facts if isinstance(each, Nacked)))
        async with client_of(server, case, delta=delta) as (client, made):
            watched = follow(client, CLUSTER, "a")
            assert await tags(watched, "1") == ["1"]
            put(store, cluster("a", "2"))
            assert await tags(watched, "2") == ["2"]
            put_bytes(store, CLUSTER, "a", b"\n\x01a\x10\xff")
            await until(lambda: nacks)
            put(store, cluster("a", "3"))
            await tags(watched, "3")
            client.loads().cluster("a").started(Locality("eu", "eu-1"))
            await until(lambda: any(each.clusters for each in server.hub.reports.clients(server.hub.clock())))
            await watched.close()
    check_words(sent_in(made), case.spoken, delta=delta)


def check_words(sent: dict[str, list[bytes]], version: str, *, delta: bool) -> None:
    """All of it in one version. Read with the classes of v2, which have a place for `build_version`."""
    ads, lrs = ADS.format(version, "Delta" if delta else "Stream"), LRS.format(version)
    assert set(sent) == {ads, lrs}
    kind: Any = old.DeltaDiscoveryRequest if delta else old.DiscoveryRequest
    requests = [kind.FromString(each) for each in sent[ads]]
    assert {each.type_url for each in requests} == {as_v2(CLUSTER) if version == "v2" else CLUSTER}
    assert any(each.HasField("error_detail") for each in requests)
    built = f"xdsprism {__version__}" if version == "v2" else ""
    nodes = requests[0].node, old_lrs.LoadStatsRequest.FromString(sent[lrs][0]).node
    assert [(node.id, node.build_version) for node in nodes] == [("x", built)] * 2


@both
@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
async def test_a_client_without_a_common_version_gets_an_error_until_it_is_upgraded(
    store: Store, case: Case, delta: bool
) -> None:
    # VER-1, VER-5, CLI-16
    put(store, cluster("a", "1"))
    async with Server(store, FREE, v2=case.server_has_v2) as server:
        async with client_of(server, case, delta=delta) as (client, made):
            watched = follow(client, CLUSTER, "a")
            async with asyncio.timeout(20):
                update = await watched.next()
            path = ADS.format("v2", "Delta" if delta else "Stream")
            assert (update.resource, update.error.status) == (None, "UNIMPLEMENTED")
            assert path in str(update.error)
            assert set(sent_in(made)) == {path}
            await watched.close()
        upgraded = Case(case.server_has_v2, (N, NEXT), CURRENT, "v3")
        async with client_of(server, upgraded, delta=delta) as (client, _):
            watched = follow(client, CLUSTER, "a")
            assert await tags(watched, "1") == ["1"]
            await watched.close()


@both
async def test_when_a_server_drops_v2_v3_clients_go_on_and_others_keep_their_resources(
    store: Store, delta: bool
) -> None:
    # VER-1, VER-15
    put(store, cluster("a", "1"))
    cases = [Case(True, (N,), OLDER, "v2"), Case(True, (N,), CURRENT, "v3")]
    async with AsyncExitStack() as stack:
        async with Server(store, FREE) as server:
            entered = [await stack.enter_async_context(client_of(server, case, delta=delta)) for case in cases]
            left, goes_on = watches = [follow(client, CLUSTER, "a") for client, _ in entered]
            for watched in watches:
                assert await tags(watched, "1") == ["1"]
        async with Server(store, server.address, v2=False):
            put(store, cluster("a", "2"))
            assert (await tags(goes_on, "2"))[-1] == "2"
            async with asyncio.timeout(20):
                while "UNIMPLEMENTED" not in str((update := await left.next()).ambient_error):
                    assert update.error is None
            for watched in watches:
                await watched.close()
