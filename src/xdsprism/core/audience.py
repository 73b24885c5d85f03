"""Who wants one name, by class: alike are those who agree on every key that the answers mention (DESIGN 6.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from .types import Params

Classes = Mapping[Params, Mapping[Params, None]]


class Audience:
    """Counts subscriptions by their params. Classes are kept, and made anew only when other keys matter."""

    def __init__(self) -> None:
        self._counts: Counter[Params] = Counter()
        self._keys: tuple[str, ...] = ()
        self._classes: dict[Params, dict[Params, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __iter__(self) -> Iterator[Params]:
        return iter(self._counts)

    def __contains__(self, params: Params) -> bool:
        return params in self._counts

    def has_like(self, params: Params) -> bool:
        """Whether somebody is there who is alike."""
        return params.only(self._keys) in self._classes

    def count(self, params: Params) -> int:
        return self._counts[params]

    def add(self, params: Params) -> None:
        self._counts[params] += 1
        if self._counts[params] == 1:
            self._classes.setdefault(params.only(self._keys), {})[params] = None

    def remove(self, params: Params) -> None:
        self._counts[params] -= 1
        if self._counts[params]:
            return
        del self._counts[params]
        category = params.only(self._keys)
        alike = self._classes[category]
        del alike[params]
        if not alike:
            del self._classes[category]

    def classes(self, keys: tuple[str, ...]) -> Classes:
        if keys != self._keys:
            self._keys = keys
            self._classes = {}
            for params in self._counts:
                self._classes.setdefault(params.only(keys), {})[params] = None
        return self._classes
