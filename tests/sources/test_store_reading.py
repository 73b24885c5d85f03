"""What a program reads from its store, and by which names of types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from tests.core.test_type_names import CLUSTER_NAMES
from xdsprism.core.model.types import PREFIX
from xdsprism.testing import MemoryClient


def cluster(name: str, seconds: int = 1) -> Cluster:
    made = Cluster(name=name)
    made.connect_timeout.seconds = seconds
    return made


@pytest.fixture
def store() -> xp.Store:
    made = xp.Store()
    with made.transaction() as tx:
        tx.put(cluster("a", 1), when="env=prod")
        tx.put(cluster("a", 5), when="env!=prod", ttl=9)
        tx.put(cluster("b"), aliases=["bee"])
        tx.put(RouteConfiguration(name="main"))
    return made


# DYN-1
def test_get_returns_what_a_client_with_these_params_gets(store: xp.Store) -> None:
    assert store.get("cds", "a", params={"env": "prod"}).connect_timeout.seconds == 1
    assert store.get("cds", "a", params={"env": "test"}).connect_timeout.seconds == 5
    assert store.get("cds", "a").connect_timeout.seconds == 5
    assert store.get("cds", "bee") == cluster("b")
    assert isinstance(store.get("cds", "b"), Cluster)


def test_get_returns_none_for_what_a_client_does_not_get(store: xp.Store) -> None:
    with store.transaction() as tx:
        tx.put(cluster("c"), when="env=prod")
    assert store.get("cds", "c") is None
    assert store.get("cds", "nope") is None
    assert store.get("eds", "a") is None
    assert [table.spec.label for table in store.tables()] == ["cds", "rds"], "a question makes no table"


# VHD-6
def test_get_finds_the_virtual_host_of_a_host() -> None:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(VirtualHost(name="main/shop", domains=["*.example.com"]))
    assert store.get("vhds", "main/a.example.com").name == "main/shop"
    assert ("vhds", "main/a.example.com") not in store
    assert ("vhds", "main/shop") in store


def test_what_is_read_is_a_copy(store: xp.Store) -> None:
    store.get("cds", "b").name = "other"
    assert store.get("cds", "b").name == "b"
    (variant,) = store.variants("cds", "b")
    variant.resource.name = "other"
    assert variant.resource.name == "b"
    anything: Any = variant
    with pytest.raises(FrozenInstanceError):
        anything.name = "other"


def test_variants_say_for_whom_they_are(store: xp.Store) -> None:
    prod, other = sorted(store.variants("cds", "a"), key=lambda each: int(each.resource.connect_timeout.seconds))
    assert (prod.when, other.when) == ("env=prod", "env!=prod")
    assert (prod.ttl, other.ttl) == (None, 9)
    assert prod.version != other.version
    assert prod.origin == ""
    (sole,) = store.variants("cds", "b")
    assert (sole.when, sole.aliases) == (None, ("bee",))
    assert store.variants("cds", "nope") == ()


def test_a_store_is_a_collection_of_types_and_names(store: xp.Store) -> None:
    assert len(store) == 3
    assert list(store) == [(xp.CLUSTER, "a"), (xp.CLUSTER, "b"), (xp.ROUTE, "main")]
    assert ("cds", "a") in store
    assert ("cds", "bee") not in store, "an alias is no name"
    assert ("cds", "main") not in store
    assert repr(store) == "<Store revision 1, cds: 2, rds: 1>"


def test_an_empty_store_has_no_resources_and_is_true() -> None:
    store = xp.Store()
    assert (len(store), list(store), bool(store)) == (0, [], True)
    assert repr(store) == "<Store revision 0>"


def test_resources_may_change_while_a_program_goes_through_them(store: xp.Store) -> None:
    for type_url, name in store:
        with store.transaction() as tx:
            tx.delete(type_url, name)
    assert len(store) == 0


# OPS-14
def test_no_repr_shows_a_secret() -> None:
    store = xp.Store()
    secret = Secret(name="s")
    secret.generic_secret.secret.inline_string = "hunter2"
    with store.transaction() as tx:
        tx.put(secret)
    assert "hunter2" not in repr(store) + repr(store.variants("sds", "s"))


def test_a_type_that_the_program_does_not_know_comes_as_an_any() -> None:
    store = xp.Store()
    with store.transaction() as tx:
        tx.put(AnyMessage(type_url=PREFIX + "acme.Widget", value=b"x"), name="w")
    assert store.get("acme.Widget", "w").value == b"x"


@pytest.mark.parametrize("name", CLUSTER_NAMES, ids=repr)
def test_every_method_takes_every_name_of_a_type(store: xp.Store, name: Any) -> None:
    assert store.get(name, "b") == cluster("b")
    assert store.variants(name, "b")
    assert (name, "b") in store
    client = MemoryClient(store)
    client.subscribe(name, "b")
    client.poll()
    assert "b" in client.view(name)
    client.close()
    with store.transaction() as tx:
        tx.delete(name, "b")
    assert ("cds", "b") not in store

    @store.provider(name)
    async def make(name: str, params: xp.Params) -> object:
        raise AssertionError(name, params)

    store.invalidate(name)


async def _make(name: str, params: xp.Params) -> object:
    raise AssertionError(name, params)


USES: dict[str, Callable[[xp.Store, str], object]] = {
    "get": lambda store, name: store.get(name, "a"),
    "variants": lambda store, name: store.variants(name, "a"),
    "in": lambda store, name: (name, "a") in store,
    "delete": lambda store, name: store.transaction().delete(name, "a"),
    "provider": lambda store, name: store.provider(name)(_make),
    "invalidate": lambda store, name: store.invalidate(name),
    "subscribe": lambda store, name: MemoryClient(store).subscribe(name),
    "unsubscribe": lambda store, name: MemoryClient(store).unsubscribe(name, "a"),
    "view": lambda store, name: MemoryClient(store).view(name),
    "types": lambda _, name: xp.Store(types=[xp.TypeSpec(name)]),
    "referrers": lambda _, name: xp.Store(types=[xp.TypeSpec("acme.Widget", referrers=(name,))]),
}


@pytest.mark.parametrize("use", USES)
def test_every_method_refuses_what_is_no_type_in_the_same_words(store: xp.Store, use: str) -> None:
    with pytest.raises(xp.UsageError, match=r"unknown resource type 'cluser': use one of .*; did you mean cluster"):
        USES[use](store, "cluser")


@pytest.mark.parametrize("use", ["get", "variants", "in", "delete", "provider", "invalidate"])
def test_a_store_has_no_types_of_v2(store: xp.Store, use: str) -> None:
    # VER-4
    with pytest.raises(xp.UsageError, match=f"of xDS v2: give it as {xp.CLUSTER}"):
        USES[use](store, "envoy.api.v2.Cluster")


def test_a_key_that_is_no_type_and_name_is_a_type_error(store: xp.Store) -> None:
    anything: Any = "a"
    with pytest.raises(TypeError, match="a resource is a type and a name"):
        _ = anything in store


def test_own_types_have_their_words() -> None:
    store = xp.Store(types=[xp.TypeSpec("acme.Widget", ("widgets",))])
    with store.transaction() as tx:
        tx.put(AnyMessage(type_url=PREFIX + "acme.Widget", value=b""), name="w")
    assert ("widgets", "w") in store
    assert repr(store) == "<Store revision 1, widgets: 1>"
