"""CSDS of a server: asked by a client that knows the service by reflection alone, over either transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.status.v3.csds_pb2 import ClientStatusRequest, ClientStatusResponse
from google.rpc.status_pb2 import Status

from tests.support.generic_client import GenericClient
from tests.wire.rig import DELTA, OPTIONS, PATIENCE, SOTW, Stream, cluster, put, put_bytes, unary, until
from xdsprism import CLUSTER, ENDPOINT, LISTENER, SECRET, Limits, Server, Settings, Store

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

FREE = "127.0.0.1:0"
SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"
FETCH = f"/{SERVICE}/FetchClientStatus"
STREAM = f"/{SERVICE}/StreamClientStatus"
EVERYTHING = ("envoy.config.cluster.v3.Cluster", "envoy.extensions.transport_sockets.tls.v3.Secret")


@pytest.fixture
async def generic(server: Server) -> AsyncIterator[GenericClient]:
    async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as channel:
        yield await GenericClient.connect(channel, SERVICE, *EVERYTHING)


async def fetched(server: Server, **fields: Any) -> ClientStatusResponse:
    """The answer as a client reads it that has the protos."""
    request = ClientStatusRequest(**fields).SerializeToString()
    return ClientStatusResponse.FromString(await unary(server.address, FETCH, request))


def shown(answer: dict[str, Any]) -> dict[str, dict[str, tuple[str, str]]]:
    """By client and resource: its states."""
    return {
        client["node"]["id"]: {
            each["name"]: (each["config_status"], each.get("client_status", "UNKNOWN"))
            for each in client["generic_xds_configs"]
        }
        for client in answer["config"]
    }


async def ask(stream: Stream, names: list[str], node: str = "", **metadata: str) -> Any:
    """Subscribe to clusters as this node, and take the answer."""
    fields: dict[str, Any] = {"node": Node(id=node, metadata=metadata)} if node else {}
    return await stream.ask(CLUSTER, names, **fields)


async def taken(server: Server, *stale: str) -> None:
    """Wait until the server has read all that clients have sent: their streams are answered, but for the stale ones."""
    streams = [each.stream for each in server.hub.connected()]
    await until(lambda: [s.node.id for s in streams if s.node is not None and not s.is_answered] == [*stale])


# -- what it shows


@pytest.mark.parametrize("method", [DELTA, SOTW])
async def test_each_client_is_listed_with_each_resource_and_how_far_it_is(
    store: Store, server: Server, generic: GenericClient, method: str
) -> None:
    # CSD-1
    put(store, cluster("a", "1"), cluster("b", "1"))
    async with Stream(server.address, method) as synced, synced.beside() as stale:
        await synced.ack(await ask(synced, ["a", "b"], "synced"), **_again(method, ["a", "b"]))
        await ask(stale, ["a"], "stale")
        await taken(server, "stale")
        answer = await generic.fetch("FetchClientStatus")
        assert shown(answer) == {
            "synced": {"a": ("SYNCED", "ACKED"), "b": ("SYNCED", "ACKED")},
            "stale": {"a": ("STALE", "REQUESTED")},
        }
        one = next(each for each in answer["config"] if each["node"]["id"] == "synced")["generic_xds_configs"][0]
        assert one["type_url"] == CLUSTER
        assert one["version_info"]
        assert one["last_updated"]
        assert one["xds_config"] == {"@type": CLUSTER, "name": "a", "alt_stat_name": "1"}


def _again(method: str, names: list[str]) -> dict[str, Any]:
    """What a SotW request repeats."""
    return {} if method == DELTA else {"resource_names": names, "version_info": "1"}


async def test_what_a_client_asked_for_and_does_not_exist_or_was_not_sent_is_listed(
    store: Store, server: Server, generic: GenericClient
) -> None:
    # CSD-1
    async with Stream(server.address) as delta, delta.beside(SOTW) as sotw:
        await delta.ack(await ask(delta, ["none"], "delta"))
        await sotw.send(type_url=ENDPOINT, resource_names=["none"], node=Node(id="sotw"))
        await until(lambda: [each.stream.count for each in server.hub.connected()] == [1, 1])
        await taken(server)
        assert shown(await generic.fetch("FetchClientStatus")) == {
            "delta": {"none": ("NOT_SENT", "DOES_NOT_EXIST")},
            "sotw": {"none": ("NOT_SENT", "DOES_NOT_EXIST")},
        }


async def test_a_rejected_resource_has_its_reason_version_and_contents_and_comes_first(
    store: Store, server: Server, generic: GenericClient
) -> None:
    # CSD-1, NAK-12
    put(store, cluster("a", "1"), cluster("b", "1"))
    async with Stream(server.address) as good, good.beside() as bad:
        await good.ack(await ask(good, ["a"], "good"))
        both = await ask(bad, ["a", "b"], "bad")
        version = {each.name: each.version for each in both.resources}["b"]
        await bad.ack(both)
        put(store, cluster("b", "2"))
        second = await bad.read()
        await bad.ack(second, error_detail=Status(code=3, message="b is no good"))
        await taken(server)
        answer = await generic.fetch("FetchClientStatus")
        assert [each["node"]["id"] for each in answer["config"]] == ["bad", "good"]
        rejected, fine = answer["config"][0]["generic_xds_configs"]
        assert (rejected["name"], rejected["config_status"], rejected["client_status"]) == ("b", "ERROR", "NACKED")
        error = rejected["error_state"]
        assert error["details"] == "b is no good"
        assert error["version_info"] == second.resources[0].version != version
        assert error["last_update_attempt"]
        assert error["failed_configuration"] == {"@type": CLUSTER, "name": "b", "alt_stat_name": "2"}
        assert "xds_config" not in rejected  # what is there is not what the client uses
        assert (fine["name"], fine["config_status"]) == ("a", "SYNCED")
        assert "error_state" not in fine


async def test_a_wildcard_is_listed_by_its_members(store: Store, server: Server, generic: GenericClient) -> None:
    # CSD-1
    put(store, cluster("a", "1"), cluster("b", "1"))
    async with Stream(server.address) as stream:
        await stream.ack(await ask(stream, [], "envoy"))
        await taken(server)
        assert shown(await generic.fetch("FetchClientStatus")) == {
            "envoy": {"a": ("SYNCED", "ACKED"), "b": ("SYNCED", "ACKED")}
        }
        put(store, cluster("c", "1"))
        await stream.read()
        assert shown(await generic.fetch("FetchClientStatus"))["envoy"]["c"][0] == "STALE"


async def test_streams_of_one_node_are_one_client(store: Store, server: Server, generic: GenericClient) -> None:
    # CSD-1
    put(store, cluster("a", "1"))
    async with Stream(server.address) as first, first.beside() as second, first.beside() as nameless:
        await first.ack(await ask(first, ["a"], "envoy"))
        await second.ask(LISTENER, ["l"], node=Node(id="envoy"))
        await ask(nameless, ["a"])
        answer = await fetched(server)
        names = {config.node.id: sorted(each.name for each in config.generic_xds_configs) for config in answer.config}
        assert names == {"envoy": ["a", "l"], "": ["a"]}
        assert len(answer.config) == 2


async def test_no_clients_are_an_empty_answer(server: Server, generic: GenericClient) -> None:
    assert await generic.fetch("FetchClientStatus") == {}
    assert await fetched(server) == ClientStatusResponse()


# -- what is asked


async def test_a_stream_gets_one_answer_for_each_request_and_none_in_between(
    store: Store, server: Server, generic: GenericClient
) -> None:
    # CSD-1
    put(store, cluster("a", "1"))
    async with Stream(server.address) as client:
        await client.ack(await ask(client, ["a"], "envoy"))
        await taken(server)
        call = generic.stream("StreamClientStatus")
        await call.write({})
        assert shown(await asyncio.wait_for(call.read(), PATIENCE)) == {"envoy": {"a": ("SYNCED", "ACKED")}}
        put(store, cluster("a", "2"))
        await client.read()  # the stream of CSDS had a turn, too, and is told nothing
        for _ in range(3):
            await call.write({"exclude_resource_contents": True})
        await call.done_writing()
        for _ in range(3):
            assert shown(await asyncio.wait_for(call.read(), PATIENCE)) == {"envoy": {"a": ("STALE", "UNKNOWN")}}
        assert await asyncio.wait_for(call.read(), PATIENCE) is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_contents_are_left_out_where_nobody_wants_them(
    store: Store, server: Server, generic: GenericClient
) -> None:
    # CSD-2
    put(store, cluster("a", "1"))
    async with Stream(server.address) as client:
        first = await ask(client, ["a"], "envoy")
        answer = await generic.fetch("FetchClientStatus", exclude_resource_contents=True)
        await client.ack(first, error_detail=Status(code=3, message="no"))
        await taken(server)
        rejected = await generic.fetch("FetchClientStatus", exclude_resource_contents=True)
    (entry,) = answer["config"][0]["generic_xds_configs"]
    assert entry["version_info"]
    assert "xds_config" not in entry
    (entry,) = rejected["config"][0]["generic_xds_configs"]
    assert entry["error_state"]["details"] == "no"
    assert "failed_configuration" not in entry["error_state"]


MATCHERS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "id": ([{"node_id": {"exact": "web-1"}}], ["web-1"]),
    "either": ([{"node_id": {"exact": "web-1"}}, {"node_id": {"prefix": "db"}}], ["db-1", "web-1"]),
    "regex": ([{"node_id": {"safe_regex": {"regex": "web-[12]"}}}], ["web-1", "web-2"]),
    "all of the text": ([{"node_id": {"safe_regex": {"regex": "web"}}}], []),
    "metadata": (
        [{"node_metadatas": [{"path": [{"key": "env"}], "value": {"string_match": {"exact": "prod"}}}]}],
        ["db-1", "web-1"],
    ),
    "both": (
        [
            {
                "node_id": {"prefix": "WEB", "ignore_case": True},
                "node_metadatas": [{"path": [{"key": "env"}], "value": {"string_match": {"contains": "es"}}}],
            }
        ],
        ["web-2"],
    ),
    "nobody": ([{"node_id": {"exact": "none"}}], []),
    "no condition": ([{}], ["db-1", "web-1", "web-2"]),
}


@pytest.mark.parametrize("case", MATCHERS)
async def test_node_matchers_choose_the_clients(server: Server, generic: GenericClient, case: str) -> None:
    # CSD-2
    matchers, expected = MATCHERS[case]
    async with Stream(server.address) as one, one.beside() as two, one.beside() as three:
        await ask(one, ["a"], "web-1", env="prod")
        await ask(two, ["a"], "web-2", env="test")
        await ask(three, ["a"], "db-1", env="prod")
        answer = await generic.fetch("FetchClientStatus", node_matchers=matchers)
    assert sorted(each["node"]["id"] for each in answer.get("config", ())) == expected


# -- secrets


async def test_secrets_are_shown_by_name_only_and_metadata_without_what_looks_like_one(
    store: Store, server: Server, generic: GenericClient
) -> None:
    # OPS-14
    secret = Secret(name="cert")
    secret.tls_certificate.private_key.inline_string = "hunter2"
    put_bytes(store, SECRET, "cert", secret.SerializeToString())
    async with Stream(server.address) as client:
        node = Node(id="envoy", metadata={"env": "prod", "API_KEY": "hunter2", "note": "Bearer hunter2hunter2"})
        await client.ask(SECRET, ["cert"], node=node)
        answer = await generic.fetch("FetchClientStatus")
        # CSD-2: nor can one guess what is hidden by asking for it
        value = {"string_match": {"exact": "hunter2"}}
        guess = [{"node_metadatas": [{"path": [{"key": "API_KEY"}], "value": value}]}]
        assert await generic.fetch("FetchClientStatus", node_matchers=guess) == {}
    assert "hunter2" not in str(answer)
    (entry,) = answer["config"][0]["generic_xds_configs"]
    assert (entry["name"], entry["config_status"]) == ("cert", "STALE")
    assert "xds_config" not in entry
    assert answer["config"][0]["node"]["metadata"]["env"] == "prod"


# -- limits, and ends


async def test_an_answer_counts_as_a_fetch(store: Store) -> None:
    # OPS-4
    limits = Settings(limits=Limits(fetches=1))
    async with Server(store, FREE, settings=limits) as server, Stream(server.address, STREAM) as stream:
        for _ in range(5):
            await stream.send_bytes(b"")
            await stream.read_bytes()
        await stream.send_bytes(b"")
        code, text = await stream.outcome()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "fetches more than 1 times a second" in text
        with pytest.raises(grpc.aio.AioRpcError, match="fetches more than 1 times a second"):
            await fetched(server)


async def test_a_call_counts_as_a_stream(store: Store) -> None:
    # OPS-3
    async with (
        Server(store, FREE, settings=Settings(limits=Limits(client_streams=1))) as server,
        Stream(server.address, STREAM) as stream,
    ):
        await stream.send_bytes(b"")
        await stream.read_bytes()
        async with stream.beside() as further:
            await further.send_bytes(b"")
            assert (await further.outcome())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stream.half_close()
        assert (await stream.status())[0] is grpc.StatusCode.OK
        await until(lambda: server.hub.clients.open == 0)
        assert await fetched(server) == ClientStatusResponse()


@pytest.mark.parametrize("path", [FETCH, STREAM])
async def test_a_request_that_is_none_ends_its_call(server: Server, path: str) -> None:
    async with Stream(server.address, path) as broken:
        await broken.send_bytes(b"\xff\xff")
        assert (await broken.outcome())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_fetch_without_a_request_is_refused(server: Server) -> None:
    async with Stream(server.address, FETCH) as silent:
        await silent.half_close()
        assert (await silent.outcome())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_server_may_say_nothing_of_its_clients(store: Store) -> None:
    async with Server(store, FREE, csds=False) as server, Stream(server.address, FETCH) as stream:
        assert (await stream.status())[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_there_is_no_csds_of_v2(server: Server) -> None:
    # VER-11
    async with Stream(server.address, FETCH.replace("v3", "v2")) as stream:
        assert (await stream.status())[0] is grpc.StatusCode.UNIMPLEMENTED
