"""No peer can fill the log: neither with long texts nor with many lines; and none can forge a line."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from envoy.config.core.v3.base_pb2 import Node as NodeProto

from tests.admin.rig import Office, Peer
from xdsprism import CLUSTER
from xdsprism.core.model.events import Node, Rejection
from xdsprism.core.model.facts import (
    Ambiguous,
    Closed,
    Fact,
    Joined,
    LoadsRefused,
    Lost,
    Nacked,
    NackReported,
    Opened,
    OtherNode,
    Oversize,
    Reached,
    Rejected,
    ShareExceeded,
    SubscriptionQuarantined,
    SubscriptionsRefused,
)
from xdsprism.core.model.limits import Limits, Scarce
from xdsprism.observe.logs import INTERVAL, PAUSE, FactLog, JsonFormatter, TextFormatter
from xdsprism.observe.quota import ADDRESS, MEMORY, PEER

MANY = 5_000
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) ")


class Book:
    """A log in one of its two forms, and a clock."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.now = 100.0
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        self.reader = FactLog(lambda: self.now)

    def write(self, *facts: Fact) -> None:
        for fact in facts:
            self.reader([fact])

    def lines(self) -> list[str]:
        taken = self.stream.getvalue().split("\n")[:-1]
        self.stream.seek(0)
        self.stream.truncate()
        return taken


@pytest.fixture(params=[TextFormatter, JsonFormatter], ids=["text", "json"])
def book(request: pytest.FixtureRequest) -> Iterator[Book]:
    book = Book(request.param())
    logger = logging.getLogger("xdsprism")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(book.handler)
    yield book
    logger.removeHandler(book.handler)
    logger.setLevel(level)


def opened(stream: int, node: str = "envoy-1", address: str = "ipv4:1.2.3.4") -> list[Fact]:
    return [Opened(stream, "/x/StreamClusters", f"{address}:{stream}"), Joined(stream, Node(node))]


def nack(stream: int, text: str) -> Nacked:
    return Nacked(stream, CLUSTER, "1.cds", "v1", Rejection(3, text))


# -- many lines


# NAK-12
def test_a_nack_in_a_loop_is_one_line_and_a_count_when_the_stream_ends(book: Book) -> None:
    book.write(*opened(1), *(nack(1, "bad") for _ in range(MANY)))
    assert len(book.lines()) == 2
    book.write(Closed(1, ""))
    gone, count = book.lines()
    assert "envoy-1 disconnected" in gone
    assert f"{MANY - 1} more lines about envoy-1 were omitted" in count


# NAK-12
def test_nacks_that_always_say_something_else_are_a_few_lines_and_a_count(book: Book) -> None:
    book.write(*opened(1), *(nack(1, f"bad {number}") for number in range(MANY)))
    assert len(book.lines()) == 1 + PEER.burst
    book.now += PAUSE
    book.reader([])
    (count,) = book.lines()
    assert f"{MANY - PEER.burst} more lines about envoy-1 were omitted" in count


# NAK-12
def test_the_same_nack_is_logged_again_after_the_interval(book: Book) -> None:
    book.write(*opened(1), nack(1, "bad"))
    book.now += INTERVAL
    book.write(nack(1, "bad"))
    assert len([line for line in book.lines() if "NACKed" in line]) == 2


# SRV-7, DYN-46, DLT-22
@pytest.mark.parametrize(
    "fact",
    [
        OtherNode(1),
        SubscriptionsRefused(1, CLUSTER, "name_bytes", 1, "too long"),
        Oversize(1, CLUSTER, "huge", 5_000_000),
    ],
    ids=["other node", "refused", "oversize"],
)
def test_a_line_that_repeats_on_a_stream_is_logged_once_and_counted(book: Book, fact: Fact) -> None:
    book.write(*opened(1), *[fact] * MANY, Closed(1, ""))
    lines = book.lines()
    assert len(lines) == 4
    assert f"{MANY - 1} more lines about envoy-1 were omitted" in lines[-1]


