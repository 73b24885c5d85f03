"""A client that asks too often waits for its answers, and loses none; nobody else waits (OPS-4)."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.wire.rig import DELTA, SOTW, Stream, cluster, put, until
from tests.wire.test_client_limits import site
from tests.wire.test_lrs import NODE, LoadStream, stats
from xdsprism import CLUSTER, Store
from xdsprism.core.model.facts import LimitReached, LoadsHeard
from xdsprism.core.model.limits import AT_ONCE

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

MORE = 3  # requests beyond what is allowed at once, and so as many seconds


def names(response: Any) -> list[str]:
    """Whose resources these are, in delta or in SotW."""
    return [each.name if hasattr(each, "name") else Cluster.FromString(each.value).name for each in response.resources]


@pytest.mark.parametrize("method", [DELTA, SOTW], ids=["delta", "sotw"])
async def test_every_request_is_answered_however_many_there_are_at_once(store: Store, method: str) -> None:
    # OPS-4
    wanted = [f"name-{number}" for number in range(AT_ONCE + MORE)]
    put(store, *[cluster(name, "1") for name in wanted])
    async with site(store, requests=1) as found, Stream(found.server.address, method) as stream:
        for number, name in enumerate(wanted):
            await stream.subscribe(CLUSTER, [name] if method == DELTA else wanted[: number + 1])
        answered: dict[str, None] = {}
        while len(answered) < len(wanted):
            answered.update(dict.fromkeys(names(await stream.read())))
        assert [*answered] == wanted
        assert found.limited()["requests", "nothing"] >= MORE
        (row,) = found.rows()
        assert row["limited"]["requests"] >= MORE


async def test_a_stream_that_waits_gets_its_updates_and_others_of_the_connection_wait_for_nothing(store: Store) -> None:
    # OPS-4
    wanted = [f"name-{number}" for number in range(AT_ONCE + MORE)]
    put(store, *[cluster(name, "1") for name in wanted])
    async with site(store, requests=1) as found, Stream(found.server.address) as greedy, greedy.beside() as modest:
        for name in wanted:
            await greedy.subscribe(CLUSTER, [name])
        await until(found.limited)
        await modest.subscribe(CLUSTER, ["a"])
        assert names(await modest.read()) == ["a"]
        put(store, cluster(wanted[0], "2"))
        seen: list[str] = []
        while seen.count(wanted[0]) < 2:
            seen += names(await greedy.read())
        assert wanted[-1] not in seen  # the update came before the request was read that had to wait
        while wanted[-1] not in seen:
            seen += names(await greedy.read())


async def test_acks_do_not_count(store: Store) -> None:
    # OPS-4: no pause, however many updates there are in a second
    async with site(store, requests=1) as found, Stream(found.server.address) as stream:
        await stream.subscribe(CLUSTER, ["a"])
        await stream.ack(await stream.read())
        for number in range(20 * AT_ONCE):
            await found.is_served(stream, f"v{number}")
        assert found.limited() == {}


async def test_what_was_asked_before_the_client_closed_its_side_is_answered(store: Store) -> None:
    # OPS-4
    wanted = [f"name-{number}" for number in range(AT_ONCE + 2)]
    put(store, *[cluster(name, "1") for name in wanted])
    async with site(store, requests=1) as found, Stream(found.server.address) as stream:
        for name in wanted:
            await stream.subscribe(CLUSTER, [name])
        await stream.half_close()
        seen: list[str] = []
        while wanted[-1] not in seen:
            seen += names(await stream.read())
        code, _ = await stream.outcome()
        assert code is grpc.StatusCode.OK


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(store: Store) -> None:
    # OPS-4, OPS-7
    async with site(store, requests=1) as found:
        async with Stream(found.server.address) as stream:
            for number in range(AT_ONCE + MORE):
                await stream.subscribe(CLUSTER, [f"name-{number}"])
            await until(found.limited)
        await until(lambda: found.server.hub.clients.open == 0)
        assert not [*found.server.hub.connected()]


async def test_load_reports_wait_and_none_is_lost(store: Store) -> None:
    # OPS-4
    async with site(store, reports=1) as found, LoadStream(found.server) as stream:
        await stream.send(node=NODE)
        await stream.read()
        for _ in range(AT_ONCE + 1):
            await stream.send(cluster_stats=[stats("a")])
        await stream.half_close()
        code, _ = await stream.outcome()
        assert code is grpc.StatusCode.OK
        assert sum(isinstance(fact, LoadsHeard) and fact.clusters == 1 for fact in found.facts) == AT_ONCE + 1
        assert found.limited()["reports", "nothing"] >= 1
        (fact, *_) = [fact for fact in found.facts if isinstance(fact, LimitReached)]
        assert (fact.client, fact.reason) == ("127.0.0.1", "more than 1 load reports a second on a stream")
        assert found.server.hub.clients.exceeded("127.0.0.1")["reports"] >= 1
