"""Traces of revisions, as a collector of OpenTelemetry gets them, and what decides which spans there are."""

from __future__ import annotations

import asyncio
import http.server
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node
from opentelemetry.sdk.trace import TracerProvider

from tests.admin.relay_rig import RelayOffice, Upstream, write_bootstrap
from tests.admin.rig import Peer, eventually_async
from tests.admin.test_metrics_session import Served, cluster
from tests.cli.rig import environment, write
from tests.support import web
from xdsprism import CLUSTER, Store
from xdsprism.config import RelayConfig
from xdsprism.core.model.events import Rejection
from xdsprism.core.model.facts import Acked, Fact, Nacked, Routine, Sent
from xdsprism.core.model.store import Applied
from xdsprism.core.model.store import Store as CoreStore
from xdsprism.core.model.types import Change
from xdsprism.observe import tracing
from xdsprism.observe.revision_spans import LINKS, MOST, PATIENCE, QUIET, Revision, RevisionSpans
from xdsprism.observe.tracing import Tracing, begin_tracing, is_configured

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SECRET = "s3cr3t-t0ken"


class Collector:
    """Takes OTLP in JSON over HTTP, and keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.text = ""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        self.text += body.decode()
        for found in json.loads(body)["resourceSpans"]:
            self.resources.append(values(found["resource"]["attributes"]))
            for scope in found["scopeSpans"]:
                self.spans += scope["spans"]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == f"xdsprism.{name}"]


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """The attributes of a span or resource as plain values."""
    found = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        if kind == "arrayValue":
            value = [part["stringValue"] for part in value["values"]]
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    running = Collector()
    monkeypatch.setenv(ENDPOINT, running.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{SECRET}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    yield running
    running.close()


@pytest.fixture
async def served(collector: Collector, tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path / "config") as running:
        yield running


async def test_a_revision_is_one_trace_from_its_publication_to_the_acks(served: Served, collector: Collector):
    async def published() -> list[Any]:
        return [values(span["attributes"])["xdsprism.revision"] for span in collector.named("publish")]

    await eventually_async(published, [1])
    async with Peer(served.listen, delta=True) as good, Peer(served.listen, delta=False) as bad:
        first = await good.ask(CLUSTER, ["*"], node=Node(id="good"))
        await good.send(type_url=CLUSTER, response_nonce=first.nonce)
        other = await bad.ask(CLUSTER, ["a"], node=Node(id="bad"))
        await bad.send(
            type_url=CLUSTER, resource_names=["a"], version_info=other.version_info, response_nonce=other.nonce
        )
        await eventually_async(lambda: served.value('xdsprism_acks_total{type="cds"}'), 2)
        write(served.folder, "a", cluster(alt_stat_name="new"))
        update, other_update = await good.read(), await bad.read()
        await good.send(type_url=CLUSTER, response_nonce=update.nonce)
        await bad.send(
            type_url=CLUSTER,
            resource_names=["a"],
            version_info=other.version_info,
            response_nonce=other_update.nonce,
            error_detail={"code": 3, "message": f"password: {SECRET}"},
        )
        await eventually_async(published, [1, 2])
        await eventually_async(lambda: asyncio.sleep(0, len(collector.named("ack"))), 1)
    start, root = collector.named("publish")
    assert values(start["attributes"]) == {
        "xdsprism.revision": 1,
        "xdsprism.changed": 1,
        "xdsprism.types": ["cds"],
    }
    assert not start.get("parentSpanId")
    (push,) = collector.named("push")  # nobody was there for revision 1
    assert values(push["attributes"]) == {
        "xdsprism.revision": 2,
        "xdsprism.type": "cds",
        "xdsprism.responses": 2,
        "xdsprism.resources": 2,
        "xdsprism.acks": 1,
        "xdsprism.nacks": 1,
        "xdsprism.acks_without_link": 0,
    }
    assert (push["traceId"], push["parentSpanId"]) == (root["traceId"], root["spanId"])
    assert push["status"]["message"] == "1 NACK(s)"
    (ack,) = collector.named("ack")
    assert ack["traceId"] != root["traceId"]
    assert [link["spanId"] for link in push["links"]] == [ack["spanId"]]
    assert [link["spanId"] for link in ack["links"]] == [push["spanId"]]
    times = [int(each) for each in (root["startTimeUnixNano"], push["startTimeUnixNano"], push["endTimeUnixNano"])]
    assert times == sorted(times)
    assert push["endTimeUnixNano"] == root["endTimeUnixNano"]
    assert int(ack["startTimeUnixNano"]) < int(ack["endTimeUnixNano"])
    assert all(resource["service.name"] == "xdsprism" for resource in collector.resources)
    assert SECRET not in collector.text  # OPS-14


async def test_what_is_left_is_sent_when_the_server_stops(collector: Collector, tmp_path: Path):
    async with Served(tmp_path / "config") as served, Peer(served.listen, delta=True) as peer:
        first = await peer.ask(CLUSTER, ["*"])
        await peer.send(type_url=CLUSTER, response_nonce=first.nonce)
        await eventually_async(lambda: served.value('xdsprism_acks_total{type="cds"}'), 1)
        write(served.folder, "a", cluster(alt_stat_name="new"))
        await peer.read()  # it never answers, so the revision is not over
    pushes = [values(span["attributes"]) for span in collector.named("push")]
    last = [push for push in pushes if push["xdsprism.revision"] == 2]
    assert [(push["xdsprism.responses"], push["xdsprism.acks"]) for push in last] == [(1, 0)]


async def test_a_relay_traces_what_it_publishes(collector: Collector, tmp_path: Path):
    store = Store()
    with store.transaction() as tx:
        tx.put(Cluster(name="a"))
    upstream = Upstream(store, web.free_port())
    await upstream.start()
    config = RelayConfig(write_bootstrap(tmp_path, upstream.address), "127.0.0.1:0", "127.0.0.1:0")
    async with RelayOffice(config) as relay, Peer(relay.listen, delta=True) as peer:
        await peer.ask(CLUSTER, ["a"])
    await upstream.stop()
    (root,) = collector.named("publish")
    assert values(root["attributes"])["xdsprism.types"] == ["cds"]
    (push,) = collector.named("push")
    assert values(push["attributes"])["xdsprism.responses"] == 1


async def test_a_collector_that_hangs_holds_up_no_stop(caplog: pytest.LogCaptureFixture):
    released = threading.Event()

    class Hanging(TracerProvider):
        def shutdown(self) -> None:
            released.wait()

    traced = Tracing(CoreStore(), str, Hanging(shutdown_on_exit=False))
    traced.flush = 0.05
    await traced.close()
    released.set()
    assert "the collector did not take the last traces in 0.05 s: they are lost" in caplog.text


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_the_standard_variables_decide(variables: dict[str, str], expected: bool):
    assert is_configured(variables) == expected


async def test_without_the_extra_a_warning_says_what_to_install(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    del served

    def fail() -> None:
        raise ImportError(name="opentelemetry.sdk")

    monkeypatch.setattr(tracing, "_provider", fail)  # the import fails where the extra is not installed
    with caplog.at_level(logging.WARNING, "xdsprism"):
        assert begin_tracing(CoreStore(), str) is None
    assert "pip install 'xdsprism[otel]'" in caplog.text


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_another_protocol_is_a_warning_that_says_what_to_set(
    variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv(ENDPOINT, "http://collector:4317")
    monkeypatch.setenv(variable, "grpc")
    assert begin_tracing(CoreStore(), str) is None
    assert "is grpc, and only http/json is spoken: set it to that, and the endpoint to the port" in caplog.text


def test_without_the_variables_nothing_of_opentelemetry_is_imported():
    program = "import sys, xdsprism.app\nprint([name for name in sys.modules if name.startswith('opentelemetry')])"
    variables = {name: value for name, value in environment().items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_the_exporter_can_be_imported_next_to_xds_protos():
    program = (
        "import envoy.config.cluster.v3.cluster_pb2\n"
        "from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter\n"
        "print(OTLPSpanExporter.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "OTLPSpanExporter\n"


# -- what decides


class Story:
    """Revisions of clusters, and what clients did, at times of the test's choosing."""

    def __init__(self) -> None:
        self.spans = RevisionSpans(lambda type_url: "cds" if type_url == CLUSTER else "other")

    def publish(self, revision: int, at: float, names: int = 1) -> None:
        changes = tuple(Change(revision, CLUSTER, f"c{number}", None, None) for number in range(names))
        self.spans.published(Applied(revision, changes), at)

    def see(self, at: float, *facts: Fact) -> None:
        self.spans.see(facts, at)

    def over(self, at: float) -> list[Revision]:
        return self.spans.take(at)


