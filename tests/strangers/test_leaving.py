"""Responses in flight while subscriptions begin and end."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.strangers.shapes import eq, has, no
from tests.strangers.upstream import Habits
from tests.strangers.world import World
from xdsprism.core.model.events import WILDCARD
from xdsprism.core.model.types import Params

A, B, EDS_A = (xp.CLUSTER, "a"), (xp.CLUSTER, "b"), (xp.ENDPOINT, "a")
TEST, OTHER = Params({"env": "test"}), Params({"x": "1"})

downstream = pytest.mark.parametrize("delta", [True, False], ids=["to-delta", "to-sotw"])


@downstream
def test_an_answer_to_an_ended_subscription_reaches_only_matching_clients(delta: bool) -> None:
    # PRX-4, DYN-56
    world = World(Habits(), subjects=(EDS_A,), linger=0.0)
    leaver, other = (world.connect(delta=delta, node=params).watch(*EDS_A, params) for params in (TEST, OTHER))
    world.quiet()
    world.put(EDS_A, [world.stranger.offer(EDS_A, eq("env", "test"))])
    world.relay.line.answer()
    leaver.client.leave(leaver)
    leaver.client.talk()
    world.relay.tend()
    world.quiet()
    assert other.has == {"a": None}


@downstream
def test_a_removal_while_a_wildcard_takes_over_counts_for_both(delta: bool) -> None:
    # PRX-5: what the wildcard has of those who asked by name is not the server's answer to it
    world = World(Habits(), subjects=(A,))
    world.put(A, [world.stranger.offer(A, eq("env", "test"))])
    named = world.connect(delta=delta, node=TEST).watch(*A, TEST)
    world.quiet()
    wild = world.connect(delta=delta, node=TEST).watch(xp.CLUSTER, WILDCARD, TEST)
    wild.client.talk()
    world.relay.tend()
    world.relay.line.ask()
    world.put(A, [])
    world.quiet()
    assert (named.has["a"], wild.has.get("a")) == (None, None)


@downstream
def test_a_wildcard_that_is_asked_for_while_a_new_stream_begins_is_answered(delta: bool) -> None:
    # CLI-5, PRX-12: the version of what the relay has says nothing of what it never asked for
    world = World(Habits(delta=False, negatives=("error",), honours_versions=True), subjects=(A, B))
    world.put(B, [world.stranger.offer(B, eq("env", "test"))])
    world.connect(delta=delta, node=TEST).watch(*A, TEST)
    world.quiet()
    world.relay.line.cut()
    world.come_up()
    wild = world.connect(delta=delta, node=TEST).watch(xp.CLUSTER, WILDCARD, TEST)
    wild.client.talk()
    world.relay.tend()
    world.quiet()
    assert wild.has == {"b": "m1"}


@downstream
def test_a_wildcard_takes_over_a_doubted_resource_with_its_doubt(delta: bool) -> None:
    # PRX-31, PRX-5: the server has nothing more to say of what it never sent on this stream
    world = World(Habits(negatives=("bare",)), subjects=(A,))
    world.put(A, [world.stranger.offer(A, no(has("v")))])
    named = world.connect(delta=delta, node=TEST).watch(*A, TEST)
    world.quiet()
    world.put(A, [])
    world.relay.line.cut()
    world.come_up()
    world.settle()
    wild = world.connect(delta=delta, node=TEST).watch(xp.CLUSTER, WILDCARD, TEST)
    world.quiet()
    assert (named.has["a"], wild.has.get("a")) == (None, None)
