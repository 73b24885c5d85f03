"""Define constraints, the conditions on params that decide which clients get a variant (TP2).

TP2, Constraints Representation: a constraint is a tree. This module has its five forms as a closed union:

| form             | text (expr.py)     | matches params that                        |
|------------------|--------------------|--------------------------------------------|
| `Eq(k, v)`       | `k=v`              | have the key with exactly this value       |
| `Exists(k)`      | `k exists`         | have the key                               |
| `Not(c)`         | `not ...`, `k!=v`  | do not match `c`                           |
| `All((c, ...))`  | `... and ...`      | match every item; empty: all params        |
| `AnyOf((c, ...))`| `... or ...`       | match some item; empty: no params          |

The functions here look at the structure only. Whether two constraints can match the same params is a question about
their meaning, and decisions.py answers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

from ...errors import UsageError

MAX_DEPTH = 32  # DYN-8
MAX_NODES = 4096  # DYN-8


@dataclass(frozen=True, slots=True)
class Eq:
    """The key is present and has exactly this value. DYN-7: byte-exact, case-sensitive."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The key is present, whatever its value, the empty string included (DYN-7)."""

    key: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of the item. DYN-6: so `not k=v` also matches params without `k`."""

    item: Constraint


@dataclass(frozen=True, slots=True)
class All:
    """And: every item matches. Empty: true (DYN-9)."""

    items: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Or: at least one item matches. Empty: false (DYN-9)."""

    items: tuple[Constraint, ...]


Constraint = Eq | Exists | Not | All | AnyOf

TRUE = All(())
FALSE = AnyOf(())


def matches(constraint: Constraint, params: Mapping[str, Any]) -> bool:
    """Whether a client with these params satisfies the constraint.

    The values of a provider's params are no `str` (provide/recorded.py), and compiled code checks what it is told: Any.
    """
    match constraint:
        case Eq(key, value):
            return params.get(key) == value  # DYN-6: an absent key equals nothing
        case Exists(key):
            return key in params
        case Not(item):
            return not matches(item, params)
        case All(items):
            return all(matches(item, params) for item in items)
        case AnyOf(items):
            return any(matches(item, params) for item in items)
        case _:
            assert_never(constraint)


def atoms(constraint: Constraint) -> Iterator[Eq | Exists]:
    """Yield every leaf of the constraint, in the order written."""
    todo: list[Constraint] = [constraint]
    while todo:
        item = todo.pop()
        if isinstance(item, (Eq, Exists)):
            yield item
        else:
            todo.extend(reversed(children(item)))


def children(constraint: Constraint) -> tuple[Constraint, ...]:
    """Return the constraints directly inside this one."""
    match constraint:
        case Eq() | Exists():
            return ()
        case Not(item):
            return (item,)
        case All(items) | AnyOf(items):
            return items
        case _:
            assert_never(constraint)


def keys(constraint: Constraint) -> frozenset[str]:
    """Return the keys that are mentioned, also those that make no difference (`k exists or not k exists`).

    TP2, Matching Behavior and Best Practices: the variants of a name list the same keys; a clause that is always true
    is how a variant lists a key that it does not depend on.
    """
    return frozenset(atom.key for atom in atoms(constraint))


def conjunction(*items: Constraint) -> Constraint:
    """Combine the items into one flat `and`."""
    flat = [part for item in items for part in (item.items if isinstance(item, All) else (item,))]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def idle(key: str) -> Constraint:
    """Return a clause on `key` that is always true, by which a constraint mentions a key without depending on it."""
    return AnyOf((Exists(key), Not(Exists(key))))


def mentioning(constraint: Constraint, wanted: Iterable[str]) -> Constraint:
    """Pad the constraint: add an idle clause for each of the `wanted` keys that it does not mention (DYN-34)."""
    lacking = sorted(frozenset(wanted) - keys(constraint))
    return conjunction(constraint, *map(idle, lacking)) if lacking else constraint


