"""A turn of the h2 engine: first it processes all input, then it writes all output."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.http2.rig import CALL, headers, parse
from tests.support import insides
from tests.wire.h2_rig import Rig
from xdsprism.http2 import frames
from xdsprism.http2.codes import ACK, DATA, PREFACE, SETTINGS, WINDOW_UPDATE
from xdsprism.http2.facts import Connected, Disconnected
from xdsprism.http2.limits import Limits
from xdsprism.server import engine_h2, wake_queue
from xdsprism.server.connection_calls import ConnectionCalls
from xdsprism.server.engine_h2 import SMALL_INPUT, SocketConnection
from xdsprism.server.slicing import BUDGET
from xdsprism.server.wake_queue import ENDING


@pytest.fixture(autouse=True)
def _no_turn_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a busy machine could end a turn early."""
    monkeypatch.setattr(wake_queue, "perf_counter", lambda: 0.0)


class Wire:
    """In place of a socket's transport: notes who writes, and what."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self._log = log
        self._name = name
        self.written = b""
        self.breaks = False
        self.aborted = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        if self.breaks:
            raise RuntimeError("no")
        self._log.append(f"write {self._name}")
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, _name: str) -> None: ...


async def connected(rig: Rig, log: list[str], name: str = "") -> tuple[SocketConnection, Wire]:
    connection, wire = SocketConnection(rig.engine), Wire(log, name)
    connection.connection_made(wire)  # type: ignore[arg-type] # all of a transport that it uses
    connection.data_received(PREFACE + frames.settings([]) + headers(1, CALL))
    await asyncio.sleep(0)
    log.clear()
    wire.written = b""
    return connection, wire


def message(body: bytes) -> bytes:
    return frames.frame(DATA, 0, 1, b"\0" + len(body).to_bytes(4, "big") + body)


async def test_all_input_is_processed_before_any_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, log = Rig(), list[str]()
    connections = [(await connected(rig, log, str(number)))[0] for number in range(3)]
    names = {connection: str(number) for number, connection in enumerate(connections)}
    hear = SocketConnection.process_input
    monkeypatch.setattr(
        SocketConnection,
        "process_input",
        lambda connection, *more: log.append(f"hear {names[connection]}") or hear(connection, *more),
    )
    for connection in connections:
        connection.data_received(message(b"hello"))
    assert log == []
    await asyncio.sleep(0)
    assert log == [f"{part} {number}" for part in ("hear", "write") for number in range(3)]


async def test_one_write_has_our_preface_and_what_answers_the_clients() -> None:
    log = list[str]()
    connection, wire = SocketConnection(Rig().engine), Wire(log)
    connection.connection_made(wire)  # type: ignore[arg-type] # all of a transport that it uses
    await asyncio.sleep(0)
    assert log == []
    connection.data_received(PREFACE + frames.settings([]))
    await asyncio.sleep(0)
    assert log == ["write "]
    assert [(frame.kind, frame.flags) for frame in parse(wire.written)] == [
        (SETTINGS, 0),
        (WINDOW_UPDATE, 0),
        (SETTINGS, ACK),
    ]


async def test_our_preface_does_not_wait_for_a_client_that_says_nothing() -> None:
    connection, wire = SocketConnection(Rig().engine), Wire([])
    connection.connection_made(wire)  # type: ignore[arg-type] # all of a transport that it uses
    for _ in range(2):
        await asyncio.sleep(0)
    assert [frame.kind for frame in parse(wire.written)] == [SETTINGS, WINDOW_UPDATE]


async def test_input_of_one_turn_is_processed_together() -> None:
    rig = Rig()
    connection, wire = await connected(rig, [])
    (call,) = rig.calls
    whole = message(b"first") + message(b"second")
    connection.data_received(whole[:7])
    connection.data_received(whole[7:])
    assert call.outbox == []
    await asyncio.sleep(0)
    assert call.heard == [b"first", b"second"]
    assert not wire.is_paused


async def test_a_connection_with_much_input_is_not_read_before_its_turn() -> None:
    rig = Rig()
    connection, wire = await connected(rig, [])
    (call,) = rig.calls
    connection.data_received(message(b"a" * SMALL_INPUT))
    assert wire.is_paused
    assert call.heard == []
    await asyncio.sleep(0)
    assert not wire.is_paused
    assert call.heard == [b"a" * SMALL_INPUT]
    assert rig.engine.large_input == 0


async def test_if_all_say_very_much_it_does_not_wait_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_h2, "MOST_INPUT", 3 * SMALL_INPUT)
    rig = Rig()
    connections = [(await connected(rig, []))[0] for _ in range(4)]
    for connection in connections:
        connection.data_received(message(b"a" * SMALL_INPUT))
    assert [len(call.heard) for call in rig.calls] == [0, 0, 1, 1]
    connections[0].connection_lost(None)
    connections[1].drain(rig.engine.loop.time(), 1.0)
    await asyncio.sleep(0)
    assert rig.engine.large_input == 0


async def test_a_turn_that_takes_long_leaves_the_rest_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that reconnects is served in parts, in its order, and the loop reads and writes between them."""
    rig, log = Rig(), list[str]()
    connections = [(await connected(rig, log, str(number)))[0] for number in range(4)]
    names = {connection: number for number, connection in enumerate(connections)}
    times = count()
    monkeypatch.setattr(wake_queue, "perf_counter", lambda: next(times) * BUDGET / 2)
    hear = SocketConnection.process_input
    monkeypatch.setattr(
        SocketConnection,
        "process_input",
        lambda connection: log.append(f"hear {names[connection]}") or hear(connection),
    )
    for connection in connections:
        connection.data_received(message(b"hello"))
    turns = []
    while len(log) < 8:
        done = len(log)
        await asyncio.sleep(0)
        turns.append(log[done:])
    assert turns == [
        ["hear 0", "hear 1", "write 0", "write 1"],
        ["hear 2", "hear 3", "write 2", "write 3"],
    ]


