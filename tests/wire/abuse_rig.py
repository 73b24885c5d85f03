"""A server as it is run, somebody who abuses it, and somebody else who must not notice."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tests.http2.rig import CALL, Frame, headers, parse
from tests.support import insides
from tests.wire.h2_rig import Raw
from tests.wire.rig import PATIENCE, Stream, cluster, footprint, put, tag_of, until
from xdsprism import CLUSTER, Server, Store
from xdsprism.http2.limits import Limits, Times
from xdsprism.http2.rpc import RpcConnection
from xdsprism.http2.stream import Stream as Http2Stream
from xdsprism.observe.connection_metrics import ConnectionMetrics, LimitMetrics
from xdsprism.observe.metrics import Metrics
from xdsprism.server.connection_calls import CallStream
from xdsprism.server.engine_h2 import H2Engine, SocketConnection
from xdsprism.server.xds_call import XdsCall

HASTE = Times(preface=0.3, stall=0.4, linger=0.2)  # where a test waits for one of these
PARTS = {SocketConnection, RpcConnection, Http2Stream, CallStream, XdsCall}
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
ASK = tuple((name, ADS if name == ":path" else value) for name, value in CALL)
LIMITED = re.compile(r'^xdsprism_limited_total\{ended="(\w+)",limit="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)


def ask(number: int, *more: tuple[str, str], last: bool = False) -> bytes:
    """HEADERS of a call that the server has."""
    return headers(number, (*ASK, *more), last=last)


class Site:
    """The server, what its metrics say, and a client that is served all the while."""

    def __init__(self, server: Server, metrics: Metrics, bystander: Stream) -> None:
        self.server = server
        self.address = server.address
        self._metrics = metrics
        self._bystander = bystander
        self._updates = 0

    @property
    def engine(self) -> H2Engine:
        return insides.engine(self.server)

    def hurry(self) -> None:
        """Those who come from now on have little time; who is there has as much as ever."""
        self.engine.times = HASTE

    def text(self) -> str:
        return self._metrics.render().decode()

    def limited(self) -> dict[str, dict[str, int]]:
        """By what ended of it, and by which limit: how often. As /metrics says it."""
        found: dict[str, dict[str, int]] = {}
        for ended, limit, number in LIMITED.findall(self.text()):
            if float(number):
                found.setdefault(ended, {})[limit] = int(float(number))
        return found

    def connections(self) -> int:
        (number,) = re.findall(r"^xdsprism_connections (\S+)$", self.text(), re.MULTILINE)
        return int(float(number))

    async def is_unharmed(self) -> None:
        """The other client gets an update."""
        self._updates += 1
        put(self.server.store, cluster("watched", str(self._updates)))
        response = await self._bystander.read()
        assert [tag_of(each.resource.value) for each in response.resources] == [str(self._updates)]
        await self._bystander.ack(response)

    async def is_as_before(self, base: dict[str, Any], parts: Counter[type]) -> None:
        """Of those who abused it nothing is left, and no garbage collector had to see to that."""
        count = self.engine.connection_limits.count
        await until(lambda: self.connections() == 1 and count.open == 1)
        await until(lambda: footprint(self.server, [CLUSTER])["calls"].keys() == base["calls"].keys())
        assert count.unfinished == 0
        assert len(insides.connections(self.engine)) == 1
        await until(lambda: not alive() - parts)


def alive() -> Counter[type]:
    """How many there are of the parts of a connection, be they of other tests: what counts is how many more."""
    return Counter(kind for each in gc.get_objects() if (kind := type(each)) in PARTS)


@contextmanager
def no_collector() -> Iterator[None]:
    """What is in a reference cycle stays until the end."""
    gc.collect()  # of what other tests have left
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@asynccontextmanager
async def site(limits: Limits | None = None, **options: Any) -> AsyncIterator[Site]:
    """What comes out of it: the bystander is served, and the server has forgotten all others."""
    store = Store()
    put(store, cluster("watched", "0"))
    server = Server(store, "127.0.0.1:0", engine="h2", **options)
    metrics = Metrics(store)
    server.connection_readers += [ConnectionMetrics(metrics.registry), LimitMetrics(metrics)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_connection_limits", lambda: limits or Limits())  # most of them can't be set
        await server.start()
    try:
        async with Stream(server.address) as bystander:
            await bystander.ack(await bystander.ask(CLUSTER, ["watched"]))
            found = Site(server, metrics, bystander)
            await found.is_unharmed()
            with no_collector():
                base, parts = footprint(server, [CLUSTER]), alive()
                yield found
                await found.is_unharmed()
                await found.is_as_before(base, parts)
    finally:
        await server.stop(0)
        metrics.close()


async def hear(client: Raw, kind: int) -> list[Frame]:
    """All that comes, until a frame of this kind has."""
    found: list[Frame] = []
    while not any(frame.kind == kind for frame in found):
        part = await asyncio.wait_for(client.reader.read(1 << 20), PATIENCE)
        assert part, "the server hung up"
        heard = client.rest + part
        whole = _whole(heard)
        found += parse(heard[:whole])
        client.rest = heard[whole:]
    return found


def _whole(written: bytes) -> int:
    """How much of it is whole frames."""
    at = 0
    while len(written) - at >= 9:
        size = 9 + int.from_bytes(written[at : at + 3])
        if at + size > len(written):
            break
        at += size
    return at
