"""Load reports: what the server requests, and what it keeps and shows."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import Any

import pytest
from envoy.service.load_stats.v2 import lrs_pb2 as v2
from envoy.service.load_stats.v3 import lrs_pb2 as v3
from google.protobuf.duration_pb2 import Duration

from xdsprism.core.codec.loads import LARGEST, decode_answer, decode_request, decoding, encode_answer, encode_request
from xdsprism.core.loads.load_reports import (
    ERRORS,
    GUARANTEED,
    LONGEST,
    MISSED,
    LoadMessage,
    LoadReports,
    LocalityRates,
    Reporter,
)
from xdsprism.core.loads.loads import (
    NOWHERE,
    ClusterReport,
    LoadAnswer,
    LoadRequest,
    Locality,
    LocalityReport,
    MetricReport,
)
from xdsprism.core.model.events import SEND_ALL_CLUSTERS, Node
from xdsprism.core.model.facts import Facts, LoadsHeard, LoadsRefused
from xdsprism.core.model.settings import Limits, Settings
from xdsprism.core.model.steps import EVERY, finish
from xdsprism.core.model.types import Params
from xdsprism.errors import PeerError

HERE, THERE = Locality("eu", "eu-1", "a"), Locality("eu", "eu-2")
NODE = Node("shop-1", features=frozenset({SEND_ALL_CLUSTERS}))
INTERVAL = 10.0


class Desk:
    """A server's end of load reports."""

    def __init__(self, **settings: Any) -> None:
        self.facts = Facts()
        self.clusters = ["shop", "checkout"]
        self.asked: list[Params] = []
        self.reports = LoadReports(Settings(load_interval=INTERVAL, **settings), self._seen)

    def _seen(self, params: Params) -> list[str]:
        self.asked.append(params)
        return self.clusters

    def open(self, node: Node | None = NODE) -> Reporter:
        reporter = self.reports.open(self.facts)
        reporter.receive(LoadMessage(node), 0.0)
        return reporter

    def refused(self) -> list[LoadsRefused]:
        return [fact for fact in self.facts if isinstance(fact, LoadsRefused)]


def report(
    cluster: str = "shop",
    *localities: LocalityReport,
    interval: float = INTERVAL,
    drops: tuple[tuple[str, int], ...] = (),
) -> ClusterReport:
    return ClusterReport(cluster, "", 0.0, interval, localities or (LocalityReport(HERE, 20, 10, 5, 3),), drops)


def heard(*reports: ClusterReport) -> LoadMessage:
    return LoadMessage(None, reports)


# -- what is asked for


# LRS-1
def test_the_first_request_is_answered_and_the_others_are_not():
    reporter = LoadReports(Settings(), lambda _: ()).open(Facts())
    assert reporter.poll() is None
    reporter.receive(LoadMessage(NODE), 0.0)
    assert reporter.poll() == LoadAnswer(10.0, send_all=True)
    reporter.receive(heard(report()), 10.0)
    assert reporter.poll() is None


# LRS-1
def test_clusters_that_are_set_are_the_ones_that_are_asked_for():
    reporter = Desk(load_clusters=frozenset({"a", "b"})).open()
    assert reporter.poll() == LoadAnswer(INTERVAL, frozenset({"a", "b"}))
    assert not reporter.lists


# LRS-1: a client that can't be told to report all is told which there are, and again when there are others
def test_a_client_without_send_all_clusters_gets_a_list_that_is_kept_up_to_date():
    desk = Desk(node_params=["env"])
    reporter = desk.open(Node("old", metadata=Params({"env": "prod", "pod": "7"})))
    assert reporter.lists
    assert reporter.poll() == LoadAnswer(INTERVAL, frozenset({"shop", "checkout"}))
    assert desk.asked == [Params({"env": "prod"})]
    assert reporter.poll() is None
    desk.clusters.append("cart")
    reporter.clusters_changed()
    assert reporter.poll() == LoadAnswer(INTERVAL, frozenset({"shop", "checkout", "cart"}))


