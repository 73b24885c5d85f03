"""/api/clients with filters, and /api/client: one client, resource by resource, against what raw streams did."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from tests.admin.rig import Office, Peer, eventually_async, locator
from xdsprism import CLUSTER, ENDPOINT, SECRET, Store
from xdsprism.admin import client_model
from xdsprism.core.model.history import History
from xdsprism.core.session import resource_status

BOTH = pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
ERROR = {"code": 3, "message": "shop: no such luck"}


def _named(name: str, env: str = "prod") -> Node:
    node = Node(id=name)
    node.metadata["env"] = env
    return node


async def _resources(office: Office, query: str) -> list[Any]:
    return list((await office.page(f"/api/client?{query}"))["resources"])


async def _states(office: Office, query: str) -> dict[str, str]:
    return {each["name"]: each["state"] for each in await _resources(office, query)}


async def _wait_for_state(office: Office, node: str, state: str) -> None:
    async def seen() -> Any:
        return [each["state"] for each in (await office.page(f"/api/clients?node={node}"))["clients"]]

    await eventually_async(seen, [state])


async def _ack(peer: Peer, response: Any, type_url: str = CLUSTER, names: tuple[str, ...] = (), **more: Any) -> None:
    wanted = {} if hasattr(response, "system_version_info") else {"resource_names": names}
    await peer.send(type_url=type_url, response_nonce=response.nonce, **wanted, **more)


def _edit(store: Store, name: str, text: str) -> None:
    with store.transaction() as tx:
        tx.put(Cluster(name=name, alt_stat_name=text))


# NAK-12: a fleet in which one client is behind, one rejected what it got, one is well, and one has gone
@BOTH
async def test_the_clients_are_filtered_by_node_type_and_state(office: Office, delta: bool):
    async with Peer(office.server.address, delta=delta) as behind, Peer(office.server.address, delta=delta) as bad:
        async with Peer(office.server.address, delta=delta) as gone:
            await _ack(gone, await gone.ask(CLUSTER, ["plain"], node=_named("web-gone")), names=("plain",))
            await behind.ask(CLUSTER, ["plain"], node=_named("web-behind"))
            await _ack(
                bad, await bad.ask(CLUSTER, ["shop"], node=_named("api-bad")), names=("shop",), error_detail=ERROR
            )
            for node, state in (("web-gone", "SYNCED"), ("web-behind", "STALE"), ("api-bad", "NACKED")):
                await _wait_for_state(office, node, state)
            await bad.send(type_url=ENDPOINT, **{_wanted(delta): ["nope"]})
        await eventually_async(lambda: _names(office, ""), {"web-behind", "api-bad"})
        whole = await office.page("/api/clients")
        assert (whole["total"], whole["states"]) == (2, {"NACKED": 1, "STALE": 1, "NOT SENT": 0, "SYNCED": 0})
        assert await _names(office, "node=web-*") == {"web-behind"}
        assert await _names(office, "node=*bad") == {"api-bad"}
        assert await _names(office, "node=web") == set()
        assert await _names(office, "state=NACKED") == {"api-bad"}
        assert await _names(office, "state=stale&type=cds") == {"web-behind"}
        assert await _names(office, "type=eds") == {"api-bad"}
        assert await _names(office, "type=eds&state=nacked") == set()
        assert await _names(office, "type=lds") == set()
        (only,) = (await office.page("/api/clients?node=api-bad&type=cds"))["clients"]
        assert [each["type"] for each in only["types"]] == ["cds"]


def _wanted(delta: bool) -> str:
    return "resource_names_subscribe" if delta else "resource_names"


async def _names(office: Office, query: str) -> set[str]:
    return {each["node"]["id"] for each in (await office.page(f"/api/clients?{query}"))["clients"]}


@BOTH
async def test_a_client_is_stale_since_the_oldest_response_that_it_did_not_answer(office: Office, delta: bool):
    async with Peer(office.server.address, delta=delta) as peer:
        first = await peer.ask(CLUSTER, ["plain"], node=_named("n"))
        (client,) = (await office.page("/api/clients?brief=1"))["clients"]
        earlier = client["types"][0]["stale_seconds"]
        assert 0 <= earlier <= client["age_seconds"]
        assert client["types"][0]["subscriptions"] == {"total": 1, "first": []}
        _edit(office.store, "plain", "second")
        await peer.read()
        later = (await office.client())["types"][0]
        assert later["sent"]["seconds_ago"] < later["stale_seconds"]
        assert earlier < later["stale_seconds"]
        if delta:  # each is answered by itself; SotW clients answer the newest
            await _ack(peer, first, names=("plain",))

            async def acked() -> int:
                return int(((await office.client())["types"][0]["acked"] or {"responses": 0})["responses"])

            await eventually_async(acked, 1)
            shown = (await office.client())["types"][0]
            assert shown["stale_seconds"] == pytest.approx(shown["sent"]["seconds_ago"], abs=0.01)


@BOTH
async def test_what_was_rejected_is_shown_with_its_variant_and_error(office: Office, delta: bool):
    async with Peer(office.server.address, delta=delta) as peer:
        got = await peer.ask(CLUSTER, ["shop"], node=_named("n"))
        await _ack(peer, got, names=("shop",), error_detail=ERROR)
        await _wait_for_state(office, "n", "NACKED")
        page = await office.page("/api/client?node=n&bodies=1")
    (row,) = page["resources"]
    assert (page["total"], row["state"], row["error"], row["has"]) == (1, "NACKED", ERROR, None)
    assert row["current"]["constraint"] == row["sent"]["constraint"] == "env=prod"
    assert row["current"]["body"]["alt_stat_name"] == "prod"
    assert "origin" in row["current"]
    assert page["clients"][0]["state"] == "NACKED"


# SOT-4, A46: a full state is rejected as a whole, and the message names what was bad
async def test_of_a_rejected_full_state_the_resources_that_the_message_names_are_shown(office: Office):
    async with Peer(office.server.address, delta=False) as peer:
        got = await peer.ask(CLUSTER, node=_named("n"))
        await _ack(peer, got, error_detail=ERROR)
        await _wait_for_state(office, "n", "NACKED")
        assert await _states(office, "node=n") == {"shop": "NACKED", "plain": "SYNCED"}


@BOTH
async def test_the_resources_of_a_wildcard_are_listed_those_in_trouble_first(office: Office, delta: bool):
    async with Peer(office.server.address, delta=delta) as peer:
        await _ack(peer, await peer.ask(CLUSTER, ["*"] if delta else [], node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        assert await _states(office, "node=n") == {"shop": "SYNCED", "plain": "SYNCED"}
        _edit(office.store, "plain", "better")
        await peer.read()
        rows = await _resources(office, "node=n")
        assert (rows[0]["name"], rows[0]["state"]) == ("plain", "STALE")
        assert rows[0]["stale_seconds"] >= 0
        assert await _resources(office, "node=n&offset=1&limit=1") == [rows[1]]
        assert (await _states(office, "node=n&state=STALE"))["plain"] == "STALE"
        assert set(await _states(office, "node=n&state=SYNCED")) == {"shop"}
        assert await _states(office, "node=n&type=eds") == {}


async def test_what_a_client_has_is_what_it_accepted_last(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        await _ack(peer, await peer.ask(CLUSTER, ["plain", "shop"], node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        first = {each["name"]: each["has"]["version"] for each in await _resources(office, "node=n")}
        _edit(office.store, "plain", "second")
        await peer.read()
        _edit(office.store, "plain", "third")
        await peer.read()
        (row,) = await _resources(office, "node=n&state=STALE&bodies=1")
        assert (row["has"]["version"], "alt_stat_name" in row["has"]["body"]) == (first["plain"], False)
        assert row["unanswered"]["body"]["alt_stat_name"] == "second"
        assert row["current"]["body"]["alt_stat_name"] == "third"
        with office.store.transaction() as tx:  # the variant for all is replaced by two
            tx.delete(CLUSTER, "plain")
            tx.put(Cluster(name="plain", alt_stat_name="a"), when="env=prod")
            tx.put(Cluster(name="plain", alt_stat_name="b"), when="env!=prod")
        (row,) = await _resources(office, "node=n&state=STALE&bodies=1")
        assert (row["has"]["version"], row["current"]["constraint"]) == (first["plain"], "env=prod")


async def test_a_former_version_that_nothing_remembers_has_no_version(office: Office):
    office.server.hub.history = History(revisions=1)
    async with Peer(office.server.address, delta=True) as peer:
        await _ack(peer, await peer.ask(CLUSTER, ["plain"], node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        _edit(office.store, "plain", "second")
        await peer.read()
        _edit(office.store, "plain", "third")
        await peer.read()
        (row,) = await _resources(office, "node=n&state=STALE&bodies=1")
    assert row["has"] == {"version": None, "constraint": None}
    assert row["current"]["body"]["alt_stat_name"] == "third"


# SOT-4, SRV-12: the responses with a full state are not kept, but their versions say what the client has
async def test_of_a_full_state_what_did_not_change_since_the_last_ack_is_synced(office: Office):
    _edit(office.store, "plain", "long ago")
    _edit(office.store, "goes", "soon")
    async with Peer(office.server.address, delta=False) as peer:
        await _ack(peer, await peer.ask(CLUSTER, node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        for text in ("second", "third"):
            with office.store.transaction() as tx:
                tx.put(Cluster(name="shop", alt_stat_name=text), when="env=prod")
                tx.put(Cluster(name="new", alt_stat_name=text))
            await peer.read()
        with office.store.transaction() as tx:
            tx.delete(CLUSTER, "goes")
        await peer.read()
        rows = {each["name"]: each for each in await _resources(office, "node=n&bodies=1")}
    assert {name: row["state"] for name, row in rows.items()} == {"shop": "STALE", "new": "STALE", "plain": "SYNCED"}
    assert rows["shop"]["has"]["constraint"] == "env=prod"
    assert rows["shop"]["has"]["body"]["alt_stat_name"] == "prod"
    assert rows["shop"]["current"]["body"]["alt_stat_name"] == "third"
    assert rows["new"]["has"] is None
    assert rows["plain"]["has"]["version"] == rows["plain"]["current"]["version"]


async def test_of_a_rejected_full_state_what_did_not_change_is_not_to_blame(office: Office):
    async with Peer(office.server.address, delta=False) as peer:
        await _ack(peer, await peer.ask(CLUSTER, node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        first = {each["name"]: each["has"]["version"] for each in await _resources(office, "node=n")}
        _edit(office.store, "plain", "second")
        await _ack(peer, await peer.read(), error_detail={"code": 3, "message": "something is wrong"})
        await _wait_for_state(office, "n", "NACKED")
        rows = {each["name"]: each for each in await _resources(office, "node=n")}
    assert {name: row["state"] for name, row in rows.items()} == {"plain": "NACKED", "shop": "SYNCED"}
    assert {name: row["has"]["version"] for name, row in rows.items()} == first


async def test_of_a_full_state_nothing_is_known_once_the_history_forgot_it(office: Office):
    office.server.hub.history = History(revisions=1)
    async with Peer(office.server.address, delta=False) as peer:
        await _ack(peer, await peer.ask(CLUSTER, node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        for text in ("second", "third"):
            _edit(office.store, "plain", text)
            await peer.read()
        rows = {each["name"]: each for each in await _resources(office, "node=n")}
    assert {name: row["state"] for name, row in rows.items()} == {"shop": "STALE", "plain": "STALE"}
    assert rows["shop"]["has"] == {"version": None, "constraint": None}


# OPS-14: a secret that was replaced is gone
async def test_a_secret_that_a_client_is_behind_with_is_not_shown(office: Office):
    def put(text: str) -> None:
        with office.store.transaction() as tx:
            tx.put(Secret(name="s", generic_secret={"secret": {"inline_string": text}}))

    put("hunter2-old")
    async with Peer(office.server.address, delta=True) as peer:
        await _ack(peer, await peer.ask(SECRET, ["s"], node=_named("n")), SECRET)
        await _wait_for_state(office, "n", "SYNCED")
        put("hunter2-new")
        await peer.read()
        page = await office.page("/api/client?node=n&bodies=1")
    assert page["resources"][0]["state"] == "STALE"
    assert "hunter2" not in str(page)


async def test_resources_that_do_not_exist_and_locators_are_shown(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        wanted = [locator("shop", {"env": "test"}), locator("shop", {"env": "qa"})]
        got = await peer.ask(CLUSTER, ["nope"], resource_locators_subscribe=wanted, node=_named("n"))
        assert {each["state"] for each in await _resources(office, "node=n")} == {"STALE"}
        await _ack(peer, got)
        await _wait_for_state(office, "n", "SYNCED")
        rows = {(each["name"], str(each["params"])): each for each in await _resources(office, "node=n")}
    assert {key: (row["state"], row["current"] and row["current"]["constraint"]) for key, row in rows.items()} == {
        ("nope", "None"): ("SYNCED", None),
        ("shop", "{'env': 'test'}"): ("SYNCED", "env=test"),
        ("shop", "{'env': 'qa'}"): ("SYNCED", None),
    }
    assert rows["shop", "{'env': 'test'}"]["has"]["constraint"] == "env=test"


# DYN-19: each locator is a subscription of its own
async def test_of_two_locators_only_the_one_that_waits_for_its_answer_is_stale(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        first = [locator("shop", {"env": "test"})]
        await _ack(peer, await peer.ask(CLUSTER, [], resource_locators_subscribe=first, node=_named("n")))
        await _wait_for_state(office, "n", "SYNCED")
        await peer.ask(CLUSTER, [], resource_locators_subscribe=[locator("shop", {"env": "prod"})])
        rows = {each["params"]["env"]: each for each in await _resources(office, "node=n")}
    assert {env: row["state"] for env, row in rows.items()} == {"test": "SYNCED", "prod": "STALE"}
    assert rows["prod"]["unanswered"]["constraint"] == "env=prod"


async def test_a_client_with_a_stream_for_each_type_is_one_client(office: Office):
    with office.store.transaction() as tx:
        tx.put(ClusterLoadAssignment(cluster_name="e"))
    async with Peer(office.server.address, delta=True) as one, Peer(office.server.address, delta=True) as other:
        await one.ask(CLUSTER, ["plain"], node=_named("n"))
        await other.ask(ENDPOINT, ["e"], node=_named("n"))
        page = await office.page("/api/client?node=n")
        streams = {each["types"][0]["type"]: each["stream"] for each in page["clients"]}
        assert set(streams) == {"cds", "eds"}
        assert {(each["type"], each["name"]) for each in page["resources"]} == {("cds", "plain"), ("eds", "e")}
        assert list(await _states(office, f"stream={streams['eds']}")) == ["e"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        (
            "/api/client",
            400,
            "give either node= or stream=: /api/client?node=ID, or stream=NUMBER as /api/clients has it",
        ),
        ("/api/client?node=a&stream=1", 400, "give either node= or stream="),
        ("/api/client?node=x", 404, "no client with this node id is connected; /api/clients lists those that are"),
        ("/api/client?stream=7", 404, "no client with this stream number is connected"),
        ("/api/client?stream=x", 400, "stream= is not a number"),
        ("/api/clients?state=BAD", 400, "state= is none of NACKED, STALE, NOT SENT, SYNCED"),
        ("/api/clients?type=frob", 400, "type= is not a resource type"),
        ("/api/clients?brief=yes", 400, "brief= is neither 0 nor 1"),
    ],
)
async def test_wrong_queries_say_what_is_wrong(office: Office, path: str, status: int, said: str):
    code, text = await office.error(path)
    assert code == status
    assert text.startswith(said)


# OPS-10, OPS-14
async def test_contents_are_bounded_and_without_secrets(office: Office, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_model, "BODIES", 1)
    monkeypatch.setattr(resource_status, "LOOKED_AT", 3)
    with office.store.transaction() as tx:
        for number in range(5):
            tx.put(Cluster(name=f"c{number}"))
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(CLUSTER, ["*"], node=_named("n"))
        page = await office.page("/api/client?node=n&bodies=1")
    assert (page["total"], page["left_out"]) == (3, 4)
    assert ["body" in each["current"] for each in page["resources"]] == [True, False, False]


# OPS-10
async def test_contents_that_are_too_large_are_not_shown(office: Office, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_model, "LARGEST", 100)
    _edit(office.store, "plain", "x" * 200)
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(CLUSTER, ["plain", "shop"], node=_named("n"))
        rows = {each["name"]: each for each in await _resources(office, "node=n&bodies=1")}
    assert "body" in rows["shop"]["current"]
    assert "body" not in rows["plain"]["current"]
    assert rows["plain"]["current"]["too_large"] > 200
