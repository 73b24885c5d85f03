from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from xdsprism import Server, Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Server]:
    async with Server(store, listen="127.0.0.1:0") as running:
        yield running
