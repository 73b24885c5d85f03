"""LRS-2: what a client counts, and when it reports."""

from __future__ import annotations

import pytest
from envoy.service.load_stats.v2 import lrs_pb2 as v2
from envoy.service.load_stats.v3 import lrs_pb2 as v3
from google.protobuf.duration_pb2 import Duration

from xdsprism.core.codec.loads import decode_answer, encode_request
from xdsprism.core.loads.loads import (
    DEFAULT_INTERVAL,
    NOWHERE,
    SHORTEST_INTERVAL,
    ClusterReport,
    LoadAnswer,
    LoadRequest,
    Loads,
    LoadSession,
    Locality,
    LocalityReport,
    MetricReport,
)
from xdsprism.errors import PeerError, UsageError

HERE = Locality("eu", "eu-1", "a")
THERE = Locality("eu", "eu-2")


def request(loads: Loads, cluster: str = "c") -> None:
    loads.cluster(cluster).started()
    loads.cluster(cluster).finished()


def issued(reports: tuple[ClusterReport, ...]) -> dict[str, int]:
    return {report.cluster: sum(place.issued for place in report.localities) for report in reports}


# -- counting


# LRS-2
def test_a_report_has_what_happened_in_each_locality() -> None:
    loads = Loads(100.0)
    cluster = loads.cluster("c", "eds")
    for _ in range(3):
        cluster.started(HERE)
    cluster.started(THERE)
    cluster.finished(HERE)
    cluster.finished(HERE, ok=False)
    assert loads.report(107.5) == (
        ClusterReport("c", "eds", 100.0, 107.5, (LocalityReport(HERE, 3, 1, 1, 1), LocalityReport(THERE, 1, 0, 0, 1))),
    )


# LRS-2
def test_counts_are_since_the_last_report_and_what_is_in_progress_is_as_of_now() -> None:
    loads = Loads(0.0)
    cluster = loads.cluster("c")
    cluster.started()
    cluster.started()
    loads.report(10.0)
    cluster.finished()
    cluster.started()
    assert loads.report(25.0) == (ClusterReport("c", "", 10.0, 25.0, (LocalityReport(NOWHERE, 1, 1, 0, 2),)),)
    assert loads.report(30.0) == (ClusterReport("c", "", 25.0, 30.0, (LocalityReport(NOWHERE, 0, 0, 0, 2),)),)


# LRS-2
def test_the_interval_is_the_time_since_the_last_report() -> None:
    loads = Loads(5.0)
    request(loads)
    assert loads.report(8.0)[0].interval == 3.0
    request(loads)
    assert loads.report(18.0)[0].interval == 10.0


# LRS-2
def test_drops_are_counted_by_category() -> None:
    loads = Loads(0.0)
    for category in ("lb", "throttle", "lb", ""):
        loads.cluster("c").dropped(category)
    (report,) = loads.report(1.0)
    assert report.drops == (("lb", 2), ("throttle", 1), ("", 1))
    assert loads.report(2.0) == ()


# LRS-2
def test_metrics_of_backends_are_added_up_with_the_number_of_answers_that_had_them() -> None:
    loads = Loads(0.0)
    cluster = loads.cluster("c")
    for metrics in ({"cpu": 0.5}, {"cpu": 0.25, "queue": 3.0}, None):
        cluster.started()
        cluster.finished(metrics=metrics)
    (report,) = loads.report(1.0)
    assert report.localities[0].metrics == (MetricReport("cpu", 2, 0.75), MetricReport("queue", 1, 3.0))
    cluster.started()
    assert loads.report(2.0)[0].localities[0].metrics == ()


# LRS-2
def test_clusters_and_localities_without_news_are_left_out() -> None:
    loads = Loads(0.0)
    loads.cluster("silent")
    loads.cluster("c").started(HERE)
    loads.cluster("c").finished(HERE)
    loads.cluster("c").started(THERE)
    assert [place.locality for place in loads.report(1.0)[0].localities] == [HERE, THERE]
    assert [place.locality for place in loads.report(2.0)[0].localities] == [THERE]
    loads.cluster("c").finished(THERE)
    assert issued(loads.report(3.0)) == {"c": 0}  # it finished
    assert loads.report(4.0) == ()


def test_a_silent_cluster_costs_nothing_and_its_recorder_still_works() -> None:
    loads = Loads(0.0)
    cluster = loads.cluster("c")
    cluster.started()
    cluster.finished()
    loads.report(1.0)
    assert not loads._clusters  # noqa: SLF001 # what silent clusters leave behind costs memory, and is reported to nobody
    loads.report(20.0)
    cluster.started()
    (report,) = loads.report(25.0)
    assert (report.interval, report.localities[0].issued) == (5.0, 1)


