"""The relay beside the server that it stands for: what a cold start asks, what an answer costs, how long news take."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, cast

import uvloop
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, ResourceLocator

import xdsprism as xp
from bench.daemon import started
from bench.figures import say
from bench.programs import COMPILED_PYTHON
from xdsprism.builds import running
from xdsprism.relay.relay import Relay
from xdsprism.server.calls import Peer
from xdsprism.server.hub import Hub
from xdsprism.server.xds_call import XdsCall

CLIENTS, CLASSES = 1_000, 12
ROUNDS = 100
PROCESSES = 5
REST = 0.005  # seconds before an update, in which the ACKs of the one before it are taken


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
    builds = {running(): sys.executable}
    if COMPILED_PYTHON.exists():
        builds.setdefault("compiled", str(COMPILED_PYTHON))
    else:
        print("  The compiled build is not there: `make compiled` makes it.", file=sys.stderr, flush=True)
    ways = [(build, way) for build in builds for way in ("processes", "loop")]
    rounds = [{(build, way): _measured(builds[build], way) for build, way in ways} for _ in range(PROCESSES)]
    for build, way in ways:
        news = [each[build, way] for each in rounds]
        direct, relayed, ratio = (median(each[part] for each in news) for part in range(3))
        figure = f"{direct * 1e3:.2f} and {relayed * 1e3:.2f} ms, ratio {ratio:.2f}"
        where = "each a process" if way == "processes" else "all in one loop"
        say(f"an update, directly and through a relay, {where}, {build}", figure)


class News(NamedTuple):
    """How long an update takes, in seconds; and the median of the ratios."""

    direct: float
    relayed: float
    ratio: float


def _measured(python: str, way: str) -> News:
    """Measure an update in a process of its own, which this Python runs: it has one build or the other."""
    command = [python, "-m", "bench.relay", way]
    folder = Path(__file__).parents[1]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    return News(*json.loads(said))


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


async def _news_in_one_loop() -> News:
    """Measure how long one update takes to two watchers, if server, relay and both clients share a loop."""
    store = _store()
    async with (
        xp.Server(store, listen="127.0.0.1:0") as server,
        Relay(_bootstrap(server.address), listen="127.0.0.1:0") as relay,
        _watching(server.address, "c1") as direct,
        _watching(relay.address, "c1") as relayed,
    ):
        pairs = []
        for edition in range(ROUNDS):
            await asyncio.sleep(REST)
            start = _put(store, "c1", edition)
            first, second = await asyncio.gather(_arrival(direct), _arrival(relayed))
            pairs.append((first - start, second - start))
        return _news_of(pairs)


async def _news_of_processes() -> News:
    """Measure the same where server and relay are processes of their own, as they run, and an update has one watcher.

    Both clients are in this process. Their classes change by turns, so the direct way and that through the relay do not
    compete for the processor.
    """
    async with AsyncExitStack() as stack:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.relay", "server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(server.terminate)
        orders, answers = cast("asyncio.StreamWriter", server.stdin), cast("asyncio.StreamReader", server.stdout)
        upstream = json.loads(await answers.readline())
        bootstrap = Path(stack.enter_context(tempfile.TemporaryDirectory()), "bootstrap.json")
        await asyncio.to_thread(bootstrap.write_text, json.dumps(_bootstrap(upstream)))
        relay = started("relay", "--bootstrap", str(bootstrap))
        _, address = await asyncio.to_thread(stack.enter_context, relay)
        direct = await stack.enter_async_context(_watching(upstream, "c1"))
        relayed = await stack.enter_async_context(_watching(address, "c2"))
        pairs = []
        for edition in range(ROUNDS):
            taken = []
            for watch, name in ((direct, "c1"), (relayed, "c2")):
                await asyncio.sleep(REST)
                orders.write(json.dumps([name, edition]).encode() + b"\n")
                arrival = await _arrival(watch)
                taken.append(arrival - json.loads(await answers.readline()))
            pairs.append((taken[0], taken[1]))
        return _news_of(pairs)


async def _serve() -> None:
    """Run the server of `_news_of_processes`: put what each line of the input says, and print when that began."""
    store = _store()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with xp.Server(store, listen="127.0.0.1:0") as server:
        print(json.dumps(server.address), flush=True)
        while line := await lines.readline():
            name, edition = json.loads(line)
            print(_put(store, name, edition), flush=True)


def _put(store: xp.Store, name: str, edition: int) -> float:
    """Change the variant of a class. Return the time before that, on a clock that all processes share."""
    start = time.monotonic()
    with store.transaction() as tx:
        tx.put(Cluster(name="shop", alt_stat_name=f"edition-{edition}"), when=f"class={name}")
    return start


@asynccontextmanager
async def _watching(address: str, name: str) -> AsyncIterator[xp.Watch]:
    """Watch the variant of a class, and take the first update."""
    async with xp.Client(_bootstrap(address), delta=True) as client:
        watch = client.watch(xp.CLUSTER, "shop", params={"class": name})
        await anext(watch)
        yield watch
        watch.close()


def _news_of(pairs: Sequence[tuple[float, float]]) -> News:
    direct, relayed = zip(*pairs, strict=True)
    return News(median(direct), median(relayed), median(second / first for first, second in pairs))


async def _arrival(watch: AsyncIterator[object]) -> float:
    await anext(watch)
    return time.monotonic()


MAINS = {"server": _serve, "processes": _news_of_processes, "loop": _news_in_one_loop}

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if (result := runner.run(MAINS[sys.argv[1]]())) is not None:
            print(json.dumps(result))
