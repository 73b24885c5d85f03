"""Programs that open plain gRPC calls on one channel, as a test tells them: `interop/*/streams` and grpcio's."""

from __future__ import annotations

import json
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support.programs import Program
from tests.support.toolchains import STREAMS, command
from tests.support.waiting import eventually

_ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
DELTA = _ADS + "DeltaAggregatedResources"
SOTW = _ADS + "StreamAggregatedResources"

LANGUAGES = ("grpcio", *STREAMS)


class End(NamedTuple):
    """How a call ended."""

    status: str
    details: str


def argv_of(language: str) -> list[str | Path]:
    """The command of the program of a language, which is built first where that is due."""
    if language == "grpcio":
        return [sys.executable, Path(__file__).with_name("grpcio_streams.py")]
    return command(f"{language}-streams")


class Channel:
    """One running program, with one channel to one address."""

    def __init__(self, argv: Sequence[str | Path], address: str, folder: Path, window: int = 0) -> None:
        """`window`: of streams and, where a library can say that, of the connection; 0: whatever it likes best."""
        line = [*argv, address, str(window)]
        self.program = Program("streams", line, folder / "streams.log", pipe=True, obeys=True)
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def open(self, method: str, *, deadline: float | None = None, held: bool = False) -> Call:
        """A call; what comes to one that is `held` is not read, and so stays in its window, until it is told to."""
        call = Call(self, next(self._numbers))
        self._calls[call.number] = call
        self.tell("open", call.number, method=method, deadline=deadline or 0, held=held)
        return call

    def discovery(self, node: str, *, delta: bool = True, deadline: float | None = None, held: bool = False) -> Ads:
        return Ads(self.open(DELTA if delta else SOTW, deadline=deadline, held=held), node, delta=delta)

    def tell(self, do: str, call: int, **fields: Any) -> None:
        self.program.require_alive()
        self.program.stdin.write(json.dumps({"do": do, "call": call, **fields}).encode() + b"\n")
        self.program.stdin.flush()

    def _read(self) -> None:
        for line in self.program.stdout:
            event = json.loads(line)
            call = self._calls[event["call"]]
            if "message" in event:
                call.messages.append(b64decode(event["message"]))
            else:
                call.end = End(_STATUS[event["status"]], event["details"])

    def close(self) -> None:
        self.program.kill()
        self._reader.join()
        self.program.stdout.close()
        self.program.stdin.close()


_STATUS = {code.value[0]: code.name for code in grpc.StatusCode}


class Call:
    """One call: what came, and how it ended."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.number = number
        self.messages: list[bytes] = []
        self.end: End | None = None
        self._channel = channel

    def send(self, message: bytes) -> None:
        self._channel.tell("send", self.number, body=b64encode(message).decode())

    def read(self) -> None:
        self._channel.tell("read", self.number)

    def finish(self) -> None:
        self._channel.tell("finish", self.number)

    def cancel(self) -> None:
        self._channel.tell("cancel", self.number)

    def wait(self, seen: Callable[[], Any]) -> Any:
        """Wait for something that only a living program brings."""

        def look() -> Any:
            self._channel.program.require_alive()
            return seen()

        try:
            return eventually(look)
        except AssertionError as error:
            raise AssertionError(f"call {self.number} has {len(self.messages)} messages, {self.end}: {error}") from None

    def message(self, number: int) -> bytes:
        """Wait for the message of that number, counted from 1. An end before it is an error."""
        self.wait(lambda: len(self.messages) >= number or self.end)
        assert len(self.messages) >= number, f"ended with {self.end} after {len(self.messages)} messages"
        return self.messages[number - 1]

    def ended(self) -> End:
        self.wait(lambda: self.end)
        assert self.end is not None
        return self.end


class Ads:
    """A stream of discovery messages on a call."""

    def __init__(self, call: Call, node: str, *, delta: bool) -> None:
        self.call = call
        self._delta = delta
        self._node = {"id": node}
        self._taken = 0

    def ask(self, type_url: str, *names: str) -> None:
        key = "resource_names_subscribe" if self._delta else "resource_names"
        self._send(type_url=type_url, **{key: names})

    def answer(self) -> Any:
        """The next response, which is ACKed."""
        self._taken += 1
        response = (pb.DeltaDiscoveryResponse if self._delta else pb.DiscoveryResponse).FromString(
            self.call.message(self._taken)
        )
        fields = {} if self._delta else {"version_info": response.version_info, "resource_names": self._names}
        self._send(type_url=response.type_url, response_nonce=response.nonce, **fields)
        return response

    def _send(self, **fields: Any) -> None:
        self._names = fields.get("resource_names", ())
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        self.call.send(kind(node=self._node, **fields).SerializeToString())

    def has_more(self) -> bool:
        return len(self.call.messages) > self._taken


def bodies(response: Any) -> Iterator[bytes]:
    """What a response of either kind brings."""
    for resource in response.resources:
        yield resource.resource.value if isinstance(response, pb.DeltaDiscoveryResponse) else resource.value
