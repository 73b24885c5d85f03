"""`--report-nacks`: a relay reports NACKs of its clients to the server."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from prometheus_client import CollectorRegistry

import xdsprism as xp
from tests.client.rig import both, cluster, endpoint, follow, quiet, timeless
from tests.relay.rig import MODE_IDS, MODES, Raw, marks, pair, station
from tests.relay.test_refusals import heard
from xdsprism.admin.cache_model import ClockReading, upstreams
from xdsprism.core.model.facts import Acked, Nacked
from xdsprism.core.relay.nack_reports import WAIT
from xdsprism.observe.metrics import ClientMetrics
from xdsprism.testing import PeerStream, ScriptedPeer

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)
# How servers are asked is given, so that no response is there only to find that out.
ON: dict[str, Any] = {"report_nacks": True, "upstream_form": "locators"}
BY_NAMES: dict[str, Any] = {"report_nacks": True, "upstream_form": "names"}
NO = Status(code=3, message="I do not like it")


async def judge(client: Raw, *, delta: bool, error: Status | None = None, names: tuple[str, ...] = ("a",)) -> int:
    """Answer all that has come; how much that was."""
    responses = await client.rest()
    for response in responses:
        fields: dict[str, Any] = {} if delta else {"resource_names": names}
        if error is not None:
            fields["error_detail"] = error
        await client.ack(response, **fields)
    await quiet(0.1)
    return len(responses)


@modes
@timeless
async def test_a_nack_of_a_client_reaches_the_server_with_the_resource_the_node_and_its_text(
    up: bool, down: bool
) -> None:
    # PRX-18
    async with pair(delta=up, **ON) as (origin, relay):
        origin.put(endpoint("a", "1"))
        nacks, acks = heard(origin, Nacked), heard(origin, Acked)
        client = await relay.raw(delta=down)
        await client.want(xp.ENDPOINT, "a")
        assert await judge(client, delta=down, error=NO) == 1
        assert [nack.error.message for nack in nacks] == ["a: refused by raw: I do not like it"]
        assert acks == []
        origin.put(endpoint("a", "2"))
        assert await judge(client, delta=down) == 1
        assert (len(nacks), len(acks)) == (1, 1)
        client.close()


@modes
@timeless
async def test_a_nack_is_reported_to_a_server_whose_form_has_to_be_found_out(up: bool, down: bool) -> None:
    # PRX-18, PRX-32
    async with pair(delta=up, report_nacks=True) as (origin, relay):
        origin.put(endpoint("a", "1"))
        nacks = heard(origin, Nacked)
        client = await relay.raw(delta=down)
        await client.want(xp.ENDPOINT, "a")
        await judge(client, delta=down, error=NO)
        assert [nack.error.message for nack in nacks] == ["a: refused by raw: I do not like it"]
        client.close()


@modes
@timeless
async def test_the_server_is_acked_as_soon_as_all_clients_have_answered(up: bool, down: bool) -> None:
    # PRX-18
    async with pair(delta=up, **ON) as (origin, relay):
        origin.put(endpoint("a", "1"))
        acks = heard(origin, Acked)
        clients = [await relay.raw(delta=down) for _ in range(3)]
        for client in clients:
            await client.want(xp.ENDPOINT, "a")
        await quiet(0.1)
        for client in clients:
            assert acks == []
            responses = [await client.read()]
            assert len(responses) == 1
            await client.ack(responses[0], **({} if down else {"resource_names": ["a"]}))
            await quiet(0.1)
        assert len(acks) == 1
        for client in clients:
            client.close()


@both
@timeless
async def test_a_client_that_does_not_answer_holds_the_answer_back_for_a_bounded_time(delta: bool) -> None:
    # PRX-18
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, **BY_NAMES) as relay:
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"))
        await quiet(WAIT - 0.5)
        assert stream.pending() == []
        await quiet(1)
        (ack,) = stream.pending()
        assert (ack.response_nonce, ack.HasField("error_detail")) == ("n1", False)
        client.close()


@both
@timeless
async def test_a_response_that_no_client_is_sent_is_acked_at_once(delta: bool) -> None:
    # PRX-18
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, **BY_NAMES) as relay, relay.client() as client:
        watched = follow(client, xp.ENDPOINT, "a")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n1")
        await quiet(0.1)
        assert [each.response_nonce for each in stream.pending()] == ["n1"]
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n2")  # nothing new
        stream.respond(xp.ENDPOINT, endpoint("nobodys", "1"), nonce="n3")
        await quiet(0.1)
        assert [each.response_nonce for each in stream.pending()] == ["n2", "n3"]
        assert await marks(watched) == [("a", "1")]


@timeless
async def test_only_the_bad_resource_of_a_response_is_reported() -> None:
    # PRX-18, NAK-29: the server asks too, by sending each alone
    async with pair(**ON) as (origin, relay):
        origin.put(endpoint("a", "1"), endpoint("b", "1"))
        nacks = heard(origin, Nacked)
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a", "b")
        for _ in range(5):
            for response in await client.rest():
                bad = any(each.name == "b" for each in response.resources)
                await client.ack(response, **({"error_detail": NO} if bad else {}))
        await quiet(WAIT)
        assert {nack.error.message for nack in nacks} == {"b: refused by raw: I do not like it"}
        assert len(nacks) <= 2  # in the response with both, and alone
        (session,) = [each for call in origin.hub.connected() for each in call.stream.sessions.values()]
        assert [*session.rejections.by_label] == ["b [true]"]
        client.close()


@both
@timeless
async def test_a_server_that_sends_a_rejected_version_again_and_again_is_told_once_on_each_stream(delta: bool) -> None:
    # PRX-18, NAK-23: as go-control-plane does in SotW, at once
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, **BY_NAMES) as relay:
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n0")
        await judge(client, delta=True, error=NO)
        assert _answers(stream) == [("n0", True)]
        for number in range(1, 4):
            stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce=f"n{number}")
            await quiet(2)
            assert _answers(stream) == [(f"n{number}", False)]
        stream.end("UNAVAILABLE")
        await quiet(10)
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="m0")
        await quiet(0.1)
        assert _answers(stream) == [("m0", True)]  # no client is sent it again
        stream.respond(xp.ENDPOINT, endpoint("a", "2"), version="2", nonce="m1")
        await judge(client, delta=True)
        assert _answers(stream) == [("m1", False)]
        client.close()


def _answers(stream: PeerStream) -> list[tuple[str, bool]]:
    pending = [each for each in stream.pending() if each.response_nonce]
    return [(each.response_nonce, each.HasField("error_detail")) for each in pending]


@timeless
async def test_a_rejection_by_one_client_does_not_change_what_others_are_served() -> None:
    # PRX-18
    async with pair(**ON) as (origin, relay), relay.client() as content:
        origin.put(cluster("a", "1"))
        picky = await relay.raw()
        await picky.want(xp.CLUSTER, "a")
        assert await judge(picky, delta=True, error=NO) == 1
        assert await marks(follow(content, xp.CLUSTER, "a")) == [("a", "1")]
        origin.put(cluster("a", "2"))
        assert await judge(picky, delta=True) == 1
        picky.close()


@timeless
async def test_a_full_state_that_a_client_rejects_is_reported_by_what_was_new() -> None:
    # PRX-18: CDS in SotW does not say which one is bad
    async with pair(**ON) as (origin, relay):
        origin.put(cluster("a", "1"), cluster("b", "1"))
        nacks = heard(origin, Nacked)
        client = await relay.raw(delta=False)
        await client.want(xp.CLUSTER)
        await judge(client, delta=False, names=())
        assert nacks == []
        origin.put(cluster("b", "2"))
        await judge(client, delta=False, error=NO, names=())
        assert [nack.error.message for nack in nacks] == ["b: refused by raw: I do not like it"]
        client.close()


@timeless
async def test_in_sotw_a_new_subscription_does_not_wait_for_an_answer_that_is_held_back() -> None:
    # PRX-18, SRV-14
    peer = ScriptedPeer()
    async with station(peer.connect, delta=False, **BY_NAMES) as relay:
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n1")
        await quiet(0.1)
        assert stream.pending() == []
        await client.want(xp.ENDPOINT, "b")
        await quiet(0.1)
        requests = stream.pending()
        assert requests[-1].response_nonce == "n1"
        asked = [*requests[-1].resource_names, *(each.name for each in requests[-1].resource_locators)]
        assert asked == ["a", "b"]
        client.close()


@timeless
async def test_reports_are_counted_in_a_metric_and_on_the_page() -> None:
    # PRX-18
    async with pair(**ON) as (origin, relay):
        registry = CollectorRegistry()
        relay.relay.readers.append(ClientMetrics(registry))
        origin.put(endpoint("a", "1"))
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a")
        await judge(client, delta=True, error=NO)
        name = "xdsprism_upstream_reported_nacks_total"
        assert registry.get_sample_value(name, {"server": "one:1"}) == 1
        rows = upstreams(relay.relay.feed.upstreams(), ClockReading(0.0, 0.0))["upstreams"]
        assert [row["reported_nacks"] for row in rows] == [1]
        client.close()


@both
@timeless
async def test_a_nack_that_comes_too_late_is_reported_when_the_server_sends_that_version_again(delta: bool) -> None:
    # PRX-18, NAK-28: the response that it is about has its answer
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, **BY_NAMES) as relay:
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n0")
        await quiet(2 * WAIT)
        assert _answers(stream) == [("n0", False)]
        await judge(client, delta=True, error=NO)
        assert _answers(stream) == []
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n1")
        await quiet(0.1)
        assert _answers(stream) == [("n1", True)]
        client.close()


@both
@timeless
async def test_each_response_waits_for_its_own_clients_unless_answers_have_an_order(delta: bool) -> None:
    # PRX-18: in SotW the answer to an older response says nothing after that to a newer one (CLI-4)
    peer = ScriptedPeer()
    async with station(peer.connect, delta=delta, **BY_NAMES) as relay:
        slow, fast = await relay.raw(), await relay.raw()
        await slow.want(xp.ENDPOINT, "a")
        await fast.want(xp.ENDPOINT, "b")
        stream = await peer.accept()
        await quiet(0.1)
        stream.pending()
        stream.respond(xp.ENDPOINT, endpoint("a", "1"), nonce="n0")
        stream.respond(xp.ENDPOINT, endpoint("b", "1"), nonce="n1")
        await judge(fast, delta=True, error=NO)
        assert _answers(stream) == ([("n1", True)] if delta else [("n0", False), ("n1", True)])
        await judge(slow, delta=True, error=NO)
        assert _answers(stream) == ([("n0", True)] if delta else [])
        slow.close(), fast.close()
