"""Pages of a server that has very many resources. Work is counted, not time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost

from xdsprism import Store
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


def test_what_is_too_much_to_be_put_in_order_is_shown_as_it_came(store: Store, monkeypatch: pytest.MonkeyPatch):
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
