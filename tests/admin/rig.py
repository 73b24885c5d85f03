"""A server and its admin port in this process, and clients by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support import web
from xdsprism import Server, Store
from xdsprism.admin.config_model import ConfigLoads
from xdsprism.admin.events import Events
from xdsprism.admin.guard import RequestGuard
from xdsprism.admin.http import View, build
from xdsprism.core.model.removal_guard import HeldBack
from xdsprism.observe.metrics import Metrics
from xdsprism.server.http_port import HttpPort

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


@dataclass
class Office:
    """Everything that `serve` has, except files."""

    store: Store = field(default_factory=Store)
    loads: ConfigLoads = field(default_factory=lambda: ConfigLoads(("config",)))
    unready: str | None = None
    confirm: Callable[[str | None], Awaitable[HeldBack]] | None = None
    guard: RequestGuard | None = None

    async def __aenter__(self) -> Self:
        self.server = Server(self.store, "127.0.0.1:0")
        self.metrics = Metrics(self.store)
        self.server.hub.readers.append(self.metrics)
        self.events = Events(self.server.hub)
        self.server.hub.readers.append(self.events)
        self.view = view = View(
            self.server.hub,
            self.metrics,
            self.loads,
            lambda: self.unready,
            confirm=self._confirm,
            events=self.events,
        )
        self._admin = HttpPort(build(view, self.guard), "127.0.0.1:0", "admin")
        self.admin = self._admin.address
        self._task = asyncio.create_task(self._admin.serve())
        await self.server.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.server.stop(0)
        self.events.end()
        self._admin.stop()
        await self._task
        self.metrics.close()

    async def _confirm(self, change: str | None) -> HeldBack:
        assert self.confirm is not None
        return await self.confirm(change)

    async def get(self, path: str) -> tuple[int, Any]:
        """The status, and what the JSON says."""
        answer = await asyncio.to_thread(web.get, *web.split(self.admin), path)
        return answer.status, json.loads(answer.body)

    async def page(self, path: str) -> Any:
        status, said = await self.get(path)
        assert status == 200, said
        return said

    async def client(self) -> Any:
        """The only client that is connected."""
        page = await self.page("/api/clients")
        assert page["total"] == 1, page
        return page["clients"][0]

    async def error(self, path: str) -> tuple[int, str]:
        status, said = await self.get(path)
        assert list(said) == ["error"]
        return status, said["error"]


class Peer:
    """One ADS stream, message by message."""

    def __init__(self, address: str, *, delta: bool) -> None:
        # A connection of its own: grpc shares one among all channels to an address.
        self._channel = grpc.aio.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))
        self._delta = delta

    async def __aenter__(self) -> Self:
        name = "DeltaAggregatedResources" if self._delta else "StreamAggregatedResources"
        response = pb.DeltaDiscoveryResponse if self._delta else pb.DiscoveryResponse
        method = self._channel.stream_stream(ADS + name, lambda m: m.SerializeToString(), response.FromString)
        self._call = method()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._call.cancel()
        await self._channel.close()
        del self._call, self._channel  # grpc closes a connection when nothing refers to it any more

    async def send(self, **fields: Any) -> None:
        kind = pb.DeltaDiscoveryRequest if self._delta else pb.DiscoveryRequest
        await self._call.write(kind(**fields))

    async def read(self) -> Any:
        return await asyncio.wait_for(self._call.read(), 20)

    async def ask(self, type_url: str, names: Iterable[str] = (), **fields: Any) -> Any:
        """Subscribe and take the answer."""
        key = "resource_names_subscribe" if self._delta else "resource_names"
        await self.send(type_url=type_url, **{key: list(names)}, **fields)
        return await self.read()


def locator(name: str, params: Mapping[str, str]) -> pb.ResourceLocator:
    return pb.ResourceLocator(name=name, dynamic_parameters=params)


async def eventually_async(look: Any, expected: Any, seconds: float = 20) -> None:
    """Wait until an awaitable look sees what is expected."""
    deadline = time.monotonic() + seconds
    while (seen := await look()) != expected:
        assert time.monotonic() < deadline, f"last seen: {seen!r}"
        await asyncio.sleep(0.02)
