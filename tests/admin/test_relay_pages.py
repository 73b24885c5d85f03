"""The admin port of a relay: cached answers, the servers that they came from, and whether they are stale."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from tests.admin.relay_rig import RelayOffice, Upstream, write_bootstrap
from tests.admin.rig import Office, Peer, eventually_async, locator
from tests.support import web
from xdsprism import CLUSTER, ENDPOINT, Store
from xdsprism.admin import cache_model
from xdsprism.admin import http as pages
from xdsprism.config import RelayConfig
from xdsprism.core.model.steps import Steps
from xdsprism.core.relay import cached_answers

FREE = "127.0.0.1:0"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def upstream(store: Store) -> AsyncIterator[Upstream]:
    """Has `shop` for env=prod and env=test, and `plain` for all."""
    upstream = Upstream(store, web.free_port())
    await upstream.start()
    yield upstream
    await upstream.stop()


def _config(folder: Path, *servers: str, **options: Any) -> RelayConfig:
    return RelayConfig(write_bootstrap(folder, *servers), FREE, FREE, **options)


@pytest.fixture
async def relay(upstream: Upstream, tmp_path: Path) -> AsyncIterator[RelayOffice]:
    async with RelayOffice(_config(tmp_path, upstream.address)) as running:
        yield running


def _with(**params: str) -> dict[str, Any]:
    return {"resource_locators_subscribe": [locator("shop", params)]}


async def test_the_index_links_pages_that_are_there(relay: RelayOffice):
    _, index = await relay.send("GET", "/")
    links = re.findall(r'(?:href|src)="(/[^"]+)"', index)
    pages = {"overview", "resources", "clients", "config", "upstreams", "history", "loads"}
    files = {"/static/icon.svg", "/static/style.css", "/static/app.js"}
    assert set(links) == {*(f"/api/{page}" for page in pages), "/metrics", "/healthz", "/readyz", *files}
    links.remove("/api/config")  # of a server, as the page says
    await eventually_async(relay.ready, (200, None))
    assert [(await relay.send("GET", link))[0] for link in links] == [200] * len(links)


# -- readiness


# PRX-30
async def test_not_ready_until_a_server_was_reached_once(store: Store, tmp_path: Path):
    upstream = Upstream(store, web.free_port())
    async with RelayOffice(_config(tmp_path, upstream.address)) as relay:
        assert (await relay.page("/healthz"))["status"] == "alive"
        status, reason = await relay.ready()
        assert status == 503
        assert reason is not None
        assert reason.startswith("no upstream server was reached yet")
        await eventually_async(lambda: _says(relay, f"UNAVAILABLE: {upstream.address}: "), expected=True)
        await upstream.start()
        await eventually_async(relay.ready, (200, None))
        assert upstream.requests == 0  # it was there to be asked, and nobody had a question
        await upstream.stop()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=False)
        assert await relay.ready() == (200, None)  # PRX-10: what it has, it has


async def _says(relay: RelayOffice, text: str) -> bool:
    _, reason = await relay.ready()
    return reason is not None and text in reason


# PRX-30, PRX-26
async def test_a_relay_is_ready_when_any_server_of_the_list_was_reached(upstream: Upstream, tmp_path: Path):
    nobody = f"127.0.0.1:{web.free_port()}"
    async with RelayOffice(_config(tmp_path, nobody, upstream.address)) as relay:
        await eventually_async(relay.ready, (200, None))
        rows = await relay.upstreams()
    assert [(row["server"], row["connected"]) for row in rows] == [(nobody, False), (upstream.address, True)]


# PRX-30, PRX-25
async def test_a_relay_starts_ready_with_the_cache_of_an_earlier_run_and_its_answers_are_stale(
    upstream: Upstream, tmp_path: Path
):
    config = _config(tmp_path, upstream.address, cache=tmp_path / "cache.db")
    async with RelayOffice(config) as relay, Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
    await upstream.stop()
    async with RelayOffice(config) as relay, Peer(relay.listen, delta=True) as peer:
        assert await relay.ready() == (200, None)
        answer = await peer.ask(CLUSTER, **_with(env="prod"))
        assert len(answer.resources) == 1
        (variant,) = await relay.variants("shop")
        assert (variant["stale"], variant["upstream"], variant["constraint"]) == (True, None, "env=prod")
        assert TIME.fullmatch(variant["stale_since"])
        explained = await relay.page("/api/explain?type=cds&name=shop&param=env%3Dprod")
        assert explained["variant"]["stale"]


async def test_a_relay_with_an_empty_cache_file_is_not_ready(tmp_path: Path):
    nobody = f"127.0.0.1:{web.free_port()}"
    async with RelayOffice(_config(tmp_path, nobody, cache=tmp_path / "cache.db")) as relay:
        assert (await relay.ready())[0] == 503


# -- the cache


# PRX-28
async def test_resources_lists_each_answer_with_its_constraints_and_server(
    relay: RelayOffice, upstream: Upstream, store: Store
):
    async with Peer(relay.listen, delta=True) as one, Peer(relay.listen, delta=True) as other:
        await one.ask(CLUSTER, **_with(env="prod", pod="1"))
        await other.ask(CLUSTER, **_with(env="prod", pod="2"))
        await other.ask(CLUSTER, **_with(env="qa"))
        page = await relay.page("/api/resources")
        bodies = await relay.page("/api/resources?bodies=1")
    (shop,) = page["resources"]
    assert (shop["type"], shop["name"], shop["params"], shop["subscribers"]) == ("cds", "shop", ["env"], 2)
    rows = {variant["constraint"]: variant for variant in shop["variants"]}
    prod, nobody = rows["env=prod"], rows["env=qa"]
    known = store.table(CLUSTER).get("shop")
    assert known is not None
    assert prod["version"] == known.variants[0].version  # PRX-22
    assert (prod["exists"], prod["subscribers"], prod["upstream"]) == (True, 2, upstream.address)
    assert 0 <= prod["age_seconds"] < 60
    assert (prod["stale"], prod["stale_since"]) == (False, None)
    assert (nobody["exists"], nobody["subscribers"], nobody["upstream"]) == (False, 1, upstream.address)
    assert "version" not in nobody
    contents = [row["body"]["alt_stat_name"] for row in bodies["resources"][0]["variants"] if row["exists"]]
    assert contents == ["prod"]


# PRX-28, PRX-10
async def test_answers_of_a_lost_server_are_stale_with_the_time(relay: RelayOffice, upstream: Upstream):
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        await peer.ask(CLUSTER, **_with(env="qa"))
        await upstream.stop()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=False)
        variants = await relay.variants("shop")
        assert [variant["stale"] for variant in variants] == [True, True]
        assert all(TIME.fullmatch(variant["stale_since"]) for variant in variants)
        await upstream.start()
        await relay.until(
            lambda page: [variant["stale"] for variant in page["resources"][0]["variants"]],
            "/api/resources?name=shop",
            [False, False],
        )


# PRX-28
async def test_forgetting_asks_again_and_closes_no_stream(relay: RelayOffice, upstream: Upstream, store: Store):
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        await peer.ask(CLUSTER, **_with(env="qa"))
        asked = upstream.requests
        status, said = await relay.send("DELETE", "/api/resources?type=cds&name=shop")
        assert (status, json.loads(said)) == (200, {"forgotten": {"type_url": CLUSTER, "name": "shop"}})

        async def fresh() -> int:
            return sum(not each["stale"] for each in await relay.variants("shop"))

        await eventually_async(fresh, 2)
        assert upstream.requests > asked
        with store.transaction() as tx:
            tx.put(Cluster(name="shop", alt_stat_name="new"), when="env=prod")
        update = await peer.read()  # the next it hears, on the stream that it had
        (resource,) = update.resources
        assert Cluster.FromString(resource.resource.value).alt_stat_name == "new"
        assert not update.removed_resource_names


# PRX-28
async def test_forgetting_while_the_server_is_gone_leaves_clients_what_they_have(
    relay: RelayOffice, upstream: Upstream
):
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        await upstream.stop()
        assert (await relay.send("DELETE", "/api/resources?type=cds&name=shop"))[0] == 200
        async with Peer(relay.listen, delta=True) as late:
            answer = await late.ask(CLUSTER, **_with(env="prod"))
        assert len(answer.resources) == 1
        (variant,) = await relay.variants("shop")
        assert variant["stale"]
        assert TIME.fullmatch(variant["stale_since"])


# PRX-28
async def test_forgetting_a_resource_of_a_wildcard_asks_for_the_wildcard_again(relay: RelayOffice, upstream: Upstream):
    async with Peer(relay.listen, delta=True) as peer:
        answer = await peer.ask(CLUSTER, ["*"])
        assert [resource.name for resource in answer.resources] == ["plain"]
        asked = upstream.requests
        assert (await relay.send("DELETE", "/api/resources?type=cds&name=plain"))[0] == 200
        await eventually_async(lambda: _more(upstream, asked), expected=True)
        await relay.until(
            lambda page: [variant["stale"] for variant in page["resources"][0]["variants"]],
            "/api/resources?name=plain",
            [False],
        )


async def _more(upstream: Upstream, than: int) -> bool:
    return upstream.requests > than


# PRX-28
async def test_forgetting_a_resource_that_no_client_wants_removes_it(relay: RelayOffice, upstream: Upstream):
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
    assert len(await relay.variants("shop")) == 1  # it lingers
    assert (await relay.send("DELETE", "/api/resources?type=cds&name=shop"))[0] == 200
    await relay.until(lambda page: page["total"], "/api/resources", 0)
    status, said = await relay.send("DELETE", "/api/resources?type=cds&name=shop")
    assert (status, json.loads(said)) == (404, {"error": "there is no cds of that name in the cache"})
    status, said = await relay.send("DELETE", "/api/resources?type=cds")
    assert (status, json.loads(said)) == (400, {"error": "name= is missing: DELETE /api/resources?type=rds&name=main"})


async def test_a_server_of_files_has_nothing_to_forget(office: Office):
    def send() -> int:
        connection = http.client.HTTPConnection(*web.split(office.admin), timeout=10)
        connection.request("DELETE", "/api/resources?type=cds&name=shop")
        return connection.getresponse().status

    assert await asyncio.to_thread(send) == 405
    assert (await office.error("/api/upstreams"))[0] == 404


# -- the servers


async def test_upstreams_shows_connections_their_times_and_errors(relay: RelayOffice, upstream: Upstream):
    await eventually_async(relay.ready, (200, None))
    (row,) = await relay.upstreams()
    assert (row["server"], row["group"], row["delta"], row["connected"]) == (upstream.address, None, True, True)
    assert (row["streams"], row["subscriptions"], row["last_error"]) == (1, 0, None)
    assert TIME.fullmatch(row["since"])
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        await peer.ask(ENDPOINT, ["nope"])
        (row,) = await relay.upstreams()
        assert (row["streams"], row["subscriptions"]) == (1, 2)
        await upstream.stop()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=False)
        (row,) = await relay.upstreams()
    assert (row["since"], row["subscriptions"]) == (None, 2)
    assert row["last_error"]["error"].startswith("UNAVAILABLE: ")
    assert TIME.fullmatch(row["last_error"]["time"])


async def test_a_server_that_was_never_reached_is_not_called_lost(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "xdsprism")
    nobody = f"127.0.0.1:{web.free_port()}"
    async with RelayOffice(_config(tmp_path, nobody)) as relay:
        await relay.until(lambda page: page["upstreams"][0]["last_error"] is not None, "/api/upstreams", expected=True)
        (row,) = await relay.upstreams()
        assert (row["connected"], row["since"], row["last_connected"], row["streams"]) == (False, None, None, 0)
        tries = [record.getMessage() for record in caplog.records if nobody in record.getMessage()]
        assert tries[0].startswith(f"can't reach {nobody}: UNAVAILABLE: ")
        assert not any("lost" in line for line in tries)
        caplog.clear()
        upstream = Upstream(store, int(nobody.rpartition(":")[2]))
        await upstream.start()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=True)
        await upstream.stop()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=False)
        (row,) = await relay.upstreams()
        assert TIME.fullmatch(row["last_connected"])
        assert any(record.getMessage().startswith(f"lost {nobody}: ") for record in caplog.records)


# PRX-20, PRX-21
async def test_each_group_has_a_stream_of_its_own_and_there_is_no_other(upstream: Upstream, tmp_path: Path):
    async with RelayOffice(_config(tmp_path, upstream.address, group_by=frozenset({"env"}))) as relay:
        await eventually_async(relay.ready, (200, None))
        await relay.until(lambda page: [row["connected"] for row in page["upstreams"]], "/api/upstreams", [False])
        async with Peer(relay.listen, delta=True) as peer, Peer(relay.listen, delta=True) as other:
            await peer.ask(CLUSTER, **_with(env="prod", pod="1"))
            await other.ask(CLUSTER, **_with(env="test"))
            rows = await relay.upstreams()
            assert [(row["group"], row["connected"], row["subscriptions"]) for row in rows] == [
                ({"env": "prod"}, True, 1),
                ({"env": "test"}, True, 1),
            ]
            room = (await relay.page("/api/upstreams"))["room"]  # PRX-35
            assert room["groups"] == {"taken": 2, "refused": 0, "gave_way": 0}
            assert room["subscriptions"]["taken"] == 2
            assert await relay.metric(f'xdsprism_upstream_connected{{server="{upstream.address}"}}') == 2
            nodes = sorted(upstream.nodes(), key=lambda node: node["env"])
            assert nodes == [{"team": "edge", "env": "prod"}, {"team": "edge", "env": "test"}]
            constraints = sorted(variant["constraint"] for variant in await relay.variants("shop"))
            assert constraints == ["env=prod", "env=test"]


# -- metrics


# OPS-11, PRX-2
async def test_lookups_are_counted_as_hits_misses_and_stale(relay: RelayOffice, upstream: Upstream):
    async def count(result: str) -> float:
        return await relay.metric(f'xdsprism_cache_lookups_total{{result="{result}",type="cds"}}')

    async def ask(**params: str) -> None:
        async with Peer(relay.listen, delta=True) as peer:
            await peer.ask(CLUSTER, **_with(**params))

    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod", pod="1"))
        assert [await count(each) for each in ("hit", "miss", "stale")] == [0, 1, 0]
        await ask(env="prod", pod="2")
        assert [await count(each) for each in ("hit", "miss", "stale")] == [1, 1, 0]
        await ask(env="test")
        assert [await count(each) for each in ("hit", "miss", "stale")] == [1, 2, 0]
        assert await relay.metric(f'xdsprism_upstream_connected{{server="{upstream.address}"}}') == 1
        await upstream.stop()
        await relay.until(lambda page: page["upstreams"][0]["connected"], "/api/upstreams", expected=False)
        assert await relay.metric(f'xdsprism_upstream_connected{{server="{upstream.address}"}}') == 0
        await ask(env="prod", pod="3")
        assert [await count(each) for each in ("hit", "miss", "stale")] == [1, 2, 1]


# OPS-11
async def test_lookups_by_wildcard_are_counted_and_unknown_types_have_one_label(relay: RelayOffice):
    for expected in ("miss", "hit"):
        async with Peer(relay.listen, delta=True) as peer:
            await peer.ask(CLUSTER, ["*"])
        assert await relay.metric(f'xdsprism_cache_lookups_total{{result="{expected}",type="cds"}}') == 1
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask("type.googleapis.com/made.up.Type", ["x"])
    assert await relay.metric('xdsprism_cache_lookups_total{result="miss",type="other"}') == 1


# -- why


async def test_explain_shows_the_variant_its_server_and_unknown_answers(relay: RelayOffice, upstream: Upstream):
    async def explain(*params: str) -> Any:
        query = "".join(f"&param={each.replace('=', '%3D')}" for each in params)
        return await relay.page(f"/api/explain?type=cds&name=shop{query}")

    assert (await relay.send("GET", "/api/explain?type=cds&name=shop"))[0] == 404
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        await peer.ask(CLUSTER, **_with(env="qa"))
        found = await explain("env=prod", "pod=9")
        assert (found["cached"], found["absent"], found["keys"]) == (True, None, ["env"])
        assert (found["variant"]["constraint"], found["variant"]["upstream"]) == ("env=prod", upstream.address)
        assert [(other["constraint"], other["exists"], other["fails"], other["has"]) for other in found["others"]] == [
            ("env=qa", False, "env=qa", {"env": "prod"})
        ]
        absent = await explain("env=qa")
        assert (absent["cached"], absent["variant"], absent["absent"]) == (True, None, "env=qa")
        unknown = await explain("env=test")
        assert (unknown["cached"], unknown["variant"], unknown["absent"]) == (False, None, None)
        assert len(unknown["others"]) == 2


# PRX-28, OPS-10: clients choose with how many params they ask
async def test_very_many_variants_of_a_name_are_listed_in_part_and_in_steps(
    relay: RelayOffice, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache_model, "VARIANTS", 3)
    monkeypatch.setattr(cache_model, "EVERY", 2)
    monkeypatch.setattr(cached_answers, "EVERY", 2)
    async with Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, **_with(env="prod"))
        for number in range(7):
            await peer.ask(CLUSTER, **_with(env=f"e{number}"))
        pauses: list[None] = []
        look = pages._sliced  # noqa: SLF001 # pauses are what other clients are served in, and no answer shows them

        async def counted(steps: Steps[Any]) -> Any:
            def passing() -> Steps[Any]:
                try:
                    while True:
                        pauses.append(next(steps))
                        yield
                except StopIteration as done:
                    return done.value

            return await look(passing())

        monkeypatch.setattr(pages, "_sliced", counted)  # see above
        (shop,) = (await relay.page("/api/resources?name=shop"))["resources"]
        explained = await relay.page("/api/explain?type=cds&name=shop&param=env%3Dprod")
    assert (len(shop["variants"]), shop["variants_left_out"]) == (3, 5)
    assert (len(explained["others"]), explained["others_left_out"]) == (3, 4)
    assert explained["variant"]["constraint"] == "env=prod"
    assert len(pauses) >= 8