def test_ten_thousand_acks_make_a_bounded_number_of_spans_and_the_slowest_are_kept():
    story = Story()
    story.publish(1, 10.0)
    waits = [0.95 + 0.00005 * (number % 1000) for number in range(10_000)]
    story.see(10.0, Routine(CLUSTER, 10_000, 10_000))
    story.see(11.0, Routine(CLUSTER, 0, 0, waits))
    (revision,) = story.over(10.0 + QUIET)
    push = revision.pushes["cds"]
    assert (push.responses, push.acks) == (10_000, 10_000)
    assert len(revision.slowest) == LINKS
    assert {ack.seconds for ack in revision.slowest} == {waits[998], waits[999]}


def test_a_revision_is_over_when_all_have_answered_or_after_a_while():
    story = Story()
    story.publish(1, 10.0)
    story.publish(2, 11.0)
    story.see(11.1, Sent(1, CLUSTER, "2.cds", 1, 0))
    assert [each.number for each in story.over(12.5)] == [1]  # nobody was there
    assert story.over(11.0 + PATIENCE - 0.1) == []
    assert [each.number for each in story.over(11.0 + PATIENCE)] == [2]
    story.publish(3, 50.0)
    story.see(50.1, Sent(1, CLUSTER, "3.cds", 1, 0))
    story.see(50.2, Nacked(1, CLUSTER, "3.cds", "v", Rejection(3, "no")))
    assert story.over(50.1 + QUIET - 0.01) == []
    assert [each.pushes["cds"].nacks for each in story.over(50.1 + QUIET + 0.01)] == [1]