# OPS-10
async def test_a_fleet_that_connects_at_once_begins_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, log = Rig(), list[str]()
    other, wire = await connected(rig, log, "other")
    other.owner = "ipv4:10.0.0.2"
    fleet = [(SocketConnection(rig.engine), Wire(log, str(number))) for number in range(6)]
    for connection, socket in fleet:
        connection.connection_made(socket)  # type: ignore[arg-type] # all of a transport that it uses

    def begun() -> int:
        return sum(isinstance(fact, Connected) for fact in rig.facts) - 1

    monkeypatch.setattr(wake_queue, "perf_counter", lambda: begun() * BUDGET / 2)  # only that takes time
    for connection, _ in fleet:
        connection.data_received(PREFACE + frames.settings([]) + headers(1, CALL))
    assert begun() == 0
    turns = []
    while begun() < 6:
        other.data_received(message(b"hello"))
        await asyncio.sleep(0)
        turns.append(begun())
        assert wire.written.count(b"hello") == len(turns)
    assert turns == [2, 4, 6]
    await asyncio.sleep(0)
    assert [log.count(f"write {number}") for number in range(6)] == [1] * 6  # with the answers to all that came
    assert rig.engine.open_calls == 7


@pytest.mark.parametrize("end", ["lost", "drained"])
async def test_what_came_is_heard_though_the_connection_ends_before_it_has_begun(end: str) -> None:
    rig = Rig()
    connection = SocketConnection(rig.engine)
    connection.connection_made(Wire([]))  # type: ignore[arg-type] # all of a transport that it uses
    connection.data_received(PREFACE + frames.settings([]) + headers(1, CALL) + message(b"last words"))
    if end == "lost":
        connection.connection_lost(None)
        await rig.engine.stop(1.0)
    else:
        stopping = asyncio.create_task(rig.engine.stop(1.0))
        await asyncio.sleep(0)
        connection.connection_lost(None)
        await stopping
    (call,) = rig.calls
    assert call.heard == [b"last words"]
    assert call.closed == ""
    assert [type(fact) for fact in rig.facts] == [Connected, Disconnected]
    assert rig.engine.open_calls == 0


# OPS-10
async def test_an_address_with_many_connections_has_a_turn_like_any_other() -> None:
    rig, log = Rig(), list[str]()
    crowd = [await connected(rig, log, str(number)) for number in range(4)]
    other, _ = await connected(rig, log, "other")
    other.owner = "ipv4:10.0.0.2"
    for connection, _ in crowd:
        connection.data_received(message(b"hello"))
    other.data_received(message(b"hello"))
    await asyncio.sleep(0)
    assert log == ["write 0", "write other", "write 1", "write 2", "write 3"]


async def test_input_is_processed_even_if_the_connection_is_lost_before_its_turn() -> None:
    rig = Rig()
    connection, _ = await connected(rig, [])
    (call,) = rig.calls
    connection.data_received(message(b"last words"))
    connection.connection_lost(None)
    assert call.heard == []
    assert call.closed is None
    await asyncio.sleep(0)
    assert call.heard == [b"last words"]
    assert call.closed == ""


