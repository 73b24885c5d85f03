"""A server whose responses a test writes, at the other end of a transport without a network."""

from __future__ import annotations

import asyncio
from typing import Any

from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Resource,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from ..client.transport import ByteStream, Ended
from ..core.model.type_names import TypeName, resolve_type
from ..core.model.types import TypeUrl
from .fake_transport import FakeTransport


class ScriptedPeer(FakeTransport):
    """A client transport whose streams the test itself serves.

        peer = ScriptedPeer()
        async with xdsprism.Client(bootstrap, connect=peer.connect) as client:
            ...
            stream = await peer.accept()
            request = await stream.request()
            stream.respond(request.type_url, cluster, version="1", nonce="n1")

    Every server of the bootstrap leads to this peer. Give each server its own peer where they differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: asyncio.Queue[PeerStream] = asyncio.Queue()

    def _open(self, path: str) -> ByteStream:
        stream = PeerStream(path)
        self._waiting.put_nowait(stream)
        return stream.client_end

    async def accept(self) -> PeerStream:
        """Wait for the next stream that the client opens."""
        return await self._waiting.get()


class PeerStream:
    """One stream, from the server's end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_delta = path.rpartition("/")[2].startswith("Delta")
        self.client_end = _ClientEnd(self)
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.unread: asyncio.Queue[bytes | Ended] = asyncio.Queue()
        self.ended: Ended | None = None
        self.cancelled = asyncio.Event()  # the client cancelled it

    async def request(self) -> Any:
        """Wait for the next request, and decode it."""
        return self._decode(await self.requests.get())

    def pending(self) -> list[Any]:
        """Return the requests that have arrived and were not read, decoded."""
        return [self._decode(self.requests.get_nowait()) for _ in range(self.requests.qsize())]

    def send(self, message: bytes | Message) -> None:
        """Send any message to the client."""
        self.unread.put_nowait(message if isinstance(message, bytes) else message.SerializeToString())

    def respond(
        self,
        type_url: TypeName,
        *resources: Message,
        version: str = "1",
        nonce: str = "n1",
        removed: tuple[str, ...] = (),
    ) -> None:
        """Send a response with these resources, which are plain messages or `Resource` wrappers.

        A delta stream wraps a plain message in a Resource with its name; a SotW stream sends both as they are.
        """
        response: Any = DeltaDiscoveryResponse() if self.is_delta else DiscoveryResponse()
        url = resolve_type(type_url)
        response.type_url, response.nonce = url, nonce
        if self.is_delta:
            response.system_version_info = version
            response.removed_resources.extend(removed)
            response.resources.extend(_as_resource(url, resource, version) for resource in resources)
        else:
            response.version_info = version
            for resource in resources:
                packed = AnyMessage(type_url=url, value=resource.SerializeToString())
                if isinstance(resource, Resource):
                    packed.Pack(resource)
                response.resources.append(packed)
        self.send(response)

    def end(self, status: str = "OK", message: str = "bye") -> None:
        """End the stream with a status, which the client reads after all messages sent before."""
        self.ended = Ended(status, message)
        self.unread.put_nowait(self.ended)

    def _decode(self, message: bytes) -> Any:
        return (DeltaDiscoveryRequest if self.is_delta else DiscoveryRequest).FromString(message)


class _ClientEnd:
    """The same stream from the client's end."""

    def __init__(self, stream: PeerStream) -> None:
        self._stream = stream

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)
        if self._stream.ended is not None:
            raise self._stream.ended
        self._stream.requests.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self._stream.unread.get()
        if isinstance(message, Ended):
            self._stream.unread.put_nowait(message)
            raise message
        return message

    def cancel(self) -> None:
        self._stream.cancelled.set()


def _as_resource(type_url: TypeUrl, message: Message, version: str) -> Resource:
    if isinstance(message, Resource):
        return message
    name = getattr(message, "name", "") or getattr(message, "cluster_name", "")
    wrapped = Resource(name=name, version=version)
    wrapped.resource.type_url, wrapped.resource.value = type_url, message.SerializeToString()
    return wrapped