# DYN-48: what a wildcard sees that sends no params
def test_the_clusters_of_that_list_are_those_for_the_defaults_too():
    desk = Desk(node_params=["env"], default_params={None: Params({"env": "test", "zone": "z"})})
    desk.open(Node("old", metadata=Params({"env": "prod"}))).poll()
    assert desk.asked == [Params({"env": "prod", "zone": "z"})]


# -- rates


# LRS-1
def test_reports_become_rates_by_client_cluster_and_locality():
    desk = Desk()
    place = LocalityReport(THERE, 5, 4, 1, 0, (MetricReport("cpu", 4, 2.0), MetricReport("none", 0, 0.0)))
    desk.open().receive(heard(report("shop", LocalityReport(HERE, 20, 10, 5, 3), place, drops=(("lb", 30),))), 10.0)
    (client,) = desk.reports.clients(11.0)
    (cluster,) = client.clusters
    assert (client.node, client.streams, client.errors) == ("shop-1", 1, {})
    assert (cluster.cluster, cluster.service, cluster.heard_at, cluster.drops) == ("shop", "", 10.0, {"lb": 3.0})
    here, there = cluster.localities
    assert here == LocalityRates(HERE, 2.0, 1.0, 0.5, 3)
    assert (there.locality, there.issued, there.succeeded, there.failed) == (THERE, 0.5, 0.4, 0.1)
    assert {name: (each.per_second, each.mean) for name, each in there.metrics.items()} == {
        "cpu": (0.4, 0.5),
        "none": (0.0, None),
    }
    assert [*desk.facts][-1] == LoadsHeard("shop-1", 1)


def test_the_interval_of_the_report_counts_and_the_next_report_takes_its_place():
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(report(interval=2.0)), 2.0)
    assert desk.reports.clients(2.0)[0].clusters[0].localities[0].issued == 10.0
    reporter.receive(heard(report(interval=4.0)), 6.0)
    assert desk.reports.clients(6.0)[0].clusters[0].localities[0].issued == 5.0


def test_clients_of_one_id_and_priorities_of_one_place_add_up():
    desk = Desk()
    one, other = desk.open(), desk.open()
    one.receive(heard(report("shop", LocalityReport(HERE, 20, 0, 0, 1), LocalityReport(HERE, 10, 0, 0, 1))), 10.0)
    other.receive(heard(report("shop", LocalityReport(HERE, 10, 0, 0, 1), interval=5.0)), 10.0)
    desk.open(Node("b")).receive(heard(report()), 10.0)
    clients = desk.reports.clients(10.0)
    assert [(client.node, client.streams) for client in clients] == [("b", 1), ("shop-1", 2)]
    assert clients[1].clusters[0].localities == (LocalityRates(HERE, 5.0, in_progress=3),)


# -- the end of what is known


# LRS-1
def test_a_cluster_without_a_report_for_three_intervals_is_forgotten():
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(report("shop"), report("slow", interval=100.0)), 0.0)
    assert len(desk.reports.clients(MISSED * INTERVAL)[0].clusters) == 2
    assert [each.cluster for each in desk.reports.clients(MISSED * INTERVAL + 0.1)[0].clusters] == ["slow"]
    reporter.receive(heard(), 200.0)
    assert [key for key, _ in reporter._kept] == ["slow"]  # noqa: SLF001 # what silent clusters leave behind costs memory, and is reported to nobody


def test_closing_a_load_stream_removes_its_reports():
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(report()), 0.0)
    assert len(desk.reports) == 1
    reporter.close()
    reporter.close()
    assert (len(desk.reports), desk.reports.clients(0.0)) == (0, [])


def test_an_anonymous_client_counts_too_and_one_that_said_nothing_does_not():
    desk = Desk()
    desk.reports.open(desk.facts)
    assert desk.reports.clients(0.0) == []
    desk.open(None)
    assert [client.node for client in desk.reports.clients(0.0)] == [""]


# -- nonsense


