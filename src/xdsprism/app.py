"""Builds the daemon, a server or a relay, from its settings; runs its tasks and handles its signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from abc import ABC, abstractmethod
from asyncio import TaskGroup
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from .admin.config_model import ConfigLoads
from .admin.http import View
from .admin.operations import Operations
from .config import RelayConfig, ServeConfig
from .core.model.facts import ChangeHeldBack, ChangeLetThrough, ConfigLoaded, Fact, PolicyRefused
from .core.model.removal_guard import Guard, HeldBack
from .core.model.store import Applied, Store
from .core.model.types import Changeset
from .core.policy.policy import Policy
from .errors import ConfigError, Problem, UsageError, XdsError
from .memory import find_trim, give_back
from .observe.holding_metrics import HoldingMetrics
from .observe.tracing import begin_tracing
from .observe.watch_metrics import WatchMetrics
from .relay.relay import Relay
from .server.connection_limits import disable_core_files, raise_descriptor_limit
from .server.http_port import CannotListenError
from .serving import Server
from .sources.files import FileSource, LoadReport
from .sources.policy_file import watch_policy
from .sources.watched_file import WatchedFile

log = logging.getLogger("xdsprism")

Announce = Callable[[str], None]

# For gc.set_threshold. The loop stands still during a collection, which takes about 0.3 microseconds for each object
# that it looks at: some 5 ms for the second generation. A collection of the oldest one takes some 100 ms if a client
# subscribes to 100,000 names, so it is rare; no object of a stream is in a reference cycle that only gc could free.
GC_THRESHOLDS = 2_000, 10, 500


class CannotStartError(XdsError):
    """A setting can't be used on this host now, such as a cache file that another process has open."""


