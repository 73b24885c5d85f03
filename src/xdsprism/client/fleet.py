"""Opens many streams to one server to put load on it. The streams ACK every response, and check and keep nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

from ..core.codec.client_side import USER_AGENT, ads_path
from ..core.model.types import TypeUrl
from .bootstrap import ServerConfig
from .transport import ByteStream, GrpcTransport

OnResponse = Callable[["Member", Any], None]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The number of streams, and what they subscribe to."""

    type_url: TypeUrl
    names: tuple[str, ...] = ()  # none: a wildcard
    params: dict[str, str] = field(default_factory=dict)
    delta: bool = True
    connections: int = 1
    at_once: int = 100  # streams that may wait for their first response at the same time

    def request(self, node: Node) -> bytes:
        """Return the first request of a stream."""
        asked: Any = (pb.DeltaDiscoveryRequest if self.delta else pb.DiscoveryRequest)(
            node=node, type_url=self.type_url
        )
        names = self.names or ("*",) if self.delta else self.names
        if self.params:
            locators = asked.resource_locators_subscribe if self.delta else asked.resource_locators
            for name in names or ("*",):
                locators.add(name=name, dynamic_parameters=self.params)
        else:
            (asked.resource_names_subscribe if self.delta else asked.resource_names).extend(names)
        encoded: bytes = asked.SerializeToString()
        return encoded

    def ack(self, response: Any, request: bytes) -> bytes:
        if self.delta:
            answer = pb.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        else:  # every SotW request repeats the subscription
            answer = pb.DiscoveryRequest.FromString(request)
            answer.ClearField("node")
            answer.version_info, answer.response_nonce = response.version_info, response.nonce
        encoded: bytes = answer.SerializeToString()
        return encoded


class Member:
    """One stream, and counts of what it received."""

    def __init__(self, fleet: Fleet, transport: GrpcTransport, node: Node) -> None:
        self.messages = 0
        self.resources = 0
        self.bytes = 0
        self.first: float | None = None  # seconds until the first response
        self._fleet = fleet
        self._transport = transport
        self._request = fleet.plan.request(node)
        self._stream: ByteStream | None = None
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Receive and ACK responses until cancelled. Raises Ended."""
        plan, on_response = self._fleet.plan, self._fleet.on_response
        parse = (pb.DeltaDiscoveryResponse if plan.delta else pb.DiscoveryResponse).FromString
        async with self._fleet.places:
            clock = asyncio.get_running_loop().time
            start = clock()
            message = await self._begin()
            self.first = clock() - start
        while True:
            response = parse(message)
            self.messages += 1
            self.resources += len(response.resources)
            self.bytes += len(message)
            await self.send(plan.ack(response, self._request))
            if self.messages == 1:
                self._fleet.note_answered()  # after the ACK, so that a caller which stops now has sent all ACKs
            on_response(self, response)
            message = await self._receive()

    async def _begin(self) -> bytes:
        self._stream = await self._transport.open(ads_path(v3=True, delta=self._fleet.plan.delta))
        await self.send(self._request)
        return await self._receive()

    async def send(self, message: bytes) -> None:
        """Send a message. One at a time, as grpc.aio requires."""
        assert self._stream is not None  # noqa: S101 # callers send after `_begin` opened it
        async with self._sending:
            await self._stream.send(message)

    async def _receive(self) -> bytes:
        assert self._stream is not None  # noqa: S101
        return await self._stream.receive()


class Fleet:
    """One stream for each node. It calls `on_response` with every response, after the ACK."""

    def __init__(
        self, server: ServerConfig, plan: FleetPlan, nodes: Sequence[Node], on_response: OnResponse = lambda *_: None
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.plan = plan
        self.on_response = on_response
        self.places = asyncio.Semaphore(plan.at_once)
        self._transports = [GrpcTransport(server, clock) for _ in range(plan.connections)]
        self.members = [
            Member(self, self._transports[number * plan.connections // len(nodes)], node)
            for number, node in enumerate(nodes)
        ]
        self._unanswered = len(self.members)
        self._answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def note_answered(self) -> None:
        """Note that one more stream has its first response."""
        self._unanswered -= 1
        if not self._unanswered:
            self._answered.set()

    async def open(self, seconds: float) -> bool:
        """Open all streams; return whether each got its first response in time. Raises Ended if a stream ends."""
        self._tasks = [asyncio.create_task(member.run()) for member in self.members]
        answered = asyncio.create_task(self._answered.wait())
        await self._until(seconds, answered)
        answered.cancel()
        return self._answered.is_set()

    async def stay(self, seconds: float) -> None:
        """Receive responses for so many seconds. Raises Ended if a stream ends."""
        await self._until(seconds)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*[transport.close() for transport in self._transports])

    async def _until(self, seconds: float, *others: asyncio.Task[Any]) -> None:
        await asyncio.wait([*self._tasks, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()


def numbered(node: bytes, count: int) -> list[Node]:
    """Return copies of a node, each with an id of its own."""
    made = [Node.FromString(node) for _ in range(count)]
    for number, each in enumerate(made):
        each.id = f"{each.id or 'bench'}-{number}"
        each.user_agent_name = USER_AGENT
    return made
