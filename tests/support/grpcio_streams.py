"""A program: calls on one channel of grpcio. Usage: grpcio_streams.py ADDRESS WINDOW

Opens calls as it is told, and prints what comes of them. Orders and events are those of interop/go/streams/main.go.
"""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64decode, b64encode
from typing import Any

import grpc
import grpc.aio

LONGEST_LINE = 1 << 30


def report(call: int, **event: Any) -> None:
    print(json.dumps({"call": call, **event}), flush=True)


class Call:
    def __init__(self, channel: grpc.aio.Channel, asked: dict[str, Any]) -> None:
        method = channel.stream_stream(asked["method"], None, None)
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.reading = asyncio.Event()
        if not asked.get("held"):
            self.reading.set()
        self.call = method(timeout=asked.get("deadline") or None, wait_for_ready=True)
        self._number = asked["call"]
        self._tasks = [asyncio.create_task(each) for each in (self._write(), self._read(), self._end())]

    async def _write(self) -> None:
        try:
            while (body := await self.outbox.get()) is not None:
                await self.call.write(body)
            await self.call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            return  # its end is told by another

    async def _read(self) -> None:
        await self.reading.wait()
        try:
            while (body := await self.call.read()) is not grpc.aio.EOF:
                report(self._number, message=b64encode(body).decode())
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            return

    async def _end(self) -> None:
        code = await self.call.code()
        if self.reading.is_set():
            await self._tasks[1]
        report(self._number, status=code.value[0], details=await self.call.details() or "")


async def main(address: str, window: str) -> None:
    options: list[tuple[str, int]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 200),  # by default, the waits between two tries grow to two minutes
        ("grpc.max_reconnect_backoff_ms", 200),
    ]
    if int(window):
        options += [("grpc.http2.lookahead_bytes", int(window)), ("grpc.http2.bdp_probe", 0)]
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    calls: dict[int, Call] = {}
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        while line := await reader.readline():
            obey(channel, calls, json.loads(line))


def obey(channel: grpc.aio.Channel, calls: dict[int, Call], asked: dict[str, Any]) -> None:
    number = asked["call"]
    match asked["do"]:
        case "open":
            calls[number] = Call(channel, asked)
        case "send":
            calls[number].outbox.put_nowait(b64decode(asked["body"]))
        case "read":
            calls[number].reading.set()
        case "finish":
            calls[number].outbox.put_nowait(None)
        case "cancel":
            calls[number].call.cancel()
        case other:
            raise AssertionError(other)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
