"""A server in this process, and streams to it by hand, of messages or of plain bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self

import grpc
import grpc.aio
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.admin.rig import ADS, Peer
from tests.support import insides
from xdsprism import Server, Store
from xdsprism.core.model.types import make_variant
from xdsprism.core.session.session import Session

PATIENCE = 60.0  # seconds; only a failing test ever waits this long, on a machine that is busy with others too

# A connection of its own for each client, as real ones have (by default those of one process share), and no limit.
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.bdp_probe", 0),  # or windows grow by how busy the machine is, until `heap` fits into one
)

DELTA = ADS + "DeltaAggregatedResources"
SOTW = ADS + "StreamAggregatedResources"


class Stream(Peer):
    """One stream of any method that takes and gives discovery messages."""

    def __init__(
        self, address: str, method: str = DELTA, *, delta: bool | None = None, channel: grpc.aio.Channel | None = None
    ) -> None:
        self._channel = channel or grpc.aio.insecure_channel(address, options=OPTIONS)
        self._beside = channel is not None
        self._delta = "/Delta" in method if delta is None else delta
        self._method = method

    def beside(self, method: str = "") -> Stream:
        """Another stream of the same connection."""
        return Stream("", method or self._method, channel=self._channel)

    async def __aenter__(self) -> Self:
        self._call = self._channel.stream_stream(self._method, None, None)()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._call.cancel()
        if not self._beside:
            await self._channel.close()

    async def send(self, **fields: Any) -> None:
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        await self.send_bytes(kind(**fields).SerializeToString())

    async def subscribe(self, type_url: str, names: Iterable[str]) -> None:
        """Ask, and wait for no answer."""
        key = "resource_names_subscribe" if self._delta else "resource_names"
        await self.send(type_url=type_url, **{key: list(names)})

    async def send_bytes(self, message: bytes) -> None:
        await self._call.write(message)

    async def read_bytes(self) -> bytes:
        message = await asyncio.wait_for(self._call.read(), PATIENCE)
        assert message is not grpc.aio.EOF, "the server ended the stream"
        return message

    async def read(self) -> Any:
        return self.parse(await self.read_bytes())

    def parse(self, message: bytes) -> Any:
        return (pb.DeltaDiscoveryResponse if self._delta else pb.DiscoveryResponse).FromString(message)

    async def ack(self, response: Any, **fields: Any) -> None:
        await self.send(type_url=response.type_url, response_nonce=response.nonce, **fields)

    async def half_close(self) -> None:
        await self._call.done_writing()

    def cancel(self) -> None:
        self._call.cancel()

    async def disconnect(self) -> None:
        await self._channel.close()

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ended. Nothing may be left unread."""
        code = await asyncio.wait_for(self._call.code(), PATIENCE)
        return code, await self._call.details()

    async def outcome(self) -> tuple[grpc.StatusCode, str]:
        """Read on to the end, and how the stream ended."""
        with suppress(grpc.aio.AioRpcError):
            while await asyncio.wait_for(self._call.read(), PATIENCE) is not grpc.aio.EOF:
                pass
        return await self.status()

    async def is_quiet(self, type_url: str, name: str) -> bool:
        """Whether nothing is under way: a question that is always answered is answered next."""
        answer = await self.ask(type_url, [name])
        said = [*answer.removed_resources, *(resource.name for resource in answer.resources)]
        return said == [name]


async def unary(address: str, method: str, message: bytes) -> bytes:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        return await channel.unary_unary(method, None, None)(message, timeout=PATIENCE)


async def until(look: Any, seconds: float = PATIENCE) -> None:
    """Wait until a look at our own state is true; each turn of the loop may change it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not look():
        assert loop.time() < deadline, f"still not so after {seconds:g} s"
        await asyncio.sleep(0.005)


def put(store: Store, *messages: Any) -> None:
    with store.transaction() as tx:
        for message in messages:
            tx.put(message)


def put_bytes(store: Store, type_url: str, name: str, body: bytes) -> None:
    """Any type with any contents, past the checks of `put`."""
    store.apply({(type_url, name): (make_variant(type_url, name, body),)})


def cluster(name: str, tag: str = "", size: int = 0) -> Cluster:
    """A cluster whose content is told by its tag, and which takes about `size` bytes."""
    return Cluster(name=name, alt_stat_name=tag + "." * size)


def heap() -> list[Cluster]:
    """More than sockets and HTTP/2 windows hold: whoever writes it waits for a reader. No part is above the limit."""
    return [cluster(f"heap-{number}", "0", 3_000_000) for number in range(5)]


def tag_of(cluster_bytes: bytes) -> str:
    return Cluster.FromString(cluster_bytes).alt_stat_name.rstrip(".")


def assignment(name: str, overprovisioning: int = 140) -> ClusterLoadAssignment:
    message = ClusterLoadAssignment(cluster_name=name)
    message.policy.overprovisioning_factor.value = overprovisioning
    return message


def names_in(response: Any) -> list[str]:
    """The names of what a delta response brings."""
    return [resource.name for resource in response.resources]


def sessions(server: Server) -> list[Session]:
    return [session for found in server.hub.connected() for session in found.stream.sessions.values()]


def session_of(server: Server, node: str) -> Session:
    """The only session of the only stream of this node."""
    found = [each.stream for each in server.hub.connected() if each.stream.node and each.stream.node.id == node]
    (stream,) = found
    (session,) = stream.sessions.values()
    return session


def footprint(server: Server, type_urls: Iterable[str]) -> dict[str, Any]:
    """All that streams can leave behind in what they share."""
    tables = {url: server.store.table(url) for url in type_urls}
    return {
        "calls": dict(insides.calls(server.hub)),
        "interest": {what: dict(kept) for what, kept in insides.kept_of_interest(server.hub.interest).items()},
        "cursors": {url: dict(insides.cursors(table.everything)) for url, table in tables.items()},
        "log": {url: list(insides.log(table.everything)) for url, table in tables.items()},
        "sessions": {url: table.sessions for url, table in tables.items()},
        "types": {table.spec.url for table in server.store.tables()},
    }
