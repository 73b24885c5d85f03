"""Requests on grpc.aio: large ones are split, and a busy call reads no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from xdsprism.core.codec.pieces import RequestPieces
from xdsprism.http2.grpc import PiecesFactory
from xdsprism.server.calls import Call
from xdsprism.server.engine_grpcio import Conversation
from xdsprism.server.large_messages import CHUNK, LargeMessages

LIMIT = 1_000


def request(count: int) -> bytes:
    """A DeltaDiscoveryRequest that subscribes to so many names, each of 100 bytes on the wire."""
    return b"".join(b"\x1a\x62" + b"%098d" % number for number in range(count))


class Message(bytes):
    """Tells when nobody has it any more."""

    def __del__(self) -> None:
        gone.append(len(self))


gone: list[int] = []


class HeldCall(Call):
    """Takes one message, and then no more until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[bytes] = []
        self.said: list[bytes] = []  # what to write
        self.reason: str | None = None  # for which it was closed

    def receive(self, message: bytes) -> None:
        self.received.append(message)
        self.port.hold_back(waits=True)

    def poll(self) -> Iterator[bytes]:
        while self.said:
            yield self.said.pop()

    def close(self, reason: str = "") -> None:
        self.reason = reason


class Context:
    """What a Conversation needs of a gRPC context: a client that sends what it is told, and does not read."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.taken = 0  # messages
        self.status: tuple[str, str] | None = None
        self.reads = asyncio.Event()
        self.reads.set()

    async def read(self) -> Any:
        message = await self.sent.get()
        self.taken += 1
        return message

    async def write(self, _: bytes) -> None:
        await self.reads.wait()

    async def abort(self, status: grpc.StatusCode, details: str) -> None:
        self.status = status.name, details


class Side:
    """One call, and the other end of it."""

    def __init__(self, large: LargeMessages, parting: PiecesFactory | None) -> None:
        self.call = HeldCall()
        self.context = Context()
        self.run = asyncio.create_task(Conversation(self.call, self.context, large, parting).run())

    async def send(self, message: bytes) -> None:
        self.context.sent.put_nowait(message)
        await settle()


async def settle() -> None:
    """Let everybody do all that there is to do."""
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def talking(large: LargeMessages, parting: PiecesFactory | None = RequestPieces) -> AsyncIterator[Side]:
    side = Side(large, parting)
    try:
        yield side
    finally:
        side.run.cancel()
        await asyncio.gather(side.run, return_exceptions=True)


@pytest.fixture
def large() -> LargeMessages:
    gone.clear()
    return LargeMessages(LIMIT, 10 * LIMIT)


# OPS-6
async def test_while_a_call_holds_back_no_further_message_is_read(large: LargeMessages) -> None:
    async with talking(large) as side:
        for message in (b"1", b"2", b"3"):
            await side.send(message)
        assert (side.call.received, side.context.taken) == ([b"1"], 1)
        side.call.port.hold_back(waits=False)
        await settle()
        assert (side.call.received, side.context.taken) == ([b"1", b"2"], 2)


# SRV-24, VHD-26
async def test_a_large_request_is_processed_in_pieces_and_then_freed(large: LargeMessages) -> None:
    async with talking(large) as side:
        await side.send(Message(request(25)))
        for count in range(1, 4):
            assert [len(piece) for piece in side.call.received] == [1_000, 1_000, 500][:count]
            assert large.held == 2_500
            side.call.port.hold_back(waits=False)
            await settle()
        assert b"".join(side.call.received) == request(25)
        assert (large.held, gone) == (0, [2_500]), "nothing of it is kept while the next one does not come"
        await side.send(b"next")
        assert side.call.received[-1] == b"next"


# SRV-24
async def test_others_are_served_while_a_large_request_is_parted() -> None:
    whole = LargeMessages(LIMIT)
    chunks = 20
    size = CHUNK * chunks
    seen = []
    async with talking(whole) as side:
        side.context.sent.put_nowait(b"\x1a" + varint(size) + b"x" * size)  # a name that is passed over: no piece
        while not side.call.received:
            await asyncio.sleep(0)
            seen.append(whole.held)
    assert len([held for held in seen if held]) > chunks


# SRV-24
async def test_large_requests_beyond_the_bound_are_refused_for_now(large: LargeMessages) -> None:
    async with talking(large) as first, talking(large) as second, talking(large) as third:
        await first.send(request(60))
        await second.send(request(60))
        assert second.call.received == []
        assert second.context.status == (
            "RESOURCE_EXHAUSTED",
            "large requests of others take 6,000 bytes of 10,000: try again later",
        )
        first.run.cancel()
        await settle()
        assert large.held == 0
        await third.send(request(60))
        assert len(third.call.received[0]) == LIMIT


# SRV-24
async def test_a_message_that_can_not_be_split_is_refused_and_freed_before_its_status_is_read(
    large: LargeMessages,
) -> None:
    async with talking(large, None) as side:
        side.context.reads.clear()
        side.call.said.append(b"which the client does not read")
        side.call.wake()
        await settle()
        await side.send(Message(request(30)))
        assert side.call.reason is not None, "it is closed"
        assert gone == [3_000]
        side.context.reads.set()
        await side.run
        assert side.context.status == (
            "RESOURCE_EXHAUSTED",
            "received message larger than max (3,000 vs. 1,000 bytes)",
        )


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
