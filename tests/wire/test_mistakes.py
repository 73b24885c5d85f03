"""What clients and pages are told of a mistake of ours: that there is one, and nothing of what it was about."""

from __future__ import annotations

import asyncio
from typing import Never

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.wire.rig import PATIENCE
from xdsprism import CLUSTER, Server, Store
from xdsprism.core.model.facts import Closed, Fact
from xdsprism.core.model.settings import Engine
from xdsprism.server.calls import MISTAKE

DELTA = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
VALUE = "the password of somebody else"


class Failing(Store):
    """A store in which a mistake shows as soon as somebody asks for anything."""

    def allowed(self, *_: object) -> Never:
        raise ValueError(VALUE)


@pytest.mark.parametrize("engine", ["grpcio", "h2"])
@pytest.mark.parametrize("path", [DELTA, FETCH], ids=["stream", "fetch"])
async def test_a_mistake_of_ours_ends_its_call_and_no_client_or_page_is_told_a_value(
    engine: Engine, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10, OPS-14
    facts: list[Fact] = []
    async with (
        Server(Failing(), listen="127.0.0.1:0", engine=engine) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        server.hub.readers.append(facts.extend)
        request = (pb.DeltaDiscoveryRequest if path == DELTA else pb.DiscoveryRequest)(type_url=CLUSTER)
        call = channel.stream_stream(path, None, None)([request.SerializeToString()].__iter__())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asyncio.wait_for(anext(aiter(call)), PATIENCE)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INTERNAL, MISTAKE)
        assert f"ValueError: {VALUE}" in caplog.text
        await server.stop(0)
        assert [fact.reason for fact in facts if isinstance(fact, Closed)] == [MISTAKE]
