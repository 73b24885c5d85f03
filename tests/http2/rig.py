"""A client by hand: frames in, frames out, each byte as a test wants it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import hpack

from xdsprism.http2 import frames
from xdsprism.http2.codes import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Code,
)
from xdsprism.http2.connection import Connection
from xdsprism.http2.limits import ConnectionCount, Limits, Times
from xdsprism.http2.rpc import RpcConnection, RpcEvent

REQUEST = ((":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "here"))
CALL = (*REQUEST, ("content-type", "application/grpc"), ("te", "trailers"))


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    number: int
    payload: bytes

    @property
    def code(self) -> Code:
        """Of RST_STREAM or GOAWAY."""
        assert self.kind in (RST_STREAM, GOAWAY)
        return Code(frames.UINT32.unpack_from(self.payload, 0 if self.kind == RST_STREAM else 4)[0])


def parse(written: bytes) -> list[Frame]:
    found = []
    while written:
        high, low, kind, flags, number = frames.HEADER.unpack_from(written)
        size = 9 + (high << 8 | low)
        assert len(written) >= size, "half a frame was written"
        found.append(Frame(kind, flags, number, written[9:size]))
        written = written[size:]
    return found


def of(kind: int, found: Iterable[Frame]) -> list[Frame]:
    return [frame for frame in found if frame.kind == kind]


def block(fields: Sequence[tuple[str, str]] = REQUEST) -> bytes:
    """Plain literals: no state, so that tests may say anything in any order."""
    return b"".join(
        b"\0" + hpack.hpack.encode_integer(len(name), 7) + name + hpack.hpack.encode_integer(len(value), 7) + value
        for name, value in ((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)
    )


def headers(number: int, fields: Sequence[tuple[str, str]] = REQUEST, *, last: bool = False) -> bytes:
    return frames.headers(number, block(fields), last=last)


def data(number: int, body: bytes = b"", *, last: bool = False) -> bytes:
    return frames.frame(DATA, END_STREAM if last else 0, number, body)


def message(body: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + frames.UINT32.pack(len(body)) + body


class Client:
    """Talks to a connection; what it says and hears is bytes."""

    def __init__(
        self,
        limits: Limits | None = None,
        settings: Sequence[tuple[int, int]] = (),
        *,
        greet: bool = True,
        times: Times | None = None,
        age: float = float("inf"),
    ) -> None:
        self.now = 0.0
        self.count = ConnectionCount(limits or Limits())
        self.rpcs = RpcConnection(limits or Limits(), times or Times(), 0.0, "peer", age=age, count=self.count)
        self.connection: Connection = self.rpcs.connection
        self.events: list[RpcEvent] = []
        self.decoder = hpack.Decoder()
        self.hello = parse(self.rpcs.out.take_output())
        if greet:
            self.greeting = self.say(PREFACE, frames.settings(settings))

    def say(self, *said: bytes) -> list[Frame]:
        """What is answered to all of it."""
        self.events += self.rpcs.receive(b"".join(said), self.now)
        return self.hear()

    def hear(self) -> list[Frame]:
        found: list[Frame] = []
        while True:
            self.events += self.rpcs.send_queued()
            written = self.rpcs.out.take_output()
            found += parse(written)
            if not written or not self.rpcs.out.can_write_more:
                return found

    def tick(self, now: float) -> list[Frame]:
        self.now = now
        self.events += self.rpcs.tick(now)
        return self.hear()

    def take(self) -> list[RpcEvent]:
        events, self.events = self.events, []
        return events

    def fields(self, frame: Frame) -> dict[str, str]:
        assert frame.kind == HEADERS
        return {str(name): str(value) for name, value in self.decoder.decode(frame.payload)}

    @property
    def alive(self) -> bool:
        """It answers."""
        if self.connection.failed is not None:
            return False
        (pong,) = self.say(frames.ping(b"12345678"))
        return pong.payload == b"12345678"


def reset_code(found: Sequence[Frame], number: int = 1) -> Code:
    """The stream was reset, and the connection goes on."""
    assert not of(GOAWAY, found), found
    (reset,) = of(RST_STREAM, found)
    assert reset.number == number
    return reset.code


def goaway_code(found: Sequence[Frame]) -> Code:
    (goaway,) = of(GOAWAY, found)
    return goaway.code


def bodies(found: Iterable[Frame], number: int = 1) -> bytes:
    return b"".join(frame.payload for frame in found if frame.kind == DATA and frame.number == number)


def setting(frame: Frame) -> dict[int, int]:
    assert frame.kind == SETTINGS
    return dict(frames.parse_settings(frame.payload))


def increment(frame: Frame) -> int:
    assert frame.kind == WINDOW_UPDATE
    return int(frames.UINT32.unpack(frame.payload)[0])


def only(events: Sequence[Any], kind: type) -> Any:
    (found,) = [event for event in events if isinstance(event, kind)]
    return found
