"""The requests that a client still sends before it closes."""

from __future__ import annotations

import asyncio

import pytest

import xdsprism as xp
from tests.client.rig import accept, both, clock, cluster, follow, talk, timeless
from xdsprism.client.line import LINGER


# NAK-23: one answer for each response, the last one too
@both
@pytest.mark.parametrize("valid", [True, False])
@timeless
async def test_the_answer_to_the_last_response_is_written(delta, valid):
    contents = cluster("a")
    if not valid:
        contents.connect_timeout.SetInParent()
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.CLUSTER, contents)
        await watcher.next()
    (answer, *_) = stream.pending()
    assert (answer.response_nonce, answer.HasField("error_detail")) == ("n1", not valid)
    assert clock() == 0


@both
@timeless
async def test_a_server_that_does_not_read_is_not_waited_for_long(delta, monkeypatch):
    async with talk(delta=delta) as (client, peer):
        watcher = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        monkeypatch.setattr(stream.client_end, "send", _never)
        stream.respond(xp.CLUSTER, cluster("a"))
        await watcher.next()
    assert clock() == LINGER


@both
@timeless
async def test_without_a_stream_there_is_nothing_to_wait_for(delta):
    async with talk(delta=delta) as (client, peer):
        peer.go_down()
        watcher = follow(client, xp.CLUSTER, "a")
        await watcher.next()
    assert clock() == 0


async def _never(_: bytes) -> None:
    await asyncio.Event().wait()
