"""The admin port of a daemon, with its certificates and tokens, which are read again when their files change."""

from __future__ import annotations

import logging
from asyncio import Task, gather
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..errors import ConfigError
from ..http2.facts import Fact
from ..server.certificate_renewal import CertificateRenewal
from ..server.http_port import HttpPort
from ..server.tls import Material
from ..sources.watched_file import WatchedFile
from .access import Access
from .guard import HostNames, RequestGuard
from .http import View, build
from .tokens import Tokens, read_tokens, state_of

log = logging.getLogger("xdsprism")

Spawn = Callable[[Coroutine[Any, Any, None]], Task[None]]  # makes a task, as `create_task` of a loop or a group does


class AdminPort:
    """Opens the port, and keeps it in step with the files of its access."""

    def __init__(self, view: View, listen: str, access: Access, report: Callable[[Sequence[Fact]], None]) -> None:
        """Bind and listen. Raises UsageError, ConfigError or CannotListenError. `report`: to log and metrics."""
        warning = access.check(listen)
        if warning:
            log.warning("%s", warning)
        self._token_file: WatchedFile[Tokens] | None = None
        self._tokens: Tokens | None = None
        if access.token_file is not None:
            self._token_file = WatchedFile(access.token_file, read_tokens, state_of)
            self._tokens = self._token_file.load()
        self._renewal: CertificateRenewal | None = None
        if access.tls is not None:
            self._renewal = CertificateRenewal(access.tls, self._secure, report, ports=("admin",))
        tls = self._renewal.load().http if self._renewal is not None else None
        guard = RequestGuard(
            HostNames(listen, access.hosts),
            tokens=lambda: self._tokens,
            open_metrics=access.open_metrics,
            report=report,
        )
        self._tasks: list[Task[None]] = []
        self._port = HttpPort(build(view, guard), listen, "admin", tls, report=report)
        self.address = self._port.address

    def start(self, spawn: Spawn) -> None:
        """Serve until `stop`, in tasks that `spawn` makes."""
        self._tasks.append(spawn(self._port.serve()))
        if self._renewal is not None:
            self._tasks.append(spawn(self._renewal.run()))
        if self._token_file is not None:
            self._tasks.append(spawn(self._token_file.run(self._take, self._refuse)))

    def renew(self) -> None:
        """Read the files now, without waiting for an event (SIGHUP)."""
        if self._renewal is not None:
            self._renewal.check_now()
        if self._token_file is not None:
            self._token_file.check_now()

    async def stop(self) -> None:
        """Close the port, after the requests that it is answering."""
        self._port.stop()
        for watching in self._tasks[1:]:
            watching.cancel()
        await gather(*self._tasks, return_exceptions=True)

    def _secure(self, tls: Material) -> None:
        self._port.secure(tls.http)

    def _take(self, tokens: Tokens) -> None:
        self._tokens = tokens
        log.info("new tokens of the admin port are in use")

    def _refuse(self, error: ConfigError) -> None:
        log.error("new tokens of the admin port refused, the last good ones stay: %s", error)
