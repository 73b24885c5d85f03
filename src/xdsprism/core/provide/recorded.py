"""Params that remember what was looked at, so that an answer can say whom it is for (DESIGN 5).

A provider gets these in place of plain params. Each thing it finds out is a literal: `env=prod`, `not env=prod`, `env
exists`. What it did not find out can't have made a difference, so the answer is good for everybody for whom the
literals hold. Two runs of one deterministic function part at the first test that they answer differently: hence its
variants can't overlap.

A value is no `str`, on purpose. Whatever is given a real one, such as a database or a message, reads it without asking,
and then nobody would know. So comparing says only what it says; anything that needs the text itself makes it part of
the constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from ...errors import UsageError
from ..model.constraints import All, Constraint, Eq, Exists, Not, idle
from ..model.types import Params

MOST_REFUSED = 64  # values that one key is found not to have; past that it is simpler to say which one it has (DYN-8)


class _Key:
    """What was found out about one key. `pinned`: everything."""

    __slots__ = ("is_seen", "pinned", "refused")

    def __init__(self) -> None:
        self.pinned = False
        self.is_seen = False  # whether it is there at all
        self.refused: dict[str, None] = {}


class Record:
    """What one run of a provider looked at."""

    def __init__(self, label: str, keys: Iterable[str], params: Mapping[str, str]) -> None:
        self.label = label
        self.undeclared: str | None = None  # the first key that was read without having been declared
        self._params = params
        self._keys = {key: _Key() for key in sorted(keys)}
        self._over = False

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def close(self) -> Constraint:
        """The run is over: whom its answer is for. Who goes on reading learns nothing more."""
        self._over = True
        return _conjunction(tuple(self._literals(key, seen) for key, seen in self._keys.items()))

    def exists(self, key: str) -> bool:
        seen = self._look(key)
        seen.is_seen = True
        return key in self._params

    def equals(self, key: str, value: str) -> bool:
        seen = self._look(key)
        if self._params.get(key) == value:
            seen.pinned = True
            return True
        if not seen.pinned and len(seen.refused) < MOST_REFUSED:
            seen.refused[value] = None
        else:
            seen.pinned = True
        return False

    def pin(self, key: str) -> str | None:
        """All there is to know of a key."""
        self._look(key).pinned = True
        return self._params.get(key)

    def _look(self, key: str) -> _Key:
        """Raises UsageError for what can't be found out."""
        seen = self._keys.get(key)
        if seen is None:
            self.undeclared = self.undeclared or key
            declared = ", ".join(self._keys) or "none"
            raise UsageError(
                f"{self.label} reads the parameter {key!r}, which is not one of its keys (declared: {declared})"
            )
        if self._over:
            raise UsageError(f"{self.label} reads the parameter {key!r} after it has given its answer")
        return seen

    def _literals(self, key: str, seen: _Key) -> tuple[Constraint, ...]:
        """Every key is mentioned, also one that made no difference (TP2, Matching Behavior and Best Practices)."""
        value = self._params.get(key)
        if value is None and (seen.pinned or seen.is_seen):
            return (Not(Exists(key)),)
        if value is not None and seen.pinned:
            return (Eq(key, value),)
        refused = tuple(Not(Eq(key, each)) for each in sorted(seen.refused))
        if seen.is_seen:
            return (Exists(key), *refused)
        return refused or (idle(key),)  # DYN-34


@lru_cache(maxsize=4096)
def _conjunction(literals: tuple[tuple[Constraint, ...], ...]) -> Constraint:
    """One object for what many names have in common: most providers have few ways to go."""
    items = tuple(literal for each in literals for literal in each)
    return items[0] if len(items) == 1 else All(items)


def _forced(name: str) -> Any:
    """A method of str that needs the text."""

    def method(self: Value, *args: Any) -> Any:
        return getattr(str(self), name)(*map(_plain, args))

    return method


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Value) else value


class Value:
    """What a client has for one key. It need not be there: then it equals nothing."""

    __slots__ = ("_key", "_record")

    def __init__(self, record: Record, key: str) -> None:
        self._record = record
        self._key = key

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Value):
            other = other._record.pin(other._key)
        if not isinstance(other, str):
            return NotImplemented  # the same for every value there can be
        return self._record.equals(self._key, str.__str__(other))  # a StrEnum's, say

    def __bool__(self) -> bool:
        """As a string: not the empty one. What is not there is none either."""
        return self._record.exists(self._key) and self != ""

    def __str__(self) -> str:
        text = self._record.pin(self._key)
        if text is None:
            key = self._key
            raise KeyError(f"this client has no parameter {key!r}; `params.get({key!r})` is None where there is none")
        return text

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __int__(self) -> int:
        return int(str(self))

    def __float__(self) -> float:
        return float(str(self))

    def __radd__(self, other: str) -> str:
        return other + str(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(str, name):
            raise AttributeError(f"a parameter's value has no {name!r}")
        return getattr(str(self), name)

    __add__ = _forced("__add__")
    __mul__ = __rmul__ = _forced("__mul__")
    __mod__ = _forced("__mod__")
    __len__ = _forced("__len__")
    __iter__ = _forced("__iter__")
    __contains__ = _forced("__contains__")
    __getitem__ = _forced("__getitem__")
    __lt__ = _forced("__lt__")
    __le__ = _forced("__le__")
    __gt__ = _forced("__gt__")
    __ge__ = _forced("__ge__")


class RecordedParams(Params):
    """The params of one run. Of what the client sends, the keys that were declared; nothing else is there."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:  # the base class's would copy what must be asked for
        self._record = record

    def __getitem__(self, key: str) -> str:
        """Always something to compare with: a provider need not ask first whether it is there (DYN-6)."""
        if key not in self._record.keys:
            self._record.exists(key)  # raises
        return cast("str", Value(self._record, key))

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # as in Params
        return self[key] if self._record.exists(key) else default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._record.exists(key)

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._record.keys if self._record.exists(key))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __hash__(self) -> int:
        return hash(self._texts())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self._texts()) == dict(other)

    def __repr__(self) -> str:
        return f"<params of {self._record.label}: {', '.join(self._record.keys)}>"

    def only(self, keys: Iterable[str]) -> Params:
        return Params({key: str(self[key]) for key in keys if key in self})

    def _texts(self) -> Params:
        return self.only(self._record.keys)
