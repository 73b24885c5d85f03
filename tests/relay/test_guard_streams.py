"""No client can end, flood or starve the stream to a server: what a server refuses is found, and not repeated."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import xdsprism as xp
from tests.client.rig import both, cluster, endpoint, follow, quiet, timeless
from tests.client.wrapping import wrap
from tests.relay.picky import PickyServer, bad_names
from tests.relay.rig import marks, pair, station
from xdsprism.admin.cache_model import ClockReading, upstreams
from xdsprism.core.watch.quarantine import RETRY
from xdsprism.observe.metrics import ClientMetrics
from xdsprism.testing import ScriptedPeer

PROD = {"env": "prod"}
BLAMING = ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "FAILED_PRECONDITION", "INTERNAL", "UNKNOWN"]


@pytest.mark.parametrize("status", BLAMING)
@both
@timeless
async def test_a_subscription_for_which_a_server_ends_the_stream_does_not_starve_the_others(
    delta: bool, status: str
) -> None:
    # PRX-35
    server = PickyServer(bad_names, status=status)
    async with station(server.connect, delta=delta) as relay, relay.client() as good, relay.client() as bad:
        watched = follow(good, xp.ENDPOINT, "a", params=PROD)
        assert await marks(watched) == [("a", "1")]
        refused = follow(bad, xp.ENDPOINT, "bad", params=PROD)
        await quiet(30)
        told = [update.error for update in refused.seen()]
        assert {error.status for error in told if error is not None} == {"UNAVAILABLE"}
        assert "'bad' is withheld: one:1 ended the stream" in str(told[-1])
        assert server.ends <= 4
        ends, streams = server.ends, len(server.streams)
        late = follow(good, xp.ENDPOINT, "b", params=PROD)
        assert await marks(late) == [("b", "1")]
        await quiet(RETRY / 2)
        assert (server.ends, len(server.streams)) == (ends, streams)
        await refused.close()
        await quiet(60)  # nobody wants it any more, and that it is refused is known all the same
        again = follow(bad, xp.ENDPOINT, "bad", params=PROD)
        await quiet(1)
        assert [str(update.error) for update in again.seen()] == [str(told[-1])]
        assert server.ends == ends
        server.close()


@both
@timeless
async def test_only_the_bad_one_of_many_subscriptions_after_a_reconnect_is_withheld(delta: bool) -> None:
    # PRX-35
    server = PickyServer(bad_names, silent={"a7", "a8"})
    async with station(server.connect, delta=delta) as relay, relay.client() as client:
        names = [f"a{number}" for number in range(40)]
        watched = follow(client, xp.ENDPOINT, *names, "bad", params=PROD)
        await quiet(60)
        answered = {update.name for update in watched.seen() if update.resource is not None}
        assert answered == {*names} - {"a7", "a8"}
        ends = server.ends
        assert ends <= 16
        server.streams[-1].end("UNAVAILABLE", "restarted")
        await quiet(60)
        assert server.ends == ends
        assert {*server.asked} == {*names}
        server.close()


@timeless
async def test_a_client_that_reads_no_errors_waits_as_for_any_answer() -> None:
    # PRX-35, PRX-11
    server = PickyServer(bad_names)
    async with station(server.connect) as relay:
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "a", "bad")
        responses = await client.rest()
        await quiet(60)
        responses += await client.rest()
        assert [each.name for response in responses for each in response.resources] == ["a"]
        assert [name for response in responses for name in response.removed_resources] == []
        client.close()
        server.close()


@timeless
async def test_a_withheld_subscription_does_not_look_deleted() -> None:
    # PRX-35, CLI-8: a full state lacks what was not asked for
    peer = ScriptedPeer()
    async with station(peer.connect, delta=False) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=PROD)
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.CLUSTER, *(wrap(cluster(name, "1"), when="true") for name in ("a", "b")))
        assert sorted(await marks(watched)) == [("a", "1"), ("b", "1")]
        stream.end("UNAVAILABLE", "restarted")
        stream = await peer.accept()
        await quiet(0.1)
        stream.end("INVALID_ARGUMENT", "one of these is too long")
        stream = await peer.accept()
        request = await stream.request()
        assert len(request.resource_locators) == 1
        assert request.version_info == ""  # which would say that nothing is lacking
        (first,) = [each.name for each in request.resource_locators]
        stream.respond(xp.CLUSTER, wrap(cluster(first, "2"), when="true"))
        assert await marks(watched) == [(first, "2")]
        requests = stream.pending()
        assert sorted(each.name for each in requests[-1].resource_locators) == ["a", "b"]


@timeless
async def test_a_new_stream_claims_no_version_of_what_it_does_not_ask_for() -> None:
    # PRX-35, CLI-6: a server takes that for something to be removed (DLT-14)
    peer = ScriptedPeer()
    async with station(peer.connect) as relay, relay.client() as client:
        watched = follow(client, xp.CLUSTER, "a", "b", params=PROD)
        stream = await peer.accept()
        await quiet()
        stream.respond(xp.CLUSTER, *(wrap(cluster(name, "1"), when="true") for name in ("a", "b")))
        assert sorted(await marks(watched)) == [("a", "1"), ("b", "1")]
        stream.end("UNAVAILABLE", "restarted")
        stream = await peer.accept()
        await quiet(0.1)
        stream.end("INVALID_ARGUMENT", "one of these is too long")
        stream = await peer.accept()
        request = await stream.request()
        asked = [each.name for each in request.resource_locators_subscribe]
        assert len(asked) == 1
        assert [*request.initial_resource_versions] == asked


@timeless
async def test_a_quarantine_is_logged_once_counted_and_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # PRX-35
    caplog.set_level(logging.WARNING, "xdsprism")
    server = PickyServer(bad_names)
    async with station(server.connect) as relay, relay.client() as client:
        registry = CollectorRegistry()
        relay.relay.readers.append(ClientMetrics(registry))
        follow(client, xp.ENDPOINT, "a", params=PROD)
        await quiet()
        follow(client, xp.ENDPOINT, "bad", params=PROD)
        await quiet(60)
        lines = [each.getMessage() for each in caplog.records if "ends the stream after" in each.getMessage()]
        assert len(lines) == 1
        assert "'bad'" in lines[0]
        assert "what is that?" in lines[0]
        name = "xdsprism_upstream_quarantined_subscriptions_total"
        assert registry.get_sample_value(name, {"server": "one:1"}) == 1
        now = client.now()
        rows: list[Any] = upstreams(relay.relay.feed.upstreams(), ClockReading(now, 1_000_000.0))["upstreams"]
        (row,) = [each for row in rows for each in row["quarantined"]]
        assert (row["name"], row["params"], row["type_url"]) == ("bad", PROD, xp.ENDPOINT)
        assert "what is that?" in row["error"]
        server.close()


@timeless
async def test_a_server_that_lets_nobody_in_is_asked_for_everything_when_it_is_well() -> None:
    # PRX-35: it has nothing against a subscription
    ill = True
    server = PickyServer(lambda *_: ill)
    async with station(server.connect) as relay, relay.client() as client:
        names = [f"a{number}" for number in range(20)]
        watched = follow(client, xp.ENDPOINT, *names, params=PROD)
        await quiet(300)
        assert server.ends > 4
        ill = False
        await quiet(180)
        assert {update.name for update in watched.seen() if update.resource == endpoint(update.name, "1")} == {*names}
        server.close()


@both
@timeless
async def test_a_refused_subscription_never_reaches_the_server(delta: bool) -> None:
    # PRX-35, DYN-46: a name, a type or params that no server has to take
    async with pair(delta=delta) as (origin, relay), relay.client() as other:
        origin.put(endpoint("a", "1"))
        client = await relay.raw()
        await client.want(xp.ENDPOINT, "x" * 5000)
        await client.want(xp.ENDPOINT, "a", params={str(number): "" for number in range(1025)})
        await client.want(xp.ENDPOINT, "a", params={"key": "x" * 9000})
        await client.want(f"type.googleapis.com/{'t' * 5000}", "a")
        await client.want(xp.ENDPOINT, "a")
        responses = await client.rest()
        assert [each.name for response in responses for each in response.resources] == ["a"]
        assert await marks(follow(other, xp.ENDPOINT, "a")) == [("a", "1")]
        assert len(origin.wire.ends) == 1
        assert [name for name, _ in origin.asked(xp.ENDPOINT)] == ["a"]
        asked = {url for call in origin.hub.connected() for url in call.stream.sessions}
        assert asked == {xp.ENDPOINT}
        client.close()
