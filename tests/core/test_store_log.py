"""The store's change log: what a reader that follows a whole table is told, and what that costs (DESIGN 6.3, 9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import Bench, changeset
from tests.support import insides
from xdsprism.core.model import listing as listing_module
from xdsprism.core.model.listing import LOG_SLACK
from xdsprism.core.model.store import Store
from xdsprism.core.model.table import Table
from xdsprism.core.model.types import CLUSTER, NO_PARAMS, ROUTE, Params, Variant, make_variant
from xdsprism.core.model.variants import DisjointVariants
from xdsprism.core.model.views import alike

PROD = Params({"env": "prod"})
TEST = Params({"env": "test"})


def edited(store: Store, *texts: str) -> Table:
    for text in texts:
        store.apply(changeset(f"cds {text}"))
    return store.table(CLUSTER)


def told(table: Table, cursor: int, params: Params = NO_PARAMS) -> dict[str, tuple[str | None, str | None]]:
    """The difference as bodies, by name."""
    found = tuple(table.everything.difference(cursor, params).transitions.values())
    assert len({one.name for one in found}) == len(found), "a name twice"
    return {one.name: (_body(one.before), _body(one.after)) for one in found}


def _body(variant: Variant | None) -> str | None:
    return variant.body.decode() if variant is not None else None


@contextmanager
def counted_selects() -> Iterator[list[Params]]:
    """How often a variant is looked up, while this lasts."""
    selects: list[Params] = []
    select = DisjointVariants.select
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DisjointVariants, "select", lambda self, params: selects.append(params) or select(self, params))
        yield selects


# -- differences


def test_several_changes_of_a_name_are_one_from_the_first_before_to_the_last_after():
    store = Store()
    table = edited(store, "a=1 b=1 c=1")
    cursor = table.everything.follow()
    edited(store, "a=2", "a=3 d=1", "-b", "d=2")
    assert told(table, cursor) == {"a": ("1", "3"), "b": ("1", None), "d": (None, "2")}


def test_a_name_that_is_back_as_it_was_is_no_difference():
    store = Store()
    table = edited(store, "a=1 b=1")
    cursor = table.everything.follow()
    edited(store, "a=2 x=1", "-b", "a=1 -x", "b=1")
    assert told(table, cursor) == {}


def test_each_reader_is_told_what_changed_since_it_was_last_told():
    store = Store()
    table = edited(store, "a=1 b=1")
    first = table.everything.follow()
    edited(store, "a=2")
    second = table.everything.follow()
    edited(store, "a=3 b=2")
    third = table.everything.follow()
    assert told(table, first) == {"a": ("1", "3"), "b": ("1", "2")}
    assert told(table, second) == {"a": ("2", "3"), "b": ("1", "2")}
    assert told(table, third) == {}
    first = table.everything.advance(first)
    assert first == third
    edited(store, "-b")
    assert told(table, first) == told(table, third) == {"b": ("2", None)}
    assert told(table, second) == {"a": ("2", "3"), "b": ("1", None)}


def test_each_class_of_clients_is_told_what_it_sees_change():
    # DYN-18
    store = Store()
    table = edited(store, "a[env=prod]=p a[env=test]=t b=1")
    cursor = table.everything.follow()
    edited(store, "a[env=prod]=p a[env=test]=t2", "b[env=prod]=1")
    assert told(table, cursor, PROD) == {"b": ("1", "1")}
    assert told(table, cursor, TEST) == {"a": ("t", "t2"), "b": ("1", None)}
    assert told(table, cursor, NO_PARAMS) == {"b": ("1", None)}


def test_a_key_that_only_the_past_mentions_still_tells_classes_apart():
    # DESIGN 6.3: before the change prod and test did not see the same
    store = Store()
    table = edited(store, "a[env=prod]=p a[env=test]=t")
    cursor = table.everything.follow()
    edited(store, "a=1")
    assert told(table, cursor, PROD) == {"a": ("p", "1")}
    assert told(table, cursor, TEST) == {"a": ("t", "1")}
    table.everything.unfollow(cursor)
    edited(store, "a=2")
    assert table.everything.classify(PROD) == NO_PARAMS


def test_a_difference_and_a_snapshot_are_of_now_and_not_of_when_they_were_last_asked_for():
    store = Store()
    table = edited(store, "a=1")
    cursor = table.everything.follow()
    edited(store, "a=2")
    assert told(table, cursor) == {"a": ("1", "2")}
    assert [v.body for v in table.everything.snapshot(NO_PARAMS).variants] == [b"2"]
    edited(store, "a=3 b=1")
    assert told(table, cursor) == {"a": ("1", "3"), "b": (None, "1")}
    assert [v.body for v in table.everything.snapshot(NO_PARAMS).variants] == [b"3", b"1"]


BODIES = ["1", "2", "{p}", "{t}", "{pt}", ""]
FORMS = {"{p}": "[env=prod]=p", "{t}": "[env=test]=t"}


def entry(name: str, body: str) -> str:
    """One name's part of a transaction: a body for everybody, variants for some, or none."""
    if not body:
        return f"-{name}"
    if body == "{pt}":
        return " ".join(name + form for form in FORMS.values())
    return name + FORMS.get(body, f"={body}")


