"""How the end of a gRPC stream is reported, in every form that grpc.aio gives it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from xdsprism.client.transport import Ended, GrpcStream

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED


class Over:
    """A call that has ended with a status, and whose writes and reads fail."""

    def __init__(self, error: Exception, status: grpc.StatusCode = OK, details: str = "") -> None:
        self._error = error
        self._status = status
        self._details = details

    async def write(self, _: bytes) -> None:
        raise self._error

    async def read(self) -> Any:
        return grpc.aio.EOF

    async def code(self) -> grpc.StatusCode:
        return self._status

    async def details(self) -> str:
        return self._details

    def cancel(self) -> None:
        """It is over."""


def _error(status: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Over(asyncio.InvalidStateError()), "OK: here:1 ended the stream"),
        (Over(asyncio.InvalidStateError(), ABORTED, "why"), "ABORTED: here:1: why"),
        (Over(_error(grpc.StatusCode.INTERNAL, "Internal error from Core")), "UNAVAILABLE: here:1 ended the stream"),
        (Over(_error(grpc.StatusCode.UNAVAILABLE, "gone")), "UNAVAILABLE: here:1: gone"),
    ],
)
async def test_a_write_that_meets_the_end_of_the_stream_says_how_it_ended(call: Over, told: str):
    with pytest.raises(Ended) as ended:
        await GrpcStream(lambda: call, "here:1").send(b"")
    assert str(ended.value) == told


async def test_the_end_of_what_can_be_read_says_how_it_ended():
    with pytest.raises(Ended, match="ABORTED: here:1: why"):
        await GrpcStream(lambda: Over(ValueError(), ABORTED, "why"), "here:1").receive()


class Unended(Over):
    """A call that does not end by itself, and has one message to read."""

    async def read(self) -> Any:
        return b"message"

    async def code(self) -> grpc.StatusCode:
        await asyncio.sleep(3600)
        return OK


LOST = _error(grpc.StatusCode.INTERNAL, "Internal error from Core")
NO_METHOD = Over(LOST, grpc.StatusCode.UNIMPLEMENTED, "no such method")


async def test_a_lost_status_is_found_by_a_call_on_which_nothing_is_written():
    # PRX-33: a server without a method ends that one too, and there is no write that could meet its end
    calls = iter([Over(LOST), NO_METHOD])
    with pytest.raises(Ended, match="UNIMPLEMENTED: here:1: no such method"):
        await GrpcStream(lambda: next(calls), "here:1").send(b"")


async def test_a_lost_status_stays_lost_where_such_a_call_goes_on():
    calls = iter([Over(LOST), Unended(LOST)])
    with pytest.raises(Ended, match="UNAVAILABLE: here:1 ended the stream"):
        await GrpcStream(lambda: next(calls), "here:1").send(b"")


async def test_a_status_that_is_lost_after_an_answer_is_not_looked_for():
    calls = iter([Unended(LOST)])
    stream = GrpcStream(lambda: next(calls), "here:1")
    assert await stream.receive() == b"message"
    with pytest.raises(Ended, match="UNAVAILABLE: here:1 ended the stream"):
        await stream.send(b"")
