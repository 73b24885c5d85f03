"""Log lines from facts, in both forms."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from xdsprism import CLUSTER, ROUTE
from xdsprism.core.model.events import Node, Rejection
from xdsprism.core.model.expr import parse
from xdsprism.core.model.facts import (
    Acked,
    Closed,
    ConfigLoaded,
    Drained,
    Fact,
    Forgotten,
    Joined,
    LoadsRefused,
    Nacked,
    Opened,
    OtherNode,
    Oversize,
    Published,
    Recovered,
    Refused,
    Requested,
    Sent,
    SubscriptionsRefused,
)
from xdsprism.core.model.history import ResourceChange, Revision
from xdsprism.core.model.types import Origin, make_variant
from xdsprism.observe.logs import FactLog, JsonFormatter, TextFormatter

NAME = "envoy.config.cluster.v3.Cluster"
ANSWERED = "such names are answered as not existing, all others are served (docs/limits.md)"
PROD = make_variant(ROUTE, "main", b"", parse("env=prod"), origin=Origin("routes.yaml", 7))
REST = make_variant(ROUTE, "other", b"")
REVISION = Revision(
    3,
    1.0,
    "file load",
    8,
    (
        ResourceChange(CLUSTER, "a", "added", ()),
        *[ResourceChange(CLUSTER, name, "removed", ()) for name in "bcde"],
        *[ResourceChange(ROUTE, name, "removed", ()) for name in "fg"],
    ),
)
FACTS: list[Fact] = [
    Opened(7, "/ads.Service/DeltaAggregatedResources", "ipv4:1.2.3.4:5"),
    Joined(7, Node("envoy-1", "web", "envoy")),
    Requested(7, CLUSTER),
    Sent(7, CLUSTER, "1.cds", 3, 0),
    Acked(7, CLUSTER, "1.cds", 0.1),
    Nacked(7, CLUSTER, "2.cds", "v2", Rejection(3, "bad\nline")),
    Nacked(7, ROUTE, "3.rds", "v3", Rejection(13, "no"), (), False, (PROD, *[REST] * 6)),
    Nacked(7, ROUTE, "4.rds", "v4", Rejection(13, "both?"), (), True, (PROD, REST)),
    Recovered(7, ROUTE, ("main", "other"), 12.34),
    Recovered(7, CLUSTER, (), 1.0),
    Oversize(7, CLUSTER, "huge", 5_000_000),
    Forgotten(7, CLUSTER, 3),
    Forgotten(7, CLUSTER, 1),
    SubscriptionsRefused(7, CLUSTER, "name_bytes", 3, "the name is too long"),
    SubscriptionsRefused(7, CLUSTER, "name_bytes", 1, "the name is too long"),
    SubscriptionsRefused(7, "acme/" + "x" * 5000, "type_url_bytes", 1, "no type"),
    OtherNode(7),
    Closed(7, "INVALID_ARGUMENT: no"),
    Opened(8, "/x/StreamRoutes", "ipv4:1.2.3.4:6"),
    Joined(8, Node()),
    Closed(8, ""),
    Opened(9, "/x/StreamRoutes", "ipv4:1.2.3.4:7"),
    Closed(9, ""),
    Published(2, 0),
    Published(3, 8, REVISION),
    ConfigLoaded(4, 12, 0),
    Drained("started", 3),
    Drained("ended", seconds=1.26),
    Refused(("a.yaml:1: x", "b.yaml:2: y")),
]


@pytest.fixture
def sink() -> Iterator[tuple[io.StringIO, logging.StreamHandler[io.StringIO]]]:
    stream = io.StringIO()
    output = logging.StreamHandler(stream)
    logger = logging.getLogger("xdsprism")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(output)
    yield stream, output
    logger.removeHandler(output)
    logger.setLevel(level)


# NAK-12, DYN-46
def test_facts_become_lines_for_people(sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]]):
    stream, output = sink
    output.setFormatter(TextFormatter())
    FactLog()(FACTS)
    lines = [line.split(" ", 1) for line in stream.getvalue().splitlines()]
    assert all(time.endswith("Z") for time, _ in lines)
    assert [text for _, text in lines] == [
        "INFO envoy-1 connected from ipv4:1.2.3.4:5 (DeltaAggregatedResources)",
        rf"WARNING envoy-1 NACKed {NAME}, nonce 2.cds: bad\nline",
        (
            "WARNING envoy-1 NACKed rds/main [env=prod] (routes.yaml:7), rds/other, rds/other, rds/other, rds/other "
            "and 2 more, nonce 3.rds: no"
        ),
        "WARNING envoy-1 NACKed one of rds/main [env=prod] (routes.yaml:7), rds/other, nonce 4.rds: both?",
        "INFO envoy-1 accepts rds/main, rds/other again, after 12.3 s",
        "INFO envoy-1 accepts cds again, after 1.0 s",
        f"WARNING envoy-1 is not sent {NAME} 'huge': 5000000 bytes are too many for a response",
        f"WARNING envoy-1 requests more unknown {NAME} than the server remembers: does it scan hosts?",
        f"WARNING envoy-1 exceeds the limit `name_bytes` with {NAME}: the name is too long; {ANSWERED}",
        f"WARNING envoy-1 exceeds the limit `type_url_bytes` with {'x' * 200}: no type; {ANSWERED}",
        "WARNING envoy-1 sent another node later on its stream, which is ignored",
        "WARNING envoy-1 disconnected: INVALID_ARGUMENT: no",
        "WARNING 2 more lines about envoy-1 were omitted",
        "INFO stream 8 connected from ipv4:1.2.3.4:6 (StreamRoutes)",
        "INFO stream 8 disconnected",
        "INFO stream 9 disconnected",
        "INFO revision 3 by file load: added cds/a, removed cds/b, cds/c, cds/d, cds/e, rds/f and 1 more, 1 not listed",
        "INFO configuration loaded: 12 resources in 4 files",
        "INFO shutting down: 3 streams are open",
        "INFO all streams have ended, after 1.3 s",
        "ERROR configuration refused, the last good one stays: a.yaml:1: x; b.yaml:2: y",
    ]


def test_json_has_every_field_by_its_name(sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]]):
    stream, output = sink
    output.setFormatter(JsonFormatter())
    FactLog()(FACTS)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    nack = next(line for line in lines if "NACKed envoy" in line["message"])
    assert nack["message"] == "envoy-1 NACKed envoy.config.cluster.v3.Cluster, nonce 2.cds: bad\nline"
    assert {key: nack[key] for key in ("level", "logger", "client", "stream", "nonce", "version", "code", "error")} == {
        "level": "WARNING",
        "logger": "xdsprism",
        "client": "envoy-1",
        "stream": 7,
        "nonce": "2.cds",
        "version": "v2",
        "code": 3,
        "error": "bad\nline",
    }


def test_json_has_the_resources_of_a_nack(sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]]):
    stream, output = sink
    output.setFormatter(JsonFormatter())
    FactLog()(FACTS)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    nack = next(line for line in lines if line.get("nonce") == "3.rds")
    assert (nack["client"], nack["type"], nack["more"]) == ("envoy-1", ROUTE.rpartition("/")[2], 2)
    assert nack["resources"][0] == {
        "name": "main",
        "version": PROD.version,
        "constraint": "env=prod",
        "origin": "routes.yaml:7",
    }


def test_json_has_what_a_revision_changed(sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]]):
    stream, output = sink
    output.setFormatter(JsonFormatter())
    FactLog()(FACTS)
    (line,) = [each for each in map(json.loads, stream.getvalue().splitlines()) if "revision" in each]
    assert (line["revision"], line["by"], line["total"], line["added"]) == (3, "file load", 8, ["cds/a"])
    assert line["removed"] == ["cds/b", "cds/c", "cds/d", "cds/e", "rds/f"]


def test_an_exception_stays_with_its_line(sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]]):
    stream, output = sink
    output.setFormatter(JsonFormatter())
    logging.getLogger("xdsprism").error("failed", exc_info=ValueError("because"))
    line = json.loads(stream.getvalue())
    assert line["message"] == "failed"
    assert "ValueError: because" in line["exception"]


# RST-4, LRS-1
def test_a_polling_client_is_logged_only_when_it_has_a_problem(
    sink: tuple[io.StringIO, logging.StreamHandler[io.StringIO]],
):
    stream, output = sink
    output.setFormatter(TextFormatter())
    refused = LoadsRefused("envoy-1", "shop", "no interval", news=True)
    FactLog()(
        [
            Opened(1, "/v3/discovery:clusters", "1.2.3.4:5", brief=True),
            Joined(1, Node("poller")),
            SubscriptionsRefused(1, CLUSTER, "name_bytes", 1, "the name is too long"),
            Closed(1, ""),
            Opened(2, "/v3/discovery:clusters", "1.2.3.4:5", brief=True),
            Joined(2, Node("poller")),
            Nacked(2, CLUSTER, "v2", "v2", Rejection(3, "bad")),
            Closed(2, "gone"),
            refused,
            replace(refused, news=False),
        ]
    )
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        f"WARNING poller NACKed {NAME}, nonce v2: bad",
        "WARNING poller disconnected: gone",
        "WARNING envoy-1 sent an invalid load report for cluster 'shop': no interval",
    ]


def test_nothing_is_kept_of_streams_that_closed():
    log = FactLog()
    log(FACTS)
    assert (log._opened, log._clients) == ({}, {})  # noqa: SLF001 # what is left behind costs memory, and is never printed
