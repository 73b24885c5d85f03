"""The client: watch any xDS resource.

    async with xdsprism.Client("bootstrap.json") as client:
        async for update in client.watch(xdsprism.CLUSTER, "backend"):
            ...

Everything is decided in `core/watch/subscriber.py`; here are the loops around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ..core.codec.client_side import FEATURES, RequestEncoder, ResponseDecoder, ads_path, node_bytes
from ..core.model import xdstp
from ..core.model.dialect import Dialect, RequestForm
from ..core.model.events import WILDCARD, Key
from ..core.model.facts import Fact
from ..core.model.type_versions import as_v3
from ..core.model.types import VIRTUAL_HOST, Params, TypeSpec, TypeUrl
from ..core.watch.authority import Authority
from ..core.watch.entry import Entry, Recalled, Watch
from ..core.watch.subscriber import Subscriber
from ..core.watch.upstream import Upstream
from ..errors import UsageError, WatchError
from ..observe.logs import FactLog, log
from ..release import release
from .bootstrap import AuthorityConfig, Bootstrap, ServerConfig
from .checks import Validator, checking
from .credentials import checked_credentials
from .line import Do, Line, at_once
from .listing import Listing
from .transport import RECEIVE_BYTES, GrpcTransport, Transport
from .updates import Update, Watching, vhost_name

if TYPE_CHECKING:
    from ..core.loads.loads import Loads
    from .csds import StatusServer
    from .dependencies import ConfigWatching
    from .last_good import LastGood, Shelf
    from .lrs import LoadReporter

Connect = Callable[[ServerConfig], Transport]
Names = str | Iterable[str]
Updates = list[Update]


class Client:
    """An xDS client. It belongs to the event loop in which it was entered.

    bootstrap           a path, a mapping, JSON text or a Bootstrap; none: as GRPC_XDS_BOOTSTRAP says
    delta               incremental streams in place of state of the world; None: where the server has them
    transport           "v2" or "v3" for every server, in place of what each server's features say (A30)
    validators          by type URL: what to check in place of `validate.rules`; yields what is wrong with a message
    verify_constraints  refuse variants whose constraints do not match the params that were sent
    fail_on_data_errors drop what a server deletes or denies; None: as its features say (A88)
    cache               a file for the last good state, to start from while every server is down; or a shelf of one
    types               what the protocol should know of further types
    credentials         grpc.ChannelCredentials for servers without channel_creds in the bootstrap; None: TLS (A30)
    max_message_bytes   the largest response that is taken; a stream on which a larger one comes is given up
    connect             how to get to a server; gRPC, unless a test has something else
    """

    _work: Do = staticmethod(at_once)  # how what a server says is taken in
    _aside: Do = staticmethod(at_once)  # how requests are found and encoded
    _features: tuple[str, ...] = FEATURES  # of the node: what whoever gets the resources can do

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        bootstrap: Bootstrap | str | Path | Mapping[str, Any] | None = None,
        *,
        delta: bool | None = False,
        transport: Literal["auto", "v2", "v3"] = "auto",
        validators: Mapping[TypeUrl, Validator] | None = None,
        verify_constraints: bool = False,
        fail_on_data_errors: bool | None = None,
        cache: str | Path | Shelf | None = None,
        types: Iterable[TypeSpec] = (),
        credentials: Any = None,
        max_message_bytes: int = RECEIVE_BYTES,
        connect: Connect | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if transport not in ("auto", "v2", "v3"):
            raise UsageError(f"transport is auto, v2 or v3, not {transport!r}")
        self.bootstrap = bootstrap if isinstance(bootstrap, Bootstrap) else Bootstrap.load(bootstrap)
        self.is_closed = False
        self.readers: list[Callable[[Sequence[Fact]], None]] = [FactLog()]  # of what happens
        self.subscriber = Subscriber(types, verify_constraints=verify_constraints, recall=self._recall)
        self._delta = delta is not False
        self._needs_delta = delta is True
        self._transport = transport
        self._fail_on_data_errors = fail_on_data_errors
        self._check = checking(validators or {})
        self._cache = cache
        self._credentials = checked_credentials(credentials)
        self._max_message_bytes = max_message_bytes
        self._connect = connect
        self._chance = chance
        self._authorities: dict[str | None, Authority] = {}
        self._servers: dict[ServerConfig, Upstream] = {}
        self._lines: dict[Upstream, Line] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._reporters: dict[ServerConfig, tuple[LoadReporter, Transport]] = {}
        self._last_good: LastGood | None = None
        self._shelf: Shelf | None = None
        self._status_servers: list[StatusServer] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watches: set[Watch] = set()
        self._behind: set[Watch] = set()  # have not taken everything yet
        self._impatient: set[asyncio.Event] = set()  # wait for their first answer
        self._moved = asyncio.Event()
        self._release = release()

    # -- life

    def enter(self) -> None:
        """What `async with` begins with, for whoever closes it by `close`."""
        self._loop = asyncio.get_running_loop()
        if isinstance(self._cache, str | Path):
            from .last_good import LastGood  # noqa: PLC0415 # nor this: it takes a database

            self._last_good = LastGood(str(self._cache), lambda text: log.warning("%s", text))
            self._shelf = self._last_good.shelf()
            self._tasks[self._last_good] = asyncio.create_task(self._last_good.run(), name="xdsprism disk cache")
        else:
            self._shelf = self._cache
        if self._shelf is not None:
            self.subscriber.listeners.append(self._shelf.note)
            self.subscriber.leavers.append(self._shelf.leave)

    async def __aenter__(self) -> Self:
        self.enter()
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
        for server in self._status_servers:
            await server.stop()
        for reporter, transport in self._reporters.values():
            await reporter.close()
            await transport.close()
        await asyncio.gather(*[line.flush() for line in self._lines.values()])
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        # How a task was cancelled leads to its call, and a call keeps its connection open until somebody collects it.
        self._tasks.clear()
        for line in self._lines.values():
            await line.transport.close()
        if self._last_good is not None:
            await self._last_good.close()
        for watch in self._watches:
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

    async def request_vhost(
        self,
        route_config: str,
        host: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = 15.0,  # noqa: ASYNC109 # VHD-22
    ) -> Update:
        """Ask which virtual host of a route configuration serves a host, as Envoy does on demand (VHDS).

        host: as in a request's Host header; in lower case, and with its port, it is what the server is asked for.
        Returns an update with the virtual host, or with the error: NOT_FOUND where the server calls it unresolved,
        DEADLINE_EXCEEDED where it says nothing in time; of longer times the client's own timer, which all it watches
        has, makes 15 s. The subscription ends with the answer: to hear of changes, and of a host that comes later,
        `watch(VIRTUAL_HOST, "ROUTE_CONFIG/HOST")`.
        """
        name = vhost_name(route_config, host)
        try:
            async with asyncio.timeout(timeout), self.watch(VIRTUAL_HOST, name, params=params) as updates:
                async for update in updates:
                    return update
        except TimeoutError:
            error = WatchError("DEADLINE_EXCEEDED", f"{name!r}: no answer within {timeout:g} s")
            return Update(VIRTUAL_HOST, name, error=error)
        return Update(VIRTUAL_HOST, name, error=WatchError("CANCELLED", f"{name!r}: the client was closed"))

    async def list(
        self,
        type_url: TypeUrl,
        name: str = WILDCARD,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Updates:
        """Ask for all resources of a type, or of an xdstp glob, once. Those that can't be used come with their error.

        Delta has no sign that a list is complete: a server that does not answer for names that it does not know has
        said all when it is quiet for a second. When the time is over, what has come by then is the list. Raises
        WatchError if nobody can be asked, and if nobody has answered in time.
        """
        asked = Params(params) if params is not None else None
        with Listing(self, type_url, (name, asked), delta=self._delta) as listing:
            return await listing.collect(timeout)

    def loads(self, authority: str | None = None) -> Loads:
        """Where to record load, which is reported to the first server of the authority (LRS-2)."""
        config = self.bootstrap.root if authority is None else self.bootstrap.authority(authority)
        if not config.servers:
            raise UsageError("nobody to report load to: the bootstrap has no xds_servers")
        server = config.servers[0]
        if server not in self._reporters:
            from .lrs import LoadReporter  # noqa: PLC0415 # few need it

            transport = self._reach(server)  # of its own: one that gets new credentials ends all its streams
            reporter = LoadReporter(
                transport.open,
                self._node(server),
                v3=self._is_v3(server),
                clock=self._running.time,
                chance=self._chance,
            )
            self._reporters[server] = reporter, transport
        return self._reporters[server][0].loads()

    def watch_config(
        self, listener: str, *, clusters: Names = (), params: Mapping[str, str] | None = None
    ) -> ConfigWatching:
        """Follow a listener together with its routes, clusters and endpoints: an async iterator of whole `Config`s.

        Nothing is shown before there is a result for everything that is referred to (gRFC A74). Virtual hosts that
        are to be had on demand, by VHDS, are not followed: nobody knows which there are.

        clusters: these too, as for routes that choose a cluster by a header. params: as in `watch`, for all of it.
        """
        from .dependencies import ConfigWatching  # noqa: PLC0415 # few need it

        extra = (clusters,) if isinstance(clusters, str) else tuple(clusters)
        return ConfigWatching(self, listener, extra, Params(params) if params is not None else None)

    # -- showing

    def status(self, *, contents: bool = True, scope: str | None = None) -> Any:
        """What is watched and in which state: a ClientStatusResponse of CSDS (A40).

        contents: with the resources themselves. scope: what to call this client; None: as its first server.
        """
        from .csds import client_status  # noqa: PLC0415 # few need it

        return client_status(self, contents=contents, scope=scope)

    async def serve_status(self, listen: str = "127.0.0.1:0", *, scope: str | None = None) -> str:
        """Serve CSDS in plain text until the client is closed; returns the address."""
        from .csds import StatusServer  # noqa: PLC0415 # few need it

        if self.is_closed:
            raise UsageError("the client is closed")
        self._running  # noqa: B018 # says so if the client was not entered
        server = StatusServer(self, scope)
        address = await server.start(listen)
        self._status_servers.append(server)
        return address

    # -- for Watching

    def now(self) -> float:
        return self._running.time()

    def begin(self, wake: Callable[[], None], type_url: TypeUrl, keys: Iterable[Key]) -> Watch:
        if self.is_closed:
            raise UsageError("the client is closed")
        self._running  # noqa: B018 # says so if the client was not entered
        type_url = as_v3(type_url)  # VER-9
        self._check_way(type_url)
        watch = Watch(lambda: None)

        def woken() -> None:
            if watch:
                self._behind.add(watch)
            wake()

        watch.wake = woken
        self._watches.add(watch)
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
        if first:
            self._impatient.add(news)
        self._moved.set()
        try:
            await news.wait()
        finally:
            self._impatient.discard(news)

    def end(self, watch: Watch) -> None:
        self.subscriber.unwatch(watch)
        self._watches.discard(watch)
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

    def _check_way(self, type_url: TypeUrl) -> None:
        """VHD-1."""
        if type_url == VIRTUAL_HOST and not self._delta:
            raise UsageError("virtual hosts are served incrementally only: make the client with delta=True")

    def _authority(self, config: AuthorityConfig) -> Authority:
        known = self._authorities.get(config.name)
        if known is None:
            servers = [self._upstream(server) for server in config.servers]
            known = self._authorities[config.name] = Authority(
                config.name or "", servers, reachability_only=config.fallback_on_reachability_only
            )
        return known

    def _upstream(self, server: ServerConfig) -> Upstream:
        """XTP-13: equal servers share a stream."""
        known = self._servers.get(server)
        if known is None:
            fail = self._fail_on_data_errors
            known = self._servers[server] = self.subscriber.upstream(
                server.uri,
                delta=self._delta,
                dialect=self._dialect(server),
                fail_on_data_errors=server.fail_on_data_errors if fail is None else fail,
                timer_is_transient=server.resource_timer_is_transient_error,
                trusted=server.trusted_xds_server,
            )
            known.wake = lambda: self._wake(known, server)
        return known

    def _dialect(self, server: ServerConfig) -> Dialect:
        """VER-13: v2 has no locators. Who gave params to a client of v3 wants them to be sent."""
        form = RequestForm.LOCATORS if self._is_v3(server) else RequestForm.NAMES
        return Dialect(form, needs_delta=self._needs_delta)

    def _wake(self, upstream: Upstream, server: ServerConfig) -> None:
        line = self._line(upstream, server)
        line.wake()
        task = self._tasks.get(upstream)
        if upstream.wanted and (task is None or task.done()) and not self.is_closed:
            self._tasks[upstream] = self._running.create_task(line.run(), name=f"xdsprism {server.uri}")

    def _line(self, upstream: Upstream, server: ServerConfig) -> Line:
        known = self._lines.get(upstream)
        if known is None:
            v3 = self._is_v3(server)
            node = self._node(server)
            known = self._lines[upstream] = Line(
                self.subscriber,
                upstream,
                transport=self._reach(server),
                path=lambda: ads_path(v3=v3, delta=upstream.delta),
                encoder=lambda: RequestEncoder(node, delta=upstream.delta, v3=v3),
                decoder=lambda: self._decoder(upstream),
                settle=self._settle,
                taken=self._all_taken,
                chance=self._chance,
                work=self._work,
                aside=self._aside,
            )
        return known

    def _decoder(self, upstream: Upstream) -> ResponseDecoder:
        locators = self.bootstrap.dynamic_parameters
        return ResponseDecoder(self._check, delta=upstream.delta, locators=locators, asks=upstream.asks)

    def _reach(self, server: ServerConfig) -> Transport:
        if self._connect is not None:
            return self._connect(server)
        return GrpcTransport(server, self._running.time, self._max_message_bytes, credentials=self._credentials)

    def _is_v3(self, server: ServerConfig) -> bool:
        """VER-12."""
        return server.v3 if self._transport == "auto" else self._transport == "v3"

    def _node(self, server: ServerConfig) -> bytes:
        return node_bytes(self.bootstrap.node, self._release, v3=self._is_v3(server), features=self._features)

    async def _all_taken(self) -> None:
        """CLI-20."""
        while self._behind and all(news.is_set() for news in self._impatient):
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

    def _recall(self, entry: Entry) -> Recalled | None:
        return self._shelf.recall(entry) if self._shelf is not None else None
