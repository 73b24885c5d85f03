"""A source that runs over a directory of the test, and the store that it feeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from xdsprism.core.model import types
from xdsprism.core.model.store import Store
from xdsprism.sources.files import FileSource, LoadReport

Put = Callable[[str, str], Path]


class Running:
    """A source that runs, and the store that it feeds."""

    def __init__(self, *paths: Path, **settings: Any) -> None:
        self.reports: asyncio.Queue[LoadReport] = asyncio.Queue()
        self.source = FileSource(paths, clock=lambda: 1000.0, observe=self.reports.put_nowait, **settings)
        self.store = Store()
        self.published: list[list[str]] = []

    def publish(self, changeset: types.Changeset) -> None:
        self.store.apply(changeset)
        self.published.append([name for _, name in changeset])

    def clusters(self) -> list[str]:
        return sorted(name for name, _ in self.store.table(types.CLUSTER))

    async def until(self, clusters: list[str], errors: int = 0, *, held: bool = False) -> LoadReport:
        """Wait for the report after which this is served; one edit may be seen in several steps."""
        async with asyncio.timeout(30):
            while True:
                report = await self.reports.get()
                if (self.clusters(), len(report.errors), report.held is not None) == (clusters, errors, held):
                    return report

    async def settled(self) -> None:
        """Wait until nothing but an event will make it look again, so that what follows is seen by its event."""
        for _ in range(2):  # the first may come while it looks anyway, and then makes for one more look after that
            self.source.reload()
            await self.until(self.clusters())


@asynccontextmanager
async def running(*paths: Path, **settings: Any) -> AsyncIterator[Running]:
    found = Running(*paths, **settings)
    task = asyncio.create_task(found.source.run(found.publish))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replace(path: Path, text: str) -> None:
    """As careful editors write: beside it, then renamed over it."""
    beside = path.with_name(".new")
    beside.write_text(text)
    beside.replace(path)
