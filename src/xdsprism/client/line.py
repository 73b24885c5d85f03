"""The line to one server: opens streams, writes what the core asks, hands it what is read. It decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..core.replies import RequestEncoder, ResponseDecoder
from ..core.subscriber import Subscriber
from ..core.upstream import Upstream
from ..errors import PeerError, WatchError
from .transport import ByteStream, Ended, Transport


class Line:
    """Runs for as long as its upstream is wanted."""

    def __init__(  # noqa: PLR0913 # what a client has anyway
        self,
        subscriber: Subscriber,
        upstream: Upstream,
        *,
        transport: Transport,
        path: str,
        encoder: Callable[[], RequestEncoder],
        decoder: ResponseDecoder,
        settle: Callable[[], None],
        taken: Callable[[], Awaitable[None]],
        chance: Callable[[], float],
    ) -> None:
        self.transport = transport
        self._subscriber = subscriber
        self._upstream = upstream
        self._path = path
        self._encoder = encoder
        self._decoder = decoder
        self._settle = settle  # after everything that the core was told
        self._taken = taken  # watchers have what the last response brought
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while self._upstream.wanted:
            await self._pause(self._upstream.retry_at - self._loop.time())
            if self._upstream.wanted:
                await self._stream()
        self._upstream.closed()

    async def _pause(self, seconds: float) -> None:
        """Until it is time to try again, or nobody wants to any more."""
        until = self._loop.time() + seconds
        while self._upstream.wanted and (left := until - self._loop.time()) > 0:
            self._woken.clear()
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                return

    async def _stream(self) -> None:
        try:
            stream = await self.transport.open(self._path)
            try:
                await self._converse(stream)
            finally:
                stream.cancel()
        except PeerError as error:
            if self._upstream.wanted:
                told = WatchError(error.status if error.status != "OK" else "UNAVAILABLE", error.message)
                self._subscriber.ended(self._upstream, told, self._loop.time(), self._chance())
                self._settle()

    async def _converse(self, stream: ByteStream) -> None:
        """Until one end is done: with the server's reason, which reading knows better than writing."""
        self._subscriber.opened(self._upstream, self._loop.time())
        self._settle()
        reading = asyncio.create_task(self._read(stream))
        writing = asyncio.create_task(self._write(stream))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.wait([reading, writing])
        for task in (reading, writing):
            if not task.cancelled():
                task.result()

    async def _read(self, stream: ByteStream) -> None:
        while True:
            message = await stream.receive()
            try:
                response = self._decoder.decode(message)
            except PeerError as error:
                raise Ended(error.status, f"{self._upstream.label}: {error.message}") from error
            self._subscriber.receive(self._upstream, response, self._loop.time())
            self._settle()
            await self._taken()

    async def _write(self, stream: ByteStream) -> None:
        encoder = self._encoder()
        while self._upstream.wanted:
            self._woken.clear()
            for type_url, asked in self._subscriber.poll(self._upstream, self._loop.time()):
                await stream.send(encoder.encode(type_url, asked.body))
            self._settle()
            await self._woken.wait()
            await asyncio.sleep(0)  # whatever else is wanted in this turn goes along
