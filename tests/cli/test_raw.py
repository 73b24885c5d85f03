"""How the end of a raw stream is told, whichever way grpc.aio puts it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from xdsprism import CLUSTER, PeerError, XdsError
from xdsprism.client.raw import Query, RawStream, Update


class Ended:
    """A call whose writes fail."""

    def __init__(self, error: Exception, status: grpc.StatusCode = grpc.StatusCode.OK) -> None:
        self._error = error
        self._status = status

    async def write(self, _: bytes) -> None:
        raise self._error

    async def code(self) -> grpc.StatusCode:
        return self._status

    async def details(self) -> str:
        return "the details"


def _error(status: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (Ended(asyncio.InvalidStateError()), XdsError, "here:1 ended the stream"),
        (
            Ended(asyncio.InvalidStateError(), grpc.StatusCode.ABORTED),
            PeerError,
            "ABORTED: here:1: the details",
        ),
        (Ended(_error(grpc.StatusCode.INTERNAL, "Internal error from Core")), XdsError, "here:1 ended the stream"),
        (Ended(_error(grpc.StatusCode.UNAVAILABLE, "gone")), PeerError, "UNAVAILABLE: here:1: gone"),
    ],
)
async def test_an_ack_that_meets_the_end_of_the_stream_says_how_it_ended(
    call: Any, kind: type[Exception], message: str
):
    stream = RawStream("here:1", Query(CLUSTER, (), None, delta=True), lambda _, __: "")
    stream._call = call
    with pytest.raises(XdsError) as told:
        await stream.acknowledge(Update("", "n", (), (), ()))
    assert (type(told.value), str(told.value)) == (kind, message)
    await stream._channel.close()
