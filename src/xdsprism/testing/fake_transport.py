"""A client transport without a network, whose server a test can take down and bring up again."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from ..client.transport import ByteStream, Ended


class FakeTransport(ABC):
    """Opens streams in memory, or refuses them as the test says. Subclasses provide the server's end."""

    def __init__(self) -> None:
        self.opened = 0  # streams that the client tried to open, refused ones too
        self._refusals: deque[Ended] = deque()
        self._down: Ended | None = None

    def connect(self, _server: object) -> Self:
        """Serve as the `connect` function of a Client, for any server of its bootstrap."""
        return self

    # -- the client's end

    async def open(self, path: str) -> ByteStream:
        """Open a stream, or raise the refusal that the test asked for."""
        self.opened += 1
        await asyncio.sleep(0)  # a real transport does not open at once either
        refusal = self._refusals.popleft() if self._refusals else self._down
        if refusal is not None:
            raise refusal
        return self._open(path)

    @abstractmethod
    def _open(self, path: str) -> ByteStream:
        """Open a stream to the server's end."""

    async def close(self) -> None:  # noqa: B027 # part of the transport's contract
        """Do nothing: there is no connection to close."""

    # -- the test's end

    def refuse(self, status: str = "UNAVAILABLE", message: str = "connection refused") -> None:
        """Refuse the next stream that the client opens; each call refuses one more."""
        self._refusals.append(Ended(status, message))

    def go_down(self, message: str = "connection refused") -> None:
        """Refuse every stream until `come_up`."""
        self._down = Ended("UNAVAILABLE", message)

    def come_up(self) -> None:
        """Accept streams again."""
        self._down = None
