"""Large transactions: preparing them aside gives the same as applying one change after the other."""

from __future__ import annotations

import pytest

from tests.support import insides
from xdsprism.core.model import store as store_module
from xdsprism.core.model.expr import parse
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import (
    CLUSTER,
    LISTENER,
    NO_PARAMS,
    VIRTUAL_HOST,
    Changeset,
    Params,
    Variant,
    make_variant,
)
from xdsprism.errors import ConfigError

from . import support

GLOB = f"xdstp://a/{CLUSTER.rpartition('/')[2]}/shop/*"
MEMBER = GLOB.replace("*", "one")


def cluster(name: str, body: str, when: str = "true", *aliases: str) -> Variant:
    return make_variant(CLUSTER, name, body.encode(), parse(when), aliases=aliases)


def host(name: str, body: str, *domains: str) -> Variant:
    return make_variant(VIRTUAL_HOST, name, body.encode(), domains=domains)


FIRST: Changeset = {
    (CLUSTER, "stays"): (cluster("stays", "1"),),
    (CLUSTER, "changes"): (cluster("changes", "1", "true", "moving", "leaving"),),
    (CLUSTER, "goes"): (cluster("goes", "1", "zone=a"),),
    (CLUSTER, "comes"): (),
    (CLUSTER, MEMBER): (cluster(MEMBER, "1"),),
    (LISTENER, "l"): (make_variant(LISTENER, "l", b"1", references=((CLUSTER, "goes"),)),),
    (VIRTUAL_HOST, "r/one"): (host("r/one", "1", "one.example.com", "*.one.example.com"),),
    (VIRTUAL_HOST, "r/two"): (host("r/two", "1", "two.example.com"),),
}
SECOND: Changeset = {
    (CLUSTER, "stays"): FIRST[CLUSTER, "stays"],
    (CLUSTER, "changes"): (cluster("changes", "2", "env=prod"), cluster("changes", "3", "env=test")),
    (CLUSTER, "goes"): (),
    (CLUSTER, "comes"): (cluster("comes", "2", "true", "moving"),),
    (CLUSTER, MEMBER): (),
    (LISTENER, "l"): (make_variant(LISTENER, "l", b"2", references=((CLUSTER, "comes"),)),),
    (VIRTUAL_HOST, "r/one"): (host("r/one", "2", "one.example.com", "*.one.example.com"),),
    (VIRTUAL_HOST, "r/two"): (host("r/two", "2", "three.example.com"),),
}
PROD = Params({"env": "prod"})


def facts(store: Store, since: int) -> dict[str, object]:
    """All that can be seen of the clusters, listeners and virtual hosts."""
    found: dict[str, object] = {"revision": store.revision}
    for url in (CLUSTER, LISTENER, VIRTUAL_HOST):
        table = store.table(url)
        found[url] = (
            table.variants,
            table.revision,
            table.everything.horizon,
            dict(table.referring),
            [(name, known.variants) for name, known in sorted(table)],
            [table.everything.snapshot(params).variants for params in (NO_PARAMS, PROD)],
            table.everything.negative(PROD),
            sorted(table.lookup.configs()),
        )
        transitions = table.everything.difference(since, PROD).transitions
        found[f"{url} since"] = {name: (each.before, each.after) for name, each in transitions.items()}
    clusters, hosts = store.table(CLUSTER), store.table(VIRTUAL_HOST)
    found["aliases"] = [clusters.owner(alias) for alias in ("moving", "leaving")]
    found["glob"] = clusters.listing(GLOB).snapshot(NO_PARAMS).variants
    asked = ("one.example.com", "x.one.example.com", "two.example.com", "three.example.com")
    found["hosts"] = [hosts.select(f"r/{each}", NO_PARAMS) for each in asked]
    return found


def seen(changesets: list[Changeset]) -> list[dict[str, object]]:
    store = Store()
    store.table(CLUSTER).listing(GLOB).follow()
    for url in (CLUSTER, LISTENER, VIRTUAL_HOST):
        store.table(url).everything.follow()
    found = []
    for changeset in changesets:
        since = store.revision
        store.apply(changeset)
        found.append(facts(store, since))
    return found


@pytest.mark.parametrize("changesets", [[FIRST, SECOND], [SECOND, FIRST], [FIRST, SECOND, FIRST]])
def test_a_large_transaction_leaves_the_tables_as_its_changes_one_by_one_do(
    changesets: list[Changeset], monkeypatch: pytest.MonkeyPatch
) -> None:
    # DYN-38, DLT-20, XTP-4, VHD-3
    one_by_one = seen(changesets)
    monkeypatch.setattr(store_module, "MANY", 0)
    assert seen(changesets) == one_by_one


def test_a_prepared_transaction_changes_nothing_until_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    # DYN-38
    monkeypatch.setattr(store_module, "MANY", 0)
    store = Store()
    told: list[int] = []
    store.listeners.append(lambda applied: told.append(applied.revision))
    take = store.prepare(FIRST)
    assert (store.revision, store.tables(), told) == (0, [], [])
    assert take().revision == 1
    assert told == [1]
    assert len(store.table(CLUSTER)) == 4


def test_a_large_transaction_logs_only_what_a_wildcard_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    # VHD-13, DESIGN 6.3: there may be a million hosts outside of the base set
    monkeypatch.setattr(store_module, "MANY", 0)
    store = Store()
    table = store.table(VIRTUAL_HOST)
    table.everything.follow()
    store.apply(support.changeset("vhds rc/a<a.test>=1 rc/b<b.test>^=1 rc/c<c.test>=1"))
    assert [change.name for change in insides.log(table.everything)] == ["rc/b"]


def test_a_change_that_comes_while_another_is_prepared_keeps_its_place() -> None:
    # DYN-38: what is prepared is looked at again, in the light of what came before it
    store = Store()
    take = store.prepare({(CLUSTER, "a"): (cluster("a", "late"),)})
    store.apply({(CLUSTER, "a"): (cluster("a", "early"),), (CLUSTER, "b"): (cluster("b", "1"),)})
    (change,) = take().changes
    assert change.revision == store.revision == 2
    assert change.before is not None
    assert change.before.variants[0].body == b"early"
    known = store.table(CLUSTER).named("a")
    assert known is not None
    assert known.variants[0].body == b"late"


def test_a_prepared_transaction_that_became_impossible_is_refused() -> None:
    # DYN-38, DLT-20
    store = Store()
    take = store.prepare({(CLUSTER, "a"): (cluster("a", "1", "true", "same"),)})
    store.apply({(CLUSTER, "b"): (cluster("b", "1", "true", "same"),)})
    with pytest.raises(ConfigError, match="an alias names one resource"):
        take()
    assert store.table(CLUSTER).named("a") is None
