"""The xDS client, which watches resources of any type.

    async with xdsprism.Client("bootstrap.json") as client:
        async for update in client.watch(xdsprism.CLUSTER, "backend"):
            ...

`core/watch/subscriber.py` makes all decisions. The client opens connections, calls the subscriber with what comes in,
sets the timer for its next deadline, and hands its updates to the watchers.
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
from ..core.model.type_names import TypeName, own_types, resolve_type
from ..core.model.type_versions import as_v3
from ..core.model.types import VIRTUAL_HOST, Params, TypeSpec, TypeUrl
from ..core.watch.authority import Authority
from ..core.watch.entry import Entry, Recalled, Watch
from ..core.watch.subscriber import Subscriber
from ..core.watch.upstream import Upstream
from ..errors import UsageError, WatchError
from ..observe.lines import log, logging_errors
from ..observe.logs import FactLog
from ..release import __version__
from .arguments import check_client, names_of, params_of
from .backpressure import Backpressure
from .bootstrap import AuthorityConfig, Bootstrap, ServerConfig
from .checks import Validator, checking
from .credentials import checked_credentials
from .line import Do, Line, at_once
from .list_query import ListQuery
from .transport import RECEIVE_BYTES, GrpcTransport, Transport
from .updates import Update, Watching, vhost_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ..core.loads.loads import Loads
    from ..observe.xds_client_metrics import XdsClientMetrics
    from .csds import StatusServer
    from .dependencies import ConfigWatching
    from .last_good import ClientCache, LastGood
    from .lrs import LoadReporter

Connect = Callable[[ServerConfig], Transport]
Names = str | Iterable[str]
Updates = list[Update]
CACHE_FAILED = "the disk cache could not take a change in"


class Client:
    """An xDS client. It belongs to the event loop in which it was entered.

    bootstrap           a path, a mapping, JSON text or a Bootstrap; None: the one that GRPC_XDS_BOOTSTRAP names
    delta               use delta streams instead of SotW; None: if the server supports them
    transport           "v2" or "v3" for every server; "auto": as each server's features say (A30)
    validators          by type: functions that replace the check by `validate.rules`, and yield faults
    verify_constraints  refuse variants whose constraints do not match the params of the subscription
    fail_on_data_errors drop a resource that a server deletes or denies; None: as its features say (A88)
    cache               a file that keeps the last good state, for a start while every server is down; or a ClientCache
    types               further resource types, with their properties
    credentials         grpc.ChannelCredentials for servers without channel_creds in the bootstrap; None: TLS (A30)
    max_message_bytes   the largest response to accept; a larger one ends the stream
    metrics             a prometheus_client registry to which the client adds the metrics of gRFC A78
    target              what these metrics call the client (`grpc.target`)
    connect             makes the transport to a server; tests replace gRPC with it
    """

    _work: Do = staticmethod(at_once)  # runs the processing of a response; a relay does it in slices
    _aside: Do = staticmethod(at_once)  # runs the building and encoding of requests; a relay does it in slices
    _features: tuple[str, ...] = FEATURES  # the client features in the node message

    def __init__(  # noqa: PLR0913 # each is one choice
        self,
        bootstrap: Bootstrap | str | Path | Mapping[str, Any] | None = None,
        *,
        delta: bool | None = False,
        transport: Literal["auto", "v2", "v3"] = "auto",
        validators: Mapping[TypeName, Validator] | None = None,
        verify_constraints: bool = False,
        fail_on_data_errors: bool | None = None,
        cache: str | Path | ClientCache | None = None,
        types: Iterable[TypeSpec] = (),
        credentials: Any = None,
        max_message_bytes: int = RECEIVE_BYTES,
        metrics: CollectorRegistry | None = None,
        target: str = "",
        connect: Connect | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_client(
            delta=delta,
            transport=transport,
            max_message_bytes=max_message_bytes,
            verify_constraints=verify_constraints,
            fail_on_data_errors=fail_on_data_errors,
        )
        self.bootstrap = bootstrap if isinstance(bootstrap, Bootstrap) else Bootstrap.load(bootstrap)
        self.is_closed = False
        self.readers: list[Callable[[Sequence[Fact]], None]] = [FactLog()]  # called with the facts of the core
        self._types = own_types(types)
        self.subscriber = Subscriber(self._types, verify_constraints=verify_constraints, recall=self._recall)
        self._delta = delta is not False
        self._needs_delta = delta is True
        self._transport = transport
        self._fail_on_data_errors = fail_on_data_errors
        self._check = checking({self.resolve(name): each for name, each in (validators or {}).items()})
        self._cache = cache
        self._credentials = checked_credentials(credentials)
        self._max_message_bytes = max_message_bytes
        self._xds_metrics: XdsClientMetrics | None = None
        if metrics is not None:
            from ..observe.xds_client_metrics import XdsClientMetrics  # noqa: PLC0415 # few need it

            self._xds_metrics = XdsClientMetrics.of(metrics)
        self._target = target
        self._connect = connect
        self._chance = chance
        self._authorities: dict[str | None, Authority] = {}
        self._servers: dict[ServerConfig, Upstream] = {}
        self._lines: dict[Upstream, Line] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._reporters: dict[ServerConfig, tuple[LoadReporter, Transport]] = {}
        self._last_good: LastGood | None = None
        self._client_cache: ClientCache | None = None
        self._status_servers: list[StatusServer] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # uvloop's handle does not say for when it is, if that is now
        self._watches: set[Watch] = set()
        self.backpressure = Backpressure()

    # -- opening and closing

    def enter(self) -> None:
        """Begin as `async with` does, for a caller that calls `close` itself."""
        self._loop = asyncio.get_running_loop()
        if self._xds_metrics is not None:
            self._xds_metrics.add(self.subscriber, self._target)
        if isinstance(self._cache, str | Path):
            from .last_good import LastGood  # noqa: PLC0415 # imports SQLite

            self._last_good = LastGood(str(self._cache), lambda text: log.warning("%s", text))
            self._client_cache = self._last_good.client_cache()
            self._tasks[self._last_good] = asyncio.create_task(self._last_good.run(), name="xdsprism disk cache")
        else:
            self._client_cache = self._cache
        if self._client_cache is not None:
            self.subscriber.listeners.append(logging_errors(self._client_cache.on_changed, CACHE_FAILED))
            self.subscriber.leavers.append(logging_errors(self._client_cache.on_unsubscribed, CACHE_FAILED))

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
        if self._xds_metrics is not None:
            self._xds_metrics.remove(self.subscriber)
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
        # A cancelled task's exception refers to its gRPC call, which keeps its connection open until it is collected.
        self._tasks.clear()
        for line in self._lines.values():
            await line.transport.close()
        if self._last_good is not None:
            await self._last_good.close()
        for watch in self._watches:
            watch.wake()

    # -- resources

    def resolve(self, type_name: TypeName) -> TypeUrl:
        """Return the URL of a type: of a word (`cds`), a full name, a URL or a message class. Raises UsageError."""
        return as_v3(resolve_type(type_name, self._types))  # VER-9

    def watch(
        self, type_url: TypeName, names: Names = WILDCARD, *, params: Mapping[str, str] | None = None
    ) -> Watching:
        """Watch one resource, several, or all of the type (`"*"`): returns an async iterator of updates.

        type_url: `cds`, a message's full name, a type URL or a message class.

        params: the dynamic parameters to subscribe with. None: those of the bootstrap, if it has any; empty: none.
        """
        given = params_of(params)
        return Watching(self, self.resolve(type_url), tuple(Key(name, given) for name in names_of(names)))

    async def get(
        self,
        type_url: TypeName,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 # as every client has it
    ) -> Any:
        """Get one resource once. Raises WatchError if it does not exist, is invalid, or does not come in time."""
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
        """Request the virtual host of a route configuration that serves a host, as Envoy does on demand (VHDS).

        host: the Host header of a request. The client subscribes to it in lower case and with its port.

        Returns an update with the virtual host or an error: NOT_FOUND if the server reports the host as unresolved,
        DEADLINE_EXCEEDED if it does not answer in time. A timeout above 15 s has no effect, as the timer of every watch
        ends the wait after 15 s. The subscription ends with the answer. To follow changes, or a host that may appear
        later, use `watch(VIRTUAL_HOST, "ROUTE_CONFIG/HOST")`.
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
        type_url: TypeName,
        name: str = WILDCARD,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Updates:
        """Get all resources of a type, or of an xdstp glob, once. An invalid resource comes with its error.

        Nothing in delta marks a list as complete. If a server does not answer for unknown names, its list counts as
        complete after a second without an update. When the timeout ends, the list is what has come until then. Raises
        WatchError if no server can be reached, and if none has answered in time.
        """
        with ListQuery(self, self.resolve(type_url), Key(name, params_of(params)), delta=self._delta) as listing:
            return await listing.collect(timeout)

    def loads(self, authority: str | None = None) -> Loads:
        """Return the object that records load. The client reports it to the first server of the authority (LRS-2)."""
        config = self.bootstrap.root if authority is None else self.bootstrap.authority(authority)
        if not config.servers:
            raise UsageError("no server to report load to: the bootstrap has no xds_servers")
        server = config.servers[0]
        if server not in self._reporters:
            from .lrs import LoadReporter  # noqa: PLC0415 # few need it

            transport = self._reach(server)  # not the one of ADS: new credentials close a transport with all streams
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
        """Watch a listener with its routes, clusters and endpoints: returns an async iterator of complete `Config`s.

        It yields nothing until there is a result for every resource that is referred to (gRFC A74). Virtual hosts of
        VHDS are not followed, as the client can't know their names.

        clusters: further clusters to include, for routes that choose a cluster by a header. params: as in `watch`, for
        all resources.
        """
        from .dependencies import ConfigWatching  # noqa: PLC0415 # few need it

        extra = (clusters,) if isinstance(clusters, str) else tuple(clusters)
        return ConfigWatching(self, listener, extra, params_of(params))

    # -- status

    def status(self, *, contents: bool = True, scope: str | None = None) -> Any:
        """Return all watched resources and their states: a ClientStatusResponse of CSDS (A40).

        contents: whether to include the resources themselves. scope: the name of this client; None: its first server.
        """
        from .csds import client_status  # noqa: PLC0415 # few need it

        return client_status(self, contents=contents, scope=scope)

    async def serve_status(self, listen: str = "127.0.0.1:0", *, scope: str | None = None) -> str:
        """Serve CSDS in plain text until the client is closed. Returns the address."""
        from .csds import StatusServer  # noqa: PLC0415 # few need it

        if self.is_closed:
            raise UsageError("the client is closed")
        self._running  # noqa: B018 # raises UsageError if the client was not entered
        server = StatusServer(self, scope)
        address = await server.start(listen)
        self._status_servers.append(server)
        return address

    # -- for Watching, ConfigWatching and Listing

    def now(self) -> float:
        return self._running.time()

    def begin_watch(self, wake: Callable[[], None], type_url: TypeUrl, keys: Iterable[Key]) -> Watch:
        """Subscribe to resources. The client calls `wake` when the watch has updates."""
        if self.is_closed:
            raise UsageError("the client is closed")
        self._running  # noqa: B018 # raises UsageError if the client was not entered
        self._check_way(type_url)

        def on_update() -> None:
            self.backpressure.note_update(watch)
            wake()

        watch = Watch(on_update)
        self._watches.add(watch)
        for name, params in keys:
            try:
                config, key = self._key(name, params)
            except UsageError as error:  # XTP-12: an error for this watcher only
                watch.report_unaskable(type_url, name, WatchError("INVALID_ARGUMENT", str(error)))
                continue
            self.subscriber.watch(watch, self._authority(config), type_url, key)
        self._after_core_call()
        return watch

    def end_watch(self, watch: Watch) -> None:
        """Unsubscribe."""
        self.subscriber.unwatch(watch)
        self._watches.discard(watch)
        self.backpressure.forget(watch)
        if not self.is_closed:
            self._after_core_call()

    def abandon_watch(self, watch: Watch) -> None:
        """End the watch of an iterator that was garbage collected, which may happen in any thread."""
        if self._loop is not None and not self._loop.is_closed() and not self.is_closed:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.end_watch, watch)

    # -- around the core

    @property
    def _running(self) -> asyncio.AbstractEventLoop:
        """The event loop that the client was entered in. Raises UsageError if it was not entered."""
        if self._loop is None:
            raise UsageError("use the client inside `async with`")
        return self._loop

    def _key(self, name: str, params: Params | None) -> tuple[AuthorityConfig, Key]:
        """Return the authority of a name, and the key to subscribe with. DYN-50: without params it is a plain name."""
        name = xdstp.canonical(name)
        config = self.bootstrap.authority_of(name)
        params = config.params if params is None else params
        return config, Key(name, params if params and self.bootstrap.dynamic_parameters else None)

    def _check_way(self, type_url: TypeUrl) -> None:
        """VHD-1: refuse virtual hosts on SotW."""
        if type_url == VIRTUAL_HOST and not self._delta:
            raise UsageError("virtual hosts need delta: make the client with delta=True")

    def _authority(self, config: AuthorityConfig) -> Authority:
        known = self._authorities.get(config.name)
        if known is None:
            servers = [self._upstream(server) for server in config.servers]
            known = self._authorities[config.name] = Authority(
                config.name or "", servers, reachability_only=config.fallback_on_reachability_only
            )
        return known

    def _upstream(self, server: ServerConfig) -> Upstream:
        """XTP-13: return the upstream of a server; equal servers share a stream."""
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
                wake=lambda upstream: self._wake(upstream, server),
            )
        return known

    def _dialect(self, server: ServerConfig) -> Dialect:
        """VER-13: send no locators on v2. On v3, send them: a user who gives params wants them to be used."""
        form = RequestForm.LOCATORS if self._is_v3(server) else RequestForm.NAMES
        return Dialect(form, needs_delta=self._needs_delta)

    def _wake(self, upstream: Upstream, server: ServerConfig) -> None:
        """Called when an upstream has something to send, or is not needed any more: start or wake its task."""
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
                after_core_call=self._after_core_call,
                taken=self.backpressure.all_taken,
                chance=self._chance,
                work=self._work,
                aside=self._aside,
            )
        return known

    def _decoder(self, upstream: Upstream) -> ResponseDecoder:
        locators = self.bootstrap.dynamic_parameters
        return ResponseDecoder(self._check, delta=upstream.delta, locators=locators, asks=upstream.requests.asks)

    def _reach(self, server: ServerConfig) -> Transport:
        if self._connect is not None:
            return self._connect(server)
        return GrpcTransport(server, self._running.time, self._max_message_bytes, credentials=self._credentials)

    def _is_v3(self, server: ServerConfig) -> bool:
        """VER-12: the program's choice of the transport version wins over the server's features."""
        return server.v3 if self._transport == "auto" else self._transport == "v3"

    def _node(self, server: ServerConfig) -> bytes:
        return node_bytes(self.bootstrap.node, __version__, v3=self._is_v3(server), features=self._features)

    def _after_core_call(self) -> None:
        """Set the timer for the core's next deadline, and pass its facts on. Called after each call of the core."""
        due = self.subscriber.deadline()
        if self._timer is not None and self._timer_at != due:
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None and not self.is_closed:
            self._timer = self._running.call_at(due, self._tick)
            self._timer_at = due
        facts, self.subscriber.facts[:] = self.subscriber.facts[:], []
        for reader in self.readers if facts else ():
            reader(facts)

    def _tick(self) -> None:
        """Called at the core's deadline."""
        self._timer = None
        self.subscriber.tick(self._running.time())
        self._after_core_call()

    def _recall(self, entry: Entry) -> Recalled | None:
        return self._client_cache.recall(entry) if self._client_cache is not None else None
