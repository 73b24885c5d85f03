"""The end of a server on grpcio, when grpc holds a call that it never gave us."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from xdsprism.server import engine_grpcio
from xdsprism.server.engine_grpcio import GrpcioEngine

LOST = "/lost.Service/Method"


class Losing(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Takes a call and never ends it, beside the engine and unknown to it."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()

    def service(self, handler_call_details: Any) -> Any:
        async def never_end(_: object, context: object) -> None:
            del context
            self.taken.set()
            await asyncio.get_running_loop().create_future()

        if handler_call_details.method == LOST:
            return grpc.stream_stream_rpc_method_handler(never_end)
        return None


async def test_a_call_that_grpc_lost_does_not_delay_the_stop_until_the_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # OPS-9
    monkeypatch.setattr(engine_grpcio, "LAST_BYTES", 0.01)
    losing = Losing()
    engine = GrpcioEngine([], receive_bytes=1_000)
    monkeypatch.setattr(engine, "service", losing.service)
    address = await engine.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(LOST, None, None)()
        await asyncio.wait_for(losing.taken.wait(), 30)
        await asyncio.wait_for(engine.stop(grace=3_600), 30)
        assert await call.code() is not grpc.StatusCode.OK
