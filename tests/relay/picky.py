"""A server that ends the stream when it is asked for what it does not like, and answers everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from tests.client.rig import endpoint
from tests.client.wrapping import wrap
from xdsprism.core.model.type_versions import as_v3
from xdsprism.testing import PeerStream, ScriptedPeer

Judge = Callable[[str, str, dict[str, str]], bool]  # of type, name and params: whether the stream ends


class PickyServer:
    """Endpoints of any name, in the form in which they are asked for; it says nothing of what it is silent about."""

    def __init__(self, refuses: Judge, *, status: str = "INVALID_ARGUMENT", silent: Collection[str] = ()) -> None:
        self.peer = ScriptedPeer()
        self.connect = self.peer.connect
        self.ends = 0
        self.asked: list[str] = []  # on the newest stream
        self.mark = "1"
        self.streams: list[PeerStream] = []
        self._refuses = refuses
        self._status = status
        self._silent = silent
        self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                stream = await self.peer.accept()
                self.streams.append(stream)
                self.asked = []
                group.create_task(self._serve(stream, self.asked))

    async def _serve(self, stream: PeerStream, asked: list[str]) -> None:
        nonce = 0
        held: set[str] = set()
        while not stream.cancelled.is_set():
            request = await stream.request()
            names = self._names(request, delta=stream.is_delta)
            if any(self._refuses(as_v3(request.type_url), name, params or {}) for name, params in names):
                self.ends += 1
                stream.end(self._status, "what is that?")
                return
            asked += [name for name, _ in names if name not in held]
            fresh = [(name, params) for name, params in names if name not in held and name not in self._silent]
            held.update(name for name, _ in names)
            if fresh:
                nonce += 1
                stream.respond(request.type_url, *[self._made(*each) for each in fresh], nonce=str(nonce))

    def _names(self, request: Any, *, delta: bool) -> list[tuple[str, dict[str, str] | None]]:
        plain = request.resource_names_subscribe if delta else request.resource_names
        located = request.resource_locators_subscribe if delta else request.resource_locators
        return [*((name, None) for name in plain), *((each.name, dict(each.dynamic_parameters)) for each in located)]

    def _made(self, name: str, params: dict[str, str] | None) -> Any:
        return wrap(endpoint(name, self.mark), when="true" if params is not None else None)


def bad_names(type_url: str, name: str, params: dict[str, str]) -> bool:
    return name.startswith("bad")
