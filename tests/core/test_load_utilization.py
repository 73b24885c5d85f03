"""Utilization in load reports: fields of its own, and which metrics a client passes on (LRS-3, gRFC A85)."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport

import xdsprism as xp
from xdsprism.client.lrs import orca_metrics
from xdsprism.core.codec.loads import decode_request, encode_request
from xdsprism.core.loads.load_reports import LoadReports
from xdsprism.core.loads.loads import LoadRequest, Loads
from xdsprism.core.model.events import Node
from xdsprism.core.model.facts import Facts

ORCA = OrcaLoadReport(
    cpu_utilization=0.5,
    mem_utilization=0.25,
    application_utilization=0.75,
    rps_fractional=9.0,
    named_metrics={"foo": 1.0, "foo.bar": 2.0},
    utilization={"gpu": 0.1},
)
EVERYTHING = {
    "cpu_utilization": 0.5,
    "mem_utilization": 0.25,
    "application_utilization": 0.75,
    "named_metrics.foo": 1.0,
    "named_metrics.foo.bar": 2.0,
}


def sent(loads: Loads) -> Any:
    """The stats of the one locality that has any, as they go out."""
    message = encode_request(LoadRequest(reports=loads.report(1.0)), b"")
    (cluster,) = LoadStatsRequest.FromString(message).cluster_stats
    (locality,) = cluster.upstream_locality_stats
    return locality


def shown(stats: Any) -> dict[str, tuple[int, float]]:
    """All metrics of a locality: how many requests had it, and the sum; those in a field of their own by `.name`."""
    own = [name for name in ("cpu_utilization", "mem_utilization", "application_utilization") if stats.HasField(name)]
    found = {f".{name}": getattr(stats, name) for name in own}
    found |= {each.metric_name: each for each in stats.load_metric_stats}
    return {name: (each.num_requests_finished_with_metric, each.total_metric_value) for name, each in found.items()}


# LRS-3
def test_an_orca_report_goes_by_the_names_that_a_cluster_lists() -> None:
    assert orca_metrics(ORCA) == EVERYTHING
    empty = orca_metrics(OrcaLoadReport())
    assert empty == {"cpu_utilization": 0.0, "mem_utilization": 0.0, "application_utilization": 0.0}


# LRS-3
def test_utilization_has_fields_of_its_own() -> None:
    loads = Loads(0.0)
    for _ in range(2):
        loads.cluster("c").started()
        loads.cluster("c").finished(metrics=EVERYTHING)
    assert shown(sent(loads)) == {
        ".cpu_utilization": (2, 1.0),
        ".mem_utilization": (2, 0.5),
        ".application_utilization": (2, 1.5),
        "named_metrics.foo": (2, 2.0),
        "named_metrics.foo.bar": (2, 4.0),
    }


# LRS-3
@pytest.mark.parametrize(
    ("listed", "passed"),
    [
        ([], set()),
        (["mem_utilization"], {".mem_utilization"}),
        (["cpu_utilization", "application_utilization"], {".cpu_utilization", ".application_utilization"}),
        (["named_metrics.foo"], {"named_metrics.foo"}),
        (["named_metrics.foo.bar", "named_metrics.absent"], {"named_metrics.foo.bar"}),
        (["named_metrics.*"], {"named_metrics.foo", "named_metrics.foo.bar"}),
        (["named_metrics.foo", "named_metrics.*"], {"named_metrics.foo", "named_metrics.foo.bar"}),
        (["*", "named_metrics", "utilization.gpu", "rps_fractional", "other", ""], set()),
    ],
)
def test_the_cluster_lists_which_metrics_are_passed_on(listed: list[str], passed: set[str]) -> None:
    loads = Loads(0.0)
    cluster = Cluster(name="c", lrs_report_endpoint_metrics=listed)
    recorder = loads.cluster("c", report_metrics=cluster.lrs_report_endpoint_metrics)
    recorder.started()
    recorder.finished(metrics={**orca_metrics(ORCA), "other": 3.0})
    stats = sent(loads)
    assert set(shown(stats)) == passed
    assert stats.total_successful_requests == 1


# LRS-3
def test_recorders_of_one_cluster_each_pass_on_what_they_were_told_to() -> None:
    """A change of the list in the Cluster is a new recorder; what the old one has counted is reported with it."""
    loads = Loads(0.0)
    old, new = (loads.cluster("c", report_metrics=[name]) for name in ("cpu_utilization", "mem_utilization"))
    for recorder in (old, old, new):
        recorder.started()
        recorder.finished(metrics=EVERYTHING)
    assert shown(sent(loads)) == {".cpu_utilization": (2, 1.0), ".mem_utilization": (1, 0.25)}


# LRS-3
def test_a_report_that_could_not_be_written_keeps_its_utilization() -> None:
    loads = Loads(0.0)
    loads.cluster("c").started()
    loads.cluster("c").finished(metrics={"cpu_utilization": 0.5})
    loads.put_back(loads.report(0.5))
    assert shown(sent(loads)) == {".cpu_utilization": (1, 0.5)}


# LRS-3
def test_a_server_understands_and_adds_up_utilization() -> None:
    message = LoadStatsRequest(node={"id": "a"})
    for cluster, cpu in (("shop", (4, 2.0)), ("cart", (1, 0.125))):
        stats = message.cluster_stats.add(cluster_name=cluster, load_report_interval={"seconds": 2})
        for priority in (0, 1):  # one place at two priorities
            place = stats.upstream_locality_stats.add(locality={"region": "eu"}, priority=priority)
            place.cpu_utilization.num_requests_finished_with_metric = cpu[0]
            place.cpu_utilization.total_metric_value = cpu[1] * (priority + 1)
            place.load_metric_stats.add(
                metric_name="named_metrics.foo", num_requests_finished_with_metric=1, total_metric_value=3
            )
    reports = LoadReports(xp.Settings(), lambda _: ())
    reports.open(Facts()).receive(decode_request(message.SerializeToString()), 0.0)
    (client,) = reports.clients(0.0)
    found = {each.cluster: each.localities[0].metrics for each in client.clusters}
    assert {name: (each.per_second, each.mean) for name, each in found["shop"].items()} == {
        "cpu_utilization": (4.0, 0.75),
        "named_metrics.foo": (1.0, 3.0),
    }
    assert found["cart"]["cpu_utilization"].mean == 0.1875


# LRS-3
def test_utilization_that_is_told_twice_counts_once() -> None:
    """Clients from before A85 have it among the named metrics; some may send both."""
    message = LoadStatsRequest(node={"id": "a"})
    stats = message.cluster_stats.add(cluster_name="shop", load_report_interval={"seconds": 1})
    place = stats.upstream_locality_stats.add()
    place.mem_utilization.num_requests_finished_with_metric = 2
    place.mem_utilization.total_metric_value = 1.0
    for name in ("mem_utilization", "cpu_utilization"):
        place.load_metric_stats.add(metric_name=name, num_requests_finished_with_metric=2, total_metric_value=1.0)
    (report,) = decode_request(message.SerializeToString()).reports
    found = [(each.name, each.requests, each.total) for each in report.localities[0].metrics]
    assert found == [("mem_utilization", 2, 1.0), ("cpu_utilization", 2, 1.0)]


# LRS-3
def test_utilization_that_is_no_number_is_an_error_of_its_cluster() -> None:
    message = LoadStatsRequest(node={"id": "a"})
    stats = message.cluster_stats.add(cluster_name="shop", load_report_interval={"seconds": 1})
    place = stats.upstream_locality_stats.add()
    place.cpu_utilization.num_requests_finished_with_metric = 1
    place.cpu_utilization.total_metric_value = float("nan")
    reports = LoadReports(xp.Settings(), lambda _: ())
    reporter = reports.open(Facts())
    reporter.receive(decode_request(message.SerializeToString()), 0.0)
    assert reporter.node == Node("a")
    assert reporter.errors["shop"][1].startswith("total_metric_value of 'cpu_utilization' is nan")
