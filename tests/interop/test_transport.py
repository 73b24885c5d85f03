"""Plain calls of every gRPC implementation: what the transport under the protocol has to bear from real clients.

One server for all tests of a transport, since a configuration of 20 MB takes its time to load. Each test is a node of
its own, on a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tests.interop.tagged import BIG, big, hears, in_the_middle_of_a_large_response, peers, states, tagged, tags
from tests.support.control_plane import ControlPlane
from tests.support.engines import ENGINES
from tests.support.lab import Lab
from tests.support.streams import Channel
from tests.support.waiting import becomes
from xdsprism import CLUSTER, ENDPOINT

# The first test of a language builds its program, and a first build fetches its packages.
pytestmark = pytest.mark.timeout(600)

CHECK = "/grpc.health.v1.Health/Check"
DEADLINE = 2.0  # seconds
# Bytes. grpc-go ignores what is less than the first window of HTTP/2.
SMALL = {"grpcio": 1_024, "grpc-js": 4_096, "grpc-go": 65_535, "grpc-java": 4_096}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("house")) as running:
        yield running


@pytest.fixture(scope="module", params=ENGINES)
def server(house: Lab, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    running = house.control_plane()
    running.engine = request.param
    running.write_json("big", big())
    running.start()
    yield running
    running.close()


@pytest.fixture
def channel(lab: Lab, server: ControlPlane, argv: list[str | Path]) -> Channel:
    return lab.channel(argv, server.address)


def healthy(channel: Channel, deadline: float = 20) -> bool:
    """A call with one message each way, on the same connection."""
    check = channel.open(CHECK, deadline=deadline)
    check.send(HealthCheckRequest().SerializeToString())
    check.finish()
    assert check.ended().status == "OK"
    (answer,) = check.messages
    return HealthCheckResponse.FromString(answer).status == HealthCheckResponse.SERVING


# SRV-24
def test_large_messages_both_ways(server: ControlPlane, channel: Channel, node: str) -> None:
    stream = channel.discovery(node, delta=False)
    stream.ask(CLUSTER, "big")
    assert [len(tag) for tag in tags(stream.answer())] == [BIG]
    becomes(lambda: states(server, node), {"SYNCED"})
    # The other way, on the same connection: more than the window of the server, and nobody there by that name.
    check = channel.open(CHECK)
    check.send(HealthCheckRequest(service="y" * BIG).SerializeToString())
    check.finish()
    assert check.ended().status == "NOT_FOUND"
    assert healthy(channel)


# SRV-24, DLT-21
def test_a_large_request_and_as_large_an_answer(server: ControlPlane, channel: Channel, node: str) -> None:
    stream = channel.discovery(node)
    names = {f"{number:0200}" for number in range(20_000)}
    stream.ask(ENDPOINT, *names)
    while names:
        gone = set(stream.answer().removed_resources)
        assert gone <= names
        names -= gone
    becomes(lambda: states(server, node), {"SYNCED"})


def test_more_streams_than_fit_on_one_connection(server: ControlPlane, channel: Channel, node: str) -> None:
    """On our own transport 1,024 do; the client has the rest wait, and opens them as others end.

    grpcio has no such limit, but turns calls away at random once a thousand wait to be taken.
    """
    server.write(node, tagged(node, "first"))
    wanted, fit = (1_500, 1_024) if server.engine == "h2" else (500, 500)
    streams = [channel.discovery(node) for _ in range(wanted)]
    for stream in streams:
        stream.ask(CLUSTER, node)
    becomes(lambda: sum(each.has_more() for each in streams), fit)
    early = [each for each in streams if each.has_more()]
    late = [each for each in streams if each not in early]
    for each in early:
        hears(each, "first")
    server.write(node, tagged(node, "second"))
    for each in early:
        hears(each, "second")
    assert peers(server, node) == 1

    for each in early[: len(late)]:
        each.call.finish()
    for each in late:
        hears(each, "second")
    assert {each.call.ended().status for each in early[: len(late)]} <= {"OK"}
    assert peers(server, node) == 1


# OPS-6
def test_small_windows(lab: Lab, server: ControlPlane, argv: list[str | Path], language: str, node: str) -> None:
    """A large response in many small pieces; and one that nobody reads does not keep other streams from theirs."""
    channel = lab.channel(argv, server.address, SMALL[language])
    unread = in_the_middle_of_a_large_response(channel, node)
    large, small = channel.discovery(node, delta=False), channel.discovery(node)
    small.ask(CLUSTER, node)
    for number in range(3):
        server.write(node, tagged(node, str(number)))
        hears(small, str(number))
    large.ask(CLUSTER, "big")
    assert [len(tag) for tag in tags(large.answer())] == [BIG]
    assert not unread.has_more()
    unread.call.read()
    assert [len(tag) for tag in tags(unread.answer())] == [BIG]
    becomes(lambda: states(server, node), {"SYNCED"})
    assert peers(server, node) == 1


def test_cancellation_in_the_middle_of_large_responses(server: ControlPlane, channel: Channel, node: str) -> None:
    """Again and again, and of many at once: the connection is as good as before, and the server forgets the streams."""
    server.write(node, tagged(node, "here"))
    witness = channel.discovery(node)
    witness.ask(CLUSTER, node)
    hears(witness, "here")
    for crowd in (1, 1, 100 if server.engine == "h2" else 10):  # grpcio has a copy of the message for each
        streams = [in_the_middle_of_a_large_response(channel, node) for _ in range(crowd)]
        becomes(lambda: len(server.clients(node)), 1 + crowd)
        for each in streams:
            each.call.cancel()
        assert {each.call.ended().status for each in streams} == {"CANCELLED"}
        becomes(lambda: len(server.clients(node)), 1)
    server.write(node, tagged(node, "still here"))
    hears(witness, "still here")
    after = channel.discovery(node, delta=False)
    after.ask(CLUSTER, "big")
    assert [len(tag) for tag in tags(after.answer())] == [BIG]
    assert peers(server, node) == 1


def test_deadlines(server: ControlPlane, channel: Channel, node: str) -> None:
    """Of a stream that has all that it wants, of one in the middle of a message, and of a short call in time."""
    server.write(node, tagged(node, "here"))
    witness = channel.discovery(node)
    witness.ask(CLUSTER, node)
    hears(witness, "here")
    stuck = in_the_middle_of_a_large_response(channel, node, DEADLINE)
    content = channel.discovery(node, deadline=DEADLINE)
    content.ask(CLUSTER, node)
    hears(content, "here")
    assert content.call.ended().status == "DEADLINE_EXCEEDED"
    # To grpc-go it is INTERNAL if grpcio is first to end it, with half a message sent.
    assert stuck.call.ended().status in {"DEADLINE_EXCEEDED"} | ({"INTERNAL"} if server.engine == "grpcio" else set())
    becomes(lambda: len(server.clients(node)), 1)
    assert healthy(channel)
    server.write(node, tagged(node, "still here"))
    hears(witness, "still here")
