"""Constraints that a server writes in another form each time mean what they meant before."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.strangers.shapes import eq
from tests.strangers.upstream import Habits
from tests.strangers.world import World
from xdsprism.core.model.types import Params

A = (xp.CLUSTER, "a")


@pytest.mark.parametrize("delta", [True, False], ids=["to-delta", "to-sotw"])
def test_a_removal_with_equivalent_constraints_in_another_form_removes_the_variant(delta: bool) -> None:
    # DYN-30, DYN-59: constraints that mean the same are one variant, also where the form differs in more than order
    for seed in range(40):
        world = World(Habits(rewords=True, rewords_removals=True), seed, subjects=(A,))
        world.put(A, [world.stranger.offer(A, eq("env", "prod")), world.stranger.offer(A, eq("env", "test"))])
        known = (Params({"env": env}) for env in ("prod", "test"))
        watchers = [world.connect(delta=delta, node=params).watch(*A, params) for params in known]
        world.quiet()
        world.put(A, world.stranger.offers(*A)[1:])
        world.quiet()
        assert [each.has["a"] for each in watchers] == [None, "m3"]