def test_services_of_one_cluster_are_reported_apart() -> None:
    loads = Loads(0.0)
    loads.cluster("c", "one").dropped()
    loads.cluster("c", "two").dropped()
    assert [(report.cluster, report.service) for report in loads.report(1.0)] == [("c", "one"), ("c", "two")]


def test_a_request_that_was_not_started_can_not_finish() -> None:
    loads = Loads(0.0)
    loads.cluster("c").started(HERE)
    with pytest.raises(UsageError, match="without started"):
        loads.cluster("c").finished(THERE)
    assert loads.report(1.0)[0].localities == (LocalityReport(HERE, 1, 0, 0, 1),)


def test_a_cluster_has_a_name() -> None:
    with pytest.raises(UsageError, match="give its name"):
        Loads(0.0).cluster("")


# -- the stream


# LRS-1, LRS-2
def test_the_first_request_says_who_we_are_and_nothing_of_loads() -> None:
    loads = Loads(0.0)
    request(loads)
    session = LoadSession(loads)
    assert session.poll(0.0) == LoadRequest(first=True)
    assert session.poll(1000.0) is None  # the server has not said what it wants
    assert session.deadline() is None


def answered(loads: Loads, answer: LoadAnswer, now: float = 0.0) -> LoadSession:
    session = LoadSession(loads)
    session.poll(now)
    session.receive(answer, now)
    return session


# LRS-2
def test_reports_go_out_at_the_interval_of_the_server() -> None:
    loads = Loads(0.0)
    session = answered(loads, LoadAnswer(5.0, send_all=True), now=2.0)
    request(loads)
    assert session.deadline() == 7.0
    assert session.poll(6.999) is None
    sent = session.poll(7.0)
    assert sent is not None
    assert (sent.first, issued(sent.reports)) == (False, {"c": 1})
    assert session.poll(7.0) is None
    assert session.deadline() == 12.0
    assert session.poll(12.5) == LoadRequest()  # nothing happened, and that is said too
    assert session.deadline() == 17.5


# LRS-1, LRS-2
def test_only_the_clusters_that_the_server_named_are_reported_and_the_rest_stays_counted() -> None:
    loads = Loads(0.0)
    session = answered(loads, LoadAnswer(5.0, frozenset({"a", "unknown"})))
    request(loads, "a")
    request(loads, "b")
    first = session.poll(5.0)
    assert first is not None
    assert issued(first.reports) == {"a": 1}
    session.receive(LoadAnswer(5.0, send_all=True), 6.0)
    request(loads, "b")
    second = session.poll(10.0)
    assert second is not None
    assert issued(second.reports) == {"b": 2}
    assert second.reports[0].interval == 10.0  # its own period, not that of the last report


# LRS-2
def test_a_server_that_names_no_cluster_hears_of_none() -> None:
    loads = Loads(0.0)
    session = answered(loads, LoadAnswer(5.0))
    request(loads)
    assert session.poll(5.0) == LoadRequest()
    assert issued(loads.report(6.0)) == {"c": 1}


# LRS-2
def test_a_new_answer_changes_the_interval_of_the_running_period() -> None:
    session = answered(Loads(0.0), LoadAnswer(60.0, send_all=True))
    session.receive(LoadAnswer(20.0, send_all=True), 10.0)
    assert session.deadline() == 20.0
    session.receive(LoadAnswer(5.0, send_all=True), 11.0)
    assert session.poll(11.0) == LoadRequest()  # overdue by the new interval


# LRS-2
def test_a_server_that_repeats_itself_does_not_put_the_report_off() -> None:
    session = answered(Loads(0.0), LoadAnswer(5.0, send_all=True))
    for now in (1.0, 2.0, 3.0, 4.0):
        session.receive(LoadAnswer(5.0, send_all=True), now)
    assert session.deadline() == 5.0


@pytest.mark.parametrize(
    ("interval", "wait"),
    [(0.0, DEFAULT_INTERVAL), (-3.0, DEFAULT_INTERVAL), (1e-9, SHORTEST_INTERVAL), (0.5, 0.5)],
)
def test_an_interval_that_can_not_be_is_replaced(interval: float, wait: float) -> None:
    assert DEFAULT_INTERVAL == 10.0
    assert answered(Loads(0.0), LoadAnswer(interval)).deadline() == wait


