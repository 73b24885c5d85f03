"""Watches the certificate files of a server and puts renewed certificates into use; `tls.py` decides what is usable."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..errors import ConfigError
from ..file_watch import follow_files
from ..http2.facts import CertificatesInUse, CertificatesRefused, Fact
from .tls import Material, Tls, expiry_warnings, next_warning, read_material, read_renewed

log = logging.getLogger("xdsprism.server")

# Seconds without a change before unusable files are an error: a certificate and its key are often replaced one by one.
QUIET = 1.0
# Seconds until unusable files are read again: a certificate may become valid, and a `chmod` causes no event.
RETRY = 60.0
LOOK = 3600.0  # seconds until the clock is looked at again: a certificate may have come near its end


class CertificateRenewal:
    """Keeps the certificates of one server in step with their files."""

    def __init__(
        self,
        tls: Tls,
        secure: Callable[[Material], None],
        report: Callable[[Sequence[Fact]], None],
        *,
        ports: tuple[str, ...] = ("xds",),
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`secure` puts certificates into use for new connections; `report` gets facts for metrics about `ports`."""
        self._tls = tls
        self._ports = ports
        self._secure = secure
        self._report = report
        self._wall = wall
        self.quiet, self.retry = QUIET, RETRY
        self._wake = asyncio.Event()
        self._warned: set[str] = set()  # what was logged about the end of the certificates in use
        self._last_refusal = ""  # why the files were last refused; empty after a success

    def load(self) -> Material:
        """Read the files at the start. Raises ConfigError."""
        self._current = read_material(self._tls)
        self._report_in_use()
        return self._current

    def check_now(self) -> None:
        """Have `run` read the files now, without an event (SIGHUP)."""
        self._wake.set()

    async def run(self) -> None:
        """Watch the files and renew, until cancelled."""
        await follow_files(self._tls.paths, self._wake, self._try_renew, self._wait_for_change)

    async def _wait_for_change(self) -> None:
        """Wait for an event, or until a certificate nears its end; at most `retry` seconds while files are unusable."""
        now = self._wall()
        seconds = max(min(next_warning(self._current, now) - now, LOOK), self.quiet)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self.retry) if self._last_refusal else seconds):
                await self._wake.wait()

    async def _try_renew(self) -> None:
        """Renew; report unusable files only if they are still unusable after QUIET seconds without a change."""
        try:
            await self._renew()
        except ConfigError:
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.quiet)
                return  # the files changed again: start over
            try:
                await self._renew()
            except ConfigError as error:
                self._report_refused(str(error))

    async def _renew(self) -> None:
        """Read the files in a thread, since a disk may be slow, and put usable changes into use."""
        found = await asyncio.to_thread(read_renewed, self._tls, self._current, self._wall())
        self._last_refusal = ""
        if found is not None:
            self._current = found
            self._secure(found)
            self._report_in_use()
            log.info("new certificates are in use, from %s", ", ".join(found.not_after))
        self._warn()

    def _report_in_use(self) -> None:
        """Report the certificates that are now in use, and warn about those near their end."""
        ends = self._current.not_after
        files = {"server": self._tls.cert, "client_ca": self._tls.client_ca}
        uses = {use: ends[os.fspath(file)] for use, file in files.items() if file and os.fspath(file) in ends}
        self._report([CertificatesInUse(ends, uses, self._ports)])
        self._warned.clear()
        self._warn()

    def _warn(self) -> None:
        """Log what was not said yet about the end of the certificates in use."""
        for text in expiry_warnings(self._tls, self._current, self._wall()):
            if text not in self._warned:
                self._warned.add(text)
                log.warning("%s", text)

    def _report_refused(self, why: str) -> None:
        """Report why changed files are not used, once for each reason."""
        if why != self._last_refusal:
            self._last_refusal = why
            self._report([CertificatesRefused(why)])
            log.error("new certificates refused, the last good ones stay: %s", why)
