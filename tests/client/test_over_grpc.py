"""The client and the server of this library, over real connections, in both protocols."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.service.load_stats.v3 import lrs_pb2 as lrs

import xdsprism as xp
from tests.client import doors
from tests.client.doors import Door, Method, boot, leading_to
from tests.client.rig import both, cluster, endpoint, follow, listener, status, within
from tests.client.soundness import sound
from tests.support.certificates import identity
from tests.support.facts import each_of
from tests.wire.rig import PATIENCE, put, sessions, until
from xdsprism.core.model.backoff import Backoff
from xdsprism.core.model.facts import Fact, Joined, Nacked, Requested, Sent, Suppressed
from xdsprism.core.watch import stream_lifecycle


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock does not jump here, so pauses are short."""
    monkeypatch.setattr(stream_lifecycle, "Backoff", partial(Backoff, first=0.02, ceiling=0.1))


@pytest.fixture
def store() -> xp.Store:
    made = xp.Store()
    put(made, cluster("a", "1"), cluster("b", "1"))
    return made


@pytest.fixture
async def server(store: xp.Store) -> AsyncIterator[xp.Server]:
    async with xp.Server(store, listen="127.0.0.1:0") as running:
        yield running


async def heard(watched: Any) -> tuple[str, str]:
    """The next update: which name, and the mark of its contents or the status of its error."""
    update = await within(PATIENCE, watched.next())
    if update.resource is not None:
        return update.name, update.resource.alt_stat_name
    return update.name, (update.error or update.ambient_error).status


def delete(store: xp.Store, *names: str) -> None:
    with store.transaction() as tx:
        for name in names:
            tx.delete(xp.CLUSTER, name)


def facts_of(server: xp.Server, kind: type[Fact]) -> list[Any]:
    """What happens on a server from now on, of one kind."""
    found: list[Any] = []
    server.hub.readers.append(lambda facts: found.extend(fact for fact in each_of(facts) if isinstance(fact, kind)))
    return found


# -- what changes in a store


