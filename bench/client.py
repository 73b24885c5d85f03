"""The client alone, with 100,000 resources watched: what arrives is in memory already, encoded as a server would."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Iterator
from statistics import median

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse

import xdsprism as xp
from bench.figures import say
from xdsprism.client.updates import Watching
from xdsprism.messages.rules import check
from xdsprism.testing import PeerStream, ScriptedPeer

MANY = 100_000
CHUNK = 10_000  # resources in one response, about as many as servers put into 3 MB
BOOTSTRAP = {
    "xds_servers": [{"server_uri": "memory", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
    "node": {"id": "bench"},
}


def run() -> None:
    print("Client")
    say("decoding and checking alone, resources per second", f"{_decoding():,.0f}")
    for words, single in (("by one watch of them all", False), ("by a watch and a task each", True)):
        asyncio.run(_measure(words, single=single))


def _cluster(number: int, edition: int = 0) -> Cluster:
    cluster = Cluster(name=f"cluster-{number}", type=Cluster.EDS, alt_stat_name=f"edition-{edition}")
    cluster.connect_timeout.seconds = 1
    cluster.eds_cluster_config.eds_config.ads.SetInParent()
    return cluster


def _responses() -> Iterator[bytes]:
    for start in range(0, MANY, CHUNK):
        yield _response(*[_cluster(number) for number in range(start, start + CHUNK)], nonce=f"n{start}")


def _response(*clusters: Cluster, nonce: str) -> bytes:
    response = DeltaDiscoveryResponse(type_url=xp.CLUSTER, nonce=nonce, system_version_info="1")
    for cluster in clusters:
        resource = response.resources.add(name=cluster.name, version=cluster.alt_stat_name)
        resource.resource.Pack(cluster)
    return response.SerializeToString()


def _decoding() -> float:
    """The floor: parse each response and each resource, and check it; nothing is kept or delivered."""
    messages = list(_responses())
    gc.collect()
    start = time.perf_counter()
    for message in messages:
        for resource in DeltaDiscoveryResponse.FromString(message).resources:
            check(Cluster.FromString(resource.resource.value))
    return MANY / (time.perf_counter() - start)


class Crowd:
    """Watchers of all clusters: one for all of them, or one for each."""

    def __init__(self, client: xp.Client, *, single: bool) -> None:
        self.heard = 0
        self.full = asyncio.Event()
        self.fresh = asyncio.Event()
        names = [f"cluster-{number}" for number in range(MANY)]
        watches = [client.watch(xp.CLUSTER, name) for name in names] if single else [client.watch(xp.CLUSTER, names)]
        self.tasks = [asyncio.create_task(self._follow(watch)) for watch in watches]

    async def _follow(self, updates: Watching) -> None:
        async for update in updates:
            if update.resource is None:
                raise AssertionError(update)
            self.heard += 1
            if self.heard >= MANY:
                self.full.set()
            self.fresh.set()


async def _measure(words: str, *, single: bool) -> None:
    messages = list(_responses())
    size = sum(len(_cluster(number).SerializeToString()) for number in range(0, MANY, 100)) * 100
    peer = ScriptedPeer()
    async with xp.Client(BOOTSTRAP, delta=True, connect=peer.connect) as client:
        crowd = Crowd(client, single=single)
        stream = await peer.accept()
        await stream.request()
        gc.collect()
        start = time.perf_counter()
        for message in messages:
            stream.send(message)
        await crowd.full.wait()
        say(f"{MANY:,} resources {words}, delivered per second", f"{MANY / (time.perf_counter() - start):,.0f}")
        gc.collect()
        gc.freeze()
        await _one_update(stream, crowd, 1)  # after which what is left of the first delivery is done
        taken = [await _one_update(stream, crowd, edition) for edition in range(2, 102)]
        say("... then one update, median and worst of 100", f"{median(taken) * 1e3:.2f} and {max(taken) * 1e3:.2f} ms")
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
    if not single:
        await _weigh(messages, size)


async def _one_update(stream: PeerStream, crowd: Crowd, edition: int) -> float:
    """From the bytes that arrive to the watcher that has them."""
    message = _response(_cluster(edition * 7, edition), nonce=f"u{edition}")
    crowd.fresh.clear()
    start = time.perf_counter()
    stream.send(message)
    await crowd.fresh.wait()
    return time.perf_counter() - start


async def _weigh(messages: list[bytes], size: int) -> None:
    tracemalloc.start()
    try:
        peer = ScriptedPeer()
        async with xp.Client(BOOTSTRAP, delta=True, connect=peer.connect) as client:
            before = tracemalloc.get_traced_memory()[0]
            crowd = Crowd(client, single=False)
            stream = await peer.accept()
            await stream.request()
            for message in messages:
                stream.send(message)
            await crowd.full.wait()
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before - size) / MANY
            for task in crowd.tasks:
                task.cancel()
            await asyncio.gather(*crowd.tasks, return_exceptions=True)
    finally:
        tracemalloc.stop()
    say(f"... memory per cached resource, beside its own {size // MANY} bytes", f"{each:,.0f} bytes")
