"""The composition root: builds a server from its settings, and owns its tasks and signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from asyncio import TaskGroup
from collections.abc import Callable
from typing import Any

from .admin.http import View, build
from .admin.read_model import Loads
from .admin.server import AdminServer, CannotListenError
from .config import ServeConfig
from .core.facts import Refused
from .core.store import Store
from .errors import ConfigError, UsageError
from .observe.logs import FactLog
from .observe.metrics import Metrics
from .server.server import Server
from .sources.files import FileSource, LoadReport

log = logging.getLogger("xdsprism")

Announce = Callable[[str], None]


def run(config: ServeConfig, announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT. `announce` is called with the ready line."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(config, announce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - faster where there is one, and not needed
    except ImportError:
        return None
    return uvloop.new_event_loop


async def serve(config: ServeConfig, announce: Announce) -> None:
    """Raises ConfigError if the first load fails, and CannotListenError; later mistakes are logged and survived."""
    daemon = Daemon(config)
    try:
        async with TaskGroup() as group:
            await daemon.run(group, announce)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # one task failed; the others only ended because of it


class Daemon:
    """One server, its files and its admin port."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._store = Store()
        self._server = Server(self._store, config.listen, settings=config.settings)
        self._source = FileSource(config.paths, observe=self._loaded)
        self._loads = Loads(tuple(str(path) for path in config.paths))
        self._metrics = Metrics(self._store)
        self._server.hub.readers.extend([self._metrics, FactLog()])
        self._first: asyncio.Future[LoadReport] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._unready: str | None = "the configuration is being loaded"

    async def run(self, group: TaskGroup, announce: Announce) -> None:
        self._listen_to_signals()
        admin = self._open_admin()
        if admin is not None:
            group.create_task(admin.serve())
        feeding = group.create_task(self._source.run(self._store.apply))
        try:
            if await self._first_load():
                await self._start()
                announce(f"ready listen={self._server.address} admin={admin.address if admin else 'off'}")
                await self._stop.wait()
        finally:
            self._unready = "the server is shutting down"
            feeding.cancel()
            await self._server.stop()
            self._metrics.close()
            if admin is not None:
                admin.stop()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._source.reload)

    def _open_admin(self) -> AdminServer | None:
        if self._config.admin is None:
            return None
        view = View(self._server.hub, self._metrics, self._loads, lambda: self._unready)
        return AdminServer(build(view), self._config.admin)

    async def _first_load(self) -> bool:
        """Wait for it; False: asked to stop before. DESIGN 3: nothing is served of what is not all valid."""
        stopped = asyncio.ensure_future(self._stop.wait())
        awaited: list[asyncio.Future[Any]] = [stopped, self._first]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stop.is_set():
            return False
        errors = self._first.result().errors
        if errors:
            raise ConfigError(errors)
        return True

    async def _start(self) -> None:
        try:
            await self._server.start()
        except UsageError as error:
            raise CannotListenError(str(error)) from error
        self._unready = None

    def _loaded(self, report: LoadReport) -> None:
        """OPS-8: a bad edit is told with its reasons, and the last good state stays."""
        self._loads.take(report)
        self._metrics.loaded(ok=not report.errors)
        if not self._first.done():
            self._first.set_result(report)
        elif report.errors:
            self._server.hub.facts.append(Refused(tuple(str(problem) for problem in report.errors)))
            self._server.hub.turn()
        if not report.errors:
            log.info("configuration loaded: %d resources in %d files", report.resources, report.files)