@both
async def test_a_change_of_the_store_reaches_its_watchers(server: xp.Server, store: xp.Store, delta: bool) -> None:
    # CLI-4, CLI-13, CLI-15
    async with sound(), xp.Client(boot(server.address), delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a", "c")
        assert await heard(watched) == ("a", "1")
        if delta:  # SotW has silence for it
            assert await heard(watched) == ("c", "NOT_FOUND")
        put(store, cluster("a", "2"))
        assert await heard(watched) == ("a", "2")
        put(store, cluster("b", "2"))  # nobody watches it
        put(store, cluster("a", "3"))
        assert await heard(watched) == ("a", "3")
        put(store, cluster("c", "1"))
        assert await heard(watched) == ("c", "1")
        delete(store, "a")
        assert await heard(watched) == ("a", "NOT_FOUND")
        assert await client.get(xp.CLUSTER, "a") == cluster("a", "3")
        put(store, cluster("a", "4"))
        assert await heard(watched) == ("a", "4")
        await watched.close()


@both
async def test_everything_is_watched_by_a_star(server: xp.Server, store: xp.Store, delta: bool) -> None:
    # CLI-8, CLI-15
    async with sound(), xp.Client(boot(server.address), delta=delta, fail_on_data_errors=True) as client:
        watched = follow(client, xp.CLUSTER)
        assert {await heard(watched), await heard(watched)} == {("a", "1"), ("b", "1")}
        put(store, cluster("c", "1"))
        assert await heard(watched) == ("c", "1")
        delete(store, "a")
        assert await heard(watched) == ("a", "NOT_FOUND")
        await watched.close()


@both
async def test_several_types_share_a_stream_and_unwatched_resources_are_unsubscribed(
    server: xp.Server, store: xp.Store, delta: bool
) -> None:
    # CLI-2, CLI-3
    put(store, endpoint("a", "1"), listener("a", "1"))
    async with sound(), xp.Client(boot(server.address), delta=delta) as client:
        got = await asyncio.gather(*[client.get(url, "a") for url in (xp.CLUSTER, xp.ENDPOINT, xp.LISTENER)])
        assert got == [cluster("a", "1"), endpoint("a", "1"), listener("a", "1")]
        assert len(server.hub.connected()) == 1
        await until(lambda: [session.count for session in sessions(server)] == [0, 0, 0])


# -- dynamic parameters


@both
async def test_two_sets_of_params_get_a_variant_each_and_changes_of_their_own(
    server: xp.Server, store: xp.Store, delta: bool
) -> None:
    # DYN-58, DYN-59, CLI-18
    def vary(**marks: str) -> None:
        with store.transaction() as tx:
            for env, mark in marks.items():
                tx.put(cluster("v", mark), when=f"env={env}")

    vary(prod="p1", test="t1")
    async with sound(), xp.Client(boot(server.address), delta=delta, verify_constraints=True) as client:
        prod = follow(client, xp.CLUSTER, "v", params={"env": "prod"})
        test = follow(client, xp.CLUSTER, "v", params={"env": "test"})
        assert [await heard(prod), await heard(test)] == [("v", "p1"), ("v", "t1")]
        vary(prod="p2")
        assert await heard(prod) == ("v", "p2")
        vary(test="t2")
        assert await heard(test) == ("v", "t2")
        assert prod.seen() == []
        with store.transaction() as tx:
            tx.delete(xp.CLUSTER, "v", when="env=prod")
        assert await heard(prod) == ("v", "NOT_FOUND")
        vary(test="t3")
        assert await heard(test) == ("v", "t3")
        await prod.close()
        await test.close()


@both
async def test_params_of_the_bootstrap_choose_the_variant(server: xp.Server, store: xp.Store, delta: bool) -> None:
    # DYN-48
    with store.transaction() as tx:
        tx.put(cluster("v", "prod"), when="env=prod")
        tx.put(cluster("v", "test"), when="env=test")
    source = boot(server.address, dynamic_parameters={"env": "test"})
    async with sound(), xp.Client(source, delta=delta) as client:
        assert (await client.get(xp.CLUSTER, "v", timeout=PATIENCE)).alt_stat_name == "test"


# -- refusals


@both
async def test_one_bad_resource_of_several_is_refused_and_the_others_arrive(
    server: xp.Server, store: xp.Store, delta: bool
) -> None:
    # NAK-14, NAK-15, NAK-17, NAK-20
    def picky(message: Any) -> list[str]:
        return ["too bad"] if message.alt_stat_name == "bad" else []

    nacks = facts_of(server, Nacked)
    async with sound(), xp.Client(boot(server.address), delta=delta, validators={xp.CLUSTER: picky}) as client:
        watched = follow(client, xp.CLUSTER, "a", "b")
        assert {await heard(watched), await heard(watched)} == {("a", "1"), ("b", "1")}
        put(store, cluster("a", "bad"), cluster("b", "2"))
        assert {await heard(watched), await heard(watched)} == {("a", "INVALID_ARGUMENT"), ("b", "2")}
        await until(lambda: nacks)
        assert nacks[0].error.message.endswith("invalid: a: too bad")
        assert await client.get(xp.CLUSTER, "a") == cluster("a", "1")
        put(store, cluster("a", "2"))
        assert await heard(watched) == ("a", "2")
        await watched.close()


# -- servers that come and go


@both
async def test_a_server_that_is_restarted_is_asked_again_and_resends_no_more_than_it_must(
    store: xp.Store, delta: bool
) -> None:
    # CLI-5, CLI-6, CLI-12, CLI-16, CLI-19
    first = xp.Server(store, listen="127.0.0.1:0")
    await first.start()
    async with sound(), xp.Client(boot(first.address), delta=delta) as client:
        watched = follow(client, xp.CLUSTER, "a", "b")
        assert {await heard(watched), await heard(watched)} == {("a", "1"), ("b", "1")}
        await first.stop()
        put(store, cluster("b", "2"))
        second = xp.Server(store, listen=first.address)
        sent, kept = facts_of(second, Sent), facts_of(second, Suppressed)
        async with second:
            while (update := await heard(watched)) == ("a", "UNAVAILABLE") or update == ("b", "UNAVAILABLE"):
                pass
            assert update == ("b", "2")
            put(store, cluster("a", "2"))
            assert await heard(watched) == ("a", "2")
            if delta:
                assert [fact.resources for fact in sent] == [1, 1]
                assert [fact.resources for fact in kept] == [1]
        await watched.close()


async def test_where_nothing_has_changed_a_restarted_server_resends_nothing(store: xp.Store) -> None:
    # CLI-6, CLI-12
    first = xp.Server(store, listen="127.0.0.1:0")
    await first.start()
    async with sound(), xp.Client(boot(first.address), delta=True) as client:
        watched = follow(client, xp.CLUSTER)
        assert {await heard(watched), await heard(watched)} == {("a", "1"), ("b", "1")}
        await first.stop()
        second = xp.Server(store, listen=first.address)
        asked, sent, kept = facts_of(second, Requested), facts_of(second, Sent), facts_of(second, Suppressed)
        async with second:
            await until(lambda: asked)
            put(store, cluster("a", "2"))
            while (update := await heard(watched))[1] == "UNAVAILABLE":
                pass
            assert update == ("a", "2")
            assert sum(fact.resources for fact in sent) == 1
            assert sum(fact.resources for fact in kept) == 2
        await watched.close()


@both
async def test_while_the_first_server_is_down_the_second_one_is_asked_and_left_again(
    store: xp.Store, delta: bool
) -> None:
    # FBK-1, FBK-3, FBK-4, FBK-5
    spare = xp.Store()
    put(spare, cluster("a", "spare"), cluster("b", "spare"))
    async with (
        sound(),
        xp.Server(store, listen="127.0.0.1:0") as main,
        xp.Server(spare, listen="127.0.0.1:0") as other,
        Door(doors.slam) as door,
        Door(leading_to(other.address)) as side_door,
        xp.Client(boot(door.address, side_door.address), delta=delta) as client,
    ):
        watched = follow(client, xp.CLUSTER, "a", "b")
        assert {await heard(watched), await heard(watched)} == {("a", "spare"), ("b", "spare")}
        door.treat = leading_to(main.address)
        assert {await heard(watched), await heard(watched)} == {("a", "1"), ("b", "1")}
        await until(lambda: not side_door.open)  # the connection too, not only the stream
        put(spare, cluster("a", "spare 2"))
        put(store, cluster("a", "2"))
        assert await heard(watched) == ("a", "2")
        assert watched.seen() == []
        await watched.close()


@both
async def test_with_everything_at_hand_a_server_that_goes_down_is_not_replaced(store: xp.Store, delta: bool) -> None:
    # FBK-2
    async with (
        sound(),
        xp.Server(store, listen="127.0.0.1:0") as main,
        xp.Server(xp.Store(), listen="127.0.0.1:0") as other,
        Door(leading_to(main.address)) as door,
        xp.Client(boot(door.address, other.address), delta=delta) as client,
    ):
        joined = facts_of(other, Joined)
        watched = follow(client, xp.CLUSTER, "a")
        assert await heard(watched) == ("a", "1")
        door.treat = doors.slam
        await main.stop()
        update = await within(PATIENCE, watched.next())
        assert status(update) == ("ambient", "UNAVAILABLE")
        came = door.came
        await until(lambda: door.came > came + 2)
        assert joined == []
        await watched.close()


@both
async def test_a_client_that_is_closed_leaves_and_stays_away(server: xp.Server, delta: bool) -> None:
    # CLI-24
    joined = facts_of(server, Joined)
    async with sound():
        async with xp.Client(boot(server.address), delta=delta) as client:
            assert await client.get(xp.CLUSTER, "a") == cluster("a", "1")
        await until(lambda: not server.hub.connected())
        await asyncio.sleep(0.3)  # longer than any pause before another try
        assert len(joined) == 1


# -- load reports


async def test_new_certificates_for_one_stream_do_not_end_the_other(tmp_path: Path) -> None:
    # BST-3, LRS-2
    certificate, key = identity(tmp_path, "server")
    shutil.copy(certificate, tmp_path / "ca.pem")
    reports: list[str] = []
    ends: list[asyncio.Event] = []

    async def serve(requests: Any, context: Any) -> AsyncIterator[bytes]:
        first = await anext(aiter(requests))
        if not pb.DiscoveryRequest.FromString(first).type_url:
            reports.append("begun")
            yield lrs.LoadStatsResponse(send_all_clusters=True).SerializeToString()
            async for _ in requests:
                pass
            reports.append("over")
            return
        ends.append(asyncio.Event())
        response = pb.DiscoveryResponse(type_url=xp.CLUSTER, nonce="1")
        response.resources.add().Pack(cluster("a", str(len(ends))))
        yield response.SerializeToString()
        await ends[-1].wait()

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Method(serve),))
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    source = boot(f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}")
    files = {"ca_certificate_file": str(tmp_path / "ca.pem"), "refresh_interval": "0.001s"}
    source["xds_servers"][0]["channel_creds"] = [{"type": "tls", "config": files}]
    await server.start()
    async with sound(), xp.Client(source) as client:
        client.loads()
        await until(lambda: reports)
        watched = follow(client, xp.CLUSTER, "a")
        assert await heard(watched) == ("a", "1")
        (tmp_path / "ca.pem").write_bytes(certificate.read_bytes() + identity(tmp_path, "other")[0].read_bytes())
        ends[0].set()
        assert await heard(watched) == ("a", "2")
        assert reports == ["begun"]
        await watched.close()
    await until(lambda: reports == ["begun", "over"])
    await server.stop(None)
