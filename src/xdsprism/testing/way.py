"""A way to a server that is not there by a network: it can be refused, be gone for a while, and come back."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from ..client.transport import ByteStream, Ended


class Way(ABC):
    """What a client connects by; what is at its other end is for others to say."""

    def __init__(self) -> None:
        self.opened = 0  # streams that were asked for, refused ones too
        self._refusals: deque[Ended] = deque()
        self._down: Ended | None = None

    def connect(self, _server: object) -> Self:
        return self

    # -- the client's end

    async def open(self, path: str) -> ByteStream:
        self.opened += 1
        await asyncio.sleep(0)  # a real one takes a moment too
        refusal = self._refusals.popleft() if self._refusals else self._down
        if refusal is not None:
            raise refusal
        return self._open(path)

    @abstractmethod
    def _open(self, path: str) -> ByteStream:
        """A stream to who is there."""

    async def close(self) -> None:  # noqa: B027 # part of what a transport can do
        """Nothing to let go of."""

    # -- the test's end

    def refuse(self, status: str = "UNAVAILABLE", message: str = "connection refused") -> None:
        """The next stream can't be opened."""
        self._refusals.append(Ended(status, message))

    def go_down(self, message: str = "connection refused") -> None:
        """Until `come_up` no other stream can be opened."""
        self._down = Ended("UNAVAILABLE", message)

    def come_up(self) -> None:
        self._down = None
