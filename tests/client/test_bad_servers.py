"""Servers that break the protocol, or break off, over streams in memory; `test_bad_lines.py` has the network.

Whatever a server does, the client says so, keeps what was good, goes on when the server is good again, and has nothing
left over at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from tests.client.rig import (
    BOOT,
    accept,
    both,
    clock,
    cluster,
    endpoint,
    exchange,
    follow,
    listener,
    quiet,
    silent,
    status,
    talk,
    timeless,
)
from tests.client.soundness import sound, soundly
from xdsprism.client import checks
from xdsprism.client.transport import Ended
from xdsprism.core.model.facts import Fact, Lost, Rejected
from xdsprism.messages.protos import find_message
from xdsprism.testing import PeerStream

STATUSES = [code.name for code in grpc.StatusCode]

Bad = Callable[[PeerStream], None]


def response(stream: PeerStream, *items: tuple[str, bytes], nonce: str = "bad") -> Any:
    """Resources as type and bytes, past all that would make sense of them."""
    if not stream.is_delta:
        packed = [AnyMessage(type_url=url, value=body) for url, body in items]
        return pb.DiscoveryResponse(type_url=xp.CLUSTER, version_info="bad", nonce=nonce, resources=packed)
    made = pb.DeltaDiscoveryResponse(type_url=xp.CLUSTER, system_version_info="bad", nonce=nonce)
    for url, body in items:
        made.resources.add(name="a", version="bad", resource=AnyMessage(type_url=url, value=body))
    return made


def a(mark: str = "bad") -> bytes:
    return cluster("a", mark).SerializeToString()


# -- what can't be read at all ends the stream

UNREADABLE: dict[str, Bad] = {
    "garbage": lambda stream: stream.send(b"\xff" * 64),
    "half a response": lambda stream: stream.send(response(stream, (xp.CLUSTER, a())).SerializeToString()[:-7]),
    "text that is not UTF-8": lambda stream: stream.send(b"\x0a\x02\xff\xfe"),
    "a length beyond the end": lambda stream: stream.send(b"\x12\xff\xff\xff\xff\x0f"),
}


@both
@pytest.mark.parametrize("send", UNREADABLE.values(), ids=UNREADABLE)
@timeless
async def test_a_message_that_is_no_response_ends_the_stream_and_the_next_one_goes_on(send: Bad, delta: bool) -> None:
    # CLI-16, CLI-17
    async with sound(), talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        told: list[Fact] = []
        client.readers.append(told.extend)
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        send(stream)
        await stream.cancelled.wait()
        assert "not a discovery response" in next(fact.error for fact in told if isinstance(fact, Lost))
        again, _ = await accept(peer)
        assert clock() == 0  # the stream had answered before
        send(again)
        again, _ = await accept(peer)
        assert clock() == pytest.approx(1)  # but this one had not
        assert [status(each) for each in watched.seen()] == [("resource", "a"), ("ambient", "INTERNAL")]
        assert (await client.get(xp.CLUSTER, "a")).alt_stat_name == "1"
        await exchange(again, xp.CLUSTER, cluster("a", "2"))
        assert (await watched.next()).resource == cluster("a", "2")
        await watched.close()


@both
@timeless
async def test_a_server_that_only_sends_garbage_is_retried_with_backoff(delta: bool) -> None:
    # CLI-17
    async with sound(), talk(delta=delta, chance=lambda: 0.5) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        times = []
        for _ in range(12):
            stream, _ = await accept(peer)
            times.append(clock())
            stream.send(b"\xff" * 64)
        pauses = [after - before for before, after in pairwise(times)]
        assert pauses[:4] == pytest.approx([1, 1.6, 2.56, 4.096])
        assert pauses[-1] == pytest.approx(1.6**10)
        assert [status(each) for each in watched.seen()] == [("error", "INTERNAL")]  # once is enough
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        assert (await watched.next()).resource == cluster("a", "1")
        await watched.close()


# -- what can be read and not be used is refused

REFUSED: dict[str, Bad] = {
    "contents that can't be decoded": lambda stream: stream.send(response(stream, (xp.CLUSTER, b"\xff\xff\xff"))),
    "another type inside": lambda stream: stream.send(response(stream, (xp.LISTENER, b""))),
    "no type inside": lambda stream: stream.send(response(stream, ("", a()))),
    "the same name twice": lambda stream: stream.send(response(stream, (xp.CLUSTER, a()), (xp.CLUSTER, a("worse")))),
    "the same twice": lambda stream: stream.send(response(stream, (xp.CLUSTER, a()), (xp.CLUSTER, a()))),
    "against the rules": lambda stream: stream.respond(xp.CLUSTER, _broken("a"), version="bad", nonce="bad"),
}


def _broken(name: str) -> Any:
    made = cluster(name, "bad")
    made.connect_timeout.seconds = -1  # validate.rules: greater than 0
    return made


@both
@pytest.mark.parametrize("send", REFUSED.values(), ids=REFUSED)
@timeless
async def test_an_unusable_response_is_nacked_and_the_last_good_value_stays(send: Bad, delta: bool) -> None:
    # NAK-15, NAK-16, NAK-18, NAK-19, NAK-20, NAK-25
    async with sound(), talk(delta=delta) as (client, peer):
        told: list[Fact] = []
        client.readers.append(told.extend)
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        send(stream)
        nack = await stream.request()
        assert (nack.response_nonce, nack.error_detail.code) == ("bad", 3)
        assert delta or nack.version_info == "1"
        assert [fact.version for fact in told if isinstance(fact, Rejected)] == ["bad"]
        assert await silent(stream)
        assert (await client.get(xp.CLUSTER, "a")) == cluster("a", "1")
        await exchange(stream, xp.CLUSTER, cluster("a", "2"), version="2", nonce="n2")
        updates = [each for each in watched.seen() if each.ambient_error is None]
        assert [each.resource.alt_stat_name for each in updates] == ["1", "2"]
        await watched.close()


@both
@pytest.mark.parametrize("send", [*REFUSED.values()][-1:], ids=[*REFUSED][-1:])
@timeless
async def test_an_unusable_first_response_is_an_error_until_a_good_one_comes(send: Bad, delta: bool) -> None:
    # NAK-15, NAK-21
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        send(stream)
        assert (await stream.request()).error_detail.code == 3
        await quiet(60)
        assert [status(each) for each in watched.seen()] == [("error", "INVALID_ARGUMENT")]
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        assert (await watched.next()).resource == cluster("a", "1")
        await watched.close()


@timeless
async def test_a_name_that_is_both_added_and_removed_is_refused_and_kept() -> None:
    # NAK-26
    async with sound(), talk(delta=True) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"), cluster("b", "1"))
        nack = await exchange(stream, xp.CLUSTER, cluster("a", "2"), cluster("b", "2"), nonce="n2", removed=["a"])
        assert "both has it and removes it" in nack.error_detail.message
        assert (await client.get(xp.CLUSTER, "a")) == cluster("a", "1")
        assert (await client.get(xp.CLUSTER, "b")) == cluster("b", "2")
        await watched.close()


@both
@timeless
async def test_a_validator_that_fails_refuses_the_resource_and_not_the_stream(delta: bool) -> None:
    # NAK-14, NAK-15
    def picky(message: Any) -> list[str]:
        return [] if message.alt_stat_name == "1" else message.no_such_field

    async with sound(), talk(delta=delta, validators={xp.CLUSTER: picky}) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a", "b")
        stream, _ = await accept(peer)
        nack = await exchange(stream, xp.CLUSTER, cluster("a", "1"), cluster("b", "2"))
        assert "its validator failed: AttributeError" in nack.error_detail.message
        assert sorted(status(each) for each in watched.seen()) == [("error", "INVALID_ARGUMENT"), ("resource", "a")]
        await watched.close()


# -- what nobody asked for


@both
@timeless
async def test_unrequested_resources_are_acked_and_not_kept(delta: bool) -> None:
    # CLI-7
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.ENDPOINT, "a")
        stream, _ = await accept(peer)
        strangers = [endpoint(f"s{number}") for number in range(1000)]
        ack = await exchange(stream, xp.ENDPOINT, endpoint("a", "1"), *strangers)
        assert not ack.HasField("error_detail")
        assert [status(each) for each in watched.seen()] == [("resource", "a")]
        assert [entry.name for entry in client.subscriber.entries()] == ["a"]
        await watched.close()


@both
@timeless
async def test_responses_of_unrequested_types_are_neither_answered_nor_decoded(
    delta: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NAK-22
    looked_up: list[str] = []
    monkeypatch.setattr(checks, "find_message", lambda name: looked_up.append(name) or find_message(name))
    checks._kind.cache_clear()  # noqa: SLF001 # other tests may have asked for the same types
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.respond(xp.LISTENER, listener("a"))
        stream.send(b"")  # a response without anything
        for number in range(500):
            stream.respond(f"type.googleapis.com/envoy.made.up.V{number}", cluster("a"))
        assert await silent(stream)
        assert watched.seen() == []
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        assert looked_up == ["envoy.config.cluster.v3.Cluster"]
        assert (await watched.next()).resource == cluster("a", "1")
        await watched.close()


@both
@timeless
async def test_a_response_without_a_nonce_is_used_and_answered_like_any(delta: bool) -> None:
    # NAK-23
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        for mark in "123":
            ack = await exchange(stream, xp.CLUSTER, cluster("a", mark), version=mark, nonce="")
            assert (ack.response_nonce, ack.HasField("error_detail")) == ("", False)
            assert delta or ack.version_info == mark
            assert await silent(stream)
        assert [each.resource.alt_stat_name for each in watched.seen()] == ["1", "2", "3"]
        await watched.close()


# -- far too much


@both
@timeless
async def test_ten_thousand_updates_at_once_are_all_answered_and_the_last_one_stands(delta: bool) -> None:
    # CLI-20, NAK-23
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        for number in range(10_000):
            stream.respond(xp.CLUSTER, cluster("a", str(number)), version=str(number), nonce=str(number))
        await quiet()
        assert [ack.response_nonce for ack in stream.pending()] == [str(number) for number in range(10_000)]
        assert [each.resource.alt_stat_name for each in watched.seen()][-1] == "9999"
        assert clock() == 1
        await watched.close()


@both
@timeless
async def test_a_watcher_that_takes_its_time_leaves_the_rest_of_a_flood_unread(delta: bool) -> None:
    # CLI-20
    async with sound(), talk(delta=delta) as (client, peer), client.watch(xp.CLUSTER, "a") as updates:
        first = asyncio.ensure_future(anext(updates))
        stream, _ = await accept(peer)
        for number in range(1000):
            stream.respond(xp.CLUSTER, cluster("a", str(number)), version=str(number), nonce=str(number))
        await first
        await quiet(100)
        assert stream.unread.qsize() >= 997
        assert (await client.get(xp.CLUSTER, "a")).alt_stat_name in "0123"
        async for update in updates:
            if update.resource.alt_stat_name == "999":
                break


# -- breaking off


async def _end_at_once(peer: Any, code: str) -> None:
    (await peer.accept()).end(code, "so there")


async def _end_after_the_request(peer: Any, code: str) -> None:
    stream, _ = await accept(peer)
    stream.end(code, "so there")


async def _end_unopened(peer: Any, code: str) -> None:
    peer.refuse(code, "so there")


async def _end_after_nonsense(peer: Any, code: str) -> None:
    stream, _ = await accept(peer)
    stream.respond(xp.LISTENER, listener("x"))
    stream.end(code, "so there")


STAGES = [_end_unopened, _end_at_once, _end_after_the_request, _end_after_nonsense]


@both
@pytest.mark.parametrize("end", STAGES)
@timeless
@soundly
async def test_a_stream_that_ends_before_a_response_is_reported_and_tried_again_after_backoff(
    end: Any, delta: bool
) -> None:
    # CLI-17
    for code in STATUSES:
        began = clock()
        async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
            watched = follow(client, xp.CLUSTER, "a")
            await end(peer, code)
            failure = await watched.next()
            assert status(failure) == ("error", "UNAVAILABLE" if code == "OK" else code)
            assert "so there" in str(failure.error)
            stream, _ = await accept(peer)
            assert clock() - began == pytest.approx(1)
            await exchange(stream, xp.CLUSTER, cluster("a", code))
            assert (await watched.next()).resource.alt_stat_name == code
            await watched.close()


@both
@timeless
@soundly
async def test_a_stream_that_ends_after_a_response_is_opened_again_without_an_error(delta: bool) -> None:
    # CLI-16; CLI-17 for the second, which has no response before its end
    for code in STATUSES:
        began = clock()
        async with talk(delta=delta, chance=lambda: 0.5) as (client, peer):
            watched = follow(client, xp.CLUSTER, "a")
            stream, _ = await accept(peer)
            await exchange(stream, xp.CLUSTER, cluster("a", "1"))
            stream.end(code, "so there")
            stream, _ = await accept(peer)
            assert clock() == began
            assert [status(each) for each in watched.seen()] == [("resource", "a")]
            stream.end(code, "so there")
            assert status(await watched.next()) == ("ambient", "UNAVAILABLE" if code == "OK" else code)
            stream, _ = await accept(peer)
            await exchange(stream, xp.CLUSTER, cluster("a", "2"))
            assert (await watched.next()).resource == cluster("a", "2")
            await watched.close()


class Breaking:
    """A transport whose streams break under a read and a write in the same moment."""

    def __init__(self) -> None:
        self.opened = 0
        self.breaks = asyncio.Event()

    async def open(self, _path: str) -> Any:
        self.opened += 1
        return self

    async def send(self, _message: bytes) -> None:
        await self.receive()

    async def receive(self) -> bytes:
        await self.breaks.wait()
        raise Ended("ABORTED", "so there")

    def cancel(self) -> None: ...

    async def close(self) -> None: ...


@both
@timeless
async def test_an_end_that_reading_and_writing_both_meet_is_one_end(delta: bool) -> None:
    # CLI-17
    breaking = Breaking()
    async with sound(), xp.Client(BOOT, connect=lambda _: breaking, delta=delta, chance=lambda: 0.5) as client:
        watched = follow(client, xp.CLUSTER, "a")
        await quiet()
        breaking.breaks.set()
        assert status(await watched.next()) == ("error", "ABORTED")
        await quiet(3)
        assert breaking.opened == 3  # at 0, 2 and 3.6


@timeless
async def test_a_server_that_comes_back_with_nothing_to_say_can_be_asked_for_more() -> None:
    # CLI-6, CLI-17: a delta server that has nothing newer is silent, so its first response may never come
    async with sound(), talk(delta=True) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        peer.refuse()
        stream.end("UNAVAILABLE", "so there")
        stream, _ = await accept(peer)
        assert [status(each) for each in watched.seen()] == [("resource", "a"), ("ambient", "UNAVAILABLE")]
        await quiet(3600)
        other = follow(client, xp.CLUSTER, "b")
        await stream.request()
        await exchange(stream, xp.CLUSTER, cluster("b", "1"), nonce="n2")
        assert [status(each) for each in other.seen()] == [("resource", "b")]
        await watched.close()
        await other.close()


@both
@timeless
async def test_a_server_that_never_answers_is_reported_and_may_answer_later(delta: bool) -> None:
    # CLI-11, CLI-13
    async with sound(), talk(delta=delta) as (client, peer):
        watched = follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        assert status(await watched.next()) == ("error", "NOT_FOUND")
        assert clock() == 15
        await quiet(3600)
        assert watched.seen() == []
        await exchange(stream, xp.CLUSTER, cluster("a", "1"))
        assert (await watched.next()).resource == cluster("a", "1")
        await watched.close()


@timeless
async def test_a_client_that_is_still_connecting_can_be_closed() -> None:
    # CLI-24
    class Hanging:
        async def open(self, _path: str) -> Any:
            await asyncio.Event().wait()

        async def close(self) -> None: ...

    async with sound():
        client = xp.Client(BOOT, connect=lambda _: Hanging())
        async with client:
            asked = asyncio.ensure_future(client.get(xp.CLUSTER, "a"))
            await quiet()
        with pytest.raises(xp.WatchError, match="CANCELLED"):
            await asked
