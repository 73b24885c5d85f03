"""The end of a server, or of a connection, under the streams of every gRPC implementation."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.interop.tagged import BIG, big, hears, in_the_middle_of_a_large_response, tagged, tags
from tests.support.lab import Lab
from tests.support.streams import Ads, Channel
from tests.support.waiting import becomes
from tests.wire.rig import until
from xdsprism import CLUSTER, Server, Store
from xdsprism import serving as server_module
from xdsprism.http2.limits import Times

pytestmark = pytest.mark.timeout(600)  # a first build fetches packages

CROWD = 50


def crowd(channel: Channel, node: str) -> list[Ads]:
    """Streams of both kinds that want one small cluster."""
    streams = [channel.discovery(node, delta=number % 2 == 0) for number in range(CROWD)]
    for stream in streams:
        stream.ask(CLUSTER, "small")
    return streams


# OPS-9
def test_a_server_that_stops_in_the_middle(lab: Lab, engine: str, argv: list[str | Path], node: str) -> None:
    """Streams end with OK, the response under way comes to its end, and what is opened meanwhile waits for the next."""
    server = lab.control_plane()
    server.write_json("big", big())
    server.write("small", tagged("small", "before"))
    server.start()
    channel = lab.channel(argv, server.address)
    streams, slow = crowd(channel, node), in_the_middle_of_a_large_response(channel, node)
    for each in streams:
        hears(each, "before")
    becomes(lambda: len(server.clients(node)), CROWD + 1)
    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(server.stop)
        assert {each.call.ended().status for each in streams} == {"OK"}
        others = crowd(channel, node)
        assert slow.call.end is None
        slow.call.read()
        assert [len(tag) for tag in tags(slow.answer())] == [BIG]
        assert slow.call.ended().status == "OK"
        assert stopping.result() == 0
    server.write("small", tagged("small", "after"))
    server.start()
    for each in others:
        hears(each, "after")
    assert {each.call.end for each in others} == {None}


def moved(channel: Channel, node: str) -> Ads:
    """Streams end with their connection, and the next ones are on another. One is in the middle of a response."""
    unread, first = in_the_middle_of_a_large_response(channel, node), crowd(channel, node)
    for each in first:
        hears(each, "here")
    assert {each.call.ended().status for each in first} == {"OK"}
    for each in crowd(channel, node):
        hears(each, "here")
    return unread


def cut_off(unread: Ads) -> None:
    unread.call.read()
    assert unread.call.ended().status in ("CANCELLED", "UNAVAILABLE")  # grpc-js: the connection is gone by then
    assert not unread.has_more()


# OPS-9
async def test_a_connection_that_is_old_enough(
    lab: Lab, argv: list[str | Path], node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is drained, and what does not end in time is cut off."""
    monkeypatch.setattr(server_module, "Times", partial(Times, age_grace=0.5))
    store = Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="small", alt_stat_name="here"))
        tx.put(Cluster(name="big", alt_stat_name="x" * BIG))
    async with Server(store, "127.0.0.1:0", engine="h2", max_connection_age=2.0) as server:
        unread = await asyncio.to_thread(moved, lab.channel(argv, server.address), node)
        await until(lambda: len(list(server.hub.connected())) <= CROWD)
        await asyncio.to_thread(cut_off, unread)
