"""Defines the updates that a watcher gets, and the iterator that yields them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.codec.expression import Expression
from ..core.model.constraints import Constraint
from ..core.model.events import Key
from ..core.model.types import TypeUrl, Variant
from ..core.watch.entry import Notice, Watch
from ..errors import UsageError, WatchError
from ..messages.decoded import decoded

if TYPE_CHECKING:
    from .client import Client


@dataclass(frozen=True, slots=True)
class Update:
    """One update for a watcher. Exactly one of `resource`, `error` and `ambient_error` is set (gRFC A88).

    `error`: there is no resource to use. `ambient_error`: the last resource stays in use, but the client has trouble
    getting a newer one.
    """

    type_url: TypeUrl
    name: str
    resource: Any = None
    error: WatchError | None = None
    ambient_error: WatchError | None = None
    variant: Variant | None = field(default=None, repr=False)  # the contents as received, with their constraints
    trusted: bool = False  # BST-6: the resource came from a server with the feature `trusted_xds_server` (A81)
    absence: Constraint | None = field(default=None, repr=False)  # for which clients it does not exist

    @property
    def version(self) -> str:
        return self.variant.version if self.variant is not None else ""

    @property
    def constraint(self) -> Expression | None:
        """The constraints of this variant, as the server sent them (TP2); `true`: it is for every client."""
        return Expression(self.variant.constraint) if self.variant is not None else None


def update_of(notice: Notice) -> Update:
    variant = notice.variant
    if notice.error is not None:
        error, ambient = (None, notice.error) if notice.ambient else (notice.error, None)
        trusted = notice.trusted and notice.ambient
        return Update(notice.type_url, notice.name, None, error, ambient, variant, trusted, notice.absence)
    message = decoded(variant.type_url, variant.body) if variant is not None else None
    return Update(notice.type_url, notice.name, message, variant=variant, trusted=notice.trusted)


def vhost_name(route_config: str, host: str) -> str:
    """Return the name by which Envoy subscribes to a virtual host: lower case, with the port (VHD-2)."""
    if not route_config or not host or "/" in host:
        raise UsageError(f"{route_config!r}, {host!r}: a virtual host needs a route configuration and a host")
    return f"{route_config}/{host.lower()}"


class Watching:
    """An async iterator of updates, until `close`. The first `anext` begins the subscription.

    The client reads the stream on only after all watchers have taken the updates of the last response (CLI-20). While
    a watcher waits for its first update, the client reads on regardless: otherwise a watcher that requests one more
    resource inside its loop would wait for itself.
    """

    def __init__(self, client: Client, type_url: TypeUrl, keys: tuple[Key, ...]) -> None:
        self._client = client
        self._subscription = type_url, keys
        self._news = asyncio.Event()
        self._watch: Watch | None = None
        self._closed = False
        self._answered = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        if self._watch is None and not self._closed:
            self._watch = self._client.begin_watch(self._news.set, *self._subscription)
        while self._watch is not None and not self._client.is_closed:
            notice = self._watch.take()
            if notice is not None:
                self._answered = True
                self._client.backpressure.note_taken(self._watch)
                return update_of(notice)
            self._news.clear()
            await self._client.backpressure.wait_for_news(self._news, first=not self._answered)
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch. The client unsubscribes from resources that no other watch wants."""
        self._closed = True
        watch, self._watch = self._watch, None
        if watch is not None:
            self._client.end_watch(watch)
            self._news.set()

    def __del__(self) -> None:
        """End the watch of a loop that was left by `break` or by an exception."""
        if self._watch is not None:
            self._client.abandon_watch(self._watch)
