"""No method is assigned onto an instance: a compiled build calls the method of the class all the same, in silence."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "xdsprism"

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def _is_property(function: FUNCTIONS) -> bool:
    """Whether the function is a property, which may have a setter."""
    marks = (
        mark.attr if isinstance(mark, ast.Attribute) else getattr(mark, "id", "") for mark in function.decorator_list
    )
    return any(mark in {"property", "setter", "cached_property"} for mark in marks)


def _methods(node: ast.ClassDef) -> set[str]:
    """The methods that a class defines."""
    return {item.name for item in node.body if isinstance(item, FUNCTIONS) and not _is_property(item)}


@cache
def _nodes(tree: ast.AST) -> list[ast.AST]:
    return [*ast.walk(tree)]


@cache
def _targets(tree: ast.AST) -> list[ast.Attribute]:
    """Every attribute that is assigned to."""
    targets: list[ast.expr] = []
    for node in _nodes(tree):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    parts = (target.elts if isinstance(target, ast.Tuple | ast.List) else [target] for target in targets)
    return [each for some in parts for each in some if isinstance(each, ast.Attribute)]


def _fields(tree: ast.AST) -> set[str]:
    """The attributes that the classes of a file have as fields: assigned to `self`, or declared in a class body."""
    own = {each.attr for each in _targets(tree) if isinstance(each.value, ast.Name) and each.value.id == "self"}
    classes = (node for node in _nodes(tree) if isinstance(node, ast.ClassDef))
    declared = (item for each in classes for item in each.body if isinstance(item, ast.AnnAssign | ast.Assign))
    targets = (item.target if isinstance(item, ast.AnnAssign) else item.targets[0] for item in declared)
    return own | {target.id for target in targets if isinstance(target, ast.Name)}


def assigned_methods(trees: Iterable[ast.AST]) -> list[str]:
    """Find assignments to a method of the own class, and from outside to what is a method and nowhere a field."""
    trees = [*trees]
    found: list[str] = []
    fields = set[str]().union(*map(_fields, trees))
    classes = [(tree, node) for tree in trees for node in _nodes(tree) if isinstance(node, ast.ClassDef)]
    for tree, node in classes:
        own = _inherited(node, [each for other, each in classes if other is tree] + [each for _, each in classes])
        found += [
            f"{node.name}.{target.attr}"
            for target in _targets(node)
            if isinstance(target.value, ast.Name) and target.value.id == "self" and target.attr in own
        ]
    only_methods = set[str]().union(*(_methods(node) for _, node in classes)) - fields
    found += [ast.unparse(target) for tree in trees for target in _targets(tree) if target.attr in only_methods]
    for known in (_nodes, _targets):  # or the trees stay, which are large
        known.cache_clear()
    return found


def _inherited(node: ast.ClassDef, known: list[ast.ClassDef]) -> set[str]:
    """The methods of a class and of its bases, each the first of its name in `known`."""
    found, left, seen = set[str](), [node], set[ast.ClassDef]()
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            found |= _methods(each)
            bases = [base.id for base in each.bases if isinstance(base, ast.Name)]
            left += [next(other for other in known if other.name == base) for base in bases if _has(known, base)]
    return found


def _has(known: list[ast.ClassDef], name: str) -> bool:
    return any(each.name == name for each in known)


def test_the_sources_assign_no_method() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))]
    assert assigned_methods(trees) == []


PLANTED = {
    "its own": "class A:\n    def f(self): ...\n    def g(self):\n        self.f = print\n",
    "of a base": "class A:\n    def f(self): ...\nclass B(A):\n    def __init__(self):\n        self.f = print\n",
    "from outside": "class A:\n    def f(self): ...\ndef g(a):\n    a.f = print\n",
    "in a tuple": "class A:\n    def f(self): ...\n    def g(self):\n        self.x, self.f = 1, print\n",
}


@pytest.mark.parametrize("source", PLANTED.values(), ids=PLANTED)
def test_a_method_that_is_assigned_is_found(source: str) -> None:
    assert assigned_methods([ast.parse(source)])


def test_a_field_and_a_property_with_a_setter_are_no_methods() -> None:
    source = (
        "class A:\n    wake: object\n    @property\n    def p(self): ...\n    @p.setter\n    def p(self, v): ...\n"
        "def g(a):\n    a.wake = a.p = 1\n"
    )
    assert assigned_methods([ast.parse(source)]) == []