EDITS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(BODIES), min_size=1)
STEPS = st.lists(st.one_of(EDITS, st.sampled_from(["follow", "advance", "unfollow"])), max_size=30)


@given(STEPS, st.integers(0, 4))
def test_the_log_says_the_same_as_comparing_snapshots(steps, slack):
    """Whatever is merged or dropped on the way, and however far behind the readers are."""
    classes = (PROD, TEST, NO_PARAMS)
    store = Store()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_module, "LOG_SLACK", slack)
        table = store.table(CLUSTER)
        readers: list[tuple[int, dict[Params, dict[str, Variant]]]] = []

        def seen() -> dict[Params, dict[str, Variant]]:
            return {params: {v.name: v for v in table.everything.snapshot(params).variants} for params in classes}

        for step in steps:
            if isinstance(step, dict):
                edited(store, " ".join(entry(name, body) for name, body in step.items()))
            elif step == "follow":
                readers.append((table.everything.follow(), seen()))
            elif readers and step == "advance":
                readers.append((table.everything.advance(readers.pop(0)[0]), seen()))
            elif readers:
                table.everything.unfollow(readers.pop(0)[0])
            now = seen()
            for cursor, then in readers:
                for params in classes:
                    before, after = then[params], now[params]
                    names = {n for n in {*before, *after} if not alike(before.get(n), after.get(n))}
                    found = {
                        one.name: (one.before, one.after)
                        for one in table.everything.difference(cursor, params).transitions.values()
                    }
                    assert found.keys() == names
                    for name, (was, is_now) in found.items():
                        assert alike(was, before.get(name))
                        assert is_now is after.get(name)


# -- memory


def test_a_listing_without_cursors_keeps_no_log():
    store = Store()
    table = edited(store, *(f"a={number} b{number}=1" for number in range(10)))
    assert insides.log(table.everything) == []


def test_the_log_is_dropped_when_the_last_reader_leaves_and_cut_when_the_last_one_moves_on():
    store = Store()
    table = edited(store, "a=1")
    slow, fast = table.everything.follow(), table.everything.follow()
    edited(store, "a=2", "a=3")
    fast = table.everything.advance(fast)
    edited(store, "a=4")
    assert len(insides.log(table.everything)) == 3
    slow = table.everything.advance(slow)
    edited(store, "a=5")
    assert told(table, fast) == {"a": ("3", "5")}
    assert len(insides.log(table.everything)) == 2
    table.everything.unfollow(fast)
    table.everything.unfollow(slow)
    assert (insides.log(table.everything), insides.cursors(table.everything)) == ([], {})
    edited(store, "a=6")
    assert insides.log(table.everything) == []


def test_a_reader_that_lags_pins_one_entry_per_name_and_not_each_edit():
    # DLT-23, SOT-16
    store = Store()
    table = edited(store, "a=0 b=0")
    slow = table.everything.follow()
    fast = table.everything.follow()
    longest = 0
    for number in range(1, 3 * LOG_SLACK):
        edited(store, f"a={number}")
        longest = max(longest, len(insides.log(table.everything)))
        fast = table.everything.advance(fast)
    assert longest <= LOG_SLACK + 4
    assert told(table, slow) == {"a": ("0", str(3 * LOG_SLACK - 1))}
    assert told(table, fast) == {}


def test_names_that_are_used_once_do_not_pile_up_before_a_reader_that_lags():
    store = Store()
    table = edited(store, "a=0")
    slow = table.everything.follow()
    longest = 0
    for number in range(LOG_SLACK):
        edited(store, f"x{number}=1", f"-x{number}")
        longest = max(longest, len(insides.log(table.everything)))
    edited(store, "a=1")
    assert longest <= LOG_SLACK + 4
    assert told(table, slow) == {"a": ("0", "1")}


