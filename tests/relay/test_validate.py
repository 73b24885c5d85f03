"""A relay with `--validate`; by default it checks nothing."""

from __future__ import annotations

import logging

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as manager_pb2

import xdsprism as xp
from tests.client.rig import cluster, quiet, timeless
from tests.relay.rig import held, station
from xdsprism.testing import ScriptedPeer

BAD = Cluster(name="a", connect_timeout={"seconds": -1})
FAULT = "connect_timeout: must be greater than 0s"


@timeless
async def test_by_default_resources_are_passed_on_unchecked() -> None:
    # PRX-16
    peer = ScriptedPeer()
    async with station(peer.connect) as relay:
        client = await relay.raw(delta=True)
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await stream.request()
        stream.respond(xp.CLUSTER, BAD)
        (response,) = await client.rest()
        assert [*held(response).values()] == [BAD.SerializeToString()]
        client.close()


@timeless
async def test_a_resource_that_envoy_would_refuse_is_logged_once_and_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = ScriptedPeer()
    async with station(peer.connect, validate="warn") as relay:
        client = await relay.raw(delta=True)
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await stream.request()
        with caplog.at_level(logging.WARNING, "xdsprism"):
            for version in ("1", "2"):
                stream.respond(xp.CLUSTER, BAD, version=version)
                await quiet()
        (response, *_) = await client.rest()
        assert [*held(response).values()] == [BAD.SerializeToString()]
        assert len([record for record in caplog.records if "Envoy would refuse it" in record.getMessage()]) == 1
        client.close()


@timeless
async def test_a_resource_that_envoy_would_refuse_is_nacked_and_clients_keep_what_they_have() -> None:
    peer = ScriptedPeer()
    async with station(peer.connect, validate="envoy") as relay:
        client = await relay.raw(delta=True)
        await client.want(xp.CLUSTER, "a")
        stream = await peer.accept()
        await stream.request()
        good = cluster("a")
        stream.respond(xp.CLUSTER, good, version="1")
        (response,) = await client.rest()
        assert [*held(response).values()] == [good.SerializeToString()]
        await quiet()
        stream.pending()
        stream.respond(xp.CLUSTER, BAD, version="2")
        await quiet()
        (answer,) = stream.pending()
        assert "a" in answer.error_detail.message
        assert FAULT in answer.error_detail.message
        assert await client.rest() == []
        client.close()


@timeless
async def test_a_listener_for_grpc_is_let_pass() -> None:
    peer = ScriptedPeer()
    async with station(peer.connect, validate="envoy") as relay:
        client = await relay.raw(delta=True)
        await client.want(xp.LISTENER, "a")
        stream = await peer.accept()
        await stream.request()
        made = Listener(name="a")
        made.api_listener.api_listener.Pack(manager_pb2.HttpConnectionManager())
        stream.respond(xp.LISTENER, made)
        (response,) = await client.rest()
        assert [*held(response).values()] == [made.SerializeToString()]
        client.close()
