"""xDS over REST: JSON in, JSON out, and long polling."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.api import annotations_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToJson, Parse

from tests.support import insides, web
from tests.wire.api import services
from tests.wire.rig import PATIENCE, cluster, put, put_bytes, unary, until
from xdsprism import CLUSTER, LISTENER, SECRET, Server, Settings, Store
from xdsprism.core.model.facts import Fact, Nacked, Polled
from xdsprism.core.model.settings import Limits
from xdsprism.errors import PeerError
from xdsprism.http2.facts import Fact as ConnectionFact
from xdsprism.http2.facts import HttpRequestRefused
from xdsprism.server import rest as module
from xdsprism.server import rest_bodies, rest_json
from xdsprism.server.calls import MISTAKE, Peer
from xdsprism.server.fetch import open_fetch
from xdsprism.server.http_port import CannotListenError
from xdsprism.server.slicing import LONG_BYTES

PATHS = sorted(
    method.GetOptions().Extensions[annotations_pb2.http].post
    for version in ("v2", "v3")
    for service in services(version)
    for method in service.methods
    if method.name.startswith("Fetch") and method.input_type.name == "DiscoveryRequest"
)
CLUSTERS = "/v3/discovery:clusters"
HOLD = 60.0  # longer than any test waits
FREE = "127.0.0.1:0"


@pytest.fixture
def settings() -> Settings:
    return Settings(poll_hold=HOLD)


@pytest.fixture
async def server(store: Store, settings: Settings) -> AsyncIterator[Server]:
    async with Server(store, listen=FREE, rest=FREE, settings=settings) as running:
        yield running


async def post(
    server: Server, path: str, body: object, headers: dict[str, str] | None = None, *, method: str = "POST"
) -> tuple[int, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await asyncio.to_thread(web.post, server.rest_address, path, text, headers, method=method)
    return answer.status, json.loads(answer.body) if answer.body else None


async def fetch(server: Server, path: str = CLUSTERS, **fields: object) -> Any:
    status, said = await post(server, path, fields)
    assert status == 200, said
    return said


async def refused(server: Server, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, str]:
    status, said = await post(server, path, body, headers)
    assert list(said) == ["error"]
    return status, said["error"]


def held(server: Server) -> int:
    return sum(each.stream.only_type == CLUSTER for each in server.hub.connected())


def heard(server: Server) -> list[Fact]:
    facts: list[Fact] = []
    server.hub.readers.append(facts.extend)
    return facts


# -- what there is


def test_the_protos_give_a_path_to_the_types_that_the_requirements_name() -> None:
    """So that the comparison below can't be one of nothing with nothing."""
    # RST-1
    types = ["listeners", "clusters", "routes", "endpoints", "secrets", "runtime"]
    assert {f"/{version}/discovery:{each}" for version in ("v2", "v3") for each in types} < set(PATHS)


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_that_the_protos_have_answers_with_its_type(server: Server, path: str) -> None:
    # RST-1
    said = await fetch(server, path, resource_names=["x"])
    assert said["resources"] == []
    assert (".v2." in said["type_url"]) == path.startswith("/v2/")
    again = await fetch(server, path, resource_names=["x"], type_url=said["type_url"])
    assert again == said


async def test_the_whole_node_gives_params_where_it_is_named(store: Store) -> None:
    # DYN-12
    with store.transaction() as tx:
        tx.put(cluster("a", "here"), when="node.locality.zone=z and labels.app=shop and replicas=3")
    settings = Settings(node_params=["node.locality.zone", "labels.app", "replicas"])
    async with Server(store, listen=FREE, rest=FREE, settings=settings) as server:
        node = {"locality": {"zone": "z"}, "metadata": {"labels": {"app": "shop"}, "replicas": 3}}
        assert len((await fetch(server, resource_names=["a"], node=node))["resources"]) == 1
        assert (await fetch(server, resource_names=["a"], node={"locality": {"zone": "z"}}))["resources"] == []


async def test_there_is_no_path_but_these(server: Server) -> None:
    # RST-3
    assert sorted(path for path, _, _ in module.paths(server._apis)) == PATHS  # noqa: SLF001 # the routes themselves, of which a client sees one at a time


