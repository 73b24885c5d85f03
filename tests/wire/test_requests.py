"""Requests with a node, with too much, or with invalid contents."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.wire.rig import DELTA, SOTW, Stream, cluster, names_in, put, tag_of
from xdsprism import CLUSTER, ENDPOINT, Server, Store
from xdsprism.core.model.facts import Joined, OtherNode

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW])

# Field 1 of a delta request, field 2 of a SotW one: the node.
NODE_TAG = {DELTA: b"\x0a", SOTW: b"\x12"}


@pytest.fixture
def store(store: Store) -> Store:
    """Two clusters that are one thing in production, another in test, and a third to nobody in particular."""
    with store.transaction() as tx:
        for name in ("a", "b"):
            tx.put(cluster(name, "prod"), when="env=prod")
            tx.put(cluster(name, "test"), when="env=test")
            tx.put(cluster(name, "none"), when="not env in (prod, test)")
    return store


def tags(answer: Any) -> list[str]:
    bodies = [getattr(resource, "resource", resource).value for resource in answer.resources]
    return [tag_of(body) for body in bodies]


def node(env: str, *, name: str = "me") -> dict[str, Any]:
    return {"id": name, "metadata": {"env": env}}


# -- who is at the other end


@PATHS
async def test_a_node_is_needed_in_the_first_message_only(server: Server, path: str) -> None:
    # SRV-6
    async with Stream(server.address, path) as stream:
        assert tags(await stream.ask(CLUSTER, ["a"], node=node("prod"))) == ["prod"]
        assert set(tags(await stream.ask(CLUSTER, ["a", "b"]))) == {"prod"}


@PATHS
async def test_a_node_counts_also_where_the_first_message_asks_for_another_type(server: Server, path: str) -> None:
    # SRV-6
    async with Stream(server.address, path) as stream:
        await stream.send(type_url=ENDPOINT, node=node("prod"))
        assert tags(await stream.ask(CLUSTER, ["a"])) == ["prod"]


@PATHS
async def test_another_node_later_on_is_ignored_and_counted(server: Server, path: str) -> None:
    # SRV-7
    facts: list[object] = []
    server.hub.readers.append(facts.extend)
    async with Stream(server.address, path) as stream:
        await stream.ask(CLUSTER, ["a"], node=node("prod"))
        assert set(tags(await stream.ask(CLUSTER, ["a", "b"], node=node("test", name="you")))) == {"prod"}
    assert [fact.node.id for fact in facts if isinstance(fact, Joined)] == ["me"]
    assert len([fact for fact in facts if isinstance(fact, OtherNode)]) == 1


@PATHS
async def test_without_a_node_a_client_is_anonymous_for_as_long_as_the_stream_lasts(server: Server, path: str) -> None:
    # SRV-7
    async with Stream(server.address, path) as stream:
        assert tags(await stream.ask(CLUSTER, ["a"])) == ["none"]
        assert set(tags(await stream.ask(CLUSTER, ["a", "b"], node=node("prod")))) == {"none"}


@PATHS
async def test_a_node_that_is_repeated_is_not_even_read(server: Server, path: str) -> None:
    """Nothing that a later node holds can do anything, not even bytes that are no node: they are skipped."""
    # SRV-25
    facts: list[object] = []
    server.hub.readers.append(facts.extend)
    kind = pb.DeltaDiscoveryRequest if path == DELTA else pb.DiscoveryRequest
    names = {"resource_names_subscribe" if path == DELTA else "resource_names": ["a", "b"]}
    said = Node(id="me").SerializeToString()
    broken = said + b"\xff" * 60_000
    with pytest.raises(Exception, match="parsing"):
        Node.FromString(broken)
    async with Stream(server.address, path) as stream:
        await stream.ask(CLUSTER, ["a"], node=node("prod"))
        rest = kind(type_url=CLUSTER, **names).SerializeToString()
        await stream.send_bytes(NODE_TAG[path] + _length(broken) + broken + rest)
        assert set(tags(await stream.read())) == {"prod"}
    assert not [fact for fact in facts if isinstance(fact, OtherNode)]


def _length(field: bytes) -> bytes:
    """As protobuf writes it: borrowed from a message that has one string."""
    encoded = Node(id="x" * len(field)).SerializeToString()
    return encoded[1 : -len(field)]


@PATHS
async def test_a_node_is_found_wherever_in_the_message_it_is(server: Server, path: str) -> None:
    """Serialisers may write fields in any order."""
    # SRV-6
    kind = pb.DeltaDiscoveryRequest if path == DELTA else pb.DiscoveryRequest
    names = {"resource_names_subscribe" if path == DELTA else "resource_names": ["a"]}
    first = kind(type_url=CLUSTER, **names).SerializeToString() + kind(node=node("prod")).SerializeToString()
    second = kind(type_url=ENDPOINT).SerializeToString() + kind(node=node("test")).SerializeToString()
    third = {"resource_names_subscribe" if path == DELTA else "resource_names": ["a", "b"]}
    async with Stream(server.address, path) as stream:
        await stream.send_bytes(first)
        assert tags(await stream.read()) == ["prod"]
        await stream.send_bytes(second)
        await stream.send(type_url=CLUSTER, **third)
        assert set(tags(await stream.read())) == {"prod"}


# -- too much


async def test_a_request_above_four_megabytes_is_accepted(server: Server) -> None:
    """As Envoy sends it when it comes back with 70,000 virtual hosts."""
    # SRV-24
    versions = {f"a-route-configuration/host-{number:06}.example.com": "0123456789abcdef" for number in range(70_000)}
    request = pb.DeltaDiscoveryRequest(type_url=CLUSTER, initial_resource_versions=versions, node=node("prod"))
    request.resource_names_subscribe.append("a")
    assert request.ByteSize() > 4_194_304
    async with Stream(server.address) as stream:
        await stream.send_bytes(request.SerializeToString())
        assert names_in(await stream.read()) == ["a"]


@PATHS
async def test_a_message_past_the_limit_ends_that_stream_only(store: Store, path: str) -> None:
    # SRV-24
    async with (
        Server(store, "127.0.0.1:0", receive_bytes=100_000) as server,
        Stream(server.address, path) as fine,
        Stream(server.address, path) as large,
    ):
        await fine.ask(CLUSTER, ["a"])
        await large.ask(CLUSTER, ["a"])
        await large.send(type_url="x" * 100_001)
        code, details = await large.status()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details
        with store.transaction() as tx:
            tx.put(cluster("a", "new"), when="not env in (prod, test)")
        assert tags(await fine.read()) == ["new"]


async def test_a_message_past_the_limit_leaves_other_streams_of_the_connection_alone(store: Store) -> None:
    # SRV-24
    async with (
        Server(store, "127.0.0.1:0", receive_bytes=100_000) as server,
        Stream(server.address) as fine,
        fine.beside() as large,
    ):
        await fine.ask(CLUSTER, ["a"])
        await large.send(type_url="x" * 100_001)
        assert (await large.status())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert tags(await fine.ask(CLUSTER, ["b"])) == ["none"]


@PATHS
async def test_a_refusal_that_quotes_a_long_text_is_sent(server: Server, path: str) -> None:
    """A status travels in trailers, which are limited to some kilobytes."""
    # SRV-3
    one_type = {
        DELTA: "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
        SOTW: "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
    }
    async with Stream(server.address, one_type[path]) as stream:
        await stream.send(type_url="x" * 4_000)
        code, details = await stream.status()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert CLUSTER in details


# -- no sense


GARBAGE = {
    "no tag": b"\xff" * 64,
    "a number without end": b"\xff" * 5_000_000,
    "cut off": b"\x0a\x7f",
    "not UTF-8": b"\x0a\x03\xff\xfe\xfd\x12\x03\xff\xfe\xfd\x1a\x03\xff\xfe\xfd\x22\x03\xff\xfe\xfd",
    "a group without end": b"\x0b" * 100,
    "text": b"GET / HTTP/1.1\r\n\r\n",
}


@PATHS
@pytest.mark.parametrize("kind", GARBAGE)
async def test_bytes_that_are_no_request_end_that_stream_only(server: Server, path: str, kind: str) -> None:
    async with Stream(server.address, path) as fine, fine.beside() as first, fine.beside() as later:
        await fine.ask(CLUSTER, ["a"], node=node("test"))
        await later.ask(CLUSTER, ["a"], node=node("prod"))
        for broken in (first, later):
            await broken.send_bytes(GARBAGE[kind])
            code, details = await broken.status()
            assert code is grpc.StatusCode.INVALID_ARGUMENT, details
            assert "not a discovery request" in details
        with server.store.transaction() as tx:
            tx.put(cluster("a", "new"), when="env=test")
        assert tags(await fine.read()) == ["new"]
        assert [found.stream.node.id for found in server.hub.connected()] == ["me"]


@PATHS
async def test_an_empty_message_is_a_request_like_any_other(server: Server, path: str) -> None:
    # SRV-4
    async with Stream(server.address, path) as stream:
        await stream.send_bytes(b"")
        assert (await stream.status())[0] is grpc.StatusCode.INVALID_ARGUMENT


@PATHS
async def test_unknown_fields_are_skipped(server: Server, path: str) -> None:
    """Clients are newer than servers."""
    kind = pb.DeltaDiscoveryRequest if path == DELTA else pb.DiscoveryRequest
    names = {"resource_names_subscribe" if path == DELTA else "resource_names": ["a"]}
    future = Node(id="from the future").SerializeToString() * 3
    field = b"\xfa\x3f" + _length(future) + future  # number 1023
    async with Stream(server.address, path) as stream:
        await stream.send_bytes(field + kind(type_url=CLUSTER, **names).SerializeToString())
        assert tags(await stream.read()) == ["none"]


async def test_requests_before_a_protocol_error_are_forgotten(server: Server) -> None:
    async with Stream(server.address) as stream:
        await stream.ask(CLUSTER, ["a"])
        await stream.send(type_url="")
        await stream.status()
    put(server.store, cluster("c"))
    assert server.hub.connected() == []
    assert server.hub.interest.subscribers(CLUSTER, "a") == 0
