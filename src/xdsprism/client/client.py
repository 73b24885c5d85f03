"""The client: watch any xDS resource.

    async with xdsprism.Client("bootstrap.json") as client:
        async for update in client.watch(xdsprism.CLUSTER, "backend"):
            ...

Everything is decided in `core/subscriber.py`; here are the loops around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ..core import xdstp
from ..core.events import WILDCARD, Key
from ..core.facts import Fact
from ..core.loads import Loads
from ..core.replies import RequestEncoder, ResponseDecoder, ads_path, node_bytes
from ..core.subscriber import Authority, Subscriber
from ..core.types import Params, TypeSpec, TypeUrl
from ..core.upstream import Upstream
from ..core.watching import Entry, Watch
from ..errors import UsageError, WatchError
from ..release import release
from .bootstrap import AuthorityConfig, Bootstrap, ServerConfig
from .checks import Validator, checking
from .last_good import LastGood
from .line import Line
from .lrs import LoadReporter
from .transport import GrpcTransport, Transport
from .updates import Watching

Connect = Callable[[ServerConfig], Transport]
Names = str | Iterable[str]


class Client:
    """An xDS client. It belongs to the event loop in which it was entered.

    bootstrap           a path, a mapping, JSON text or a Bootstrap; none: as GRPC_XDS_BOOTSTRAP says
    delta               incremental streams in place of state of the world
    transport           "v2" or "v3" for every server, in place of what each server's features say (A30)
    validators          by type URL: what to check in place of `validate.rules`; yields what is wrong with a message
    verify_constraints  refuse variants whose constraints do not match the params that were sent
    fail_on_data_errors drop what a server deletes or denies; None: as its features say (A88)
    cache               a file for the last good state, from which to start while every server is down
    types               what the protocol should know of further types
    connect             how to get to a server; gRPC, unless a test has something else
    """

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        bootstrap: Bootstrap | str | Path | Mapping[str, Any] | None = None,
        *,
        delta: bool = False,
        transport: Literal["auto", "v2", "v3"] = "auto",
        validators: Mapping[TypeUrl, Validator] | None = None,
        verify_constraints: bool = False,
        fail_on_data_errors: bool | None = None,
        cache: str | Path | None = None,
        types: Iterable[TypeSpec] = (),
        connect: Connect | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if transport not in ("auto", "v2", "v3"):
            raise UsageError(f"transport is auto, v2 or v3, not {transport!r}")
        self.bootstrap = bootstrap if isinstance(bootstrap, Bootstrap) else Bootstrap.load(bootstrap)
        self.is_closed = False
        self.readers: list[Callable[[Sequence[Fact]], None]] = []  # of what happens
        self.subscriber = Subscriber(types, verify_constraints=verify_constraints, recall=self._recall)
        self._delta = delta
        self._transport = transport
        self._fail_on_data_errors = fail_on_data_errors
        self._check = checking(validators or {})
        self._cache = str(cache) if cache is not None else None
        self._connect = connect
        self._chance = chance
        self._authorities: dict[str | None, Authority] = {}
        self._servers: dict[ServerConfig, Upstream] = {}
        self._lines: dict[Upstream, Line] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._reporters: dict[ServerConfig, LoadReporter] = {}
        self._last_good: LastGood | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._behind: set[Watch] = set()  # have not taken everything yet
        self._impatient = 0  # wait for their first answer
        self._moved = asyncio.Event()
        self._release = release()

    # -- life

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if self._cache is not None:
            self._last_good = LastGood(self._cache)
            self.subscriber.listeners.append(self._last_good.note)
            self._tasks[self._last_good] = asyncio.create_task(self._last_good.run(), name="xdsprism disk cache")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every stream and every watch; nothing reconnects (CLI-24)."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for reporter in self._reporters.values():
            await reporter.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for line in self._lines.values():
            await line.transport.close()
        if self._last_good is not None:
            await self._last_good.close()
        for entry in self.subscriber.entries():
            for watch in entry.watches:
                watch.wake()

    # -- asking

    def watch(self, type_url: TypeUrl, names: Names = WILDCARD, *, params: Mapping[str, str] | None = None) -> Watching:
        """Follow a resource, several, or all there are (`"*"`): an async iterator of updates.

        params: ask with these dynamic parameters. None: with those of the bootstrap, if it has any; empty: with none.
        """
        listed = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        if not listed:
            raise UsageError("watch at least one name, or all of them by '*'")
        asked = Params(params) if params is not None else None
        return Watching(self, type_url, tuple((name, asked) for name in listed))

    async def get(
        self,
        type_url: TypeUrl,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 # as every client has it
    ) -> Any:
        """Ask for one resource, once. Raises WatchError: it does not exist, can't be had, or not in time."""
        try:
            async with asyncio.timeout(timeout), self.watch(type_url, name, params=params) as updates:
                async for update in updates:
                    if update.error is not None:
                        raise update.error
                    if update.resource is not None:
                        return update.resource
        except TimeoutError:
            raise WatchError("DEADLINE_EXCEEDED", f"{name!r}: no answer within {timeout:g} s") from None
        raise WatchError("CANCELLED", f"{name!r}: the client was closed")

    def loads(self, authority: str | None = None) -> Loads:
        """Where to record load, which is reported to the first server of the authority (LRS-2)."""
        config = self.bootstrap.root if authority is None else self.bootstrap.authority(authority)
        if not config.servers:
            raise UsageError("nobody to report load to: the bootstrap has no xds_servers")
        server = config.servers[0]
        reporter = self._reporters.get(server)
        if reporter is None:
            upstream = self._upstream(server)
            reporter = self._reporters[server] = LoadReporter(
                self._line(upstream, server).transport.open,
                self._node(server),
                v3=self._is_v3(server),
                clock=self._running.time,
                chance=self._chance,
            )
        return reporter.loads()

    # -- for Watching

    def begin(self, wake: Callable[[], None], type_url: TypeUrl, keys: Iterable[Key]) -> Watch:
        if self.is_closed:
            raise UsageError("the client is closed")
        self._running  # noqa: B018 # says so if the client was not entered
        watch = Watch(lambda: None)
        watch.wake = lambda: self._behind.add(watch) or wake()  # type: ignore[func-returns-value]
        for name, params in keys:
            try:
                config, key = self._key(name, params)
            except UsageError as error:  # XTP-12: to this watcher only
                watch.complain(type_url, name, WatchError("INVALID_ARGUMENT", str(error)))
                continue
            self.subscriber.watch(watch, self._authority(config), type_url, key)
        self._settle()
        return watch

    def took(self, watch: Watch) -> None:
        if not watch:
            self._behind.discard(watch)
            self._moved.set()

    async def wait(self, news: asyncio.Event, *, first: bool) -> None:
        self._impatient += first
        self._moved.set()
        try:
            await news.wait()
        finally:
            self._impatient -= first

    def end(self, watch: Watch) -> None:
        self.subscriber.unwatch(watch)
        self._behind.discard(watch)
        self._moved.set()
        if not self.is_closed:
            self._settle()

    def abandon(self, watch: Watch) -> None:
        """A watcher was forgotten: by whichever thread collects garbage."""
        if self._loop is not None and not self._loop.is_closed() and not self.is_closed:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.end, watch)

    # -- around the core

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise UsageError("a client is used inside `async with`")
        return self._loop

    def _key(self, name: str, params: Params | None) -> tuple[AuthorityConfig, Key]:
        """Whom to ask, and as what. DYN-50: where there are no params, by a plain name."""
        name = xdstp.canonical(name)
        config = self.bootstrap.authority_of(name)
        params = config.params if params is None else params
        return config, (name, params if params and self.bootstrap.dynamic_parameters else None)

    def _authority(self, config: AuthorityConfig) -> Authority:
        known = self._authorities.get(config.name)
        if known is None:
            servers = [self._upstream(server) for server in config.servers]
            known = self._authorities[config.name] = Authority(config.name or "", servers)
        return known

    def _upstream(self, server: ServerConfig) -> Upstream:
        """XTP-13: equal servers share a stream."""
        known = self._servers.get(server)
        if known is None:
            fail = self._fail_on_data_errors
            known = self._servers[server] = self.subscriber.upstream(
                server.uri,
                delta=self._delta,
                fail_on_data_errors=server.fail_on_data_errors if fail is None else fail,
                timer_is_transient=server.resource_timer_is_transient_error,
            )
            known.wake = lambda: self._wake(known, server)
        return known

    def _wake(self, upstream: Upstream, server: ServerConfig) -> None:
        line = self._line(upstream, server)
        line.wake()
        task = self._tasks.get(upstream)
        if upstream.wanted and (task is None or task.done()) and not self.is_closed:
            self._tasks[upstream] = self._running.create_task(line.run(), name=f"xdsprism {server.uri}")

    def _line(self, upstream: Upstream, server: ServerConfig) -> Line:
        known = self._lines.get(upstream)
        if known is None:
            v3, delta = self._is_v3(server), upstream.delta
            node = self._node(server)
            known = self._lines[upstream] = Line(
                self.subscriber,
                upstream,
                transport=self._reach(server),
                path=ads_path(v3=v3, delta=delta),
                encoder=lambda: RequestEncoder(node, delta=delta, v3=v3),
                decoder=ResponseDecoder(self._check, delta=delta, locators=self.bootstrap.dynamic_parameters),
                settle=self._settle,
                taken=self._all_taken,
                chance=self._chance,
            )
        return known

    def _reach(self, server: ServerConfig) -> Transport:
        return self._connect(server) if self._connect is not None else GrpcTransport(server, self._running.time)

    def _is_v3(self, server: ServerConfig) -> bool:
        """VER-12."""
        return server.v3 if self._transport == "auto" else self._transport == "v3"

    def _node(self, server: ServerConfig) -> bytes:
        return node_bytes(self.bootstrap.node, self._release, v3=self._is_v3(server))

    async def _all_taken(self) -> None:
        """CLI-20."""
        while self._behind and not self._impatient:
            self._moved.clear()
            await self._moved.wait()

    def _settle(self) -> None:
        """After anything that the core was told: the next deadline, and what there is to tell."""
        due = self.subscriber.deadline()
        if self._timer is not None and self._timer.when() != due:
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None and not self.is_closed:
            self._timer = self._running.call_at(due, self._tick)
        facts, self.subscriber.facts[:] = self.subscriber.facts[:], []
        for reader in self.readers if facts else ():
            reader(facts)

    def _tick(self) -> None:
        self._timer = None
        self.subscriber.tick(self._running.time())
        self._settle()

    def _recall(self, entry: Entry) -> Iterable[Any]:
        return self._last_good.recall(entry) if self._last_good is not None else ()