async def test_an_answer_is_a_discovery_response_in_json(server: Server) -> None:
    # RST-1
    put(server.store, cluster("a", "1"), cluster("b", "2"))
    said = await fetch(server, node={"id": "me"})
    response = Parse(json.dumps(said), DiscoveryResponse())
    assert response.type_url == CLUSTER
    assert [Cluster.FromString(each.value) for each in response.resources] == [cluster("a", "1"), cluster("b", "2")]
    assert (response.control_plane.identifier, bool(response.version_info)) == ("xdsprism", True)


@pytest.mark.parametrize("preserve", [True, False], ids=["proto names", "camelCase"])
async def test_a_request_may_have_names_of_either_kind_and_a_node_with_whatever_is_in_it(
    server: Server, preserve: bool
) -> None:
    # RST-1, DYN-12
    with server.store.transaction() as tx:
        tx.put(cluster("shop", "prod"), when="env=prod")
        tx.put(cluster("shop", "test"), when="env=test")
    node = Node(id="me", user_agent_name="envoy")
    node.metadata.update({"env": "test", "more": {"a": [1, None, True]}})
    node.extensions.add(name="envoy.something", category="envoy.of_a_kind")
    request = DiscoveryRequest(node=node, resource_names=["shop"], type_url=CLUSTER)
    text = json.loads(MessageToJson(request, preserving_proto_field_name=preserve))
    text["node"]["a_field_of_tomorrow"] = text["anotherOne"] = {"x": 1}
    (found,) = (await fetch(server, **text))["resources"]
    assert found == {"@type": CLUSTER, "name": "shop", "alt_stat_name": "test"}


async def test_packed_messages_are_written_as_json(server: Server) -> None:
    # RST-1
    router, manager = (f"type.googleapis.com/{kind.DESCRIPTOR.full_name}" for kind in (Router, HttpConnectionManager))
    filters = [{"name": "router", "typed_config": {"@type": router, "suppress_envoy_headers": True}}]
    config = {"@type": manager, "stat_prefix": "x", "http_filters": filters, "rds": {"route_config_name": "r"}}
    fields = {"name": "l", "filter_chains": [{"filters": [{"name": "hcm", "typed_config": config}]}]}
    put_bytes(server.store, LISTENER, "l", Parse(json.dumps(fields), Listener()).SerializeToString())
    (found,) = (await fetch(server, "/v3/discovery:listeners"))["resources"]
    assert found == {"@type": LISTENER, **fields}
    (old,) = (await fetch(server, "/v2/discovery:listeners"))["resources"]
    inner = old["filter_chains"][0]["filters"][0]["typed_config"]
    assert old["@type"] == "type.googleapis.com/envoy.api.v2.Listener"
    assert inner["@type"].endswith(".http_connection_manager.v2.HttpConnectionManager")
    assert inner["http_filters"][0]["typed_config"]["@type"].endswith("envoy.config.filter.http.router.v2.Router")


async def test_the_version_of_the_path_counts_where_the_request_names_no_type(server: Server) -> None:
    # RST-1, VER-3
    put(server.store, cluster("a"))
    v2 = "type.googleapis.com/envoy.api.v2.Cluster"
    assert (await fetch(server, "/v2/discovery:clusters"))["type_url"] == v2
    assert (await fetch(server, CLUSTERS, type_url=v2))["type_url"] == v2


async def test_locators_are_answered_in_the_wrapper_with_their_constraints(server: Server) -> None:
    # RST-4, DYN-2
    with server.store.transaction() as tx:
        tx.put(cluster("shop", "prod"), when="env=prod")
        tx.put(cluster("shop", "test"), when="env=test")
    wanted = [{"name": "shop", "dynamic_parameters": {"env": "prod"}}, {"name": "none"}]
    said = await fetch(server, resource_locators=wanted)
    (found,) = said["resources"]
    assert found["@type"] == "type.googleapis.com/envoy.service.discovery.v3.Resource"
    assert found["resource"] == {"@type": CLUSTER, "name": "shop", "alt_stat_name": "prod"}
    assert found["resource_name"]["name"] == "shop"
    assert "dynamic_parameter_constraints" in found["resource_name"]
    assert [error["resource_name"]["name"] for error in said["resource_errors"]] == ["none"]


