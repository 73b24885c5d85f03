"""By which names of a type a program asks, and what it is told of names that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.core.test_type_names import CLUSTER_NAMES
from xdsprism.testing import ScriptedPeer

BOOTSTRAP = {"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}


@pytest.mark.parametrize("name", [*CLUSTER_NAMES, "envoy.api.v2.Cluster"], ids=repr)
async def test_get_watch_and_list_take_every_name_of_a_type(name: Any) -> None:
    # VER-9
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="a"))
    async with (
        xp.Server(store, "127.0.0.1:0") as server,
        xp.Client(xp.Bootstrap.for_server(server.address, node={"id": "x"})) as client,
    ):
        assert (await client.get(name, "a", timeout=20)).name == "a"
        assert [each.name for each in await client.list(name, timeout=20)] == ["a"]
        async for update in client.watch(name, "a"):
            assert update.type_url == xp.CLUSTER
            break


USES: dict[str, Callable[[xp.Client, str], object]] = {
    "watch": lambda client, name: client.watch(name),
    "validators": lambda _, name: xp.Client(BOOTSTRAP, validators={name: lambda _: ()}),
    "types": lambda _, name: xp.Client(BOOTSTRAP, types=[xp.TypeSpec(name)]),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_no_type_is_refused_before_anything_is_sent(use: str) -> None:
    with pytest.raises(xp.UsageError, match=r"unknown resource type 'cluser': use one of .*; did you mean cluster"):
        USES[use](xp.Client(BOOTSTRAP), "cluser")


async def test_get_and_list_refuse_it_too() -> None:
    async with xp.Client(BOOTSTRAP) as client:
        for asked in (client.get("cluser", "a"), client.list("cluser")):
            with pytest.raises(xp.UsageError, match="did you mean cluster"):
                await asked


async def test_a_scripted_peer_answers_by_every_name_of_a_type() -> None:
    peer = ScriptedPeer()
    async with xp.Client(BOOTSTRAP, connect=peer.connect) as client:
        asked = asyncio.create_task(client.get(Cluster, "a", timeout=20))
        stream = await peer.accept()
        await stream.request()
        stream.respond("cds", Cluster(name="a"))
        assert (await asked).name == "a"
        with pytest.raises(xp.UsageError, match="unknown resource type"):
            stream.respond("cluser")
