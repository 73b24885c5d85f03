"""The client's own status by CSDS: by call, and over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.admin.v3.config_dump_shared_pb2 import ClientResourceStatus
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.status.v3.csds_pb2 import ClientStatusRequest, ClientStatusResponse
from envoy.type.matcher.v3.node_pb2 import NodeMatcher

import xdsprism as xp
from tests.client.rig import (
    BOOT,
    accept,
    bootstrap,
    both,
    clock,
    cluster,
    exchange,
    follow,
    quiet,
    server,
    talk,
    timeless,
)
from xdsprism.client.csds import client_status, status_service
from xdsprism.testing import ScriptedPeer

SERVICE = "/envoy.service.status.v3.ClientStatusDiscoveryService/"
WALL = 1_700_000_000.0


def bad(name: str) -> Cluster:
    return Cluster(name=name, connect_timeout={"seconds": -1})  # against validate.rules


def configs(client: xp.Client, **options: Any) -> list[Any]:
    [config] = client_status(client, wall=lambda: WALL + clock(), **options).config
    return list(config.generic_xds_configs)


def state(config: Any) -> str:
    return str(ClientResourceStatus.Name(config.client_status))


def contents(config: Any) -> Cluster:
    assert config.xds_config.type_url == xp.CLUSTER
    return Cluster.FromString(config.xds_config.value)


def at(moment: Any) -> float:
    """Seconds since the test began."""
    return float(moment.ToMicroseconds() / 1e6 - WALL)


def denial(stream: Any, name: str, code: int, message: str) -> Any:
    kind = pb.DeltaDiscoveryResponse if stream.is_delta else pb.DiscoveryResponse
    response = kind(type_url=xp.CLUSTER, nonce="e")
    error = response.resource_errors.add()
    error.resource_name.name = name
    error.error_detail.code, error.error_detail.message = code, message
    return response


# -- the states


@both
@timeless
async def test_a_resource_that_was_asked_for_and_not_answered_is_requested(delta: bool) -> None:
    # CSD-3, A88: neither a resource nor an error
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        await accept(peer)
        [a] = configs(client)
        assert (a.type_url, a.name, state(a)) == (xp.CLUSTER, "a", "REQUESTED")
        assert not a.version_info
        assert not any(a.HasField(field) for field in ("xds_config", "last_updated", "error_state"))


@both
@timeless
async def test_an_accepted_resource_is_acked_with_its_contents_its_version_and_its_time(delta: bool) -> None:
    # CSD-3
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await quiet(7)
        await exchange(stream, xp.CLUSTER, cluster("a", "first"), version="5")
        await quiet(100)
        [a] = configs(client)
        assert (state(a), a.version_info, contents(a)) == ("ACKED", "5", cluster("a", "first"))
        assert at(a.last_updated) == pytest.approx(7, abs=0.01)
        assert not a.HasField("error_state")


@both
@timeless
async def test_contents_are_shown_without_their_secrets(delta: bool) -> None:
    # OPS-14
    secret = Secret(name="pass")
    secret.tls_certificate.certificate_chain.inline_string = "public"
    secret.tls_certificate.private_key.inline_string = "hunter2"
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.SECRET, "pass")
        stream, _ = await accept(peer)
        await exchange(stream, xp.SECRET, secret, version="1")
        [shown] = configs(client)
        found = Secret.FromString(shown.xds_config.value).tls_certificate
        assert (found.private_key.inline_string, found.certificate_chain.inline_string) == ("[redacted]", "public")


@both
@timeless
async def test_a_rejected_resource_shows_the_last_accepted_contents_and_the_error(delta: bool) -> None:
    # CSD-3: NACKED shows the last accepted payload plus error_state with the rejected version
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a", "good"), version="1", nonce="n1")
        await quiet(20)
        await exchange(stream, xp.CLUSTER, bad("a"), version="2", nonce="n2")
        await quiet(20)
        [a] = configs(client)
        assert (state(a), a.version_info, contents(a)) == ("NACKED", "1", cluster("a", "good"))
        assert at(a.last_updated) == pytest.approx(0, abs=0.01)
        assert a.error_state.version_info == "2"
        assert "connect_timeout" in a.error_state.details
        assert at(a.error_state.last_update_attempt) == pytest.approx(20, abs=0.01)


@both
@timeless
async def test_a_resource_that_was_never_accepted_has_an_error_and_no_contents(delta: bool) -> None:
    # CSD-3
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, bad("a"), version="2")
        [a] = configs(client)
        assert (state(a), a.version_info, a.error_state.version_info) == ("NACKED", "", "2")
        assert not a.HasField("xds_config")
        assert not a.HasField("last_updated")


@both
@timeless
async def test_a_good_version_clears_the_error(delta: bool) -> None:
    # CSD-3. A40: "Accepted update will clean error states"
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, bad("a"), version="2", nonce="n1")
        await exchange(stream, xp.CLUSTER, cluster("a"), version="3", nonce="n2")
        [a] = configs(client)
        assert (state(a), a.version_info) == ("ACKED", "3")
        assert not a.HasField("error_state")


@both
@timeless
async def test_a_resource_that_never_comes_does_not_exist(delta: bool) -> None:
    # CSD-3
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        await accept(peer)
        await quiet(60)
        [a] = configs(client)
        assert state(a) == "DOES_NOT_EXIST"
        assert "NOT_FOUND" in a.error_state.details
        assert at(a.error_state.last_update_attempt) == pytest.approx(15, abs=0.01)


@timeless
async def test_a_resource_that_never_comes_is_a_timeout_where_the_timer_is_transient() -> None:
    # CSD-3, A88
    async with talk(bootstrap(server("one:1", "resource_timer_is_transient_error"))) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        await accept(peer)
        await quiet(60)
        [a] = configs(client)
        assert state(a) == "TIMEOUT"
        assert "UNAVAILABLE" in a.error_state.details


@both
@timeless
async def test_a_deletion_that_is_ignored_shows_what_is_used_still(delta: bool) -> None:
    # CSD-3. A88: DOES_NOT_EXIST, and the most recently seen resource; of two errors the later one
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), version="1", nonce="n1")
        await exchange(stream, xp.CLUSTER, bad("a"), version="2", nonce="n2")
        await quiet(5)
        await exchange(stream, xp.CLUSTER, version="3", nonce="n3", removed=["a"] if delta else [])
        [a] = configs(client)
        assert (state(a), a.version_info, contents(a)) == ("DOES_NOT_EXIST", "1", cluster("a"))
        assert at(a.last_updated) == pytest.approx(0, abs=0.01)
        assert "connect_timeout" not in a.error_state.details
        assert a.error_state.version_info == ""
        assert at(a.error_state.last_update_attempt) == pytest.approx(5, abs=0.01)


@both
@timeless
async def test_a_deletion_that_is_heeded_leaves_no_contents(delta: bool) -> None:
    # CSD-3. A88: CSDS does not show what the client does not use
    async with talk(delta=delta, fail_on_data_errors=True) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), version="1", nonce="n1")
        await exchange(stream, xp.CLUSTER, version="2", nonce="n2", removed=["a"] if delta else [])
        [a] = configs(client)
        assert (state(a), a.version_info) == ("DOES_NOT_EXIST", "")
        assert not a.HasField("xds_config")
        assert not a.HasField("last_updated")


@both
@timeless
async def test_an_error_of_the_server_is_shown_as_such(delta: bool) -> None:
    # CSD-3, TP3
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        stream.send(denial(stream, "a", 7, "not for you"))
        await stream.request()
        [a] = configs(client)
        assert state(a) == "RECEIVED_ERROR"
        assert a.error_state.details == "PERMISSION_DENIED: not for you"


@timeless
async def test_a_server_that_is_down_changes_no_state() -> None:
    # CSD-3. A88: REQUESTED has no error
    async with talk() as (client, peer):
        peer.go_down()
        watching = follow(client, xp.CLUSTER, "a")
        assert (await watching.next()).error is not None
        [a] = configs(client)
        assert state(a) == "REQUESTED"
        assert not a.HasField("error_state")


async def test_a_resource_from_the_disk_cache_is_shown_as_requested_and_in_use(tmp_path: Any) -> None:
    # CSD-3
    cache = tmp_path / "last-good"
    async with talk(cache=cache) as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), version="1")
    async with talk(cache=cache) as (client, peer):
        peer.go_down()
        assert (await follow(client, xp.CLUSTER, "a").next()).resource == cluster("a")
        [a] = configs(client)
        assert (state(a), contents(a)) == ("REQUESTED", cluster("a"))
        assert not a.HasField("last_updated")


# -- what is listed


@both
@timeless
async def test_a_collection_is_listed_by_its_members(delta: bool) -> None:
    # CSD-3
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER)
        stream, _ = await accept(peer)
        [everything] = configs(client)
        assert (everything.name, state(everything)) == ("*", "REQUESTED")
        await exchange(stream, xp.CLUSTER, cluster("a"), bad("b"))
        assert {(each.name, state(each)) for each in configs(client)} == {("a", "ACKED"), ("b", "NACKED")}


@both
@timeless
async def test_a_resource_watched_by_name_and_by_wildcard_is_listed_once(delta: bool) -> None:
    # DYN-47: one entry per variant
    async with talk(delta=delta) as (client, peer):
        follow(client, xp.CLUSTER)
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), cluster("b"))
        assert sorted(each.name for each in configs(client)) == ["a", "b"]


@both
@timeless
async def test_two_variants_of_one_name_are_two_entries(delta: bool) -> None:
    # DYN-47
    def variant(env: str) -> pb.Resource:
        made = pb.Resource(version=env)
        made.resource_name.name = "a"
        made.resource_name.dynamic_parameter_constraints.constraint.CopyFrom(
            pb.DynamicParameterConstraints.SingleConstraint(key="env", value=env)
        )
        made.resource.Pack(cluster("a", env))
        return made

    async with talk(delta=delta) as (client, peer):
        for env in ("prod", "test"):
            follow(client, xp.CLUSTER, "a", params={"env": env})
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, variant("prod"), variant("test"))
        assert {(each.name, contents(each).alt_stat_name) for each in configs(client)} == {("a", "prod"), ("a", "test")}


@timeless
async def test_a_resource_without_watchers_is_not_listed() -> None:
    # CSD-3
    async with talk() as (client, peer):
        watching = follow(client, xp.CLUSTER, "a")
        await accept(peer)
        await watching.close()
        assert configs(client) == []


@timeless
async def test_contents_can_be_left_out() -> None:
    async with talk() as (client, peer):
        follow(client, xp.CLUSTER, "a")
        stream, _ = await accept(peer)
        await exchange(stream, xp.CLUSTER, cluster("a"), version="5")
        [a] = client.status(contents=False).config[0].generic_xds_configs
        assert (state(a), a.version_info) == ("ACKED", "5")
        assert not a.HasField("xds_config")


@timeless
async def test_the_node_is_the_one_that_servers_hear_of() -> None:
    # CSD-3. A40, Generated Node Information
    async with talk() as (client, peer):
        follow(client, xp.CLUSTER, "a")
        _, request = await accept(peer)
        assert client.status().config[0].node == request.node
        assert request.node.user_agent_name == "xdsprism"


@timeless
async def test_the_scope_is_the_first_server_or_what_the_caller_says() -> None:
    # CSD-4, A71
    federated = {"xds_servers": [], "authorities": {"x": {"xds_servers": [server("other:2")]}}, "node": {"id": "x"}}
    async with talk() as (client, _):
        assert client.status().config[0].client_scope == "one:1"
        assert client.status(scope="xds:///shop").config[0].client_scope == "xds:///shop"
    async with talk(federated) as (client, _):
        assert client.status().config[0].client_scope == "other:2"


# -- over gRPC


def fetch(channel: Any, path: str = SERVICE) -> Any:
    return channel.unary_unary(
        path + "FetchClientStatus", ClientStatusRequest.SerializeToString, ClientStatusResponse.FromString
    )


def ask(channel: Any) -> Any:
    return channel.stream_stream(
        SERVICE + "StreamClientStatus", ClientStatusRequest.SerializeToString, ClientStatusResponse.FromString
    )()


async def holding_a(client: xp.Client, peer: ScriptedPeer) -> Any:
    follow(client, xp.CLUSTER, "a")
    stream, _ = await accept(peer)
    await exchange(stream, xp.CLUSTER, cluster("a", "first"), version="1")
    return stream


def only(response: Any) -> Any:
    [config] = response.config
    [resource] = config.generic_xds_configs
    return resource


async def test_status_is_served_on_request() -> None:
    # CSD-3, CSD-4
    async with talk() as (client, peer):
        await holding_a(client, peer)
        address = await client.serve_status(scope="shop")
        async with grpc.aio.insecure_channel(address) as channel:
            response = await fetch(channel)(ClientStatusRequest())
            assert response.config[0].client_scope == "shop"
            assert contents(only(response)) == cluster("a", "first")
            bare = only(await fetch(channel)(ClientStatusRequest(exclude_resource_contents=True)))
            assert (state(bare), bare.HasField("xds_config")) == ("ACKED", False)


async def test_a_stream_has_one_answer_for_each_request() -> None:
    # CSD-3. A40: not a watch
    async with talk() as (client, peer):
        stream = await holding_a(client, peer)
        async with grpc.aio.insecure_channel(await client.serve_status()) as channel:
            call = ask(channel)
            await call.write(ClientStatusRequest())
            assert contents(only(await call.read())) == cluster("a", "first")
            await exchange(stream, xp.CLUSTER, cluster("a", "second"), version="2", nonce="n2")
            await call.write(ClientStatusRequest())
            assert contents(only(await call.read())) == cluster("a", "second")
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK


async def test_node_matchers_are_an_invalid_argument() -> None:
    # CSD-4
    request = ClientStatusRequest(node_matchers=[NodeMatcher(node_id={"exact": "x"})])
    async with talk() as (client, _), grpc.aio.insecure_channel(await client.serve_status()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fetch(channel)(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        call = ask(channel)
        await call.write(request)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_there_is_no_csds_of_version_2() -> None:
    # VER-11
    async with talk() as (client, _), grpc.aio.insecure_channel(await client.serve_status()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fetch(channel, SERVICE.replace("v3", "v2"))(ClientStatusRequest())
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_closing_the_client_stops_serving() -> None:
    # CLI-24
    async with talk() as (client, _):
        address = await client.serve_status()
        async with grpc.aio.insecure_channel(address) as channel:
            call = ask(channel)
            await call.write(ClientStatusRequest())
            await call.read()
            await client.close()
            assert await call.code() is not grpc.StatusCode.OK
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))


async def test_status_is_served_from_a_server_that_is_there_already() -> None:
    # CSD-3: as grpcio-csds does for gRPC's own client
    async with talk() as (client, peer):
        await holding_a(client, peer)
        own = grpc.aio.server()
        own.add_generic_rpc_handlers((status_service(client),))
        port = own.add_insecure_port("127.0.0.1:0")
        await own.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                assert only(await fetch(channel)(ClientStatusRequest())).name == "a"
        finally:
            await own.stop(None)


async def test_an_address_that_is_taken_is_an_error_of_the_caller() -> None:
    async with talk() as (client, _):
        address = await client.serve_status()
        with pytest.raises(xp.UsageError, match=address):
            await client.serve_status(address)


async def test_status_can_be_served_on_a_unix_socket(tmp_path: Any) -> None:
    listen = f"unix:{tmp_path}/status"
    async with talk() as (client, _):
        assert await client.serve_status(listen) == listen
        async with grpc.aio.insecure_channel(listen) as channel:
            assert len((await fetch(channel)(ClientStatusRequest())).config) == 1


async def test_a_client_that_is_closed_or_was_not_entered_serves_nothing() -> None:
    with pytest.raises(xp.UsageError, match="async with"):
        await xp.Client(BOOT).serve_status()
    async with talk() as (client, _):
        await client.close()
        with pytest.raises(xp.UsageError, match="closed"):
            await client.serve_status()
