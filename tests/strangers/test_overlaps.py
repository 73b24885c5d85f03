"""Variants that overlap in the relay, since it learns for one parameter set after the other that one is gone."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.strangers.shapes import TRUE, both, either, eq, has, no
from tests.strangers.upstream import Habits
from tests.strangers.world import Client, World
from xdsprism.core.model.events import WILDCARD
from xdsprism.core.model.types import NO_PARAMS, Params

A, EDS_A = (xp.CLUSTER, "a"), (xp.ENDPOINT, "a")
TEST, PROD, PROD_X = Params({"env": "test"}), Params({"env": "prod"}), Params({"env": "prod", "x": "1"})
SHARED = either(eq("env", "prod"), eq("env", "test"))
NOT_PROD = both(has("env"), no(eq("env", "prod")))

downstream = pytest.mark.parametrize("delta", [True, False], ids=["to-delta", "to-sotw"])


def connect(world: World, *, delta: bool) -> Client:
    """A client that asks with several parameter sets, as a relay behind the relay does (PRX-24)."""
    client = world.connect(delta=delta)
    client.params = None
    return client


@downstream
def test_an_older_variant_for_one_subscription_takes_nothing_from_another(delta: bool) -> None:
    # DYN-45, PRX-38: a client uses the last that matches, and was given the newer one before
    world = World(Habits(delta=False, negatives=("omission",)), subjects=(EDS_A,))
    world.put(EDS_A, [world.stranger.offer(EDS_A, SHARED)])
    holder = world.connect(delta=True).watch(*EDS_A, PROD)
    client = connect(world, delta=delta)
    world.quiet()
    test = client.watch(*EDS_A, TEST)
    world.quiet()
    assert (holder.has, test.has) == ({"a": "m1"}, {"a": "m1"})
    world.step_go_down(None)  # type: ignore[arg-type]
    world.put(EDS_A, [world.stranger.offer(EDS_A, NOT_PROD)])
    world.come_up()
    world.connect(delta=True).watch(*EDS_A, Params({"env": "qa"}))  # which tells the relay of what is new
    world.quiet()
    assert test.has == {"a": "m5"}
    late = client.watch(*EDS_A, PROD_X)
    world.quiet()
    assert (test.has, late.has) == ({"a": "m5"}, {"a": "m1"})
    assert client.line.subscriber.facts == []


def test_in_a_full_state_the_newest_of_overlapping_variants_comes_last() -> None:
    # DYN-45, SOT-4: whichever was subscribed first; the old one is still to be withdrawn
    world = World(Habits(replaces=("resource-first",)), subjects=(A,))
    world.put(A, [world.stranger.offer(A, SHARED)])
    prod = world.connect(delta=True).watch(*A, PROD)
    world.quiet()
    client = connect(world, delta=False)
    test, late = (client.watch(*A, params) for params in (TEST, PROD_X))
    world.quiet()
    world.connect(delta=True).watch(*A, Params({"env": "qa"}))
    world.quiet()
    world.put(A, [world.stranger.offer(A, NOT_PROD)])
    world.relay.line.answer()
    world.relay.line.read(1)  # what is new, and not yet that the old one is gone
    world.relay.tend()
    client.talk()
    assert (test.has, late.has, prod.has) == ({"a": "m5"}, {"a": "m1"}, {"a": "m1"})
    world.quiet()
    assert (test.has, late.has, prod.has) == ({"a": "m5"}, {"a": None}, {"a": None})


def test_a_variant_lost_by_a_wildcard_is_withdrawn_when_its_last_name_ends() -> None:
    # PRX-31, WLD-9: a removal is about the variant, so it was not said while one subscription had it
    world = World(Habits(delta=False, negatives=("error",)), subjects=(A,))
    world.put(A, [world.stranger.offer(A, TRUE)])
    client = connect(world, delta=True)
    named, wild = client.watch(*A, PROD_X), client.watch(xp.CLUSTER, WILDCARD, NO_PARAMS)
    world.quiet()
    assert (named.has, wild.has) == ({"a": "m1"}, {"a": "m1"})
    world.put(A, [])
    world.relay.line.answer()
    world.relay.line.read()
    world.relay.tend()
    client.talk()
    client.leave(named)
    world.quiet()
    assert wild.has == {"a": None}


def test_nothing_is_withdrawn_from_a_wildcard_when_a_name_goes_that_has_the_same_variant() -> None:
    # PRX-31, WLD-9
    world = World(Habits(delta=False, negatives=("error",)), subjects=(A,))
    world.put(A, [world.stranger.offer(A, TRUE)])
    client = connect(world, delta=True)
    named, wild = client.watch(*A, PROD_X), client.watch(xp.CLUSTER, WILDCARD, NO_PARAMS)
    world.quiet()
    assert (named.has, wild.has) == ({"a": "m1"}, {"a": "m1"})
    client.leave(named)
    world.quiet()
    assert wild.has == {"a": "m1"}