# LRS-2
def test_a_lost_stream_loses_no_count_that_was_not_sent() -> None:
    loads = Loads(0.0)
    answered(loads, LoadAnswer(5.0, send_all=True))
    request(loads)
    session = answered(loads, LoadAnswer(5.0, send_all=True), now=8.0)
    sent = session.poll(13.0)
    assert sent is not None
    assert issued(sent.reports) == {"c": 1}
    assert sent.reports[0].interval == 13.0


# LRS-2
def test_counts_that_were_sent_on_a_stream_that_broke_are_not_sent_again() -> None:
    loads = Loads(0.0)
    request(loads)
    answered(loads, LoadAnswer(5.0, send_all=True)).poll(5.0)
    assert answered(loads, LoadAnswer(5.0, send_all=True), now=6.0).poll(11.0) == LoadRequest()


# LRS-2
def test_a_report_that_could_not_be_written_is_part_of_the_next() -> None:
    loads = Loads(0.0)
    cluster = loads.cluster("c")
    cluster.started(HERE)
    cluster.started(HERE)
    cluster.started(THERE)
    cluster.finished(HERE, metrics={"cpu": 1.0})
    cluster.dropped("lb")
    session = answered(loads, LoadAnswer(5.0, send_all=True))
    lost = session.poll(5.0)
    assert lost is not None
    cluster.finished(HERE, ok=False, metrics={"cpu": 2.0})
    cluster.dropped("lb")
    session.unsent(lost)
    cluster.finished(THERE)
    (report,) = loads.report(9.0)
    assert report.interval == 9.0
    assert report.drops == (("lb", 2),)
    assert sorted(report.localities, key=lambda place: place.locality.zone) == [
        LocalityReport(HERE, 2, 1, 1, 0, (MetricReport("cpu", 2, 3.0),)),
        LocalityReport(THERE, 1, 1, 0, 0),
    ]


# -- protobuf


NODE = b"\x0a\x02id\x9a\x06\x01x"  # with a field that no version of Node knows

FULL = ClusterReport(
    "c",
    "eds",
    10.0,
    12.25,
    (LocalityReport(HERE, 4, 2, 1, 1, (MetricReport("cpu", 2, 0.75),)),),
    (("lb", 3), ("", 2)),
)


# VER-10: the bytes are good in both versions
@pytest.mark.parametrize("version", [v2, v3])
def test_a_report_reads_the_same_in_both_versions(version) -> None:
    proto = version.LoadStatsRequest.FromString(encode_request(LoadRequest(reports=(FULL,)), NODE))
    assert not proto.HasField("node")
    (stats,) = proto.cluster_stats
    assert (stats.cluster_name, stats.cluster_service_name) == ("c", "eds")
    assert stats.load_report_interval == Duration(seconds=2, nanos=250_000_000)
    assert stats.total_dropped_requests == 5
    assert [(drop.category, drop.dropped_count) for drop in stats.dropped_requests] == [("lb", 3)]
    (place,) = stats.upstream_locality_stats
    assert (place.locality.region, place.locality.zone, place.locality.sub_zone) == ("eu", "eu-1", "a")
    assert (place.total_issued_requests, place.total_successful_requests) == (4, 2)
    assert (place.total_error_requests, place.total_requests_in_progress) == (1, 1)
    (metric,) = place.load_metric_stats
    assert (metric.metric_name, metric.num_requests_finished_with_metric, metric.total_metric_value) == ("cpu", 2, 0.75)


# LRS-2, VER-5
def test_the_node_goes_out_as_it_is_given() -> None:
    message = encode_request(LoadRequest(first=True), NODE)
    assert v3.LoadStatsRequest.FromString(message).node.SerializeToString() == NODE
    assert message.endswith(NODE)


# VER-10: "the LRS client will parse responses as v3, regardless of the transport"
@pytest.mark.parametrize("version", [v2, v3])
def test_an_answer_of_either_version_is_read(version) -> None:
    interval = Duration(seconds=1, nanos=500_000_000)
    named = version.LoadStatsResponse(clusters=["a", "b"], load_reporting_interval=interval)
    assert decode_answer(named.SerializeToString()) == LoadAnswer(1.5, frozenset({"a", "b"}))
    everything = version.LoadStatsResponse(send_all_clusters=True)
    assert decode_answer(everything.SerializeToString()) == LoadAnswer(0.0, frozenset(), send_all=True)


def test_garbage_is_the_fault_of_the_server() -> None:
    with pytest.raises(PeerError, match="not a load stats response"):
        decode_answer(b"\xff\xff")
