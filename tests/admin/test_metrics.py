"""OPS-11: the metrics and their names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from prometheus_client import CollectorRegistry

from tests.admin.rig import Office, Peer, eventually_async
from tests.support import web
from xdsprism import CLUSTER, Store
from xdsprism.core.model.cache_knowledge import cache_table
from xdsprism.core.model.cached import CachedSet, Finding
from xdsprism.core.model.constraints import TRUE
from xdsprism.core.model.events import Node, Rejection, Send
from xdsprism.core.model.facts import (
    Acked,
    Closed,
    Forgotten,
    Joined,
    Nacked,
    Opened,
    OtherNode,
    Oversize,
    Published,
    Refused,
    Rejected,
    Requested,
    Routine,
    Sent,
    ShareExceeded,
    SubscriptionsRefused,
    Suppressed,
)
from xdsprism.core.model.limits import Scarce
from xdsprism.core.model.steps import EVERY
from xdsprism.core.model.store import Store as CoreStore
from xdsprism.core.model.types import make_variant
from xdsprism.core.session.in_flight import InFlight
from xdsprism.core.session.sync_state import SyncState
from xdsprism.http2.codes import Code
from xdsprism.http2.facts import CertificatesInUse, HttpConnectionRefused, HttpRefusal, Limited
from xdsprism.http2.limits import Limit
from xdsprism.observe.connection_metrics import CertificateMetrics, HttpPortMetrics
from xdsprism.observe.metrics import FURTHER_TYPES, CacheMetrics, ClientMetrics, Metrics
from xdsprism.observe.state_metrics import client_state_metrics

OWN = "type.googleapis.com/my.own.Thing"
UNKNOWN = "type.googleapis.com/nobody.serves.This"


@pytest.fixture
def metrics(store: Store) -> Metrics:
    return Metrics(store)


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"xdsprism_{name}", labels)


# OPS-11, VHD-25, DYN-46
def test_facts_become_counts(metrics: Metrics):
    metrics(
        [
            Requested(1, CLUSTER),
            Sent(1, CLUSTER, "n1", 5, 2),
            Acked(1, CLUSTER, "n1", 0.02),
            Requested(1, CLUSTER),
            Sent(1, CLUSTER, "n2", 1, 0),
            Nacked(1, CLUSTER, "n2", "v", Rejection(3, "no")),
            Suppressed(1, CLUSTER, 7),
            Oversize(1, CLUSTER, "huge", 10**7),
            Forgotten(1, CLUSTER, 4),
            SubscriptionsRefused(1, CLUSTER, "name_bytes", 3, "too long"),
            SubscriptionsRefused(1, UNKNOWN, "types", 2, "too many"),
            Refused(("a", "b")),
            Refused((), 2),
            OtherNode(1),
            Published(2, 1),
        ]
    )
    counts = {
        "requests": 2,
        "responses": 2,
        "sent_resources": 6,
        "sent_removals": 2,
        "acks": 1,
        "nacks": 1,
        "suppressed_resends": 7,
        "oversize_resources": 1,
        "forgotten_names": 4,
    }
    assert {name: _value(metrics, f"{name}_total", type="cds") for name in counts} == counts
    assert _value(metrics, "refused_writes_total") == 1
    assert _value(metrics, "refused_subscriptions_total", type="cds", limit="name_bytes") == 3
    assert _value(metrics, "refused_subscriptions_total", type="other", limit="types") == 2
    assert _value(metrics, "push_ack_seconds_count", type="cds") == 1
    assert _value(metrics, "push_ack_seconds_bucket", type="cds", le="0.01") == 0
    assert _value(metrics, "push_ack_seconds_bucket", type="cds", le="0.025") == 1


# OPS-11
def test_each_ack_is_in_the_bucket_of_its_wait(metrics: Metrics):
    routine = Routine(CLUSTER, 6, 6, [40.0, 0.02, 0.01, 0.0, 31.0, 0.3])
    metrics([routine, Acked(1, CLUSTER, "n1", 30.0)])
    bounds = ("0.001", "0.005", "0.01", "0.025", "0.25", "0.5", "10.0", "30.0", "+Inf")
    counted = [_value(metrics, "push_ack_seconds_bucket", type="cds", le=bound) for bound in bounds]
    assert counted == [1, 1, 2, 3, 3, 4, 4, 5, 7]
    assert _value(metrics, "push_ack_seconds_sum", type="cds") == pytest.approx(101.33)
    assert _value(metrics, "requests_total", type="cds") == 6


# OPS-11
def test_streams_and_clients_go_up_and_down(metrics: Metrics):
    metrics([Opened(1, "/x/Delta", "p"), Opened(2, "/x/Delta", "p"), Opened(3, "/x/Stream", "p")])
    assert _value(metrics, "clients") == 0  # nobody said who it is
    metrics([Joined(1, Node("a")), Joined(2, Node("a")), Joined(3, Node("b"))])
    assert (_value(metrics, "streams", method="Delta"), _value(metrics, "streams", method="Stream")) == (2, 1)
    assert _value(metrics, "clients") == 2
    metrics([Closed(1, "")])
    assert (_value(metrics, "streams", method="Delta"), _value(metrics, "clients")) == (1, 2)
    metrics([Closed(2, "why"), Closed(3, "")])
    assert (_value(metrics, "streams", method="Delta"), _value(metrics, "clients")) == (0, 0)


# OPS-11
def test_resources_and_variants_are_those_of_the_moment(metrics: Metrics, store: Store):
    assert (_value(metrics, "resources", type="cds"), _value(metrics, "variants", type="cds")) == (2, 3)
    assert _value(metrics, "revision") == 1
    with store.transaction() as tx:
        tx.delete(CLUSTER, "shop")
    assert (_value(metrics, "resources", type="cds"), _value(metrics, "variants", type="cds")) == (1, 1)
    assert _value(metrics, "revision") == 2


def test_loads_are_counted_by_result(metrics: Metrics):
    for result in ("ok", "ok", "refused"):
        metrics.loaded(result)
    assert _value(metrics, "config_ok") == 0
    metrics.loaded("ok")
    assert _value(metrics, "config_ok") == 1
    metrics.loaded("held_back")
    assert _value(metrics, "config_ok") == 0
    loads = {result: _value(metrics, "config_loads_total", result=result) for result in ("ok", "refused", "held_back")}
    assert loads == {"ok": 3, "refused": 1, "held_back": 1}


def test_connections_that_an_http_port_refuses_are_counted_by_port_and_reason(metrics: Metrics):
    counting = HttpPortMetrics(metrics.registry, ["admin", "rest"])
    counting(
        [
            HttpConnectionRefused("ipv4:10.0.0.1:1", "rest", HttpRefusal.HEADER),
            Limited("x", Limit.ADDRESS, Code.NO_ERROR, True),
        ]
    )
    counting([HttpConnectionRefused("ipv4:10.0.0.1:2", "rest", HttpRefusal.HEADER)])
    assert _value(metrics, "http_refused_connections_total", port="rest", reason="header") == 2
    counted = [_value(metrics, "http_refused_connections_total", port="admin", reason=why) for why in HttpRefusal]
    assert counted == [0] * len(HttpRefusal)


def test_texts_of_clients_do_not_become_labels(metrics: Metrics, store: Store):
    metrics([Requested(1, f"{UNKNOWN}{number}") for number in range(50)])
    assert _value(metrics, "requests_total", type="other") == 50
    assert UNKNOWN.rpartition("/")[2] not in metrics.render().decode()
    assert [table.spec.url for table in store.tables()] == [CLUSTER]


def test_a_type_of_ones_own_has_its_name(metrics: Metrics, store: Store):
    store.apply({(OWN, "x"): (make_variant(OWN, "x", b""),)})
    metrics([Requested(1, OWN)])
    assert _value(metrics, "requests_total", type="my.own.Thing") == 1
    assert _value(metrics, "resources", type="my.own.Thing") == 1


# OPS-11, PRX-35
def test_a_relay_gives_types_that_clients_make_up_no_labels_of_their_own():
    cache = CoreStore(tables=cache_table)
    metrics = Metrics(cache)
    before = len(metrics.render().splitlines())
    for number in range(100):
        cache.publish({(f"{UNKNOWN}{number}", "x"): CachedSet([Finding(TRUE, None)])})
        metrics([Requested(1, f"{UNKNOWN}{number}")])
    first = len(metrics.render().splitlines())
    assert _value(metrics, "requests_total", type="other") == 100
    for number in range(100, 1000):
        cache.publish({(f"{UNKNOWN}{number}", "x"): CachedSet([Finding(TRUE, None)])})
        metrics([Requested(1, f"{UNKNOWN}{number}"), Nacked(1, f"{UNKNOWN}{number}", "n", "1", Rejection(3, "no"))])
    assert len(metrics.render().splitlines()) - first <= first - before
    assert UNKNOWN.rpartition("/")[2] not in metrics.render().decode()


# OPS-11, PRX-35
def test_types_beyond_the_limit_share_one_label(metrics: Metrics, store: Store):
    for number in range(FURTHER_TYPES + 36):
        store.apply({(f"{OWN}{number}", "x"): (make_variant(f"{OWN}{number}", "x", b""),)})
        metrics([Requested(1, f"{OWN}{number}"), Requested(1, CLUSTER)])
    assert _value(metrics, "requests_total", type=f"my.own.Thing{FURTHER_TYPES - 1}") == 1
    assert _value(metrics, "requests_total", type=f"my.own.Thing{FURTHER_TYPES}") is None
    assert _value(metrics, "requests_total", type="other") == _value(metrics, "resources", type="other") == 36
    assert _value(metrics, "requests_total", type="cds") == FURTHER_TYPES + 36


# OPS-11, PRX-35
def test_responses_of_made_up_types_that_a_client_rejects_are_counted_as_one():
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    metrics([Rejected("server", f"{UNKNOWN}{number}", "1", "bad") for number in range(FURTHER_TYPES + 36)])
    assert registry.get_sample_value("xdsprism_upstream_rejected_responses_total", {"type": "other"}) == 36


# OPS-11, PRX-35
def test_subscriptions_without_room_are_counted_by_kind(metrics: Metrics):
    reader = CacheMetrics(metrics)
    before = len(metrics.render().splitlines())
    for number in range(100):
        client = f"ipv4:10.0.0.{number}", f"made up {number}"
        reader([ShareExceeded(kind, client, gave_way, 2) for kind in Scarce for gave_way in (True, False)])
    assert _value(metrics, "relay_no_room_total", kind="types", result="gave_way") == 200
    assert _value(metrics, "relay_no_room_total", kind="groups", result="refused") == 200
    assert _value(metrics, "relay_no_room_total", kind="subscriptions", result="refused") == 200
    assert len(metrics.render().splitlines()) == before


def test_several_servers_in_one_process_count_apart(store: Store):
    one, other = Metrics(store), Metrics(store)
    one([Requested(1, CLUSTER)])
    assert (_value(one, "requests_total", type="cds"), _value(other, "requests_total", type="cds")) == (1, None)
    one.close()
    other.close()
    assert store.listeners == []


# OPS-11
def test_the_states_of_many_clients_are_counted_in_steps():
    sessions = [SimpleNamespace(table=CoreStore().table(CLUSTER), in_flight=InFlight("cds")) for _ in range(10 * EVERY)]
    for session in sessions:
        session.progress = session.in_flight.progress
    streams = [SimpleNamespace(sessions={CLUSTER: session}) for session in sessions]
    registry = CollectorRegistry()
    states = client_state_metrics(lambda: cast(Any, streams), lambda _: "cds", lambda: 100.0)
    registry.register(states)
    sessions[0].in_flight.add(Send(CLUSTER, delta=True, nonce="n1", version="1"), 40.0, None, ())
    sessions[1].in_flight.add(Send(CLUSTER, delta=True, nonce="n1", version="1"), 90.0, None, ())
    assert sum(1 for _ in states.preparing()) == 10

    def number(state: str) -> float | None:
        return registry.get_sample_value("xdsprism_clients_by_state", {"type": "cds", "state": state})

    assert {state: number(state) for state in SyncState} == {
        "SYNCED": 0,
        "STALE": 2,
        "NOT SENT": 10 * EVERY - 2,
        "NACKED": 0,
    }
    assert registry.get_sample_value("xdsprism_longest_stale_seconds", {"type": "cds"}) == 60


# OPS-11
def test_certificates_are_shown_by_port_and_use():
    registry = CollectorRegistry()
    metrics = CertificateMetrics(registry)
    metrics([CertificatesInUse({"a": 5.0, "b": 7.0}, {"server": 5.0, "client_ca": 7.0}, ("xds", "rest"))])
    metrics([CertificatesInUse({"c": 9.0}, {"server": 9.0}, ("admin",))])
    name = "xdsprism_certificate_expiry_timestamp_seconds"
    (family,) = [family for family in registry.collect() if family.name == name]
    shown = {(each.labels["port"], each.labels["use"]): each.value for each in family.samples}
    both = {(port, use): end for port in ("xds", "rest") for use, end in (("server", 5), ("client_ca", 7))}
    assert shown == both | {("admin", "server"): 9}


# OPS-11, NAK-12
async def test_a_real_stream_is_counted_and_shown_in_prometheus_format(office: Office):
    async def series(name: str) -> float:
        answer = await asyncio.to_thread(web.get, *web.split(office.admin), "/metrics")
        assert answer.status == 200
        lines = (line.rsplit(" ", 1) for line in answer.body.splitlines() if not line.startswith("#"))
        return float(dict(lines).get(f"xdsprism_{name}", 0))

    async with Peer(office.server.address, delta=True) as peer:
        first = await peer.ask(CLUSTER, ["*"])
        await peer.send(type_url=CLUSTER, response_nonce=first.nonce)
        await eventually_async(lambda: series('acks_total{type="cds"}'), 1)
        assert await series('streams{method="DeltaAggregatedResources"}') == 1
        assert await series("clients") == 1
        assert await series('push_ack_seconds_count{type="cds"}') == 1
        assert await series('requests_total{type="cds"}') == 2
        with office.store.transaction() as tx:
            tx.put(Cluster(name="new"))
        second = await peer.read()
        await peer.send(type_url=CLUSTER, response_nonce=second.nonce, error_detail={"message": "no"})
        await eventually_async(lambda: series('nacks_total{type="cds"}'), 1)
        await peer.send(type_url=CLUSTER, response_nonce=second.nonce, error_detail={"message": "no"})
        await eventually_async(lambda: series('requests_total{type="cds"}'), 4)
        assert await series('nacks_total{type="cds"}') == 1
    await eventually_async(lambda: series('streams{method="DeltaAggregatedResources"}'), 0)
    assert await series("clients") == 0
    with pytest.raises(AssertionError):
        await office.page("/metrics?x=1")
