"""Watches a listener together with the routes, clusters and endpoints that it refers to (gRFC A74).

This is `Client.watch_config`. core/watch/dependencies.py decides which resources to watch and when a configuration is
complete; this module subscribes to them, and finds the references in each resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from google.protobuf.message import DecodeError

from ..core.codec.references import CONNECTION_MANAGER, aggregated, clusters_of, endpoints_of, unpacked
from ..core.model.events import Key
from ..core.model.types import CLUSTER, ENDPOINT, LB_ENDPOINT_COLLECTION, LISTENER, ROUTE, Params, TypeUrl
from ..core.watch.dependencies import (
    ClusterPart,
    CollectionPart,
    Config,
    Dependencies,
    EndpointPart,
    Known,
    ListenerPart,
    Part,
    Ref,
    RoutePart,
)
from ..core.watch.entry import Watch
from ..errors import WatchError
from .leds import collections_of, endpoints_in, with_endpoints
from .updates import Update, update_of

if TYPE_CHECKING:
    from .client import Client


class ConfigWatching:
    """An async iterator of complete configurations, until `close`. The first `anext` begins the subscriptions.

    It yields only the newest complete configuration; older ones that the program has not taken are skipped. As with
    every watch, the client reads a stream on only after the updates of the last response were taken (CLI-20).
    """

    def __init__(self, client: Client, listener: str, clusters: Iterable[str], params: Params | None) -> None:
        self._client = client
        self._dependencies = Dependencies(listener, clusters)
        self._params = params
        self._news = asyncio.Event()
        self._watches: dict[Ref, Watch] = {}
        self._woken: dict[Ref, None] = {}
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Config:
        while not self._closed and not self._client.is_closed:
            config = self._dependencies.advance() if self._take_updates() else None
            self._update_watches()
            if config is not None:
                return config
            if not self._woken:  # a new watch of a cached resource has its update at once
                self._news.clear()
                await self._client.backpressure.wait_for_news(self._news, first=self._dependencies.incomplete)
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        while self._watches:
            self._client.end_watch(self._watches.popitem()[1])
        self._news.set()

    def __del__(self) -> None:
        """End the watches of a loop that was left by `break` or by an exception."""
        for watch in self._watches.values():
            self._client.abandon_watch(watch)

    def _update_watches(self) -> None:
        """Watch the resources that are referred to now, and no others."""
        wanted = self._dependencies.wanted
        for ref in [ref for ref in wanted if ref not in self._watches]:
            type_url, name = ref
            self._watches[ref] = self._client.begin_watch(self._wake(ref), type_url, [Key(name, self._params)])
        for ref in [ref for ref in self._watches if ref not in wanted]:
            self._client.end_watch(self._watches.pop(ref))

    def _wake(self, ref: Ref) -> Callable[[], None]:
        woken, news = self._woken, self._news  # not `self`: the client's reference would keep __del__ from running

        def wake() -> None:
            woken[ref] = None
            news.set()

        return wake

    def _take_updates(self) -> bool:
        """Take all updates at once, as a response may have thousands. Return whether anything changed."""
        changed = False
        while self._woken:
            ref, _ = self._woken.popitem()
            watch = self._watches[ref]
            while (notice := watch.take()) is not None:
                update = update_of(notice)
                if update.ambient_error is None:  # A74: on an ambient error the resource stays in use
                    known = update.error if update.error is not None else part_of(*ref, update)
                    self._dependencies.learn(ref, known)
                    changed = True
            self._client.backpressure.note_taken(watch)
        return changed


# -- the references in a resource


def part_of(type_url: TypeUrl, name: str, update: Update) -> Known:
    """Return a resource with the names that it refers to, or an error if they can't be followed."""
    try:
        return _PARTS[type_url](update)
    except (DecodeError, ValueError) as error:
        return WatchError("INVALID_ARGUMENT", f"{name!r}: {error}")


def _listener(update: Update) -> Part:
    managers = _connection_managers(update.resource)
    routes = tuple(dict.fromkeys(_route_of(each, trusted=update.trusted) for each in managers))
    if not routes:
        raise ValueError("a listener without an HTTP connection manager has no routes to follow")
    return ListenerPart(update.resource, routes)


def _connection_managers(listener: Any) -> Iterator[Any]:
    """Yield the connection manager of a client's listener, or those of all filter chains of a server's listener."""
    configs = [listener.api_listener.api_listener]
    for chain in (*listener.filter_chains, listener.default_filter_chain):
        configs += [each.typed_config for each in chain.filters]
    for config in configs:
        if config.type_url.endswith(CONNECTION_MANAGER):
            yield unpacked(config)


def _route_of(manager: Any, *, trusted: bool) -> str | RoutePart:
    kind = manager.WhichOneof("route_specifier")
    if kind == "rds":
        return str(manager.rds.route_config_name)
    if kind == "route_config":
        return _route(manager.route_config, trusted=trusted)
    raise ValueError(f"an HTTP connection manager with {kind or 'no routes'}; only rds and route_config are followed")


def _route(message: Any, *, trusted: bool) -> RoutePart:
    return RoutePart(message, clusters_of(message), trusted)


def _cluster(update: Update) -> Part:
    message = update.resource
    children = aggregated(message)
    if children is not None:
        return ClusterPart(message, children=children)
    service = endpoints_of(message)
    if service is not None:
        return ClusterPart(message, service=service)
    return ClusterPart(message, endpoints=message.load_assignment if message.HasField("load_assignment") else None)


def _endpoints(update: Update) -> Part:
    collections = collections_of(update.resource)
    return EndpointPart(update.resource, collections, partial(with_endpoints, update.resource) if collections else None)


_PARTS: dict[TypeUrl, Callable[[Update], Part]] = {
    LISTENER: _listener,
    ROUTE: lambda update: _route(update.resource, trusted=update.trusted),
    CLUSTER: _cluster,
    ENDPOINT: _endpoints,
    LB_ENDPOINT_COLLECTION: lambda update: CollectionPart(endpoints_in(update.resource)),
}