NONSENSE = {
    "no cluster": (report(""), "cluster_name is empty"),
    "a long name": (report("x" * 5000), "a name of more than 4096 characters"),
    "no interval": (report(interval=0.0), "load_report_interval is 0 seconds: it must be positive"),
    "a negative interval": (report(interval=-1.0), "load_report_interval is -1 seconds"),
    "an endless interval": (report(interval=LONGEST * 2), "load_report_interval is 6.32448e+07 seconds"),
    "no time at all": (report(interval=nan), "load_report_interval is not a finite number of seconds"),
    "issued": (report("c", LocalityReport(HERE, 2**64 - 1, 0, 0, 0)), "total_issued_requests is 18446744073709551615"),
    "succeeded": (report("c", LocalityReport(HERE, 0, 2**63, 0, 0)), "total_successful_requests is"),
    "failed": (report("c", LocalityReport(HERE, 0, 0, 2**63, 0)), "total_error_requests is"),
    "in progress": (report("c", LocalityReport(HERE, 0, 0, 0, 2**63)), "total_requests_in_progress is"),
    "dropped": (report(drops=(("", 2**63),)), "total_dropped_requests is"),
    "dropped for a reason": (report(drops=(("lb", 2**63),)), "dropped_requests of 'lb' is"),
    "nan": (report("c", LocalityReport(HERE, 0, 0, 0, 0, (MetricReport("cpu", 1, nan),))), "of 'cpu' is nan"),
    "inf": (report("c", LocalityReport(HERE, 0, 0, 0, 0, (MetricReport("cpu", 1, -inf),))), "of 'cpu' is -inf"),
    "metrics": (
        report("c", LocalityReport(HERE, 0, 0, 0, 0, (MetricReport("cpu", 2**63, 1),))),
        "with_metric of 'cpu'",
    ),
}


# LRS-1
@pytest.mark.parametrize(("bad", "message"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_an_error_of_its_own_and_the_rest_counts(bad: ClusterReport, message: str):
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(bad, report("good")), 7.0)
    (refused,) = desk.refused()
    assert (refused.node, refused.news) == ("shop-1", True)
    assert message in refused.message
    (client,) = desk.reports.clients(7.0)
    assert [cluster.cluster for cluster in client.clusters] == ["good"]
    assert client.errors == {refused.cluster: (7.0, refused.message)}
    assert [*desk.facts][-1] == LoadsHeard("shop-1", 1)


def test_nonsense_that_goes_on_is_no_news_and_leaves_the_last_good_report_alone():
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(report()), 0.0)
    for now in (1.0, 2.0):
        reporter.receive(heard(report(interval=0.0)), now)
    reporter.receive(heard(report(interval=-1.0)), 3.0)
    assert [fact.news for fact in desk.refused()] == [True, False, True]
    assert desk.reports.clients(3.0)[0].clusters[0].heard_at == 0.0
    reporter.receive(heard(report()), 4.0)
    assert desk.reports.clients(4.0)[0].errors == {}


def test_errors_are_remembered_to_a_bound():
    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(*(report(f"c{number}", interval=0.0) for number in range(ERRORS + 5))), 0.0)
    assert len(reporter.errors) == ERRORS
    assert "c0" not in reporter.errors
    assert f"c{ERRORS + 4}" in reporter.errors


def test_a_stream_keeps_so_much_and_no_more():
    desk = Desk(limits=Limits(loads=4))
    reporter = desk.open()
    reporter.receive(heard(report("a"), report("b"), report("c")), 0.0)
    assert [(fact.cluster, fact.message) for fact in desk.refused()] == [
        ("c", "more than 4 clusters and localities on one stream")
    ]
    reporter.receive(heard(report("a"), report("b")), 1.0)  # in place of what was there
    assert len(desk.refused()) == 1
    large = report("b", drops=(("category", 1),))
    reporter.receive(heard(large), 2.0)  # too much in place of what was there, so that stays
    assert len(desk.refused()) == 2
    assert [each.heard_at for each in desk.reports.clients(2.0)[0].clusters] == [1.0, 1.0]
    reporter.receive(heard(report("c")), 100.0)  # the others are old by now
    assert [cluster.cluster for cluster in desk.reports.clients(100.0)[0].clusters] == ["c"]