def unpadded(constraint: Constraint) -> Constraint:
    """Drop the idle clauses that `mentioning` adds; the meaning stays the same."""
    parts = constraint.items if isinstance(constraint, All) else (constraint,)
    kept = [part for part in parts if not _is_idle(part)]
    return constraint if len(kept) == len(parts) else conjunction(*kept)


def _is_idle(constraint: Constraint) -> bool:
    """Whether this is a clause as `idle` makes it, in either order."""
    match constraint:
        case AnyOf((Exists(key), Not(Exists(other)))) | AnyOf((Not(Exists(key)), Exists(other))):
            return key == other
        case _:
            return False


def failing(constraint: Constraint, params: Mapping[str, str]) -> Constraint:
    """Return the smallest part that refuses these params; only for a constraint that does not match them.

    One failing item of an `and` is enough to explain the mismatch, while an `or` fails as a whole.
    """
    match constraint:
        case All(items):
            return next(failing(item, params) for item in items if not matches(item, params))
        case Not(AnyOf(items)):  # the same as an `and` of negations
            return Not(next(item for item in items if matches(item, params)))
        case Not(Not(item)):
            return failing(item, params)
        case AnyOf((item,)):
            return failing(item, params)
        case _:
            return constraint


@lru_cache(maxsize=8192)
def canonical(constraint: Constraint) -> Constraint:
    """Return the form by which two constraints are the same variant or not (DYN-30).

    Double `not` removed, and/or flattened, duplicates removed, items sorted. It works on the form only: equal results
    mean the same constraint, but different results may still match the same params, and every mentioned key stays
    mentioned. Versions are hashes of its repr (DESIGN 6.6), so a change here changes every version.
    """
    match constraint:
        case Eq() | Exists():
            return constraint
        case Not(item):
            return _negated(canonical(item))
        case All(items):
            return _joined(All, items)
        case AnyOf(items):
            return _joined(AnyOf, items)
        case _:
            assert_never(constraint)


def _negated(item: Constraint) -> Constraint:
    """Negate a canonical constraint, and keep it canonical."""
    if isinstance(item, Not):
        return item.item
    if item == TRUE:  # DYN-9: so `not true` and the empty `or` are one
        return FALSE
    return TRUE if item == FALSE else Not(item)


def _joined(form: type[All | AnyOf], items: Iterable[Constraint]) -> Constraint:
    """Join items into a canonical `and` or `or`."""
    flat: set[Constraint] = set()
    for item in map(canonical, items):
        if isinstance(item, form):
            flat.update(item.items)
        else:
            flat.add(item)
    if len(flat) == 1:
        return flat.pop()
    return form(tuple(sorted(flat, key=_rank)))


def _rank(constraint: Constraint) -> tuple[Any, ...]:
    """Return a sort key that is the same in every process; its leading number keeps unlike forms apart."""
    match constraint:
        case Eq(key, value):
            return 0, key, value
        case Exists(key):
            return 1, key
        case Not(item):
            return 2, _rank(item)
        case All(items):
            return 3, tuple(map(_rank, items))
        case AnyOf(items):
            return 4, tuple(map(_rank, items))
        case _:
            assert_never(constraint)


def check_limits(constraint: Constraint) -> None:
    """Raise UsageError for a constraint that is nested too deeply, too large (DYN-8), or has an empty key (DYN-9).

    It keeps its own list of parts to visit, because recursion would overflow the stack on what it has to refuse.
    """
    todo: list[tuple[Constraint, int]] = [(constraint, 1)]
    seen = 0
    while todo:
        item, depth = todo.pop()
        seen += 1
        if depth > MAX_DEPTH:
            raise UsageError(f"constraint is nested more than {MAX_DEPTH} deep")
        if isinstance(item, (Eq, Exists)) and not item.key:
            raise UsageError("constraint has an empty key")
        if seen > MAX_NODES:
            raise UsageError(f"constraint has more than {MAX_NODES:,} parts")
        todo.extend((child, depth + 1) for child in children(item))
