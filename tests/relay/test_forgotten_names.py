"""Names that a relay's session forgot: what is created later reaches its client, which does not ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import cluster, quiet, timeless
from tests.relay.rig import Raw, held, pair
from tests.relay.test_vhds import envoy, heard, host, routes
from tests.support.carrying import Carrying
from xdsprism.core.model.events import Key
from xdsprism.core.model.limits import Scarce
from xdsprism.core.model.steps import finish
from xdsprism.core.model.types import NO_PARAMS, Params, make_variant
from xdsprism.core.relay.revisiting import AT_ONCE, ENDED, EVERY, LOOKED_AT, MOST, MOST_BYTES, PAUSE, REST, Revisits
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry, Event
from xdsprism.errors import WatchError

FEW = 10
SMALL = xp.Settings(limits=xp.Limits(unresolved=FEW))


async def scan(raw: Raw, type_url: str, names: list[str]) -> None:
    for name in names:
        await raw.want(type_url, name)
        for response in await raw.rest():
            await raw.ack(response)


@timeless
async def test_a_host_that_was_forgotten_and_is_created_later_is_sent() -> None:
    # VHD-25, VHD-8
    async with pair(settings=SMALL) as (origin, relay):
        origin.put(routes("rc"), host("rc/shop", "shop.test", mark="1"))
        raw = await envoy(relay)
        await heard(raw)
        await scan(raw, xp.VIRTUAL_HOST, [f"rc/h{number}.test" for number in range(3 * FEW)])
        await quiet(60)
        origin.put(host("rc/late", "h1.test", mark="2"))
        await quiet(2 * EVERY)
        assert await heard(raw) == [["rc/late(rc/h1.test)=2"]]
        origin.put(host("rc/late", "h1.test", mark="3"))
        assert [tokens[0].rpartition("=")[2] for tokens in await heard(raw)] == ["3"]
        assert len(origin.wire.ends) == len(relay.wire.ends) == 1
        raw.close()


@timeless
async def test_a_cluster_that_was_forgotten_and_is_created_later_is_sent() -> None:
    # VHD-25
    async with pair(settings=SMALL) as (origin, relay):
        origin.put(cluster("other", "1"))
        raw = await relay.raw()
        await scan(raw, xp.CLUSTER, [f"c{number}" for number in range(3 * FEW)])
        await quiet(60)
        origin.put(cluster("c1", "1"), cluster("never asked", "1"))
        await quiet(2 * EVERY)
        assert [name for response in await raw.rest() for name in held(response)] == ["c1"]
        raw.close()


@timeless
async def test_forgotten_names_are_asked_for_some_at_a_time_until_their_client_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # VHD-25, VHD-26, PRX-27
    monkeypatch.setattr("xdsprism.core.relay.revisiting.AT_ONCE", 5)
    async with pair(settings=SMALL) as (origin, relay):
        origin.put(routes("rc"))
        raw = await envoy(relay)
        await heard(raw)
        names = [f"rc/h{number}.test" for number in range(4 * FEW)]
        await scan(raw, xp.VIRTUAL_HOST, names)
        await quiet(60)
        before = len(origin.wire.requests)
        await quiet(7 * EVERY)
        asked = [_asked(each) for each in origin.wire.requests[before:]]
        assert max(map(len, asked)) == 5
        assert {name for each in asked for name in each} == {*names[: 3 * FEW]}
        assert len(origin.asked(xp.VIRTUAL_HOST)) == FEW + 1
        assert await heard(raw) == []  # that there is still none is no news
        raw.close()
        await quiet(60)
        before = len(origin.wire.requests)
        await quiet(7 * EVERY)
        assert len(origin.wire.requests) == before


@timeless
async def test_names_that_were_forgotten_take_no_room_from_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-35, VHD-25: a batch has all the room there is, and the server takes its time
    monkeypatch.setattr("xdsprism.core.relay.spread.STREAMS", 1)
    async with pair(settings=SMALL) as (origin, relay):
        raw = await relay.raw()
        await scan(raw, xp.CLUSTER, [f"c{number}" for number in range(3 * FEW)])
        await quiet(60)
        monkeypatch.setattr("xdsprism.core.relay.spread.SUBSCRIPTIONS_PER_STREAM", 3 * FEW)
        origin.wire.ends[-1].window = asyncio.Semaphore(0)
        await quiet(EVERY + PAUSE)
        assert len(origin.asked(xp.CLUSTER)) == 3 * FEW
        other = await relay.raw()
        await other.want(xp.ENDPOINT, "a")
        await quiet(0.1)
        assert [name for name, _ in origin.asked(xp.ENDPOINT)] == ["a"]
        assert len(origin.asked(xp.CLUSTER)) == FEW
        assert relay.relay.relaying.room(Scarce.SUBSCRIPTIONS) == (FEW + 1, 0, 0)
        other.close()
        raw.close()


def _asked(request: Any) -> list[str]:
    return [each.name for each in request.resource_locators_subscribe]


class Counter:
    """A feed that has answers for some names."""

    def __init__(self, *there: str) -> None:
        self.entries: list[Entry] = []
        self.there = there

    def subscribe(self, type_url: str, name: str, params: Params) -> Carrying:
        entry = Entry(type_url, Key(name, params), Authority("", ()), [])
        self.entries.append(entry)
        return Carrying(entry, self.entries.remove)

    def answer(self) -> None:
        for entry in self.entries:
            if entry.name in self.there:
                entry.variant = make_variant(entry.type_url, entry.name, b"")
            else:
                entry.fail(WatchError("NOT_FOUND", ""), Event.REMOVED, 0.0, drop=True)

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    pin = None  # of no use here


def made(feed: Any, is_forgotten: Callable[[str, str], bool] = lambda _, __: True) -> Revisits:
    return Revisits(feed, lambda type_url, name: [NO_PARAMS] if is_forgotten(type_url, name) else None)


def test_each_name_is_asked_for_in_its_turn_and_let_go_of_with_the_answer() -> None:
    # VHD-25
    feed = Counter("n5")
    revisits = made(feed, lambda _, name: name != "n1")
    names = [f"n{number}" for number in range(AT_ONCE + 10)]
    for name in names:
        revisits.add(xp.CLUSTER, name, NO_PARAMS)
    assert revisits.poll(0.0) == ([], [])
    assert revisits.due == PAUSE
    assert revisits.poll(PAUSE) == ([], [])
    first = [names[0], *names[2 : AT_ONCE + 1]]  # for one of them nobody waits any more
    assert feed.names == first
    feed.answer()
    found = [(xp.CLUSTER, "n5", NO_PARAMS)]
    assert revisits.poll(1.5) == (found, [])
    assert feed.names == ["n5"]
    assert revisits.due == 1.5 + REST * 0.5
    assert revisits.poll(3.0) == ([], found)
    assert feed.names == names[AT_ONCE + 1 :]  # the first were asked for a moment ago
    assert revisits.poll(3.0 + EVERY) == ([], [])  # what has no answer is let go of too
    assert feed.names == [*first, *names[AT_ONCE + 1 :]][:AT_ONCE]


def test_a_batch_that_gives_way_is_sent_in_its_next_turn() -> None:
    # PRX-35
    feed = Counter()
    revisits = made(feed)
    names = [f"n{number}" for number in range(2 * ENDED + 1)]
    for name in names:
        revisits.add("t", name, NO_PARAMS)
    revisits.poll(0.0)
    revisits.poll(PAUSE)
    assert feed.names == names
    assert len([*revisits.give_way()]) == 2  # in steps
    assert feed.names == []
    assert not finish(revisits.give_way())
    now = PAUSE
    while not feed.names:
        assert revisits.due is not None
        now = max(revisits.due, now)
        revisits.poll(now)
    assert feed.names == names
    assert PAUSE + EVERY <= now <= EVERY + 2 * PAUSE


def test_names_that_no_client_waits_for_any_more_are_looked_at_some_at_a_time() -> None:
    # VHD-25, SRV-19
    feed = Counter()
    looked: list[str] = []

    def is_forgotten(_: str, name: str) -> bool:
        looked.append(name)
        return name == "last"

    revisits = made(feed, is_forgotten)
    for number in range(2 * LOOKED_AT):
        revisits.add("t", f"n{number}", NO_PARAMS)
    revisits.add("t", "last", NO_PARAMS)
    revisits.poll(0.0)
    now = 0.0
    while not feed.names:
        assert revisits.due is not None
        now = max(revisits.due, now)
        before = len(looked)
        revisits.poll(now)
        assert len(looked) - before <= LOOKED_AT
    assert (feed.names, len(looked)) == (["last"], 2 * LOOKED_AT + 1)


class Clock:
    """Time passes from one thing that is due to the next; a server takes so long for each batch."""

    def __init__(self, revisits: Revisits, feed: Counter, takes: float) -> None:
        self.batches: list[tuple[float, list[str]]] = []
        self._revisits, self._feed, self._takes = revisits, feed, takes

    def run(self, until: float) -> None:
        now, answers = 0.0, None
        while True:
            known = {*self._feed.names}
            self._revisits.poll(now)
            if now == answers:
                answers = None
            if {*self._feed.names} - known:
                assert len(self._feed.names) <= AT_ONCE  # what was not answered is let go of first
                self.batches.append((now, self._feed.names))
                answers = now + self._takes
            due = self._revisits.due
            now = min(time for time in (due, answers, until) if time is not None)
            if now == until:
                return
            if now == answers:
                self._feed.answer()


def test_ten_thousand_forgotten_names_are_looked_at_within_thirty_seconds() -> None:
    # VHD-25
    feed = Counter()
    revisits = made(feed)
    names = [f"n{number}" for number in range(10_000)]
    for name in names:
        revisits.add(xp.CLUSTER, name, NO_PARAMS)
    clock = Clock(revisits, feed, takes=0.2)
    clock.run(30.0)
    asked = [name for _, batch in clock.batches for name in batch]
    assert {*asked} == {*names}
    assert asked[:10_000] == names
    assert max(len(batch) for _, batch in clock.batches) == AT_ONCE


@pytest.mark.parametrize(("takes", "most"), [(0.01, 60), (0.5, 30), (1.0, 15), (4.0, 12), (100.0, 12)])
def test_a_server_is_asked_for_a_quarter_of_its_time_or_once_in_five_seconds(takes: float, most: int) -> None:
    # VHD-25
    feed = Counter()
    revisits = made(feed)
    for number in range(50_000):
        revisits.add(xp.CLUSTER, f"n{number}", NO_PARAMS)
    clock = Clock(revisits, feed, takes)
    clock.run(60.0)
    assert most - 2 <= len(clock.batches) <= most


def test_a_few_names_are_asked_for_once_in_five_seconds() -> None:
    # VHD-25
    feed = Counter()
    revisits = made(feed)
    for number in range(30):
        revisits.add(xp.CLUSTER, f"n{number}", NO_PARAMS)
    clock = Clock(revisits, feed, takes=0.01)
    clock.run(30.0)
    times = [time for time, _ in clock.batches]
    assert all(later - earlier >= EVERY for earlier, later in pairwise(times))
    assert len(times) == 6


def test_when_nobody_waits_any_more_there_is_nothing_to_ask_for() -> None:
    # VHD-25
    waiting = {"a"}
    feed = Counter()
    revisits = made(feed, lambda _, name: name in waiting)
    revisits.add(xp.CLUSTER, "a", NO_PARAMS)
    revisits.poll(0.0)
    revisits.poll(PAUSE)
    assert feed.names == ["a"]
    waiting.clear()
    revisits.poll(PAUSE + EVERY)
    assert feed.names == []
    assert revisits.due is None


def test_the_oldest_of_too_many_names_are_left_out() -> None:
    # VHD-25
    feed = Counter()
    revisits = made(feed)
    for number in range(MOST + 5):
        revisits.add(xp.CLUSTER, f"{number}", NO_PARAMS)
    assert len(revisits) == MOST
    revisits.poll(0.0)
    revisits.poll(EVERY)
    assert feed.names[0] == "5"
    for number in range(20):
        revisits.add(xp.CLUSTER, f"{number}".rjust(MOST_BYTES // 10, "x"), NO_PARAMS)
    assert len(revisits) <= 10
