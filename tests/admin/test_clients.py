"""/api/clients: connected clients, what each was sent, and its ACKs and NACKs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node

from tests.admin.rig import Office, Peer, eventually_async, locator
from xdsprism import CLUSTER, ENDPOINT


def _node() -> Node:
    node = Node(id="envoy-1", cluster="web", user_agent_name="envoy", client_features=["x"])
    node.metadata.update({"env": "prod", "count": 3})
    return node


async def _session(office: Office) -> Any:
    return (await office.client())["types"][0]


async def test_a_stream_is_shown_with_its_client_and_method(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(CLUSTER, ["shop"], node=_node())
        client = await office.client()
        assert client["node"] == {
            "id": "envoy-1",
            "cluster": "web",
            "user_agent": "envoy",
            "metadata": {"env": "prod"},
            "features": ["x"],
        }
        assert client["params"] == {"env": "prod"}
        assert client["method"].endswith("/DeltaAggregatedResources")
        assert client["delta"] is True
        assert re.fullmatch(r"ipv4:127\.0\.0\.1:\d+", client["peer"])
        since = datetime.fromisoformat(client["since"])
        assert timedelta(0) <= datetime.now(UTC) - since + timedelta(seconds=1) < timedelta(minutes=2)
    await eventually_async(lambda: _total(office), 0)


# OPS-14
async def test_metadata_and_params_that_look_like_secrets_are_not_shown(office: Office):
    node = Node(id="envoy-1")
    node.metadata.update({"env": "prod", "API_KEY": "hush", "note": "Bearer hush-hush-hush"})
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(
            CLUSTER,
            resource_locators_subscribe=[locator("shop", {"env": "prod", "password": "hush"})],
            node=node,
        )
        client = await office.client()
    assert client["node"]["metadata"] == {"API_KEY": "[redacted]", "env": "prod", "note": "[redacted]"}
    assert client["params"] == client["node"]["metadata"]
    assert client["types"][0]["subscriptions"]["first"][0]["params"] == {"env": "prod", "password": "[redacted]"}
    assert "hush" not in str(client)


async def _total(office: Office) -> int:
    return int((await office.page("/api/clients"))["total"])


async def test_a_stream_that_said_nothing_yet_has_no_node(office: Office):
    async with Peer(office.server.address, delta=False):
        await eventually_async(lambda: _total(office), 1)
        client = await office.client()
    assert (client["node"], client["types"], client["delta"]) == (None, [], False)


# DYN-46
async def test_refused_subscriptions_of_a_stream_are_shown_by_limit(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(CLUSTER, ["plain"])
        assert (await office.client())["refused"] == {}
        await peer.ask(CLUSTER, ["x" * 5000, "y" * 5000])
        client = await office.client()
    assert client["refused"] == {"name_bytes": 2}
    assert client["types"][0]["subscriptions"]["total"] == 1


# NAK-12, NAK-13
@pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])
async def test_the_state_follows_ack_and_nack(office: Office, delta: bool):
    async with Peer(office.server.address, delta=delta) as peer:
        first = await peer.ask(CLUSTER, ["plain"])
        seen = await _session(office)
        assert (seen["type"], seen["type_url"], seen["state"]) == ("cds", CLUSTER, "STALE")
        assert (seen["sent"]["responses"], seen["acked"], seen["nack"]) == (1, None, None)

        wanted = {} if delta else {"resource_names": ["plain"]}
        error = {"code": 3, "message": "no such luck"}
        await peer.send(type_url=CLUSTER, response_nonce=first.nonce, error_detail=error, **wanted)
        await eventually_async(lambda: _state(office), "NACKED")
        seen = await _session(office)
        version = first.system_version_info if delta else first.version_info
        nack = seen["nack"]
        assert (nack["code"], nack["message"], nack["nonce"], nack["version"]) == (
            3,
            "no such luck",
            first.nonce,
            version,
        )
        assert datetime.now(UTC) - datetime.fromisoformat(nack["time"]) < timedelta(minutes=1)
        assert seen["rejected"] == ({"plain": error} if delta else {})

        with office.store.transaction() as tx:
            tx.put(Cluster(name="plain", alt_stat_name="better"), aliases=["simple"])
        second = await peer.read()
        await peer.send(type_url=CLUSTER, response_nonce=second.nonce, **wanted)
        await eventually_async(lambda: _state(office), "SYNCED")
        seen = await _session(office)
        assert (seen["nack"], seen["rejected"]) == (None, {})
        assert seen["acked"]["responses"] == seen["sent"]["responses"] == 2
        assert seen["acked"]["version"] == seen["sent"]["version"]
        assert 0 <= seen["acked"]["seconds_ago"] <= seen["sent"]["seconds_ago"] < 60


async def _state(office: Office) -> str:
    return str((await _session(office))["state"])


# SOT-9
async def test_a_type_without_a_response_is_not_sent(office: Office):
    async with Peer(office.server.address, delta=False) as peer:
        await peer.send(type_url=ENDPOINT, resource_names=["nope"])
        await peer.ask(CLUSTER, ["shop"])
        types = {each["type"]: each for each in (await office.client())["types"]}
    assert list(types) == ["cds", "eds"]
    assert (types["eds"]["state"], types["eds"]["sent"], types["eds"]["acked"]) == ("NOT SENT", None, None)


# DYN-19: plain names, locators and wildcards are subscriptions of their own
async def test_subscriptions_are_shown_with_the_variant_that_is_meant_for_them(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        locators = [locator("shop", {"env": "test", "x": "y"}), locator("shop", {"env": "qa"})]
        await peer.ask(CLUSTER, ["shop", "*"], resource_locators_subscribe=locators, node=_node())
        subscriptions = (await _session(office))["subscriptions"]
    assert subscriptions["total"] == 4
    shown = {str(each["params"]): each for each in subscriptions["first"] if each["name"] == "shop"}
    assert {params: each["variant"] for params, each in shown.items()} == {
        "None": "env=prod",
        "{'env': 'test', 'x': 'y'}": "env=test",
        "{'env': 'qa'}": None,
    }
    assert {"name": "*", "params": None} in subscriptions["first"]


async def test_only_the_first_hundred_subscriptions_are_shown(office: Office):
    async with Peer(office.server.address, delta=True) as peer:
        await peer.ask(CLUSTER, [f"c{number}" for number in range(250)])
        subscriptions = (await _session(office))["subscriptions"]
    assert subscriptions["total"] == 250
    assert [each["name"] for each in subscriptions["first"]] == [f"c{number}" for number in range(100)]


async def test_clients_are_paged(office: Office):
    async with Peer(office.server.address, delta=True) as one:
        await one.ask(CLUSTER, ["shop"], node=Node(id="a"))
        async with Peer(office.server.address, delta=True) as two:
            await two.ask(CLUSTER, ["shop"], node=Node(id="b"))
            first = await office.page("/api/clients?limit=1")
            second = await office.page("/api/clients?limit=1&offset=1")
    assert [(page["total"], len(page["clients"])) for page in (first, second)] == [(2, 1), (2, 1)]
    assert [page["clients"][0]["node"]["id"] for page in (first, second)] == ["a", "b"]
