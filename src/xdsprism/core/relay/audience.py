"""Count the downstream subscriptions of one name by class of params (DESIGN 6.3).

The cached answers of a name mention some keys in their constraints. Two clients whose params agree on these keys always
get the same answer, so they form one class (`Category`: the params cut down to these keys). The relay decides once per
class instead of once per client. Within a class, `Audience` counts the subscriptions of each complete set of params,
because an upstream subscription is made with the complete params of one client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from ..model.cached import FindingId
from ..model.constraint_index import FEW, demands
from ..model.constraints import Constraint
from ..model.types import Category, Params, category
from .upstream_subscription import Subject

Classes = Mapping[Category, Mapping[Params, int]]


class Audience:
    """Counts the subscriptions of one name, by class and by params.

    The classes stay as they are until the answers mention other keys; then `classes` sorts all params again.
    """

    __slots__ = ("_by_value", "_classes", "_keys")

    def __init__(self) -> None:
        self._keys: tuple[str, ...] = ()
        self._classes: dict[Category, dict[Params, int]] = {}
        self._by_value: dict[str, dict[str | None, dict[Category, None]]] = {}  # by key and value, for `concerned`

    def __bool__(self) -> bool:
        return bool(self._classes)

    def __iter__(self) -> Iterator[Params]:
        """Iterate over the distinct params, class by class."""
        return chain.from_iterable(self._classes.values())

    def __contains__(self, params: Params) -> bool:
        """Whether at least one subscription has exactly these params."""
        return params in self._classes.get(category(params, self._keys), ())

    def has_like(self, params: Params) -> bool:
        """Whether at least one subscription is in the class of these params."""
        return category(params, self._keys) in self._classes

    def count(self, params: Params) -> int:
        """Return how many subscriptions have exactly these params."""
        return self._classes.get(category(params, self._keys), {}).get(params, 0)

    def add(self, params: Params, known: tuple[Category, tuple[str, ...]] | None = None) -> bool:
        """Count one more subscription, and return whether its class had one already.

        known: the class of the params and the keys it was made by, if the caller has computed it. It is used only if
        the keys are still the same.
        """
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
        """Count one subscription less, and drop its class with the last one."""
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
        """Return the classes by these keys. Sorts all params anew if the keys are not those of the last call."""
        if keys != self._keys:
            before, self._keys, self._classes, self._by_value = self._classes, keys, {}, {}
            for alike in before.values():
                for params, count in alike.items():
                    self._classes.setdefault(category(params, keys), {})[params] = count
        return self._classes

    def concerned(self, constraint: Constraint) -> Iterable[Category]:
        """Return the classes that a constraint may match.

        The constraint must mention no key besides those that the classes are made by. If it demands certain values of a
        key, an index by that key finds the classes; otherwise the result is all of them. It may contain classes that
        the constraint does not match.
        """
        demanded = demands(constraint)
        if not demanded or len(self._classes) <= FEW:
            return self._classes
        return min((self._with(key, values) for key, values in demanded.items()), key=len)

    def _with(self, key: str, values: frozenset[str | None]) -> list[Category]:
        """Return the classes whose params have one of these values for a key. The first call builds the index."""
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for same, alike in self._classes.items():
                index.setdefault(next(iter(alike)).get(key), {})[same] = None
        return [same for value in values for same in index.get(value, ())]


NOBODY = Audience()  # of a name that no session wants


class Audiences:
    """The subscribers of every name that has some."""

    def __init__(self) -> None:
        self._by_name: dict[Subject, Audience] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __contains__(self, subject: Subject) -> bool:
        """Whether a session wants a name."""
        return subject in self._by_name

    def of(self, subject: Subject) -> Audience:
        """Return the subscribers of a name."""
        return self._by_name.get(subject, NOBODY)

    def open(self, subject: Subject) -> Audience:
        """Return the subscribers of a name that a session is about to join."""
        return self._by_name.setdefault(subject, Audience())

    def remove(self, subject: Subject, params: Params) -> Audience:
        """Count one subscription less, drop the name with the last one, and return the others."""
        audience = self._by_name[subject]
        audience.remove(params)
        if not audience:
            del self._by_name[subject]
        return audience


@dataclass(slots=True)
class Needs:
    """Says which findings of one name are in use, and which classes of subscribers have no current answer."""

    users: dict[FindingId, Params] = field(default_factory=dict)  # each finding in use, with the params of one user
    waiting: dict[Category, Mapping[Params, int]] = field(default_factory=dict)  # classes without a current answer
    kept_stale: set[FindingId] = field(default_factory=set)  # stale findings that these classes keep until then
