"""What the admin port and the metrics show of load reports, and of REST."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.admin.rig import Office
from xdsprism import Settings
from xdsprism.admin import load_model
from xdsprism.core.loads.load_reports import LoadMessage, LoadReports
from xdsprism.core.loads.loads import ClusterReport, Locality, LocalityReport, MetricReport
from xdsprism.core.model.events import Node
from xdsprism.core.model.facts import LoadsHeard, LoadsRefused, Polled
from xdsprism.core.model.steps import EVERY
from xdsprism.observe import load_metrics
from xdsprism.observe.load_metrics import LoadMetrics, place_of
from xdsprism.observe.metrics import RestMetrics

HERE, THERE = Locality("eu", "eu-1"), Locality("us")


def report(cluster: str = "shop", service: str = "", interval: float = 10.0) -> ClusterReport:
    places = (
        LocalityReport(HERE, 20, 10, 5, 3, (MetricReport("cpu", 4, 2.0), MetricReport("mem_utilization", 2, 0.5))),
        LocalityReport(THERE, 10, 10, 0, 0),
    )
    return ClusterReport(cluster, service, 0.0, interval, places, (("lb", 5),))


def series(text: bytes, name: str) -> dict[str, float]:
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text.decode(), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


# LRS-1
async def test_loads_lists_every_client_with_its_rates_and_invalid_reports(office: Office):
    hub = office.server.hub
    assert await office.page("/api/loads") == {
        "interval": 10.0,
        "clusters": "*",
        "total": 0,
        "offset": 0,
        "clients": [],
    }
    hub.reports.open(hub.facts).receive(LoadMessage(Node("b"), (report(), report("bad", interval=0.0))), hub.clock())
    hub.reports.open(hub.facts).receive(LoadMessage(Node("a")), hub.clock())
    page = await office.page("/api/loads")
    first, second = page["clients"]
    assert (page["total"], first) == (2, {"node": "a", "streams": 1, "clusters": [], "errors": []})
    (cluster,) = second["clusters"]
    assert (cluster["cluster"], cluster["service"], cluster["drops_per_second"]) == ("shop", "", {"lb": 0.5})
    assert cluster["localities"][0] == {
        "region": "eu",
        "zone": "eu-1",
        "sub_zone": "",
        "issued_per_second": 2.0,
        "succeeded_per_second": 1.0,
        "failed_per_second": 0.5,
        "in_progress": 3,
        "metrics": {
            "cpu": {"requests_per_second": 0.4, "mean": 0.5},
            "mem_utilization": {"requests_per_second": 0.2, "mean": 0.25},  # LRS-3
        },
    }
    (error,) = second["errors"]
    assert (error["cluster"], error["message"]) == (
        "bad",
        "load_report_interval is 0 seconds: it must be positive",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", cluster["time"])
    assert [each["node"] for each in (await office.page("/api/loads?offset=1&limit=1"))["clients"]] == ["b"]
    assert (await office.error("/api/loads?node=b"))[0] == 400


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


# LRS-1
def test_rates_are_gauges_by_client_cluster_and_locality(registry: CollectorRegistry):
    now = 0.0
    reports = LoadReports(Settings(), lambda _: ())
    metrics = LoadMetrics(registry, reports, lambda: now)
    message = LoadMessage(Node("a"), (report(), report(service="other name", interval=20.0), report("cart")))
    reports.open([]).receive(message, 0.0)
    text = generate_latest(registry)
    rates = series(text, "xdsprism_load_requests_per_second")
    assert rates['client="a",cluster="shop",locality="eu/eu-1",result="issued"'] == 3.0
    assert rates['client="a",cluster="shop",locality="us",result="succeeded"'] == 1.5
    assert rates['client="a",cluster="cart",locality="eu/eu-1",result="failed"'] == 0.5
    assert series(text, "xdsprism_load_requests_in_progress")['client="a",cluster="cart",locality="eu/eu-1"'] == 3
    assert series(text, "xdsprism_load_drops_per_second")['category="lb",client="a",cluster="shop"'] == 0.75
    assert series(text, "xdsprism_load_streams") == {"": 1}
    metrics([LoadsHeard("a", 2), LoadsRefused("a", "c", "no", news=True)])
    counted = series(generate_latest(registry), "xdsprism_load_reports_total")
    assert counted == {'result="ok"': 2, 'result="refused"': 1}
    now = 100.0
    assert series(generate_latest(registry), "xdsprism_load_requests_per_second") == {}


# LRS-3
def test_utilization_is_a_gauge_by_kind_and_a_mean_over_answers(registry: CollectorRegistry):
    def told(service: str, answers: int, total: float) -> ClusterReport:
        metrics = (MetricReport("cpu_utilization", answers, total), MetricReport("named_metrics.foo", 1, 9.0))
        return ClusterReport("shop", service, 0.0, 10.0, (LocalityReport(HERE, 1, 1, 0, 0, metrics),))

    reports = LoadReports(Settings(), lambda _: ())
    LoadMetrics(registry, reports, lambda: 0.0)
    unheard = LocalityReport(THERE, 1, 1, 0, 0, (MetricReport("mem_utilization", 0, 0.0),))
    message = (told("one", 1, 1.0), told("two", 3, 0.6), ClusterReport("cart", "", 0.0, 10.0, (unheard,)))
    reports.open([]).receive(LoadMessage(Node("a"), message), 0.0)
    found = series(generate_latest(registry), "xdsprism_load_utilization")
    assert found == {'client="a",cluster="shop",kind="cpu",locality="eu/eu-1"': pytest.approx(0.4)}


# What a client can make up must not become a label without end.
def test_there_are_so_many_series_and_no_more(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load_metrics, "MAX_SERIES", 2)
    reports = LoadReports(Settings(), lambda _: ())
    LoadMetrics(registry, reports, lambda: 0.0)
    reports.open([]).receive(LoadMessage(Node("a"), tuple(report(f"c{number}") for number in range(4))), 0.0)
    utilization = series(generate_latest(registry), "xdsprism_load_utilization")
    assert (len(utilization), utilization['client="other",cluster="other",kind="other",locality="other"']) == (3, 0.25)
    drops = series(generate_latest(registry), "xdsprism_load_drops_per_second")
    assert drops == {
        'category="lb",client="a",cluster="c0"': 0.5,
        'category="lb",client="a",cluster="c1"': 0.5,
        'category="other",client="other",cluster="other"': 1.0,
    }


# OPS-11: nor a label without end, which each scrape would carry.
def test_long_names_are_cut_and_stay_distinct(registry: CollectorRegistry):
    reports = LoadReports(Settings(), lambda _: ())
    LoadMetrics(registry, reports, lambda: 0.0)
    names = [f"{'evil' * 1_000}{number}" for number in range(2)]
    reports.open([]).receive(LoadMessage(Node("n" * 10_000), tuple(map(report, names))), 0.0)
    utilization = series(generate_latest(registry), "xdsprism_load_utilization")
    assert len(utilization) == 2
    assert all(len(labels) < 4 * 256 for labels in utilization)


@pytest.mark.parametrize(
    ("locality", "text"), [(Locality("a", "b", "c"), "a/b/c"), (Locality("", "b"), "/b"), (Locality(), "")]
)
def test_a_place_is_written_as_far_as_it_goes(locality: Locality, text: str):
    assert place_of(locality) == text


# RST-2
def test_answers_over_rest_are_counted_by_status(registry: CollectorRegistry):
    metrics = RestMetrics(registry)
    metrics([Polled(200), Polled(304), Polled(304, crowded=True)])
    text = generate_latest(registry)
    assert series(text, "xdsprism_rest_answers_total") == {'status="200"': 1, 'status="304"': 2}
    assert series(text, "xdsprism_rest_not_held_total") == {"": 1}


# OPS-10: clients choose how much they report
async def test_a_page_shows_a_bounded_part_of_one_client_and_a_scrape_is_prepared_in_steps(office: Office):
    hub = office.server.hub
    wide = ClusterReport(
        "wide", "", 0.0, 10.0, tuple(LocalityReport(Locality(f"r{n}"), 1, 0, 0, 0) for n in range(900))
    )
    many = [report(f"c{number}") for number in range(1_500)]
    for node in "ab":
        hub.reports.open(hub.facts).receive(LoadMessage(Node(node), (wide, *many)), hub.clock())
    for client in (await office.page("/api/loads"))["clients"]:
        shown = client["clusters"]
        assert client["clusters_left_out"] == 1_501 - len(shown)
        assert sum(1 + len(each["localities"]) for each in shown) <= load_model.SHOWN
    registry = CollectorRegistry()
    metrics = LoadMetrics(registry, hub.reports, hub.clock)
    at_once = generate_latest(registry)
    assert sum(1 for _ in metrics.preparing()) > 2 * 3_900 / EVERY
    hub.reports.open(hub.facts)  # what was prepared is what a scrape has
    assert series(generate_latest(registry), "xdsprism_load_streams") == {"": 2.0}
    assert series(generate_latest(registry), "xdsprism_load_streams") == {"": 3.0}
    assert len(at_once) < 1_000_000
