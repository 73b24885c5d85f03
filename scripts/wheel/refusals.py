"""Find what mypyc compiles without a word, and what then crashes or is ignored.

The build refuses these, and so does a test of the sources as they are. Each is legal Python, and means something else
once it is compiled:

- a method assigned onto an instance: compiled callers call the method of the class all the same;
- a class attribute that a subclass overrides by a property, or the other way round: compiled readers find the one that
  the type of the variable has;
- a pattern with a star: it takes lists only, and raises TypeError for a tuple;
- a field of a dataclass annotated `object`: KeyError when the module is imported;
- `__new__` without `__init__`: it runs `__init__`, and raises TypeError if that takes arguments.
- an attribute such as `_signed`: in C it is `__signed`, a keyword of the compiler.
- a generator expression, unless `any`, `all`, `next` or `sum` has it, or all of it is used where it stands: it is a
  list then. All items are computed before the first is used, even where only that is needed, or each is to be a step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

Parents = Mapping[ast.AST, ast.AST]

# What may have a generator expression: functions that mypyc makes a loop of, those that use all items at once, and
# those whose result counts.
LOOPS = {"any", "all", "next", "sum"}
ALL_OF_IT = {"tuple", "list", "set", "frozenset", "dict", "sorted", "min", "max", "join", "extend", "update", "union"}
ALL_OF_IT |= {"Counter", "fromkeys", "add_all"}
PASS_ON = {"chain", "from_iterable", "filter", "map", "zip", "enumerate"}

# An attribute is a field of a C struct, with another underscore before its name.
KEYWORDS = {"_alignof", "_asm", "_attribute", "_complex", "_const", "_imag", "_inline", "_real", "_restrict"}
KEYWORDS |= {"_signed", "_thread", "_typeof", "_volatile"}

# mypy finds assigned methods by their types, so nobody may silence it.
SILENCED = re.compile(r"type: ignore\[[^]]*method-assign")


def refusals(files: Iterable[Path], others: Iterable[Path] = ()) -> list[str]:
    """Return what is refused in these files, each with its place and the way out.

    `others` stay interpreted. Of these it matters only what they do to compiled classes.
    """
    own = {str(file): file.read_text() for file in files}
    texts = own | {str(file): file.read_text() for file in others}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    found = [f"{name}:{line}: {what}" for name, line, what in _all(trees, own)]
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if SILENCED.search(line):
                found.append(f"{name}:{number}: method-assign is ignored: write a method that calls what it holds")
    return found


def _all(trees: Mapping[str, ast.AST], own: Collection[str]) -> Iterator[tuple[str, int, str]]:
    classes = Classes(trees)
    yield from _assigned_methods(trees, classes)
    yield from _mixed_attributes(classes)
    for name in own:
        yield from ((name, node.lineno, what) for node, what in _in_one_file(trees[name]))


def _in_one_file(tree: ast.AST) -> Iterator[tuple[ast.pattern | ast.stmt | ast.expr, str]]:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchStar):
            yield node, "a pattern with a star takes no tuple when it is compiled: index instead"
        if isinstance(node, ast.GeneratorExp) and not _is_lazy(node, parents) and not _is_used_up(node, parents):
            yield node, "all of it is computed first: write a list, or a loop that yields, or call any() with it itself"
        if isinstance(node, ast.Attribute) and node.attr in KEYWORDS and isinstance(node.ctx, ast.Store):
            yield node, f"`_{node.attr}` is a keyword of C compilers: choose another name"
        if _makes_without_init(node):
            yield node, "`__new__` of a compiled class runs `__init__`: call the class"
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and ast.unparse(item.annotation) == "object":
                    yield item, "a field annotated `object` fails at the import of the compiled module: write Any"


def _is_lazy(node: ast.GeneratorExp, parents: Parents) -> bool:
    """Whether mypyc makes a loop of the generator expression and the function that has it."""
    return _called(parents[node]) in LOOPS and node is getattr(parents[node], "args", [None])[0]


def _is_used_up(node: ast.expr, parents: Parents) -> bool:
    """Whether all items of this expression are used where it stands, so that a list is the same."""
    match parent := parents[node]:
        case ast.Starred() | ast.AugAssign() | ast.Assign(targets=[ast.Tuple()]):
            return True
        case ast.IfExp():
            return _is_used_up(parent, parents)
        case ast.Call():
            named = _called(parent)
            return named in ALL_OF_IT or (named in PASS_ON and _is_used_up(parent, parents))
        case ast.comprehension():
            whole = parents[parent]
            return not isinstance(whole, ast.GeneratorExp) or _is_used_up(whole, parents)
        case ast.Assign(targets=[ast.Name(id=name)]):
            function: ast.AST = parent
            while not isinstance(function, FUNCTIONS | ast.Module):
                function = parents[function]
            names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name]
            return all(_is_used_up(each, parents) for each in names if isinstance(each.ctx, ast.Load))
    return False


def _called(node: ast.AST) -> str:
    """Return the last part of the name of what is called; empty if the node is no call of a name."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def _makes_without_init(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it calls the `__new__` of a class, other than a tuple's, whose subclasses are never compiled."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tuple"), attr="__new__")):
            return False
        case ast.Call(func=ast.Attribute(attr="__new__")):
            return True
    return False


