"""Run long work in steps: a generator that yields wherever its driver may serve others first.

A request may subscribe to a hundred thousand names. Handling it in one go would stall every other stream of the event
loop, so such work is a generator: it keeps its state in local variables, yields every `EVERY` items or so, and returns
its result. It never looks at a clock. `finish` runs it through at once; server/slicing.py runs it for a few
milliseconds at a time.

Between two steps the store may change. Nothing else touches the stream that the work belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]

EVERY = 128  # items between two yields: this many subscriptions take a few milliseconds


def finish(steps: Steps[T]) -> T:
    """Run the steps through at once and return their result."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result


def in_order(items: Collection[T]) -> Steps[dict[T, None]]:
    """Remove duplicates and keep the order, in steps. For few items, `dict.fromkeys` does the same and costs less."""
    found: dict[T, None] = {}
    for piece in pieces(items, 16 * EVERY):
        found.update(dict.fromkeys(piece))
        if len(piece) > EVERY:
            yield
    return found


def chosen(items: Collection[T], is_chosen: Callable[[T], bool]) -> Steps[list[T]]:
    """Return the items for which the predicate holds, in steps."""
    found: list[T] = []
    for piece in pieces(items, 16 * EVERY):
        found += filter(is_chosen, piece)
        if len(piece) > EVERY:
            yield
    return found


def pieces(items: Collection[T], size: int = EVERY) -> Iterable[list[T]]:
    """Cut the items into lists of `size`, the last one shorter. Few items come as one list, without a generator."""
    if len(items) <= size:
        return [[*items]] if items else ()
    return cut(items, size)


def cut(items: Iterable[T], size: int = EVERY) -> Iterator[list[T]]:
    """Do the same as `pieces` for any iterable. Its contents must not change between two pieces."""
    source = iter(items)
    while piece := [*islice(source, size)]:
        yield piece
