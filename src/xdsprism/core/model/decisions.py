"""Build decision diagrams over params, which answer overlap, selection, gaps and templates alike (DYN-39).

Of one key, a constraint can tell apart only three cases: absent, one of the mentioned values, any other value. So any
function of params is a diagram of branches, one key after the other in a fixed order, that ends in terminals: booleans
for a constraint, variants for the variants of a name, contents for a template. `env=prod and not tier exists` is

    env -- prod ---> tier -- absent -----> True
     |                `----- any value --> False
     `---- other value, or absent -------> False

Diagrams are reduced and shared: a branch that makes no difference is left out, and equal parts are one object. Hence

- two functions are equal exactly if they are the same object: `mean_the_same` compares with `is`
- two constraints overlap exactly if their `and` is not the terminal False, and any path to True is a witness
- a lookup takes one dictionary access for each key on the path, however large the diagram is.

To combine two diagrams, `Decisions.apply` walks both together, branch by branch, and an `Operation` decides at the
terminals. The operation remembers each pair of nodes that it has combined, so shared parts are combined once.

Building costs about as much as the diagrams are large, which for constraints that people write is close to linear.
The worst case is exponential, so `Decisions` counts steps and gives up with TooComplex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, assert_never

from .constraints import FALSE, TRUE, All, AnyOf, Constraint, Eq, Exists, Not, atoms, canonical, conjunction, keys

BUDGET = 200_000  # steps that one `Decisions` may take
# The depth of a diagram is limited, because walks recurse once for each key. Only keys that constraints mention count:
# a client may send more keys than that (DYN-46).
MAX_KEYS = 128


class TooComplex(Exception):
    """The step budget ran out, or the constraints mention too many keys."""


@dataclass(eq=False, slots=True)
class Branch:
    """Continue by the value of one key. `values` has only the values that lead elsewhere than `other`."""

    key: str
    values: dict[str, Node]
    other: Node
    absent: Node


# A Branch, or a terminal, which is any other object. Terminals are compared with `is`.
Node: TypeAlias = Any

_UNDECIDED: Final = object()


@dataclass(eq=False, slots=True)
class Operation:
    """A way to combine two diagrams.

    `decide` returns the result as soon as it is evident, at the terminals at the latest, else `_UNDECIDED`.
    If one side is `identity`, the result is the other side; the fast path of `Decisions._expand` depends on that.
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
    """Return the terminal for these params."""
    while isinstance(node, Branch):
        value = params.get(node.key)
        node = node.absent if value is None else node.values.get(value, node.other)
    return node


