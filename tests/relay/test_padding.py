"""A server whose variants begin to mention another key, through relays."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.client.rig import cluster, follow, timeless
from tests.relay.rig import MODE_IDS, MODES, Origin, chain, marks, pair

modes = pytest.mark.parametrize(("up", "down"), MODES, ids=MODE_IDS)

PROD, TEST = {"env": "prod", "version": "v1"}, {"env": "test"}


def split(origin: Origin) -> None:
    """TP2's transition: env=prod becomes two variants over version, env=test stays."""
    with origin.store.transaction() as tx:
        tx.delete(xp.CLUSTER, "a", when="env=prod")
        tx.put(cluster("a", "one"), when="env=prod and version=v1")
        tx.put(cluster("a", "two"), when="env=prod and version=v2")


@modes
@timeless
async def test_clients_of_a_relay_see_the_transition_as_one_update_without_a_gap(up: bool, down: bool) -> None:
    # DYN-24, DYN-34, PRX-5, PRX-6
    async with chain(2, delta=up) as (origin, (_, relay)), relay.client(delta=down) as client:
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        prod = follow(client, xp.CLUSTER, "a", params=PROD)
        test = follow(client, xp.CLUSTER, "a", params=TEST)
        assert await marks(prod) == [("a", "prod")]
        assert await marks(test) == [("a", "test")]
        split(origin)
        assert await marks(prod) == [("a", "one")]
        assert await marks(test) == [("a", "test")]  # its constraints are new, its contents are not
        with origin.store.transaction() as tx:
            tx.delete(xp.CLUSTER, "a", when="env=prod and version=v1")
            tx.delete(xp.CLUSTER, "a", when="env=prod and version=v2")
            tx.put(cluster("a", "prod"), when="env=prod")
        assert await marks(prod) == [("a", "prod")]
        assert await marks(test) == [("a", "test")]


@timeless
async def test_a_relay_replaces_the_padded_variant_in_one_response_with_the_constraints_that_it_was_told() -> None:
    # DYN-24, DYN-25, DYN-34, PRX-3
    async with pair() as (origin, relay):
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        client = await relay.raw()
        await client.want(xp.CLUSTER, "a", params=TEST)
        (first,) = await client.rest()
        await client.ack(first)
        split(origin)
        (second,) = await client.rest()
        (came,), (went,) = second.resources, second.removed_resource_names
        shown = [
            str(xp.Expression.from_proto(each.dynamic_parameter_constraints)) for each in (came.resource_name, went)
        ]
        assert shown == ["env=test and (version exists or not version exists)", "env=test"]
        await client.ack(second)
        origin.put(cluster("a", "three"), when="env=prod and version=v3")  # the keys stay as they are
        assert await client.rest() == []
        client.close()


@timeless
async def test_a_plain_client_behind_a_relay_keeps_its_variant_through_the_transition() -> None:
    # DYN-27, DYN-34
    async with pair() as (origin, relay), relay.client(metadata=TEST) as client:
        origin.vary(prod=cluster("a", "prod"), test=cluster("a", "test"))
        watched = follow(client, xp.CLUSTER, "a")
        assert await marks(watched) == [("a", "test")]
        split(origin)
        assert await marks(watched) == []  # to a plain client nothing is new
