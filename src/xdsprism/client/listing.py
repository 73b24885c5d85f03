"""Everything there is of one type, once; and how to tell that a list is complete.

SotW: with the first response. Delta has no sign of its own, as a list may come in any number of responses; so this
subscribes to a name that nobody has as soon as the first response is there. A server answers that with a removal, which
comes after everything that it still had to send. Not with the first request, since a name in there would end the legacy
wildcard (WLD-1). Servers that say nothing of names that they do not know (go-control-plane, java-control-plane) are
taken to have said all when they are quiet for a while.
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
QUIET = 1.0  # seconds without news

_number = count(1)  # lists may be under way side by side, and each waits for an answer of its own


class Listing:
    """One list being collected; use it in `with`."""

    def __init__(self, client: Client, type_url: TypeUrl, key: Key, *, delta: bool) -> None:
        if key[0] != WILDCARD and not is_glob(key[0]):
            raise UsageError(f"{key[0]!r} is one resource: a list is of '*', or of an xdstp name that ends in /*")
        self._client = client
        self._type_url = type_url
        self._name = key[0]
        self._delta = delta
        self._found: dict[str, Update] = {}
        self._ended = False
        self._news = asyncio.Event()
        self._end: Watch | None = None
        self._watch = client.begin(self._news.set, type_url, [key])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.end(self._watch)
        if self._end is not None:
            self._client.end(self._end)

    async def collect(self, seconds: float | None) -> list[Update]:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._to_the_end()
        if self._client.is_closed:
            raise WatchError("CANCELLED", f"{self._name!r}: the client was closed")
        if not self._began and not self._found:
            raise WatchError("DEADLINE_EXCEEDED", f"{self._name!r}: no answer within {seconds:g} s")
        return [*self._found.values()]

    async def _to_the_end(self) -> None:
        while not self._client.is_closed:
            self._take()
            if self._ended or (self._began and not self._delta):
                return
            if self._began and self._end is None and self._name == WILDCARD:
                end = f"{END_OF_LIST}{next(_number)}"
                self._end = self._client.begin(self._news.set, self._type_url, [(end, NO_PARAMS)])
            self._news.clear()
            async with asyncio.timeout(QUIET if self._began else None):
                await self._client.wait(self._news, first=not self._began)

    @property
    def _began(self) -> bool:
        """A response was there."""
        return any(entry.state is not State.REQUESTED for entry in self._watch.entries)

    def _take(self) -> None:
        while (notice := self._watch.take()) is not None:
            self._put(update_of(notice))
        self._client.took(self._watch)
        while self._end is not None and (notice := self._end.take()) is not None:
            if notice.error is not None and notice.error.status == "NOT_FOUND":
                self._ended = True
            self._client.took(self._end)

    def _put(self, update: Update) -> None:
        if update.name in (self._name, *(entry.name for entry in self._watch.entries)):
            self._stumble(update.error, update.ambient_error)
        elif update.error is not None and update.error.status == "NOT_FOUND":
            self._found.pop(update.name, None)
        elif update.ambient_error is None:
            self._found[update.name] = update

    def _stumble(self, error: WatchError | None, ambient: WatchError | None) -> None:
        """Something is wrong with the list as a whole. With what an earlier run has left on disk it is a list still."""
        if error is None and not self._began:
            self._ended = True
        elif (trouble := error or ambient) is not None:
            raise trouble
