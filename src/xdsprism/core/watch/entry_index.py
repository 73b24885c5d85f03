"""Index the watched entries of one name by the values of their params.

A relay may subscribe to one name with many thousand sets of params. A variant with the constraint `env=prod and
version=v1` is then offered only to the entries with one of these values, instead of to all of them: for each key that
the constraint demands, the index finds the entries, and the key with the fewest entries wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model.constraint_index import FEW, demands
from ..model.constraints import Constraint
from .entry import Entry


class EntryIndex:
    """The entries of one name, each with other params.

    An index for a key is built when a constraint first demands that key, and kept up to date from then on.
    """

    __slots__ = ("_by_value", "_entries", "_strays")

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        self._by_value: dict[str, dict[str | None, dict[Entry, None]]] = {}  # key -> value (None: absent) -> entries
        self._strays: dict[Entry, None] = {}  # entries that hold a variant that their params do not match

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def add(self, entry: Entry) -> None:
        """Add an entry, also to the indexes of the keys that constraints have demanded so far."""
        self._entries[entry] = None
        for key, values in self._by_value.items():
            values.setdefault(_value(entry, key), {})[entry] = None

    def discard(self, entry: Entry) -> None:
        del self._entries[entry]
        self._strays.pop(entry, None)
        for key, values in self._by_value.items():
            values[_value(entry, key)].pop(entry)

    def note_stray(self, entry: Entry, *, strays: bool) -> None:
        """Note whether an entry holds a variant that its params do not match, so that they do not find it (DYN-56)."""
        if strays:
            self._strays[entry] = None
        else:
            self._strays.pop(entry, None)

    def concerned(self, constraint: Constraint) -> Iterable[Entry]:
        """Return all entries that the constraint can match and all that hold a stray variant; perhaps others too."""
        if len(self._entries) <= FEW:
            return self._entries
        demanded = demands(constraint)
        # The constraint demands no value of any key, such as `not env=prod`: it may match any params.
        if not demanded:
            return self._entries
        found = [self._with(key, values) for key, values in demanded.items()]
        return dict.fromkeys((*min(found, key=len), *self._strays))

    def _with(self, key: str, values: frozenset[str | None]) -> list[Entry]:
        """Return the entries whose params have one of these values of a key."""
        index = self._by_value.get(key)
        if index is None:
            # The first constraint that demands this key: index all entries by it.
            index = self._by_value[key] = {}
            for entry in self._entries:
                index.setdefault(_value(entry, key), {})[entry] = None
        return [entry for value in values for entry in index.get(value, ())]


def _value(entry: Entry, key: str) -> str | None:
    """Return the value of a key in the params of an entry; None if they lack it."""
    params = entry.params
    return params.get(key) if params is not None else None
