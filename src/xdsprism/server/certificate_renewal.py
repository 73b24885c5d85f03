"""Watches the certificate files of a server and puts renewed certificates into use; `tls.py` decides what is usable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError
from ..http2.facts import CertificatesInUse, CertificatesRefused, Fact
from ..watch import Watch, make_plan
from .tls import Material, Tls, expiry_warnings, read_material, read_renewed

log = logging.getLogger("xdsprism.server")

# Seconds without a change before unusable files are an error: a certificate and its key are often replaced one by one.
QUIET = 1.0
# Seconds until unusable files are read again: a certificate may become valid, and a `chmod` causes no event.
RETRY = 60.0
MAX_LINKS = 40  # symlinks in one path, as in Linux


class CertificateRenewal:
    """Keeps the certificates of one server in step with their files."""

    def __init__(
        self,
        tls: Tls,
        secure: Callable[[Material], None],
        report: Callable[[Sequence[Fact]], None],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`secure` puts certificates into use for new connections; `report` gets facts for metrics."""
        self._tls = tls
        self._secure = secure
        self._report = report
        self._wall = wall
        self.quiet, self.retry = QUIET, RETRY
        self._wake = asyncio.Event()
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
        watch: Watch | None = None
        try:
            while True:
                self._wake.clear()
                plan = make_plan(self._tls.paths, symlink_steps(self._tls.paths))
                if watch is None or watch.plan != plan:
                    if watch is not None:
                        await watch.stop()
                    watch = Watch(plan, lambda _: self._wake.set())
                    await watch.start()
                await self._try_renew()
                if make_plan(self._tls.paths, symlink_steps(self._tls.paths)) == plan:
                    await self._wait_for_change()
        finally:
            if watch is not None:
                await watch.stop()

    async def _wait_for_change(self) -> None:
        """Wait for an event; while the files are unusable, at most `retry` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.retry if self._last_refusal else None):
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

    def _report_in_use(self) -> None:
        """Report the certificates that are now in use, and warn about expired ones."""
        self._report([CertificatesInUse(self._current.not_after)])
        for text in expiry_warnings(self._tls, self._current, self._wall()):
            log.warning("%s", text)

    def _report_refused(self, why: str) -> None:
        """Report why changed files are not used, once for each reason."""
        if why != self._last_refusal:
            self._last_refusal = why
            self._report([CertificatesRefused(why)])
            log.error("new certificates refused, the last good ones stay: %s", why)


def symlink_steps(paths: Iterable[str]) -> set[Path]:
    """Return every symlink on the paths to these files, and the files: a change of any of them changes a file."""
    return {step for path in paths for step in _steps_of(Path(path).absolute())}


def _steps_of(path: Path) -> Iterator[Path]:
    """Follow the symlinks of one path, and yield each of them and the file at the end."""
    for _ in range(MAX_LINKS):
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            yield path
            return
        yield link
        path = (link.parent / link.readlink() / path.relative_to(link)).absolute()
