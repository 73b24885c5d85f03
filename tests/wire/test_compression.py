"""Compressed requests: both transports read gzip, inflate it no further than a bound, and read nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.wire.rig import PATIENCE
from xdsprism import ENDPOINT, Server, Store
from xdsprism.core.model.settings import Engine
from xdsprism.http2.grpc import RATIO

PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
GZIP, DEFLATE, NONE = grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression
BOTH = pytest.mark.parametrize("engine", ["grpcio", "h2"])


@asynccontextmanager
async def stream_to(server: Server, compression: grpc.Compression) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(server.address, compression=compression) as channel:
        yield channel.stream_stream(PATH, None, None)()  # its head says how its messages are compressed


async def ask(server: Server, compression: grpc.Compression) -> int:
    """Ask for 100 names that nothing has: of how many the answer says so."""
    async with stream_to(server, compression) as stream:
        names = [f"a-name-of-which-much-is-alike-{number}" for number in range(100)]
        request = pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=names)
        await stream.write(request.SerializeToString())
        answer = await asyncio.wait_for(stream.read(), PATIENCE)
        return len(pb.DeltaDiscoveryResponse.FromString(answer).removed_resources)


@BOTH
@pytest.mark.parametrize("compression", [NONE, GZIP])
async def test_plain_and_gzip_requests_are_answered(engine: Engine, compression: grpc.Compression) -> None:
    # SRV-24
    async with Server(Store(), listen="127.0.0.1:0", engine=engine) as server:
        assert await ask(server, compression) == 100


@BOTH
async def test_a_small_message_that_becomes_a_large_one_ends_its_stream_and_no_other(engine: Engine) -> None:
    # SRV-24
    async with Server(Store(), listen="127.0.0.1:0", engine=engine) as server, stream_to(server, GZIP) as stream:
        request = pb.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=["x" * 50_000_000])
        await stream.write(request.SerializeToString())
        assert await asyncio.wait_for(stream.code(), PATIENCE) is grpc.StatusCode.RESOURCE_EXHAUSTED
        size = int((await stream.details()).split()[4].replace(",", ""))
        assert await stream.details() == (
            f"a gzip message of {size:,} bytes becomes more than {RATIO * size:,}, which is the most for it: "
            "send it uncompressed"
        )
        assert await ask(server, GZIP) == 100


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("grpcio", "Compression algorithm 'deflate' is disabled."),  # the words of grpc, which decides it
        ("h2", "can't read 'deflate': send plain or gzip"),
    ],
)
async def test_an_encoding_that_is_not_gzip_is_refused(engine: Engine, why: str) -> None:
    # SRV-24
    async with Server(Store(), listen="127.0.0.1:0", engine=engine) as server, stream_to(server, DEFLATE) as stream:
        assert await asyncio.wait_for(stream.code(), PATIENCE) is grpc.StatusCode.UNIMPLEMENTED
        assert await stream.details() == why
