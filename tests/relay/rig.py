"""A server, relays and clients of them in one program, on a clock that jumps: everything but a network.

Between each two of them is a `Wire`, which can be cut, and remembers what was said on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import Follower, bootstrap, quiet
from tests.support.facts import each_of
from xdsprism.client.transport import ByteStream, Ended, Transport
from xdsprism.core.model.events import Key
from xdsprism.core.model.facts import Fact
from xdsprism.core.policy.identity import Identity, parse_identity
from xdsprism.core.session.session import Session
from xdsprism.relay.relay import Relay
from xdsprism.server.calls import Peer
from xdsprism.server.engine_grpcio import Conversation
from xdsprism.server.hub import Hub
from xdsprism.server.large_messages import LargeMessages
from xdsprism.server.methods import V2, V3, discovery_methods
from xdsprism.serving import RECEIVE_BYTES

ADS = "/envoy.service.discovery.{}.AggregatedDiscoveryService/{}AggregatedResources"

# PRX-15: how the relay asks, and how it is asked.
MODES = [(up, down) for up in (True, False) for down in (True, False)]
MODE_IDS = [f"{'delta' if up else 'sotw'}-{'delta' if down else 'sotw'}" for up, down in MODES]


class Wire:
    """A transport to a hub, as a client has one to a server: the server's own loops run at the other end."""

    def __init__(self, hub: Hub, address: str = "wire", proved: tuple[Identity, ...] = ()) -> None:
        self.hub = hub
        self.address = address  # of whoever is at the other end
        self.proved = proved  # by the certificate of whoever is at the other end
        self.down = False
        self.delay = 0.0  # seconds that it takes to connect
        self.opened: list[float] = []  # when somebody tried
        self.ends: list[WireEnd] = []
        self._methods = {each.path: each for api in (V2, V3) for each in discovery_methods(hub, api)}

    def connect(self, _server: object) -> Transport:
        return self

    async def open(self, path: str) -> ByteStream:
        self.opened.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)  # a real one takes a moment too
        if self.down:
            raise Ended("UNAVAILABLE", "connection refused")
        end = WireEnd(path)
        call = self._methods[path].open(Peer(self.address, proved=self.proved))
        end.task = asyncio.ensure_future(Conversation(call, end.server, LargeMessages(RECEIVE_BYTES)).run())
        self.ends.append(end)
        return end

    async def close(self) -> None:
        """Nothing to let go of."""

    def cut(self, *, down: bool = False) -> None:
        """Every stream is over, without a word; `down`: and there are no others."""
        self.down = down
        for end in self.ends:
            end.lose()

    @property
    def requests(self) -> list[Any]:
        """All that was asked on the newest stream."""
        return self.ends[-1].requests

    @property
    def responses(self) -> list[Any]:
        return self.ends[-1].responses


class WireEnd:
    """One stream, as its client has it."""

    def __init__(self, path: str) -> None:
        self.server = _ServerEnd(self)
        self.task: asyncio.Future[None] | None = None
        self.requests: list[Any] = []
        self.responses: list[Any] = []
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.unread: asyncio.Queue[bytes | Ended] = asyncio.Queue()
        self.window: asyncio.Semaphore | None = None  # how much may be written that nobody reads
        delta = path.rpartition("/")[2].startswith("Delta")
        self._request: Any = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
        self._response: Any = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
        self.is_over = False

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)
        if self.is_over:
            raise Ended("UNAVAILABLE", "the wire is cut")
        self.requests.append(self._request.FromString(message))
        self.incoming.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self.unread.get()
        if isinstance(message, Ended):
            self.unread.put_nowait(message)
            raise message
        if self.window is not None:
            self.window.release()
        return message

    def cancel(self) -> None:
        self.is_over = True
        if self.task is not None:
            self.task.cancel()

    def lose(self) -> None:
        self.cancel()
        self.unread.put_nowait(Ended("UNAVAILABLE", "the wire is cut"))

    async def write(self, message: bytes) -> None:
        if self.window is not None:
            await self.window.acquire()
        self.responses.append(self._response.FromString(message))
        self.unread.put_nowait(message)


class _ServerEnd:
    """What a Conversation needs of a gRPC context."""

    def __init__(self, end: WireEnd) -> None:
        self._end = end

    async def read(self) -> Any:
        return await self._end.incoming.get()

    async def write(self, message: bytes) -> None:
        await self._end.write(message)

    async def abort(self, status: grpc.StatusCode, details: str) -> None:
        self._end.unread.put_nowait(Ended(status.name, details))


