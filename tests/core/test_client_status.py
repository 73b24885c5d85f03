"""Questions about clients, and answers to them, of any size (CSDS)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from envoy.service.status.v3.csds_pb2 import ERROR, ClientStatusRequest, ClientStatusResponse
from google.protobuf import json_format

from tests.core.support import Bench, Peer
from xdsprism.core.codec import client_status
from xdsprism.core.codec.client_status import (
    ANSWER_BYTES,
    CONTENTS_BYTES,
    QUESTION_BYTES,
    Tools,
    answering,
    decode_question,
)
from xdsprism.core.model.events import Node
from xdsprism.core.model.steps import Steps, finish
from xdsprism.core.model.types import CLUSTER, Params, TypeUrl, make_variant
from xdsprism.core.policy.oversight import Viewer
from xdsprism.core.serve import client_status as serve_status
from xdsprism.core.serve.client_status import Candidate, StatusQuestion
from xdsprism.core.serve.node_matchers import matching_any
from xdsprism.errors import PeerError
from xdsprism.messages.sensitive import is_secret_metadata

ALL = StatusQuestion()
BARE = StatusQuestion(contents=False)


def unchanged(_: TypeUrl, body: bytes) -> Steps[bytes]:
    """Nothing in it is secret."""
    yield
    return body


TOOLS = Tools(unchanged, is_secret_metadata, 0.0)


def connected(bench: Bench, count: int = 1) -> list[Peer]:
    """Clients that have all clusters, and have accepted them."""
    peers = [bench.connect(Node(f"envoy-{number:05}"), delta=True) for number in range(count)]
    for peer in peers:
        peer.ask("cds +*")
        peer.poll()
        peer.ask("ack")
    return peers


def asked(peers: list[Peer], question: StatusQuestion = ALL) -> Steps[bytes]:
    candidates = [Candidate(number, peer.stream) for number, peer in enumerate(peers)]
    return answering(candidates, question, Viewer(None), TOOLS)


def answered(peers: list[Peer], question: StatusQuestion = ALL) -> ClientStatusResponse:
    return ClientStatusResponse.FromString(finish(asked(peers, question)))


def stored(bench: Bench, count: int, size: int) -> None:
    """So many clusters of so many bytes."""
    named = [f"c{number:05}" for number in range(count)]
    bench.store.apply({(CLUSTER, name): (make_variant(CLUSTER, name, b"x" * size),) for name in named})


# -- how large an answer is


def test_contents_are_left_out_where_they_do_not_fit_and_the_client_says_so() -> None:
    # CSD-1: no client of gRPC takes more than 4 MiB unless it is told to
    bench = Bench()
    stored(bench, 10, 1_000_000)
    peers = connected(bench)
    raw = finish(asked(peers))
    (config,) = ClientStatusResponse.FromString(raw).config
    assert len(raw) <= ANSWER_BYTES < 4 * 1024 * 1024
    assert [each.name for each in config.generic_xds_configs] == [f"c{number:05}" for number in range(10)]
    assert [bool(each.xds_config.value) for each in config.generic_xds_configs] == [True] * 3 + [False] * 7
    assert config.client_scope.startswith("left out: the contents of 7 resources, as an answer has at most 4,000,000 ")
    assert answered(peers, BARE).config[0].client_scope == ""


def test_a_small_resource_after_a_large_one_still_has_its_contents() -> None:
    # CSD-1
    bench = Bench()
    stored(bench, 1, CONTENTS_BYTES + 1)
    bench.put("cds z=1")
    (config,) = answered(connected(bench)).config
    large, small = config.generic_xds_configs
    assert (large.HasField("xds_config"), small.xds_config.value) == (False, b"1")
    assert "the contents of 1 resources" in config.client_scope


def test_resources_and_clients_are_left_out_where_they_do_not_fit_and_the_answer_says_how_many() -> None:
    # CSD-1
    bench = Bench()
    stored(bench, 20_000, 1)
    peers = connected(bench, 5)
    raw = finish(asked(peers, BARE))
    answer = ClientStatusResponse.FromString(raw)
    assert ANSWER_BYTES * 0.95 < len(raw) <= ANSWER_BYTES
    *whole, cut, last = answer.config
    assert [len(each.generic_xds_configs) for each in whole] == [20_000] * len(whole)
    missing = 20_000 - len(cut.generic_xds_configs)
    assert cut.client_scope.startswith(f"left out: {missing:,} resources, as an answer has at most 4,000,000 bytes")
    assert not last.HasField("node")
    clients = 5 - len(answer.config) + 1
    assert last.client_scope.startswith(f"left out: {clients} clients, as an answer")
    # Each of them can be asked for by itself.
    one = ClientStatusRequest()
    one.node_matchers.add().node_id.exact = "envoy-00004"
    found = answered(peers, decode_question(one.SerializeToString(), None)).config
    assert [each.node.id for each in found] == ["envoy-00004"]


def test_what_was_rejected_is_never_what_is_left_out() -> None:
    # CSD-1
    bench = Bench()
    stored(bench, 20_000, 1)
    peers = connected(bench, 5)
    bench.put("cds zzz=1")
    for peer in peers:
        peer.poll()
    peers[4].ask("cds nack")
    first = answered(peers, BARE).config[0]
    assert first.node.id == "envoy-00004"
    assert (first.generic_xds_configs[0].name, first.generic_xds_configs[0].config_status) == ("zzz", ERROR)


def test_what_was_rejected_is_listed_of_a_client_with_more_than_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # CSD-1
    bench = Bench()
    stored(bench, 300, 1)
    peers = connected(bench)
    bench.put("cds zzz=1")
    peers[0].poll()
    peers[0].ask("cds nack")
    assert len(answered(peers, BARE).config[0].generic_xds_configs) == 301
    monkeypatch.setattr(serve_status, "ROWS", 100)
    (config,) = answered(peers, BARE).config
    assert [each.name for each in config.generic_xds_configs] == ["zzz", *(f"c{number:05}" for number in range(100))]
    assert config.client_scope.startswith("left out: some resources, as an answer has at most")


def test_a_rejected_removal_is_listed() -> None:
    # CSD-1, NAK-12
    bench = Bench()
    bench.put("cds a=1")
    peer = bench.connect(Node("n"), delta=True)
    peer.ask("cds +a")
    peer.poll()
    peer.ask("ack")
    bench.put("cds -a")
    bench.now += 10
    peer.poll()
    peer.ask("cds nack")
    first = answered([peer]).config[0].generic_xds_configs[0]
    assert (first.name, first.config_status, first.error_state.details) == ("a", ERROR, "does not compute")
    assert not first.error_state.HasField("failed_configuration")


def test_an_answer_is_made_in_steps() -> None:
    # OPS-6
    bench = Bench()
    stored(bench, 3_000, 100)
    peers = connected(bench, 20)
    assert sum(1 for _ in asked(peers)) > 2 * 20 * 3_000 / 128


def test_clients_that_come_and_go_between_the_steps_do_no_harm() -> None:
    # OPS-10
    bench = Bench()
    stored(bench, 1_000, 1)
    peers = connected(bench, 20)
    steps = asked(peers)
    for number, peer in enumerate(peers):
        next(steps)
        if number % 2:
            peer.close()
        else:
            peer.ask(f"cds +c{number}")
            bench.put(f"cds c{number:05}=2 -c{number + 500:05}")
            peer.poll()
    found = ClientStatusResponse.FromString(finish(steps))
    assert [config.node.id for config in found.config] == [f"envoy-{number:05}" for number in range(20)]


# -- what is asked


def read(fields: dict[str, Any]) -> StatusQuestion:
    return decode_question(json_format.ParseDict(fields, ClientStatusRequest()).SerializeToString(), None)


def is_matched(matcher: dict[str, Any], node: Node) -> bool:
    return finish(matching_any(read({"node_matchers": [matcher]}).matchers, node, is_secret_metadata))


def metadata(path: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"node_metadatas": [{"path": [{"key": key} for key in path.split("/")], "value": value}]}


NODE = Node(
    "web-1",
    metadata=Params({"env": "prod", "a.b": "dotted", "token": "hunter2", "long": "x" * 5_000}),
    named=Params({"labels.app": "shop", "replicas": "3", "canary": "true"}),
)


# CSD-2
@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ({"node_id": {"exact": "web-1"}}, True),
        ({"node_id": {"exact": "WEB-1"}}, False),
        ({"node_id": {"exact": "WEB-1", "ignore_case": True}}, True),
        ({"node_id": {"suffix": "-1"}}, True),
        ({"node_id": {"suffix": "-2"}}, False),
        ({"node_id": {"contains": "b-"}}, True),
        ({"node_id": {"safe_regex": {"regex": "web-\\d"}}}, True),
        ({"node_id": {"safe_regex": {"regex": "eb-\\d"}}}, False),
        (metadata("env", {"string_match": {"prefix": "pr"}}), True),
        (metadata("env", {"string_match": {"prefix": "te"}}), False),
        (metadata("a.b", {"string_match": {"exact": "dotted"}}), True),
        (metadata("labels/app", {"string_match": {"exact": "shop"}}), True),
        (metadata("labels/other", {"string_match": {"exact": "shop"}}), False),
        (metadata("replicas", {"double_match": {"exact": 3}}), True),
        (metadata("replicas", {"double_match": {"exact": 4}}), False),
        (metadata("env", {"double_match": {"exact": 4}}), False),
        (metadata("canary", {"bool_match": True}), True),
        (metadata("canary", {"bool_match": False}), False),
        (metadata("env", {"present_match": True}), True),
        (metadata("none", {"present_match": True}), False),
        (metadata("token", {"present_match": True}), True),
        (metadata("token", {"string_match": {"exact": "hunter2"}}), False),
        (metadata("token", {"string_match": {"safe_regex": {"regex": ".*"}}}), False),
        (metadata("long", {"string_match": {"prefix": "xxx"}}), True),
        (metadata("long", {"string_match": {"safe_regex": {"regex": "x*"}}}), False),
        (
            metadata(
                "env",
                {"or_match": {"value_matchers": [{"bool_match": True}, {"string_match": {"exact": "prod"}}]}},
            ),
            True,
        ),
        ({"node_id": {"exact": "web-1"}, **metadata("env", {"string_match": {"exact": "test"}})}, False),
        ({}, True),
    ],
)
def test_a_matcher_compares_the_id_and_the_metadata_of_a_node(matcher: dict[str, Any], *, expected: bool) -> None:
    assert is_matched(matcher, NODE) is expected


# CSD-2
@pytest.mark.parametrize(
    ("matchers", "message"),
    [
        ([{"node_id": {}}], "node_matchers[0].node_id: it needs exact, prefix, suffix, contains or safe_regex"),
        (
            [{}, {"node_id": {"safe_regex": {"regex": "("}}}],
            "node_matchers[1].node_id.safe_regex: '(' is not a regu",
        ),
        ([{"node_id": {"safe_regex": {"regex": "x" * 1_025}}}], "it has 1,025 characters; at most 1,024 are accepted"),
        ([{"node_id": {"safe_regex": {"regex": "(.{50}){9}"}}}], "instructions for it; at most 100 are accepted"),
        ([metadata("a", {"list_match": {}})], "node_metadatas[0].value: list_match can't be compared with what the"),
        ([metadata("a", {"null_match": {}})], "null_match can't be compared with what the server keeps of metadata"),
        ([metadata("a", {"double_match": {"range": {}}})], "double_match can't be compared"),
        ([metadata("a", {})], "nothing can't be compared"),
        ([{"node_metadatas": [{"value": {"bool_match": True}}]}], "path needs keys that lead to a value"),
        ([{}] * 33, "at most 32 matchers are accepted, and each inner one counts"),
        ([{"node_id": {"exact": "a"}}] * 17, "at most 32 matchers are accepted, and each inner one counts"),
    ],
)
def test_a_matcher_that_can_not_be_answered_is_refused_with_the_reason(
    matchers: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(PeerError, match=re.escape(message)) as caught:
        read({"node_matchers": matchers})
    assert caught.value.status == "INVALID_ARGUMENT"


def test_a_request_is_bounded() -> None:
    # OPS-6
    with pytest.raises(PeerError, match="at most 262,144 bytes"):
        decode_question(b"x" * (QUESTION_BYTES + 1), None)
    with pytest.raises(PeerError, match="not a ClientStatusRequest"):
        decode_question(b"\xff\xff", None)


def test_a_regular_expression_that_backtracks_takes_no_time() -> None:
    # CSD-2: RE2 does not backtrack. A library that does would not come back.
    assert not is_matched({"node_id": {"safe_regex": {"regex": "(a*)*b"}}}, Node("a" * 256))


# -- what is shown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DB_PASSWORD", "x"),
        ("apiKey", "x"),
        ("x-api-key", "x"),
        ("ACCESS_TOKEN", "x"),
        ("client_secret", "x"),
        ("Authorization", "x"),
        ("note", "Bearer abcdefgh12345678"),
        ("note", "Basic dXNlcjpwYXNzd29yZA=="),
        ("note", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.sig"),
        ("dsn", "postgres://user:hunter2@db/x"),
        ("pem", "-----BEGIN PRIVATE KEY-----"),
    ],
)
def test_metadata_that_looks_like_a_secret_is_not_shown(key: str, value: str) -> None:
    # OPS-14
    bench = Bench()
    peer = bench.connect(Node("n", metadata=Params({key: value, "env": "prod", "keyboard": "qwerty"})), delta=True)
    peer.ask("cds +a")
    (config,) = answered([peer]).config
    shown = {name: field.string_value for name, field in config.node.metadata.fields.items()}
    assert shown == {key: "[redacted]", "env": "prod", "keyboard": "qwerty"}


def test_a_node_may_be_anything_and_what_is_shown_of_it_is_bounded() -> None:
    # OPS-6
    bench = Bench()
    many = {f"key-{number:04}": "v" * 10_000 for number in range(500)}
    peer = bench.connect(Node("\udcff<b>", metadata=Params(many)), delta=True)
    peer.ask("cds +a")
    raw = finish(asked([peer]))
    (config,) = ClientStatusResponse.FromString(raw).config
    assert config.node.id == "?<b>"
    assert len(config.node.metadata.fields) == client_status.METADATA
    assert len(raw) < client_status.METADATA * 400
