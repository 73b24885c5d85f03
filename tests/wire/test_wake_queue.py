"""The engine's queue: delayed output goes when it is due, with one timer for all connections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

import pytest

from tests.http2.rig import of, parse
from tests.wire.h2_rig import Rig
from tests.wire.rig import until
from tests.wire.test_h2_turns import connected, message
from xdsprism.http2 import frames
from xdsprism.http2.codes import DATA, PING
from xdsprism.http2.limits import Times
from xdsprism.http2.pings import ACK_DELAY
from xdsprism.server import wake_queue
from xdsprism.server.slicing import BUDGET
from xdsprism.server.wake_queue import SHORTEST_WAIT, WakeQueue


@pytest.fixture(autouse=True)
def _no_turn_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a busy machine could end a turn early."""
    monkeypatch.setattr(wake_queue, "perf_counter", lambda: 0.0)


class Loop:
    """In place of an event loop: time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.fired = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, run: Callable[[], None]) -> None:
        self.timers.append((when, run))

    def pass_until(self, now: float) -> None:
        """Run what is due by then, each at its time."""
        while due := sorted((timer for timer in self.timers if timer[0] <= now), key=lambda timer: timer[0]):
            self.timers.remove(due[0])
            self.now = due[0][0]
            self.fired += 1
            due[0][1]()
        self.now = now


class Delayed:
    """A connection with delayed output."""

    is_scheduled = False

    def __init__(self, loop: Loop, due: float) -> None:
        self.awaits_delayed = False
        self.delayed_until = due
        self.written: list[float] = []
        self.failed = False
        self.breaks = False
        self._loop = loop

    def flush_delayed(self, now: float) -> None:
        assert now == self._loop.now
        if self.breaks:
            raise RuntimeError("no")
        if now >= self.delayed_until:
            self.written.append(now)
            self.delayed_until = inf

    def process_input(self) -> None: ...

    def flush(self) -> None: ...

    def fail(self, _error: Exception) -> None:
        self.failed = True


def queued(*due: float) -> tuple[Loop, WakeQueue, list[Delayed]]:
    loop: Any = Loop()
    queue = WakeQueue(loop)
    connections = [Delayed(loop, each) for each in due]
    for connection in connections:
        queue.add_delayed(connection)
    return loop, queue, connections


def test_all_are_written_in_time_by_few_timers() -> None:
    due = [0.1 + number / 10_000 for number in range(1_000)]
    loop, _, connections = queued(*due)
    assert len(loop.timers) == 1
    loop.pass_until(1.0)
    assert loop.fired <= 1 + (due[-1] - due[0]) / SHORTEST_WAIT + 1
    for connection, each in zip(connections, due, strict=True):
        (written,) = connection.written
        assert each <= written <= each + SHORTEST_WAIT
    assert loop.timers == []


def test_one_that_has_written_and_delayed_again_is_written_at_its_new_time() -> None:
    loop, queue, (connection, other) = queued(0.1, 0.15)
    connection.delayed_until = 0.2
    queue.add_delayed(connection)  # it is there already
    loop.pass_until(0.1)
    assert connection.written == []
    assert connection.awaits_delayed
    loop.pass_until(1.0)
    assert connection.written == pytest.approx([0.2])
    assert other.written == pytest.approx([0.15])


def test_one_that_has_written_is_forgotten() -> None:
    loop, queue, (connection,) = queued(0.1)
    connection.delayed_until = inf
    loop.pass_until(0.1)
    assert not connection.awaits_delayed
    assert loop.timers == []
    connection.delayed_until = 0.3
    queue.add_delayed(connection)
    loop.pass_until(0.3)
    assert connection.written == pytest.approx([0.3])


# OPS-10
def test_a_fleet_whose_delayed_output_is_due_at_once_is_written_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    times = count()
    monkeypatch.setattr(wake_queue, "perf_counter", lambda: next(times) * BUDGET / 3)
    loop, queue, connections = queued(*[0.1] * 7)
    loop.pass_until(0.1)
    assert [bool(connection.written) for connection in connections] == [True] * 3 + [False] * 4
    assert len(loop.timers) == 1
    connections[3].delayed_until = 0.2  # it wrote meanwhile, and delayed something else
    connections[4].delayed_until = inf  # it wrote
    connections[0].delayed_until = 0.3  # it delays again while others still wait
    queue.add_delayed(connections[0])
    loop.pass_until(1.0)
    assert connections[0].written == pytest.approx([0.1, 0.3])
    assert connections[3].written == pytest.approx([0.2])
    assert connections[4].written == []
    assert connections[5].written == pytest.approx([0.1 + SHORTEST_WAIT])
    assert connections[6].written == pytest.approx([0.1 + 2 * SHORTEST_WAIT])
    assert not any(connection.awaits_delayed for connection in connections)
    assert loop.timers == []


# OPS-10
def test_one_that_breaks_delays_no_other() -> None:
    loop, _, (bad, good, later) = queued(0.1, 0.1, 0.2)
    bad.breaks = True
    loop.pass_until(0.3)
    assert bad.failed
    assert good.written == pytest.approx([0.1])
    assert later.written == pytest.approx([0.2])


# -- in the engine


class Busy:
    """A client that sends a PING after each message."""

    async def connect(self) -> None:
        self.rig, self.log = Rig(), list[str]()
        self.connection, self.wire = await connected(self.rig, self.log)
        (self.call,) = self.rig.calls

    @property
    def answered(self) -> int:
        return len(of(PING, parse(self.wire.written)))

    async def ping(self) -> None:
        """Until the answer to one is delayed: on a machine that does other things, it takes more than two."""
        answered = -1
        while answered < self.answered:
            answered = self.answered
            self.call.say(b"news")
            await until(lambda: not self.connection.is_scheduled)
            self.connection.data_received(frames.ping(bytes(8)))
            await until(lambda: not self.connection._input and not self.connection.is_scheduled)  # noqa: SLF001 # what was heard and not read yet answers nothing


@pytest.fixture
async def busy() -> Busy:
    client = Busy()
    await client.connect()
    return client


async def test_the_answer_to_a_ping_is_written_with_the_next_message(busy: Busy) -> None:
    kinds: list[int] = []
    while kinds[-2:] != [DATA, PING]:
        await busy.ping()
        busy.log.clear()
        busy.connection.data_received(message(b"an echo"))
        await until(lambda: not busy.connection.is_scheduled and bool(busy.log))
        kinds = [frame.kind for frame in parse(busy.wire.written)]
    assert busy.log == ["write "]
    assert busy.connection.delayed_until == inf


async def test_the_answer_to_a_ping_is_written_in_time_when_there_is_no_message(busy: Busy) -> None:
    begun = busy.rig.engine.loop.time()
    await busy.ping()
    answered = busy.answered
    await until(lambda: busy.answered > answered)
    assert (
        ACK_DELAY <= busy.rig.engine.loop.time() - begun < Times().preface / 2
    )  # when the connection's own timer fires
    assert busy.answered == answered + 1


async def test_a_connection_that_is_lost_has_nothing_delayed(busy: Busy) -> None:
    await busy.ping()
    assert busy.connection.delayed_until < inf
    busy.connection.connection_lost(None)
    assert busy.connection.delayed_until == inf
    busy.connection.flush_delayed(inf)
