"""Validation of the resources that programs put into a store."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as manager_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

import xdsprism as xp
from xdsprism.messages import validation


def route(name: str = "main", host: str = "") -> RouteConfiguration:
    return RouteConfiguration(name=name, virtual_hosts=[VirtualHost(name=host, domains=["*"])])


def listener(name: str, *, grpc: bool, prefix: str = "x") -> Listener:
    manager = manager_pb2.HttpConnectionManager(stat_prefix=prefix)
    manager.rds.route_config_name = "main"
    manager.rds.config_source.ads.SetInParent()
    made = Listener(name=name)
    if grpc:
        made.api_listener.api_listener.Pack(manager)
    else:
        made.address.socket_address.address = "127.0.0.1"
        made.address.socket_address.port_value = 80
        made.filter_chains.add().filters.add(name="x").typed_config.Pack(manager)
    return made


def put(store: xp.Store, *messages: Any) -> list[str]:
    """The warnings."""
    with store.transaction() as tx:
        for message in messages:
            tx.put(message)
    return [str(problem) for problem in tx.warnings]


HOST = "virtual_hosts[0].name: envoy.config.route.v3.RouteConfiguration 'main': must not be empty"


def test_by_default_what_envoy_refuses_is_an_error() -> None:
    with pytest.raises(xp.ConfigError, match=r"virtual_hosts\[0\]\.name"):
        put(xp.Store(), route())


def test_it_may_be_a_warning() -> None:
    store = xp.Store(validate="warn")
    assert put(store, route()) == [HOST]
    assert len(store.table(xp.ROUTE)) == 1


def test_it_may_not_be_looked_for_at_all() -> None:
    assert put(xp.Store(validate="off"), route()) == []


def test_no_other_mode_is_known() -> None:
    with pytest.raises(xp.UsageError, match="validate='strict': it is one of envoy, warn, off"):
        xp.Store(validate="strict")  # type: ignore[arg-type]


def test_resources_of_grpc_clients_only_are_exempt() -> None:
    store = xp.Store()
    found = put(store, route(), listener("x", grpc=True, prefix=""))
    assert found[0] == HOST
    assert len(found) == 2


def test_a_later_transaction_counts_too() -> None:
    store = xp.Store()
    put(store, listener("x", grpc=True))
    assert put(store, route()) == [HOST]


def test_a_listener_for_envoy_that_leads_to_it_is_refused_with_its_faults_and_changes_nothing() -> None:
    store = xp.Store()
    put(store, route(), listener("x", grpc=True))
    with pytest.raises(xp.ConfigError, match=r"virtual_hosts\[0\]\.name"):
        put(store, listener("y", grpc=False))
    assert len(store.table(xp.LISTENER)) == 1
    assert put(store, Cluster(name="a", connect_timeout={"seconds": 1})) == []
    put(store, route(host="all"))
    assert put(store, listener("y", grpc=False)) == []


def test_to_remove_the_listener_for_grpc_makes_errors_of_warnings() -> None:
    store = xp.Store()
    put(store, route(), listener("x", grpc=True))
    with pytest.raises(xp.ConfigError), store.transaction() as tx:
        tx.delete(xp.LISTENER, "x")
    with store.transaction() as tx:
        tx.delete(xp.LISTENER, "x")
        tx.delete(xp.ROUTE, "main")
    assert len(store.table(xp.ROUTE)) == 0


def test_a_refused_transaction_leaves_no_trace_in_what_counts() -> None:
    store = xp.Store()
    with pytest.raises(xp.ConfigError), store.transaction() as tx:
        tx.put(listener("x", grpc=True))
        tx.put(route(), when="env=a")
        tx.put(route(), when="not env=b")  # both match env=a
    with pytest.raises(xp.ConfigError, match=r"virtual_hosts\[0\]\.name"):
        put(store, route())


def test_the_last_put_of_a_name_in_a_transaction_counts() -> None:
    assert put(xp.Store(), route(), route(host="all")) == []


def test_a_packed_unknown_type_is_passed_on_with_a_warning() -> None:
    packed = AnyMessage(type_url="type.googleapis.com/acme.v1.Own", value=b"\xff\x00")
    store = xp.Store()
    (told,) = put(store, TypedExtensionConfig(name="x", typed_config=packed))
    assert "unknown type type.googleapis.com/acme.v1.Own" in told
    assert told.endswith("it is passed on as it is")
    ((_, known),) = store.table(xp.EXTENSION_CONFIG)
    assert packed.value in known.variants[0].body


def test_a_warning_is_logged_once_as_long_as_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    store = xp.Store(validate="warn")
    with caplog.at_level(logging.WARNING, "xdsprism.store"):
        for _ in range(3):
            put(store, route())
        assert [record.getMessage() for record in caplog.records] == [HOST]
        put(store, route(host="all"))
        put(store, route())
    assert [record.getMessage() for record in caplog.records] == [HOST, HOST]


def test_notes_are_warnings_in_every_mode_that_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_NOTE_CHECKS", (lambda _: [(("x",), "is deprecated")],))
    cluster = Cluster(name="a", connect_timeout={"seconds": 1})
    note = "x: envoy.config.cluster.v3.Cluster 'a': is deprecated"
    assert put(xp.Store(), cluster) == put(xp.Store(validate="warn"), cluster) == [note]
    assert put(xp.Store(validate="off"), cluster) == []


def test_further_checks_of_envoy_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_ERROR_CHECKS", (lambda _: [(("x",), "is not Envoy's")],))
    with pytest.raises(xp.ConfigError, match="is not Envoy's"):
        put(xp.Store(), Cluster(name="a"))
