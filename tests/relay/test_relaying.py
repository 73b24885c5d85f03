"""The upstream subscriptions of a relay, decision by decision, with a scripted server."""

from __future__ import annotations

import pytest

from tests.support.carrying import Carrying
from xdsprism.core.model.cache_knowledge import cache_table
from xdsprism.core.model.cached import CachedSet
from xdsprism.core.model.constraints import Constraint
from xdsprism.core.model.events import Key
from xdsprism.core.model.expr import parse
from xdsprism.core.model.store import Store
from xdsprism.core.model.types import CLUSTER, NO_PARAMS, Params, make_variant
from xdsprism.core.relay.relaying import Relaying
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry, Event, State
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError

PROD, TEST = Params({"env": "prod"}), Params({"env": "test"})
PROD1, PROD2 = Params({"env": "prod", "v": "1"}), Params({"env": "prod", "v": "2"})


class Bench:
    """A relay's machine and its feed."""

    def __init__(self, linger: float = 0.0) -> None:
        self.store = Store(tables=cache_table)
        self.relaying = Relaying(self.store, self, linger=linger)
        self.asked: dict[Params, Entry] = {}
        self.log: list[tuple[str, Params]] = []
        self.now = 0.0

    # -- core.relay.upstream_feed.UpstreamFeed

    def subscribe(self, type_url: str, name: str, params: Params) -> Carrying:
        assert params not in self.asked
        self.log.append(("ask", params))
        entry = self.asked[params] = Entry(type_url, Key(name, params), Authority("", ()), [])
        return Carrying(entry, self._end, self._ask_again, self._presume_gone)

    def _ask_again(self, entry: Entry) -> None:
        self.log.append(("ask again", entry.key[1] or NO_PARAMS))
        entry.state, entry.sent_by, entry.own_error = State.REQUESTED, None, None

    def _presume_gone(self, entry: Entry) -> None:
        self.log.append(("presume gone", entry.key[1] or NO_PARAMS))

    def _end(self, entry: Entry) -> None:
        params = entry.key[1] or NO_PARAMS
        self.log.append(("drop", params))
        del self.asked[params]

    def pin(self, _entry: Entry) -> Constraint | None:
        return None

    # -- what a test says

    def want(self, *wanted: Params) -> None:
        for params in wanted:
            self.relaying.want(CLUSTER, "a", params)
        self.flush()

    def leave(self, *left: Params) -> None:
        for params in left:
            self.relaying.unwant(CLUSTER, "a", params)
        self.flush()

    def give(self, when: str, mark: str, *to: Params) -> None:
        """The server has this for them."""
        for params in to:
            entry = self.asked[params]
            entry.variant = make_variant(CLUSTER, "a", mark.encode(), parse(when))
            entry.state, entry.own_error, entry.updated = State.ACKED, None, self.now
            self.relaying.note_change(entry)
        self.flush()

    def deny(self, when: str | None, *to: Params) -> None:
        """There is nothing for them; `when`: nor for these."""
        for params in to:
            entry = self.asked[params]
            entry.absence = parse(when) if when is not None else None
            entry.fail(WatchError("NOT_FOUND", "no"), Event.REMOVED, self.now, drop=True)
            self.relaying.note_change(entry)
        self.flush()

    def flush(self) -> None:
        self.relaying.flush(self.now)

    def mark(self, params: Params) -> str | None:
        """What a client has that was there all the time: what is stale, it keeps."""
        known = self.store.table(CLUSTER).get("a")
        assert known is None or isinstance(known, CachedSet)
        found = known.find(params) if known is not None else None
        return found.variant.body.decode() if found is not None and found.variant is not None else None

    def knows(self, params: Params) -> bool:
        return self.store.table(CLUSTER).knowledge.knows("a", params)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_equal_subscriptions_are_one_upstream(bench: Bench):
    # PRX-1
    for _ in range(3):
        bench.want(PROD)
    assert bench.log == [("ask", PROD)]


def test_params_that_a_known_variant_matches_are_not_asked_for(bench: Bench):
    # PRX-4
    bench.want(PROD)
    bench.give("env=prod", "p", PROD)
    bench.want(PROD1, PROD2)
    assert (bench.mark(PROD1), bench.log) == ("p", [("ask", PROD)])


def test_a_cold_start_has_one_question_in_flight_and_then_one_for_each_class(bench: Bench):
    # PRX-14
    crowd = [Params({"env": f"e{number % 12}", "pod": str(number)}) for number in range(1000)]
    bench.want(*crowd)
    assert len(bench.log) == 1
    bench.give("env=e0", "e0", crowd[0])
    assert len(bench.asked) == 12
    for params in [*bench.asked]:
        bench.give(f"env={params['env']}", params["env"], params)
    assert all(bench.mark(params) == params["env"] for params in crowd)
    assert len(bench.asked) == 12


def test_a_negative_answer_is_shared_as_variants_are(bench: Bench):
    # PRX-14, DYN-11
    bench.want(PROD, PROD1, TEST)
    bench.deny("env=prod", PROD)
    assert [*bench.asked] == [PROD, TEST]
    assert bench.knows(PROD1)
    assert not bench.knows(TEST)


