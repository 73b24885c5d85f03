"""GET /api/events and /api/history: what happens, as it happens, and what happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import DataSource
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import GenericSecret, Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from google.rpc.status_pb2 import Status

from tests.admin.rig import Office, Peer, eventually_async
from xdsprism.admin import events as module
from xdsprism.admin.guard import HostNames, RequestGuard
from xdsprism.admin.tokens import Tokens
from xdsprism.core.model.events import Node, Rejection
from xdsprism.core.model.facts import Closed, Joined, Nacked, Opened
from xdsprism.core.model.types import CLUSTER, make_variant


@dataclass
class Told:
    """One event as it came."""

    kind: str
    data: Any
    id: str | None


class Listener:
    """A connection to /api/events, read byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = ""
        self.raw = b""
        self._reader = reader
        self.writer = writer
        self._rest = b""

    async def read_head(self) -> str:
        self.head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 20)).decode()
        return self.head

    async def block(self) -> str:
        """The next block of lines, without the chunks around it."""
        while b"\n\n" not in self._rest:
            size = int(await asyncio.wait_for(self._reader.readline(), 20) or b"0", 16)
            self._rest += (await self._reader.readexactly(size + 2))[:-2]
            if not size:
                raise EOFError
        block, _, self._rest = self._rest.partition(b"\n\n")
        return block.decode()

    async def next(self) -> Told:
        """The next event."""
        while True:
            fields = dict(line.split(": ", 1) for line in (await self.block()).split("\n") if not line.startswith(":"))
            if "event" in fields:
                return Told(fields["event"], json.loads(fields["data"]), fields.get("id"))

    async def of(self, kind: str) -> Told:
        """The next event of a kind."""
        while (told := await self.next()).kind != kind:
            pass
        return told


@asynccontextmanager
async def listening(office: Office, query: str = "", headers: str = "") -> AsyncIterator[Listener]:
    host, _, port = office.admin.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET /api/events{query} HTTP/1.1\r\nHost: {office.admin}\r\n{headers}\r\n".encode())
        listener = Listener(reader, writer)
        assert "200 OK" in await listener.read_head()
        await listener.block()  # the first one says how soon to come back
        yield listener
    finally:
        writer.close()


def change(office: Office, name: str, stat: str) -> int:
    with office.store.transaction() as tx:
        tx.put(Cluster(name=name, alt_stat_name=stat))
    assert tx.revision is not None
    return tx.revision


async def test_a_reader_is_told_of_each_revision_by_resource_and_variant(office):
    async with listening(office) as listener:
        with office.store.transaction() as tx:
            tx.put(Cluster(name="shop", alt_stat_name="new"), when="env=prod")
            tx.delete(CLUSTER, "plain")
        told = await listener.next()
    assert (told.kind, told.id, told.data["revision"]) == ("revision", str(tx.revision), tx.revision)
    assert (told.data["by"], told.data["total"], told.data["more"]) == ("program", 2, 0)
    shop, plain = told.data["changes"]
    assert (shop["type"], shop["type_url"], shop["name"], shop["change"]) == ("cds", CLUSTER, "shop", "changed")
    assert [(each["constraint"], each["change"]) for each in shop["variants"]] == [("env=prod", "changed")]
    assert (plain["name"], plain["change"]) == ("plain", "removed")


async def test_the_stream_has_the_headers_of_server_sent_events(office):
    async with listening(office) as listener:
        head = listener.head.lower()
    assert "content-type: text/event-stream" in head
    assert "cache-control: no-store" in head


async def test_a_reader_that_comes_back_gets_the_revisions_that_it_missed(office):
    for query, headers in (("?since={}", ""), ("", "Last-Event-ID: {}\r\n"), ("?since=0", "Last-Event-ID: {}\r\n")):
        seen = change(office, "plain", f"{query} 1")
        missed = [change(office, "plain", f"{query} 2"), change(office, "plain", f"{query} 3")]
        query, headers = query.format(seen), headers.format(seen)  # noqa: PLW2901
        async with listening(office, query, headers) as listener:
            assert [(await listener.next()).data["revision"] for _ in missed] == missed
            # ... and then each new one once.
            revision = change(office, "plain", query + headers)
            assert (await listener.next()).data["revision"] == revision


