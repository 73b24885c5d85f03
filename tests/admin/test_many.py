"""Pages of a server that has very many resources. Work is counted, not time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost

from tests.admin.rig import Office, Peer, eventually_async, locator
from xdsprism import CLUSTER, Store
from xdsprism.admin import http as pages
from xdsprism.admin import read_model
from xdsprism.core.model.table import Table
from xdsprism.core.model.variants import VariantSet
from xdsprism.observe.metrics import Metrics


@pytest.fixture
def store() -> Store:
    """Three clusters and five virtual hosts, each in the opposite order of their names."""
    made = Store()
    with made.transaction() as tx:
        for number in (3, 2, 1):
            tx.put(Cluster(name=f"c{number}"))
        for number in (5, 4, 3, 2, 1):
            tx.put(VirtualHost(name=f"main/h{number}", domains=[f"h{number}.test"]))
    return made


def names(store: Store, offset: int, limit: int | None) -> list[str]:
    page = read_model.resources(store, offset=offset, limit=limit)
    assert page.head["total"] == 8
    return [row["name"].removeprefix("main/") for row in page.rows]


def test_a_list_that_is_too_long_to_sort_is_shown_unsorted(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_model, "SORTED", 4)
    whole = ["c1", "c2", "c3", "h5", "h4", "h3", "h2", "h1"]
    for limit in range(1, 10):
        parts = [names(store, offset, limit) for offset in range(0, 10, limit)]
        assert [name for part in parts for name in part] == whole
    assert names(store, 0, None) == sorted(whole)  # nobody waits for `check`


def test_a_page_looks_at_no_more_than_it_shows_and_passes_over(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_model, "SORTED", 2)
    looks: list[str] = []
    look = Table.__iter__

    def counted(table: Table) -> Iterator[tuple[str, VariantSet]]:
        for each in look(table):
            looks.append(each[0])
            yield each

    monkeypatch.setattr(Table, "__iter__", counted)
    assert names(store, 4, 2) == ["h4", "h3"]
    assert looks == ["main/h5", "main/h4", "main/h3"]


def test_a_scrape_counts_what_is_counted_already(store: Store, monkeypatch: pytest.MonkeyPatch):
    metrics = Metrics(store)
    monkeypatch.delattr(Table, "__iter__")
    assert b'xdsprism_variants{type="vhds"} 5.0' in metrics.render()
    with store.transaction() as tx:
        tx.delete("type.googleapis.com/envoy.config.route.v3.VirtualHost", "main/h1")
    assert b'xdsprism_variants{type="vhds"} 4.0' in metrics.render()


# OPS-10: a client has as many types, subscriptions and rejected resources as it likes
async def test_a_page_shows_a_bounded_part_of_a_stream(office: Office, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_model, "ITEMS", 300)
    async with Peer(office.server.address, delta=True) as peer:
        for number in range(20):
            locators = [locator(f"n{name}", {f"k{key}": "v" for key in range(20)}) for name in range(50)]
            await peer.ask(f"type.googleapis.com/made.Up{number}", (), resource_locators_subscribe=locators)
        types = (await office.client())["types"]
    assert [each["subscriptions"]["total"] for each in types] == [50] * 20
    shown = [len(each["params"]) for one in types for each in one["subscriptions"]["first"]]
    assert sum(shown) + len(shown) < 300 + 21
    assert len(shown) > 10


# NAK-12
async def test_only_the_first_rejected_resources_are_shown(office: Office, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_model, "REJECTED", 2)
    with office.server.store.transaction() as tx:
        for number in range(5):
            tx.put(Cluster(name=f"c{number}"))
    async with Peer(office.server.address, delta=True) as peer:
        response = await peer.ask(CLUSTER, ["*"])
        for number in range(6):
            await peer.send(type_url=CLUSTER, response_nonce=response.nonce, error_detail={"code": 3, "message": "no"})
            if number < 5:
                response = await peer.read()
        await eventually_async(lambda: _left_out(office), 3)
        (session,) = (await office.client())["types"]
    assert len(session["rejected"]) == 2


async def _left_out(office: Office) -> int:
    return int((await office.client())["types"][0].get("rejected_left_out", 0))


async def test_a_response_has_an_end(office: Office, monkeypatch: pytest.MonkeyPatch):
    with office.server.store.transaction() as tx:
        for number in range(10):
            tx.put(Cluster(name=f"c{number}"))
    assert "cut" not in await office.page("/api/resources")
    monkeypatch.setattr(pages, "PAGE", 500)
    page = await office.page("/api/resources")
    assert 0 < len(page["resources"]) < 10
    assert page["cut"].startswith(f"after {len(page['resources'])} rows")
