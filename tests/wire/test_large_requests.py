"""Delta requests above the message limit: an Envoy reconnects with everything that it ever requested."""

from __future__ import annotations

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.wire.rig import DELTA, Stream, cluster, names_in, put
from xdsprism import CLUSTER, Server, Store

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

CLUSTERS = "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters"


@pytest.fixture
def store(store: Store) -> Store:
    put(store, cluster("a"), cluster("z"))
    return store


# SRV-24, VHD-26
@pytest.mark.parametrize("path", [DELTA, CLUSTERS])
async def test_a_delta_request_above_the_limit_is_served_and_the_stream_goes_on(store: Store, path: str) -> None:
    scanned = [f"scanned-{number}-{'x' * 2_000}" for number in range(500)]
    request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=["a", *scanned, "z"])
    assert request.ByteSize() > 1_000_000
    async with (
        Server(store, "127.0.0.1:0", receive_bytes=100_000) as server,
        Stream(server.address, path) as stream,
    ):
        await stream.send_bytes(request.SerializeToString())
        there: list[str] = []
        absent: list[str] = []
        while len(there) < 2 or len(absent) < len(scanned):
            answer = await stream.read()
            there += names_in(answer)
            absent += answer.removed_resources
        assert (there, sorted(absent)) == (["a", "z"], sorted(scanned))
        put(store, cluster("a", "new"))
        assert names_in(await stream.read()) == ["a"]
        put(store, cluster(scanned[7], "new"))
        assert names_in(await stream.read()) == [scanned[7]]
