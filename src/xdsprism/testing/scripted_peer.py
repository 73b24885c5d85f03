"""A server that says what a test tells it to say, at the other end of a transport without a network."""

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
from ..core.model.types import TypeUrl
from .way import Way


class ScriptedPeer(Way):
    """Both ends of a conversation in one program.

        peer = ScriptedPeer()
        async with xdsprism.Client(bootstrap, connect=peer.connect) as client:
            ...
            stream = await peer.accept()
            request = await stream.request()
            stream.respond(request.type_url, cluster, version="1", nonce="n1")

    It is a transport too: every server of the bootstrap leads here. Give each its own peer where they differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: asyncio.Queue[PeerStream] = asyncio.Queue()

    def _open(self, path: str) -> ByteStream:
        stream = PeerStream(path)
        self._waiting.put_nowait(stream)
        return stream.client_end

    async def accept(self) -> PeerStream:
        """The next stream that the client opens."""
        return await self._waiting.get()


class PeerStream:
    """One stream, as its server sees it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_delta = path.rpartition("/")[2].startswith("Delta")
        self.client_end = _ClientEnd(self)
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.unread: asyncio.Queue[bytes | Ended] = asyncio.Queue()
        self.ended: Ended | None = None
        self.cancelled = asyncio.Event()  # the client let go of it

    async def request(self) -> Any:
        """The next request, decoded."""
        return self._decode(await self.requests.get())

    def pending(self) -> list[Any]:
        """The requests that have come and were not looked at."""
        return [self._decode(self.requests.get_nowait()) for _ in range(self.requests.qsize())]

    def send(self, message: bytes | Message) -> None:
        self.unread.put_nowait(message if isinstance(message, bytes) else message.SerializeToString())

    def respond(
        self,
        type_url: TypeUrl,
        *resources: Message,
        version: str = "1",
        nonce: str = "n1",
        removed: tuple[str, ...] = (),
    ) -> None:
        """A response with these resources: messages as they are, or `Resource`s.

        In delta a message is put into a Resource under its name; in SotW it stands alone, and a Resource wraps it.
        """
        response: Any = DeltaDiscoveryResponse() if self.is_delta else DiscoveryResponse()
        response.type_url, response.nonce = type_url, nonce
        if self.is_delta:
            response.system_version_info = version
            response.removed_resources.extend(removed)
            response.resources.extend(_as_resource(type_url, resource, version) for resource in resources)
        else:
            response.version_info = version
            for resource in resources:
                packed = AnyMessage(type_url=type_url, value=resource.SerializeToString())
                if isinstance(resource, Resource):
                    packed.Pack(resource)
                response.resources.append(packed)
        self.send(response)

    def end(self, status: str = "OK", message: str = "bye") -> None:
        """Finish it: the client reads this after all that was sent before."""
        self.ended = Ended(status, message)
        self.unread.put_nowait(self.ended)

    def _decode(self, message: bytes) -> Any:
        return (DeltaDiscoveryRequest if self.is_delta else DiscoveryRequest).FromString(message)


class _ClientEnd:
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