# OPS-10, OPS-7
async def test_a_fleet_that_leaves_at_once_ends_in_slices_and_others_are_served_between(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig, log = Rig(), list[str]()
    fleet = [(await connected(rig, log, str(number)))[0] for number in range(6)]
    other, wire = await connected(rig, log, "other")
    *left, call = rig.calls

    def over() -> int:
        return sum(each.closed == "" for each in left)

    monkeypatch.setattr(wake_queue, "perf_counter", lambda: over() * ENDING / 2)  # only an end takes time
    for connection in fleet:
        connection.connection_lost(None)
    assert over() == 0
    ended = []
    for _ in range(2):
        other.data_received(message(b"hello"))
        for each in left:
            each.say(b"news")  # which nobody can hear any more
        await asyncio.sleep(0)
        ended.append(over())
        assert len(call.heard) == len(ended) == wire.written.count(b"hello")
    assert ended == [2, 4]
    await asyncio.sleep(0)
    assert over() == 6
    assert rig.engine.open_calls == 1
    assert {*log} == {"write other"}
    assert not caplog.records
    await asyncio.sleep(0)
    assert call.closed is None


async def test_a_client_finds_room_though_the_connection_that_it_lost_has_not_ended() -> None:
    rig = Rig(limits=Limits(connections=1))
    connection, _ = await connected(rig, [])
    connection.connection_lost(None)
    assert rig.engine.open_calls == 1
    await connected(rig, [])
    _, again = rig.calls
    assert again.closed is None


async def test_no_more_than_so_many_lost_connections_wait_with_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_queue, "MOST_LOST", 2)
    rig = Rig()
    for connection, _ in [await connected(rig, []) for _ in range(4)]:
        connection.data_received(message(b"last words"))
        connection.connection_lost(None)
    assert [each.closed for each in rig.calls] == [None, None, "", ""]
    assert [each.heard for each in rig.calls] == [[], [], [b"last words"], [b"last words"]]
    await asyncio.sleep(0)
    assert rig.engine.open_calls == 0


async def test_a_server_that_stops_waits_for_the_end_of_connections_that_are_lost() -> None:
    rig = Rig()
    connection, _ = await connected(rig, [])
    connection.connection_lost(None)
    await rig.engine.stop(1.0)
    assert [each.closed for each in rig.calls] == [""]


async def test_input_is_processed_even_if_the_server_stops_before_its_turn() -> None:
    rig = Rig()
    connection, wire = await connected(rig, [])
    connection.data_received(message(b"last words"))
    connection.drain(rig.engine.loop.time(), 1.0)
    assert b"last words" in wire.written


async def test_a_connection_that_is_lost_amid_much_input_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    connection, _ = await connected(rig, [])
    connection.data_received(message(b"last words") * 10_000)
    connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    (call,) = rig.calls
    assert 0 < len(call.heard) < 10_000
    assert call.closed == ""
    assert rig.engine.open_calls == 0
    assert not caplog.records


# OPS-10
@pytest.mark.parametrize("breaks", ["hear", "flush", "write"])
async def test_one_that_breaks_keeps_no_other_from_being_served(
    breaks: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    (bad, wire), (_, other) = pair = [await connected(rig, []) for _ in range(2)]
    wire.breaks = breaks == "write"
    if breaks == "hear":
        break_receiving(bad, monkeypatch)
    elif breaks == "flush":
        flush = SocketConnection.flush
        monkeypatch.setattr(
            SocketConnection, "flush", lambda connection: 1 // 0 if connection is bad else flush(connection)
        )
    for connection, _ in pair:
        connection.data_received(message(b"hello"))
    await asyncio.sleep(0)
    assert b"hello" in other.written
    assert wire.aborted
    assert not other.aborted
    assert "a connection failed" in caplog.text


# OPS-10
async def test_one_that_cannot_begin_keeps_no_other_from_being_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    connection, wire = SocketConnection(rig.engine), Wire([])
    connection.connection_made(wire)  # type: ignore[arg-type] # all of a transport that it uses
    with monkeypatch.context() as patched:
        patched.setattr(engine_h2, "RpcConnection", lambda *_, **__: 1 // 0)
        connection.data_received(PREFACE)
        await asyncio.sleep(0)
    assert wire.aborted
    assert "a connection failed" in caplog.text
    connection.connection_lost(None)
    other, served = await connected(rig, [])
    other.data_received(message(b"hello"))
    await asyncio.sleep(0)
    assert b"hello" in served.written
    other.connection_lost(None)
    await rig.engine.stop(0.0)
    assert rig.engine.open_calls == 0


# OPS-10
@pytest.mark.parametrize("end", ["lost", "drained"])
async def test_one_that_breaks_when_it_ends_is_over_all_the_same(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    connection, wire = await connected(rig, [])
    break_receiving(connection, monkeypatch)
    connection.data_received(message(b"hello"))
    if end == "drained":
        connection.drain(rig.engine.loop.time(), 1.0)
        assert wire.aborted
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert rig.engine.open_calls == 0
    assert rig.calls[0].closed is not None


def break_receiving(connection: SocketConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, calls = ConnectionCalls.receive, insides.calls_of(connection)
    monkeypatch.setattr(ConnectionCalls, "receive", lambda one, *said: 1 // 0 if one is calls else receive(one, *said))
