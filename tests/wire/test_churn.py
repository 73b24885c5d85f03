"""Clients come and go in every way, and leave nothing behind, not even reference cycles.

The daemon collects old objects very rarely (`app.GC_THRESHOLDS`), so what only the collector could free is memory that
grows with every client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from bench import churn
from bench.churn import WAYS, Client
from tests.http2.rig import CALL, data, headers, message
from tests.support import insides
from tests.wire.abuse_rig import Site, ask, hear, site
from tests.wire.h2_rig import raw
from tests.wire.rig import PATIENCE, until
from xdsprism import ENDPOINT
from xdsprism.http2.codes import GOAWAY, HEADERS

CYCLES = 20


async def _in_the_way_of(way: str, found: Site) -> None:
    host, _, port = found.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Client(reader, writer, "watched")
    try:
        await client.begin()
        await client.live(0.01)
        await WAYS[way][0](client)
    finally:
        writer.transport.abort()


async def _by_an_unknown_method(found: Site) -> None:
    async with raw(found.address) as client:
        await client.say(headers(1, CALL), data(1, message(b"asks")))
        await hear(client, HEADERS)


async def _by_a_call_that_is_never_read(found: Site) -> None:
    async with raw(found.address) as client:
        unknown = b"".join(headers(number, CALL, last=True) for number in range(1, 99, 2))
        await client.say(unknown, b"\xff" * 32)
        await hear(client, GOAWAY)


async def _by_a_long_request_that_is_refused(found: Site) -> None:
    async with raw(found.address) as client:
        await client.say(ask(1), data(1, message(b"\xff" * 12_000)))
        await hear(client, HEADERS)


async def _amid_a_long_request(found: Site) -> None:
    names = [f"name-{number}" for number in range(1_300)]
    long = pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=names).SerializeToString()
    async with raw(found.address) as client:
        await client.say(ask(1), data(1, message(long)))
        await until(lambda: len(insides.calls(found.server.hub)) > 1)


OTHERS: dict[str, Callable[[Site], Awaitable[None]]] = {
    "by an unknown method": _by_an_unknown_method,
    "by calls that nobody reads": _by_a_call_that_is_never_read,
    "by a long request that is refused": _by_a_long_request_that_is_refused,
    "amid a long request": _amid_a_long_request,
}


@pytest.mark.parametrize("way", [*WAYS, *OTHERS])
async def test_nothing_is_left_of_clients_that_come_and_go(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # OPS-6. `site` compares the parts of connections at its end, with those before, and the collector is off.
    monkeypatch.setattr(churn, "SILENCE", 0.01)
    monkeypatch.setattr(churn, "random", SimpleNamespace(uniform=lambda *_: 0.01))
    async with site() as found, asyncio.timeout(PATIENCE):
        for _ in range(CYCLES):
            await (OTHERS[way](found) if way in OTHERS else _in_the_way_of(way, found))
