"""The watched entries of one name, indexed by the values of their params.

A variant is offered only to the entries that its constraints can match, instead of to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model.constraint_index import FEW, demands
from ..model.constraints import Constraint
from .entry import Entry


class EntryIndex:
    """The entries of one name, each asked for with other params."""

    __slots__ = ("_by_value", "_entries", "_strays")

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        self._by_value: dict[str, dict[str | None, dict[Entry, None]]] = {}  # of keys that constraints have demanded
        self._strays: dict[Entry, None] = {}  # hold a variant whose constraints do not match their params

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries[entry] = None
        for key, values in self._by_value.items():
            values.setdefault(_value(entry, key), {})[entry] = None

    def discard(self, entry: Entry) -> None:
        del self._entries[entry]
        self._strays.pop(entry, None)
        for key, values in self._by_value.items():
            values[_value(entry, key)].pop(entry)

    def note_stray(self, entry: Entry, *, strays: bool) -> None:
        """Whether an entry holds something that its params do not match."""
        if strays:
            self._strays[entry] = None
        else:
            self._strays.pop(entry, None)

    def concerned(self, constraint: Constraint) -> Iterable[Entry]:
        """All whom something with this constraint can be for, and all who hold it; perhaps others too."""
        if len(self._entries) <= FEW:
            return self._entries
        demanded = demands(constraint)
        if not demanded:
            return self._entries
        found = [self._with(key, values) for key, values in demanded.items()]
        return dict.fromkeys((*min(found, key=len), *self._strays))

    def _with(self, key: str, values: frozenset[str | None]) -> list[Entry]:
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for entry in self._entries:
                index.setdefault(_value(entry, key), {})[entry] = None
        return [entry for value in values for entry in index.get(value, ())]


def _value(entry: Entry, key: str) -> str | None:
    params = entry.key[1]
    return params.get(key) if params is not None else None
