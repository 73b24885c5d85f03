"""What those who operate a server look at: its metrics, its log lines and its admin port. Put together here, once.

The daemon (app.py) has one of these, and so has a server or a relay that a program gives an admin port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ..http2.facts import Fact as ConnectionFact
from ..observe.connection_log import ConnectionLog
from ..observe.connection_metrics import (
    CertificateMetrics,
    ConnectionMetrics,
    HttpPortMetrics,
    LimitMetrics,
    RefusedCallMetrics,
)
from ..observe.event_metrics import EventMetrics
from ..observe.load_metrics import LoadMetrics
from ..observe.logs import FactLog
from ..observe.metrics import Metrics, RestMetrics
from ..observe.state_metrics import StreamLimitMetrics, client_state_metrics
from ..server.hub import Hub
from ..server.tls import Tls
from .access import Access
from .config_model import ConfigLoads
from .events import Events
from .http import View
from .port import AdminPort, Spawn

if TYPE_CHECKING:
    from ..sources.files import LoadReport
    from ..sources.following import Following


class Operated(Protocol):
    """A server, as far as its operators see it (serving.py)."""

    connection_readers: list[Callable[[Sequence[ConnectionFact]], None]]

    @property
    def hub(self) -> Hub: ...

    @property
    def engine(self) -> str: ...

    @property
    def tls(self) -> Tls | None: ...

    @property
    def has_rest(self) -> bool: ...


class Operations:
    """The metrics, the log lines and the admin port of a server. Made in the event loop, before the server starts.

    listen   HOST:PORT of the admin port; None: there is none, only metrics and log lines
    access   who may use that port
    files    whether the resources come from configuration files, so that there are loads to count
    """

    def __init__(
        self, server: Operated, listen: str | None, access: Access | None = None, *, files: bool = False
    ) -> None:
        self._listen = listen
        self._access = access or Access()
        self._port: AdminPort | None = None
        self._endings: list[Callable[[], None]] = []  # called when it stops
        hub = server.hub
        self.metrics = Metrics(hub.store, files=files)
        registry = self.metrics.registry
        states = client_state_metrics(hub.streams, self.metrics.label, hub.clock)
        registry.register(states)
        self.metrics.preparations.append(states.preparing)
        StreamLimitMetrics(registry, hub.settings.limits)
        loads = LoadMetrics(registry, hub.reports, hub.clock)
        self.metrics.preparations.append(loads.preparing)
        ports = [*(["admin"] if listen is not None else []), *(["rest"] if server.has_rest else [])]
        # The admin port has these too; other facts of its connections are none of the xDS port.
        self._port_readers: list[Callable[[Sequence[ConnectionFact]], None]] = [
            ConnectionLog(),
            HttpPortMetrics(registry, ports),
        ]
        if server.tls is not None or (listen is not None and self._access.tls is not None):
            self._port_readers.append(CertificateMetrics(registry))
        server.connection_readers += [*self._port_readers, RefusedCallMetrics(registry), LimitMetrics(self.metrics)]
        if server.engine == "h2":
            server.connection_readers.append(ConnectionMetrics(registry))
        self._events = Events(hub)
        EventMetrics(registry, lambda: len(self._events))
        hub.readers.extend([self.metrics, RestMetrics(registry), loads, FactLog(), self._events])

    @property
    def address(self) -> str:
        """HOST:PORT of the admin port once it is open; empty if there is none."""
        return self._port.address if self._port is not None else ""

    def open(self, view: View, spawn: Spawn | None = None) -> None:
        """Open the admin port, if there is one, and serve it in tasks that `spawn` makes.

        Raises UsageError, ConfigError or CannotListenError.
        """
        if self._listen is not None:
            view = replace(view, events=self._events)
            self._port = AdminPort(view, self._listen, self._access, self._report)
            self._port.start(spawn or asyncio.get_running_loop().create_task)

    def show_files(self, files: Following) -> ConfigLoads:
        """Have the loads of followed files counted, and return what the admin port shows of them."""
        shown = ConfigLoads(files.paths, polling=lambda: files.polling)

        def note(report: LoadReport) -> None:
            shown.record(report)
            self.metrics.loaded(report.outcome)

        if files.report is not None:
            note(files.report)
        files.observers.append(note)
        self._endings.append(lambda: files.observers.remove(note))
        return shown

    def renew(self) -> None:
        """Read the files of the admin port now, without waiting for an event (SIGHUP)."""
        if self._port is not None:
            self._port.renew()

    async def stop(self) -> None:
        """Close the admin port, after the requests that it is answering."""
        self._events.end()
        self.metrics.close()
        for end in self._endings:
            end()
        if self._port is not None:
            await self._port.stop()

    def _report(self, facts: Sequence[ConnectionFact]) -> None:
        for reader in self._port_readers:
            reader(facts)
