"""Who wants one name, by class: alike are those who agree on every key that the answers mention (DESIGN 6.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from ..model.cached import Form
from ..model.constraint_index import FEW, demands
from ..model.constraints import Constraint
from ..model.types import Category, Params, category

Classes = Mapping[Category, Mapping[Params, int]]


class Audience:
    """Counts subscriptions by their params. Classes are kept, and made anew only when other keys matter."""

    __slots__ = ("_by_value", "_classes", "_keys")

    def __init__(self) -> None:
        self._keys: tuple[str, ...] = ()
        self._classes: dict[Category, dict[Params, int]] = {}
        self._by_value: dict[str, dict[str | None, dict[Category, None]]] = {}  # classes, by keys that were demanded

    def __bool__(self) -> bool:
        return bool(self._classes)

    def __iter__(self) -> Iterator[Params]:
        return chain.from_iterable(self._classes.values())

    def __contains__(self, params: Params) -> bool:
        return params in self._classes.get(category(params, self._keys), ())

    def has_like(self, params: Params) -> bool:
        """Whether somebody is there who is alike."""
        return category(params, self._keys) in self._classes

    def count(self, params: Params) -> int:
        return self._classes.get(category(params, self._keys), {}).get(params, 0)

    def add(self, params: Params, known: tuple[Category, tuple[str, ...]] | None = None) -> bool:
        """Returns whether somebody was there who is alike. `known`: its class, by these keys."""
        same = known[0] if known is not None and known[1] == self._keys else category(params, self._keys)
        alike = self._classes.get(same)
        if alike is None:
            self._classes[same] = {params: 1}
            for key, values in self._by_value.items():
                values.setdefault(params.get(key), {})[same] = None
            return False
        alike[params] = alike.get(params, 0) + 1
        return True

    def remove(self, params: Params) -> None:
        same = category(params, self._keys)
        alike = self._classes[same]
        alike[params] -= 1
        if alike[params]:
            return
        del alike[params]
        if not alike:
            del self._classes[same]
            for key, values in self._by_value.items():
                del values[params.get(key)][same]
                if not values[params.get(key)]:
                    del values[params.get(key)]

    def classes(self, keys: tuple[str, ...]) -> Classes:
        if keys != self._keys:
            before, self._keys, self._classes, self._by_value = self._classes, keys, {}, {}
            for alike in before.values():
                for params, count in alike.items():
                    self._classes.setdefault(category(params, keys), {})[params] = count
        return self._classes

    def concerned(self, constraint: Constraint) -> Iterable[Category]:
        """The classes that a constraint can match, which mentions no other keys than these are made by."""
        demanded = demands(constraint)
        if not demanded or len(self._classes) <= FEW:
            return self._classes
        return min((self._with(key, values) for key, values in demanded.items()), key=len)

    def _with(self, key: str, values: frozenset[str | None]) -> list[Category]:
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for same, alike in self._classes.items():
                index.setdefault(next(iter(alike)).get(key), {})[same] = None
        return [same for value in values for same in index.get(value, ())]


@dataclass(slots=True)
class Needs:
    """What those who want a name need."""

    users: dict[Form, Params] = field(default_factory=dict)  # each finding that somebody uses, and one of these
    waiting: dict[Category, Mapping[Params, int]] = field(default_factory=dict)  # classes without an answer
    clinging: set[Form] = field(default_factory=set)  # what these have meanwhile
