"""Pressure by many names, updates and streams, and by slow clients: others are served, and memory stays bounded."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.support import insides
from tests.wire.rig import (
    DELTA,
    SOTW,
    Stream,
    assignment,
    cluster,
    footprint,
    heap,
    names_in,
    put,
    put_bytes,
    session_of,
    sessions,
    tag_of,
    until,
)
from xdsprism import CLUSTER, ENDPOINT, SECRET, Limits, Server, Settings, Store
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.events import Send
from xdsprism.core.model.listing import LOG_SLACK
from xdsprism.core.model.types import Variant
from xdsprism.server.calls import CallPort, Peer

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

PATHS = pytest.mark.parametrize("path", [DELTA, SOTW], ids=["delta", "sotw"])


def bodies(response: Any) -> list[bytes]:
    return [getattr(resource, "resource", resource).value for resource in response.resources]


def nodes(server: Server) -> list[str]:
    return [found.stream.node.id for found in server.hub.connected() if found.stream.node]


async def settled(server: Server) -> None:
    await until(lambda: not server.hub.connected())


# -- a request of 100,000 names

NAMES = [f"a-name-of-a-usual-length-such-as-kubernetes-makes-{number:06}" for number in range(100_000)]


async def test_delta_answers_a_hundred_thousand_names_in_parts_and_forgets_them_with_the_stream(server: Server) -> None:
    # DLT-4, DLT-21, OPS-7
    put(server.store, assignment(NAMES[7]), assignment(NAMES[99_999]))
    base = footprint(server, [ENDPOINT])
    async with Stream(server.address) as stream:
        await stream.send(type_url=ENDPOINT, resource_names_subscribe=NAMES)
        found: list[str] = []
        missing: list[str] = []
        parts = 0
        while len(found) + len(missing) < len(NAMES):
            message = await stream.read_bytes()
            assert len(message) <= 3_500_000
            part = stream.parse(message)
            found += names_in(part)
            missing += part.removed_resources
            parts += 1
        assert found == [NAMES[7], NAMES[99_999]]
        assert sorted([*found, *missing]) == NAMES
        assert parts > 1
        put(server.store, assignment(NAMES[50_000]))
        assert names_in(await stream.read()) == [NAMES[50_000]]
        with server.store.transaction() as tx:
            tx.delete(ENDPOINT, NAMES[50_000])
        await stream.read()
    await settled(server)
    assert footprint(server, [ENDPOINT]) == base


async def test_sotw_answers_a_hundred_thousand_names_and_forgets_them_with_the_stream(server: Server) -> None:
    # SOT-8, OPS-7
    put(server.store, assignment(NAMES[7]), assignment(NAMES[99_999]))
    base = footprint(server, [ENDPOINT])
    async with Stream(server.address, SOTW) as stream:
        answer = await stream.ask(ENDPOINT, NAMES)
        assert len(answer.resources) == 2
        put(server.store, assignment(NAMES[7], 200))
        assert len((await stream.read()).resources) == 1
    await settled(server)
    assert footprint(server, [ENDPOINT]) == base


@PATHS
async def test_more_names_than_a_stream_may_have_are_refused_and_those_that_it_has_go_on(
    store: Store, path: str
) -> None:
    # DYN-46
    put(store, cluster("a"), assignment(NAMES[0]))
    settings = Settings(limits=Limits(subscriptions=100), resource_errors="none")
    async with Server(store, "127.0.0.1:0", settings=settings) as server, Stream(server.address, path) as greedy:
        await greedy.ask(CLUSTER, ["a"], node={"id": "greedy"})
        await greedy.subscribe(ENDPOINT, NAMES[:100])
        answer = await greedy.read()
        assert len(answer.resources) == 1
        if path == DELTA:
            assert [*answer.removed_resources] == NAMES[1:99]
            assert [*(await greedy.read()).removed_resources] == NAMES[99:100]
        assert server.hub.interest.subscribers(ENDPOINT, NAMES[98]) == 1
        assert server.hub.interest.subscribers(ENDPOINT, NAMES[99]) == 0
        put(store, cluster("a", "2"))
        assert len((await greedy.read()).resources) == 1


# -- streams that say nothing


@PATHS
async def test_a_silent_stream_affects_no_other(server: Server, path: str) -> None:
    base = footprint(server, [CLUSTER])
    async with Stream(server.address, path) as silent, Stream(server.address, path) as other:
        await until(lambda: len(server.hub.connected()) == 2)
        await other.ask(CLUSTER, ["a"])
        put(server.store, cluster("a", "1"))
        assert [tag_of(body) for body in bodies(await other.read())] == ["1"]
        silent.cancel()
        other.cancel()
        with server.store.transaction() as tx:
            tx.delete(CLUSTER, "a")
        await settled(server)
    assert footprint(server, [CLUSTER]) == base


# -- clients that do not read

SIZE = 100_000  # bytes of a resource
UPDATES = 1_500
IN_FLIGHT = 16_000_000  # bytes that sockets and HTTP/2 windows on both ends hold, at the most

SUBSCRIPTIONS = pytest.mark.parametrize(
    ("path", "names"),
    [(DELTA, ["big"]), (DELTA, ["*"]), (SOTW, ["big"]), (SOTW, ["*"])],
    ids=["delta name", "delta wildcard", "sotw name", "sotw wildcard"],
)


@SUBSCRIPTIONS
async def test_a_client_that_stops_reading_affects_no_other_and_ends_with_the_newest_state(
    server: Server, path: str, names: list[str]
) -> None:
    # SOT-16, DLT-23, OPS-6
    put(server.store, cluster("big", "0", SIZE))
    async with Stream(server.address, path) as stuck, Stream(server.address, path) as other:
        await stuck.ask(CLUSTER, names, node={"id": "stuck"})
        await other.ask(CLUSTER, names)
        session = session_of(server, "stuck")
        for number in range(1, UPDATES + 1):
            put(server.store, cluster("big", str(number), SIZE))
            if number % 3 == 0:  # the others get theirs meanwhile, one by one
                assert [tag_of(body) for body in bodies(await other.read())] == [str(number)]
        assert session.progress.sent * SIZE < IN_FLIGHT
        assert len(session.due.dirty) <= 1
        assert len(insides.log(server.store.table(CLUSTER).everything)) <= LOG_SLACK + 2
        seen = [tag_of(body) for body in bodies(await stuck.read())]
        while seen[-1] != str(UPDATES):
            seen += [tag_of(body) for body in bodies(await stuck.read())]
        assert seen == sorted(seen, key=int)
        assert session.progress.sent == len(seen) + 1


async def test_superseded_updates_are_not_kept_for_a_stuck_client(server: Server) -> None:
    # OPS-6
    name = "replaced-two-hundred-times"  # and by no other test of this process
    put(server.store, cluster(name, "0", 50_000))
    async with Stream(server.address) as stuck:
        await stuck.ask(CLUSTER, [name])
        (session,) = sessions(server)
        for number in range(200):
            put(server.store, cluster(name, str(number), 50_000))
            await asyncio.sleep(0)
        gc.collect()
        alive = [found for found in gc.get_objects() if isinstance(found, Variant) and found.name == name]
        assert len(alive) <= session.progress.sent + 2


@PATHS
async def test_a_stuck_client_that_breaks_the_protocol_holds_no_memory_and_reads_its_status_later(
    store: Store, path: str
) -> None:
    # OPS-6
    put(store, *heap())
    settings = Settings(response_bytes=100_000_000)  # all of it in one response, in delta too
    async with Server(store, "127.0.0.1:0", settings=settings) as server, Stream(server.address, path) as stuck:
        base = footprint(server, [CLUSTER])
        await stuck.send(type_url=CLUSTER)
        await until(lambda: any(found.progress.sent for found in sessions(server)))
        await stuck.send_bytes(b"\xff" * 10)
        await settled(server)
        assert footprint(server, [CLUSTER]) == base
        assert insides.open_calls(server) == 1  # it still writes
        code, _ = await stuck.outcome()
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_that_asks_on_without_reading_is_bounded_by_what_it_may_subscribe(server: Server) -> None:
    # OPS-6
    put(server.store, cluster("big", "0", 1_000_000))
    async with Stream(server.address) as stuck, Stream(server.address) as other:
        for number in range(2000):
            await stuck.send(type_url=CLUSTER, resource_names_subscribe=["big", f"{number % 10}"])
        await until(lambda: any(found.count == 11 for found in sessions(server)))
        (session,) = sessions(server)
        assert names_in(await other.ask(CLUSTER, ["big"])) == ["big"]
        assert session.progress.sent < 30
        assert len(session.due.dirty) <= 11


# -- many updates


@PATHS
async def test_updates_of_one_turn_are_one_response(server: Server, path: str) -> None:
    # OPS-5, SOT-16
    put(server.store, cluster("a", "0"), cluster("b", "0"))
    async with Stream(server.address, path) as named, Stream(server.address, path) as wild:
        await named.ask(CLUSTER, ["a", "b"])
        await wild.ask(CLUSTER, ["*"])
        for number in range(1, 1001):
            put(server.store, cluster("a" if number % 2 else "b", str(number)))
        for stream in (named, wild):
            assert sorted(tag_of(body) for body in bodies(await stream.read())) == ["1000", "999"]
        assert [session.progress.sent for session in sessions(server)] == [2, 2]


@PATHS
async def test_a_thousand_rapid_updates_end_with_the_last_and_far_fewer_responses(server: Server, path: str) -> None:
    # OPS-5
    put(server.store, cluster("a", "0"))
    async with Stream(server.address, path) as stream:
        await stream.ask(CLUSTER, ["a"])
        for number in range(1, 1001):
            put(server.store, cluster("a", str(number)))
            if number % 10 == 0:
                await asyncio.sleep(0)
        seen = []
        while seen[-1:] != ["1000"]:
            seen += [tag_of(body) for body in bodies(await stream.read())]
        assert len(seen) <= 101
        assert seen == sorted(seen, key=int)


class Recorded(CallPort):
    """Passes on what a call asks of its port, and records who woke."""

    def __init__(self, port: CallPort, node: str, woken: list[str]) -> None:
        self._port, self._node, self._woken = port, node, woken

    def wake(self) -> None:
        self._woken.append(self._node)
        self._port.wake()


async def test_a_turn_wakes_each_stream_once_however_much_changed(
    server: Server,
) -> None:
    put(server.store, cluster("a", "0"))
    async with Stream(server.address) as stream, Stream(server.address) as bystander:
        await stream.ask(CLUSTER, ["a", "b", "c"], node={"id": "stream"})
        await bystander.ask(CLUSTER, ["z"], node={"id": "bystander"})
        woken = []
        for call in insides.calls(server.hub).values():
            node = call.connected.stream.node.id
            call.attach(Recorded(call.port, node, woken))
        for number in range(50):
            put(server.store, cluster("abc"[number % 3], f"{number}"))
        assert woken == []  # not within the transactions
        assert sorted(names_in(await stream.read())) == ["a", "b", "c"]
        assert woken == ["stream"]


# -- many streams


@pytest.fixture(params=[DELTA, SOTW], ids=["delta", "sotw"])
def encoded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Send]]:
    """A method, and what was encoded for it."""
    sends: list[Send] = []
    name = "_delta" if request.param == DELTA else "_sotw"
    real = getattr(Encoder, name)
    monkeypatch.setattr(Encoder, name, lambda encoder, send: sends.append(send) or real(encoder, send))
    return request.param, sends


async def test_streams_that_need_the_same_response_get_the_same_bytes(
    server: Server, encoded: tuple[str, list[Send]]
) -> None:
    path, sends = encoded
    put(server.store, *[cluster(f"c{number}", "0") for number in range(50)])
    async with Stream(server.address, path) as first, AsyncExitStack() as stack:
        streams = [first, *[await stack.enter_async_context(first.beside()) for _ in range(39)]]
        for stream in streams:
            await stream.ask(CLUSTER, ["*"])
        sends.clear()
        put(server.store, *[cluster(f"c{number}", "1") for number in range(50)])
        messages = {await stream.read_bytes() for stream in streams}
        assert len(messages) == 1
        assert len(first.parse(messages.pop()).resources) == 50
        assert len(sends) < 5  # grpc may tell some stream late that its last write is done, and it takes another turn


async def test_streams_that_are_written_in_one_turn_share_one_encoding(
    server: Server, encoded: tuple[str, list[Send]]
) -> None:
    path, sends = encoded
    put(server.store, *[cluster(f"c{number}", "0") for number in range(50)])
    kind = pb.DeltaDiscoveryRequest if path == DELTA else pb.DiscoveryRequest
    calls = [server.hub.open(path, Peer(""), delta=path == DELTA, only_type=None) for _ in range(40)]
    for call in calls:
        call.receive(kind(type_url=CLUSTER).SerializeToString())
    (message,) = {b"".join(call.poll()) for call in calls}
    assert len(kind_of_answer(path).FromString(message).resources) == 50
    assert len(sends) == 1
    for call in calls:
        call.close()


def kind_of_answer(path: str) -> Any:
    return pb.DeltaDiscoveryResponse if path == DELTA else pb.DiscoveryResponse


async def test_clients_that_come_and_go_leave_nothing_behind(server: Server) -> None:
    # OPS-7
    put(server.store, cluster("a", "0"), cluster("b", "0"), assignment("a"))
    put_bytes(server.store, SECRET, "s", b"")
    types = [CLUSTER, ENDPOINT, SECRET]
    base = footprint(server, types)
    for first in range(0, 300, 100):  # a connection that resets 200 young streams within a moment is cut off
        async with Stream(server.address) as anchor:
            for cycle in range(first, first + 100):
                await come_and_go(server, anchor, cycle)
    await settled(server)
    await until(lambda: not server.hub.facts)
    assert footprint(server, types) == base


async def come_and_go(server: Server, anchor: Stream, cycle: int) -> None:
    """Open a stream beside the anchor, do what is due in this cycle, and leave in the way that is."""
    async with anchor.beside((DELTA, SOTW)[cycle % 2]) as stream:
        if cycle % 10 == 0:
            return  # says nothing
        await stream.ask(CLUSTER, ["*"] if cycle % 3 else ["a", "b"], node={"id": f"{cycle}"})
        await stream.send(type_url="type.googleapis.com/nobody.has.This")
        if cycle % 4 == 0:
            await stream.ask(ENDPOINT, ["a"])
        if cycle % 5 == 0:
            put(server.store, cluster("a", f"{cycle}"))
            await stream.read()
        if cycle % 7 == 0:
            await stream.half_close()
        elif cycle % 11 == 0:
            await stream.send_bytes(b"\xff")


# -- one stream that fails


def break_one(monkeypatch: pytest.MonkeyPatch, part: Any, verb: str) -> None:
    """Make one function of one session's part raise, and of no other session's."""
    kind = type(part)
    whole = getattr(kind, verb)

    def fail(one: Any, *args: Any, **named: Any) -> Any:
        if one is part:
            raise ZeroDivisionError("on purpose")
        return whole(one, *args, **named)

    monkeypatch.setattr(kind, verb, fail)


@pytest.mark.parametrize("verb", ["receive", "poll"])
@PATHS
async def test_an_exception_in_one_stream_ends_only_that(
    server: Server, path: str, verb: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # OPS-10
    put(server.store, cluster("a", "0"))
    base = footprint(server, [CLUSTER])

    async with Stream(server.address, path) as broken, broken.beside() as fine:
        await broken.ask(CLUSTER, ["a"], node={"id": "broken"})
        await fine.ask(CLUSTER, ["a"], node={"id": "fine"})
        session = session_of(server, "broken")
        break_one(monkeypatch, session.requests if verb == "receive" else session.responses, verb)
        await broken.subscribe(CLUSTER, ["a", "b"])
        code, _ = await broken.status()
        assert code is grpc.StatusCode.INTERNAL
        put(server.store, cluster("a", "1"))
        assert [tag_of(body) for body in bodies(await fine.read())] == ["1"]
        assert nodes(server) == ["fine"]
    await settled(server)
    assert footprint(server, [CLUSTER]) == base
    (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert record.name == "xdsprism.server"
    assert record.exc_info is not None
    assert "on purpose" in str(record.exc_info[1])


async def test_an_exception_while_a_stream_is_closed_does_not_keep_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OPS-10
    async with Stream(server.address) as broken, Stream(server.address) as fine:
        await broken.ask(CLUSTER, ["a"], node={"id": "broken"})
        await fine.ask(CLUSTER, ["a"], node={"id": "fine"})
        break_one(monkeypatch, session_of(server, "broken"), "closing")
        broken.cancel()
        await until(lambda: nodes(server) == ["fine"])
        put(server.store, cluster("a", "1"))
        assert names_in(await fine.read()) == ["a"]
