"""Who wants one name, by class: alike are those who agree on every key that the answers mention (DESIGN 6.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .cached import Form
from .types import Category, Params, category

Classes = Mapping[Category, Mapping[Params, None]]


class Audience:
    """Counts subscriptions by their params. Classes are kept, and made anew only when other keys matter."""

    def __init__(self) -> None:
        self._counts: Counter[Params] = Counter()
        self._keys: tuple[str, ...] = ()
        self._classes: dict[Category, dict[Params, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __iter__(self) -> Iterator[Params]:
        return iter(self._counts)

    def __contains__(self, params: Params) -> bool:
        return params in self._counts

    def has_like(self, params: Params) -> bool:
        """Whether somebody is there who is alike."""
        return category(params, self._keys) in self._classes

    def count(self, params: Params) -> int:
        return self._counts[params]

    def add(self, params: Params, known: tuple[Category, tuple[str, ...]] | None = None) -> bool:
        """Returns whether somebody was there who is alike. `known`: its class, by these keys."""
        count = self._counts.get(params, 0)
        self._counts[params] = count + 1
        if count:
            return True
        same = known[0] if known is not None and known[1] == self._keys else category(params, self._keys)
        alike = self._classes.get(same)
        if alike is None:
            alike = self._classes[same] = {}
        alike[params] = None
        return len(alike) > 1

    def remove(self, params: Params) -> None:
        self._counts[params] -= 1
        if self._counts[params]:
            return
        del self._counts[params]
        same = category(params, self._keys)
        alike = self._classes[same]
        del alike[params]
        if not alike:
            del self._classes[same]

    def classes(self, keys: tuple[str, ...]) -> Classes:
        if keys != self._keys:
            self._keys = keys
            self._classes = {}
            for params in self._counts:
                self._classes.setdefault(category(params, keys), {})[params] = None
        return self._classes


@dataclass(slots=True)
class Needs:
    """What those who want a name need."""

    users: dict[Form, Params] = field(default_factory=dict)  # each finding that somebody uses, and one of these
    waiting: dict[Category, Params | None] = field(default_factory=dict)  # classes without an answer; one to ask for
    clinging: set[Form] = field(default_factory=set)  # what these have meanwhile
