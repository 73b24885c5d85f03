"""Servers that answer each NACK with the rejected resource, or each ACK with an unchanged response."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from xdsprism.core.watch.request_pacing import PATIENCE, Pace
from xdsprism.testing import PeerStream, ScriptedPeer, run_timeless

BOOT = {
    "xds_servers": [{"server_uri": "one:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}]
}


def now() -> float:
    return asyncio.get_running_loop().time()


async def echo(stream: PeerStream, *clusters: Cluster, rounds: int) -> list[float]:
    """Answer each request at once with the same; returns when the requests came."""
    times = []
    for number in range(rounds):
        request = await stream.request()
        times.append(now())
        stream.respond(request.type_url, *clusters, version="1", nonce=f"n{number}")
    return times


# NAK-23: each of them is answered, once
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("bad", [False, True])
def test_a_server_that_echoes_is_answered_ever_more_slowly(delta: bool, bad: bool):
    async def main() -> None:
        peer = ScriptedPeer()
        refuse = {xp.CLUSTER: lambda _: ["no"]} if bad else None
        async with xp.Client(BOOT, connect=peer.connect, delta=delta, validators=refuse) as client:
            updates = client.watch(xp.CLUSTER, "a")
            first = asyncio.ensure_future(anext(updates))
            stream = await peer.accept()
            times = await echo(stream, Cluster(name="a"), rounds=60)
            assert (await first).resource is None if bad else Cluster(name="a")
            quick = [moment for moment in times if moment == 0.0]
            assert len(quick) == PATIENCE + 1  # the first request, and the answers before it gets slower
            gaps = [later - earlier for earlier, later in pairwise(times[len(quick) - 1 :])]
            assert gaps[:3] == pytest.approx([1.0, 1.6, 2.56])
            assert gaps[-1] == pytest.approx(120)

    run_timeless(main())


@pytest.mark.parametrize("delta", [False, True])
def test_a_response_with_news_is_answered_at_once(delta: bool):
    async def main() -> None:
        peer = ScriptedPeer()
        async with xp.Client(BOOT, connect=peer.connect, delta=delta) as client:
            updates = client.watch(xp.CLUSTER, "a")
            first = asyncio.ensure_future(anext(updates))
            stream = await peer.accept()
            await stream.request()
            for number in range(1000):
                stream.respond(xp.CLUSTER, Cluster(name="a", alt_stat_name=f"{number}"), nonce=f"n{number}")
                assert (await (first if number == 0 else anext(updates))).resource.alt_stat_name == f"{number}"
                assert (await stream.request()).response_nonce == f"n{number}"
            assert now() == 0

    run_timeless(main())


@pytest.mark.parametrize("delta", [False, True])
def test_subscriptions_do_not_wait_for_an_answer_that_is_held_back(delta: bool):
    async def main() -> None:
        peer = ScriptedPeer()
        async with xp.Client(BOOT, connect=peer.connect, delta=delta) as client:
            updates = client.watch(xp.CLUSTER, "a")
            first = asyncio.ensure_future(anext(updates))
            stream = await peer.accept()
            await echo(stream, Cluster(name="a"), rounds=PATIENCE + 2)
            await first
            before = now()
            asking = asyncio.ensure_future(client.get(xp.CLUSTER, "b"))
            request = await stream.request()
            assert now() == before
            assert "b" in (request.resource_names_subscribe if delta else request.resource_names)
            stream.respond(xp.CLUSTER, Cluster(name="a"), Cluster(name="b"), version="2", nonce="new")
            assert await asking == Cluster(name="b")
            await asyncio.sleep(10)
            nonces = [request.response_nonce for request in stream.pending() if request.response_nonce]
            answered = list(dict.fromkeys(nonces))
            assert answered[-2:] == ["n4", "new"]  # in the order of the responses

    run_timeless(main())


def test_a_pause_makes_it_quick_again():
    pace = Pace()
    for _ in range(PATIENCE):
        assert pace.answer_at(0.0, fruitful=False) == 0.0
    assert pace.answer_at(0.0, fruitful=False) == 1.0
    assert pace.answer_at(1.5, fruitful=False) > 1.5
    assert pace.answer_at(10.0, fruitful=False) == 10.0
