"""The relay beside the server that it stands for: what a cold start asks, what an answer costs, how long news take."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from multiprocessing import get_context
from statistics import median, quantiles
from typing import NamedTuple

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, ResourceLocator

import xdsprism as xp
from bench.figures import say
from xdsprism.relay.relay import Relay
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub, XdsCall

CLIENTS, CLASSES = 1_000, 12
ROUNDS = 100
PROCESSES = 5


def run() -> None:
    print("Relay")
    crowds = [_in_a_process_of_its_own() for _ in range(PROCESSES)]
    most = max(crowd.subscriptions for crowd in crowds)
    direct, cached = median(crowd.direct for crowd in crowds), median(crowd.cached for crowd in crowds)
    ratio = median(crowd.cached / crowd.direct for crowd in crowds)
    say(f"{CLIENTS:,} clients in {CLASSES} classes at a cold relay: subscriptions upstream, at most", f"{most}")
    say(
        "an answer from the server, and from a relay's cache",
        f"{direct * 1e6:.0f} and {cached * 1e6:.0f} µs, ratio {ratio:.2f}",
    )
    asyncio.run(_news())


class Crowd(NamedTuple):
    subscriptions: int  # upstream
    direct: float  # seconds, for an answer
    cached: float


def _in_a_process_of_its_own() -> Crowd:
    """Where things lie in memory, and in which order in dictionaries, differs by a few per cent from run to run."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_crowded)


def _crowded() -> Crowd:
    return asyncio.run(_crowd())


def _bootstrap(address: str) -> dict[str, object]:
    server = {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return {"xds_servers": [server], "node": {"id": "bench"}}


def _store() -> xp.Store:
    store = xp.Store()
    with store.transaction() as tx:
        for number in range(CLASSES):
            tx.put(Cluster(name="shop", alt_stat_name=f"class-{number}"), when=f"class=c{number}")
    return store


def _join(hub: Hub, number: int) -> XdsCall:
    """One more client: the same question as all of its class, and a host name that nobody asked about."""
    call = hub.open("bench", Peer("bench"), delta=True, only_type=None)
    params = {"class": f"c{number % CLASSES}", "host": f"h{number}"}
    locator = ResourceLocator(name="shop", dynamic_parameters=params)
    request = DeltaDiscoveryRequest(type_url=xp.CLUSTER, resource_locators_subscribe=[locator])
    request.node.id = f"n{number}"
    call.receive(request.SerializeToString())
    return call


async def _answered(calls: list[XdsCall]) -> None:
    """Until each has its answer."""
    waiting = list(calls)
    while waiting:
        await asyncio.sleep(0.001)
        waiting = [call for call in waiting if not list(call.poll())]


def _subscriptions(server: xp.Server) -> int:
    streams = [connected.stream for connected in server.hub.connected() if connected.method != "bench"]
    return sum(len(session.subscriptions) for stream in streams for session in stream.sessions.values())


async def _crowd() -> Crowd:
    async with (
        xp.Server(_store(), listen="127.0.0.1:0") as server,
        Relay(_bootstrap(server.address), listen="127.0.0.1:0") as relay,
    ):
        calls = [_join(relay.server.hub, number) for number in range(CLIENTS)]
        others = [_join(server.hub, number) for number in range(CLIENTS)]  # as many at either
        most = 0
        gathering = asyncio.ensure_future(_answered(calls))
        while not gathering.done():
            most = max(most, _subscriptions(server))
            await asyncio.sleep(0)
        await _answered(others)
        hubs = server.hub, relay.server.hub
        costs: dict[Hub, list[float]] = {hub: [] for hub in hubs}
        for turn in range(40):  # each of them first in every other: neither is always the one that comes after
            for hub in hubs if turn % 2 else reversed(hubs):
                costs[hub].append(await _cost(hub))
        # The quickest quarter: whatever else this machine does only adds, and not to both alike.
        direct, cached = (quantiles(costs[hub], n=4)[0] for hub in hubs)
        for call in (*calls, *others):
            call.close()
        return Crowd(most, direct, cached)


async def _cost(hub: Hub) -> float:
    """Processor time of one client's question and its answer, all in.

    Without the collector of garbage, which looks through both servers whenever it happens to run.
    """
    await asyncio.sleep(0.01)
    gc.collect()
    gc.disable()
    start = time.process_time()
    calls = [_join(hub, number) for number in range(CLIENTS, CLIENTS + 300)]
    await asyncio.sleep(0)
    await _answered(calls)
    taken = (time.process_time() - start) / len(calls)
    gc.enable()
    for call in calls:
        call.close()
    return taken


async def _news() -> None:
    store = _store()
    async with (
        xp.Server(store, listen="127.0.0.1:0") as server,
        Relay(_bootstrap(server.address), listen="127.0.0.1:0") as relay,
        xp.Client(_bootstrap(server.address), delta=True) as direct,
        xp.Client(_bootstrap(relay.address), delta=True) as through,
    ):
        watches = [client.watch(xp.CLUSTER, "shop", params={"class": "c1"}) for client in (direct, through)]
        for watch in watches:
            await anext(watch)
        pairs = []
        for edition in range(ROUNDS):
            start = time.perf_counter()
            with store.transaction() as tx:
                tx.put(Cluster(name="shop", alt_stat_name=f"edition-{edition}"), when="class=c1")
            pairs.append([taken - start for taken in await asyncio.gather(*map(_arrival, watches))])
        first, second = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        ratio = median(pair[1] / pair[0] for pair in pairs)
        figure = f"{first * 1e3:.2f} and {second * 1e3:.2f} ms, ratio {ratio:.2f}"
        say("an update, directly and through a relay", figure)
        for watch in watches:
            watch.close()


async def _arrival(watch: AsyncIterator[object]) -> float:
    await anext(watch)
    return time.perf_counter()
