"""A listener on the line: every xDS message between a client and a server, in the order in which it passed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

from xdsprism.core.codec.salvage import salvaged

_STREAMS = 32
# Nothing is too long, and a server that is back is found at once.
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
]


@dataclass(frozen=True, slots=True)
class Message:
    """One message, and the number of the stream that it went over."""

    stream: int
    kind: str
    """The last word of the type URL: `VirtualHost`."""
    body: Any
    """The message itself: DiscoveryRequest or -Response, or their Delta forms."""


class Tap(grpc.GenericRpcHandler):
    """Passes every stream on to the server at a port, and keeps what passes. It has a port of its own."""

    def __init__(self, port: int) -> None:
        self.requests: list[Message] = []
        self.responses: list[Message] = []
        self.streams: dict[int, str] = {}
        """The method of each stream, by its number."""
        self._numbers = itertools.count()
        self._calls: dict[int, Any] = {}
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS)
        server_options = [*_OPTIONS[:2], ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(_STREAMS), handlers=(self,), options=server_options)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._channel.close()
        self._server.stop(None).wait()

    def cut(self) -> None:
        """End every stream: the client comes back."""
        for call in [*self._calls.values()]:
            call.cancel()

    def subscribed(self, kind: str) -> list[str]:
        """Every name that a delta stream subscribed to, in order; again on each new stream."""
        mine = [message.body for message in self.requests if message.kind == kind]
        return [name for body in mine for name in body.resource_names_subscribe]

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(partial(self._pass_on, call.method))

    def _pass_on(self, method: str, requests: Iterable[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = next(self._numbers)
        self.streams[stream] = method
        form = "DeltaDiscovery" if method.rpartition("/")[2].startswith("Delta") else "Discovery"
        request = partial(_keep, stream, getattr(discovery_pb2, f"{form}Request"), self.requests)
        response = partial(_keep, stream, getattr(discovery_pb2, f"{form}Response"), self.responses)
        call = self._channel.stream_stream(method)(map(request, _until_it_breaks(requests)))
        context.add_callback(call.cancel)
        self._calls[stream] = call
        try:
            yield from map(response, call)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        finally:
            del self._calls[stream]


def _until_it_breaks(requests: Iterable[bytes]) -> Iterator[bytes]:
    """A client that is gone has no more to say."""
    with contextlib.suppress(grpc.RpcError):
        yield from requests


def _keep(stream: int, form: type, log: list[Message], raw: bytes) -> bytes:
    try:
        body = form.FromString(raw)
    except DecodeError:  # a name in it is not UTF-8: the rest is kept
        body = form.FromString(salvaged(raw, delta=form is discovery_pb2.DeltaDiscoveryRequest).message)
    log.append(Message(stream, body.type_url.rpartition(".")[2], body))
    return raw
