"""The phases of a server's life, as the admin port shows them."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from tests.support import web
from xdsprism import ConfigError, app
from xdsprism.admin import port
from xdsprism.config import ServeConfig
from xdsprism.errors import Problem
from xdsprism.server.http_port import HttpPort
from xdsprism.sources.files import LoadReport


@dataclass
class Stage:
    """A daemon whose files are read when the test says so."""

    opened: list[HttpPort] = field(default_factory=list)
    said: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    report: asyncio.Queue[LoadReport | Exception] = field(default_factory=asyncio.Queue)

    async def start(self, **settings: Any) -> asyncio.Task[None]:
        config = ServeConfig((Path("config"),), "127.0.0.1:0", "127.0.0.1:0", **settings)
        return asyncio.create_task(app.serve(config, self.said.put_nowait))

    async def ready(self) -> tuple[int, str]:
        async with asyncio.timeout(20):
            while True:
                try:
                    answer = await asyncio.to_thread(web.get, *web.split(self.opened[0].address), "/readyz")
                except (OSError, IndexError):
                    await asyncio.sleep(0.01)
                else:
                    return answer.status, answer.body


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()

    class Files:
        def __init__(self, _: object, observe: Any, **__: object) -> None:
            self._observe = observe

        async def run(self, *_: object) -> None:
            while True:
                report = await stage.report.get()
                if isinstance(report, Exception):
                    raise report
                self._observe(report)

        def reload(self) -> None: ...

    class Admin(HttpPort):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            stage.opened.append(self)

    monkeypatch.setattr(app, "FileSource", Files)
    monkeypatch.setattr(port, "HttpPort", Admin)
    return stage


async def test_not_ready_until_the_first_configuration_is_loaded_and_the_server_listens(stage: Stage):
    serving = await stage.start()
    loading = '{"status":"not ready","reason":"the configuration is being loaded"}'
    assert await stage.ready() == (503, loading)
    assert stage.said.empty()

    stage.report.put_nowait(LoadReport(0.0, 1, 1))
    assert (await asyncio.wait_for(stage.said.get(), 20)).startswith("ready listen=127.0.0.1:")
    assert (await stage.ready())[0] == 200
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 20)


async def test_a_signal_while_loading_ends_it_before_it_was_ready(stage: Stage):
    serving = await stage.start()
    assert (await stage.ready())[0] == 503
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 20)
    assert stage.said.empty()


# OPS-8
async def test_a_first_configuration_that_is_refused_ends_it_with_the_problems(stage: Stage):
    serving = await stage.start()
    problem = Problem("no", "a.yaml", 1)
    stage.report.put_nowait(LoadReport(0.0, 1, 0, (problem,)))
    with pytest.raises(ConfigError) as refused:
        await asyncio.wait_for(serving, 20)
    assert refused.value.problems == (problem,)
    assert stage.said.empty()


async def test_a_source_that_fails_ends_the_server_and_is_not_hidden(stage: Stage):
    serving = await stage.start()
    stage.report.put_nowait(LoadReport(0.0, 1, 1))
    stage.report.put_nowait(RuntimeError("the disk is on fire"))
    with pytest.raises(RuntimeError, match="the disk is on fire"):
        await asyncio.wait_for(serving, 20)


async def test_a_port_takes_connections_from_the_moment_that_it_is_known():
    made = HttpPort(Starlette(), "127.0.0.1:0", "admin")
    _reader, writer = await asyncio.open_connection(*web.split(made.address))  # nobody serves it yet: it waits
    made.stop()
    await made.serve()
    writer.close()
