"""The log lines and metrics of a client."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

import xdsprism as xp
from xdsprism.core.model.facts import Ambiguous, Fact, Lost, Reached, Rejected
from xdsprism.observe.logs import FactLog
from xdsprism.observe.metrics import ClientMetrics

OVERLAP = Ambiguous(xp.CLUSTER, "a", "env=prod", "env exists", first=True)
AGAIN = Ambiguous(xp.CLUSTER, "a", "", "", first=False)


def test_a_clients_streams_and_refusals_are_counted():
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    metrics([Reached("one:1"), Reached("two:2"), Lost("one:1", "UNAVAILABLE: gone", failed=True)])
    metrics([Lost("two:2", "OK: bye", failed=False), Reached("two:2"), Rejected("two:2", xp.CLUSTER, "7", "a: bad")])

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("xdsprism_upstream_connected", server="one:1") == 0
    assert value("xdsprism_upstream_connected", server="two:2") == 1
    assert value("xdsprism_upstream_failures_total", server="one:1") == 1
    assert value("xdsprism_upstream_failures_total", server="two:2") == 0
    assert value("xdsprism_upstream_rejected_responses_total", type="envoy.config.cluster.v3.Cluster") == 1


# DYN-45, OPS-11
def test_every_overlap_is_counted():
    registry = CollectorRegistry()
    ClientMetrics(registry)([OVERLAP, AGAIN])
    labels = {"type": "envoy.config.cluster.v3.Cluster"}
    assert registry.get_sample_value("xdsprism_ambiguous_variants_total", labels) == 2


# DYN-45
def test_an_overlap_is_logged_once_with_both_constraints(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "xdsprism"):
        FactLog()([OVERLAP, AGAIN])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = "envoy.config.cluster.v3.Cluster 'a' has two variants for one subscription"
    assert record.getMessage() == f"{text}: `env=prod` is used, `env exists` is not"


@pytest.mark.parametrize(
    ("fact", "level", "text"),
    [
        (Reached("one:1"), logging.INFO, "connected to one:1"),
        (Lost("one:1", "UNAVAILABLE: refused", failed=True), logging.WARNING, "lost one:1: UNAVAILABLE: refused"),
        (Lost("one:1", "OK: bye", failed=False), logging.INFO, "lost one:1: OK: bye"),
        (
            Lost("one:1", "UNAVAILABLE: no", failed=True, reached=False),
            logging.WARNING,
            "can't reach one:1: UNAVAILABLE: no",
        ),
        (
            Rejected("one:1", xp.CLUSTER, "7", "a: no"),
            logging.WARNING,
            "NACKed envoy.config.cluster.v3.Cluster 7 of one:1: a: no",
        ),
    ],
)
def test_stream_events_are_logged(caplog: pytest.LogCaptureFixture, fact: Fact, level: int, text: str):
    with caplog.at_level(logging.INFO, "xdsprism"):
        FactLog()([fact])
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, text)]
