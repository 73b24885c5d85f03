from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.admin.rig import Office
from xdsprism import Store


@pytest.fixture
def store() -> Store:
    """Two clusters, one of them in two variants that leave a gap."""
    store = Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="shop", alt_stat_name="prod"), when="env=prod")
        tx.put(Cluster(name="shop", alt_stat_name="test"), when="env=test")
        tx.put(Cluster(name="plain"), aliases=["simple"])
    return store


@pytest.fixture
async def office(store: Store) -> AsyncIterator[Office]:
    async with Office(store) as running:
        yield running