def run(config: ServeConfig | RelayConfig, announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT. Calls `announce` with the ready line."""
    raise_descriptor_limit()
    disable_core_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(config, announce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional, and faster
    except ImportError:
        return None
    return uvloop.new_event_loop


async def serve(config: ServeConfig | RelayConfig, announce: Announce) -> None:
    """Run the daemon. Raises ConfigError or CannotListenError if it can't start; later errors are only logged."""
    daemon = FileDaemon(config) if isinstance(config, ServeConfig) else RelayDaemon(config)
    try:
        async with TaskGroup() as group:
            await daemon.run(group, announce)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the first task to fail; the group cancelled the others


def spare_collections() -> None:
    """Exclude the objects of the start from garbage collection, and collect old objects rarely: they are no garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class Daemon(ABC):
    """A server and its admin port. The subclasses differ in where the resources come from."""

    def __init__(self, server: Server, config: ServeConfig | RelayConfig, policy: WatchedFile[Policy] | None) -> None:
        self._server = server
        self._policy = policy
        self._policy_task: asyncio.Task[None] | None = None
        self._memory_task: asyncio.Task[None] | None = None
        self._operations = Operations(server, config.admin, config.access, files=isinstance(config, ServeConfig))
        self._metrics = self._operations.metrics
        self._tracing = begin_tracing(server.store, self._metrics.label)
        if self._tracing is not None:
            server.hub.readers.append(self._tracing)
        found = server.hub.policy
        if found is not None and found.needs_certificates and (config.tls is None or config.tls.client_ca is None):
            log.warning("the policy has rules for certificates, and no client can show one without --tls-client-ca")
        self._stop = asyncio.Event()
        self._unready: str | None = "it is starting"

    async def run(self, group: TaskGroup, announce: Announce) -> None:
        """Serve until a signal asks to stop. The admin port opens first, so that it can show why a start takes long."""
        self._listen_to_signals()
        self._operations.open(self._view(), group.create_task)
        exporting = group.create_task(self._tracing.run()) if self._tracing is not None else None
        try:
            if await self._prepare(group):
                if self._policy is not None:
                    watching = self._policy.run(self._server.enforce, self._policy_refused)
                    self._policy_task = group.create_task(watching)
                await self._start()
                spare_collections()
                self._memory_task = group.create_task(give_back(self._count_streams, find_trim()))
                rest = f" rest={self._server.rest_address}" if self._server.rest_address else ""
                announce(f"ready listen={self._server.address} admin={self._operations.address or 'off'}{rest}")
                await self._stop.wait()
        finally:
            self._unready = "the server is shutting down"
            for task in (self._policy_task, self._memory_task):
                if task is not None:
                    task.cancel()
            await self._finish()
            if self._tracing is not None and exporting is not None:
                exporting.cancel()
                await self._tracing.close()
            await self._operations.stop()

    def _count_streams(self) -> int:
        return len([*self._server.hub.connected()])

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_sighup)

    def _on_sighup(self) -> None:
        """Read certificates, tokens, policy and configuration again."""
        self._server.renew()
        if self._policy is not None:
            self._policy.check_now()
        self._operations.renew()
        self._reload()

    async def _start(self) -> None:
        try:
            await self._server.start()
        except UsageError as error:
            raise CannotListenError(str(error)) from error
        self._unready = None

    def _policy_refused(self, error: ConfigError) -> None:
        """Say why a changed policy is not taken."""
        self._add_fact(PolicyRefused(tuple(map(str, error.problems))))

    def _add_fact(self, fact: Fact) -> None:
        """Have the readers of the hub's facts see one that did not happen on a stream."""
        self._server.hub.facts.append(fact)
        self._server.hub.turn()

    # -- what the subclasses do

    @abstractmethod
    def _view(self) -> View: ...

    @abstractmethod
    def _reload(self) -> None: ...

    @abstractmethod
    async def _prepare(self, group: TaskGroup) -> bool:
        """Get ready to listen; return False if a signal asked to stop before that."""

    @abstractmethod
    async def _finish(self) -> None: ...


class FileDaemon(Daemon):
    """Serves the resources in configuration files."""

    def __init__(self, config: ServeConfig) -> None:
        store = Store()
        policy = watch_policy(config.policy) if config.policy is not None else None
        server = Server(
            store,
            config.listen,
            settings=config.settings,
            v2=config.v2,
            rest=config.rest,
            engine=config.engine,
            max_connection_age=config.max_connection_age,
            tls=config.tls,
            policy=policy.load() if policy is not None else None,
            csds=config.csds,
        )
        super().__init__(server, config, policy)
        self._store = store
        self._source = FileSource(
            config.paths,
            validate=config.validate,
            observe=self._loaded,
            guard=Guard(config.max_removals),
            allow_empty=config.allow_empty,
        )
        self._loading = config.loading
        self._loads = ConfigLoads(tuple(str(path) for path in config.paths), polling=lambda: self._source.polling)
        WatchMetrics(self._metrics.registry, lambda: self._source.polling)
        self._holding = HoldingMetrics(self._metrics.registry, self._metrics.label)
        server.hub.readers.append(self._holding)
        self._reported_change = ""  # the id of the held-back change that was logged last
        self._first_report: asyncio.Future[LoadReport] = asyncio.get_running_loop().create_future()
        self._source_task: asyncio.Task[None] | None = None
        self._unready = "the configuration is being loaded"
        self._warned: frozenset[Problem] = frozenset()  # the warnings that were logged

    def _view(self) -> View:
        return View(self._server.hub, self._metrics, self._loads, lambda: self._unready, confirm=self._confirm)

    def _reload(self) -> None:
        self._source.reload()

    async def _prepare(self, group: TaskGroup) -> bool:
        """DESIGN 3: wait for the first load. Serve only a configuration that is valid as a whole."""
        self._source_task = group.create_task(self._source.run(self._store.apply, self._prepare_change))
        stopped = asyncio.ensure_future(self._stop.wait())
        awaited: list[asyncio.Future[Any]] = [stopped, self._first_report]
        with self._loading(lambda: self._source.progress) if self._loading is not None else nullcontext():
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stop.is_set():
            return False
        errors = self._first_report.result().errors
        if errors:
            raise ConfigError(errors)
        return True

    def _prepare_change(self, changeset: Changeset) -> Callable[[], Applied]:
        return self._store.prepare(changeset, self._source.cause)

    async def _finish(self) -> None:
        if self._source_task is not None:
            self._source_task.cancel()
        await self._server.stop()

    def _loaded(self, report: LoadReport) -> None:
        """OPS-8: log and count a load. If it is refused, log why; the server keeps the last good configuration."""
        refused = self._loads.record(report)
        self._metrics.loaded(report.outcome)
        self._holding.show(report.held)
        if not self._first_report.done():
            self._first_report.set_result(report)
        elif refused is not None:
            self._add_fact(refused)
        if report.held is not None and report.held.id != self._reported_change:
            self._add_fact(ChangeHeldBack(report.held, self._remedy(report.held)))
        self._reported_change = report.held.id if report.held is not None else ""
        if report.is_accepted:
            self._server.hub.tell(ConfigLoaded(report.files, report.resources, len(report.warnings)))
            self._warn(report.warnings)

    def _warn(self, warnings: tuple[Problem, ...]) -> None:
        """Log each warning once, even if its line in the file changes later."""
        found = {replace(problem, line=0): problem for problem in warnings}
        for each, problem in found.items():
            if each not in self._warned:
                log.warning("%s", problem)
        self._warned = frozenset(found)

    def _remedy(self, held: HeldBack) -> str:
        if not self._operations.address:
            return "restart with --max-removals 100%, or with an admin port to which the change can be confirmed"
        return f"xdsprism confirm --admin {self._operations.address} --id {held.id}"

    async def _confirm(self, change: str | None) -> HeldBack:
        through = await self._source.confirm(change)
        self._add_fact(ChangeLetThrough(through))
        return through


class RelayDaemon(Daemon):
    """Serves the resources of upstream servers."""

    def __init__(self, config: RelayConfig) -> None:
        policy = watch_policy(config.policy) if config.policy is not None else None
        self._relay = relay = Relay(
            config.bootstrap,
            config.listen,
            settings=config.settings,
            v2=config.v2,
            rest=config.rest,
            engine=config.engine,
            max_connection_age=config.max_connection_age,
            tls=config.tls,
            policy=policy.load() if policy is not None else None,
            csds=config.csds,
            delta=config.delta,
            upstream_form=config.upstream_form,
            group_by=config.group_by,
            linger=config.linger,
            cache=config.cache,
            max_stale=config.max_stale,
            report_nacks=config.report_nacks,
            validate=config.validate,
        )
        super().__init__(relay.server, config, policy)
        relay.count(self._metrics)

    def _view(self) -> View:
        return self._relay.view(self._metrics, lambda: self._unready)

    def _reload(self) -> None:
        log.info("SIGHUP: a relay loads no files of resources; these come from its upstream servers")

    async def _prepare(self, group: TaskGroup) -> bool:
        del group
        try:
            self._relay.enter()
        except UsageError as error:
            raise CannotStartError(str(error)) from error
        self._relay.seek()
        return True

    async def _finish(self) -> None:
        await self._relay.stop()
