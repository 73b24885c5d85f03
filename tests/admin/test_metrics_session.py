"""OPS-11: what a session of two clients adds to each metric of `xdsprism serve`, and what hostile clients can't add."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
from envoy.config.core.v3.base_pb2 import Node

from tests.admin.relay_rig import RelayOffice, Upstream, write_bootstrap
from tests.admin.rig import Peer, eventually_async
from tests.cli.rig import write
from tests.support import web
from xdsprism import CLUSTER, Store, __version__, app
from xdsprism.config import RelayConfig, ServeConfig

FREE = "127.0.0.1:0"
Series = dict[str, float]


def cluster(**fields: object) -> dict[str, object]:
    return {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", **fields}


class Served:
    """The daemon with its files, until the block ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> Self:
        write(self.folder, "a", cluster())
        said: asyncio.Queue[str] = asyncio.Queue()
        config = ServeConfig((self.folder,), listen=FREE, admin=FREE)
        self._task = asyncio.create_task(app.serve(config, said.put_nowait))
        _, listen, admin = (await asyncio.wait_for(said.get(), 20)).split()
        self.listen, self.admin = listen.removeprefix("listen="), admin.removeprefix("admin=")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def scrape(self) -> Series:
        answer = await asyncio.to_thread(web.get, *web.split(self.admin), "/metrics")
        assert answer.status == 200
        lines = (line.rsplit(" ", 1) for line in answer.body.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    async def value(self, name: str) -> float:
        return (await self.scrape()).get(name, 0.0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path / "config") as running:
        yield running


def changed(before: Mapping[str, float], after: Mapping[str, float]) -> Series:
    """By how much each series grew or shrank; without those that depend on time."""
    own = [name for name in {**before, **after} if name.startswith("xdsprism_") and "seconds" not in name]
    found = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in own}
    return {name: number for name, number in found.items() if number}


# OPS-11, NAK-12
async def test_a_session_of_two_clients_changes_each_metric_by_what_they_did(served: Served):
    before = await served.scrape()
    async with Peer(served.listen, delta=True) as good, Peer(served.listen, delta=False) as bad:
        first = await good.ask(CLUSTER, ["*"], node=Node(id="good"))
        await good.send(type_url=CLUSTER, response_nonce=first.nonce)
        other = await bad.ask(CLUSTER, ["a"], node=Node(id="bad"))
        await bad.send(
            type_url=CLUSTER, resource_names=["a"], version_info=other.version_info, response_nonce=other.nonce
        )
        await eventually_async(lambda: served.value('xdsprism_acks_total{type="cds"}'), 2)
        assert changed(before, await served.scrape()) == {
            "xdsprism_clients": 2,
            "xdsprism_connections": 2,
            'xdsprism_streams{method="DeltaAggregatedResources"}': 1,
            'xdsprism_streams{method="StreamAggregatedResources"}': 1,
            'xdsprism_clients_by_state{state="SYNCED",type="cds"}': 2,
            'xdsprism_requests_total{type="cds"}': 4,
            'xdsprism_responses_total{type="cds"}': 2,
            'xdsprism_sent_resources_total{type="cds"}': 2,
            'xdsprism_acks_total{type="cds"}': 2,
        }
        write(served.folder, "a", cluster(alt_stat_name="new"))
        update = await good.read()
        other_update = await bad.read()
        await eventually_async(lambda: served.value('xdsprism_clients_by_state{state="STALE",type="cds"}'), 2)
        assert 0 < await served.value('xdsprism_longest_stale_seconds{type="cds"}') < 60
        await good.send(type_url=CLUSTER, response_nonce=update.nonce)
        await bad.send(
            type_url=CLUSTER,
            resource_names=["a"],
            version_info=other.version_info,
            response_nonce=other_update.nonce,
            error_detail={"code": 3, "message": "no"},
        )
        await eventually_async(lambda: served.value('xdsprism_requests_total{type="cds"}'), 6)
        session = {
            "xdsprism_revision": 1,
            'xdsprism_config_loads_total{result="ok"}': 1,
            'xdsprism_requests_total{type="cds"}': 6,
            'xdsprism_responses_total{type="cds"}': 4,
            'xdsprism_sent_resources_total{type="cds"}': 4,
            'xdsprism_acks_total{type="cds"}': 3,
            'xdsprism_nacks_total{type="cds"}': 1,
        }
        after = await served.scrape()
        assert changed(before, after) == session | {
            "xdsprism_clients": 2,
            "xdsprism_connections": 2,
            'xdsprism_streams{method="DeltaAggregatedResources"}': 1,
            'xdsprism_streams{method="StreamAggregatedResources"}': 1,
            'xdsprism_clients_by_state{state="SYNCED",type="cds"}': 1,
            'xdsprism_clients_by_state{state="NACKED",type="cds"}': 1,
        }
        assert after['xdsprism_longest_stale_seconds{type="cds"}'] == 0
        assert after['xdsprism_push_ack_seconds_count{type="cds"}'] == 3
    await eventually_async(lambda: served.value("xdsprism_connections"), 0)
    assert changed(before, await served.scrape()) == session


