"""The relay: clients at one end, servers at the other, a cache in between (DESIGN 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..client.bootstrap import Bootstrap
from ..client.client import Connect
from ..client.last_good import LastGood
from ..core.cached import CacheTable
from ..core.facts import Fact, Lost, Reached
from ..core.relaying import LINGER, Relaying
from ..core.settings import ENGINE, Engine, Settings
from ..core.store import Store
from ..core.types import Params, TypeUrl
from ..observe.logs import log
from ..server.server import Server
from ..server.tls import Tls
from .feed import Feed, FeedClient

MAX_STALE = 24 * 3600.0
AGING = 1.0  # seconds between two looks at how old everything is, at least


class Relay:
    """A caching xDS proxy.

        async with xdsprism.Relay("bootstrap.json", listen="127.0.0.1:0") as relay:
            print(relay.address)

    bootstrap   the servers behind it, as for a Client
    delta       whether to ask them incrementally
    group_by    keys of node metadata; for servers that know nothing of dynamic parameters: they see one node for each
                combination of values, and what they send to it is for the clients that have these
    linger      seconds for which something that nobody wants any more is still kept up to date
    cache       a file for the last known state, to begin with while every server is down
    tls         what its port is secured with, as for a Server; the servers' are in the bootstrap
    max_stale   seconds for which what is known is given to those who ask, after the servers were there last (PRX-25)
    """

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        bootstrap: Bootstrap | str | Path | Mapping[str, Any] | None = None,
        listen: str = "127.0.0.1:18000",
        *,
        settings: Settings | None = None,
        delta: bool = True,
        group_by: Collection[str] | None = None,
        linger: float = LINGER,
        cache: str | Path | None = None,
        max_stale: float = MAX_STALE,
        v2: bool = True,
        rest: str | None = None,
        engine: Engine = ENGINE,
        max_connection_age: float | None = None,
        tls: Tls | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.bootstrap = bootstrap if isinstance(bootstrap, Bootstrap) else Bootstrap.load(bootstrap)
        self.store = Store(tables=CacheTable)
        self.feed = Feed(self.bootstrap, group_by=group_by, apart=not delta, settled=self._settled, make=self._client)
        self.relaying = Relaying(
            self.store,
            self.feed,
            listed=self._listed,
            linger=linger,
            reaches=self.feed.reaches,
            silence=self.feed.silence,
            max_stale=max_stale,
        )
        self.feed.relaying = self.relaying
        self.server = Server(
            self.store,
            listen,
            settings=settings,
            v2=v2,
            rest=rest,
            engine=engine,
            max_connection_age=max_connection_age,
            tls=tls,
            demand=self.relaying,
        )
        self._delta = delta
        self._connect = connect
        self.readers: list[Callable[[Sequence[Fact]], None]] = [self._note]  # of what happens to the servers' streams
        self.is_ready = False  # PRX-30: a server was reached once, or an earlier run left something
        self.last_good: LastGood | None = None
        self._group_by = group_by
        self._cache = cache
        self._max_stale = max_stale
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aging: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        return self.server.address

    def enter(self) -> None:
        """What `async with` begins with, for whoever has no use for a port."""
        self.server.hub.chores.append(self._flush)
        if self._cache is not None:
            kept = LastGood(str(self._cache), lambda text: log.warning("%s", text), max_stale=self._max_stale)
            self.last_good = kept
            self.feed.wall = lambda: kept.wall()  # noqa: PLW0108 # whichever clock that has by then
            self.is_ready = not kept.is_empty
            self._writing = asyncio.get_running_loop().create_task(kept.run(), name="xdsprism disk cache")

    def seek(self) -> None:
        """Find out whether a server can be reached, before anybody asks for anything."""
        self.feed.client(None).seek()

    def forget(self, type_url: TypeUrl, name: str) -> bool:
        """PRX-28: drop what is known of a name, and ask again; False: nothing is. No stream ends."""
        known = self.relaying.forget(type_url, name, asyncio.get_running_loop().time())
        self.server.hub.turn()
        return known

    async def __aenter__(self) -> Self:
        self.enter()
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End every stream, at both ends."""
        for timer in (self._timer, self._aging):
            if timer is not None:
                timer.cancel()
        await self.server.stop()
        await self.feed.close()
        if self._writing is not None and self.last_good is not None:
            self._writing.cancel()
            await self.last_good.close()

    def _client(self, bootstrap: Bootstrap, settled: Callable[[], None], group: Params | None) -> FeedClient:
        cache = None
        if self.last_good is not None:  # PRX-20: groups never share
            group_word = "" if group is None else repr(sorted(group.items()))
            cache = self.last_good.shelf(group_word, shared=True)
        client = FeedClient(bootstrap, settled, delta=self._delta, connect=self._connect, cache=cache)
        client.enter()
        client.readers.append(self._pass_on)
        return client

    def _pass_on(self, facts: Sequence[Fact]) -> None:
        for reader in self.readers:
            reader(facts)

    def _note(self, facts: Sequence[Fact]) -> None:
        if any(isinstance(fact, Reached) for fact in facts):
            self.is_ready = True
            if self._group_by is not None and None in self.feed.clients:
                self.feed.clients[None].rest()

        if self._aging is None and any(isinstance(fact, Reached | Lost) for fact in facts):
            self._aging = asyncio.get_running_loop().call_later(AGING, self._age)

    def _age(self) -> None:
        loop = asyncio.get_running_loop()
        due = self.relaying.age(loop.time())
        self._aging = loop.call_at(max(due, loop.time() + AGING), self._age) if due is not None else None
        self._settled()

    def _settled(self) -> None:
        """Something came from a server."""
        if self.relaying.is_due:
            self.server.hub.turn()

    def _listed(self, type_url: str, name: str) -> None:
        self.server.hub.listed(type_url, name)

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        self.relaying.flush(loop.time())
        self.server.hub.facts += self.relaying.facts
        self.relaying.facts.clear()
        due = self.relaying.deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = loop.call_at(due, self.server.hub.turn)
