"""The server: a store at one end, a transport at the other, the hub between them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ..core.settings import Settings
from ..core.store import Store
from .engine_grpcio import GrpcioEngine
from .health import HEALTH, Health, reflection_methods
from .hub import Hub
from .methods import AGGREGATED, SERVICES, VIRTUAL_HOSTS, discovery_methods

RECEIVE_BYTES = 64 * 1024 * 1024  # SRV-24: a large reconnect names everything the client has
GRACE = 5.0  # seconds that streams have to end when the server stops


class Server:
    """An xDS management server on a store.

        async with xdsprism.Server(store, listen="127.0.0.1:0") as server:
            print(server.address)

    The store belongs to the event loop that the server runs in: change it from there only.
    """

    def __init__(
        self,
        store: Store,
        listen: str = "127.0.0.1:18000",
        *,
        settings: Settings | None = None,
        receive_bytes: int = RECEIVE_BYTES,
    ) -> None:
        self.store = store
        self.address = ""  # HOST:PORT, once started
        self._listen = listen
        self._settings = settings or Settings()
        self._receive_bytes = receive_bytes
        self._hub: Hub | None = None
        self._engine: GrpcioEngine | None = None
        services = [AGGREGATED, VIRTUAL_HOSTS, *(service for service, _, _ in SERVICES)]
        self._services = [*services, HEALTH]
        self._health = Health(services)

    @property
    def hub(self) -> Hub:
        """What is connected, and what happens. There from the start on."""
        if self._hub is None:
            loop = asyncio.get_running_loop()
            self._hub = Hub(self.store, self._settings, loop.time, loop.call_soon)
        return self._hub

    async def start(self) -> None:
        methods = [*discovery_methods(self.hub), *self._health.methods(), *reflection_methods(self._services)]
        self._engine = GrpcioEngine(methods, receive_bytes=self._receive_bytes)
        self.address = await self._engine.start(self._listen)
        self._health.set(serving=True)

    async def stop(self, grace: float = GRACE) -> None:
        """End every stream cleanly, then the server."""
        self._health.set(serving=False)
        if self._engine is not None:
            await self._engine.stop(grace)
        if self._hub is not None:
            self._hub.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
