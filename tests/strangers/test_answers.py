"""Answers of a server with another reading of TP2, case by case: each reaches exactly the clients that it concerns."""

from __future__ import annotations

import pytest

import xdsprism as xp
from tests.strangers.shapes import TRUE, both, eq, has, no
from tests.strangers.upstream import Habits
from tests.strangers.world import Watcher, World
from xdsprism.core.model.types import Params

PROD, TEST, QA = (Params({"env": env}) for env in ("prod", "test", "qa"))
PROD_X = Params({"env": "prod", "x": "1"})
A = (xp.CLUSTER, "a")
EDS_A = (xp.ENDPOINT, "a")

downstream = pytest.mark.parametrize("delta", [True, False], ids=["to-delta", "to-sotw"])
subjects = pytest.mark.parametrize("subject", [A, EDS_A], ids=["cds", "eds"])
negatives = pytest.mark.parametrize(
    "habits",
    [
        Habits(negatives=("bare",)),
        Habits(negatives=("removed",)),
        Habits(negatives=("error",)),
        Habits(delta=False, negatives=("error",)),
    ],
    ids=["removed_resource_names", "removed_resources", "resource_errors", "sotw-resource_errors"],
)


def make(habits: Habits, subject: tuple[str, str], *shapes: tuple[object, ...]) -> World:
    world = World(habits, subjects=(subject,))
    world.put(subject, [world.stranger.offer(subject, shape) for shape in shapes])
    return world


def ask(world: World, subject: tuple[str, str], params: Params, *, delta: bool) -> Watcher:
    """A client of its own, for as long as the test lasts."""
    return world.connect(delta=delta, node=params).watch(*subject, params)


# -- negative answers


@negatives
@subjects
@downstream
def test_an_absence_for_one_client_takes_nothing_from_clients_with_a_variant(
    habits: Habits, subject: tuple[str, str], delta: bool
) -> None:
    # PRX-31
    world = make(habits, subject, eq("env", "prod"))
    prod = ask(world, subject, PROD, delta=delta)
    world.quiet()
    qa = ask(world, subject, QA, delta=delta)
    world.quiet()
    assert (prod.has, qa.has) == ({"a": "m1"}, {"a": None})


@negatives
@subjects
@downstream
def test_an_absence_for_one_client_is_not_told_to_newcomers_that_match_a_variant(
    habits: Habits, subject: tuple[str, str], delta: bool
) -> None:
    # PRX-31: also where the negative answer is all that is known
    world = make(habits, subject, eq("env", "prod"))
    qa = ask(world, subject, QA, delta=delta)
    world.quiet()
    prod, other = (ask(world, subject, params, delta=delta) for params in (PROD, PROD_X))
    world.quiet()
    assert [each.has for each in (qa, prod, other)] == [{"a": None}, {"a": "m1"}, {"a": "m1"}]


@negatives
@downstream
def test_a_variant_that_appears_reaches_a_client_with_a_negative_answer(habits: Habits, delta: bool) -> None:
    # PRX-31, DYN-10
    world = make(habits, A, eq("env", "prod"))
    watchers = [ask(world, A, params, delta=delta) for params in (PROD, QA, TEST)]
    world.quiet()
    offers = [*world.stranger.offers(*A), world.stranger.offer(A, eq("env", "qa"))]
    world.put(A, offers)
    world.quiet()
    assert [each.has["a"] for each in watchers] == ["m1", offers[1].mark, None]


@negatives
@downstream
def test_an_absence_on_a_new_stream_takes_nothing_from_clients_with_a_variant(habits: Habits, delta: bool) -> None:
    # PRX-31, PRX-12: all questions are open again, and the answers come one by one
    world = make(Habits(**{**vars(habits), "batches": 0.0}), A, eq("env", "prod"), eq("env", "test"))
    watchers = [ask(world, A, params, delta=delta) for params in (PROD, QA, TEST)]
    world.quiet()
    for _ in range(4):
        world.relay.line.cut()
        world.come_up()
        world.quiet()
    assert [each.has["a"] for each in watchers] == ["m1", None, "m3"]


