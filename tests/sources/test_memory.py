from __future__ import annotations

from datetime import timedelta

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf.any_pb2 import Any

import xdsprism as xp


def cluster(name: str, stat: str = "") -> cluster_pb2.Cluster:
    return cluster_pb2.Cluster(name=name, alt_stat_name=stat)


def stat(store: xp.Store, name: str, **params: str) -> str | None:
    found = store.table(xp.CLUSTER).select(name, xp.Params(params))
    return None if found is None else cluster_pb2.Cluster.FromString(found.body).alt_stat_name


@pytest.fixture
def store() -> xp.Store:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(cluster("a", "prod"), when="env=prod")
        tx.put(cluster("a", "rest"), when=xp.parse("env!=prod"))
        tx.put(cluster("b"))
    return store


def test_a_transaction_is_applied_as_one(store: xp.Store) -> None:
    assert store.revision == 1
    assert (stat(store, "a", env="prod"), stat(store, "a"), stat(store, "b")) == ("prod", "rest", "")


def test_a_put_replaces_the_variant_with_the_same_constraints_and_no_other(store: xp.Store) -> None:
    with store.transaction() as tx:
        tx.put(cluster("a", "again"), when="not not env=prod")
    assert (stat(store, "a", env="prod"), stat(store, "a")) == ("again", "rest")


def test_an_exception_in_the_block_changes_nothing(store: xp.Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a")
        _ = 1 / 0
    assert stat(store, "a") == "rest"


def test_an_overlap_is_refused_with_a_witness_and_nothing_of_the_transaction_is_applied(store: xp.Store) -> None:
    # DYN-33, DYN-36, DYN-37
    with pytest.raises(xp.ConfigError, match="both match env=test"), store.transaction() as tx:
        tx.delete(xp.CLUSTER, "b")
        tx.put(cluster("a"), when="env=test")
    assert stat(store, "b") == ""


def test_a_swap_that_would_overlap_midway_is_accepted(store: xp.Store) -> None:
    # DYN-38
    with store.transaction() as tx:
        tx.put(cluster("a", "all"), when="env exists or not env exists")
        tx.delete(xp.CLUSTER, "a", when="env=prod")
        tx.delete(xp.CLUSTER, "a", when="env!=prod")
    assert stat(store, "a", env="prod") == "all"


def test_variants_of_one_name_may_mention_different_keys(store: xp.Store) -> None:
    # DYN-34: TP2's transition from env=prod to two variants over version
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a", when="env!=prod")
        tx.put(cluster("a", "test"), when="env=test")
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a", when="env=prod")
        tx.put(cluster("a", "one"), when="env=prod and version=v1")
        tx.put(cluster("a", "two"), when="env=prod and version=v2")
    assert stat(store, "a", env="prod", version="v2") == "two"
    assert stat(store, "a", env="test", version="v2") == "test"
    known = store.table(xp.CLUSTER).get("a")
    assert known is not None
    assert {frozenset(xp.Expression(each.constraint).keys) for each in known.variants} == {
        frozenset({"env", "version"})
    }


@pytest.mark.parametrize("when", ["env=test", "env=test and (version exists or not version exists)"])
def test_a_padded_variant_is_replaced_and_deleted_by_what_was_written(store: xp.Store, when: str) -> None:
    # DYN-34
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a")
        tx.put(cluster("a", "one"), when="env=prod and version=v1")
        tx.put(cluster("a", "test"), when="env=test")
    with store.transaction() as tx:
        tx.put(cluster("a", "new"), when=when)
    assert stat(store, "a", env="test") == "new"
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a", when=when)
    assert stat(store, "a", env="test") is None


def test_a_resource_that_envoy_would_refuse_is_refused_with_its_path(store: xp.Store) -> None:
    bad = cluster("c")
    bad.connect_timeout.seconds = -1
    with pytest.raises(xp.ConfigError, match=r"connect_timeout: .*Cluster 'c'"), store.transaction() as tx:
        tx.put(bad)


def test_deleting_a_variant_that_is_not_there_says_so(store: xp.Store) -> None:
    with pytest.raises(xp.UsageError, match="'a' has no variant for env=qa"), store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a", when="env=qa")


def test_deleting_a_name_that_is_not_there_is_no_change(store: xp.Store) -> None:
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, "nobody")
    assert store.revision == tx.revision == 1


def test_any_type_works_known_or_not(store: xp.Store) -> None:
    with store.transaction() as tx:
        tx.put(Any(type_url="example.com/my.own.Type", value=b"\x01"), name="mine", when="env=prod")
    found = store.table("example.com/my.own.Type").select("mine", xp.Params({"env": "prod"}))
    assert found is not None
    assert found.body == b"\x01"


def test_a_known_type_inside_an_any_is_checked_all_the_same(store: xp.Store) -> None:
    bad = Any()
    bad.Pack(cluster_pb2.Cluster(name="c", lb_policy=99))  # type: ignore[arg-type]
    with pytest.raises(xp.ConfigError, match="lb_policy"), store.transaction() as tx:
        tx.put(bad, name="c")


def test_bytes_that_are_not_of_their_type_are_refused(store: xp.Store) -> None:
    refused = pytest.raises(xp.ConfigError, match=r"the bytes can't be decoded as envoy.config.cluster.v3.Cluster")
    with refused, store.transaction() as tx:
        tx.put(Any(type_url=xp.CLUSTER, value=b"\xff"), name="c")


def test_a_message_without_a_name_needs_one(store: xp.Store) -> None:
    with pytest.raises(xp.UsageError, match="has no name"), store.transaction() as tx:
        tx.put(cluster(""))


def test_a_resource_has_one_name_inside_and_outside(store: xp.Store) -> None:
    with pytest.raises(xp.UsageError, match="'x' and its contents 'y'"), store.transaction() as tx:
        tx.put(cluster("y"), name="x")


@pytest.mark.parametrize("ttl", [1.5, timedelta(seconds=1.5)])
def test_a_time_to_live_is_seconds_or_a_timedelta(store: xp.Store, ttl: float | timedelta) -> None:  # TTL-3
    before = store.revision
    with store.transaction() as tx:
        tx.put(cluster("b"), ttl=ttl)
    (variant,) = store.table(xp.CLUSTER).named("b").variants
    assert variant.ttl == 1.5
    assert store.revision == before + 1
    with store.transaction() as tx:
        tx.put(cluster("b"))
    assert store.revision == before + 2


@pytest.mark.parametrize("ttl", [0, -1, 0.01, float("nan"), float("inf"), timedelta(microseconds=1)])
def test_an_invalid_ttl_is_refused(store: xp.Store, ttl: float | timedelta) -> None:  # TTL-2
    with pytest.raises(xp.UsageError, match="ttl"), store.transaction() as tx:
        tx.put(cluster("b"), ttl=ttl)
    assert store.revision == 1