class Origin:
    """The server behind the relay, with the store that decides everything."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.store = xp.Store()
        self.hub = Hub(self.store, xp.Settings(**settings), loop.time, loop.call_soon)
        self.wire = Wire(self.hub)

    def put(self, *messages: Any, when: str | None = None, **options: Any) -> None:
        with self.store.transaction() as tx:
            for message in messages:
                tx.put(message, when=when, **options)

    def vary(self, **variants: Any) -> None:
        """One variant for each env, in one transaction."""
        with self.store.transaction() as tx:
            for env, message in variants.items():
                tx.put(message, when=f"env={env}")

    def delete(self, type_url: str, name: str, when: str | None = None) -> None:
        with self.store.transaction() as tx:
            tx.delete(type_url, name, when=when)

    def asked(self, type_url: str) -> list[Key]:
        """The subscriptions that there are now, of all streams."""
        found = (session for each in self.hub.connected() for session in each.stream.sessions.values())
        return [key for session in found if session.table.spec.url == type_url for key in session.subscriptions]


class Station:
    """A relay without a port, and the wire to it."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.hub = relay.server.hub
        self.wire = Wire(self.hub)

    def facts(self, kind: type[Fact]) -> list[Any]:
        found: list[Any] = []
        self.hub.readers.append(lambda facts: found.extend(fact for fact in each_of(facts) if isinstance(fact, kind)))
        return found

    def sessions(self) -> list[Session]:
        return [session for each in self.hub.connected() for session in each.stream.sessions.values()]

    @asynccontextmanager
    async def client(
        self,
        *,
        delta: bool = True,
        metadata: Mapping[str, str] | None = None,
        node: str = "client",
        address: str | None = None,
        identity: str | None = None,
        **options: Any,
    ) -> AsyncIterator[xp.Client]:
        """One of many; `metadata` is what the node says of itself. What it is told to drop, it drops."""
        source = bootstrap(node={"id": node, "cluster": "clients", "metadata": dict(metadata or {})})
        settings = {"fail_on_data_errors": True, **options}
        wire = self.wire if address is None else Wire(self.hub, f"ipv4:{address}:1")
        wire = wire if identity is None else Wire(self.hub, wire.address, parse_identity(identity))
        async with xp.Client(source, delta=delta, connect=wire.connect, **settings) as client:
            yield client

    async def raw(self, *, delta: bool = True, v2: bool = False, identity: str | None = None) -> Raw:
        wire = self.wire if identity is None else Wire(self.hub, proved=parse_identity(identity))
        return Raw(await wire.open(ADS.format("v2" if v2 else "v3", "Delta" if delta else "Stream")), delta=delta)


class Raw:
    """A client by hand, where each message matters."""

    def __init__(self, end: Any, *, delta: bool) -> None:
        self.end = end
        self._delta = delta
        self._node: Any = Node(id="raw")

    def of(self, **metadata: str) -> Raw:
        self._node.metadata.update(metadata)
        return self

    def be(self, node: Any) -> Raw:
        self._node = node
        return self

    async def send(self, **fields: Any) -> None:
        if self._node is not None:
            fields["node"], self._node = self._node, None
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        await self.end.send(kind(**fields).SerializeToString())

    async def want(self, type_url: str, *names: str, params: Mapping[str, str] | None = None, **fields: Any) -> None:
        located = [pb.ResourceLocator(name=name, dynamic_parameters=dict(params or {})) for name in names]
        kind = "names" if params is None else "locators"
        field = f"resource_{kind}_subscribe" if self._delta else f"resource_{kind}"
        await self.send(type_url=type_url, **{field: names if params is None else located}, **fields)

    async def ack(self, response: Any, **fields: Any) -> None:
        if not self._delta:
            fields.setdefault("version_info", response.version_info)
        await self.send(type_url=response.type_url, response_nonce=response.nonce, **fields)

    async def read(self) -> Any:
        """The next response."""
        message = await self.end.receive()
        return (pb.DeltaDiscoveryResponse if self._delta else pb.DiscoveryResponse).FromString(message)

    async def rest(self) -> list[Any]:
        """Everything that comes until all are quiet; it is not answered."""
        await quiet()
        return [await self.read() for _ in range(self.end.unread.qsize())]

    def close(self) -> None:
        self.end.cancel()


@asynccontextmanager
async def station(connect: Any, source: Any = None, *, settings: Any = None, **options: Any) -> AsyncIterator[Station]:
    """A relay whose servers are reached by `connect`."""
    relay = Relay(source or bootstrap(), settings=settings, connect=connect, **options)
    relay.enter()
    try:
        yield Station(relay)
    finally:
        await relay.stop()


@asynccontextmanager
async def chain(relays: int = 1, **options: Any) -> AsyncIterator[tuple[Origin, Sequence[Station]]]:
    """A server, and relays in a row behind it."""
    origin = Origin()
    stations: list[Station] = []
    wire = origin.wire
    try:
        for _ in range(relays):
            relay = Relay(bootstrap(), connect=wire.connect, **options)
            relay.enter()
            stations.append(Station(relay))
            wire = stations[-1].wire
        yield origin, stations
    finally:
        for each in reversed(stations):
            await each.relay.stop()


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[Origin, Station]]:
    """A server and one relay."""
    async with chain(1, **options) as (origin, (only,)):
        yield origin, only


async def marks(follower: Follower) -> list[tuple[str, str]]:
    """What came until all are quiet: names, each with the mark of its contents, or what is wrong."""
    await quiet()
    return [(update.name, _mark(update)) for update in follower.seen()]


def _mark(update: xp.Update) -> str:
    error = update.error or update.ambient_error
    if error is not None:
        return error.status if update.error else f"({error.status})"
    for field in ("alt_stat_name", "stat_prefix"):
        if hasattr(update.resource, field):
            return str(getattr(update.resource, field))
    named = getattr(update.resource, "named_endpoints", None)
    return next(iter(named), "") if named is not None else next(iter(update.resource.internal_only_headers), "")


def held(response: Any) -> dict[str, bytes]:
    """What is in a response, by name."""
    if isinstance(response, pb.DeltaDiscoveryResponse):
        return {each.name or each.resource_name.name: each.resource.value for each in response.resources}
    return {str(number): each.value for number, each in enumerate(response.resources)}