async def test_a_reader_that_saw_what_is_not_known_is_told_of_the_gap(office):
    change(office, "plain", "1")
    for query, headers in (("?since=999", ""), ("", "Last-Event-ID: 999\r\n"), ("", "Last-Event-ID: x\r\n")):
        async with listening(office, query, headers) as listener:
            told = await listener.next()
            assert (told.kind, told.id) == ("gap", None)
            revision = change(office, "plain", query + headers)
            assert (await listener.next()).data["revision"] == revision


async def test_a_reader_is_told_who_connects_who_rejects_what_and_who_leaves(office):
    async with listening(office) as listener:
        async with Peer(office.server.address, delta=True) as peer:
            answer = await peer.ask(CLUSTER, ["shop"], node={"id": "envoy-1", "metadata": {"env": "prod"}})
            connected, joined = await listener.next(), await listener.next()
            await peer.send(
                type_url=CLUSTER, response_nonce=answer.nonce, error_detail=Status(code=3, message="no such thing")
            )
            nack = await listener.next()
        left = await listener.next()
    stream = connected.data["stream"]
    assert {each.kind for each in (connected, joined, left)} == {"client"}
    assert [each.data["event"] for each in (connected, joined, left)] == ["connected", "joined", "left"]
    assert [each.data["node"] for each in (connected, joined, nack, left)] == ["", "envoy-1", "envoy-1", "envoy-1"]
    assert {each.data["stream"] for each in (joined, nack, left)} == {stream}
    assert connected.data["peer"] == left.data["peer"] != ""
    assert nack.kind == "nack"
    assert (nack.data["type"], nack.data["code"], nack.data["message"]) == ("cds", 3, "no such thing")
    assert [(each["name"], each["constraint"]) for each in nack.data["resources"]] == [("shop", "env=prod")]


async def test_a_reader_knows_the_node_of_a_client_that_was_there_before(office):
    async with AsyncExitStack() as leaving:
        peer = await leaving.enter_async_context(Peer(office.server.address, delta=False))
        await peer.ask(CLUSTER, node={"id": "envoy-1"})
        async with listening(office) as listener:
            await leaving.aclose()
            told = await listener.next()
    assert (told.data["event"], told.data["node"]) == ("left", "envoy-1")


async def test_filters_leave_only_events_about_the_type_and_the_client(office):
    async with (
        listening(office, "?type=rds") as routes,
        listening(office, "?type=cds") as clusters,
        listening(office, "?node=envoy-1") as client,
        Peer(office.server.address, delta=False) as peer,
    ):
        change(office, "plain", "1")
        await peer.ask(CLUSTER, node={"id": "envoy-1"})
        assert (await clusters.next()).kind == "revision"
        assert (await client.next()).data["event"] == "joined"
        office.events.end()
        for each in (routes, clusters, client):
            try:
                told = await each.next()
            except EOFError:
                continue
            raise AssertionError(told)


async def test_a_reader_that_is_too_slow_is_told_so_and_goes_on_with_what_is_new(office, monkeypatch):
    # OPS-6
    monkeypatch.setattr(module, "QUEUED", 10)
    async with listening(office) as listener:
        reader = next(iter(office.events._readers))  # noqa: SLF001 # what it keeps for who does not read
        for number in range(35):
            reader.put(module.Event("load", {"number": number}))
        assert len(reader._queue) <= 10  # noqa: SLF001 # OPS-6: a bound on memory shows in nothing else
        gap = await listener.next()
        assert gap.kind == "gap"
        numbers = [(await listener.next()).data["number"] for _ in range(35 - gap.data["missed"])]
    assert gap.data["missed"] == 30
    assert numbers == [30, 31, 32, 33, 34]


async def test_more_readers_than_the_limit_are_refused_and_told_why(office, monkeypatch):
    monkeypatch.setattr(module, "READERS", 2)
    async with listening(office), listening(office):
        status, why = await office.error("/api/events")
        assert status == 503
        assert why == "2 readers of /api/events are connected, which is the limit: end one, or try later"


