"""Find the constraints that match some params, or params that a constraint matches, without trying all of them.

A constraint such as `env=prod and pod=7` can only match where `env` is `prod`: it demands that value. Each index here
files its members under one demanded value, so that a search tries only the members filed under the values at hand, and
those that demand nothing of any single key. Every member that it finds is still matched in full.

| class         | members                         | question                                              |
|---------------|---------------------------------|-------------------------------------------------------|
| `FirstMatch`  | constraints in a fixed order    | which is the first that matches these params?         |
| `NewestMatch` | things that come and go         | which matching one was put last?                      |
| `ParamsIndex` | params                          | does this constraint match any of them?               |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Generic, TypeVar

from .constraints import All, AnyOf, Constraint, Eq, Exists, Not, matches

T = TypeVar("T")

FEW = 8  # up to this many members are simply tried one by one

# For each key, the values of which the client must have one if the constraint is to match; None stands for "absent".
Demands = dict[str, frozenset[str | None]]


def demands(constraint: Constraint) -> Demands:
    """Return what the constraint demands of single keys.

    It may demand more that can't be said by listing values, such as `not env=prod`; so a match still has to be checked.
    """
    match constraint:
        case Eq(key, value):
            return {key: frozenset((value,))}
        case Not(Exists(key)):
            return {key: frozenset((None,))}
        case All(items):
            # All parts must hold, so a key must satisfy every part that demands something of it.
            found: Demands = {}
            for item in items:
                for key, values in demands(item).items():
                    found[key] = found[key] & values if key in found else values
            return found
        case AnyOf(items) if items:
            # One part is enough, so only keys count of which every part demands something.
            first, *others = map(demands, items)
            shared = [key for key in first if all(key in other for other in others)]
            return {key: first[key].union(*(other[key] for other in others)) for key in shared}
        case _:
            return {}


class FirstMatch:
    """Constraints in a fixed order: find the first that matches."""

    __slots__ = ("_by_value", "_constraints", "_others")

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self._constraints = constraints
        self._by_value: dict[str, dict[str | None, list[int]]] = {}  # positions by key and demanded value, ascending
        self._others: Sequence[int] = range(len(constraints))  # positions that are always tried
        if len(constraints) > FEW:
            self._index()

    def _index(self) -> None:
        """File each constraint under one of its keys: the one whose values the fewest other constraints demand."""
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
        """Return the position of the first constraint that matches."""
        buckets = [self._others, *(values.get(params.get(key), ()) for key, values in self._by_value.items())]
        best: int | None = None
        for positions in buckets:
            for position in positions:
                if best is not None and position >= best:
                    break  # positions ascend: nothing better follows in this bucket
                if matches(self._constraints[position], params):
                    best = position
                    break
        return best


class NewestMatch(Generic[T]):
    """Finds the newest of the items whose constraints match. Unlike FirstMatch, it can change."""

    __slots__ = ("_by_value", "_others", "_places", "_ticket", "edition")

    def __init__(self) -> None:
        self.edition = 0  # grows with each change, so that readers notice
        self._ticket = count()  # orders the things by age
        self._by_value: dict[tuple[str, str | None], dict[Hashable, tuple[int, Constraint, T]]] = {}
        self._others: dict[Hashable, tuple[int, Constraint, T]] = {}
        # The (key, value) places where each name is filed; an empty tuple: in `_others`.
        self._places: dict[Hashable, tuple[tuple[str, str | None], ...]] = {}

    def put(self, name: Hashable, constraint: Constraint, thing: T) -> None:
        """Add a thing under this name, in place of the one that had the name."""
        self.discard(name)
        made = next(self._ticket), constraint, thing
        demanded = demands(constraint)
        ways = [tuple((key, value) for value in values) for key, values in demanded.items()]
        # File it under the key whose values hold the fewest things so far.
        places = min(ways, key=lambda way: sum(len(self._by_value.get(each, ())) for each in way), default=())
        self._places[name] = places
        for place in places:
            self._by_value.setdefault(place, {})[name] = made
        if not ways:
            self._others[name] = made

    def discard(self, name: Hashable) -> None:
        """Drop the thing of this name, if there is one."""
        self.edition += 1
        self._others.pop(name, None)
        for place in self._places.pop(name, ()):
            del self._by_value[place][name]
            if not self._by_value[place]:
                del self._by_value[place]

    def find(self, params: Mapping[str, str], mentioned: Iterable[str]) -> T | None:
        """Return the newest thing that matches; `mentioned`: all keys that the constraints mention."""
        buckets = [self._others, *(self._by_value.get((key, params.get(key)), {}) for key in mentioned)]
        fitting = [each for bucket in buckets for each in bucket.values() if matches(each[1], params)]
        return max(fitting, key=lambda each: each[0])[2] if fitting else None


class ParamsIndex:
    """Params of many clients: find whether a constraint matches any of them."""

    __slots__ = ("_by_value", "_members")

    def __init__(self, members: Sequence[Mapping[str, str]]) -> None:
        self._members = members
        # Members by key and value, made for a key when a constraint first demands something of it.
        self._by_value: dict[str, dict[str | None, list[Mapping[str, str]]]] = {}

    def has_any(self, constraint: Constraint) -> bool:
        """Whether the constraint matches at least one member."""
        return any(matches(constraint, params) for params in self._concerned(constraint))

    def _concerned(self, constraint: Constraint) -> Sequence[Mapping[str, str]]:
        """Return the members to try: those with the demanded values of one key, the key that leaves the fewest."""
        demanded = demands(constraint) if len(self._members) > FEW else {}
        if not demanded:
            return self._members
        return min((self._with(key, values) for key, values in demanded.items()), key=len)

    def _with(self, key: str, values: frozenset[str | None]) -> Sequence[Mapping[str, str]]:
        """Return the members that have one of these values for the key."""
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for params in self._members:
                index.setdefault(params.get(key), []).append(params)
        return [params for value in values for params in index.get(value, ())]
