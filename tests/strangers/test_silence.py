"""SotW servers, which can't report removals of all types: what a relay concludes from their responses."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.strangers.shapes import eq
from tests.strangers.upstream import Habits
from tests.strangers.world import Watcher, World
from xdsprism.core.model.events import WILDCARD
from xdsprism.core.model.settings import RELAY
from xdsprism.core.model.types import NO_PARAMS, Params

A, B, EDS_A = (xp.CLUSTER, "a"), (xp.CLUSTER, "b"), (xp.ENDPOINT, "a")
ONE, PROD_ONE = Params({"v": "1"}), Params({"env": "prod", "v": "1"})

downstream = pytest.mark.parametrize("delta", [True, False], ids=["to-delta", "to-sotw"])


def part(world: World, *, delta: bool) -> Watcher:
    """Two share a variant. One of them is away when it goes, comes back, and asks."""
    world.put(A, [world.stranger.offer(A, eq("v", "1"))])
    stays, leaves = (world.connect(delta=delta, node=params).watch(*A, params) for params in (ONE, PROD_ONE))
    world.quiet()
    assert (stays.has, leaves.has) == ({"a": "m1"}, {"a": "m1"})
    leaves.client.line.cut()
    leaves.client.line.open()
    leaves.client.rejoined = {A: world.stranger.past(A).now}
    world.put(A, [])
    world.relay.line.answer()
    world.relay.line.read()
    world.relay.tend()
    return leaves


@downstream
def test_a_returning_client_learns_from_a_full_state_that_a_shared_resource_is_gone(delta: bool) -> None:
    # PRX-34: it came after the question, and does not have the answer; nothing else does either
    world = World(Habits(delta=False, negatives=("omission",)), subjects=(A,))
    leaves = part(world, delta=delta)
    leaves.client.talk()
    world.connect(delta=True).watch(xp.CLUSTER, WILDCARD, NO_PARAMS)  # a wildcard is always answered
    world.quiet()
    assert leaves.has == {"a": None}


@downstream
def test_a_full_state_decides_though_the_server_took_too_long_for_it(delta: bool) -> None:
    # PRX-34, PRX-11: while it says nothing at all, it may be slow
    world = World(Habits(delta=False, negatives=("silence",)), subjects=(A, B))
    world.stranger.maybe = lambda _chance=0.5: True  # type: ignore[method-assign] # it need not answer, and does not
    leaves = part(world, delta=delta)
    world.quiet()
    assert leaves.has == {"a": "m1"}
    world.connect(delta=True).watch(*B, NO_PARAMS)
    world.put(B, [world.stranger.offer(B, ("and",))])
    world.quiet()
    assert leaves.has == {"a": None}


@downstream
def test_a_full_state_of_a_relay_does_not_decide(delta: bool) -> None:
    # PRX-24, PRX-11: it leaves out what it does not know yet
    world = World(Habits(delta=False, negatives=("omission",)), subjects=(A,))
    upstream = world.relay.line.upstream
    note_response, upstream.note_response = upstream.note_response, lambda _server: note_response(RELAY)  # type: ignore[method-assign]
    leaves = part(world, delta=delta)
    leaves.client.talk()
    world.connect(delta=True).watch(xp.CLUSTER, WILDCARD, NO_PARAMS)
    world.quiet()
    assert leaves.has == {"a": "m1"}


@downstream
def test_an_absence_for_more_params_than_asked_is_checked_on_a_new_stream(delta: bool) -> None:
    # PRX-31: a server that believes that the client has its state does not say again of whom it said so
    for seed in range(10):  # in some of them it is said of both who have nothing
        world = World(Habits(delta=False, negatives=("wider-error",), honours_versions=True), seed, subjects=(EDS_A,))
        world.put(EDS_A, [world.stranger.offer(EDS_A, eq("env", "prod"))])
        known = (Params({"env": "prod"}), Params({"x": "1"}), Params({"env": "test"}))
        watchers = [world.connect(delta=delta, node=params).watch(*EDS_A, params) for params in known]
        world.quiet()
        world.relay.line.cut()
        world.come_up()
        world.settle()
        offer = world.stranger.offer(EDS_A, eq("env", "test"))
        world.put(EDS_A, [*world.stranger.offers(*EDS_A), offer])
        world.quiet()
        assert [each.has["a"] for each in watchers] == ["m1", None, offer.mark]
