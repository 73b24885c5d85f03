"""Decision diagrams over params: the one structure behind overlap, selection, gaps and templates (DYN-39).

Of a key, all that a constraint can tell apart is: absent, each value that is mentioned, some other value. So a
function of params is a diagram of branches on keys, in one fixed order, that ends in terminals: booleans for a
constraint, variants for the variants of a name, contents for a template.

Diagrams are reduced and shared: a branch that makes no difference is left out and equal parts are one object.
Hence two functions are equal exactly if they are the same object, any branch can still end in at least two
ways, and looking something up takes one dictionary access for each key on the way, however large the diagram.

Building costs about as much as the diagrams are large, which for constraints that people write is close to linear.
The worst case is exponential, so steps are counted and TooComplex ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, assert_never

from .constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not, atoms, canonical, conjunction, keys

BUDGET = 200_000
MAX_KEYS = 128  # as deep as a diagram may get: walks recurse once for each key. DYN-46 lets a client send 64


class TooComplex(Exception):
    """The step budget ran out, or there are too many keys."""


@dataclass(eq=False, slots=True)
class Branch:
    """Go on by what the params say of one key. `values` has only what differs from `other`."""

    key: str
    values: dict[str, Node]
    other: Node
    absent: Node


# A Branch, or else a terminal: any object that stands for itself. Terminals are compared with `is`.
Node: TypeAlias = Any

_UNDECIDED: Final = object()


@dataclass(eq=False, slots=True)
class Operation:
    """A way to combine two diagrams.

    `decide` gives the result where it is plain to see, at the terminals at the latest, else `_UNDECIDED`.
    With `identity` on one side the result is the other side; the fast path of `Decisions.apply` lives on that.
    """

    decide: Callable[[Node, Node], Node]
    identity: Node = _UNDECIDED
    memo: dict[tuple[Node, Node], Node] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def mean_the_same(one: Constraint, other: Constraint) -> bool:
    """Whether two constraints match the same params; False where it would take too long to tell."""
    if canonical(one) == canonical(other):
        return True
    try:
        diagrams = Decisions(sorted(keys(one) | keys(other)))
        return diagrams.constraint(one) is diagrams.constraint(other)
    except TooComplex:
        return False


def lookup(node: Node, params: Mapping[str, str]) -> Node:
    """The terminal for these params."""
    while isinstance(node, Branch):
        value = params.get(node.key)
        node = node.absent if value is None else node.values.get(value, node.other)
    return node


class Decisions:
    """Where diagrams of one order of keys are built; only while it lives are equal parts one object."""

    def __init__(self, order: Iterable[str], budget: int = BUDGET) -> None:
        self._level = {key: level for level, key in enumerate(order)}
        if len(self._level) > MAX_KEYS:
            raise TooComplex(f"{len(self._level)} keys are mentioned, at most {MAX_KEYS} can be handled")
        self._budget = self._left = budget
        self._branches: dict[tuple[Any, ...], Branch] = {}
        self._and = Operation(_decide_and, identity=True)
        self._or = Operation(_decide_or, identity=False)
        self._not = Operation(_decide_not)
        self._only = Operation(_decide_only)
        self._first = Operation(_decide_first, identity=None)

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooComplex(f"gave up after {self._budget:,} steps")

    def branch(self, key: str, values: dict[str, Node], other: Node, absent: Node) -> Node:
        """The branch with these ends; the caller has left out of `values` what is the same as `other`."""
        if not values and other is absent:
            return other
        shape = (key, other, absent, frozenset(values.items()))
        found = self._branches.get(shape)
        if found is None:
            found = self._branches[shape] = Branch(key, values, other, absent)
        return found

    def constraint(self, constraint: Constraint) -> Node:
        """The diagram, ending in True and False, of where the constraint holds."""
        match constraint:
            case Eq(key, value):
                return self.branch(key, {value: True}, other=False, absent=False)
            case Exists(key):
                return self.branch(key, {}, other=True, absent=False)
            case Not(item):
                return self.apply(self._not, self.constraint(item), None)
            case All(items):
                return self.fold(self._and, map(self.constraint, items))
            case AnyOf(items):
                return self.fold(self._or, self._alternatives(items))
            case _:
                assert_never(constraint)

    def _alternatives(self, items: Iterable[Constraint]) -> Iterator[Node]:
        """The diagrams of an `or`. All values of one key make one branch: `in` may list thousands."""
        values: dict[str, dict[str, Node]] = {}
        for item in items:
            if isinstance(item, Eq):
                values.setdefault(item.key, {})[item.value] = True
            else:
                yield self.constraint(item)
        for key, holds in values.items():
            yield self.branch(key, holds, other=False, absent=False)

    def both(self, a: Node, b: Node) -> Node:
        return self.apply(self._and, a, b)

    def only(self, condition: Node, node: Node) -> Node:
        """`node` where the condition holds, None elsewhere."""
        return self.apply(self._only, condition, node)

    def first(self, nodes: Iterable[Node]) -> Node:
        """Of several diagrams the first that has something other than None."""
        return self.fold(self._first, nodes)

    def relabel(self, node: Node, label: Callable[[Node], Node]) -> Node:
        """The same diagram with other terminals."""
        return self.apply(Operation(lambda end, _: _UNDECIDED if isinstance(end, Branch) else label(end)), node, None)

    def fold(self, operation: Operation, nodes: Iterable[Node]) -> Node:
        """Combine many, neighbours first: n log n where one after the other would be n squared. Keeps the order."""
        row = list(nodes)
        if not row:
            return operation.identity
        while len(row) > 1:
            tail = row[-1:] if len(row) % 2 else []
            row = [self.apply(operation, row[i], row[i + 1]) for i in range(0, len(row) - 1, 2)] + tail
        return row[0]

    def apply(self, operation: Operation, a: Node, b: Node) -> Node:
        """Combine two diagrams, terminal by terminal."""
        result = operation.decide(a, b)
        if result is not _UNDECIDED:
            return result
        result = operation.memo.get((a, b), _UNDECIDED)
        if result is _UNDECIDED:
            result = operation.memo[a, b] = self._expand(operation, a, b)
        return result

    def _expand(self, operation: Operation, a: Node, b: Node) -> Node:
        key = self._first_key(a, b)
        a_values, a_other, a_absent = _split(a, key)
        b_values, b_other, b_absent = _split(b, key)
        other = self.apply(operation, a_other, b_other)
        absent = self.apply(operation, a_absent, b_absent)
        # A value that only one side mentions meets the `other` of the other side. Where that is the identity there
        # is nothing to do but copy: two thousand variants `env=vi` go through here without a look at each.
        values: dict[str, Node] = {}
        redo = dict.fromkeys(sorted(a_values.keys() & b_values.keys()))
        for mine, opposite in ((a_values, b_other), (b_values, a_other)):
            if opposite is operation.identity:
                values.update(mine)
            else:
                redo.update(dict.fromkeys(mine))
        self.spend(1 + len(redo) + len(values) // 8)  # copying is cheap, but neither its time nor its memory is free
        for value in redo:
            child = self.apply(operation, a_values.get(value, a_other), b_values.get(value, b_other))
            if child is other:
                values.pop(value, None)
            else:
                values[value] = child
        return self.branch(key, values, other, absent)

    def _first_key(self, a: Node, b: Node) -> str:
        level = self._level
        if not isinstance(a, Branch):
            return str(b.key)
        if not isinstance(b, Branch):
            return a.key
        return min(a.key, b.key, key=level.__getitem__)

    def indicators(self, node: Node) -> dict[Node, Node]:
        """For each terminal but None: the diagram, ending in True and False, of where it is the one."""
        return self._indicators(node, {})

    def _indicators(self, node: Node, memo: dict[Node, dict[Node, Node]]) -> dict[Node, Node]:
        if node is None:
            return {}
        if not isinstance(node, Branch):
            return {node: True}
        if node in memo:
            return memo[node]
        inner = {value: self._indicators(child, memo) for value, child in node.values.items()}
        other, absent = self._indicators(node.other, memo), self._indicators(node.absent, memo)
        # Sparse, for the sake of a key with many values: an end is asked for only where it can be found.
        places: dict[Node, list[str]] = {}
        for value, ends in inner.items():
            for end in ends:
                places.setdefault(end, []).append(value)
        for end in (*other, *absent):
            places[end] = list(inner) if end in other else places.get(end, [])
        memo[node] = {}
        for end, values in places.items():
            self.spend(1 + len(values))
            rest = other.get(end, False)
            holds = {value: inner[value].get(end, False) for value in values}
            holds = {value: child for value, child in holds.items() if child is not rest}
            memo[node][end] = self.branch(node.key, holds, rest, absent.get(end, False))
        return memo[node]


def _split(node: Node, key: str) -> tuple[dict[str, Node], Node, Node]:
    if isinstance(node, Branch) and node.key == key:
        return node.values, node.other, node.absent
    return {}, node, node  # doesn't look at the key


def _decide_and(a: Node, b: Node) -> Node:
    if a is False or b is False:
        return False
    if a is True or a is b:
        return b
    return a if b is True else _UNDECIDED


def _decide_or(a: Node, b: Node) -> Node:
    if a is True or b is True:
        return True
    if a is False or a is b:
        return b
    return a if b is False else _UNDECIDED


def _decide_not(a: Node, _: Node) -> Node:
    return _UNDECIDED if isinstance(a, Branch) else not a


def _decide_only(condition: Node, node: Node) -> Node:
    if condition is False or node is None:
        return None
    return node if condition is True else _UNDECIDED


def _decide_first(a: Node, b: Node) -> Node:
    if a is None:
        return b
    return _UNDECIDED if isinstance(a, Branch) and b is not None else a


def joining(join: Callable[[Node, Node], Node], identity: Node) -> Operation:
    """An operation that is decided where one side is the identity, else at the terminals, by `join`."""

    def decide(a: Node, b: Node) -> Node:
        if a is identity:
            return b
        if b is identity:
            return a
        return _UNDECIDED if isinstance(a, Branch) or isinstance(b, Branch) else join(a, b)

    return Operation(decide, identity)


def terminals(node: Node) -> list[Node]:
    """All that a diagram can end in, each once; special cases before general ones."""
    return list(dict.fromkeys(end for end in _walk(node, set()) if not isinstance(end, Branch)))


def support(node: Node) -> set[str]:
    """The keys that make a difference."""
    return {found.key for found in _walk(node, set()) if isinstance(found, Branch)}


def _walk(node: Node, seen: set[Node]) -> Iterator[Node]:
    if node not in seen:
        seen.add(node)
        yield node
        if isinstance(node, Branch):
            for _, child in _choices(node):
                yield from _walk(child, seen)


# ---- from diagrams back to params and constraints

_OTHER: Final = object()
_Choice: TypeAlias = Any  # a value, _OTHER, or None for absent


def _choices(node: Branch) -> list[tuple[_Choice, Node]]:
    return [*sorted(node.values.items(), key=lambda item: item[0]), (_OTHER, node.other), (None, node.absent)]


def paths(node: Node, end: Node, constraints: Iterable[Constraint]) -> Iterator[dict[str, str | None]]:
    """Examples of params that lead to this end, one for each way there. None: the key is absent.

    Where a way asks for some other value, one is made up that none of the constraints mentions.
    """
    mentioned = {(atom.key, atom.value) for item in constraints for atom in atoms(item) if isinstance(atom, Eq)}
    for way in _ways(node, end, {}):
        yield {key: _fresh(key, mentioned) if choice is _OTHER else choice for key, choice in way.items()}


def _fresh(key: str, mentioned: set[tuple[str, str]]) -> str:
    value, number = "other", 1
    while (key, value) in mentioned:
        number += 1
        value = f"other-{number}"
    return value


def _ways(node: Node, end: Node, reaches: dict[Node, bool]) -> Iterator[dict[str, _Choice]]:
    if not isinstance(node, Branch):
        if node is end:
            yield {}
        return
    for choice, child in _choices(node):
        if _reaches(child, end, reaches):
            for rest in _ways(child, end, reaches):
                yield {node.key: choice, **rest}


def _reaches(node: Node, end: Node, memo: dict[Node, bool]) -> bool:
    if not isinstance(node, Branch):
        return node is end
    if node not in memo:
        memo[node] = any(_reaches(child, end, memo) for _, child in _choices(node))
    return memo[node]


def expression(node: Node, memo: dict[Node, Constraint] | None = None) -> Constraint:
    """A short constraint that holds where the diagram says True."""
    memo = {True: TRUE, False: FALSE} if memo is None else memo
    if node not in memo:
        clauses = [conjunction(guard, expression(child, memo)) for child, guard in _guards(node)]
        memo[node] = clauses[0] if len(clauses) == 1 else AnyOf(tuple(clauses))
    return memo[node]


def _guards(node: Branch) -> list[tuple[Node, Constraint]]:
    """Where a branch can go, and the constraint on its key that leads there."""
    groups: dict[Node, list[_Choice]] = {}
    for choice, child in _choices(node):
        groups.setdefault(child, []).append(choice)
    guards = [(child, _guard(node, choices)) for child, choices in groups.items() if child is not False]
    if len(groups) == 2 and len(guards) == 2:  # `g or (not g and x)` is `g or x`
        return [(child, guard if child is True or True not in groups else TRUE) for child, guard in guards]
    return guards


def _guard(node: Branch, choices: list[_Choice]) -> Constraint:
    """The constraint on the branch's key that picks exactly these choices."""
    values = [choice for choice in choices if isinstance(choice, str)]
    if _OTHER not in choices:
        picked = _one_of(node.key, values)
        if None not in choices:
            return picked
        return AnyOf((picked, Not(Exists(node.key)))) if values else Not(Exists(node.key))
    rest = _one_of(node.key, sorted(node.values.keys() - set(values)))
    if None in choices:
        return Not(rest)
    return Exists(node.key) if rest == FALSE else All((Exists(node.key), Not(rest)))


def _one_of(key: str, values: list[str]) -> Constraint:
    items = tuple(Eq(key, value) for value in values)
    return items[0] if len(items) == 1 else AnyOf(items)