# OPS-10: a message of a few bytes costs no look at all that is kept
def test_small_reports_do_not_look_at_all_that_is_kept(monkeypatch: pytest.MonkeyPatch):
    looks = 0
    is_old = Reporter._is_old  # noqa: SLF001 # what is looked at is what a report costs

    def counted(reporter: Reporter, *given: Any) -> bool:
        nonlocal looks
        looks += 1
        return is_old(reporter, *given)

    desk = Desk()
    reporter = desk.open()
    reporter.receive(heard(*(report(f"c{number}") for number in range(500))), 0.0)
    monkeypatch.setattr(Reporter, "_is_old", counted)  # see above
    for number in range(100):
        reporter.receive(heard(report("c1")), 1.0 + number / 1_000)
    assert looks <= 2 * 500


# OPS-10: it would look at all clusters of the server
def test_the_list_of_clusters_is_not_sent_again_before_it_changes():
    desk = Desk()
    reporter = desk.open(Node("old"))
    assert reporter.poll() is not None
    for number in range(10):
        reporter.receive(heard(report()), float(number))
        assert reporter.poll() is None
    assert len(desk.asked) == 1


def test_all_streams_together_keep_so_much_and_each_may_keep_some():
    desk = Desk(limits=Limits(loads=10_000, all_loads=2 * GUARANTEED))
    greedy, modest = desk.open(), desk.open(Node("modest"))
    greedy.receive(heard(*(report(f"c{number}") for number in range(GUARANTEED + 10))), 0.0)
    assert desk.refused()
    assert {fact.message for fact in desk.refused()} == {
        f"all streams together have {2 * GUARANTEED} clusters and localities, and no more are accepted"
    }
    assert desk.reports.held == 2 * GUARANTEED
    modest.receive(heard(*(report(f"m{number}") for number in range(GUARANTEED // 2))), 0.0)
    assert {fact.node for fact in desk.refused()} == {"shop-1"}
    greedy.close()
    modest.receive(heard(report("more")), 1.0)
    assert {fact.node for fact in desk.refused()} == {"shop-1"}
    modest.close()
    assert desk.reports.held == 0


# OPS-10
def test_rates_of_very_many_are_computed_in_steps():
    desk = Desk()
    one, other = desk.open(), desk.open()
    places = [LocalityReport(Locality(f"r{number % 300}"), 1, 1, 0, 0) for number in range(600)]
    for reporter in one, other:
        reporter.receive(heard(report("wide", *places), *(report(f"c{number}") for number in range(1_000))), 0.0)
    assert sum(1 for _ in desk.reports.listing(0.0)) > 2 * 2 * 1_000 / EVERY
    (client,) = desk.reports.clients(0.0)
    assert [each.cluster for each in client.clusters] == sorted(each.cluster for each in client.clusters)
    (wide,) = (each for each in client.clusters if each.cluster == "wide")
    assert [place.issued for place in wide.localities] == [4 / INTERVAL] * 300


# -- bytes


# OPS-10
def test_a_long_report_is_read_in_steps_and_means_the_same():
    request = v3.LoadStatsRequest()
    request.node.id = "me"
    request.node.metadata.update({"env": "prod", "much": "x" * 200_000})
    for number in range(3_000):
        stats = request.cluster_stats.add(cluster_name=f"c{number}", total_dropped_requests=3)
        stats.load_report_interval.FromSeconds(10)
        stats.dropped_requests.add(category="lb", dropped_count=2)
        stats.upstream_locality_stats.add().load_metric_stats.add(metric_name="m", total_metric_value=1.0)
    wide = request.cluster_stats.add(cluster_name="wide", cluster_service_name="s")
    for number in range(5_000):
        wide.upstream_locality_stats.add().locality.region = f"r{number}"
    message = request.SerializeToString()
    steps = decoding(message, ["env"])
    assert sum(1 for _ in steps) > 8_000 / EVERY
    found = finish(decoding(message, ["env"]))
    at_once = decode_request(message, ["env"])
    assert found.reports == at_once.reports
    assert found.node is not None
    assert found.node.id == "me"
    assert found.node.metadata["env"] == "prod"


# OPS-10
def test_a_report_that_is_too_large_is_refused_by_cluster_and_the_others_count():
    request = v3.LoadStatsRequest()
    for name in ("a", "huge", "b"):
        request.cluster_stats.add(cluster_name=name).load_report_interval.FromSeconds(10)
    huge = request.cluster_stats[1].upstream_locality_stats
    while request.cluster_stats[1].ByteSize() <= LARGEST:
        huge.add().locality.region = "r" * 60_000
    desk = Desk()
    desk.open().receive(finish(decoding(request.SerializeToString())), 0.0)
    assert [(fact.cluster, fact.message) for fact in desk.refused()] == [("huge", "the report has more than 1 MiB")]
    assert [each.cluster for each in desk.reports.clients(0.0)[0].clusters] == ["a", "b"]


@pytest.mark.parametrize(
    "inside", [b"\x12\x7fx", b"\x12\x02\x0a\xff" + b"\x12\x00" * 5_000, b"\x12\x04\x0a\x02\xff\xff"]
)
def test_an_invalid_report_ends_the_stream_when_it_is_read_in_steps(inside: bytes):
    with pytest.raises(PeerError, match="not a load stats request"):
        finish(decoding(inside))


@pytest.mark.parametrize("version", [v2, v3])
def test_an_answer_is_the_same_in_both_versions_and_is_read_back(version: Any):
    # LRS-1, VER-10
    answer = LoadAnswer(2.5, frozenset({"b", "a"}))
    message = encode_answer(answer)
    proto = version.LoadStatsResponse.FromString(message)
    assert (list(proto.clusters), proto.send_all_clusters) == (["a", "b"], False)
    assert proto.load_reporting_interval == Duration(seconds=2, nanos=500_000_000)
    assert decode_answer(message) == answer
    assert decode_answer(encode_answer(LoadAnswer(1.0, send_all=True))) == LoadAnswer(1.0, send_all=True)


def test_a_load_request_is_decoded_as_it_was_encoded():
    # LRS-1, LRS-2
    place = LocalityReport(HERE, 4, 2, 1, 1, (MetricReport("cpu", 2, 0.5),))
    said = ClusterReport("shop", "eds", 3.0, 5.5, (place, LocalityReport(NOWHERE, 1, 0, 0, 1)), (("lb", 2), ("", 1)))
    node = v3.LoadStatsRequest().node
    node.id = "me"
    node.client_features.append(SEND_ALL_CLUSTERS)
    message = decode_request(encode_request(LoadRequest(first=True, reports=(said,)), node.SerializeToString()))
    assert message.node == Node("me", features=frozenset({SEND_ALL_CLUSTERS}))
    (heard_of,) = message.reports
    assert (heard_of.cluster, heard_of.service, heard_of.interval) == ("shop", "eds", 2.5)
    assert (heard_of.localities, heard_of.drops) == (said.localities, said.drops)
    assert decode_request(b"") == LoadMessage()


@pytest.mark.parametrize(
    "duration",
    [Duration(seconds=1, nanos=-1), Duration(seconds=-1, nanos=1), Duration(nanos=1_000_000_000)],
    ids=str,
)
def test_a_duration_whose_parts_do_not_go_together_is_no_number(duration: Duration):
    request = v3.LoadStatsRequest()
    request.cluster_stats.add(cluster_name="c").load_report_interval.CopyFrom(duration)
    (heard_of,) = decode_request(request.SerializeToString()).reports
    assert isnan(heard_of.interval)


def test_an_invalid_load_request_ends_the_stream():
    with pytest.raises(PeerError, match="not a load stats request") as caught:
        decode_request(b"\xff")
    assert caught.value.status == "INVALID_ARGUMENT"


def test_a_list_of_clusters_that_is_the_same_after_a_change_is_not_sent_again():
    desk = Desk()
    reporter = desk.open(Node("old"))
    assert reporter.poll() is not None
    reporter.clusters_changed()
    assert reporter.poll() is None
    assert len(desk.asked) == 2
