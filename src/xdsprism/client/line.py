"""Connect one upstream of the core with a transport: open streams, write requests, pass responses to the core.

It decides nothing. `Upstream` and `Subscriber` decide what to send, when to reconnect and what a response means; this
module awaits. While the upstream is wanted, `run` repeats:

    wait until retry_at ─▶ open a stream ─▶ _read and _write at the same time ─▶ the stream ends

`_read` takes one response at a time: decode, apply, and then wait until the watchers have it, which bounds memory
(CLI-20). `_write` polls the core for requests whenever `wake` was called.
"""

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
from ..observe.lines import log
from .transport import ByteStream, Ended, Transport

T = TypeVar("T")

LINGER = 0.5  # seconds: how long `flush` waits for a server that does not read
# Turns of the event loop that a request waits: in the first, other tasks add subscriptions to it, and a relay publishes
# what it heard; in the second, the relay's clients are written to, who come before the ACK.
TURNS = 2


class Do(Protocol):
    """Runs work that is split into steps, and returns its result."""

    async def __call__(self, steps: Steps[T], /) -> T: ...


async def at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause."""
    return finish(steps)


class Line:
    """The connection to one server, for as long as its upstream is wanted."""

    def __init__(  # noqa: PLR0913 # what a client has anyway
        self,
        subscriber: Subscriber,
        upstream: Upstream,
        *,
        transport: Transport,
        path: Callable[[], str],
        encoder: Callable[[], RequestEncoder],
        decoder: Callable[[], ResponseDecoder],
        after_core_call: Callable[[], None],
        taken: Callable[[], Awaitable[None]],
        chance: Callable[[], float],
        work: Do,
        aside: Do,
    ) -> None:
        self.transport = transport
        self._subscriber = subscriber
        self._upstream = upstream
        self._path = path  # called for each stream, like the next two: a server may turn out to lack delta (PRX-33)
        self._encoder = encoder
        self._decoder = decoder
        self._after_core_call = after_core_call  # called after each input to the core
        self._taken = taken  # waits until watchers have taken the last response
        self._chance = chance
        self._work = work  # decodes and applies a response, at once or in slices
        self._aside = aside  # makes and encodes requests, without waiting for other work
        # Keeps reading and writing apart: otherwise a response that was read before a request went out could seem to
        # answer it.
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._written = asyncio.Event()  # nothing waits to be written, or there is no stream
        self._written.set()

    def wake(self) -> None:
        """Have `_write` poll the core, because subscriptions or answers changed."""
        self._woken.set()
        if self._upstream.connected:
            self._written.clear()

    async def flush(self) -> None:
        """Wait until all requests are written, for LINGER seconds at most.

        Called before the client closes, so that the server learns of the last NACK.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self._written.wait()

    async def run(self) -> None:
        """Keep a stream open for as long as the upstream is wanted."""
        while self._upstream.wanted:
            await self._pause(self._upstream.lifecycle.retry_at - self._loop.time())
            if self._upstream.wanted:
                await self._stream()
            if not self._upstream.wanted:
                self._upstream.closed()
                await self.transport.close()  # if it is wanted again by now, the loop goes on

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or until nobody wants the upstream any more."""
        until = self._loop.time() + seconds
        while self._upstream.wanted and (left := until - self._loop.time()) > 0:
            self._woken.clear()
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                return

    async def _stream(self) -> None:
        """Open a stream and use it until it ends; report the end to the core."""
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
            # An error of this program, or an address that gRPC does not understand: tell watchers, and try again.
            log.exception("the stream to %s failed", self._upstream.label)
            self._ended(WatchError("INTERNAL", f"{self._upstream.label}: {error!r}"))

    def _ended(self, error: WatchError) -> None:
        """Report the end of a stream to the core."""
        if self._upstream.wanted:
            self._subscriber.ended(self._upstream, error, self._loop.time(), self._chance())
            self._after_core_call()

    async def _converse(self, stream: ByteStream) -> None:
        """Read and write until one of both ends, and raise its error.

        If both fail, the error of reading wins, since it has the server's status.
        """
        self._subscriber.opened(self._upstream, self._loop.time())
        self._written.clear()
        self._after_core_call()
        reading = asyncio.create_task(self._read(stream))
        writing = asyncio.create_task(self._write(stream))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._written.set()
            for task in (reading, writing):
                task.cancel()
            outcomes = await asyncio.gather(reading, writing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):  # not a cancellation
                raise outcome
        if self._upstream.is_spent:
            self._upstream.renewed()

    async def _read(self, stream: ByteStream) -> None:
        """Pass each response to the core, one after the other."""
        decoder = self._decoder()
        while True:
            message = await stream.receive()
            self._upstream.pending.stop_reading(self._loop.time())
            async with self._turn:
                try:
                    response = await self._work(decoder.decoding(message))
                    await self._work(self._subscriber.receiving(self._upstream, response, self._loop.time()))
                except PeerError as error:
                    raise Ended(error.status, f"{self._upstream.label}: {error.message}") from error
            self._after_core_call()
            await self._taken()
            self._upstream.pending.read_on(self._loop.time())
            self._after_core_call()

    async def _write(self, stream: ByteStream) -> None:
        """Write the requests of the core."""
        encoder = self._encoder()
        while self._upstream.wanted and not self._upstream.is_spent:
            self._woken.clear()
            async with self._turn:
                requests = await self._aside(self._subscriber.polling(self._upstream, self._loop.time()))
            for type_url, asked in requests:
                await stream.send(await self._aside(encoder.encoding(type_url, asked.body)))
            self._after_core_call()
            if self._upstream.requests.is_behind:
                self._woken.set()
            if not self._woken.is_set():
                self._written.set()
            await self._woken.wait()
            for _ in range(TURNS):
                await asyncio.sleep(0)
