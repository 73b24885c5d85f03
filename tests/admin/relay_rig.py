"""A relay as `xdsprism relay` runs it, in this process, and the server behind it."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.admin.rig import eventually_async
from tests.support import web
from xdsprism import Server, Store, app
from xdsprism.config import RelayConfig
from xdsprism.core.model.facts import Fact, Requested

NODE = {"id": "relay", "metadata": {"team": "edge"}}


def write_bootstrap(folder: Path, *servers: str) -> Path:
    """As gRPC has it: these servers, best first."""
    listed = [
        {"server_uri": server, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        for server in servers
    ]
    path = folder / "bootstrap.json"
    path.write_text(json.dumps({"xds_servers": listed, "node": NODE}))
    return path


class Upstream:
    """A server that can go and come back."""

    def __init__(self, store: Store, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.requests = 0
        self._store = store
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    async def start(self) -> None:
        self._server = Server(self._store, self.address)
        self._server.hub.readers.append(self._count)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    def nodes(self) -> list[dict[str, str]]:
        """The metadata of who is connected; of streams without a request nothing is known."""
        streams = [each.stream for each in self.server.hub.connected()]
        return [dict(stream.node.metadata) for stream in streams if stream.node is not None]

    def _count(self, facts: Any) -> None:
        found: list[Fact] = [fact for fact in facts if isinstance(fact, Requested)]
        self.requests += len(found)


class RelayOffice:
    """The whole daemon, until the block ends."""

    def __init__(self, config: RelayConfig) -> None:
        self._config = config
        self._said: asyncio.Queue[str] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(app.serve(self._config, self._said.put_nowait))
        line = await asyncio.wait_for(self._said.get(), 20)
        _, listen, admin = line.split()
        self.listen, self.admin = listen.removeprefix("listen="), admin.removeprefix("admin=")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def send(self, method: str, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection(*web.split(self.admin), timeout=10)
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        return await asyncio.to_thread(ask)

    async def page(self, path: str) -> Any:
        status, said = await self.send("GET", path)
        assert status == 200, said
        return json.loads(said)

    async def ready(self) -> tuple[int, str | None]:
        status, said = await self.send("GET", "/readyz")
        return status, json.loads(said).get("reason")

    async def upstreams(self) -> list[Any]:
        return list((await self.page("/api/upstreams"))["upstreams"])

    async def variants(self, name: str) -> list[Any]:
        """What is cached of one name."""
        page = await self.page(f"/api/resources?name={name}")
        return [variant for resource in page["resources"] for variant in resource["variants"]]

    async def metric(self, line: str) -> float:
        _, text = await self.send("GET", "/metrics")
        values = dict(each.rsplit(" ", 1) for each in text.splitlines() if not each.startswith("#"))
        return float(values.get(line, 0))

    async def until(self, look: Callable[[Any], Any], path: str, expected: Any) -> None:
        async def seen() -> Any:
            return look(await self.page(path))

        await eventually_async(seen, expected)