class Decisions:
    """The builder of diagrams over one order of keys. Only diagrams of one builder share their equal parts."""

    def __init__(self, order: Iterable[str], budget: int = BUDGET) -> None:
        self._level = {key: level for level, key in enumerate(order)}
        if len(self._level) > MAX_KEYS:
            raise TooComplex(f"{len(self._level)} keys are mentioned, at most {MAX_KEYS} can be handled")
        self._budget = self._left = budget
        self._branches: dict[tuple[Any, ...], Branch] = {}  # by contents, so that equal branches are one object
        self._and = Operation(_decide_and, identity=True)
        self._or = Operation(_decide_or, identity=False)
        self._not = Operation(_decide_not)
        self._only = Operation(_decide_only)
        self._first = Operation(_decide_first, identity=None)

    def spend(self, steps: int) -> None:
        """Count steps; raise TooComplex when the budget is used up."""
        self._left -= steps
        if self._left < 0:
            raise TooComplex(f"gave up after {self._budget:,} steps")

    def branch(self, key: str, values: dict[str, Node], other: Node, absent: Node) -> Node:
        """Return the one branch with these ends; `values` must not have entries that equal `other`."""
        if not values and other is absent:
            return other  # the key makes no difference
        shape = (key, other, absent, frozenset(values.items()))
        found = self._branches.get(shape)
        if found is None:
            found = self._branches[shape] = Branch(key, values, other, absent)
        return found

    def constraint(self, constraint: Constraint) -> Node:
        """Return the diagram of a constraint: True where it matches, False elsewhere."""
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
        """Yield the diagrams of an `or`. All values of one key make one branch, because `in` may list thousands."""
        values: dict[str, dict[str, Node]] = {}
        for item in items:
            if isinstance(item, Eq):
                values.setdefault(item.key, {})[item.value] = True
            else:
                yield self.constraint(item)
        for key, holds in values.items():
            yield self.branch(key, holds, other=False, absent=False)

    def both(self, a: Node, b: Node) -> Node:
        """Return the `and` of two diagrams of booleans."""
        return self.apply(self._and, a, b)

    def only(self, condition: Node, node: Node) -> Node:
        """Return `node` where the condition holds, None elsewhere."""
        return self.apply(self._only, condition, node)

    def first(self, nodes: Iterable[Node]) -> Node:
        """Return, for each params, the first terminal other than None among these diagrams."""
        return self.fold(self._first, nodes)

    def relabel(self, node: Node, label: Callable[[Node], Node]) -> Node:
        """Return the same diagram with each terminal replaced by `label` of it."""
        return self.apply(Operation(lambda end, _: _UNDECIDED if isinstance(end, Branch) else label(end)), node, None)

    def fold(self, operation: Operation, nodes: Iterable[Node]) -> Node:
        """Combine many diagrams, keeping their order.

        Neighbours are combined first: n log n, where one after the other would be n squared.
        """
        row = list(nodes)
        if not row:
            return operation.identity
        while len(row) > 1:
            tail = row[-1:] if len(row) % 2 else []
            row = [self.apply(operation, row[i], row[i + 1]) for i in range(0, len(row) - 1, 2)] + tail
        return row[0]

    def apply(self, operation: Operation, a: Node, b: Node) -> Node:
        """Combine two diagrams: decide at once, else take the remembered result, else descend."""
        result = operation.decide(a, b)
        if result is not _UNDECIDED:
            return result
        result = operation.memo.get((a, b), _UNDECIDED)
        if result is _UNDECIDED:
            result = operation.memo[a, b] = self._expand(operation, a, b)
        return result

    def _expand(self, operation: Operation, a: Node, b: Node) -> Node:
        """Combine two diagrams branch by branch, at the first key that either looks at."""
        key = self._first_key(a, b)
        a_values, a_other, a_absent = _split(a, key)
        b_values, b_other, b_absent = _split(b, key)
        other = self.apply(operation, a_other, b_other)
        absent = self.apply(operation, a_absent, b_absent)
        # A value that only one side mentions meets the `other` of the opposite side. If that is the identity, the
        # result is a plain copy: two thousand variants `env=v1`, `env=v2`, ... take no work for each value.
        values: dict[str, Node] = {}
        redo = dict.fromkeys(sorted(a_values.keys() & b_values.keys()))
        for mine, opposite in ((a_values, b_other), (b_values, a_other)):
            if opposite is operation.identity:
                values.update(mine)
            else:
                redo.update(dict.fromkeys(mine))
        self.spend(1 + len(redo) + len(values) // 8)  # a copied value costs less than a combined one, but not nothing
        for value in redo:
            child = self.apply(operation, a_values.get(value, a_other), b_values.get(value, b_other))
            if child is other:  # the value leads where all other values lead: keep the branch reduced
                values.pop(value, None)
            else:
                values[value] = child
        return self.branch(key, values, other, absent)

    def _first_key(self, a: Node, b: Node) -> str:
        """Return the key to branch on: the earlier of the two in the order. At least one node is a branch."""
        level = self._level
        if not isinstance(a, Branch):
            return str(b.key)
        if not isinstance(b, Branch):
            return a.key
        return min(a.key, b.key, key=level.__getitem__)

    def indicators(self, node: Node) -> dict[Node, Node]:
        """Return, for each terminal but None, the diagram that is True where this terminal is the result."""
        return self._indicators(node, {})

    def _indicators(self, node: Node, memo: dict[Node, dict[Node, Node]]) -> dict[Node, Node]:
        """Compute `indicators` for one node, once; `memo` has the nodes done so far."""
        if node is None:
            return {}
        if not isinstance(node, Branch):
            return {node: True}
        if node in memo:
            return memo[node]
        inner = {value: self._indicators(child, memo) for value, child in node.values.items()}
        other, absent = self._indicators(node.other, memo), self._indicators(node.absent, memo)
        # A key may have many values and each end only a few of them: note where an end occurs, and look only there.
        places: dict[Node, list[str]] = {}
        for value, ends in inner.items():
            for end in ends:
                places.setdefault(end, []).append(value)
        # An end behind `other` is there for every value that is not listed, so each listed value has to be looked at.
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
    """Return the children of a node by this key; a node that does not look at the key is its own child everywhere."""
    if isinstance(node, Branch) and node.key == key:
        return node.values, node.other, node.absent
    return {}, node, node


def _decide_and(a: Node, b: Node) -> Node:
    """Decide an `and`: False wins, True is neutral, and a node with itself is the node."""
    if a is False or b is False:
        return False
    if a is True or a is b:
        return b
    return a if b is True else _UNDECIDED


def _decide_or(a: Node, b: Node) -> Node:
    """Decide an `or`: True wins, False is neutral, and a node with itself is the node."""
    if a is True or b is True:
        return True
    if a is False or a is b:
        return b
    return a if b is False else _UNDECIDED


def _decide_not(a: Node, _: Node) -> Node:
    """Decide a negation at the terminals; the second argument is unused."""
    return _UNDECIDED if isinstance(a, Branch) else not a


def _decide_only(condition: Node, node: Node) -> Node:
    """Decide `Decisions.only`: the node where the condition is True, None where it is False."""
    if condition is False or node is None:
        return None
    return node if condition is True else _UNDECIDED


def _decide_first(a: Node, b: Node) -> Node:
    """Decide `Decisions.first`: the left side unless it is None."""
    if a is None:
        return b
    return _UNDECIDED if isinstance(a, Branch) and b is not None else a


def joining(join: Callable[[Node, Node], Node], identity: Node) -> Operation:
    """Return an operation that takes the other side of an `identity`, and else joins terminals by `join`."""

    def decide(a: Node, b: Node) -> Node:
        if a is identity:
            return b
        if b is identity:
            return a
        return _UNDECIDED if isinstance(a, Branch) or isinstance(b, Branch) else join(a, b)

    return Operation(decide, identity)


def terminals(node: Node) -> list[Node]:
    """Return all terminals of a diagram, each once; those of single values before those of "other" and "absent"."""
    return list(dict.fromkeys(end for end in _walk(node, set()) if not isinstance(end, Branch)))


def support(node: Node) -> set[str]:
    """Return the keys that make a difference."""
    return {found.key for found in _walk(node, set()) if isinstance(found, Branch)}


def _walk(node: Node, seen: set[Node]) -> Iterator[Node]:
    """Yield every node of a diagram once."""
    if node not in seen:
        seen.add(node)
        yield node
        if isinstance(node, Branch):
            for _, child in _choices(node):
                yield from _walk(child, seen)


# ---- from diagrams back to params (`paths`) and to constraints (`expression`)

_OTHER: Final = object()
_Choice: TypeAlias = Any  # a value of the key, or _OTHER for any value that is not listed, or None for absent


def _choices(node: Branch) -> list[tuple[_Choice, Node]]:
    """Return the ways on from a branch: each value in order, then any other value, then absent."""
    return [*sorted(node.values.items(), key=lambda item: item[0]), (_OTHER, node.other), (None, node.absent)]


def paths(node: Node, end: Node, constraints: Iterable[Constraint]) -> Iterator[dict[str, str | None]]:
    """Yield examples of params that lead to this end, one for each path. None: the key is absent.

    Where a path needs some other value, the example has one that none of the constraints mentions.
    """
    mentioned: dict[str, set[str]] = {}
    for item in constraints:
        for atom in atoms(item):
            if isinstance(atom, Eq):
                mentioned.setdefault(atom.key, set()).add(atom.value)
    for way in _ways(node, end, {}):
        yield {
            key: unmentioned(mentioned.get(key, set())) if choice is _OTHER else choice for key, choice in way.items()
        }


def unmentioned(mentioned: set[str]) -> str:
    """Return a value of a key that is none of those that constraints mention."""
    value, number = "other", 1
    while value in mentioned:
        number += 1
        value = f"other-{number}"
    return value


def _ways(node: Node, end: Node, reaches: dict[Node, bool]) -> Iterator[dict[str, _Choice]]:
    """Yield the choices along each path to this end, without descending where the end can't be reached."""
    if not isinstance(node, Branch):
        if node is end:
            yield {}
        return
    for choice, child in _choices(node):
        if _reaches(child, end, reaches):
            for rest in _ways(child, end, reaches):
                yield {node.key: choice, **rest}


def _reaches(node: Node, end: Node, memo: dict[Node, bool]) -> bool:
    """Whether some path leads from the node to this end."""
    if not isinstance(node, Branch):
        return node is end
    if node not in memo:
        memo[node] = any(_reaches(child, end, memo) for _, child in _choices(node))
    return memo[node]


def expression(node: Node, memo: dict[Node, Constraint] | None = None) -> Constraint:
    """Return a short constraint that matches where the diagram is True."""
    memo = {True: TRUE, False: FALSE} if memo is None else memo
    if node not in memo:
        clauses = [conjunction(guard, expression(child, memo)) for child, guard in _guards(node)]
        memo[node] = clauses[0] if len(clauses) == 1 else AnyOf(tuple(clauses))
    return memo[node]


def _guards(node: Branch) -> list[tuple[Node, Constraint]]:
    """Return the children of a branch that can be True, each with the constraint on the key that leads there."""
    groups: dict[Node, list[_Choice]] = {}
    for choice, child in _choices(node):
        groups.setdefault(child, []).append(choice)
    guards = [(child, _guard(node, choices)) for child, choices in groups.items() if child is not False]
    # Two children, one of them True: `g or (not g and x)` is `g or x`, so the other child needs no guard.
    if len(groups) == 2 and len(guards) == 2:
        return [(child, guard if child is True or True not in groups else TRUE) for child, guard in guards]
    return guards


def _guard(node: Branch, choices: list[_Choice]) -> Constraint:
    """Return the constraint on the branch's key that picks exactly these choices."""
    # Without "other", list the values that are picked. With it, list the values that are left out instead.
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
    """Return the constraint that the key has one of these values."""
    items = tuple(Eq(key, value) for value in values)
    return items[0] if len(items) == 1 else AnyOf(items)
