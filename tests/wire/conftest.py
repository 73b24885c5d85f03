from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from xdsprism import Server, Store


@pytest.fixture(params=["grpcio", "h2"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whatever is served in the test is carried by either transport, unless it says by which."""
    monkeypatch.setitem(Server.__init__.__kwdefaults__, "engine", request.param)
    return str(request.param)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Server]:
    async with Server(store, listen="127.0.0.1:0") as running:
        yield running