def test_readers_at_different_places_each_keep_their_view_when_the_log_is_shortened():
    store = Store()
    table = edited(store, "a=0")
    cursors = []
    for number in range(1, 4):
        cursors.append(table.everything.follow())
        edited(store, *(f"a={number}.{edit}" for edit in range(LOG_SLACK)))
    last = f"3.{LOG_SLACK - 1}"
    befores = ["0", f"1.{LOG_SLACK - 1}", f"2.{LOG_SLACK - 1}"]
    assert [told(table, cursor) for cursor in cursors] == [{"a": (before, last)} for before in befores]
    assert len(insides.log(table.everything)) <= LOG_SLACK + 8


def test_caches_hold_few_classes_whatever_clients_send():
    store = Store()
    table = edited(store, "a[id exists]=1 a[not id exists]=2")
    cursor = table.everything.follow()
    edited(store, "a[id exists]=3 a[not id exists]=4")
    for number in range(1000):
        params = Params({"id": str(number)})
        assert [v.body for v in table.everything.snapshot(params).variants] == [b"3"]
        assert told(table, cursor, params) == {"a": ("1", "3")}
    assert len(insides.snapshots(table.everything)) <= listing_module.CACHED_CLASSES
    assert len(insides.differences(table.everything)) <= listing_module.CACHED_CLASSES


# -- classes


def test_only_keys_that_the_table_mentions_make_classes():
    # DYN-5, DESIGN 6.3
    store = Store()
    table = edited(store, "a[env=prod]=p a[env=test]=t")
    store.apply(changeset("rds main[zone=a]=1"))
    params = Params({"env": "prod", "zone": "a", "id": "7"})
    assert table.everything.classify(params) == PROD
    assert store.table(ROUTE).everything.classify(params) == Params({"zone": "a"})
    edited(store, "b[id exists]=1")
    assert table.everything.classify(params) == Params({"env": "prod", "id": "7"})
    edited(store, "-b")
    assert table.everything.classify(params) == PROD
    edited(store, "-a")
    assert table.everything.classify(params) == NO_PARAMS


def test_matching_costs_by_class_and_not_by_client():
    # DESIGN 6.3: a hundred thousand clients in twelve classes cost twelve matches
    store = Store()
    names = range(20)
    table = edited(store, " ".join(f"n{number}[env=prod]=p n{number}[env!=prod]=t" for number in names))
    clients = [Params({"env": ("prod", "test", "qa")[number % 3], "id": str(number)}) for number in range(300)]
    cursor = table.everything.follow()
    with counted_selects() as selects:
        for params in clients:
            table.everything.snapshot(params)
        assert len(selects) == 3 * len(names)
        selects.clear()
        edited(store, "n0[env=prod]=p2 n0[env!=prod]=t2")
        for params in clients:
            table.everything.difference(cursor, params)
        assert len(selects) == 3 * 2  # before and after
    assert len({id(table.everything.snapshot(params)) for params in clients}) == 3


@pytest.mark.parametrize("delta", [True, False])
def test_wildcard_streams_of_one_class_share_one_look_at_the_store(delta):
    # DESIGN 6.3, 9
    bench = Bench()
    bench.put("cds " + " ".join(f"n{number}[env=prod]=p n{number}[env!=prod]=t" for number in range(20)))
    peers = [(bench.delta if delta else bench.sotw)(env=("prod", "test")[n % 2], id=str(n)) for n in range(40)]
    with counted_selects() as selects:
        for peer in peers:
            peer.ask("cds")
            peer.poll()
        assert len(selects) == 2 * 20
        selects.clear()
        bench.put("cds n3[env=prod]=p2 n3[env!=prod]=t")
        heard = [peer.hears() for peer in peers]
        assert len(selects) <= 2 * 2 + (0 if delta else 2 * 20)  # SotW: the full state, once per class
    assert [bool(lines) for lines in heard] == [True, False] * 20


def test_one_reader_that_lags_keeps_few_old_bodies_alive():
    # DLT-23, OPS-6: each entry of the log pins what it replaced
    store = Store()
    store.apply({(CLUSTER, "a"): (make_variant(CLUSTER, "a", b"first"),)})
    table = store.table(CLUSTER)
    cursor = table.everything.follow()
    for number in range(1000):
        store.apply({(CLUSTER, "a"): (make_variant(CLUSTER, "a", str(number).encode()),)})
        assert len(insides.log(table.everything)) <= LOG_SLACK + 3
    (change,) = table.everything.difference(cursor, NO_PARAMS).transitions.values()
    assert (change.before.body, change.after.body) == (b"first", b"999")