def test_before_the_holder_goes_another_takes_over(bench: Bench):
    # PRX-5
    bench.want(PROD, PROD1)
    bench.give("env=prod", "p", PROD)
    bench.leave(PROD)
    assert bench.log == [("ask", PROD), ("ask", PROD1)]  # and nothing is dropped before there is an answer
    bench.give("env=prod", "p", PROD1)
    assert bench.log[2:] == [("drop", PROD)]
    assert bench.mark(PROD1) == "p"


def test_a_variant_that_is_replaced_is_served_until_each_class_has_an_answer(bench: Bench):
    # PRX-5
    bench.want(PROD, PROD1, PROD2)
    bench.give("env=prod", "old", PROD)
    bench.give("env=prod and not v exists", "none", PROD)
    assert (bench.mark(PROD), bench.mark(PROD1), bench.mark(PROD2)) == ("none", "old", "old")
    assert [*bench.asked] == [PROD, PROD1, PROD2]
    bench.give("env=prod and v=1", "one", PROD1)
    assert (bench.mark(PROD1), bench.mark(PROD2)) == ("one", "old")
    bench.deny("env=prod and v=2", PROD2)
    assert (bench.mark(PROD1), bench.mark(PROD2), bench.knows(PROD2)) == ("one", None, True)


def test_a_removal_says_nothing_of_the_others_who_had_the_variant(bench: Bench):
    # PRX-5
    bench.want(PROD, PROD1)
    bench.give("env=prod", "old", PROD)
    bench.deny(None, PROD)
    assert (bench.mark(PROD), bench.mark(PROD1)) == (None, "old")
    bench.give("env=prod and v=1", "one", PROD1)
    assert bench.mark(PROD1) == "one"


def test_a_removal_does_not_answer_the_subscription_that_takes_over(bench: Bench):
    # PRX-5: the constraints of what was removed match it too, and it may still get something else
    bench.want(PROD, PROD1)
    bench.give("env=prod", "old", PROD)
    bench.leave(PROD)
    for params, when in ((PROD, None), (PROD1, "env=prod")):
        entry = bench.asked[params]
        entry.absence = parse(when) if when is not None else None
        entry.fail(WatchError("NOT_FOUND", "no"), Event.REMOVED, bench.now, drop=True)
        bench.relaying.note_change(entry)
    bench.flush()
    assert ("ask again", PROD1) in bench.log
    assert bench.mark(PROD1) == "old"
    bench.deny("env=prod", PROD1)
    assert (bench.mark(PROD1), bench.knows(PROD1)) == (None, True)


def test_the_newest_of_two_overlapping_answers_wins(bench: Bench):
    # PRX-8
    bench.want(PROD, TEST)
    bench.give("env=prod", "p", PROD)
    bench.now = 1.0
    bench.give("env=test or v=1", "t", TEST)
    assert bench.mark(PROD1) == "t"


def test_an_unwanted_subscription_is_dropped_after_the_linger_time():
    # PRX-9
    bench = Bench(linger=30.0)
    bench.want(PROD)
    bench.give("env=prod", "p", PROD)
    bench.leave(PROD)
    assert (bench.relaying.deadline(), bench.mark(PROD)) == (30.0, "p")
    bench.now = 29.0
    bench.want(PROD)
    bench.leave(PROD)
    assert bench.relaying.deadline() == 59.0
    bench.now = 59.0
    bench.flush()
    assert (bench.log, bench.relaying.deadline()) == ([("ask", PROD), ("drop", PROD)], None)
    assert not bench.knows(PROD)


def test_one_that_is_refused_does_not_keep_others_from_asking(bench: Bench):
    # PRX-14
    bench.want(PROD, TEST)
    entry = bench.asked[PROD]
    entry.fail(WatchError("PERMISSION_DENIED", "no"), Event.ERROR, bench.now, drop=True)
    bench.relaying.note_change(entry)
    bench.flush()
    assert [*bench.asked] == [PROD, TEST]


def test_a_variant_lost_by_two_subscriptions_is_requested_once_for_both(bench: Bench):
    # PRX-14
    bench.want(PROD, TEST)
    bench.give("env=prod", "p", PROD)
    bench.give("env=test", "t", TEST)
    upstream = Subscriber().upstream("server", delta=True)
    upstream.pins_absence = True
    for params in (PROD, TEST):
        bench.asked[params].sent_by = upstream
    bench.deny(None, PROD, TEST)
    assert [entry for entry in bench.log if entry[0] == "ask again"] == [("ask again", PROD)]
    bench.deny("true", PROD)
    assert [*bench.asked] == [PROD]
    assert bench.knows(TEST)


def test_one_more_of_a_crowd_costs_as_much_as_there_are_classes(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    # PRX-14
    crowd = [Params({"env": f"e{number % 12}", "pod": str(number)}) for number in range(1000)]
    bench.want(*crowd)
    while waiting := [params for params, entry in bench.asked.items() if entry.variant is None]:
        bench.give(f"env={waiting[0]['env']}", "x", waiting[0])
    cut = 0
    only = Params.only

    def counted(self: Params, keys: tuple[str, ...]) -> Params:
        nonlocal cut
        cut += 1
        return only(self, keys)

    monkeypatch.setattr(Params, "only", counted)
    bench.want(Params({"env": "e3", "pod": "new"}))
    assert cut < 50
