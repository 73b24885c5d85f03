"""Long work in steps: a generator that yields where whoever drives it may serve others first.

The work keeps its state in itself and returns its result. It never looks at a clock: `finish` runs it through at once,
and server/slicing.py runs it for a few milliseconds at a time. Between two steps the store may change; nothing else
touches the stream whose work it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]

EVERY = 128  # items between two yields: of subscriptions, these take a few milliseconds


def finish(steps: Steps[T]) -> T:
    """Run it through, and return what it returns."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result


def in_order(items: Collection[T]) -> Steps[dict[T, None]]:
    """Each of these once, in steps; of few, `dict.fromkeys` is the same and costs less."""
    found: dict[T, None] = {}
    for piece in pieces(items, 16 * EVERY):
        found.update(dict.fromkeys(piece))
        if len(piece) > EVERY:
            yield
    return found


def chosen(items: Collection[T], is_chosen: Callable[[T], bool]) -> Steps[list[T]]:
    """Those of these for which it holds, in steps."""
    found: list[T] = []
    for piece in pieces(items, 16 * EVERY):
        found += filter(is_chosen, piece)
        if len(piece) > EVERY:
            yield
    return found


def pieces(items: Collection[T], size: int = EVERY) -> Iterable[list[T]]:
    """The same items in lists of `size`, the last one shorter. Few items are one list, without a generator."""
    if len(items) <= size:
        return [[*items]] if items else ()
    return cut(items, size)


def cut(items: Iterable[T], size: int = EVERY) -> Iterator[list[T]]:
    """What `pieces` does, for an iterator. Nobody may change what it iterates over between two pieces."""
    source = iter(items)
    while piece := [*islice(source, size)]:
        yield piece
