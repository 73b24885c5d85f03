"""Responses that are small in gzip and huge without: the client takes so much, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.wire.rig import cluster
from xdsprism.client.transport import RECEIVE_BYTES

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"


async def test_a_response_that_becomes_huge_ends_its_stream_and_the_next_one_is_used() -> None:
    """As a kilobyte of it becomes a megabyte, what counts is the size without compression."""
    answers = iter([b"\0" * (2 * RECEIVE_BYTES), b""])

    async def answer(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            response = pb.DiscoveryResponse(type_url=xp.CLUSTER, nonce="1", version_info="1")
            response.resources.add().Pack(cluster("a", "1"))
            response.control_plane.identifier = next(answers, b"").decode()
            yield response.SerializeToString()

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)], compression=grpc.Compression.Gzip)
    handler = grpc.stream_stream_rpc_method_handler(answer)
    handlers: Any = grpc.method_handlers_generic_handler(ADS, {"StreamAggregatedResources": handler})
    server.add_generic_rpc_handlers([handlers])
    uri = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    named = {"server_uri": uri, "server_features": ["xds_v3"], "channel_creds": [{"type": "insecure"}]}
    try:
        async with xp.Client({"xds_servers": [named], "node": {"id": "x"}}) as client, asyncio.timeout(60):
            updates = client.watch(xp.CLUSTER, "a")
            first = await anext(updates)
            assert first.error is not None
            assert "Decompressed message larger than max" in first.error.message
            second = await anext(updates)
            assert second.resource.alt_stat_name == "1"
    finally:
        await server.stop(0)
