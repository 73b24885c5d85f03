"""A client transport that leads to a hub in the same process, without a network."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain

from ..client.transport import ByteStream, Ended
from ..errors import PeerError
from ..server.calls import Call, CallPort, Peer
from ..server.hub import Hub
from ..server.methods import V2, V3, discovery_methods, load_methods
from .fake_transport import FakeTransport


class HubTransport(FakeTransport):
    """Connects a client to a hub, without a network or threads; works in a TimelessLoop too.

        transport = HubTransport(hub)
        async with xdsprism.Client(bootstrap, connect=transport.connect) as client:
            ...
            transport.go_down()  # break every stream, and refuse new ones
            transport.come_up()

    The hub must use the clock of the loop: `Hub(store, Settings(), loop.time, loop.call_soon)`. Every server of the
    bootstrap leads to this hub. Give each server its own transport where they differ.
    """

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        methods = [(*discovery_methods(hub, api), *load_methods(hub, api)) for api in (V3, V2)]
        self._methods = {method.path: method for method in chain.from_iterable(methods)}
        self._streams: list[_HubStream] = []

    def _open(self, path: str) -> ByteStream:
        method = self._methods.get(path)
        if method is None:
            raise Ended("UNIMPLEMENTED", f"no method {path}")
        stream = _HubStream(method.open(Peer("memory")))
        self._streams = [*(other for other in self._streams if not other.is_over), stream]
        return stream

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(not stream.is_over for stream in self._streams)

    def cut(self, status: str = "UNAVAILABLE", message: str = "connection reset") -> None:
        """Break every open stream with this status."""
        for stream in self._streams:
            stream.end(Ended(status, message))

    def go_down(self, message: str = "connection refused") -> None:
        """Break every open stream, and refuse new ones until `come_up`."""
        super().go_down(message)
        self.cut()


class _HubStream(CallPort):
    """One stream. It polls the server's call only when the client reads, as over a slow network."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._unread: deque[bytes] = deque()
        self._awake = asyncio.Event()
        self._ended: Ended | None = None
        call.attach(self)

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    def wake(self) -> None:
        self._awake.set()

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)
        if self._ended is not None:
            raise self._ended
        try:
            self._call.receive(message)
        except PeerError as error:
            self.end(Ended(error.status, error.message))
        self._awake.set()

    async def receive(self) -> bytes:
        while not self._unread:
            if self._ended is not None:
                raise self._ended
            self._awake.clear()
            last = self._call.finished
            self._unread.extend(self._call.poll())
            if not self._unread and last:
                self.end(Ended("OK", "the server is done"))
            elif not self._unread:
                await self._sleep()
        return self._unread.popleft()

    def cancel(self) -> None:
        self.end(Ended("CANCELLED", "the client is done"))

    def end(self, reason: Ended) -> None:
        if self._ended is None:
            self._ended = reason
            self._call.close()
            self._awake.set()

    async def _sleep(self) -> None:
        due = self._call.deadline()
        timer = asyncio.get_running_loop().call_at(due, self._awake.set) if due is not None else None
        try:
            await self._awake.wait()
        finally:
            if timer is not None:
                timer.cancel()