# OPS-15
@pytest.mark.parametrize("reason", ["", "INVALID_ARGUMENT: not a discovery request"])
def test_a_client_that_connects_in_a_loop_leaves_few_lines_and_a_count(book: Book, reason: str) -> None:
    for stream in range(MANY):
        book.write(*opened(stream), OtherNode(stream), Closed(stream, reason))
    assert len(book.lines()) <= 2 * PEER.burst + 1
    book.now += PAUSE
    book.reader([])
    (count,) = book.lines()
    assert re.search(r"\d{4,5} more lines about envoy-1 were omitted", count)


# OPS-15
def test_one_address_with_ever_new_names_has_a_rate(book: Book) -> None:
    for stream in range(MANY):
        book.write(*opened(stream, f"envoy-{stream}"), Closed(stream, ""))
    assert len(book.lines()) == ADDRESS.burst
    assert len(book.reader._quota._accounts) <= MEMORY  # noqa: SLF001 # the bound on what it remembers shows in memory only
    book.write(*opened(MANY, "elsewhere", "ipv4:5.6.7.8"))
    assert len(book.lines()) == 1  # others are heard of as ever


# OPS-15
def test_the_number_of_remembered_peers_is_bounded(book: Book) -> None:
    for stream in range(MEMORY + 100):
        book.write(*opened(stream, f"envoy-{stream}", f"ipv6:{stream}"), Closed(stream, ""))
    quota = book.reader._quota  # noqa: SLF001 # as above
    assert (len(quota._accounts), len(quota._addresses)) == (MEMORY, MEMORY)  # noqa: SLF001 # as above
    assert not book.reader._last_written  # noqa: SLF001 # as above


# PRX-26, NAK-17, PRX-18, PRX-35, DYN-45, LRS-1
@pytest.mark.parametrize(
    "facts",
    [
        [Reached("one:1"), Lost("one:1", "gone", failed=False)],
        [Rejected("one:1", CLUSTER, "v", "bad")],
        [NackReported("one:1", CLUSTER, "v", "bad")],
        [SubscriptionQuarantined("one:1", CLUSTER, "a", "bad", 600.0)],
        [Ambiguous(CLUSTER, "a", "x=1", "y=1", first=True)],
        [LoadsRefused("one:1", "shop", "no interval", news=True)],
    ],
    ids=["stream", "rejected", "reported", "quarantined", "ambiguous", "loads"],
)
def test_a_server_that_repeats_itself_leaves_few_lines_and_a_count(book: Book, facts: list[Fact]) -> None:
    book.write(*facts * MANY)
    assert len(book.lines()) == PEER.burst
    book.now += PAUSE
    book.reader([])
    (count,) = book.lines()
    assert f"{MANY * len(facts) - PEER.burst} more lines about" in count


# PRX-35, OPS-15
def test_a_client_past_its_share_is_named_once_and_then_counted(book: Book) -> None:
    greedy, other = ("ipv4:10.0.0.1", "envoy-1"), ("ipv4:10.0.0.2", "envoy-2")
    refused = ShareExceeded(Scarce.TYPES, greedy, gave_way=False, count=5)
    book.write(*[refused, ShareExceeded(Scarce.TYPES, greedy, gave_way=True, count=1)] * MANY)
    (line,) = book.lines()
    assert "envoy-1 at ipv4:10.0.0.1 has more than its share of the types" in line
    book.write(ShareExceeded(Scarce.GROUPS, greedy, gave_way=True, count=1), replace(refused, client=other))
    assert [("groups" in line, "envoy-2" in line) for line in book.lines()] == [(True, False), (False, True)]
    book.now += PAUSE
    book.reader([])
    (count,) = book.lines()
    assert f"{2 * MANY - 1} more lines about envoy-1" in count
    for number in range(MEMORY + 100):
        book.write(replace(refused, client=("ipv4:10.0.0.3", f"made up {number}")))
    assert len(book.reader._last_written_of_peers) == MEMORY  # noqa: SLF001 # the bound on what it remembers shows in memory only


# -- long lines


