"""What tests of the client share: bootstraps, watchers that take everything at once, and a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration

import xdsprism as xp
from xdsprism.testing import PeerStream, ScriptedPeer, run_timeless

FOREVER = 100_000.0  # seconds of a clock that jumps: nothing that is awaited for longer will ever happen

both = pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])


def timeless(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop whose clock jumps; one that hangs fails at once."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(FOREVER):
                await test(*args, **kwargs)

        run_timeless(limited())

    return run


def server(uri: str = "one:1", *features: str, v3: bool = True) -> dict[str, Any]:
    listed = [*features, *(["xds_v3"] if v3 else [])]
    return {"server_uri": uri, "channel_creds": [{"type": "insecure"}], "server_features": listed}


def bootstrap(*servers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"xds_servers": [*servers] or [server()], "node": {"id": "x", "cluster": "y"}, **fields}


BOOT = bootstrap()


# -- resources: `mark` tells one version of contents from another


def cluster(name: str, mark: str = "") -> Cluster:
    return Cluster(name=name, alt_stat_name=mark)


def listener(name: str, mark: str = "") -> Listener:
    return Listener(name=name, stat_prefix=mark)


def route(name: str, mark: str = "") -> RouteConfiguration:
    made = RouteConfiguration(name=name)
    if mark:
        made.internal_only_headers.append(mark)
    return made


def endpoint(name: str, mark: str = "") -> ClusterLoadAssignment:
    made = ClusterLoadAssignment(cluster_name=name)
    if mark:
        made.named_endpoints[mark].SetInParent()
    return made


MAKE: Mapping[str, Callable[..., Any]] = {
    xp.CLUSTER: cluster,
    xp.LISTENER: listener,
    xp.ROUTE: route,
    xp.ENDPOINT: endpoint,
}


# -- clients and servers


@asynccontextmanager
async def talk(source: Any = None, **options: Any) -> AsyncIterator[tuple[xp.Client, ScriptedPeer]]:
    """A client and the one server that all of its servers are."""
    peer = ScriptedPeer()
    async with xp.Client(BOOT if source is None else source, connect=peer.connect, **options) as client:
        yield client, peer


@asynccontextmanager
async def talk_to_several(source: Any, **options: Any) -> AsyncIterator[tuple[xp.Client, Mapping[str, ScriptedPeer]]]:
    """A client and its servers, each by its address."""
    loaded = xp.Bootstrap.load(source)
    configs = [*loaded.servers, *(each for known in loaded.authorities.values() for each in known.servers)]
    peers = {config.uri: ScriptedPeer() for config in configs}
    async with xp.Client(loaded, connect=lambda config: peers[config.uri], **options) as client:
        yield client, peers


class Follower:
    """Watches, and takes each update as soon as it comes."""

    def __init__(self, client: xp.Client, type_url: str, *names: str, **options: Any) -> None:
        self._updates = client.watch(type_url, names or "*", **options)
        self._taken: asyncio.Queue[xp.Update] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        async for update in self._updates:
            self._taken.put_nowait(update)

    async def next(self) -> xp.Update:
        return await self._taken.get()

    def seen(self) -> list[xp.Update]:
        """What has come since the last look."""
        return [self._taken.get_nowait() for _ in range(self._taken.qsize())]

    async def close(self) -> None:
        self._updates.close()
        await self._task

    @property
    def is_over(self) -> bool:
        return self._task.done()


def follow(client: xp.Client, type_url: str, *names: str, **options: Any) -> Follower:
    return Follower(client, type_url, *names, **options)


async def quiet(seconds: float = 1.0) -> None:
    """Let everybody do what they are going to do. Costs no time in a timeless loop."""
    await asyncio.sleep(seconds)


async def silent(stream: PeerStream) -> bool:
    """Whether the client has nothing more to say."""
    await quiet()
    return not stream.pending()


async def exchange(
    stream: PeerStream, type_url: str, *resources: Any, version: str = "1", nonce: str = "n1", removed: Any = ()
) -> Any:
    """Respond; the request that the client answers with."""
    stream.respond(type_url, *resources, version=version, nonce=nonce, removed=tuple(removed))
    return await stream.request()


async def accept(peer: ScriptedPeer) -> tuple[PeerStream, Any]:
    """The next stream, and the first request on it."""
    stream = await peer.accept()
    return stream, await stream.request()


async def within(seconds: float, coming: Awaitable[Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await coming


def clock() -> float:
    return asyncio.get_running_loop().time()


# -- looking at requests and updates


def names(request: Any) -> list[str]:
    """What a request asks for, in either protocol."""
    if hasattr(request, "resource_names"):
        return list(request.resource_names)
    return list(request.resource_names_subscribe)


def status(update: xp.Update) -> tuple[str, str]:
    """What kind of update it is: ("resource", name), ("error", status) or ("ambient", status)."""
    if update.error is not None:
        return "error", update.error.status
    if update.ambient_error is not None:
        return "ambient", update.ambient_error.status
    return "resource", update.name