# OPS-11
async def test_a_clients_state_is_gone_with_its_stream(served: Served):
    async with Peer(served.listen, delta=True) as peer:
        await peer.ask(CLUSTER, ["*"])
        assert await served.value('xdsprism_clients_by_state{state="STALE",type="cds"}') == 1
    name = 'xdsprism_clients_by_state{state="STALE",type="cds"}'
    await eventually_async(lambda: served.value(name), 0)
    assert name not in await served.scrape()


# OPS-11, OPS-8
async def test_the_time_of_the_last_good_load_stays_while_loads_are_refused(served: Served):
    name = "xdsprism_config_last_good_load_timestamp_seconds"
    first = await served.scrape()
    assert time.time() - 120 < first[name] <= time.time()
    write(served.folder, "a", cluster(nonsense=1))
    await eventually_async(lambda: served.value("xdsprism_config_ok"), 0)
    assert await served.value(name) == first[name]
    write(served.folder, "a", cluster(alt_stat_name="good"))
    await eventually_async(lambda: served.value("xdsprism_config_ok"), 1)
    assert await served.value(name) > first[name]


# OPS-11
async def test_the_build_and_the_limit_on_streams_are_shown_and_no_series_says_when_it_was_created(served: Served):
    series = await served.scrape()
    (build,) = [name for name in series if name.startswith("xdsprism_build_info")]
    assert f'version="{__version__}"' in build
    assert series[build] == 1
    assert series["xdsprism_stream_limit"] == 100_000
    assert [name for name in series if "_created" in name] == []


# OPS-11
async def test_clients_make_no_series_whatever_they_call_themselves_and_ask_for(served: Served):
    async with Peer(served.listen, delta=True) as peer:
        await peer.ask(CLUSTER, ["*"], node=Node(id="first"))
        await peer.send(type_url="type.googleapis.com/none.like.This", resource_names_subscribe=["x"])
        await eventually_async(lambda: served.value('xdsprism_requests_total{type="other"}'), 1)
        before = await served.scrape()
    for number in range(20):
        async with Peer(served.listen, delta=bool(number % 2)) as peer:
            asked = {"resource_names_subscribe" if number % 2 else "resource_names": [f'evil"\n{number}' + "x" * 4000]}
            for kind in range(5):
                type_url = f"type.googleapis.com/evil.Type{number}{kind}"
                await peer.send(type_url=type_url, node=Node(id=f'evil"}} {number}' * 100), **asked)
            expected = 1 + 5 * (number + 1)
            await eventually_async(lambda: served.value('xdsprism_requests_total{type="other"}'), expected)
    await eventually_async(lambda: served.value("xdsprism_connections"), 0)
    after = await served.scrape()
    news = {name for name in set(after) - set(before) if "StreamAggregated" not in name}
    assert news == set()
    assert not any("evil" in name for name in after)
    assert max(map(len, after)) < 200


# OPS-11
async def test_a_relay_says_when_each_server_last_sent_a_response(tmp_path: Path):
    store = Store()
    upstream = Upstream(store, web.free_port())
    await upstream.start()
    name = f'xdsprism_upstream_last_response_timestamp_seconds{{server="{upstream.address}"}}'
    config = RelayConfig(write_bootstrap(tmp_path, upstream.address), FREE, FREE)
    async with RelayOffice(config) as relay:
        assert await relay.metric(name) == 0
        async with Peer(relay.listen, delta=True) as peer:
            await peer.ask(CLUSTER, ["nothing"])
        assert time.time() - 60 < await relay.metric(name) <= time.time()
        _, text = await relay.send("GET", "/metrics")
        assert "xdsprism_config_ok" not in text
    await upstream.stop()