async def test_a_reader_that_leaves_makes_room(office, monkeypatch):
    monkeypatch.setattr(module, "READERS", 1)
    for _ in range(3):
        async with listening(office):
            assert len(office.events) == 1
        await eventually_async(lambda: asyncio.sleep(0, len(office.events)), 0)


async def test_while_nobody_listens_nothing_is_kept(office):
    async with Peer(office.server.address, delta=False) as peer:
        await peer.ask(CLUSTER, node={"id": "envoy-1"})
        assert office.events._streams == {}  # noqa: SLF001 # there is nothing else to see it by
        async with listening(office):
            assert len(office.events._streams) == 1  # noqa: SLF001 # ... and here it is needed
        await eventually_async(lambda: asyncio.sleep(0, office.events._streams), {})  # noqa: SLF001 # ... and not any more


async def test_a_revision_that_is_replayed_before_its_fact_came_is_told_once(office):
    revision = change(office, "plain", "1")  # the hub tells of it in its next turn
    reader = office.events.open(module.Filter(), revision - 1)
    async with listening(office) as listener:  # which takes several turns
        later = change(office, "plain", "2")
        assert (await listener.next()).data["revision"] == later
    assert reader.take().count(b"event: revision") == 2
    office.events.close(reader)


async def test_clients_that_poll_are_no_events_and_their_nacks_are(office):
    reader = office.events.open(module.Filter(), None)
    office.events(
        [
            Opened(7, "/x/FetchClusters", "ipv4:1.2.3.4:5", brief=True),
            Joined(7, Node("poller")),
            Nacked(7, CLUSTER, "v1", "v1", Rejection(3, "no")),
            Closed(7, ""),
        ]
    )
    events = reader.take()
    assert events.count(b"event: ") == events.count(b"event: nack") == 1
    assert b'"node":"poller"' in events
    office.events.close(reader)


async def test_of_a_nack_the_first_resources_are_listed_and_the_others_counted(office):
    reader = office.events.open(module.Filter(), None)
    variants = tuple(make_variant(CLUSTER, f"c{number}", b"") for number in range(50))
    office.events([Nacked(7, CLUSTER, "v1", "v1", Rejection(3, "no"), (), False, variants)])
    data = json.loads(reader.take().partition(b"data: ")[2])
    assert [each["name"] for each in data["resources"]] == [f"c{number}" for number in range(20)]
    assert data["more"] == 30
    office.events.close(reader)


async def test_no_name_can_begin_an_event_or_a_line_of_its_own(office):
    name = "a\n\nevent: drain\ndata: {}\n\n\r<script>\u2028\x1b[2J"
    async with listening(office) as listener:
        change(office, name, "1")
        revision = change(office, "plain", "2")
        told = await listener.next()
        assert (told.kind, told.data["changes"][0]["name"]) == ("revision", name)
        assert (await listener.next()).data["revision"] == revision


async def test_the_stream_ends_when_the_server_stops(office):
    async with listening(office) as listener:
        office.events.end()
        try:
            told = await listener.next()
        except EOFError:
            told = None
        assert told is None


async def test_wrong_parameters_are_refused(office):
    assert (await office.error("/api/events?since=x"))[0] == 400
    assert (await office.error("/api/events?type=nothing"))[0] == 400
    assert (await office.error("/api/events?name=a"))[0] == 400
    assert (await office.error("/api/history?since=x"))[0] == 400


async def test_the_history_lists_revisions_newest_first_or_those_after_one(office):
    first = change(office, "plain", "1")
    second = change(office, "plain", "2")
    page = await office.page("/api/history?limit=2")
    assert [each["revision"] for each in page["revisions"]] == [second, first]
    assert (page["revision"], page["gap"]) == (second, False)
    variant = page["revisions"][0]["changes"][0]["variants"][0]
    assert variant["old_version"] == page["revisions"][1]["changes"][0]["variants"][0]["version"]
    after = await office.page(f"/api/history?since={first}")
    assert [each["revision"] for each in after["revisions"]] == [second]
    assert (await office.page("/api/history?since=999"))["gap"] is True


