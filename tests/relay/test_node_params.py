"""Params that a relay takes from its clients' nodes, and passes on."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import Node

import xdsprism as xp
from tests.client.rig import both, cluster, timeless
from tests.relay.rig import Station, chain, pair, station
from tests.relay.test_groups import SOURCE, Legacy, _Served
from xdsprism.core.model.types import Params

NAMES = ["env", "labels.app", "node.locality.zone", "node.user_agent_version.major_minor"]


def somebody(zone: str = "a", app: str = "shop") -> Node:
    node = Node(id="x", cluster="edge", locality={"zone": zone})
    node.user_agent_build_version.version.major_number = 1
    node.user_agent_build_version.version.minor_number = 36
    node.metadata.update({"labels": {"app": app}, "env": "prod", "other": "y"})
    return node


async def told(relay: Station, node: Node, *, delta: bool = True) -> str:
    """What a plain client with this node gets."""
    client = await relay.raw(delta=delta)
    client.be(node)
    await client.want(xp.CLUSTER, "a")
    (response,) = await client.rest()
    client.close()
    (resource,) = response.resources
    return Cluster.FromString(resource.resource.value if delta else resource.value).alt_stat_name


@both
@timeless
async def test_a_relay_turns_the_whole_node_into_params_for_its_server(delta: bool) -> None:
    # DYN-12: the same function as in a server
    settings = xp.Settings(node_params=NAMES)
    async with pair(settings=settings) as (origin, relay):
        with origin.store.transaction() as tx:
            tx.put(cluster("a", "shop"), when="node.locality.zone=a and labels.app=shop")
            tx.put(cluster("a", "cart"), when="node.locality.zone=a and labels.app=cart")
            tx.put(cluster("a", "b"), when="node.locality.zone=b and node.user_agent_version.major_minor=1.36")
        assert await told(relay, somebody(), delta=delta) == "shop"
        assert await told(relay, somebody(app="cart"), delta=delta) == "cart"
        assert await told(relay, somebody("b"), delta=delta) == "b"
        named = {
            "env": "prod",
            "labels.app": "shop",
            "node.locality.zone": "a",
            "node.user_agent_version.major_minor": "1.36",
        }
        assert origin.asked(xp.CLUSTER)[0] == ("a", Params(named))


@timeless
async def test_keys_that_are_not_named_are_not_sent_upstream() -> None:
    # DYN-12
    async with chain(2, upstream_form="locators") as (origin, (_, relay)):
        origin.put(cluster("a", "x"), when="node.locality.zone!=a")
        assert await told(relay, somebody()) == "x"
        assert origin.asked(xp.CLUSTER) == [("a", Params({"env": "prod", "other": "y"}))]


@timeless
async def test_a_group_is_asked_for_by_a_node_with_its_fields() -> None:
    # PRX-20, PRX-21
    legacy = Legacy()
    settings = xp.Settings(node_params=["env", "node.locality.zone", "node.cluster"])
    options = {"settings": settings, "group_by": ["env", "node.locality.zone", "node.cluster"]}
    async with _Served(legacy), station(legacy.peer.connect, SOURCE, **options) as relay:
        assert await told(relay, somebody()) == "prod-1"
        assert [(node.id, node.cluster, node.locality.zone) for node in legacy.nodes] == [("relay-1", "edge", "a")]
