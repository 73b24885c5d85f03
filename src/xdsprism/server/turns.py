"""Serve waiting items in turns of their addresses, so that an address gains nothing by more connections."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Items that wait. Their owners have turns, and the items of one owner come in their order."""

    __slots__ = ("_items", "_owners", "_size")

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}
        self._owners: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, owner: str, item: T) -> None:
        """Put an item behind those of its owner; an owner that has none comes behind all others."""
        items = self._items.get(owner)
        if items is None:
            items = self._items[owner] = deque()
            self._owners.append(owner)
        items.append(item)
        self._size += 1

    def take(self) -> T:
        """Return the next item of the owner whose turn it is. There must be one."""
        owner = self._owners.popleft()
        items = self._items[owner]
        item = items.popleft()
        if items:
            self._owners.append(owner)
        else:
            del self._items[owner]
        self._size -= 1
        return item
