"""What a wildcard sees of a large table is found in steps, and is what it would be at once."""

from __future__ import annotations

import pytest

from tests.support import insides
from xdsprism.core.model.events import DeltaRequest, Node, Request, Send, SotwRequest
from xdsprism.core.model.expr import parse
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.steps import EVERY, finish
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import CLUSTER, NO_PARAMS, Params, make_variant
from xdsprism.core.model.variants import DisjointVariants
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest

COUNT = 20 * EVERY


def fill(store: Store, edition: int, count: int = COUNT) -> None:
    body = str(edition).encode()
    store.apply({(CLUSTER, f"c{i}"): (make_variant(CLUSTER, f"c{i}", body),) for i in range(count)})


class Looks:
    """Counts how often a class of clients is looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        member = DisjointVariants.member

        def counted(known: DisjointVariants, params: Params) -> object:
            self.count += 1
            return member(known, params)

        monkeypatch.setattr(DisjointVariants, "member", counted)

    def most(self, stream: Stream) -> tuple[int, list[Send]]:
        """Poll in steps: the most looks of one step, and what there is to say."""
        steps, most = stream.polling(0.0), 0
        while True:
            before = self.count
            try:
                next(steps)
            except StopIteration as done:
                return max(most, self.count - before), done.value
            most = max(most, self.count - before)


@pytest.mark.parametrize("delta", [True, False])
def test_a_wildcard_on_a_large_table_looks_at_few_resources_in_a_step(
    delta: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # OPS-10, WLD-8
    store = Store()
    fill(store, 1)
    interest = Interest()
    stream = Stream(1, store, interest, Settings(), Facts(), delta=delta)
    stream.receive(Request(CLUSTER, DeltaRequest() if delta else SotwRequest(), Node("n")), 0.0)

    def tell(applied: Applied) -> None:
        for _ in interest.notify(applied.changes):
            stream.stir(None)

    store.listeners[:] = [tell]
    looks = Looks(monkeypatch)
    for edition in (2, 3):
        most, sends = looks.most(stream)
        assert sum(send.count for send in sends) == COUNT
        assert most < 3 * EVERY  # of a change, both what was and what is
        fill(store, edition)
    assert looks.count >= 3 * COUNT


def test_a_wildcard_computed_in_steps_equals_one_computed_at_once() -> None:
    # OPS-10, SRV-12
    store = Store()
    listing = store.table(CLUSTER).everything
    cursor = listing.follow()
    fill(store, 1)
    store.apply({(CLUSTER, "b"): tuple(make_variant(CLUSTER, "b", x.encode(), parse(f"env={x}")) for x in ("p", "q"))})
    for params in (NO_PARAMS, Params({"env": "q"})):
        snapshot, difference = listing.snapshot(params), listing.difference(cursor, params)
        insides.snapshots(listing).clear()
        insides.differences(listing).clear()
        finish(listing.snapshotting(params))
        finish(listing.differencing(cursor, params))
        found = (
            insides.snapshots(listing)[listing.classify(params)],
            insides.differences(listing)[cursor, listing.classify(params)],
        )
        assert found == (snapshot, difference)


def test_a_table_that_changes_while_it_is_looked_at_is_looked_at_again() -> None:
    # OPS-10, SRV-12
    store = Store()
    fill(store, 1)
    listing = store.table(CLUSTER).everything
    cursor = listing.follow()
    fill(store, 2, EVERY + 1)
    steps = listing.snapshotting(NO_PARAMS)
    next(steps)
    fill(store, 3, EVERY + 1)
    finish(steps)
    assert {variant.body for variant in insides.snapshots(listing)[NO_PARAMS].variants} == {b"1", b"3"}
    steps = listing.differencing(cursor, NO_PARAMS)
    next(steps)
    fill(store, 4, EVERY + 1)
    finish(steps)
    transitions = insides.differences(listing)[cursor, NO_PARAMS].transitions
    assert {view.after.body for view in transitions.values() if view.after} == {b"4"}
