"""The transport on grpc.aio: a loop around each call, and nothing about the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

from ..errors import PeerError, UsageError
from .calls import Call, Method

log = logging.getLogger("xdsprism.server")

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # two servers on one port by mistake must fail, not share
    # Envoy and gRPC send keepalives of their own; do not answer those with GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class GrpcioEngine(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Serves methods of bytes with grpc.aio."""

    def __init__(self, methods: Iterable[Method], *, receive_bytes: int) -> None:
        self._methods = {method.path: method for method in methods}
        self._calls: set[Call] = set()
        options = (*OPTIONS, ("grpc.max_receive_message_length", receive_bytes))
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))

    async def start(self, listen: str) -> str:
        """Bind and serve; returns the address, with the port that was chosen for port 0."""
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise UsageError(f"can't listen on {listen}: the address is in use, or not one of this machine") from error
        await self._server.start()
        return f"{listen.rpartition(':')[0]}:{port}"

    async def stop(self, grace: float) -> None:
        """Let every stream end cleanly; after `grace` seconds end those that did not."""
        for call in list(self._calls):
            call.end()
        await self._server.stop(grace)

    def service(self, handler_call_details: Any) -> Any:
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None

        async def serve(_: object, context: Any) -> None:
            await self._serve(method, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, method: Method, context: Any) -> None:
        call = method.open(context.peer())
        awake = asyncio.Event()
        call.wake = awake.set
        self._calls.add(call)
        reason = ""
        reader = asyncio.current_task()
        pump = asyncio.create_task(self._pump(call, context, awake))
        pump.add_done_callback(lambda done: _stop_reader(done, reader))
        try:
            await self._read(call, context, awake)
            await pump
        except PeerError as error:
            reason = str(error)
            await context.abort(grpc.StatusCode[error.status], error.message)
        except asyncio.CancelledError:
            if not pump.done() or pump.cancelled():
                raise  # the client left
            reason = await _failed(pump, context)
        finally:
            pump.cancel()
            self._calls.discard(call)
            call.close(reason)

    async def _read(self, call: Call, context: Any, awake: asyncio.Event) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            call.receive(message)
            awake.set()
        call.half_close()
        awake.set()

    async def _pump(self, call: Call, context: Any, awake: asyncio.Event) -> None:
        """Write what there is, as fast as the peer reads it; sleep until there is more."""
        loop = asyncio.get_running_loop()
        while True:
            awake.clear()
            try:
                for message in call.poll():
                    await context.write(message)
            except grpc.aio.InternalError:
                return  # the peer went away while it was written to
            if call.finished:
                return
            deadline = call.deadline()
            timer = loop.call_at(deadline, awake.set) if deadline is not None else None
            await awake.wait()
            if timer is not None:
                timer.cancel()


def _stop_reader(pump: asyncio.Task[None], reader: asyncio.Task[Any] | None) -> None:
    """The pump is done before the client is: the server drains, or the pump failed. Either ends the call."""
    if reader is not None and not pump.cancelled():
        reader.cancel()


async def _failed(pump: asyncio.Task[None], context: Any) -> str:
    """OPS-10: an exception while serving one stream closes only that stream."""
    error = pump.exception()
    if error is None:
        return ""
    log.error("a stream failed", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {error!r}")
    return repr(error)
