"""Compressed requests: one transport bounds what becomes of them, the other takes none."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.wire.rig import PATIENCE
from xdsprism import ENDPOINT, Server, Store
from xdsprism.core.model.settings import Engine

PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
GZIP, DEFLATE, NONE = grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression


async def ask(engine: Engine, compression: grpc.Compression) -> int:
    """Ask for 100 names that nothing has: of how many the answer says so."""
    async with (
        Server(Store(), listen="127.0.0.1:0", engine=engine) as server,
        grpc.aio.insecure_channel(server.address, compression=compression) as channel,
    ):
        stream = channel.stream_stream(PATH, None, None)()
        names = [f"a-name-of-which-much-is-alike-{number}" for number in range(100)]
        request = pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=names)
        await stream.write(request.SerializeToString())
        answer = await asyncio.wait_for(stream.read(), PATIENCE)
        return len(pb.DeltaDiscoveryResponse.FromString(answer).removed_resources)


@pytest.mark.parametrize(("compression", "name"), [(GZIP, "gzip"), (DEFLATE, "deflate")])
async def test_grpcio_takes_no_compressed_request(compression: grpc.Compression, name: str) -> None:
    # SRV-24: it inflates a message before anybody can bound that
    async with (
        Server(Store(), listen="127.0.0.1:0", engine="grpcio") as server,
        grpc.aio.insecure_channel(server.address, compression=compression) as channel,
    ):
        stream = channel.stream_stream(PATH, None, None)()  # its head says how its messages are compressed
        assert await asyncio.wait_for(stream.code(), PATIENCE) is grpc.StatusCode.UNIMPLEMENTED
        assert await stream.details() == f"Compression algorithm '{name}' is disabled."


@pytest.mark.parametrize(("engine", "compression"), [("grpcio", NONE), ("h2", NONE), ("h2", GZIP)])
async def test_what_a_transport_takes_is_answered(engine: Engine, compression: grpc.Compression) -> None:
    # SRV-24
    assert await ask(engine, compression) == 100
