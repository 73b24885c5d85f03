"""Record what a provider reads of its params, so that its result can say which clients it holds for (DESIGN 5).

A provider gets `RecordedParams` in place of plain params. Each thing that it finds out is a literal of the constraints:

    the provider                       client env=prod         client env=test         client without env
    ---------------------------------  ----------------------  ----------------------  ----------------------
    params["env"] == "prod"            env=prod                not env=prod            not env=prod
    "env" in params                    env exists              env exists              not env exists
    f"{params['env']}", .lower() ...   env=prod                env=test                KeyError
    reads nothing                      (always true)           (always true)           (always true)

What a provider did not find out cannot have made a difference, so the result holds for every client for which the
literals hold. Two runs of a deterministic function differ first at a test that they answer differently. So the variants
of one provider never overlap.

A value is deliberately no `str`. Code that gets a real string, such as a database driver or a protobuf message, reads
it without calling back, and the read would go unnoticed. With `Value`, a comparison records its outcome only, and
anything that needs the text records the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from ...errors import UsageError
from ..model.constraints import All, Constraint, Eq, Exists, Not, idle
from ..model.types import Params

MOST_REFUSED = 64  # values that a key was compared with and did not have; one more pins the key (DYN-8)


class _Key:
    """What a run found out about one key. `pinned`: its exact value, or that it is absent."""

    __slots__ = ("is_seen", "pinned", "refused")

    def __init__(self) -> None:
        self.pinned = False
        self.is_seen = False  # whether the run found out if the key exists
        self.refused: dict[str, None] = {}


class Record:
    """What one run of a provider has read."""

    def __init__(self, label: str, keys: Iterable[str], params: Mapping[str, str]) -> None:
        self.label = label
        self.undeclared: str | None = None  # the first key that was read without having been declared
        self._params = params
        self._keys = {key: _Key() for key in sorted(keys)}
        self._is_sealed = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the provider declared."""
        return tuple(self._keys)

    def close(self) -> Constraint:
        """End the run, and return the constraints of its result. Any later read raises UsageError."""
        self._is_sealed = True
        return _conjunction(tuple(self._literals(key, seen) for key, seen in self._keys.items()))

    def exists(self, key: str) -> bool:
        """Return whether the client has a key, and record that this was read."""
        seen = self._notes_on(key)
        seen.is_seen = True
        return key in self._params

    def equals(self, key: str, value: str) -> bool:
        """Return whether a key has a value, and record the outcome.

        Too many different comparisons pin the key: one literal with the exact value is shorter then.
        """
        seen = self._notes_on(key)
        if self._params.get(key) == value:
            seen.pinned = True
            return True
        if not seen.pinned and len(seen.refused) < MOST_REFUSED:
            seen.refused[value] = None
        else:
            seen.pinned = True
        return False

    def pin(self, key: str) -> str | None:
        """Return the value of a key, None if the client has none, and record all of it."""
        self._notes_on(key).pinned = True
        return self._params.get(key)

    def _notes_on(self, key: str) -> _Key:
        """Return the notes about a key. Raises UsageError for an undeclared key, and after the run."""
        seen = self._keys.get(key)
        if seen is None:
            self.undeclared = self.undeclared or key
            declared = ", ".join(self._keys) or "none"
            raise UsageError(
                f"{self.label} reads the parameter {key!r}, which is not one of its keys (declared: {declared})"
            )
        if self._is_sealed:
            raise UsageError(f"{self.label} reads the parameter {key!r} after it has returned")
        return seen

    def _literals(self, key: str, seen: _Key) -> tuple[Constraint, ...]:
        """Return the literals for one key.

        Every declared key is mentioned, also one that made no difference (TP2, Matching Behavior and Best Practices).
        """
        value = self._params.get(key)
        # An absent key that was only compared has not been found absent: its literals are the comparisons.
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
    """Return the conjunction of all literals. Cached, because most providers take few paths for many names."""
    items = tuple(literal for each in literals for literal in each)
    return items[0] if len(items) == 1 else All(items)


def _forced(name: str) -> Any:
    """Make a method that reads the text, and passes the call on to the `str` method of that name."""

    def method(self: Value, *args: Any) -> Any:
        return getattr(str(self), name)(*map(_plain, args))

    return method


def _plain(value: Any) -> Any:
    """Return the text of a `Value`, and anything else as it is."""
    return str(value) if isinstance(value, Value) else value


class Value:
    """The value of one key, as a provider sees it. If the client has no such key, it equals nothing.

    Comparing with `==` records the outcome; everything else that a `str` can do records the text.
    """

    __slots__ = ("_key", "_record")

    def __init__(self, record: Record, key: str) -> None:
        self._record = record
        self._key = key

    def __eq__(self, other: object) -> bool:
        """Whether the client has this value. Records the outcome only.

        To compare two recorded values, the text of the other one is recorded.
        """
        if isinstance(other, Value):
            other = other._record.pin(other._key)
        if not isinstance(other, str):
            return NotImplemented  # the outcome is the same for every value, so nothing is recorded
        return self._record.equals(self._key, str.__str__(other))  # plain text, also of a StrEnum

    def __bool__(self) -> bool:
        """Whether the client has the key, with a value that is not empty."""
        return self._record.exists(self._key) and self != ""

    def __str__(self) -> str:
        """Return the text. Raises KeyError if the client has no such key."""
        text = self._record.pin(self._key)
        if text is None:
            key = self._key
            raise KeyError(f"this client has no parameter {key!r}; `params.get({key!r})` is None where there is none")
        return text

    def __hash__(self) -> int:
        """Hash the text, so that a value can be looked up in a dict of strings."""
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
        """Return a method of `str`, bound to the text."""
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


class RecordedParams(Mapping[str, str]):
    """The params of one run: those of the client's params that the provider declared.

    They do all that `Params` do, and `isinstance` takes them for such. But they hold no values, which could be read
    unrecorded.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    def __getitem__(self, key: str) -> str:
        """Return a value to compare with, even if the client has no such key (DYN-6)."""
        if key not in self._record.keys:
            self._record.exists(key)  # raises
        return cast("str", Value(self._record, key))

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # as in Params
        """Return a value, or the default if the client has no such key. Records whether the key exists."""
        return self[key] if self._record.exists(key) else default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._record.exists(key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that the client has. Records for each declared key whether it exists."""
        return (key for key in self._record.keys if self._record.exists(key))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __hash__(self) -> int:
        return hash(self._texts())

    def __eq__(self, other: object) -> bool:
        """Whether the declared params equal a mapping. Records all of their text."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self._texts()) == dict(other)

    def __repr__(self) -> str:
        return f"<params of {self._record.label}: {', '.join(self._record.keys)}>"

    def only(self, keys: Iterable[str]) -> Params:
        """Return plain params with these keys. Records their text."""
        return Params({key: str(self[key]) for key in keys if key in self})

    def _texts(self) -> Params:
        """Return all declared params as plain ones. Records their text."""
        return self.only(self._record.keys)


Params.register(RecordedParams)


def recorded_params(record: Record) -> Params:
    """Return the params that a provider gets. A function may say that it takes `Params`."""
    return cast("Params", RecordedParams(record))
