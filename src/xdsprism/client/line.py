"""The line to one server: opens streams, writes what the core asks, hands it what is read. It decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from ..core.codec.client_side import RequestEncoder, ResponseDecoder
from ..core.model.steps import Steps, finish
from ..core.watch.subscriber import Subscriber
from ..core.watch.upstream import Upstream
from ..errors import PeerError, WatchError
from ..observe.logs import log
from .transport import ByteStream, Ended, Transport

T = TypeVar("T")

LINGER = 0.5  # seconds: no server that does not read keeps a client from closing for longer


class Do(Protocol):
    """Runs work, and returns what that returns."""

    async def __call__(self, steps: Steps[T], /) -> T: ...


async def at_once(steps: Steps[T]) -> T:
    return finish(steps)


class Line:
    """Runs for as long as its upstream is wanted."""

    def __init__(  # noqa: PLR0913 # what a client has anyway
        self,
        subscriber: Subscriber,
        upstream: Upstream,
        *,
        transport: Transport,
        path: Callable[[], str],
        encoder: Callable[[], RequestEncoder],
        decoder: Callable[[], ResponseDecoder],
        settle: Callable[[], None],
        taken: Callable[[], Awaitable[None]],
        chance: Callable[[], float],
        work: Do,
        aside: Do,
    ) -> None:
        self.transport = transport
        self._subscriber = subscriber
        self._upstream = upstream
        self._path = path  # these three for each stream: which protocol it has is found out (PRX-33)
        self._encoder = encoder
        self._decoder = decoder
        self._settle = settle  # after everything that the core was told
        self._taken = taken  # watchers have what the last response brought
        self._chance = chance
        self._work = work  # takes in what was read, at once or in slices
        self._aside = aside  # finds and encodes what to write, which waits for no other work
        # One at a time, so that no question is taken for answered by a response that was read before it was written.
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._said = asyncio.Event()  # nothing waits to be written, or there is no stream to write it on
        self._said.set()

    def wake(self) -> None:
        self._woken.set()
        if self._upstream.connected:
            self._said.clear()

    async def flush(self) -> None:
        """Say what is to be said before the end: a server would never hear that its last response was refused."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self._said.wait()

    async def run(self) -> None:
        while self._upstream.wanted:
            await self._pause(self._upstream.retry_at - self._loop.time())
            if self._upstream.wanted:
                await self._stream()
            if not self._upstream.wanted:
                self._upstream.closed()
                await self.transport.close()  # who wants it meanwhile finds this loop still running

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
            self._upstream.prepare()
            stream = await self.transport.open(self._path())
            try:
                await self._converse(stream)
            finally:
                stream.cancel()
        except PeerError as error:
            self._ended(WatchError(error.status if error.status != "OK" else "UNAVAILABLE", error.message))
        except Exception as error:  # noqa: BLE001
            # A slip of ours, or an address that gRPC can't make sense of: watchers are told, and it is tried again.
            log.exception("the stream to %s failed", self._upstream.label)
            self._ended(WatchError("INTERNAL", f"{self._upstream.label}: {error!r}"))

    def _ended(self, error: WatchError) -> None:
        if self._upstream.wanted:
            self._subscriber.ended(self._upstream, error, self._loop.time(), self._chance())
            self._settle()

    async def _converse(self, stream: ByteStream) -> None:
        """Until one end is done: with the server's reason, which reading knows better than writing."""
        self._subscriber.opened(self._upstream, self._loop.time())
        self._said.clear()
        self._settle()
        reading = asyncio.create_task(self._read(stream))
        writing = asyncio.create_task(self._write(stream))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._said.set()
            for task in (reading, writing):
                task.cancel()
            outcomes = await asyncio.gather(reading, writing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):  # and not that it was cancelled
                raise outcome
        if self._upstream.is_spent:
            self._upstream.renewed()

    async def _read(self, stream: ByteStream) -> None:
        decoder = self._decoder()
        while True:
            message = await stream.receive()
            self._upstream.stop_reading(self._loop.time())
            async with self._turn:
                try:
                    response = await self._work(decoder.decoding(message))
                    await self._work(self._subscriber.receiving(self._upstream, response, self._loop.time()))
                except PeerError as error:
                    raise Ended(error.status, f"{self._upstream.label}: {error.message}") from error
            self._settle()
            await self._taken()
            self._upstream.read_on(self._loop.time())
            self._settle()

    async def _write(self, stream: ByteStream) -> None:
        encoder = self._encoder()
        while self._upstream.wanted and not self._upstream.is_spent:
            self._woken.clear()
            async with self._turn:
                requests = await self._aside(self._subscriber.polling(self._upstream, self._loop.time()))
            for type_url, asked in requests:
                await stream.send(await self._aside(encoder.encoding(type_url, asked.body)))
            self._settle()
            if self._upstream.is_behind:
                self._woken.set()
            if not self._woken.is_set():
                self._said.set()
            await self._woken.wait()
            await asyncio.sleep(0)  # whatever else is wanted in this turn goes along
