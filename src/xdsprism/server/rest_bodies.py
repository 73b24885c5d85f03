"""Keep one client's large REST requests from taking the memory and the time of others.

protobuf's JSON parser is plain Python: 4 MiB take it a second, and it shares the GIL with the event loop. So long
requests are parsed in threads of their own, which nothing else waits for, one request at a time. The addresses have
their turns one after the other, and requests of usual size do not wait for large ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from .rest_json import read_request
from .slicing import LONG_BYTES
from .turns import Turns

HELD = 256 * 1024 * 1024  # bytes of all requests that are not parsed yet; of one address three quarters
FREE = 128 * 1024  # bytes of a request that always has room; Envoy's node has 77 kB
USUAL = 256 * 1024  # bytes; longer requests have a lane of their own


class BodyBytes:
    """Counts the bytes of request bodies that the port holds."""

    def __init__(self, most: int = HELD) -> None:
        self.held = 0
        self._most = most
        self._addresses: Counter[str] = Counter()

    def hold(self, address: str, size: int, more: int) -> bool:
        """Count `more` bytes of a request that has `size` already. False: there is no room for them."""
        if size + more > FREE and (
            self.held + more > self._most or self._addresses[address] + more > self._most * 3 // 4
        ):
            return False
        self.held += more
        self._addresses[address] += more
        return True

    def release(self, address: str, size: int) -> None:
        """Count bytes as gone."""
        self.held -= size
        self._addresses[address] -= size
        if not self._addresses[address]:
            del self._addresses[address]


class _Lane:
    """Parses one request at a time, in a thread. The addresses that wait have turns."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: Turns[tuple[bytes, asyncio.Future[bytes]]] = Turns()
        self._runner: asyncio.Task[None] | None = None  # while something waits or is parsed

    async def parse(self, address: str, text: bytes) -> bytes:
        """Do what `read_request` does, when it is the address's turn."""
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.add(address, (text, done))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        """Parse what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            text, done = self._waiting.take()
            if done.cancelled():
                continue
            parsing = loop.run_in_executor(self._thread, read_request, text)
            await asyncio.wait([parsing])
            if done.cancelled():
                continue
            error = parsing.exception()
            if error is None:
                done.set_result(parsing.result())
            else:
                done.set_exception(error)
        self._runner = None

    def close(self) -> None:
        """Parse nothing more."""
        if self._runner is not None:
            self._runner.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


class BodyParser:
    """Parses the requests of a REST port: short ones at once, others in one of two threads."""

    def __init__(self) -> None:
        self._usual = _Lane("rest")
        self._large = _Lane("rest-large")

    async def parse(self, address: str, text: bytes) -> bytes:
        """Do what `read_request` does."""
        if len(text) <= LONG_BYTES:
            return read_request(text)
        lane = self._usual if len(text) <= USUAL else self._large
        return await lane.parse(address, text)

    def close(self) -> None:
        """Stop parsing. Waiting requests get no answer: the port is closed."""
        self._usual.close()
        self._large.close()