# -- what is gone


@pytest.mark.parametrize("up", [True, False], ids=["delta", "sotw"])
@subjects
@downstream
def test_a_variant_that_disappears_is_gone_for_all_who_share_it(
    up: bool, subject: tuple[str, str], delta: bool
) -> None:
    # PRX-34
    negative = "pinned" if up else "pinned-error"
    world = make(Habits(delta=up, negatives=(negative,)), subject, eq("env", "prod"), eq("env", "test"))
    watchers = [ask(world, subject, params, delta=delta) for params in (PROD, PROD_X, TEST)]
    world.quiet()
    assert [each.has["a"] for each in watchers] == ["m1", "m1", "m3"]
    world.put(subject, [each for each in world.stranger.offers(*subject) if each.mark == "m3"])
    world.quiet()
    assert [each.has["a"] for each in watchers] == [None, None, "m3"]


@pytest.mark.parametrize("negative", ["omission", "silence"])
@downstream
def test_a_resource_that_a_full_state_lacks_is_gone_for_all_clients_that_share_it(negative: str, delta: bool) -> None:
    # PRX-34: a server that knows no errors leaves it out, and that is all it ever says
    world = make(Habits(delta=False, negatives=(negative,)), A, eq("env", "prod"), eq("env", "test"))
    watchers = [ask(world, A, params, delta=delta) for params in (PROD, PROD_X, TEST)]
    world.quiet()
    world.put(A, [each for each in world.stranger.offers(*A) if each.mark == "m3"])
    world.quiet()
    assert [each.has["a"] for each in watchers] == [None, None, "m3"]


@pytest.mark.parametrize("batches", [1.0, 0.0], ids=["one-response", "several"])
@pytest.mark.parametrize("negative", ["bare", "pinned", "wider", "removed", "error"])
@subjects
@downstream
def test_two_variants_that_vanish_at_once_are_gone_once(
    negative: str, subject: tuple[str, str], batches: float, delta: bool
) -> None:
    # PRX-38: the watchers fail where something comes back
    habits = Habits(negatives=(negative,), batches=batches)
    world = make(habits, subject, eq("env", "prod"), both(eq("env", "test"), no(has("v"))))
    known = (PROD, PROD_X, TEST, Params({"env": "test", "x": "1"}))
    watchers = [ask(world, subject, params, delta=delta) for params in known]
    world.quiet()
    assert [each.has["a"] for each in watchers] == ["m1", "m1", "m3", "m3"]
    world.put(subject, [])
    world.quiet()
    assert [each.has["a"] for each in watchers] == [None] * 4


# -- what is replaced


@pytest.mark.parametrize("replaces", ["at-once", "resource-first", "removal-first"])
@downstream
def test_a_variant_for_all_that_becomes_one_for_some_stays_with_these(replaces: str, delta: bool) -> None:
    # PRX-31, PRX-6: that the old one is gone is said without constraints
    world = make(Habits(negatives=("bare",), replaces=(replaces,)), A, TRUE)
    prod, none = (ask(world, A, params, delta=delta) for params in (PROD, Params({})))
    world.quiet()
    offers = [world.stranger.offer(A, shape) for shape in (has("env"), no(has("env")))]
    world.put(A, offers)
    world.quiet()
    assert [prod.has["a"], none.has["a"]] == [each.mark for each in offers]


@downstream
def test_a_client_told_of_an_unreachable_server_is_told_of_the_absence_later(delta: bool) -> None:
    # PRX-11, PRX-31: the relay says so without constraints, as there are no params
    world = World(Habits(negatives=("bare",)), subjects=(A,))
    world.relay.line.cut()
    watcher = ask(world, A, Params({}), delta=delta)
    world.quiet()
    assert watcher.has == {}
    world.come_up()
    world.quiet()
    assert watcher.has == {"a": None}