async def test_a_long_answer_lets_the_loop_turn(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # RST-1
    put(server.store, *(cluster(f"c{number:03}") for number in range(300)))
    monkeypatch.setattr(rest_json, "SLICE", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    said = await fetch(server)
    counting.cancel()
    assert len(said["resources"]) == 300
    assert turns > 300
    assert (await fetch(server)) == said


async def test_streams_are_served_while_a_long_request_is_parsed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-10
    put(server.store, cluster("shop"))
    begun, served = threading.Event(), threading.Event()

    def read_slowly(text: bytes) -> bytes:
        if len(text) > LONG_BYTES:
            begun.set()
            assert served.wait(PATIENCE), "the loop was not given back"
        return rest_json.read_request(text)

    monkeypatch.setattr(rest_bodies, "read_request", read_slowly)
    long = asyncio.create_task(fetch(server, resource_names=["shop", "x" * LONG_BYTES]))
    await until(begun.is_set)
    assert (await fetch(server, resource_names=["shop"]))["resources"], "somebody else is answered"
    served.set()
    assert len((await long)["resources"]) == 1


async def test_large_requests_of_one_address_keep_neither_usual_ones_nor_other_addresses_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # OPS-10, RST-1
    begun: list[str] = []
    release = threading.Semaphore(0)

    def read_slowly(text: bytes) -> bytes:
        begun.append(text[:1].decode())
        if len(text) > rest_bodies.USUAL:
            assert release.acquire(timeout=PATIENCE)
        return text[:1]

    monkeypatch.setattr(rest_bodies, "read_request", read_slowly)
    parser = rest_bodies.BodyParser()
    large = [asyncio.create_task(parser.parse("greedy", b"g" * 300_000)) for _ in range(3)]
    await until(lambda: begun == ["g"])
    assert await parser.parse("envoy", b"u" * 77_000) == b"u"
    assert await parser.parse("envoy", b"s") == b"s"
    large.append(asyncio.create_task(parser.parse("other", b"o" * 300_000)))
    large[1].cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        release.release()
    assert await large[0] == b"g"
    assert await large[2] == b"g"
    assert await large[3] == b"o"
    assert begun == ["g", "u", "s", "o", "g"]
    parser.close()


async def test_a_parser_that_fails_goes_on_and_one_that_is_closed_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    # RST-3
    parser = rest_bodies.BodyParser()
    with pytest.raises(PeerError):
        await parser.parse("a", b"x" * 20_000)
    assert await parser.parse("a", b"{" + b" " * 20_000 + b"}") == b""
    parser.close()


def test_unparsed_bodies_are_bounded_and_usual_ones_have_room() -> None:
    # OPS-6
    room = rest_bodies.BodyBytes(1_000_000)
    assert room.hold("greedy", 0, 500_000)
    assert not room.hold("greedy", 500_000, 300_000)  # three quarters
    assert room.hold("other", 0, 400_000)
    assert not room.hold("third", 0, 200_000)
    assert room.hold("third", 0, rest_bodies.FREE)
    room.release("greedy", 500_000)
    assert room.hold("third", rest_bodies.FREE, 100_000)
    for address, size in (("other", 400_000), ("third", rest_bodies.FREE + 100_000)):
        room.release(address, size)
    assert room.held == 0
    assert not room._addresses  # noqa: SLF001 # addresses that are left behind cost memory, and nobody sees them


async def test_where_too_much_is_being_read_a_large_request_is_503_and_a_usual_one_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-6
    put(server.store, cluster("shop"))
    assert server._rest is not None  # noqa: SLF001 # as below
    room = server._rest._rest._bytes  # noqa: SLF001 # no option of a server sets how much it reads at once
    monkeypatch.setattr(room, "_most", 1_000_000)  # as above
    host, port = web.split(server.rest_address)
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: x\r\ncontent-length: 700000\r\n\r\n"
    writer.write(head.encode() + b" " * 650_000)
    await until(lambda: room.held == 650_000)
    assert (await refused(server, CLUSTERS, b" " * 200_000))[0] == 503
    assert (await fetch(server, resource_names=["shop", "x" * 90_000]))["resources"]
    assert room.held == 650_000
    writer.close()
    await until(lambda: room.held == 0)
    del reader


PAGES = [
    {"origin": "http://evil.test"},
    {"origin": "null"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("headers", PAGES)
async def test_a_web_page_gets_nothing(server: Server, headers: dict[str, str]) -> None:
    # OPS-14, OPS-15
    put(server.store, cluster("shop"))
    refusals: list[ConnectionFact] = []
    server.connection_readers.append(refusals.extend)
    for method in ("POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        for path in (CLUSTERS, "/nothing"):
            answer = await asyncio.to_thread(web.post, server.rest_address, path, b"{}", headers, method=method)
            assert answer.status == 403
            assert "shop" not in answer.body
    assert {(fact.port, fact.why) for fact in refusals if isinstance(fact, HttpRequestRefused)} == {("rest", "page")}
    assert (await refused(server, CLUSTERS, {}, {"origin": f"http://{server.rest_address}"}))[0] == 403  # DNS rebinding


# -- waiting for news


async def test_a_rest_client_with_the_newest_version_waits_and_gets_the_change(server: Server) -> None:
    # RST-2
    put(server.store, cluster("a", "1"))
    first = await fetch(server)
    waiting = asyncio.create_task(fetch(server, version_info=first["version_info"]))
    await until(lambda: held(server))
    put(server.store, cluster("a", "2"))
    second = await waiting
    assert [each["alt_stat_name"] for each in second["resources"]] == ["2"]
    assert second["version_info"] != first["version_info"]
    await until(lambda: not server.hub.connected())


@pytest.mark.parametrize("settings", [Settings(poll_hold=0.2)])
async def test_after_a_wait_without_a_change_the_answer_is_304(server: Server) -> None:
    # RST-2
    put(server.store, cluster("a"))
    facts = heard(server)
    version = (await fetch(server))["version_info"]
    began = time.monotonic()
    assert await post(server, CLUSTERS, {"version_info": version}) == (304, None)
    assert time.monotonic() - began >= 0.2
    await until(lambda: [fact.status for fact in facts if isinstance(fact, Polled)] == [200, 304])


async def test_envoy_says_how_long_it_waits_and_is_answered_before_that(server: Server) -> None:
    # RST-2
    put(server.store, cluster("a"))
    version = (await fetch(server))["version_info"]
    headers = {"x-envoy-expected-rq-timeout-ms": "400"}
    began = time.monotonic()
    assert await post(server, CLUSTERS, {"version_info": version}, headers) == (304, None)
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("settings", [Settings(poll_hold=0.0)])
@pytest.mark.parametrize("said", ["", "0", "-5", "soon", "9" * 20])
async def test_a_timeout_that_is_none_is_none(server: Server, said: str) -> None:
    version = (await fetch(server))["version_info"]
    headers = {"x-envoy-expected-rq-timeout-ms": said}
    assert await post(server, CLUSTERS, {"version_info": version}, headers) == (304, None)


async def test_an_error_detail_is_a_nack_and_its_version_is_not_sent_again(server: Server) -> None:
    # RST-4, NAK-3
    put(server.store, cluster("a", "1"))
    good = await fetch(server)
    put(server.store, cluster("a", "2"))
    bad = await fetch(server, version_info=good["version_info"])
    facts = heard(server)
    error = {"code": 3, "message": "no", "details": [{"@type": "type.googleapis.com/nobody.has.This", "x": 1}]}
    fields = {"version_info": good["version_info"], "response_nonce": bad["nonce"], "error_detail": error}
    waiting = asyncio.create_task(fetch(server, **fields))
    await until(lambda: [fact.error.message for fact in facts if isinstance(fact, Nacked)] == ["no"])
    assert not waiting.done()
    put(server.store, cluster("a", "3"))
    assert [each["alt_stat_name"] for each in (await waiting)["resources"]] == ["3"]


async def test_a_nack_of_a_secret_is_reported_without_its_words(server: Server) -> None:
    # OPS-14, RST-4
    secret = Secret(name="key")
    secret.generic_secret.secret.inline_string = "hunter2"
    put(server.store, secret)
    facts = heard(server)
    error = {"code": 3, "message": "hunter2 is no PEM"}
    fields = {"response_nonce": "1", "error_detail": error, "resource_names": ["key"]}
    assert (await post(server, "/v3/discovery:secrets", fields))[0] == 200
    (told,) = [fact.error.message for fact in facts if isinstance(fact, Nacked)]
    assert told.startswith("the reason is not shown, as it may quote a secret")


async def test_a_rest_client_that_leaves_while_waiting_is_forgotten(server: Server) -> None:
    # OPS-7
    put(server.store, cluster("a"))
    version = (await fetch(server))["version_info"]
    body = json.dumps({"version_info": version}).encode()
    head = f"POST {CLUSTERS} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(web.split(server.rest_address)) as client:
        client.sendall(head + body)
        await until(lambda: held(server))
    await until(lambda: not held(server))
    assert insides.kept_of_interest(server.hub.interest)["wildcards"] == {}


async def test_a_server_that_stops_answers_waiting_requests(store: Store, settings: Settings) -> None:
    put(store, cluster("a"))
    server = Server(store, listen=FREE, rest=FREE, settings=settings)
    await server.start()
    version = (await fetch(server))["version_info"]
    waiting = asyncio.create_task(post(server, CLUSTERS, {"version_info": version}))
    await until(lambda: held(server))
    began = time.monotonic()
    await server.stop()
    assert await waiting == (304, None)
    assert time.monotonic() - began < HOLD / 2
    with pytest.raises(ConnectionRefusedError):
        await fetch(server)
    await server.stop()


@pytest.mark.parametrize("settings", [Settings(poll_hold=HOLD, limits=Limits(polls=1))])
async def test_where_too_many_wait_the_others_are_answered_at_once(server: Server) -> None:
    # RST-2
    put(server.store, cluster("a"))
    version = (await fetch(server))["version_info"]
    facts = heard(server)
    waiting = asyncio.create_task(fetch(server, version_info=version))
    await until(lambda: held(server))
    assert await post(server, CLUSTERS, {"version_info": version}) == (304, None)
    await until(lambda: Polled(304, crowded=True) in facts)
    put(server.store, cluster("a", "2"))
    await waiting


# -- mistakes


MANY = {f"key{number}": "x" for number in range(65)}
NOT_JSON = "not a DiscoveryRequest in JSON: "
MISTAKES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, NOT_JSON),
    "broken": (b"{]", 400, NOT_JSON),
    "not UTF-8": (b'{"version_info": "\xff"}', 400, NOT_JSON),
    "half a letter": (rb'{"version_info": "\ud800"}', 400, NOT_JSON),
    "a list": (b"[]", 400, "a DiscoveryRequest is a JSON object"),
    "a wrong type": (b'{"resource_names": 5}', 400, NOT_JSON),
    "a node that is none": (b'{"node": 5}', 400, NOT_JSON),
    "deep": (b"[" * 100_000, 400, f"{NOT_JSON}it is nested too deeply"),
    "deep metadata": (b'{"node": {"metadata": %s1%s}}' % (b'{"a":' * 500, b"}" * 500), 400, NOT_JSON),
    "another type": (b'{"type_url": "type.googleapis.com/nobody.has.This"}', 400, f"this service serves {CLUSTER}"),
}


@pytest.mark.parametrize(("body", "status", "message"), MISTAKES.values(), ids=MISTAKES)
async def test_an_invalid_request_gets_the_reason_and_the_server_goes_on(
    server: Server, body: bytes, status: int, message: str
) -> None:
    # RST-3
    code, said = await refused(server, CLUSTERS, body)
    assert code == status
    assert said.startswith(message)
    assert server.hub.connected() == []
    assert (await fetch(server))["resources"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/v3/discovery:widgets",
        "/v4/discovery:clusters",
        "/v3/discovery:aggregated_resources",
        "/v3/discovery:virtual_hosts",
        "/v3/discovery:clusters/",
        "/",
    ],
)
async def test_a_path_that_is_not_there_is_404_and_says_which_are(server: Server, path: str) -> None:
    # RST-3
    status, said = await refused(server, path, {})
    assert status == 404
    assert said == f"there is no {path} here; there are {', '.join(PATHS)}"


async def test_without_v2_there_are_no_paths_of_v2(store: Store) -> None:
    # RST-3, VER-1
    async with Server(store, listen=FREE, rest=FREE, v2=False) as server:
        status, said = await refused(server, "/v2/discovery:clusters", {})
        assert (status, "/v2/" in said.partition(";")[2]) == (404, False)
        assert (await fetch(server))["resources"] == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_any_other_verb_is_405(server: Server, method: str) -> None:
    # RST-3
    status, said = await post(server, CLUSTERS, b"", method=method)
    assert (status, said) == (405, {"error": f"{method} is not for {CLUSTERS}: POST a DiscoveryRequest in JSON"})


async def test_another_content_type_is_415(server: Server) -> None:
    # RST-3
    status, said = await refused(server, CLUSTERS, b"{}", {"content-type": "application/grpc"})
    assert (status, said) == (415, "the content-type is application/grpc: send application/json")
    assert (await post(server, CLUSTERS, {}, {"content-type": "Application/JSON; charset=utf-8"}))[0] == 200


async def test_a_request_of_too_many_bytes_is_413(server: Server) -> None:
    # RST-3, OPS-6
    status, said = await refused(server, CLUSTERS, b" " * (module.BODY + 1))
    assert (status, said) == (413, f"a request has at most {module.BODY} bytes")
    assert (await fetch(server))["resources"] == []


async def test_a_request_that_does_not_end_is_408(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # OPS-6
    monkeypatch.setattr(module, "READ", 0.1)

    def begin() -> bytes:
        with socket.create_connection(web.split(server.rest_address), timeout=20) as client:
            client.sendall(f"POST {CLUSTERS} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{{".encode())
            return client.recv(1000)

    assert b" 408 " in await asyncio.to_thread(begin)


async def test_contents_that_json_can_not_express_are_an_error(server: Server) -> None:
    # RST-3
    listener = Listener(name="l")
    stranger = AnyMessage(type_url="type.googleapis.com/nobody.has.This", value=b"x")
    listener.filter_chains.add().filters.add(name="f").typed_config.CopyFrom(stranger)
    put_bytes(server.store, LISTENER, "l", listener.SerializeToString())
    status, said = await refused(server, "/v3/discovery:listeners", {})
    assert status == 501
    assert "nobody.has.This" in said


async def test_a_mistake_of_ours_is_500_in_json_and_quotes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10, OPS-14
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(rest_bodies, "read_request", fail)
    assert await refused(server, CLUSTERS, {}) == (500, MISTAKE)
    assert "RuntimeError: boom" in caplog.text
    monkeypatch.undo()
    assert (await fetch(server))["resources"] == []
    assert server.hub.connected() == []


# -- what is not known at once


async def test_a_rest_request_waits_for_a_provider(store: Store) -> None:
    # RST-1, PRX-11
    may = asyncio.Event()

    @store.provider(SECRET, keys=[])
    async def secret(name: str, _params: object) -> object:
        await may.wait()
        return Secret(name=name) if name == "x" else None

    async with Server(store, listen=FREE, rest=FREE) as server:
        waiting = asyncio.create_task(fetch(server, "/v3/discovery:secrets", resource_names=["x", "y"]))
        await until(server.hub.connected)
        may.set()
        assert [each["name"] for each in (await waiting)["resources"]] == ["x"]


@pytest.mark.parametrize("over_rest", [True, False], ids=["REST", "gRPC"])
async def test_a_server_that_stops_does_not_say_that_there_is_nothing(store: Store, over_rest: bool) -> None:
    # PRX-11: an empty answer would read as if there were nothing
    @store.provider(SECRET, keys=[])
    async def secret(_name: str, _params: object) -> object:
        return await asyncio.get_running_loop().create_future()

    server = Server(store, listen=FREE, rest=FREE)
    await server.start()
    if over_rest:
        waiting = asyncio.create_task(refused(server, "/v3/discovery:secrets", {"resource_names": ["x"]}))
    else:
        waiting = asyncio.create_task(_fetched(server, DiscoveryRequest(resource_names=["x"])))
    await until(lambda: any(each.stream.sessions for each in server.hub.connected()))
    await server.stop()
    status, said = await waiting
    assert status == (503 if over_rest else grpc.StatusCode.UNAVAILABLE)
    assert "not known yet" in said


async def test_a_fetch_that_is_unprocessed_when_the_server_stops_is_an_error(
    server: Server,
) -> None:
    call = open_fetch(server.hub, "/FetchSecrets", Peer("me"), SECRET, v2=False)
    call.end()
    with pytest.raises(PeerError, match="the server is stopping"):
        [*call.poll()]
    call.close()


async def _fetched(server: Server, request: DiscoveryRequest) -> tuple[grpc.StatusCode, str]:
    path = "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(server.address, path, request.SerializeToString())
    return caught.value.code(), caught.value.details() or ""


async def test_a_port_in_use_is_reported(server: Server) -> None:
    with pytest.raises(CannotListenError, match="for REST"):
        await Server(Store(), listen=FREE, rest=server.rest_address).start()
