"""Functions of params, as decision trees: each node asks one thing, in one of the ways in which it can be asked."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from xdsprism.core.model.types import Params

KEYS = ("env", "version")
VALUES = ("a", "b")


@dataclass(frozen=True)
class Leaf:
    body: str | None  # None: there is nothing


@dataclass(frozen=True)
class Test:
    __test__ = False

    how: str
    key: str
    value: str
    yes: Tree
    no: Tree


Tree = Leaf | Test

HOW = {
    "equals": lambda params, key, value: params[key] == value,
    "one of": lambda params, key, value: params[key] in (value, "z"),
    "is there": lambda params, key, _: key in params,
    "default": lambda params, key, value: params.get(key, value) == value,
    "hash": lambda params, key, value: key in params and params[key] in {value, "z"},
    "text": lambda params, key, value: key in params and str(params[key]).startswith(value),
    "empty": lambda params, key, _: bool(params[key]),
}


def run_tree(tree: Tree, params: Params) -> str | None:
    """The same for plain params and for recorded ones, but that plain ones have no value for what is not there."""
    while isinstance(tree, Test):
        tree = tree.yes if HOW[tree.how](params, tree.key, tree.value) else tree.no
    return tree.body


class Lenient(Params):
    """Plain params that equal nothing where they have no value, as a provider's do."""

    def __getitem__(self, key: str) -> str:
        found = self.get(key)
        return found if found is not None else Nobody()  # type: ignore[return-value]

    def __contains__(self, key: object) -> bool:
        return key in tuple(self)


class Nobody:
    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return False


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.builds(Leaf, st.sampled_from([None, "1", "2", "3"]))

    def tests(below: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        values = st.sampled_from(VALUES)
        return st.builds(Test, st.sampled_from(sorted(HOW)), st.sampled_from(KEYS), values, below, below)

    return st.recursive(leaves, tests, max_leaves=6)