def _assigned_methods(trees: Mapping[str, ast.AST], classes: Classes) -> Iterator[tuple[str, int, str]]:
    """Find assignments to a method of the own class, and from outside to what is a method and nowhere a field."""
    advice = "compiled callers ignore a method that is assigned: write a method that calls what it holds"
    for name, node in classes.all:
        methods = {each for kin in classes.kin(name, node) for each in _methods(kin)}
        for target in _targets(node):
            if isinstance(target.value, ast.Name) and target.value.id == "self" and target.attr in methods:
                yield name, target.lineno, f"{node.name}.{target.attr}: {advice}"
    fields = set[str]().union(*map(_fields, trees.values()))
    only_methods = set[str]().union(*(_methods(node) for _, node in classes.all)) - fields
    for name, tree in trees.items():
        for target in _targets(tree):
            if target.attr in only_methods and not (isinstance(target.value, ast.Name) and target.value.id == "self"):
                yield name, target.lineno, f"{ast.unparse(target)}: {advice}"


def _mixed_attributes(classes: Classes) -> Iterator[tuple[str, int, str]]:
    """Find class attributes and properties that override each other."""
    for name, node in classes.all:
        for base in classes.kin(name, node)[1:]:
            for attribute in sorted(_properties(node) & _declared(base) | _declared(node) & _properties(base)):
                what = "is a property here and a plain attribute there: compiled readers take one for the other"
                yield name, node.lineno, f"{node.name}.{attribute}, {base.name}.{attribute}: it {what}"


class Classes:
    """The classes of all files. A base is looked for in the file of the class first."""

    def __init__(self, trees: Mapping[str, ast.AST]) -> None:
        self.all = [
            (name, node) for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        ]
        self._by_name = dict[str, list[tuple[str, ast.ClassDef]]]()
        for name, node in self.all:
            self._by_name.setdefault(node.name, []).append((name, node))

    def kin(self, name: str, node: ast.ClassDef) -> list[ast.ClassDef]:
        """Return a class and its bases, as far as they are here."""
        found, left = list[ast.ClassDef](), [(name, node)]
        while left:
            where, each = left.pop()
            if each in found:
                continue
            found.append(each)
            for base in each.bases:
                if isinstance(base, ast.Name):
                    left += self._named(where, base.id)
        return found

    def _named(self, name: str, wanted: str) -> list[tuple[str, ast.ClassDef]]:
        named = self._by_name.get(wanted, [])
        return ([each for each in named if each[0] == name] or named)[:1]


def _marks(function: FUNCTIONS) -> set[str]:
    """Return the names of a function's decorators, of each the last part."""
    return {
        mark.attr if isinstance(mark, ast.Attribute) else getattr(mark, "id", "") for mark in function.decorator_list
    }


def _methods(node: ast.ClassDef) -> set[str]:
    """Return the methods that a class defines, without its properties."""
    functions = [item for item in node.body if isinstance(item, FUNCTIONS)]
    return {item.name for item in functions} - _properties(node)


def _properties(node: ast.ClassDef) -> set[str]:
    functions = [item for item in node.body if isinstance(item, FUNCTIONS)]
    return {item.name for item in functions if _marks(item) & {"property", "setter", "cached_property"}}


def _declared(node: ast.ClassDef) -> set[str]:
    """Return the attributes in the body of a class."""
    items = [item for item in node.body if isinstance(item, ast.AnnAssign | ast.Assign)]
    targets = [item.target if isinstance(item, ast.AnnAssign) else item.targets[0] for item in items]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _fields(tree: ast.AST) -> set[str]:
    """Return the attributes that the classes of a file have as fields: assigned to `self`, or in the class body."""
    own = {each.attr for each in _targets(tree) if isinstance(each.value, ast.Name) and each.value.id == "self"}
    return own.union(*(_declared(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)))


def _targets(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield every attribute that is assigned to, by a statement or by `setattr` with the name as a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        else:
            match node:
                case ast.Call(func=ast.Name(id="setattr"), args=[target, ast.Constant(value=str(name)), _]):
                    yield ast.copy_location(ast.Attribute(target, name), node)
            continue
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (each for each in parts if isinstance(each, ast.Attribute))