def test_a_nonce_says_which_revision_a_response_and_its_ack_are_for():
    story = Story()
    story.publish(1, 10.0)
    story.see(10.1, Sent(1, CLUSTER, "1.cds", 1, 0))
    story.publish(2, 10.5)
    story.see(10.6, Sent(2, CLUSTER, "1.cds", 1, 0), Sent(1, CLUSTER, "2.cds.1", 3, 0))
    story.see(12.0, Acked(1, CLUSTER, "1.cds", 1.9), Acked(2, CLUSTER, "1.cds", 1.4))
    story.see(12.1, Acked(1, CLUSTER, "2.cds.1", 1.5), Acked(1, CLUSTER, "7.cds", 1.5), Acked(1, CLUSTER, "", 1.5))
    first, second = story.spans.take_all()
    assert (first.pushes["cds"].responses, first.pushes["cds"].acks) == (2, 2)
    # What names no revision of the store, as under a policy, counts for the newest one at that time.
    assert (second.pushes["cds"].responses, second.pushes["cds"].acks, second.pushes["cds"].resources) == (1, 3, 3)


def test_who_connects_later_is_sent_no_push_of_the_revision():
    story = Story()
    story.publish(1, 10.0)
    story.see(10.1, Sent(1, CLUSTER, "1.cds", 1, 0))  # and this client does not answer
    story.see(10.1 + QUIET, Sent(2, CLUSTER, "1.cds", 1, 0), Routine(CLUSTER, 5, 5))
    story.see(12.0, Acked(2, CLUSTER, "1.cds", 0.5), Routine(CLUSTER, 0, 0, [0.5]))
    (revision,) = story.spans.take_all()
    assert (revision.pushes["cds"].responses, revision.pushes["cds"].acks) == (1, 0)


def test_the_acks_of_the_fast_path_belong_to_the_revision_that_was_newest_when_it_pushed():
    story = Story()
    story.publish(1, 10.0)
    story.see(10.01, Routine(CLUSTER, 2, 2))
    story.publish(2, 10.5)
    story.see(10.51, Routine(CLUSTER, 2, 2, [0.5, 0.5, 0.0]))
    first, second = story.spans.take_all()
    assert (first.pushes["cds"].acks, second.pushes["cds"].acks) == (2, 1)


def test_no_more_than_so_many_revisions_are_kept():
    story = Story()
    for number in range(MOST + 10):
        story.publish(number, 10.0 + number / 1000)
        story.see(10.0 + number / 1000, Routine(CLUSTER, 1, 1))
    assert [each.number for each in story.over(10.3)] == [*range(10)]
    assert [each.number for each in story.spans.take_all()] == [*range(10, MOST + 10)]
