"""Serves gRPC health checking and server reflection, for any transport; their own libraries have the messages."""

from __future__ import annotations

import importlib
import pkgutil
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ..errors import PeerError
from .calls import Call, Method, UnaryCall

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")

UNANSWERED = 100_000  # bytes of reflection requests that may wait for the client to read responses


class Health:
    """The health of this server: SERVING or NOT_SERVING, the same for all of its services.

    A server does not serve before it has started, or while it drains, nor a relay before it has reached a server.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self.asked: Callable[[], None] | None = None  # called when somebody asks while the server does not serve
        self._services = frozenset(services) | {""}
        self._serving = False
        self._watches: dict[HealthWatch, None] = {}

    def set(self, *, serving: bool) -> None:
        """Change the status, and wake every watch."""
        self._serving = serving
        for watch in self._watches:
            watch.wake()

    def methods(self) -> Iterator[Method]:
        yield Method(f"/{HEALTH}/Check", lambda _: UnaryCall(self._check))
        yield Method(f"/{HEALTH}/List", lambda _: UnaryCall(self._list))
        yield Method(f"/{HEALTH}/Watch", lambda _: HealthWatch(self, self._watches))

    def status(self, service: str) -> int | None:
        """Return the status of a service; None if the server has no such service."""
        if service not in self._services:
            return None
        if not self._serving and self.asked is not None:
            self.asked()
        status = health_pb2.HealthCheckResponse
        return int(status.SERVING if self._serving else status.NOT_SERVING)

    def _check(self, message: bytes) -> bytes:
        service = _parse(health_pb2.HealthCheckRequest, message).service
        status = self.status(service)
        if status is None:
            raise PeerError("NOT_FOUND", f"no service {service!r} here")
        return bytes(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    def _list(self, message: bytes) -> bytes:
        _parse(health_pb2.HealthListRequest, message)
        answer = health_pb2.HealthListResponse()
        for service in sorted(self._services):
            answer.statuses[service].status = self.status(service)
        return bytes(answer.SerializeToString())


class HealthWatch(Call):
    """One Watch call: sends the status at once, and again whenever it changes."""

    def __init__(self, health: Health, watches: dict[HealthWatch, None]) -> None:
        super().__init__()
        self._health = health
        self._watches = watches
        self._service: str | None = None
        self._sent: int | None = None  # the status that the client knows
        watches[self] = None

    def receive(self, message: bytes) -> None:
        self._service = _parse(health_pb2.HealthCheckRequest, message).service
        self.wake()

    def poll(self) -> Iterator[bytes]:
        if self._service is None:
            return
        status = self._health.status(self._service)
        if status is None:
            status = int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        if status != self._sent:
            self._sent = status
            yield health_pb2.HealthCheckResponse(status=status).SerializeToString()

    def half_close(self) -> None:
        if self._service is None:
            raise PeerError("INVALID_ARGUMENT", "nothing to watch: no request came")

    def close(self, reason: str = "") -> None:
        del reason
        self._watches.pop(self, None)


class Reflection(Call):
    """One reflection stream; grpcio-reflection makes each response."""

    def __init__(self, services: Iterable[str]) -> None:
        super().__init__()
        self._servicer = reflection.ReflectionServicer(services, Default())
        self._requests: deque[Any] = deque()
        self._waiting = 0  # bytes of the requests in the queue

    def receive(self, message: bytes) -> None:
        request = _parse(reflection_pb2.ServerReflectionRequest, message)
        self._waiting += request.ByteSize()
        if self._waiting > UNANSWERED:  # OPS-6
            raise PeerError("RESOURCE_EXHAUSTED", "too many requests at once: read the responses first")
        self._requests.append(request)
        self.wake()

    def poll(self) -> Iterator[bytes]:
        """Make each response when it can be written: it may be a thousand times as long as its request."""
        while self._requests:
            request = self._requests.popleft()
            self._waiting -= request.ByteSize()
            for reply in self._servicer.ServerReflectionInfo(iter([request]), None):
                yield reply.SerializeToString()

    def half_close(self) -> None:
        self.finished = True


def reflection_methods(discovery: Collection[str]) -> Iterator[Method]:
    """Return the reflection methods of v1 and v1alpha, whose messages have the same bytes."""
    packages = {service.rpartition(".")[0] for service in discovery}
    names = {*discovery, HEALTH, REFLECTION[0]}  # without v1, which the library can't describe
    for service in REFLECTION:
        yield Method(f"/{service}/ServerReflectionInfo", lambda _: _open_reflection(packages, names))


def _open_reflection(packages: Iterable[str], names: Iterable[str]) -> Reflection:
    for package in packages:
        describe(package)
    return Reflection(names)


@cache
def describe(package: str) -> None:
    """Import the protos of a package, so that the descriptor pool knows them.

    That takes a while, so it waits for the first client that asks.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if found.name.endswith("_pb2"):
            importlib.import_module(f"{package}.{found.name}")


def _parse(kind: type[Message], message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a {kind.DESCRIPTOR.full_name}: {error}") from error
