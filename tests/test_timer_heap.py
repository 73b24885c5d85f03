"""The heap of timers: one timer for each item, moved and cancelled without a search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xdsprism.timer_heap import STALE, TimerHeap

ITEMS = st.sampled_from("abcdef")
TIMES = st.integers(0, 9).map(float)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), ITEMS, TIMES),
        st.tuples(st.just("cancel"), ITEMS, st.just(0.0)),
        st.tuples(st.just("take"), st.just(""), TIMES),
    )
)


@given(ACTIONS)
def test_a_heap_gives_what_a_dictionary_of_times_says(actions: list[tuple[str, str, float]]) -> None:
    heap, model = TimerHeap[str](), dict[str, float]()
    for action, item, time in actions:
        if action == "set":
            heap.set(item, time)
            model[item] = time
        elif action == "cancel":
            heap.cancel(item)
            model.pop(item, None)
        else:
            taken = heap.take(time)
            first = min(model.values(), default=None)
            assert (taken is not None) == (first is not None and first <= time)
            assert taken is None or model.pop(taken) == first
        assert len(heap) == len(model)
        assert heap.next_due == min(model.values(), default=None)


def test_timers_of_one_time_are_taken_in_the_order_in_which_they_were_set() -> None:
    heap = TimerHeap[str]()
    for item in "cab":
        heap.set(item, 1.0)
    assert [heap.take(1.0) for _ in range(4)] == ["c", "a", "b", None]


def test_a_timer_that_is_moved_over_and_over_leaves_few_entries() -> None:
    heap = TimerHeap[str]()
    heap.set("first", 0.0)
    for time in range(1_000):
        heap.set("moved", float(time))
        heap.set("gone", float(time))
        heap.cancel("gone")
    assert heap.entries <= 2 * len(heap) + STALE
    assert [heap.take(1e9) for _ in range(3)] == ["first", "moved", None]
