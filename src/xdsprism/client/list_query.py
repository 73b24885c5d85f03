"""Collects all resources of one type once, and decides when the list is complete.

A SotW list is complete with the first response. A delta list may come in any number of responses, and nothing marks the
last one. So after the first response, the listing subscribes to a name that does not exist. The server answers with a
removal of that name, after everything that it still had to send. The name can't be in the first request, where it
would end the legacy wildcard (WLD-1). Some servers (go-control-plane, java-control-plane) do not answer for unknown
names; their lists count as complete when they are quiet for a second.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..core.model.events import WILDCARD, Key
from ..core.model.types import NO_PARAMS, TypeUrl
from ..core.model.xdstp import is_glob
from ..core.watch.entry import State, Watch
from ..errors import UsageError, WatchError
from .updates import Update, update_of

if TYPE_CHECKING:
    from .client import Client

END_OF_LIST = "xdsprism.invalid/end-of-list/"
QUIET = 1.0  # seconds without an update, after which a list counts as complete

_number = count(1)  # each listing has its own name for the end, as several may run at the same time


class ListQuery:
    """One list that is being collected; use it in `with`."""

    def __init__(self, client: Client, type_url: TypeUrl, key: Key, *, delta: bool) -> None:
        name, _ = key
        if name != WILDCARD and not is_glob(name):
            raise UsageError(f"{name!r} is one resource: a list is of '*', or of an xdstp name that ends in /*")
        self._client = client
        self._type_url = type_url
        self._name = name
        self._delta = delta
        self._found: dict[str, Update] = {}
        self._ended = False
        self._news = asyncio.Event()
        self._end: Watch | None = None
        self._watch = client.begin_watch(self._news.set, type_url, [key])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.end_watch(self._watch)
        if self._end is not None:
            self._client.end_watch(self._end)

    async def collect(self, seconds: float | None) -> list[Update]:
        """Return the list, or the part of it that came within the time. Raises WatchError if no server answered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._until_complete()
        if self._client.is_closed:
            raise WatchError("CANCELLED", f"{self._name!r}: the client was closed")
        if not self._began and not self._found:
            raise WatchError("DEADLINE_EXCEEDED", f"{self._name!r}: no answer within {seconds:g} s")
        return [*self._found.values()]

    async def _until_complete(self) -> None:
        """Collect updates until the list is complete. Raises TimeoutError after QUIET seconds without one."""
        while not self._client.is_closed:
            self._take_updates()
            if self._ended or (self._began and not self._delta):
                return
            if self._began and self._end is None and self._name == WILDCARD:
                end = f"{END_OF_LIST}{next(_number)}"
                self._end = self._client.begin_watch(self._news.set, self._type_url, [Key(end, NO_PARAMS)])
            self._news.clear()
            async with asyncio.timeout(QUIET if self._began else None):
                await self._client.backpressure.wait_for_news(self._news, first=not self._began)

    @property
    def _began(self) -> bool:
        """Whether the first response has come."""
        return any(entry.state is not State.REQUESTED for entry in self._watch.entries)

    def _take_updates(self) -> None:
        while (notice := self._watch.take()) is not None:
            self._add(update_of(notice))
        self._client.backpressure.note_taken(self._watch)
        while self._end is not None and (notice := self._end.take()) is not None:
            if notice.error is not None and notice.error.status == "NOT_FOUND":
                self._ended = True
            self._client.backpressure.note_taken(self._end)

    def _add(self, update: Update) -> None:
        """Add a resource to the list, or remove one that was deleted meanwhile."""
        if update.name in (self._name, *(entry.name for entry in self._watch.entries)):
            self._on_list_update(update.error, update.ambient_error)
        elif update.error is not None and update.error.status == "NOT_FOUND":
            self._found.pop(update.name, None)
        elif update.ambient_error is None:
            self._found[update.name] = update

    def _on_list_update(self, error: WatchError | None, ambient: WatchError | None) -> None:
        """Handle an update about the list as a whole: raise its error, or end a list that the disk cache completed."""
        if error is None and not self._began:
            self._ended = True
        elif (reason := error or ambient) is not None:
            raise reason