async def test_a_reader_needs_a_token_where_other_pages_do(store):
    tokens = Tokens([b"the-right-token-of-32-characters!"])
    async with Office(store, guard=RequestGuard(HostNames("localhost"), tokens=lambda: tokens)) as office:
        for page in ("/api/events", "/api/history", "/api/diff?from=0"):
            assert (await office.error(page))[0] == 401
        async with listening(office, headers="Authorization: Bearer the-right-token-of-32-characters!\r\n") as listener:
            change(office, "plain", "1")
            assert (await listener.next()).kind == "revision"


# -- /api/diff


async def test_two_revisions_are_compared_by_resource_variant_and_line(office):
    first = office.store.revision
    with office.store.transaction() as tx:
        tx.put(Cluster(name="shop", alt_stat_name="new"), when="env=prod")
    change(office, "more", "1")
    change(office, "more", "2")
    with office.store.transaction() as tx:
        tx.delete(CLUSTER, "plain")
    page = await office.page(f"/api/diff?from={first}")
    assert (page["from"], page["to"], page["total"], page["more"], page["unknown"]) == (first, first + 4, 3, 0, 0)
    told = {each["name"]: (each["constraint"], each["change"]) for each in page["differences"]}
    assert told == {"more": ("true", "added"), "plain": ("true", "removed"), "shop": ("env=prod", "changed")}
    text = {each["name"]: each["diff"].split("\n") for each in page["differences"]}
    assert {"-alt_stat_name: prod", "+alt_stat_name: new"} <= set(text["shop"])
    assert "+alt_stat_name: '2'" in text["more"]
    assert "-name: plain" in text["plain"]
    assert text["shop"][0] == f"--- cds/shop [env=prod] at revision {first}"

    back = await office.page(f"/api/diff?from={first + 4}&to={first}&type=cds&name=shop")
    (shop,) = back["differences"]
    assert {"+alt_stat_name: prod", "-alt_stat_name: new"} <= set(shop["diff"].split("\n"))


async def test_a_change_and_its_opposite_are_no_difference(office):
    first = change(office, "plain", "1")
    change(office, "plain", "2")
    last = change(office, "plain", "1")
    assert (await office.page(f"/api/diff?from={first}&to={last}"))["total"] == 0
    middle = await office.page(f"/api/diff?from={first}&to={last - 1}")
    assert "+alt_stat_name: '2'" in middle["differences"][0]["diff"]


async def test_revisions_that_are_not_remembered_can_not_be_compared(office):
    status, why = await office.error("/api/diff?from=0&to=99")
    assert (status, why.partition(":")[0]) == (404, "not all of these revisions are remembered")
    assert (await office.error("/api/diff?to=1"))[0] == 400


async def test_a_difference_shows_no_secret(office):
    # OPS-14
    with office.store.transaction() as tx:
        tx.put(secret("hunter-1"))
    first = office.store.revision
    with office.store.transaction() as tx:
        tx.put(secret("hunter-2"))
        tx.put(typed_secret("hunter-3"))
    with office.store.transaction() as tx:
        tx.put(typed_secret("hunter-4"))
    for query in (f"from={first}&to={first + 1}", f"from={first}", f"from={first + 1}"):
        page = await office.page(f"/api/diff?{query}")
        assert page["total"]
        assert "hunter" not in str(page)
        secrets = [each["why_no_diff"] for each in page["differences"] if each["type"] == "sds"]
        assert secrets == ["it is a secret"] * len(secrets)
    assert (await office.page(f"/api/diff?from={first}&type=sds"))["total"] == 1
    changed = {each["name"]: each["why_no_diff"] for each in page["differences"]}
    assert changed == {"basic": "only what is redacted differs, or what is not in the contents"}


def secret(text: str) -> Secret:
    return Secret(name="key", generic_secret=GenericSecret(secret=DataSource(inline_string=text)))


def typed_secret(text: str) -> Cluster:
    """A cluster with a secret inside."""
    tls = UpstreamTlsContext()
    certificate = tls.common_tls_context.tls_certificates.add()
    certificate.certificate_chain.filename = certificate.private_key.filename = "key.pem"
    certificate.password.inline_string = text
    found = Cluster(name="basic")
    found.transport_socket.name = "tls"
    found.transport_socket.typed_config.Pack(tls)
    return found
