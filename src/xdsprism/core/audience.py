"""Who wants one name, by class: alike are those who agree on every key that the answers mention (DESIGN 6.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from .cached import Form
from .types import Category, Params, category

Classes = Mapping[Category, Mapping[Params, int]]


class Audience:
    """Counts subscriptions by their params. Classes are kept, and made anew only when other keys matter."""

    __slots__ = ("_classes", "_keys")

    def __init__(self) -> None:
        self._keys: tuple[str, ...] = ()
        self._classes: dict[Category, dict[Params, int]] = {}

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

    def classes(self, keys: tuple[str, ...]) -> Classes:
        if keys != self._keys:
            before, self._keys, self._classes = self._classes, keys, {}
            for alike in before.values():
                for params, count in alike.items():
                    self._classes.setdefault(category(params, keys), {})[params] = count
        return self._classes


@dataclass(slots=True)
class Needs:
    """What those who want a name need."""

    users: dict[Form, Params] = field(default_factory=dict)  # each finding that somebody uses, and one of these
    waiting: dict[Category, Mapping[Params, int]] = field(default_factory=dict)  # classes without an answer
    clinging: set[Form] = field(default_factory=set)  # what these have meanwhile
