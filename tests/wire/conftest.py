from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.engines import ENGINES
from xdsprism import Server, Store


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The transport that carries whatever the test serves, unless the test names one."""
    monkeypatch.setitem(Server.__init__.__kwdefaults__, "engine", request.param)
    return str(request.param)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Server]:
    async with Server(store, listen="127.0.0.1:0") as running:
        yield running
