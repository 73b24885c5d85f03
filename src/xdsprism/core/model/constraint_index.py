"""Which of many constraints match some params, and which of many params a constraint can match: without trying all.

A constraint such as `env=prod and pod=7` can hold only where `env` is `prod`. So both sides are indexed by such values,
and only what is found there is matched in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Generic, TypeVar

from .constraints import All, AnyOf, Constraint, Eq, Exists, Not, matches

T = TypeVar("T")

FEW = 8  # of so many things, all are tried

# By key: the values without one of which a constraint can't hold; None: that the client does not have the key.
Demands = dict[str, frozenset[str | None]]


def demands(constraint: Constraint) -> Demands:
    """What a constraint demands of single keys. It may demand more, which can't be said in this way."""
    match constraint:
        case Eq(key, value):
            return {key: frozenset((value,))}
        case Not(Exists(key)):
            return {key: frozenset((None,))}
        case All(items):
            found: Demands = {}
            for item in items:
                for key, values in demands(item).items():
                    found[key] = found[key] & values if key in found else values
            return found
        case AnyOf(items) if items:
            first, *others = map(demands, items)
            shared = [key for key in first if all(key in other for other in others)]
            return {key: first[key].union(*(other[key] for other in others)) for key in shared}
        case _:
            return {}


class FirstMatch:
    """Constraints in an order: which is the first that matches."""

    __slots__ = ("_by_value", "_constraints", "_others")

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self._constraints = constraints
        self._by_value: dict[str, dict[str | None, list[int]]] = {}  # positions, in order
        self._others: Sequence[int] = range(len(constraints))
        if len(constraints) > FEW:
            self._index()

    def _index(self) -> None:
        demanded = [demands(constraint) for constraint in self._constraints]
        often = Counter((key, value) for each in demanded for key, values in each.items() for value in values)
        others = []
        for position, each in enumerate(demanded):
            if not each:
                others.append(position)
                continue
            key = min(each, key=lambda key: sum(often[key, value] for value in each[key]))
            for value in each[key]:
                self._by_value.setdefault(key, {}).setdefault(value, []).append(position)
        self._others = others

    def find(self, params: Mapping[str, str]) -> int | None:
        """The position of the first that matches."""
        buckets = [self._others, *(values.get(params.get(key), ()) for key, values in self._by_value.items())]
        best: int | None = None
        for positions in buckets:
            for position in positions:
                if best is not None and position >= best:
                    break
                if matches(self._constraints[position], params):
                    best = position
                    break
        return best


class NewestMatch(Generic[T]):
    """Things with constraints: which of those that match is the one put last. Unlike FirstMatch, it can change."""

    __slots__ = ("_by_value", "_others", "_places", "_ticket", "edition")

    def __init__(self) -> None:
        self.edition = 0  # another one after each change
        self._ticket = count()
        self._by_value: dict[tuple[str, str | None], dict[Hashable, tuple[int, Constraint, T]]] = {}
        self._others: dict[Hashable, tuple[int, Constraint, T]] = {}
        self._places: dict[Hashable, tuple[tuple[str, str | None], ...]] = {}  # where each is; nowhere: in `_others`

    def put(self, name: Hashable, constraint: Constraint, thing: T) -> None:
        """In place of what had this name, if there was something."""
        self.discard(name)
        made = next(self._ticket), constraint, thing
        demanded = demands(constraint)
        ways = [tuple((key, value) for value in values) for key, values in demanded.items()]
        places = min(ways, key=lambda way: sum(len(self._by_value.get(each, ())) for each in way), default=())
        self._places[name] = places
        for place in places:
            self._by_value.setdefault(place, {})[name] = made
        if not ways:
            self._others[name] = made

    def discard(self, name: Hashable) -> None:
        self.edition += 1
        self._others.pop(name, None)
        for place in self._places.pop(name, ()):
            del self._by_value[place][name]
            if not self._by_value[place]:
                del self._by_value[place]

    def find(self, params: Mapping[str, str], mentioned: Iterable[str]) -> T | None:
        """The newest that matches; `mentioned`: the keys that constraints mention."""
        buckets = [self._others, *(self._by_value.get((key, params.get(key)), {}) for key in mentioned)]
        fitting = [each for bucket in buckets for each in bucket.values() if matches(each[1], params)]
        return max(fitting, key=lambda each: each[0])[2] if fitting else None


class ParamsIndex:
    """Parameter sets: whether a constraint matches one of them."""

    __slots__ = ("_by_value", "_members")

    def __init__(self, members: Sequence[Mapping[str, str]]) -> None:
        self._members = members
        self._by_value: dict[str, dict[str | None, list[Mapping[str, str]]]] = {}  # of keys that constraints demanded

    def has_any(self, constraint: Constraint) -> bool:
        return any(matches(constraint, params) for params in self._concerned(constraint))

    def _concerned(self, constraint: Constraint) -> Sequence[Mapping[str, str]]:
        demanded = demands(constraint) if len(self._members) > FEW else {}
        if not demanded:
            return self._members
        return min((self._with(key, values) for key, values in demanded.items()), key=len)

    def _with(self, key: str, values: frozenset[str | None]) -> Sequence[Mapping[str, str]]:
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for params in self._members:
                index.setdefault(params.get(key), []).append(params)
        return [params for value in values for params in index.get(value, ())]
