"""A server with the limits that servers had once, which ends the stream past each: nobody else is cut off for long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import xdsprism as xp
from tests.client.rig import bootstrap, endpoint, follow, quiet, server, timeless
from tests.client.wrapping import wrap
from tests.relay.rig import Station, marks, station
from xdsprism.testing import PeerStream, ScriptedPeer

KEYS, KEY, VALUE, TYPES = 64, 256, 1024, 100


class StrictServer:
    """Answers endpoints of any name by locator. Past a limit it ends the stream."""

    def __init__(self, locators: int = 100_000) -> None:
        self.peer = ScriptedPeer()
        self.connect = self.peer.connect
        self.ends: list[str] = []  # why each stream ended that did
        self.most = 0  # locators that were on one stream
        self.is_strict = True  # about params
        self.asked: list[dict[str, str]] = []  # the params of all locators that were accepted
        self._streams: list[PeerStream] = []
        self._locators = locators
        self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        self._task.cancel()

    def restart(self, *, is_strict: bool) -> None:
        """Another process takes its place."""
        self.is_strict = is_strict
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.end("UNAVAILABLE", "the connection is lost")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self.peer.accept()))

    async def _serve(self, stream: PeerStream) -> None:
        self._streams.append(stream)
        held: set[Any] = set()
        types: set[str] = set()
        nonce = 0
        while not stream.cancelled.is_set():
            request = await stream.request()
            types.add(request.type_url)
            fresh = [*request.resource_locators_subscribe]
            held -= {_key(request.type_url, each) for each in request.resource_locators_unsubscribe}
            held |= {_key(request.type_url, each) for each in fresh}
            self.most = max(self.most, len(held))
            params = [dict(each.dynamic_parameters) for each in fresh]
            if self.is_strict and any(map(_is_too_much, params)):
                self._streams.remove(stream)
                self.ends.append("params")
                stream.end("INVALID_ARGUMENT", "a locator has too many, or too long, parameters")
                return
            if len(held) > self._locators or len(types) > TYPES:
                self.ends.append("number")
                stream.end("RESOURCE_EXHAUSTED", "there are too many on this stream")
                return
            self.asked += params
            if fresh:
                nonce += 1
                made = [wrap(endpoint(each.name, "1"), when="true") for each in fresh]
                stream.respond(request.type_url, *made, nonce=str(nonce))


def _key(type_url: str, locator: Any) -> Any:
    return type_url, locator.name, tuple(sorted(locator.dynamic_parameters.items()))


def _is_too_much(params: dict[str, str]) -> bool:
    long = any(len(key) > KEY or len(value) > VALUE for key, value in params.items())
    return long or len(params) > KEYS


async def envoys(relay: Station, stack: AsyncExitStack, count: int, metadata: dict[str, str]) -> list[Any]:
    """Clients with this metadata, each with a name of its own in it, and each of them asks for five resources."""
    watched = []
    for number in range(count):
        client = await stack.enter_async_context(relay.client(metadata={**metadata, "pod": f"p{number}"}))
        names = [f"{number}-{each}" for each in range(5)]
        watched += [follow(client, xp.ENDPOINT, name) for name in names]
        await quiet(1)
    return watched


@pytest.mark.parametrize(
    "metadata",
    [{"blob": "x" * 1500}, {f"key{number}": "x" for number in range(70)}, {"k" * 300: "x"}],
    ids=["a value of 1,500 bytes", "70 keys", "a key of 300 bytes"],
)
@timeless
async def test_metadata_that_a_server_ends_the_stream_for_is_sent_to_it_at_most_a_few_times(
    metadata: dict[str, str],
) -> None:
    # PRX-35, DYN-46
    server = StrictServer()
    async with station(server.connect, upstream_form="locators") as relay, AsyncExitStack() as stack:
        plain = await stack.enter_async_context(relay.client())
        assert await marks(follow(plain, xp.ENDPOINT, "a")) == [("a", "1")]
        rich = await envoys(relay, stack, 20, metadata)
        await quiet(60)
        assert len(server.ends) <= 8
        ends = len(server.ends)
        late = await envoys(relay, stack, 5, {**metadata, "more": "x"})
        assert await marks(follow(plain, xp.ENDPOINT, "b")) == [("b", "1")]
        await quiet(700)  # what was refused is not repeated, however long ago that was
        assert len(server.ends) == ends
        told = [[update.resource is not None or update.error is not None for update in each.seen()] for each in rich]
        assert all(map(any, told))  # each was served with less, or heard that it can't be
        assert all([*each.seen()] for each in late)
    server.close()


WIDE = {"blob": "x" * 1500}


@timeless
async def test_params_that_one_server_refuses_are_sent_to_another() -> None:
    # PRX-35
    strict, other = StrictServer(), StrictServer()
    other.is_strict = False
    source = bootstrap(server("strict:1"), authorities={"other": {"xds_servers": [server("other:1")]}})
    peers = {"strict:1": strict, "other:1": other}
    name = f"xdstp://other/{xp.ENDPOINT.rpartition('/')[2]}/a"
    connect = lambda config: peers[config.uri].connect(config)  # noqa: E731
    async with (
        station(connect, source, upstream_form="locators") as relay,
        relay.client(metadata=WIDE, node="rich") as rich,
        relay.client() as plain,
    ):
        assert await marks(follow(plain, xp.ENDPOINT, "a")) == [("a", "1")]
        follow(rich, xp.ENDPOINT, "b")
        await quiet(60)
        assert strict.ends
        raw = await relay.raw()
        raw.of(**WIDE)
        await raw.want(xp.ENDPOINT, name)
        await quiet(60)
        assert other.asked[-1] == WIDE
        assert other.ends == []
        raw.close()
    strict.close()
    other.close()


@timeless
async def test_a_server_that_was_upgraded_is_asked_with_all_that_it_takes_now() -> None:
    # PRX-35
    strict = StrictServer()
    async with (
        station(strict.connect, upstream_form="locators") as relay,
        relay.client() as plain,
        relay.client(metadata=WIDE, node="rich") as rich,
    ):
        assert await marks(follow(plain, xp.ENDPOINT, "a")) == [("a", "1")]
        watched = follow(rich, xp.ENDPOINT, "b")
        await quiet(60)
        assert {} in strict.asked
        assert WIDE not in strict.asked
        assert (await marks(watched))[-1] == ("b", "1")
        await quiet(600)
        ends = len(strict.ends)
        strict.restart(is_strict=False)
        await quiet(60)
        assert WIDE in strict.asked
        assert len(strict.ends) == ends
        assert await marks(watched) == []  # it has the same, and lost it at no time
    strict.close()


@timeless
async def test_a_server_that_stays_strict_loses_a_stream_in_ten_minutes_at_most() -> None:
    # PRX-35
    strict = StrictServer()
    async with (
        station(strict.connect, upstream_form="locators") as relay,
        relay.client() as plain,
        relay.client(metadata=WIDE, node="rich") as rich,
    ):
        assert await marks(follow(plain, xp.ENDPOINT, "a")) == [("a", "1")]
        watched = follow(rich, xp.ENDPOINT, "b")
        await quiet(60)
        seen = await marks(watched)
        ends = len(strict.ends)
        for _ in range(120):  # two hours, in which the connection is lost every minute
            strict.restart(is_strict=True)
            await quiet(60)
        assert 1 <= len(strict.ends) - ends <= 12
        assert (seen + await marks(watched))[-1] == ("b", "1")
        assert await marks(follow(plain, xp.ENDPOINT, "c")) == [("c", "1")]
    strict.close()


@timeless
async def test_clients_within_their_limits_are_together_not_too_many_for_one_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PRX-35: 60,000 and 60,000 on streams that take 100,000, a hundred times smaller
    monkeypatch.setattr("xdsprism.core.relay.spread.SUBSCRIPTIONS_PER_STREAM", 900)
    server = StrictServer(locators=1000)
    async with (
        station(server.connect, upstream_form="locators", linger=1.0) as relay,
        relay.client() as first,
        relay.client() as second,
    ):
        for number, client in enumerate((first, second)):
            watched = follow(client, xp.ENDPOINT, *[f"{number}-{each}" for each in range(600)], params={"env": "prod"})
            await quiet(60)
            assert len({update.name for update in watched.seen() if update.resource is not None}) == 600
        assert server.ends == []
        assert server.most == 900
        assert len(relay.relay.feed.upstreams()) == 2


@timeless
async def test_two_clients_with_120_types_each_end_no_stream() -> None:
    # PRX-35
    server = StrictServer()
    async with station(server.connect, upstream_form="locators") as relay:
        clients = [await relay.raw() for _ in range(2)]
        for number, client in enumerate(clients):
            for each in range(120):
                await client.want(f"type.googleapis.com/acme.T{number}.{each}", "a", params={"env": "prod"})
        await quiet(60)
        assert server.ends == []
        for client in clients:
            client.close()
    server.close()