# NAK-12, PRX-35
def test_no_line_is_longer_than_a_few_kilobytes(book: Book) -> None:
    long = "x" * 1_000_000
    book.write(
        *opened(1),
        nack(1, long),
        Oversize(1, CLUSTER, long, 5_000_000),
        Rejected("one:1", CLUSTER, long, long),
        NackReported("one:1", CLUSTER, long, long),
        Lost("one:1", long, failed=True),
        SubscriptionQuarantined("one:1", CLUSTER, long, long, 600.0),
        Ambiguous(CLUSTER, long, long, long, first=True),
        LoadsRefused("envoy-1", long, long, news=True),
        Closed(1, long),
    )
    lines = book.lines()
    assert len(lines) == 10
    assert max(map(len, lines)) < 20_000  # JSON has each field twice


# NAK-12, DYN-46: the two that were found
@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
async def test_a_long_node_id_and_a_long_nack_are_cut_on_pages_and_in_the_log(
    office: Office, book: Book, delta: bool
) -> None:
    office.server.hub.readers.append(book.reader)
    node = NodeProto(id="n" * 6_500, cluster="c" * 6_500, user_agent_name="u" * 6_500)
    node.metadata.update({f"key-{number}": "v" * 6_500 for number in range(500)})
    async with Peer(office.server.address, delta=delta) as peer:
        first = await peer.ask(CLUSTER, ["plain"], node=node)
        error = {"code": 3, "message": "e" * (10 * 1024 * 1024)}
        await peer.send(type_url=CLUSTER, response_nonce=first.nonce, error_detail=error)
        await peer.ask(CLUSTER, ["x" * 5_000, "plain"])
        client = await office.client()
    assert client["types"][0]["nack"]["message"].endswith("… (10,485,760 bytes)")
    assert len(json.dumps(client)) < 100_000
    written = book.lines()
    assert any("10,485,760 bytes" in line for line in written)
    assert sum(map(len, written)) < 30_000


# -- forged lines


FORGED = "x\n2026-01-01T00:00:00.000Z ERROR forged\r\x1b[31mred\x1b[0m\x9b2J\x07\u2028\u2029\u202e\x85\x0b\x0c\x1c"
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


# OPS-15
def test_texts_of_peers_can_not_forge_a_line_or_control_a_terminal(book: Book) -> None:
    refusal = Limits(name_bytes=3).refuses(CLUSTER, FORGED, None)  # a Host header becomes the name of a virtual host
    assert refusal is not None
    facts: list[Fact] = [
        *opened(1, FORGED),
        nack(1, FORGED),
        Oversize(1, CLUSTER, FORGED, 5_000_000),
        SubscriptionsRefused(1, f"a/{FORGED}", "name_bytes", 1, refusal.message),
        Rejected(FORGED, FORGED, FORGED, FORGED),
        Lost(FORGED, FORGED, failed=True),
        SubscriptionQuarantined("one:1", CLUSTER, FORGED, FORGED, 600.0),
        LoadsRefused(FORGED, FORGED, FORGED, news=True),
        Closed(1, FORGED),
    ]
    book.write(*facts)
    text = book.stream.getvalue()
    assert not FORBIDDEN.search(text)
    lines = book.lines()
    assert len(lines) == 9
    for line in lines:
        assert LINE.match(line) or json.loads(line)["level"] in ("INFO", "WARNING")


# OPS-15
def test_text_quoted_in_a_traceback_can_not_look_like_a_line(book: Book) -> None:
    logging.getLogger("xdsprism").error("a stream failed", exc_info=ValueError(FORGED))
    assert not FORBIDDEN.search(book.stream.getvalue())
    first, *rest = book.lines()
    assert "a stream failed" in first
    assert all(line.startswith("    ") for line in rest)


# OPS-15
@pytest.mark.parametrize("book", [JsonFormatter], indirect=True)
def test_json_says_what_was_there(book: Book) -> None:
    book.write(*opened(1), nack(1, FORGED))
    assert json.loads(book.lines()[-1])["error"] == FORGED
