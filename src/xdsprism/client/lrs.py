"""Sends load reports (LRS) to one server: a loop around LoadSession, which decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core.codec.loads import decode_answer, encode_request
from ..core.loads.loads import NAMED_METRICS, UTILIZATIONS, Loads, LoadSession
from ..core.model.backoff import Backoff
from ..errors import XdsError

if TYPE_CHECKING:
    from .transport import ByteStream

_METHOD = "/envoy.service.load_stats.{}.LoadReportingService/StreamLoadStats"


class LoadReporter:
    """Reports load to one server, in the transport version that was chosen for it (VER-10).

    The stream opens with the first call of `loads()`: a server may not support LRS at all.
    """

    def __init__(
        self,
        open_stream: Callable[[str], Awaitable[ByteStream]],
        node: bytes,
        *,
        v3: bool,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        backoff: Backoff | None = None,
    ) -> None:
        self._open = open_stream
        self._node = node
        self._path = _METHOD.format("v3" if v3 else "v2")
        self._clock = clock
        self._chance = chance
        self._backoff = backoff or Backoff()
        self._loads: Loads | None = None
        self._task: asyncio.Task[None] | None = None
        self.problem: XdsError | None = None  # why the last stream ended; None again once a server has answered

    def loads(self) -> Loads:
        """Return the object that records load. The first call, inside a running loop, starts the reports."""
        if self._loads is None:
            self._loads = Loads(self._clock())
            self._task = asyncio.create_task(self._run(self._loads), name="load reports")
        return self._loads

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self, loads: Loads) -> None:
        """Open a stream again and again, with back-off."""
        while True:
            try:
                stream = await self._open(self._path)
                try:
                    await self._report(stream, LoadSession(loads))
                finally:
                    stream.cancel()
            except XdsError as error:
                self.problem = error
            await asyncio.sleep(self._backoff.next(self._chance()))

    async def _report(self, stream: ByteStream, session: LoadSession) -> None:
        """Report load on one stream. It ends with the XdsError of the stream."""
        reading = asyncio.ensure_future(stream.receive())
        try:
            while True:
                await self._send(stream, session)
                due = session.deadline()
                await asyncio.wait([reading], timeout=None if due is None else max(0.0, due - self._clock()))
                if reading.done():
                    session.receive(decode_answer(reading.result()), self._clock())
                    self._backoff.reset()
                    self.problem = None
                    reading = asyncio.ensure_future(stream.receive())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _send(self, stream: ByteStream, session: LoadSession) -> None:
        request = session.poll(self._clock())
        if request is None:
            return
        try:
            await stream.send(encode_request(request, self._node))
        except XdsError:
            session.unsent(request)
            raise


def orca_metrics(report: Any) -> dict[str, float]:
    """Return the metrics of an OrcaLoadReport by the names that A85 gives them, for `ClusterLoads.finished`."""
    metrics = {name: getattr(report, name) for name in UTILIZATIONS}
    return metrics | {f"{NAMED_METRICS}{key}": value for key, value in report.named_metrics.items()}
