"""Many clients in one process, each with a connection and a stream of its own, that ask at the same moment.

Their sockets are connected and written to before anything is read, so that a server finds all of it at once. They ACK
what they get and count it; nothing else is looked at, since they share the machine with the server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import uvloop
from envoy.service.discovery.v3 import discovery_pb2 as pb

from bench.churn import header_block
from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, DATA, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, SETTINGS

WIDE = (1 << 31) - 1  # bytes: no window holds the server back
PATIENCE = 120.0  # seconds for what is due


class Line(asyncio.Protocol):
    """One client."""

    def __init__(self, crowd: AtOnce, request: bytes) -> None:
        self._crowd = crowd
        self._request = request
        self._transport: asyncio.WriteTransport | None = None
        self._rest = b""
        self._body = b""
        self.resources = 0

    def opening(self) -> bytes:
        """What a client says first: all that it is going to ask."""
        settings = frames.settings([(INITIAL_WINDOW_SIZE, WIDE)])
        widened = frames.window_update(0, WIDE - 65_535)
        asked = frames.headers(1, self._crowd.block, last=False) + _data(self._request)
        return PREFACE + settings + widened + asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # one of a socket

    def data_received(self, data: bytes) -> None:
        buffer = self._rest + data
        at = 0
        while len(buffer) - at >= 9:
            high, low, kind, flags, _ = frames.HEADER.unpack_from(buffer, at)
            end = at + 9 + (high << 8 | low)
            if len(buffer) < end:
                break
            self._hear(kind, flags, buffer[at + 9 : end])
            at = end
        self._rest = buffer[at:]

    def connection_lost(self, _error: Exception | None) -> None:
        self._crowd.note_lost(self)

    def _hear(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._say(frames.SETTINGS_ACK)
        elif kind == PING and not flags & ACK:
            self._say(frames.PING_ACK + payload)
        elif kind == HEADERS and flags & END_STREAM:
            self._crowd.note_lost(self)
        elif kind == DATA:
            self._body += payload
            while len(self._body) >= 5 and len(self._body) >= (end := 5 + frames.UINT32.unpack_from(self._body, 1)[0]):
                self._answer(self._body[5:end])
                self._body = self._body[end:]

    def _answer(self, message: bytes) -> None:
        if self._crowd.delta:
            came = pb.DeltaDiscoveryResponse.FromString(message)
            ack = pb.DeltaDiscoveryRequest(type_url=came.type_url, response_nonce=came.nonce).SerializeToString()
        else:
            full = pb.DiscoveryResponse.FromString(message)
            asked = pb.DiscoveryRequest.FromString(self._request)
            asked.version_info, asked.response_nonce = full.version_info, full.nonce
            came, ack = full, asked.SerializeToString()
        self._say(_data(ack))
        self.resources += len(came.resources)
        self._crowd.note(self)

    def _say(self, said: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(said)

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class AtOnce:
    """All of them. `delta`: which of the two protocols of ADS they speak."""

    def __init__(self, address: str, requests: Iterable[bytes], *, delta: bool = True) -> None:
        self.delta = delta
        kind = b"Delta" if delta else b"Stream"
        path = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/" + kind + b"AggregatedResources"
        self.block = header_block(path)
        self._address = address
        self._lines = [Line(self, request) for request in requests]
        self._due = 0
        self._waiting: set[Line] = set()
        self._served = asyncio.Event()
        self._lost = 0
        self._leaving = False

    async def __aenter__(self) -> Self:
        """Connect, ask, and only then begin to read."""
        host, _, port = self._address.rpartition(":")
        sockets = [_said((host, int(port)), line.opening()) for line in self._lines]
        loop = asyncio.get_running_loop()
        for line, made in zip(self._lines, sockets, strict=True):
            await loop.create_connection(lambda line=line: line, sock=made)  # type: ignore[misc] # the same type
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        for line in self._lines:
            line.leave()

    async def served(self, each: int) -> None:
        """Wait until each has got so many resources, all in all."""
        self._due = each
        self._served.clear()
        self._waiting = {line for line in self._lines if line.resources < each}
        if self._waiting:
            async with asyncio.timeout(PATIENCE):
                await self._served.wait()

    def note(self, line: Line) -> None:
        if line.resources >= self._due and line in self._waiting:
            self._waiting.discard(line)
            if not self._waiting:
                self._served.set()

    def note_lost(self, _line: Line) -> None:
        if not self._leaving:
            raise SystemExit("the server ended a stream")


def _said(address: tuple[str, int], opening: bytes) -> socket.socket:
    """A connection on which this is said."""
    made = socket.create_connection(address)
    made.sendall(opening)
    made.setblocking(False)  # noqa: FBT003 # positional only
    return made


def _data(message: bytes) -> bytes:
    """A message in frames."""
    body = b"\0" + frames.UINT32.pack(len(message)) + message
    return b"".join(frames.frame(DATA, 0, 1, body[at : at + 16_384]) for at in range(0, len(body), 16_384))


def run_at_once(
    address: str,
    requests: Sequence[bytes],
    each: int,
    then: Callable[[], tuple[float, float]] | None = None,
    *,
    delta: bool = True,
    more: int = 0,
) -> tuple[float, float]:
    """Ask all of this at once, and wait until each client has so many resources.

    `then` is done while they are there; by that, each gets `more` resources.
    """

    async def run() -> tuple[float, float]:
        async with AtOnce(address, requests, delta=delta) as crowd:
            await crowd.served(each)
            if then is None:
                return 0.0, 0.0
            found = await asyncio.to_thread(then)
            await crowd.served(each + more)
            return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
