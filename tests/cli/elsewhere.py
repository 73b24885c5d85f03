"""A scripted server over real gRPC, which records the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Self

import grpc
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support.waiting import eventually


class Elsewhere:
    """Its first answer to anything is these bytes (none: no answer); then it stays silent."""

    def __init__(self, answer: bytes = b"") -> None:
        self.methods: list[str] = []
        self._requests: list[bytes] = []
        self._answer = answer
        self._over = Event()
        self._server = grpc.server(ThreadPoolExecutor(4), handlers=[_Any(self._serve)])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._server.stop(None).wait()

    def request(self, number: int = 0) -> Any:
        """What came, by its number: waits for it."""
        message = eventually(lambda: self._requests[number : number + 1])[0]
        kind = pb.DeltaDiscoveryRequest if "Delta" in self.methods[0] else pb.DiscoveryRequest
        return kind.FromString(message)

    def _serve(self, method: str, requests: Iterator[bytes]) -> Iterator[bytes]:
        self.methods.append(method)
        self._requests.append(next(requests))
        if self._answer:
            yield self._answer
        for request in requests:
            self._requests.append(request)
        self._over.wait(60)


class _Any(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, serve: Callable[[str, Iterator[bytes]], Iterator[bytes]]) -> None:
        self._serve = serve

    def service(self, call: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(lambda requests, _: self._serve(call.method, requests))


Serve = Callable[..., Elsewhere]
